"""Every model of the library on every node is trained and served, or refused with a reason."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest
from models import serve, train

from crosstack.errors import CrosstackError, InfeasibleError, InputError
from crosstack.evaluate.serving_sweep import Phase
from crosstack.io import library
from crosstack.model.kernels.roofline import Roofline

NODES = library.names("nodes")
MODELS = library.names("models")
DEFAULT = "h100-dgx"
# A node with all models takes 15 s: all on one node, every sixth of them on another, so that each
# model is tried on three or four nodes and each family on all.
STRIDE = 6
# What a data sheet leaves out: the node is refused once, whatever the model.
SILENT = {"cs-2", "cs-3", "sn30-node", "sn40l-node", "tpu-v4-cube", "tpu-v4-pod", "trn2-48xlarge"}

OLDER = "v100-dgx-2"  # its chip has no bf16, the type that is taken


def outcome(run):
    """Return what came of a run, and the reason if it was refused."""
    try:
        return ("ran", "") if run() > 0 else ("no time", "")
    except InfeasibleError as refused:
        return "too large", "; ".join(refused.levers)
    except CrosstackError as refused:
        return "refused", str(refused)


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("node", "stride"),
    [
        (DEFAULT, STRIDE),
        slow(DEFAULT, 1),
        *(slow(name, STRIDE) for name in NODES if name not in {*SILENT, OLDER, DEFAULT}),
    ],
)
def test_every_model_runs_or_is_refused_with_a_reason(node, stride):
    system = library.system_on(node)
    found: Counter[tuple[str, str]] = Counter()
    names = MODELS[NODES.index(node) % stride :: stride]
    for name in names:
        model = library.model(name)
        sequence = min(2048, model.window or 2048)
        runs = {"train": partial(train, model, system, sequence)} | {
            phase: partial(serve, phase, model, system, sequence) for phase in Phase
        }
        for what, run in runs.items():
            word, reason = outcome(run)
            found[what, word] += 1
            assert word == "ran" or reason, (name, what)
            if word == "refused":
                assert "allowed" in reason or "divide" in reason, (name, what)
    assert found["train", "refused"] < len(names) / 7
    assert found["train", "ran"] > len(names) / 4
    assert found["decode", "ran"] == found["prefill", "ran"] > 2 * len(names) / 3


@pytest.mark.parametrize("node", sorted(SILENT))
def test_a_node_whose_data_sheet_says_too_little_is_refused_once(node):
    with pytest.raises(InputError, match="has no bandwidth|is not in the library"):
        Roofline().times(library.system_on(node).chip)


@pytest.mark.parametrize("what", ["train", *Phase])
def test_a_type_that_the_chip_has_not_is_refused_with_the_one_that_it_has(what):
    system, model = library.system_on(OLDER), library.model("gpt2-xl")
    run = partial(train, model, system) if what == "train" else partial(serve, what, model, system)
    with pytest.raises(InputError, match="has no rate for bf16; it has fp16"):
        run(1024)
