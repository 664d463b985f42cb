"""Answers, tasks and progress as text for a terminal or a file.

The renderables lay themselves out for the width they are printed at; `plain_text` returns them
as a string. Names are never read as markup.
"""

from __future__ import annotations

import io
import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table as RichTable
from rich.text import Text

from crosstack.evaluate.plan import Plan
from crosstack.mapping.mapping import Task
from crosstack.mapping.search import Progress
from crosstack.report import plan_rows, step_words, wording
from crosstack.report.certificate_words import certificate_sentence, closing_sentence, is_open
from crosstack.report.memory_front_words import front_rows, front_title
from crosstack.report.wording import Table, percent, plural
from crosstack.units import format_quantity
from crosstack.workload.kernels import ComputeUnit, Direction, KernelKind, Placement
from crosstack.workload.workload import Workload

COLOURS = {
    "compute": "bold blue",
    "memory": "bold cyan",
    "network": "bold magenta",
    "launch": "bold yellow",
}
KINDS = {
    KernelKind.GEMM_WEIGHT: "GEMM with a weight",
    KernelKind.GEMM: "GEMM of two tensors",
    KernelKind.ELEMENTWISE: "elementwise",
    KernelKind.ELEMENTWISE_2: "elementwise on two tensors",
}
MOST_ROWS = 60
FOLDED = 16  # letters of a column of text that is folded to fit
LONGEST_REASON = 240
_NUMBER = re.compile(r"\d[\d,.e+-]*")


def plain_text(renderable: RenderableType, width: int = 100) -> str:
    """Return a renderable as plain text, ``width`` letters wide."""
    console = Console(file=io.StringIO(), width=width, color_system=None, force_terminal=False)
    console.print(renderable, crop=False)
    written = console.file
    assert isinstance(written, io.StringIO)
    lines = (line.rstrip() for line in written.getvalue().splitlines())
    return "\n".join(lines) + "\n"


def answer_tables(answer: Plan) -> Group:
    """Return an answer as a title, its certificate, partitions, splits, totals and bills."""
    said = [Text(certificate_sentence(answer), style="bold red" if is_open(answer) else "")]
    if is_open(answer):  # a large gap stands out, with what would close it
        said.append(Text(closing_sentence(answer), style="bold"))
    said += [Text(f"Warning: {words}") for words in answer.warnings]
    return titled(
        plan_rows.headline(answer),
        *said,
        *step_tables(answer),
        _partitions(answer),
        *(titled(title, rows_table(rows)) for title, rows in plan_rows.tables_of_parts(answer)),
        titled("How it is split", pairs_table(plan_rows.splits(answer))),
        rows_table(plan_rows.network_rows(answer)),
        titled("Totals", pairs_table(plan_rows.key_numbers(answer))),
        rows_table(plan_rows.bills(answer)),
    )


def step_tables(answer: Plan) -> tuple[RenderableType, ...]:
    """Return what a step takes and is made of, memory by stage, a run, and the next plans."""
    account, memory = answer.step_account(), plan_rows.memory_rows(answer)
    run, ranked = answer.run, answer.next_plans
    expected = step_words.expected_sentence(answer)
    found: list[RenderableType] = [
        titled("The step", pairs_table(step_words.step_numbers(answer))),
        Text(step_words.bound_sentence(answer, account)),
        Text(step_words.first_sentence(account)),
        *([Text(expected)] if expected else []),
        rows_table(step_words.spent_rows(answer, account)),
    ]
    if len(memory.rows) > 3:  # used for more than one thing
        found.append(rows_table(memory))
    if run is not None:
        found.append(titled(step_words.run_title(run), pairs_table(step_words.run_numbers(run))))
    if ranked is not None:
        rows = rows_table(step_words.next_rows(answer, ranked), wraps=9)
        found.append(
            titled(step_words.next_title(answer, ranked), *([rows] if ranked.found else []))
        )
    if answer.front is not None:
        front = rows_table(front_rows(answer, answer.front), wraps=6)
        found.append(titled(front_title(answer, answer.front), front))
    return tuple(found)


