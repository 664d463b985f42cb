"""Where pieces are answered: in this process, in processes beside it, or on a Dask cluster.

An executor takes a job and pieces one by one, as it can work on them, and yields each with its
result, in any order. ``None`` among the pieces means that there may be more later.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

from crosstack.errors import InputError, Problem
from crosstack.explore.evaluators import PointAnswer
from crosstack.explore.pieces import Job, Piece, Result, answer

__all__ = ["Dask", "Done", "Executor", "Processes", "Serial", "n_processors"]

Done = tuple[Piece, Result]
PAUSE = 0.2  # s between two looks at whether there are more pieces
MOST_DEATHS = 2  # of a process under one piece, until that is the piece's result


def n_processors() -> int:
    """Return how many processors this process may use. [1]"""
    with suppress(AttributeError):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Executor(Protocol):
    """Answers pieces."""

    def run(self, job: Job, pieces: Iterable[Piece | None]) -> Iterator[Done]:
        """Yield every piece with its result."""


@dataclass(frozen=True, slots=True)
class Serial:
    """One piece after the other, in this process."""

    def run(self, job: Job, pieces: Iterable[Piece | None]) -> Iterator[Done]:
        """Yield every piece with its result."""
        for piece in pieces:
            if piece is None:
                time.sleep(PAUSE)
            else:
                yield piece, answer(job, piece)


class _Worker:
    """A process, the piece it is at, and since when."""

    def __init__(self, job: Job) -> None:
        context = multiprocessing.get_context("spawn")
        self.here, there = context.Pipe()
        self.process = context.Process(target=_work, args=(there, job), daemon=True)
        self.process.start()
        there.close()
        self.piece: Piece | None = None
        self.ready = False
        self.since = math.inf

    def give(self, piece: Piece) -> None:
        """Hand over a piece; that the process is gone is found out later."""
        self.piece, self.since = piece, time.monotonic() if self.ready else math.inf
        with suppress(OSError):
            self.here.send(piece)

    def stop(self) -> None:
        """End the process, whatever it does."""
        self.process.kill()
        self.process.join()
        self.here.close()


def _work(there: Connection, job: Job) -> None:
    """Answer pieces until the other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the sweep decides when to stop
    parent = multiprocessing.parent_process()
    assert parent is not None  # this is a child
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    with suppress(EOFError, OSError):
        there.send(None)  # ready; what was imported until now is not the first point's time
        while True:
            there.send(answer(job, there.recv()))


def _end_with(parent: Any) -> None:
    """End this process when the one that started it is gone, killed perhaps."""
    parent.join()
    os._exit(1)


@dataclass(frozen=True, slots=True)
class Processes:
    """Pieces spread over processes of this machine.

    ``timeout``: seconds after which a process is ended that is still at one point. [s]
    """

    count: int
    timeout: float = math.inf

    def run(self, job: Job, pieces: Iterable[Piece | None]) -> Iterator[Done]:
        """Yield every piece with its result."""
        coming = iter(pieces)
        again: list[Piece] = []
        deaths: dict[int, int] = {}
        workers: list[_Worker] = []
        more = True
        try:
            while True:
                waiting = False
                while (more and not waiting) or again:
                    idle = next((w for w in workers if w.piece is None), None)
                    if idle is None and len(workers) >= self.count:
                        break
                    try:
                        piece = again.pop() if again else next(coming)
                    except StopIteration:
                        more = False
                        break
                    if piece is None:
                        waiting = True
                        break
                    if idle is None:
                        idle = _Worker(job)
                        workers.append(idle)
                    idle.give(piece)
                busy = [worker for worker in workers if worker.piece is not None]
                if not busy:
                    if not more and not again:
                        return
                    time.sleep(PAUSE)
                    continue
                yield from self._collect(busy, workers, again, deaths, waiting)
        finally:
            for worker in workers:
                worker.stop()

    def _collect(
        self,
        busy: list[_Worker],
        workers: list[_Worker],
        again: list[Piece],
        deaths: dict[int, int],
        waiting: bool,
    ) -> Iterator[Done]:
        """Wait for something to happen to busy workers, and yield what is finished."""
        oldest = min(worker.since for worker in busy)
        left = max(oldest + self.timeout - time.monotonic(), 0.0)
        limit = min(left, PAUSE) if waiting else left
        ready = wait([w.here for w in busy], None if math.isinf(limit) else limit)
        for worker in busy:
            piece = worker.piece
            assert piece is not None  # it is busy
            if worker.here in ready:
                try:
                    result = worker.here.recv()
                except (EOFError, OSError):  # the process died
                    workers.remove(worker)
                    worker.stop()
                    first = int(piece.points[0])
                    deaths[first] = deaths.get(first, 0) + 1
                    if deaths[first] < MOST_DEATHS:
                        again.append(piece)
                        continue
                    code = worker.process.exitcode
                    reason = f"its process died {MOST_DEATHS} times (exit code {code})"
                    result = failed(piece, "failed", reason)
                if result is None:
                    worker.ready, worker.since = True, time.monotonic()
                    continue
                worker.piece, worker.since = None, math.inf
                yield piece, result
            elif time.monotonic() - worker.since >= self.timeout:
                workers.remove(worker)
                worker.stop()
                reason = f"stopped after {self.timeout:g} s"
                yield piece, failed(piece, "timeout", reason, self.timeout)


