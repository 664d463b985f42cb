"""What recipes of Megatron-Bridge say of how tokens reach experts, which rows of runs do not.

Recipes are of a model on some machines, in some types of numbers, and change from release to
release (``nvidia_megatron_bridge_recipes``). Tokens are dispatched by an all-to-all of every copy,
or by DeepEP or HybridEP, which send a token to a chip once; what they send runs beside another
microbatch where `overlap_moe_expert_parallel_comm` says so, in combined 1F1B.
"""

from __future__ import annotations

from dataclasses import dataclass

from crosstack.workload.dtype import Dtype

__all__ = ["Recipe", "recipe_of"]

Release = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How runs of a model send tokens to experts, from a release on.

    ``model``: how its name begins. ``machines`` and ``dtypes``: of which it is, all if empty.
    ``every_copy``: whether a token goes to a chip as often as it has experts there; ``combined``:
    whether that runs beside other microbatches; ``fused_experts``: whether products of experts,
    their activation and biases are one kernel each way (CuTeDSL); ``recorded``: whether launches
    of whole iterations are recorded and replayed.
    """

    model: str
    since: Release = ()
    machines: tuple[str, ...] = ()
    dtypes: tuple[Dtype, ...] = ()
    every_copy: bool = False
    combined: bool = False
    fused_experts: bool = False
    recorded: bool = False

    def is_of(self, model: str, machine: str, dtype: Dtype, release: Release) -> bool:
        """Whether a run of a release follows it."""
        named = model.startswith(self.model) and self.since <= release
        there = machine in (self.machines or (machine,))
        return named and there and dtype in (self.dtypes or (dtype,))


def _tuned(model: str, since: Release, *machines: str, recorded: bool = True) -> Recipe:
    """Return a recipe in 8 bits on Blackwell that overlaps what is sent and has fused experts.

    Pull requests 3983 and 4498 (DeepSeek-V3), 4173 (GPT-OSS), 4249 and 4606 (Qwen3) brought them.
    """
    return Recipe(
        model=model,
        since=since,
        machines=machines,
        dtypes=(Dtype.MXFP8,),
        combined=True,
        fused_experts=True,
        recorded=recorded,
    )


QWEN, GPT, DEEPSEEK = "Qwen3_235B", "GPT OSS 120B", "DeepSeek"
RACKS, SERVERS = ("GB200", "GB300"), ("B200-SXM", "B200", "B300")
HOPPER = ("H100-SXM-80GB", "H100")
# The last that a run follows counts. Recipes of September 2025 overlap nothing
# (`CommOverlapConfig(tp_comm_overlap=True)`), and dispatch as models have it: by an all-to-all.
RECIPES = (
    Recipe(model=QWEN, every_copy=True),
    Recipe(model=QWEN, since=(25, 11), machines=RACKS),
    Recipe(model=QWEN, since=(25, 11), machines=HOPPER, every_copy=True, combined=True),
    Recipe(model=QWEN, since=(26, 4, 1), machines=("B300",)),  # issue 3399
    _tuned(QWEN, (26, 6), *RACKS),
    _tuned(QWEN, (26, 6, 1), *SERVERS),
    Recipe(model=GPT, every_copy=True),
    # Pull request 3561: HybridEP before, an all-to-all since, overlapped in both.
    Recipe(model=GPT, since=(26, 2), machines=("GB200",), combined=True),
    Recipe(model=GPT, since=(26, 4, 1), machines=("GB200",), every_copy=True, combined=True),
    Recipe(model=GPT, since=(26, 2, 1), machines=("B300",)),
    _tuned(GPT, (26, 6), *RACKS),
    _tuned(GPT, (26, 6), "B300", recorded=False),
    _tuned(DEEPSEEK, (26, 6), "GB300"),
    _tuned(DEEPSEEK, (26, 6, 1), "GB200", "B300"),
)
PLAIN = Recipe(model="")  # a token goes to a chip once, beside nothing


def recipe_of(model: str, machine: str, dtype: Dtype, release: Release) -> Recipe:
    """Return the recipe that a run follows.

    Parameters
    ----------
    model, machine : str
        As rows of tables call them.
    dtype : Dtype
        What it computes in.
    release : tuple of int
        Of the framework, as 26.04.01.
    """
    found = (each for each in reversed(RECIPES) if each.is_of(model, machine, dtype, release))
    return next(found, PLAIN)