def answer_summary(answer: Plan) -> str:
    """Return an answer in a few lines: what it is of, how sure it is, and the main numbers."""
    left_out = wording.not_mapped(answer.task.workload)
    numbers = (*left_out, *plan_rows.splits(answer)[:1], *plan_rows.key_numbers(answer)[:4])
    said = (plan_rows.headline(answer), certificate_sentence(answer), closing_sentence(answer))
    return "\n".join([*filter(None, said), *(f"{label}: {value}" for label, value in numbers)])


def kernel_table(answer: Plan) -> Group:
    """Return the kernels: partition, what is split, extents on a chip, times, collectives."""
    title = "Kernels; m, k and n are extents on one chip"
    return titled(title, rows_table(plan_rows.kernel_rows(answer), wraps=1))


def task_text(task: Task) -> Group:
    """Return a task in words: the graph, the machine, and what is given."""
    given = _given_words(task)
    return titled(
        f"{task.workload.name} on {task.system.name}",
        pairs_table(_workload_words(task.workload)),
        titled("Machine", pairs_table(_machine_words(task))),
        *([titled("Given", pairs_table(given))] if given else []),
    )


def progress_line(progress: Progress) -> str:
    """Return where a search stands, on wording.one line."""
    bound, best, unit = progress.bound, progress.objective, progress.unit
    done = f"{progress.nodes_done:,} done, {progress.nodes_waiting:,} waiting"
    said = f"no mapping beats {format_quantity(bound, unit)}" if bound > 0 else "no bound"
    if not math.isfinite(best):
        return f"nothing found yet; {said}; {done}"
    gap = percent(max(0.0, 1 - bound / best if best else 0.0), 2)
    return f"best {format_quantity(best, unit)}; {said} (gap {gap}); {done}"


def _partitions(answer: Plan) -> FittedTable:
    rows = plan_rows.partition_rows(answer)
    table = FittedTable(rows, wraps=1)
    last = rows.header.index("bound by")
    for row in table.rows:
        bound_by = row[last].plain
        for column in (rows.header.index(bound_by), last):
            row[column].stylize(COLOURS[bound_by])
        row[last - 1].stylize("bold")
    if len(table.rows) > MOST_ROWS:
        left = plural(len(table.rows) - MOST_ROWS, "more partition")
        more = [Text(cell) for cell in ("", f"… {left}", *[""] * (len(rows.header) - 2))]
        table.rows[MOST_ROWS:] = [more]
    return table


