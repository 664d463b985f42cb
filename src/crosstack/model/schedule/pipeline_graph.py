"""A pipelined step as tasks for `simulate`: what `crosstack.model.schedule.pipeline` times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from crosstack.model.schedule.combined import combined_items
from crosstack.model.schedule.dual import pair_time
from crosstack.model.schedule.dual_graph import dual_graph
from crosstack.model.schedule.events import PAIR, TaskGraph, TaskGraphBuilder, check_tasks
from crosstack.model.schedule.interleaved import Items
from crosstack.model.schedule.passes import Ending, Item, Pass, Stage
from crosstack.model.schedule.pipeline import check_pipeline, pass_order
from crosstack.model.schedule.step_tasks import (
    Pieces,
    add_ending,
    add_gathers,
    slower_first,
    slower_last,
)
from crosstack.model.schedule.zero_bubble import chip_pieces, piece_chip
from crosstack.workload.transformer_training import Schedule


def pipeline_graph(
    stages: Sequence[Stage],
    microbatches: int = 1,
    schedule: Schedule = Schedule.GPIPE,
    *,
    interleave: int = 1,
    training: bool = True,
    ending: Ending | None = None,
) -> TaskGraph:
    """Return the tasks of the same step: operations on stages, transfers on links.

    Without ``training`` nothing comes back. Operations that take no time one way have no task.
    ``ending`` is what follows once, if anything does.
    """
    check_pipeline(len(stages), microbatches, schedule, interleave)
    if schedule.both_ends:
        return dual_graph(stages, microbatches, ending)
    # An operation and its hand-over or transfer, in every pass.
    passes = 3 if schedule.defers_weights else 2
    check_tasks(2 * passes * microbatches * sum(len(stage.operations) + 1 for stage in stages))
    made = _PipelineTasks.of(stages, microbatches, schedule, interleave, ending)
    for items in _together(len(stages), microbatches, schedule, interleave, training=training):
        if training or items[0][-1] is Pass.FORWARD:
            made.run_items(items)
    if ending is not None:
        through = [task for task in made.before if task is not None]
        deferred = schedule.defers_weights
        add_ending(made.build, ending, made.final, made.pieces, through, deferred=deferred)
    return made.build.build()


def _together(
    stages: int, microbatches: int, schedule: Schedule, interleave: int, *, training: bool
) -> Iterator[Items]:
    """Yield what chips run at a time: a pass, or two, in an order as that of `pass_order`."""
    if schedule is Schedule.COMBINED and training:
        yield from combined_items(stages // interleave, microbatches, interleave)
        return
    for item in pass_order(stages, microbatches, schedule, interleave=interleave):
        yield (item,)


@dataclass(frozen=True, slots=True, kw_only=True)
class _PipelineTasks:
    """Tasks of a step as they are added, in the order of its passes.

    ``on`` is the chip of every stage, ``pieces`` the stages of every chip [1]; ``rounds`` what the
    first microbatch through a stage begins behind, and which tasks it ends so long behind [s].
    ``before`` is the last task of each chip, ``passed`` those that pass a microbatch on, ``final``
    what the last pass of each stage waits for, and its end.
    """

    build: TaskGraphBuilder
    stages: Sequence[Stage]
    microbatches: int
    schedule: Schedule
    ending: Ending | None
    on: Sequence[int]
    pieces: Pieces
    rounds: dict[int, tuple[int, list[tuple[int, float]]]]
    before: list[int | None]
    passed: dict[Item, int] = field(default_factory=dict)
    final: dict[int, tuple[list[int], int]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        stages: Sequence[Stage],
        microbatches: int,
        schedule: Schedule,
        interleave: int,
        ending: Ending | None,
    ) -> _PipelineTasks:
        """Return the tasks of no pass, but of weights that are sent round before the first."""
        count, chips = len(stages), len(stages) // interleave
        build = TaskGraphBuilder(f"stage {chip}" for chip in range(chips))
        pieces = [chip_pieces(chip, chips, count, schedule) for chip in range(chips)]
        return cls(
            build=build,
            stages=stages,
            microbatches=microbatches,
            schedule=schedule,
            ending=ending,
            on=[piece_chip(s, chips, schedule) for s in range(count)],
            pieces=pieces,
            rounds={} if ending is None else add_gathers(build, ending, pieces),
            before=[None] * chips,
        )

    def run_items(self, items: Items) -> None:
        """Add a pass, or two that run together, and pass their microbatches on."""
        came = [self.passed.get((s - kind.step, i, kind)) for s, i, kind in items]
        s, i, kind = items[0]
        waits = [task for task in (came[0], self.before[self.on[s]]) if task is not None]
        if len(items) == 2:
            done = self._run_both(*items, came)
        elif kind is Pass.FORWARD and s in self.rounds and not i:
            done = self._run_first(s, came[0])
        else:
            done = self._run(s, i, came[0], kind)
        self.final[s] = waits, done
        last = Pass.WEIGHTS if self.schedule.defers_weights else Pass.BACKWARD
        if self.ending is not None and kind is last and i == self.microbatches - 1:
            deferred = self.schedule.defers_weights
            done = self._slower(
                s, done, slower_last(self.ending, self.pieces, self.on[s], s, deferred=deferred)
            )
            if s == self.pieces[self.on[s]][0]:  # sums of other pieces are beside later passes
                self.final[s] = waits, done
        for s, i, kind in items:
            self.passed[s, i, kind] = self._send(s, i, done, kind)

    def _run(self, s: int, i: int, after: int | None, kind: Pass) -> int:
        """Add the operations of a stage for one microbatch; return the last of them."""
        waits = {task for task in (after, self.before[self.on[s]]) if task is not None}
        tag, task = f"microbatch {i}", None
        own = self.stages[s].operations
        for operation in own if kind is Pass.FORWARD else reversed(own):
            takes = operation.time(kind)
            if not takes and operation.forward + operation.backward:
                continue
            task = self.build.add(
                f"{operation.name}, {tag}",
                takes,
                resource=f"stage {self.on[s]}",
                after=sorted(waits) if task is None else [task],
                kind="forward" if kind is Pass.FORWARD else "backward",
            )
        if task is None:  # a stage without operations hands on
            task = self.build.add(f"stage {s}, {tag}", after=sorted(waits), kind="hand over")
        self.before[self.on[s]] = task
        return task

    def _run_both(self, one: Item, other: Item, came: Sequence[int | None]) -> int:
        """Add a pass forward and one backward that run together; return their task."""
        (s, i, _), (t, j, _) = one, other
        waits = {task for task in (*came, self.before[self.on[s]]) if task is not None}
        self.before[self.on[s]] = task = self.build.add(
            f"forward of stage {s}, microbatch {i}, and backward of stage {t}, microbatch {j}",
            pair_time(self.stages[s], self.stages[t]),
            resource=f"stage {self.on[s]}",
            after=sorted(waits),
            kind=PAIR,
        )
        return task

    def _run_first(self, s: int, came: int | None) -> int:
        """Add the first microbatch, whose layers wait for weights that are sent round."""
        begun, pending = self.rounds[s]
        waits = [task for task in (came, self.before[self.on[s]], begun) if task is not None]
        start = self.build.add(f"weights of stage {s}", after=waits, kind="hand over")
        within, behind = 0.0, 0.0
        if self.ending is not None and s == 0:
            within, behind = slower_first(self.ending, self.pieces)
        ends = [self._slower(s, self._run(s, 0, start, Pass.FORWARD), within)]
        for task, takes in pending:
            ends.append(self.build.add(f"rest of stage {s}", takes, after=[task], kind="hand over"))
        task = self.build.add(f"stage {s} is through", after=ends, kind="hand over")
        self.before[self.on[s]] = task
        return self._slower(s, task, behind)

    def _slower(self, s: int, task: int, takes: float) -> int:
        """Add what a pass waits for units that send; return the task that ends it."""
        if takes:
            name = f"units of stage {s} that send"
            task = self.build.add(name, takes, after=[task], kind="hand over")
            self.before[self.on[s]] = task
        return task

    def _send(self, s: int, i: int, after: int, kind: Pass) -> int:
        """Pass a microbatch on; only under GPipe the two directions never meet."""
        to = s + kind.step
        if to == s or not 0 <= to < len(self.stages) or self.on[s] == self.on[to]:
            return after
        link = min(s, to)
        wire = link if self.schedule.ends_meet else link % len(self.before)
        back = "" if kind is Pass.FORWARD or self.schedule is Schedule.GPIPE else " back"
        return self.build.add(
            f"send {s} to {to}, microbatch {i}",
            self.stages[link].send,
            resource=f"link {wire}{back}",
            after=[after],
            kind="transfer",
        )
