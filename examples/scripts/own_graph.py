# %% [markdown]
# # Your own graph
#
# A gated feed-forward network, built kernel by kernel: two products with a weight, a product of
# both results element by element, and a third product. All sizes are those of one sequence on one
# chip, before anything is split.

# %%
from pathlib import Path

import crosstack
from crosstack import Axis, Kernel, KernelKind, Tensor, Workload
from crosstack.report.svg import answer_svg
from crosstack.workload.kernel_graph import kernel_graph
from crosstack.workload.kernels import ComputeUnit, Consumer

HIDDEN, WIDE, TOKENS, WORD = 4096, 14336, 2048, 2  # WORD in bytes
narrow, wide = float(HIDDEN * TOKENS * WORD), float(WIDE * TOKENS * WORD)


def product(name, rows, depth, reads, makes):
    """Return rows x depth weights times depth x TOKENS activations."""
    return Kernel(
        name=name,
        kind=KernelKind.GEMM_WEIGHT,
        m=rows,
        k=depth,
        n=TOKENS,
        input_sizes=(reads,),
        output_size=makes,
        weight_size=float(rows * depth * WORD),
        unit=ComputeUnit.SYSTOLIC,
        tiling=Axis.N,
    )


kernels = (
    product("gate", WIDE, HIDDEN, narrow, wide),
    product("up", WIDE, HIDDEN, narrow, wide),
    Kernel(
        name="multiply",
        kind=KernelKind.ELEMENTWISE_2,
        m=WIDE,
        n=TOKENS,
        input_sizes=(wide, wide),
        output_size=wide,
        unit=ComputeUnit.SIMD,
    ),
    product("down", HIDDEN, WIDE, wide, narrow),
)
tensors = (
    Tensor(producer="gate", consumers=(Consumer(kernel="multiply", operand=0),), size=wide),
    Tensor(producer="up", consumers=(Consumer(kernel="multiply", operand=1),), size=wide),
    Tensor(producer="multiply", consumers=(Consumer(kernel="down"),), size=wide),
)
graph = kernel_graph(kernels=kernels, tensors=tensors, word=WORD)
work = sum(kernel.work for kernel in graph.kernels)
print(f"{len(graph.kernels)} kernels, {work / 1e12:.3f} TFLOP a sequence and layer")

# %% [markdown]
# The graph is one layer; a workload says how many there are and how many sequences are worked on.
# The machine comes from the library: 16 SN40L on a ring.

# %%
workload = Workload(
    name="gated network", graph=graph, n_layers=32, sequence_length=TOKENS, global_batch_size=64
)
system = crosstack.load("examples/llama3_8b_sn40l.yaml").system
answer = crosstack.optimise(workload, system, time_limit=30)
print(answer.certificate.status, f"{1e3 * answer.evaluation.time:.1f} ms")
for p in answer.evaluation.partitions:
    print(f"partition {p.number}: {', '.join(p.kernels)}; bound by {p.bound_by}")

# %%
Path("own_graph.svg").write_text(answer_svg(answer))
