"""Claims about the search where chips run kernels one after the other."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from builders.seeds import few_and_many

from crosstack.errors import InfeasibleError, InputError
from crosstack.evaluate.time import evaluate
from crosstack.io import library
from crosstack.machine.chip import Overlap
from crosstack.machine.system import Dimension, DimensionKind, Parallelism, System
from crosstack.mapping.following import choices_excess
from crosstack.mapping.mapping import Constraints, Mapping, Status
from crosstack.mapping.search import search
from crosstack.model.choices import make_choices
from crosstack.model.mesh_plan import make_plan
from crosstack.model.partition import make_load, partition_cost, relaxed_load
from crosstack.model.rules import rules_named
from crosstack.published.dfmodel.graphs.llm import llm
from crosstack.published.dfmodel.graphs.serving import decode, prefill
from crosstack.workload.kernel_graph import bits
from crosstack.workload.kernels import Axis

RULES = rules_named("crosstack")
ROUNDING = 1 + 1e-9
SEQUENCE_TILED = (Axis.N, Axis.NONE, Axis.NONE)


@pytest.fixture(scope="session")
def task(random_task):
    """Return a builder of a random problem on four temporal chips."""

    def build(seed: int, n: int = 7):
        workload, system = random_task(
            seed, n, temporal=True, dimensions=2, length=4, tilings=SEQUENCE_TILED
        )
        return replace(workload, global_batch_size=4), system

    return build


def random_partitions(load, rng: random.Random) -> list[int]:
    """Return random partitions that are legal, in an order in which they may run."""
    done, partitions = 0, []
    while done != load.everything:
        inside = 0
        for _ in range(rng.randint(1, 5)):
            ready = [
                i
                for i in range(load.n)
                if not (done | inside) >> i & 1 and not load.preds[i] & ~(done | inside)
            ]
            legal = [i for i in ready if load.temporal.legality.allows(inside | 1 << i)]
            inside |= 1 << rng.choice(legal) if legal else 0
        partitions.append(inside)
        done |= inside
    return partitions


def random_mapping(workload, system, rng: random.Random) -> Mapping | None:
    """Return a random mapping whose partitions are legal; None where its batch does not divide."""
    arrays = workload.graph
    sizes = rng.choice([(1, 4), (2, 2), (4, 1)])
    known = [Parallelism.TENSOR, Parallelism.PIPELINE, Parallelism.DATA]  # no experts, no tokens
    uses = tuple(rng.choice(known) for _ in sizes)
    plan = make_plan(workload, system, sizes, uses, rng.choice([1, 2, 4]), RULES)
    if plan is None:
        return None
    choices = make_choices(workload, arrays, plan, 1, RULES, system.chip)
    codes = np.array([rng.choice(domain) for domain in choices.index.domains()])
    load = make_load(workload, system, arrays, plan, choices, codes, RULES)
    partitions = random_partitions(load, rng)
    numbers = [0] * load.n
    for number, inside in enumerate(partitions):
        for i in bits(inside):
            numbers[i] = number
    return Mapping(
        sizes=plan.sizes,
        parallelism=plan.parallelism,
        microbatch_size=plan.microbatch_size,
        n_tiles=1,
        sharding=choices.index.sharding(codes),
        partitions=tuple(numbers),
    )


@pytest.mark.parametrize("seeds", few_and_many(4, 8), ids=len)
def test_no_random_mapping_beats_a_proof(task, seeds):
    fused = 0
    for seed in seeds:
        workload, system = task(seed)
        mapping, certificate = search(workload, system, Constraints(), RULES)
        assert certificate.status is Status.OPTIMAL
        best = evaluate(workload, system, mapping, RULES).time
        assert best == pytest.approx(certificate.objective, rel=1e-9)
        rng = random.Random(seed)
        for other in [random_mapping(workload, system, rng) for _ in range(60)]:
            if other is None:
                continue
            fused += len(set(other.partitions)) < len(other.partitions)
            try:
                time = evaluate(workload, system, other, RULES).time
            except InfeasibleError:
                continue
            assert certificate.objective <= time * ROUNDING, seed
    assert fused > 4 * len(seeds)


@pytest.mark.parametrize("seed", range(6))
def test_what_a_chip_does_not_fuse_is_refused(task, seed):
    workload, system = task(seed)
    mapping, _ = search(workload, system, Constraints(), RULES)
    together = replace(mapping, partitions=(0,) * len(mapping.partitions))
    with pytest.raises(InputError, match="the chip runs no such kernels as one"):
        evaluate(workload, system, together, RULES)


@pytest.mark.parametrize("seed", range(6))
def test_more_fusions_are_never_slower(task, seed):
    workload, system = task(seed)
    times = []
    for fusions in (system.chip.fusions[:1], system.chip.fusions):
        chip = replace(system.chip, fusions=fusions)
        _, certificate = search(workload, replace(system, chip=chip), Constraints(), RULES)
        times.append(certificate.objective)
    assert times[1] <= times[0] * ROUNDING


GPT = {"hidden": 256, "n_heads": 4, "head_size": 64, "sequence_length": 128, "n_layers": 1}
MODEL = library.model("llama-68m")
LAYERS = {
    "forward": llm(**GPT, global_batch_size=4, training=False),
    "training": llm(**GPT, global_batch_size=4),
    "prompts": prefill(MODEL, tokens=256, global_batch_size=4),
    "decoding": decode(MODEL, context=512, global_batch_size=4),
}


def four_chips(overlap):
    """Return four A100 on a ring."""
    chip = replace(library.chip("a100-sxm-80gb"), overlap=overlap)
    ring = Dimension(kind=DimensionKind.RING, size=4, bandwidth=3e11, latency=1e-6)
    return System(chip=chip, network=(ring,), n_chips=4)


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("overlap", [Overlap.COMPUTE_MEMORY, Overlap.NONE])
@pytest.mark.parametrize("microbatch", [1, 4])
@pytest.mark.parametrize("draws", [6, pytest.param(20, marks=pytest.mark.slow)])
def test_no_choices_beat_what_they_add_to_the_least_of_all(layer, overlap, microbatch, draws):
    """The bound by what each choice takes beyond the least, for any partitions under them."""
    workload, system, rng = LAYERS[layer], four_chips(overlap), random.Random(microbatch)
    arrays = workload.graph
    plan = make_plan(workload, system, (4,), (Parallelism.TENSOR,), microbatch, RULES)
    choices = make_choices(workload, arrays, plan, 1, RULES, system.chip)
    given, every = (workload, system, arrays, plan, choices), choices.index.domains()
    positive = 0
    for _ in range(draws):
        domains = [tuple(rng.sample(d, rng.randint(1, len(d)))) for d in every]
        least = relaxed_load(*given, domains, RULES)
        excess = choices_excess(choices, domains, least, arrays, RULES.traffic)
        positive += excess > 0
        for _ in range(10):
            codes = np.array([rng.choice(domain) for domain in domains])
            load = make_load(*given, codes, RULES)
            masks = random_partitions(load, rng)
            taken = sum(partition_cost(load, mask).time for mask in masks)
            bound = sum(partition_cost(least, mask).time for mask in masks) + excess
            assert taken * ROUNDING >= bound
    assert positive > draws / 2