def failed(piece: Piece, status: str, reason: str, runtime: float = 0.0) -> Result:
    """Return the result of a piece that nothing came of."""
    return Result(outcome=PointAnswer(status=status, reason=reason), runtime=runtime)


@dataclass(frozen=True, slots=True)
class Dask:
    """Pieces spread over the workers of a Dask cluster.

    ``client`` is a `distributed.Client`, whatever it is connected to. Pieces of a worker that is
    lost go to another one; Dask gives a piece up when too many workers died under it
    (``distributed.scheduler.allowed-failures``).
    """

    client: Any

    def run(self, job: Job, pieces: Iterable[Piece | None]) -> Iterator[Done]:
        """Yield every piece with its result.

        Raises
        ------
        InputError
            If the scheduler is lost.
        """
        from distributed import CancelledError
        from distributed.comm import CommClosedError

        try:
            yield from self._run(job, pieces)
        except (CancelledError, CommClosedError):
            message = "the scheduler was lost; what is finished is in the store."
            raise InputError(Problem("dask", message)) from None

    def _run(self, job: Job, pieces: Iterable[Piece | None]) -> Iterator[Done]:
        from distributed import wait as wait_for

        coming = iter(pieces)
        flying: dict[Any, Piece] = {}
        more = True
        try:
            while more or flying:
                most = 2 * max(sum(self.client.nthreads().values()), 1)
                waiting = False
                while more and not waiting and len(flying) < most:
                    try:
                        piece = next(coming)
                    except StopIteration:
                        more = False
                        break
                    if piece is None:
                        waiting = True
                        break
                    flying[self.client.submit(answer, job, piece, pure=False)] = piece
                if not flying:
                    time.sleep(PAUSE if more else 0)
                    continue
                with suppress(TimeoutError):
                    wait_for(list(flying), timeout=PAUSE * 5, return_when="FIRST_COMPLETED")
                for future in [future for future in flying if future.done()]:
                    piece = flying.pop(future)
                    error = future.exception()
                    if error is not None:
                        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
                        yield piece, failed(piece, "failed", reason)
                    else:
                        yield piece, future.result()
                    future.release()
        finally:
            with suppress(Exception):  # the scheduler may be gone
                self.client.cancel(list(flying))


def dask_client(address: str) -> Any:
    """Return a client of the Dask scheduler at an address.

    Raises
    ------
    InputError
        If Dask is not installed, or there is no scheduler.
    """
    try:
        from distributed import Client
    except ImportError:
        message = "needs Dask; install crosstack[dask]."
        raise InputError(Problem("dask", message)) from None
    try:
        return Client(address, timeout="10s")
    except (OSError, ValueError) as error:
        message = f"no scheduler at {address}: {' '.join(str(error).split())}."
        raise InputError(Problem("dask", message)) from None
