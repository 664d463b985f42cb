"""SVG by hand: escaped, measured text, a few shapes, and the colours of both themes.

Classes begin with ``xs-`` so that a figure inside a page leaves the rest of the page alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any

from crosstack.io.yaml_tree import parse_yaml

_COLOURS: Any = parse_yaml(files("crosstack.report").joinpath("colours.yaml").read_text("utf-8"))
THEMES: dict[str, tuple[str, str]] = _COLOURS["figures"]
CONTROLS: dict[str, tuple[str, str]] = _COLOURS["controls"]
LIGHT, DARK = ({name: both[k] for name, both in THEMES.items()} for k in (0, 1))

N_SERIES = 6  # colours for what charts tell apart

# Upper estimates in em, so that text fits whatever sans-serif is there.
_NARROW, _WIDE = frozenset("iljtfrI.,:;!|'()[]-· "), frozenset("MWmw@%…")
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@cache
def style_text(name: str) -> str:
    """Return a style sheet of this folder; colours of a theme stand in it as ``%(name)s``."""
    return files("crosstack.report").joinpath(name).read_text(encoding="utf-8")


def figure_css(theme: dict[str, str]) -> str:
    """Return the rules that colour every figure in a theme."""
    rules = ["\n", style_text("figure.css") % theme]
    for i in range(N_SERIES):
        colour, page = theme[f"series-{i}"], theme["page"]
        rules.append(
            f".xs-fill-{i} {{ fill: {colour}; }}\n"
            f".xs-stroke-{i} {{ stroke: {colour}; stroke-width: 1.8; fill: none; }}\n"
            f".xs-hollow-{i} {{ stroke: {colour}; stroke-width: 1.6; fill: {page}; }}\n"
        )
    return "".join(rules)


def attribute(text: str) -> str:
    """Return text escaped for an element or a quoted attribute, as far as XML can hold it."""
    return escape(_FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text), quote=True)


def text_width(text: str, size: float, *, strong: bool = False) -> float:
    """Return how wide text is at most, by its letters."""
    return sum(map(_em, text)) * size * (1.08 if strong else 1.0)


@cache
def _em(c: str) -> float:
    if c in _NARROW or c in _WIDE:
        return 0.42 if c in _NARROW else 0.92
    if c.isupper():
        return 0.72
    return 0.62 if c < "\u2e80" else 1.0


def fit(text: str, width: float, size: float, *, strong: bool = False) -> str:
    """Return text that fits ``width``, elided where it must be."""
    if text_width(text, size, strong=strong) <= width:
        return text
    while text and text_width(text + "…", size, strong=strong) > width:
        text = text[:-1]
    return text + "…"


def wrapped(sentence: str, width: float, size: float) -> list[str]:
    """Return a sentence in lines that fit ``width``, as far as its words do."""
    lines = [""]
    for word in sentence.split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and text_width(longer, size) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


class Canvas:
    """Collects the elements of a figure, in the order in which they are drawn."""

    def __init__(self) -> None:
        self.elements: list[str] = []

    def add(self, element: str) -> None:
        """Add an element as it is."""
        self.elements.append(element)

    def rectangle(
        self, x: float, y: float, width: float, height: float, cls: str, radius: float = 0
    ) -> None:
        """Add a rectangle."""
        corner = f' rx="{radius:g}"' if radius else ""
        self.add(
            f'<rect class="{cls}" x="{x:.1f}" y="{y:.1f}" width="{width:.3f}" '
            f'height="{height:.1f}"{corner}/>'
        )

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        size: float = 11,
        cls: str = "xs-ink",
        width: float | None = None,
        anchor: str = "start",
    ) -> None:
        """Add text on a base line, elided to ``width``."""
        shown = text if width is None else fit(text, width, size, strong="strong" in cls)
        tip = f"<title>{attribute(text)}</title>" if shown != text else ""
        at = "" if anchor == "start" else f' text-anchor="{anchor}"'
        self.add(
            f'<text class="{cls}" x="{x:.1f}" y="{y:.1f}" font-size="{size:g}"{at}>'
            f"{attribute(shown)}{tip}</text>"
        )

    def line(self, points: Sequence[tuple[float, float]], cls: str) -> None:
        """Add straight pieces."""
        self.path("M" + " L".join(f"{x:.1f} {y:.1f}" for x, y in points), cls)

    def path(self, d: str, cls: str) -> None:
        """Add a path."""
        self.add(f'<path class="{cls}" d="{d}"/>')

    def put(self, other: Canvas, x: float, y: float) -> None:
        """Add another canvas, moved."""
        with self.group(transform=f"translate({x:.1f} {y:.1f})"):
            self.elements.extend(other.elements)

    @contextmanager
    def group(self, tip: str = "", **attributes: object) -> Iterator[None]:
        """Put what is drawn meanwhile together, under its attributes; ``tip`` shows on hovering."""
        named = (f' {n.replace("_", "-")}="{attribute(str(v))}"' for n, v in attributes.items())
        title = f"<title>{attribute(tip)}</title>" if tip else ""
        self.add(f"<g{''.join(named)}>{title}")
        yield
        self.add("</g>")

    def paragraph(
        self,
        at: tuple[float, float],
        words: str,
        width: float,
        *,
        size: float = 11,
        step: float = 15,
        cls: str = "xs-muted",
    ) -> float:
        """Add a sentence in lines ``step`` apart; return where the next one stands."""
        x, y = at
        for line in wrapped(words, width, size):
            self.text(x, y, line, size=size, cls=cls)
            y += step
        return y

    def legend(
        self, x: float, y: float, entries: Mapping[str, str], *, lines: bool = False, size: int = 11
    ) -> float:
        """Add what classes mean, words to class, side by side on a base line; return its end."""
        for words, cls in entries.items():
            if lines:
                self.line(((x, y - 4), (x + 22, y - 4)), cls)
            else:
                self.rectangle(x, y - 10, 12, 12, cls, 2)
            x += 28 if lines else 18
            self.text(x, y, words, size=size, cls="xs-muted")
            x += text_width(words, size) + 14
        return x


@dataclass(frozen=True, slots=True)
class Figure:
    """A drawn piece and its size."""

    canvas: Canvas
    width: float
    height: float


def standalone(canvas: Canvas, width: float, height: float, label: str, *, own: bool) -> str:
    """Return a whole figure; ``own`` brings a light theme and a background along."""
    style = f"<style>{figure_css(LIGHT)}</style>" if own else ""
    page = f'<rect class="xs-page" width="{width:.0f}" height="{height:.0f}"/>' if own else ""
    body = "\n".join(canvas.elements)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="xs-figure" width="{width:.0f}" '
        f'height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}" role="img" '
        f'aria-label="{attribute(label)}">{style}{page}\n{body}\n</svg>\n'
    )
