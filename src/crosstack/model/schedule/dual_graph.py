"""The tasks of a step whose microbatches enter at both ends (`crosstack.model.schedule.dual`)."""

from __future__ import annotations

from collections.abc import Sequence

from crosstack.model.schedule.dual import Part, Parts, came_from, dual_items, known_as, taken_by
from crosstack.model.schedule.events import PAIR, TaskGraph, TaskGraphBuilder, check_tasks
from crosstack.model.schedule.passes import Ending, Pass, Stage
from crosstack.model.schedule.step_tasks import add_updates


def dual_graph(
    stages: Sequence[Stage], microbatches: int, ending: Ending | None = None
) -> TaskGraph:
    """Return what every chip does: a pass, or two together, and sends on links of their own.

    Parameters
    ----------
    stages : sequence of Stage
        As many as chips: chip r has stage r, and the one as far from the other end.
    microbatches : int
        Of an iteration, half of them from each end. [1]
    ending : Ending, optional
        What follows once, if anything does.
    """
    chips = len(stages)
    check_tasks(6 * microbatches * chips)
    build = TaskGraphBuilder(f"stage {chip}" for chip in range(chips))
    before: list[int | None] = [None] * chips
    if ending is not None:
        for chip in range(chips):
            own = ending.step.gather + ending.step.before * (chip in (0, chips - 1))
            resource = f"weights {chip}"
            before[chip] = build.add("weights sent round", own, resource=resource, kind="transfer")
    done: dict[tuple[int, Part], int] = {}  # the task of a pass, by its chip

    def came(chip: int, place: int, part: Part) -> int | None:
        """Add the send that a pass waits for; return that, or the task of its own chip."""
        found = came_from(place, chips, known_as(part))
        if found is None:
            return None
        there, passed = found
        other = there if chip < chips // 2 else chips - 1 - there
        if there == place:
            if passed.phase == part.phase:  # the loss
                return done[chip, passed]
            other = chips - 1 - chip
        back = "" if part.kind is Pass.FORWARD else " back"
        return build.add(
            f"send {other} to {chip}, {_named(other, chips, passed, microbatches)}",
            max((stage.send for stage in stages[:-1]), default=0.0),
            resource=f"link {other} to {chip}, from {'second' if passed.phase else 'first'}{back}",
            after=[done[other, passed]],
            kind="transfer",
        )

    def run(chip: int, place: int, parts: Parts) -> None:
        waits = [came(chip, place, part) for part in parts]
        after = sorted({task for task in (*waits, before[chip]) if task is not None})
        words = (f"{part.kind}, {_named(chip, chips, part, microbatches)}" for part in parts)
        kind = "forward" if parts[0].kind is Pass.FORWARD else "backward"
        before[chip] = task = build.add(
            " and ".join(words),
            taken_by(stages, place, parts),
            resource=f"stage {chip}",
            after=after,
            kind=kind if len(parts) == 1 else PAIR,
        )
        done.update({(chip, known_as(part)): task for part in parts})

    items = list(dual_items(chips, microbatches))
    for place, parts in items:  # both halves do the same at the same time
        run(place, place, parts)
        run(chips - 1 - place, place, parts)
    if ending is not None:
        _add_ending(build, ending, [task for task in before if task is not None])
    return build.build()


def _named(chip: int, chips: int, part: Part, microbatches: int) -> str:
    """Return the name of a microbatch: those from the last chip come behind the others."""
    from_last = (chip >= chips // 2) != (part.phase == 1)
    return f"microbatch {part.microbatch + from_last * microbatches // 2}"


def _add_ending(build: TaskGraphBuilder, ending: Ending, last: Sequence[int]) -> None:
    """Add sums of gradients behind the last pass of every chip, then updates."""
    step, summed = ending.step, list[int]()
    for chip, task in enumerate(last):
        whole = step.sums + step.first * (chip in (0, len(last) - 1))
        own = {"resource": f"sums {chip}", "kind": "transfer"}
        summed.append(build.add("sum of gradients", whole, after=[task], **own))
    add_updates(build, ending, summed)
