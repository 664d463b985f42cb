"""How the time of a kernel is counted, one field for each choice.

`KernelRules.crosstack` is the default: what is physically right, for kernels as vendor libraries
write them. The others reproduce releases of the public tool (``deepflow_code``) for comparison.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import StrEnum

from crosstack.errors import InputError, Problem, nearest, require, require_quantity, require_whole

__all__ = ["KERNEL_RULES", "KernelRules", "TileSearch", "kernel_rules_named"]


class TileSearch(StrEnum):
    """Which tiles are tried, and what moves between levels.

    ``exhaustive``: every power of two that fits, on the bundles in waves
    (`crosstack.model.kernels.waves`).
    ``paired``: tiles drawn for two levels, three innermost loops (release of 2025).
    ``nested``: tiles drawn for three levels, each a problem for the next (2020, 2021).
    """

    EXHAUSTIVE = "exhaustive"
    PAIRED = "paired"
    NESTED = "nested"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRules:
    """The choices between sources.

    Parameters
    ----------
    name : str
        What the set is called on the command line.
    search : TileSearch
        Which tiles are tried.
    main_memory_bounds_elementwise : bool
        Whether elementwise kernels are bound by main memory, where their operands are, or by the
        registers (every release of ``deepflow_code``).
    n_drawn : int
        Tiles drawn for each level; 20 (2021, 2025) or 30 (2020). [1]
    tiles_refill : bool
        Whether a tile that is larger than the matrix grows along another axis (2021) or not.
    first_shape_sets_dataflow : bool
        Whether the best dataflow is chosen for the first product and kept (2020, 2021), or chosen
        for each.
    k_step : int
        Columns of A and rows of B that a bundle loads at a time; 32 in CUTLASS's kernels for
        16-bit words (``thakkar2023cutlass``). [1]
    smallest_unit_tile : int
        Rows and columns of C that one unit works on, at least, where they fit; 32 in CUTLASS's
        smallest kernels for tensor cores, 64 x 64 for four units (``thakkar2023cutlass``). A
        matrix times a vector has narrower ones besides. [1]
    longest_strip : int
        Tiles across which the order of tiles turns back, at most; 1, 2, 4 and up to 8 in CUTLASS
        (``thakkar2023cutlass``). [1]
    accumulator_word : float
        Bytes of a partial sum; 4, single precision (``choquette2020a100``). [B]
    accumulator_share : float
        Share of the registers that holds partial sums; the rest holds operands, addresses and
        counters. Assumed: a half is what the largest tile of CUTLASS on an A100, 256 x 128, takes
        of its 256 KiB. [1]
    """

    name: str
    search: TileSearch = TileSearch.EXHAUSTIVE
    main_memory_bounds_elementwise: bool = True
    n_drawn: int = 20
    tiles_refill: bool = False
    first_shape_sets_dataflow: bool = False
    k_step: int = 32
    smallest_unit_tile: int = 32
    longest_strip: int = 8
    accumulator_word: float = 4.0
    accumulator_share: float = 0.5

    def __post_init__(self) -> None:
        """Check every field."""
        require(isinstance(self.search, TileSearch), "search", self.search, ", ".join(TileSearch))
        for name in ("n_drawn", "k_step", "smallest_unit_tile", "longest_strip"):
            require_whole(name, getattr(self, name))
        require_quantity("accumulator_word", self.accumulator_word, "B", above_zero=True)
        share = self.accumulator_share
        require_quantity("accumulator_share", share, "1", above_zero=True)
        require(share <= 1, "accumulator_share", share, "above 0, at most 1")
        for field in fields(self):
            if field.type == "bool":
                value = getattr(self, field.name)
                require(isinstance(value, bool), field.name, value, "True or False")

    @classmethod
    def crosstack(cls) -> KernelRules:
        """Return the default."""
        return cls(name="crosstack")

    @classmethod
    def deepflow_2025(cls) -> KernelRules:
        """Return the rules of ``deepflow_code`` at commit e8fc755 (2025-09-15)."""
        return cls(
            name="deepflow-2025", search=TileSearch.PAIRED, main_memory_bounds_elementwise=False
        )

    @classmethod
    def deepflow_2021(cls) -> KernelRules:
        """Return the rules of ``deepflow_code`` at commit 566c192 (2021-09-11)."""
        return cls(
            name="deepflow-2021",
            search=TileSearch.NESTED,
            main_memory_bounds_elementwise=False,
            tiles_refill=True,
            first_shape_sets_dataflow=True,
        )

    @classmethod
    def deepflow_2020(cls) -> KernelRules:
        """Return the rules of ``deepflow_code`` at commit e4e5d38 (2020-10-30)."""
        return cls(
            name="deepflow-2020",
            search=TileSearch.NESTED,
            main_memory_bounds_elementwise=False,
            n_drawn=30,
            first_shape_sets_dataflow=True,
        )


KERNEL_RULES: dict[str, Callable[[], KernelRules]] = {
    "crosstack": KernelRules.crosstack,
    "deepflow-2025": KernelRules.deepflow_2025,
    "deepflow-2021": KernelRules.deepflow_2021,
    "deepflow-2020": KernelRules.deepflow_2020,
}


def kernel_rules_named(name: str) -> KernelRules:
    """Return the rules called ``name``.

    Raises
    ------
    InputError
        If there are none; names the nearest.
    """
    if name in KERNEL_RULES:
        return KERNEL_RULES[name]()
    close = nearest(name, KERNEL_RULES, 1)
    hint = f' Did you mean "{close[0]}"?' if close else ""
    allowed = ", ".join(KERNEL_RULES)
    raise InputError(Problem("rules", f'no rules are called "{name}".{hint} Allowed: {allowed}.'))
