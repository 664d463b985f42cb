"""Named axes of a graph: their sizes, what products use them for, windows and masks over them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from crosstack.errors import require
from crosstack.records import Count, Natural, require_types

Axes = tuple[str, ...]


class AxisUse(StrEnum):
    """What a product of the graph uses an axis for, where it has a choice.

    ``feature``: rows of the result, or what is added up. ``token``: the columns, along which data
    streams tile by tile. ``group``: problems that lie side by side (heads, experts), also where
    weights alone have it: what they are multiplied with is the same for all of them.
    """

    FEATURE = "feature"
    TOKEN = "token"
    GROUP = "group"


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisSize:
    """An axis by its name, how long it is [1], and what it is for."""

    name: str
    size: Count
    use: AxisUse = AxisUse.FEATURE

    def __post_init__(self) -> None:
        require_types(self)
        require(self.name.split() == [self.name], "name", self.name, "a word")


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """An axis read or written at ``start + stride * at + dilation * tap - padding``.

    ``axis`` is that of an operand or of the result that the window slides over; ``at`` and ``tap``
    say where the window is, and where in it. ``padding`` places before the axis count as zero, as
    do those behind its end; ``start`` places at its beginning are passed over instead. [1]
    """

    axis: str
    at: str
    tap: str
    stride: Count = 1
    dilation: Count = 1
    padding: Natural = 0
    start: Natural = 0

    def __post_init__(self) -> None:
        require_types(self)
        require(0 in (self.padding, self.start), "start", self.start, "0, with padding")
        names = {self.axis, self.at, self.tap}
        require(len(names) == 3, "axis", self.axis, "three different axes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Causal:
    """Which entries of a tensor count: a key is seen by queries at its place or behind it.

    The last query stands at the last key, so that queries may follow keys kept from before. What
    does not count is zero, and no softmax looks at it; a kernel that knows leaves out the work
    (``dao2022flashattention``). ``query`` and ``key`` are axes of the tensor; each query sees
    ``window`` keys at most, its own included, 0: all before it. [1] Documents of ``document`` keys
    follow one another, the last one shorter where they do not fill all, and a query sees keys of
    its own alone, 0: there is one (``grattafiori2024llama3``, section 3.2). [1]
    """

    query: str
    key: str
    window: Natural = 0
    document: Natural = 0

    def __post_init__(self) -> None:
        require_types(self)
        require(self.query != self.key, "key", self.key, "another axis than the query's")

    def density(self, n_queries: int, n_keys: int) -> float:
        """Share of the entries that count. [1]

        Notes
        -----
        The query at place p of its document, from 0, sees ``min(p + 1, window)`` of all k keys; the
        i-th of q is at place ``i + k - q`` of all.
        """
        length = min(self.document or n_keys, n_keys)
        window = min(self.window or length, length)

        def seen(n: int) -> int:
            """Keys that the first n queries of one document see. [1]"""
            growing = min(n, window)
            return growing * (growing + 1) // 2 + (n - growing) * window

        def first(n: int) -> int:
            """Keys that queries at the first n places see. [1]"""
            whole, rest = divmod(n, length)
            return whole * seen(length) + seen(rest)

        return (first(n_keys) - first(n_keys - n_queries)) / (n_queries * n_keys)