class FittedTable:
    """A table that loses no letter: what is too wide is folded, never cut.

    Heads are folded first, then the column ``wraps``, then all text at its spaces, then anywhere.
    Numbers never are: where even they do not fit, lines are longer than the terminal is wide.
    """

    def __init__(self, rows: Table, wraps: int | None = None) -> None:
        self.header, self.numeric, self.wraps = rows.header, rows.numeric, wraps
        self.rows = [[Text(cell) for cell in row] for row in rows.rows]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Lay the columns out for the room that there is."""
        n = len(self.header)
        gap = 1 if n < 8 else 0  # 80 columns hold every number
        table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, gap, 0, 0))
        widths = self._widths(options.max_width - (n + 1) - gap * (n - 1))
        for label, numeric, width in zip(self.header, self.numeric, widths, strict=True):
            table.add_column(
                Text(label),
                justify="right" if numeric else "left",
                overflow="fold",
                min_width=width,
                max_width=width,
            )
        for row in self.rows:
            table.add_row(*row)
        yield table

    def _widths(self, room: int) -> list[int]:
        """Return how wording.many letters wide each column is."""
        columns = [[row[i].plain for row in self.rows] for i in range(len(self.header))]
        cells = [_widest("\n".join(column).split("\n")) for column in columns]
        words = [_widest(" ".join(column).split()) for column in columns]
        folded = [max(c, _widest(h.split())) for c, h in zip(cells, self.header, strict=True)]
        widths = [max(c, _widest(h.split("\n"))) for c, h in zip(cells, self.header, strict=True)]
        text = [not numeric for numeric in self.numeric]
        for floors in (
            folded,
            [min(w, FOLDED) if i == self.wraps else w for i, w in enumerate(folded)],
            [min(w, words[i]) if text[i] else w for i, w in enumerate(folded)],
            [min(w, FOLDED) if text[i] else w for i, w in enumerate(folded)],
        ):
            widths = _narrowed(widths, floors, room)
        return widths


def _widest(lines: Iterable[str]) -> int:
    return max(map(cell_len, lines), default=0)


def _narrowed(widths: Sequence[int], floors: Sequence[int], room: int) -> list[int]:
    """Return widths that fit, or as near as their floors let them; the widest give way first."""
    found = list(widths)
    for _ in range(sum(found) - room):
        wide = [(w, i) for i, (w, floor) in enumerate(zip(found, floors, strict=True)) if w > floor]
        if not wide:
            break
        found[max(wide)[1]] -= 1
    return found


rows_table = FittedTable


def titled(title: str, *parts: RenderableType) -> Group:
    """Return parts below their title; text is text, never markup."""
    shown = (Text(part) if isinstance(part, str) else part for part in parts)
    return Group(Text(title, style="bold"), *shown)


def reason_lines(reasons: Iterable[str], most: int = 3) -> list[Text]:
    """Return the most frequent reasons with how often each is given.

    Those that differ in numbers alone are wording.one, said by the first of them.
    """
    alike: dict[str, list[str]] = {}
    for reason in reasons:
        alike.setdefault(_NUMBER.sub("#", reason), []).append(reason)
    ordered = sorted(alike.values(), key=len, reverse=True)
    lines = [f"  {len(same):,} x {same[0][:LONGEST_REASON]}" for same in ordered[:most]]
    if len(ordered) > most:
        lines.append(f"  ... and {plural(len(ordered) - most, 'other reason')}")
    return list(map(Text, lines))


def pairs_table(pairs: tuple[tuple[str, str], ...]) -> RichTable:
    """Return labels and what they stand for, without a header."""
    table = RichTable(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for label, value in pairs:
        table.add_row(Text(f"  {label}"), Text(value))
    return table


def _workload_words(workload: Workload) -> tuple[tuple[str, str], ...]:
    graph = workload.graph
    kinds = Counter(KINDS[k.kind] for k in graph.kernels)
    counted = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    back = sum(k.direction is Direction.BACKWARD for k in graph.kernels)
    systolic = sum(k.unit is ComputeUnit.SYSTOLIC for k in graph.kernels)
    readers = sum(len(t.consumers) for t in graph.tensors)
    largest = max(graph.tensors, key=lambda t: t.size, default=None)
    tensors = f"{len(graph.tensors):,}, read {plural(readers, 'time')}"
    if largest is not None:
        tensors += f"; largest {format_quantity(largest.size, 'B')} ({largest.producer})"
    placed = workload.placement is not Placement.SEARCHED
    work = format_quantity(graph.total_work, "FLOP")
    data = format_quantity(workload.data_size, "B")
    length, item = ("extent cut into tiles", workload.sequence_length), wording.one(workload.item)
    if workload.item_part:
        length = f"{wording.many(workload.item_part)} of {item}", workload.item_length
    return (
        ("kernels", f"{len(graph):,}: {counted}"),
        ("forward, backward", f"{len(graph) - back:,}, {back:,}"),
        ("systolic, SIMD", f"{systolic:,}, {len(graph) - systolic:,}"),
        ("tensors", tensors),
        ("weights", format_quantity(graph.total_weight_size, "B")),
        (f"work of {item}", f"{work} in this graph"),
        ("work of an iteration", format_quantity(workload.work, "FLOP")),
        ("layers", f"{workload.n_layers:,}, {workload.layers_in_graph:,} in this graph"),
        ("batch", plural(workload.global_batch_size, workload.item)),
        (length[0], f"{length[1]:,}"),
        *wording.trained_by(workload),
        *wording.not_mapped(workload),
        ("element", wording.element_words(graph)),
        *([("placement", workload.placement.value)] if placed else []),
        *([("data on all chips", data)] if workload.data_size else []),
    )


def _machine_words(task: Task) -> tuple[tuple[str, str], ...]:
    system, chip = task.system, task.system.chip
    share, banks = chip.compute.utilization, chip.levels[0].banks
    clock = format_quantity(chip.compute.frequency, "Hz")
    capacity = chip.main_memory.capacity
    memory = "unlimited" if capacity is None else format_quantity(capacity, "B")
    memory += wording.reserved_words(chip)
    for level in chip.memories[1:]:
        memory += (
            f" and {format_quantity(level.room, 'B')} at {format_quantity(level.speed, 'B/s')}"
        )
    units = "" if banks is None else f" in {banks:,} units"
    copies = f", {system.copies:,} times" if system.copies > 1 else ""
    prices = []
    for name in ("link", "switch", "memory"):
        price = getattr(system.prices, name)
        said = wording.NOT_GIVEN if price is None else format_quantity(price, "USD/(B/s)")
        prices.append(f"{name} {said}")
    return (
        ("chips", f"{system.n_chips:,} x {chip.name}{copies}"),
        ("chip", f"{wording.units_words(chip.compute)} at {clock}"),
        ("peak of a chip", wording.peak_words(task)),
        ("utilization of compute", "computed per kernel" if share is None else percent(share)),
        ("SRAM", format_quantity(chip.on_chip_capacity, "B") + units),
        ("overlap", chip.overlap.value.replace("_", " and ")),
        ("memory", f"{memory}, {format_quantity(system.chip.main_memory.speed, 'B/s')}"),
        *((f"network {i}", words) for i, words in enumerate(wording.dimension_words(system))),
        *([("domains", plural(system.domain_size, "chip"))] if system.domain_size else []),
        *([("all-reduce", system.all_reduce.replace("_", " "))] if system.all_reduce else []),
        ("a chip", f"{wording.usd(chip.price)}, {wording.watts(chip.power)}"),
        ("prices", ", ".join(prices)),
    )


def _given_words(task: Task) -> tuple[tuple[str, str], ...]:
    c = task.constraints
    numbers = ("microbatch_size", "n_tiles", "tile_size", "max_partitions")
    sized = {n.replace("_", " "): f"{getattr(c, n):,}" for n in numbers if getattr(c, n)}
    pairs = {
        "degrees": str(c.degrees) if c.degrees.given else "",
        **sized,
        "kernel by kernel": "yes" if c.kernel_by_kernel else "",
        "forward and backward": "in separate partitions" if c.separate_directions else "",
        "computed again": wording.again_words(c, task.workload),
        "schedule": "" if c.schedule is None else c.schedule.value,
        "pieces a stage": "" if c.interleave is None else f"{c.interleave:,}",
        "shared by data-parallel chips": "" if c.zero is None else wording.ZERO[c.zero],
        "keys and values of a sequence": (
            "" if c.context_exchange is None else wording.CONTEXT[c.context_exchange]
        ),
        "sent beside the work": "" if c.overlap is None else wording.hidden_words(c.overlap),
        "on the hosts": wording.offload_words(c.offload),
        "partitions": ", ".join(f"{name} in {p}" for name, p in c.partitions or ()),
        "sharding": ", ".join(f"{name}: {axis}" for name, axis in c.sharding or ()),
        "rules": task.rules or "",
    }
    return tuple((label, value) for label, value in pairs.items() if value)
