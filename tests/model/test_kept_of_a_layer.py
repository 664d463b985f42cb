"""What a layer of a language model of the library keeps for its backward pass, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders.small_models import GPT, LLAMA

from crosstack.machine.chip import flat_chip
from crosstack.machine.memory import main_memory
from crosstack.machine.system import Dimension, DimensionKind, Parallelism, System
from crosstack.model.choices import index_of, make_choices
from crosstack.model.mesh_plan import make_plan
from crosstack.model.rules import rules_named
from crosstack.workload.architectures import Transformer
from crosstack.workload.job import Job
from crosstack.workload.kernels import Axis
from crosstack.workload.transformer_training import Recompute

RULES = rules_named("crosstack")
H, S, A = 64, 16, 4  # hidden, sequence, heads
B = 2  # sequences of a microbatch
WIDE, SCORES = float(S * H), float(A * S * S)  # elements of an activation, of the scores
SHAPE = {"hidden": H, "layers": 3, "heads": A, "kv_heads": A, "head_size": H // A}
PLAIN = replace(GPT, **SHAPE, feed_forward=4 * H, positions=S, context=S)
DROPPED = replace(PLAIN, dropout=True)
# Tensor-parallel chips split heads and the feed-forward width; what is between is whole on each.
MEGATRON = {
    "up": Axis.M, "up_biased": Axis.M, "active": Axis.M, "down": Axis.K, "attention_out": Axis.K
}  # fmt: skip


def kept(
    model: Transformer,
    *,
    tensor: int = 1,
    between: Axis = Axis.NONE,
    recompute: Recompute = Recompute.NONE,
) -> tuple[float, float]:
    """Bytes of a layer and sequence: kept, and there besides while it is computed again. [B]

    ``between`` is how norms, dropout and additions between products are split.
    """
    workload = Job(model=model, batch=B, sequence=S).workload
    chip = flat_chip(
        n_cores=1, lanes=1, stages=1, frequency=1.0, sram_capacity=1e12, utilization=1.0
    )
    chip = replace(chip, memories=main_memory(bandwidth=1.0))
    ring = Dimension(kind=DimensionKind.RING, bandwidth=1.0, size=tensor)
    system = System(chip=chip, network=(ring,), n_chips=tensor)
    plan = make_plan(workload, system, (tensor,), (Parallelism.TENSOR,), 1, RULES)
    assert plan is not None
    plan = replace(plan, recompute=recompute)
    arrays, index = workload.graph, index_of(workload, workload.graph, RULES)
    choices = make_choices(workload, arrays, plan, 1, RULES)
    codes = []
    for i, name in enumerate(arrays.names):
        allowed = index.axes(i)
        wanted = MEGATRON.get(name, between)
        axis = wanted if wanted in allowed else allowed[0]
        codes.append(int(index.start[i]) + allowed.index(axis))
    return float(choices.kept[codes].sum()), float(choices.again[codes].sum())


class TestGpt:
    """Equations of korthikanti2023reducing, at two bytes a number and one a dropped element."""

    def test_without_parallelism(self):  # equation 1: s b h (34 + 5 a s / h)
        assert kept(DROPPED) == (34 * WIDE + 5 * SCORES, 0.0)

    def test_without_dropout(self):
        # Masks of 1 behind attention and feed-forward network, and of the scores mask and result.
        assert kept(PLAIN) == (32 * WIDE + 2 * SCORES, 0.0)

    def test_biases_keep_nothing(self):
        without = replace(DROPPED, qkv_bias=False, output_bias=False, feed_forward_bias=False)
        assert kept(without) == kept(DROPPED)

    @pytest.mark.parametrize("tensor", [2, 4])
    def test_tensor_parallel(self, tensor):  # equation 2: s b h (10 + 24 / t + 5 a s / (h t))
        found, _ = kept(DROPPED, tensor=tensor)
        assert found == 10 * WIDE + (24 * WIDE + 5 * SCORES) / tensor

    @pytest.mark.parametrize("tensor", [2, 4])
    def test_tensor_and_sequence_parallel(self, tensor):  # equation 4: (34 + 5 a s / h) / t
        found, _ = kept(DROPPED, tensor=tensor, between=Axis.N)
        assert found == (34 * WIDE + 5 * SCORES) / tensor

    @pytest.mark.parametrize("tensor", [1, 4])
    def test_attention_computed_again(self, tensor):  # equation 6: 34 s b h / t
        found = kept(DROPPED, tensor=tensor, between=Axis.N, recompute=Recompute.ATTENTION)
        assert found == (34 * WIDE / tensor, 5 * SCORES / tensor)

    def test_all_computed_again(self):  # section 5: 2 s b h
        found, again = kept(DROPPED, recompute=Recompute.FULL)
        assert (found, found + again) == (2 * WIDE, 34 * WIDE + 5 * SCORES)


def test_without_training_nothing_is_left_out():
    for kind in ("forward", "prefill"):
        names = Job(model=DROPPED, kind=kind, sequence=S).workload.graph.names
        assert not [name for name in names if "dropped" in name]


def test_a_gated_layer_with_grouped_keys():
    # llama: norms and their inputs 2 + 2 each, queries 2, keys and values 2 x 2 / group, weighted
    # values 2, the two projections up 2 each of f / h, and their product 2 f / h; and the places of
    # the tokens, 4 each.
    model = replace(LLAMA, **SHAPE | {"kv_heads": 2}, feed_forward=3 * H, context=S)
    found, again = kept(model, recompute=Recompute.ATTENTION)
    assert found == WIDE * (8 + 2 + 4 / 2 + 2 + 3 * 2 * 3) + 4 * S
    assert again == 2 * SCORES
