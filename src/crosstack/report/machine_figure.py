"""The machine as blocks: a chip with cores and SRAM, its memory, the dimensions of the network."""

from __future__ import annotations

import math
from typing import assert_never

from crosstack.machine.chip import Chip
from crosstack.machine.memory import MemoryLevel
from crosstack.machine.network import KINDS, Joint
from crosstack.mapping.mapping import Mapping, Task
from crosstack.model.rules import Rules
from crosstack.report import wording
from crosstack.report.drawing import Canvas, Figure, text_width
from crosstack.units import format_quantity

WIDTH = 400.0
DOTS = 8


def machine_figure(
    task: Task, mapping: Mapping | None = None, rules: Rules | None = None
) -> Figure:
    """Return the machine; a mapping says what the system leaves free."""
    system = task.system
    canvas = Canvas()
    heading = wording.plural(system.n_chips, "chip")
    if system.chip.name != "chip":
        heading += f", {system.chip.name}"
    canvas.text(0, 13, heading, size=13, cls="xs-ink xs-strong", width=WIDTH)
    _chip(canvas, system.chip, wording.peak_words(task, rules), 26)
    _memory(canvas, system.chip.main_memory, 26)
    y = 200.0
    for i, dimension in enumerate(system.network):
        size = mapping.dimension_sizes[i] if mapping else dimension.size
        _dimension(canvas, KINDS[dimension.kind].joint, size, y)
        words = wording.dimension_words(system, mapping)[i].split(", ")
        canvas.text(78, y + 24, words[0], size=12, cls="xs-ink xs-strong", width=WIDTH - 80)
        latency = "" if dimension.latency == 0 else f", latency {wording.latency_words(dimension)}"
        link = f"{words[1]} a link{latency}, {words[-1]}"
        canvas.text(78, y + 40, link, cls="xs-muted", width=WIDTH - 80)
        y += 70
    return Figure(canvas, WIDTH, y)


def _chip(canvas: Canvas, chip: Chip, peak: str, y: float) -> None:
    canvas.rectangle(1, y, 236, 156, "xs-frame", 10)
    shown = min(chip.compute.n_units, 36)
    columns = min(shown, 12)
    for k in range(shown):
        canvas.rectangle(13 + k % columns * 17.8, y + 12 + k // columns * 15, 14, 11, "xs-fs", 2)
    words, share = wording.units_words(chip.compute), chip.compute.utilization
    size = 11 if text_width(words, 11, strong=True) <= 214 else 8.5
    canvas.text(13, y + 72, words, size=size, cls="xs-ink xs-strong", width=214)
    clock = format_quantity(chip.compute.frequency, "Hz")
    reach = "time of each kernel from its shape"
    if share is not None:
        reach = f"kernels reach {wording.percent(share)} of it"
    for below, said in ((87, f"{peak} at {clock}"), (101, reach)):
        canvas.text(13, y + below, said, size=9.5, cls="xs-muted", width=214)
    canvas.rectangle(13, y + 112, 212, 32, "xs-card", 6)
    canvas.text(23, y + 132, "SRAM", cls="xs-ink xs-strong")
    capacity = format_quantity(chip.on_chip_capacity, "B")
    canvas.text(215, y + 132, capacity, cls="xs-muted", width=130, anchor="end")


def _memory(canvas: Canvas, memory: MemoryLevel, y: float) -> None:
    capacity = "unlimited" if memory.capacity is None else format_quantity(memory.capacity, "B")
    canvas.rectangle(290, y, 108, 156, "xs-frame", 10)
    canvas.text(344, y + 66, "memory", size=12, cls="xs-ink xs-strong", anchor="middle", width=100)
    for below, said in ((83, capacity), (98, format_quantity(memory.speed, "B/s"))):
        canvas.text(344, y + below, said, cls="xs-muted", anchor="middle", width=100)
    canvas.line(((247, y + 78), (281, y + 78)), "xs-mark")
    canvas.path(f"M240 {y + 78:.1f} l9 -5 v10 z M288 {y + 78:.1f} l-9 -5 v10 z", "xs-ink")


def _dimension(canvas: Canvas, joint: Joint, size: int | None, y: float) -> None:
    """An icon of at most eight chips; more of them are dots on a ring all the same."""
    count = min(size or DOTS, DOTS)
    centre, middle, radius = 34.0, y + 30, 24.0
    angles = [2 * math.pi * k / count for k in range(count)]
    dots = [(centre + radius * math.sin(a), middle - radius * math.cos(a)) for a in angles]
    if count == 1:
        dots = [(centre, middle)]
    else:
        _wires(canvas, joint, dots, (centre, middle))
    for x, at in dots:
        canvas.rectangle(x - 5, at - 5, 10, 10, "xs-fs", 2)


def _wires(
    canvas: Canvas, joint: Joint, dots: list[tuple[float, float]], hub: tuple[float, float]
) -> None:
    match joint:
        case Joint.RING:
            canvas.line((*dots, dots[0]), "xs-wire")
        case Joint.LINE:
            canvas.line(tuple(dots), "xs-wire")
        case Joint.PAIRS:
            for k, dot in enumerate(dots):
                for other in dots[:k]:
                    canvas.line((dot, other), "xs-wire")
        case Joint.PORT:
            for dot in dots:
                canvas.line((dot, hub), "xs-wire")
            canvas.rectangle(hub[0] - 7, hub[1] - 7, 14, 14, "xs-card", 2)
        case _:
            assert_never(joint)
