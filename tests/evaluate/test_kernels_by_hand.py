"""Kernels that are mapped one by one on temporal chips take what the kernel clock says, to 1e-9.

Mapped kernel by kernel, each is compared with what the kernel clock says of its definition, split
as the mapping splits it.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import pytest

import crosstack
from crosstack import Constraints, Dtype, Task
from crosstack.io import library
from crosstack.io.library import system_on
from crosstack.machine.chip import Overlap
from crosstack.machine.framework import Fusion
from crosstack.machine.memory import Scope
from crosstack.machine.system import Parallelism
from crosstack.model.kernels.roofline import Roofline
from crosstack.published.dfmodel.graphs.llm import llm
from crosstack.published.dfmodel.graphs.serving import decode, prefill
from crosstack.workload.architectures import Transformer
from crosstack.workload.kernels import Axis, KernelKind

CLOSE = {"rel": 1e-9, "abs": 0.0}
CHIPS = ["a100-sxm-80gb", "h100-sxm", "mi300x", "b200", "a100-pcie-40gb", "v100-sxm-32gb",
         "h100-pcie", "h200-sxm", "gaudi3", "tpu-v5p"]  # fmt: skip
NODES = ["a100-dgx-80gb", "h100-dgx", "h200-dgx", "b200-dgx", "mi300x-8"]
# Hidden width, heads, tokens (``brown2020language``, table 2.1; ``touvron2023llama``, table 2).
GPT = {"gpt3-175b": (12288, 96, 2048), "gpt3-13b": (5120, 40, 2048), "llama-7b": (4096, 32, 1024)}


@cache
def workload(kind, name, batch, tokens=2048):
    """Return a layer: the training of a GPT, or a Llama that reads prompts or writes tokens."""
    if kind == "training":
        hidden, heads, tokens = GPT[name]
        return llm(
            hidden=hidden, sequence_length=tokens, n_heads=heads, head_size=hidden // heads,
            n_layers=1, global_batch_size=batch,
        )  # fmt: skip
    model: Transformer = library.model(name)
    if kind == "prefill":
        return prefill(model, tokens=tokens, global_batch_size=batch)
    return decode(model, context=tokens, global_batch_size=batch)


def kernel_by_kernel(chip):
    """Return a chip with memory for any layer, whose attention is no kernel of its own."""
    fusions = tuple(each for each in chip.fusions if each is not Fusion.ATTENTION)
    return replace(chip.with_memory(capacity=None), fusions=fusions)


def alone(name):
    """Return a system of one chip."""
    system = system_on(name)
    return replace(system, chip=kernel_by_kernel(system.chip))


def together(name):
    """Return a node all of whose chips share every kernel."""
    system = system_on(name)
    network = tuple(replace(d, parallelism=Parallelism.TENSOR) for d in system.network)
    return replace(system, network=network, chip=kernel_by_kernel(system.chip))


def mapped(work, system):
    """Return a mapping kernel by kernel, of all sequences at a time; the first that is found."""
    given = Constraints(kernel_by_kernel=True, microbatch_size=work.global_batch_size)
    task = Task(workload=work, system=system, constraints=given)
    return crosstack.optimise(task, work_limit=1e4)


def own_extents(kernel, axis, degree):
    """Return outer, M, K and N of what one of ``degree`` chips has of a kernel."""
    extents = dict(zip((Axis.OUTER, Axis.M, Axis.K, Axis.N),
                       (kernel.outer, kernel.m, kernel.k, kernel.n), strict=True))  # fmt: skip
    if axis is not Axis.NONE:
        assert extents[axis] % degree == 0
        extents[axis] //= degree
    return extents.values()


def predicted(kernel, axis, degree, times, batch, near):
    """Time of a kernel of ``batch`` sequences as a step counts it, from its definition alone.

    ``near`` is what the first level gives that all multiprocessors share; infinite without one.
    """
    outer, m, k, n = own_extents(kernel, axis, degree)
    if not kernel.kind.is_gemm:
        share = outer * m * n / (kernel.outer * kernel.m * kernel.n)
        made = outer * m * n * times.element_size
        moved = made + sum(kernel.input_sizes) * share
        work = kernel.work * share
        return times.elementwise(batch * work, batch * moved) + times.launch_overhead
    if kernel.kind is KernelKind.GEMM_WEIGHT:  # all heads share the activations
        return times.product(outer * m, k, batch * n)
    if kernel.communications:  # the gradient of a weight adds up over tokens, and is added to
        return times.product(m, batch * k, n) + m * n * Dtype.BF16.size / near
    return times.product(m, k, n, batch * outer)


def check(work, system, degree):
    rates = dict(system.chip.compute.relative_rates)
    if work.graph.dtype not in rates:  # of as many bytes
        work = replace(work, graph=work.graph.computed_in(Dtype.FP16))
    answer = mapped(work, system)
    times = Roofline().times(system.chip, work.graph.dtype)
    kernels = {kernel.name: kernel for kernel in work.graph.kernels}
    batch = work.global_batch_size
    shared = [level.speed for level in system.chip.levels if level.scope is Scope.CHIP]
    near = shared[0] if shared else math.inf
    axes = dict(zip(kernels, answer.mapping.sharding, strict=True))
    assert len(answer.evaluation.partitions) == len(kernels)
    for partition in answer.evaluation.partitions:
        (name,) = partition.kernels
        expected = predicted(kernels[name], axes[name], degree, times, batch, near)
        device = (partition.time - partition.network_time) * batch
        assert device == pytest.approx(expected, **CLOSE), name
    return answer


TRAINED = [("training", name, batch) for name in GPT for batch in (1, 4)]
SERVED = [
    (kind, name, batch)
    for kind in ("prefill", "decode")
    for name in ("llama3-8b", "llama3-70b", "llama-68m")
    for batch in (1, 16)
]


SOME = [TRAINED[3], *SERVED[3::4]]
PAIRS = [(chip, case) for chip in CHIPS for case in SOME]
PAIRS += [(chip, case) for chip in CHIPS[:3] for case in TRAINED + SERVED if case not in SOME]


@pytest.mark.parametrize(("chip", "case"), PAIRS, ids=str)
def test_every_kernel_takes_what_a_prediction_counts(chip, case):
    check(workload(*case), alone(chip), 1)


@pytest.mark.parametrize("case", [TRAINED[0], TRAINED[3], *SERVED[::3]], ids=str)
@pytest.mark.parametrize("node", NODES)
def test_every_kernel_split_over_a_node_takes_what_a_prediction_counts(node, case):
    system = together(node)
    answer = check(workload(*case), system, system.n_chips)
    assert system.chip.overlap is Overlap.COMPUTE_MEMORY
    assert any(p.network_time > 0 for p in answer.evaluation.partitions)
