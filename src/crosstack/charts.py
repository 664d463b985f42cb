"""What a chart shows, as data: made where numbers are, drawn in `crosstack.report`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from crosstack.errors import require


class Mark(StrEnum):
    """How a point of a series is drawn."""

    CIRCLE = "circle"
    SQUARE = "square"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A quantity along an axis: ``worth`` is one shown unit in SI, ``log`` the kind of scale.

    ``ticks`` are the values that are marked, in the shown unit; round ones where left out. What
    ``names`` has, 1, 2, 3, ..., is marked by its name instead.
    """

    label: str
    unit: str = ""
    worth: float = 1.0
    log: bool = False
    ticks: tuple[float, ...] = ()
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check the unit's worth."""
        require(self.worth > 0, "worth", self.worth, "above 0")
        named = not (self.names and (self.ticks or self.log))
        require(named, "names", self.names, "without ticks, on an even scale")

    @property
    def title(self) -> str:
        """What stands beside the axis."""
        return f"{self.label} [{self.unit}]" if self.unit else self.label


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Points (x, y) in SI; ``colour`` numbers what belongs together, ``published`` is not ours."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    colour: int = 0
    published: bool = False
    line: bool = True
    mark: Mark = Mark.CIRCLE

    def __post_init__(self) -> None:
        """Check that there is a y for each x."""
        require(len(self.x) == len(self.y), "y", len(self.y), f"one for each x ({len(self.x)})")


@dataclass(frozen=True, slots=True, kw_only=True)
class LineChart:
    """Series over two measures."""

    title: str
    x: Measure
    y: Measure
    series: tuple[Series, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """A value for each group, in SI, or None where there is none."""

    name: str
    values: tuple[float | None, ...]
    colour: int = 0
    published: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BarChart:
    """Bars side by side in groups, or on top of each other.

    ``limit`` is a value in SI that no bar should pass, drawn as a line with its name.
    """

    title: str
    y: Measure
    groups: tuple[str, ...]
    bars: tuple[Bars, ...]
    stacked: bool = False
    limit: tuple[str, float] | None = None

    def __post_init__(self) -> None:
        """Check that there is a value for each group."""
        for bar in self.bars:
            allowed = f"one for each group ({len(self.groups)})"
            require(len(bar.values) == len(self.groups), "values", len(bar.values), allowed)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatMap:
    """A value for each pair of a row and a column, in SI; NaN where there is none."""

    title: str
    value: Measure
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    column_title: str
    row_title: str
    values: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        """Check the shape."""
        shape = (len(self.values), *{len(row) for row in self.values})
        allowed = f"{len(self.rows)} rows of {len(self.columns)}"
        require(shape == (len(self.rows), len(self.columns)), "values", shape, allowed)


Chart = LineChart | BarChart | HeatMap
