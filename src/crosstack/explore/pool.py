"""Where points are answered: in this process, in processes beside it, or on a Dask cluster.

A pool applies a function to items one by one, as it can work on them, and yields each with its
result, in any order. ``None`` among the items means that there may be more later.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

from crosstack.errors import InputError, Problem, require_jobs, require_quantity
from crosstack.explore.evaluators import PointAnswer

__all__ = [
    "Dask", "Executor", "Processes", "Run", "Serial", "executor_for", "n_processors",
]  # fmt: skip

Run = Callable[[Iterable[Any]], Iterator[tuple[Any, Any]]]
PAUSE = 0.2  # s between two looks at whether there are more items
MOST_DEATHS = 2  # of a process under one item, until that is the item's result


class Executor(Protocol):
    """Where a function is applied to items."""

    def started(self, function: Callable[[Any], Any]) -> AbstractContextManager[Run]:
        """Return what yields every item with its result.

        That of an item whose process did not live to answer it is a `PointAnswer` that says so.
        """


class _Coming:
    """Items as they come; ``more`` may, though perhaps not in this moment (``waiting``)."""

    def __init__(self, items: Iterable[Any]) -> None:
        self.items, self.more, self.waiting = iter(items), True, False

    def take(self) -> Any:
        """Return the next item, None where there is none now."""
        try:
            item = next(self.items)
        except StopIteration:
            self.more = False
            return None
        self.waiting = item is None
        return item


@dataclass(frozen=True, slots=True)
class Serial:
    """One item after the other, in this process."""

    @contextmanager
    def started(self, function: Callable[[Any], Any]) -> Iterator[Run]:
        """Return what yields every item with its result."""

        def run(items: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
            for item in items:
                if item is None:
                    time.sleep(PAUSE)
                else:
                    yield item, function(item)

        yield run


@dataclass(frozen=True, slots=True)
class Processes:
    """Items spread over processes of this machine.

    ``timeout``: seconds after which a process is ended that is still at one item. [s]
    """

    count: int
    timeout: float = math.inf

    @contextmanager
    def started(self, function: Callable[[Any], Any]) -> Iterator[Run]:
        """Return what yields every item with its result; processes end with the context."""
        workers = _Workers(function, self.count, self.timeout)
        try:
            yield workers.run
        finally:
            workers.stop()


class _Worker:
    """A process, the item it is at, and since when."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        context = multiprocessing.get_context("spawn")
        self.here, there = context.Pipe()
        self.process = context.Process(target=_work, args=(there, function), daemon=True)
        self.process.start()
        there.close()
        self.item: Any = None
        self.ready = False
        self.since = math.inf

    def give(self, item: Any) -> None:
        """Hand over an item; that the process is gone is found out later."""
        self.item, self.since = item, time.monotonic() if self.ready else math.inf
        with suppress(OSError):
            self.here.send(item)

    def stop(self) -> None:
        """End the process, whatever it does."""
        self.process.kill()
        self.process.join()
        self.here.close()


def _work(there: Connection, function: Callable[[Any], Any]) -> None:
    """Plan items until the other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the study decides when to stop
    parent = multiprocessing.parent_process()
    assert parent is not None  # this is a child
    threading.Thread(target=end_with, args=(parent,), daemon=True).start()
    with suppress(EOFError, OSError):
        there.send(None)  # ready; what was imported until now is not the first item's time
        while True:
            there.send(function(there.recv()))


def end_with(parent: Any) -> None:
    """End this process when the one that started it is gone, killed perhaps."""
    parent.join()
    os._exit(1)


class _Workers:
    """Processes that apply a function, made as they are needed, up to so many."""

    def __init__(self, function: Callable[[Any], Any], count: int, timeout: float) -> None:
        self.function, self.count, self.timeout = function, count, timeout
        self.all: list[_Worker] = []
        self.again: list[Any] = []
        self.deaths: dict[int, int] = {}

    def stop(self) -> None:
        """End all processes."""
        for worker in self.all:
            worker.stop()

    def run(self, items: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        """Yield every item with its result."""
        coming = _Coming(items)
        while True:
            coming.waiting = False
            while coming.more or self.again:
                idle = next((w for w in self.all if w.item is None), None)
                if idle is None and len(self.all) >= self.count:
                    break
                item = self.again.pop() if self.again else coming.take()
                if item is None:
                    break
                if idle is None:
                    idle = _Worker(self.function)
                    self.all.append(idle)
                idle.give(item)
            busy = [worker for worker in self.all if worker.item is not None]
            if busy:
                yield from self._collect(busy, coming.waiting)
            elif coming.more or self.again:
                time.sleep(PAUSE)
            else:
                return

    def _collect(self, busy: list[_Worker], waiting: bool) -> Iterator[tuple[Any, Any]]:
        """Wait for something to happen to busy workers, and yield what is finished."""
        oldest = min(worker.since for worker in busy)
        left = max(oldest + self.timeout - time.monotonic(), 0.0)
        limit = min(left, PAUSE) if waiting else left
        ready = wait([w.here for w in busy], None if math.isinf(limit) else limit)
        for worker in busy:
            item = worker.item
            if worker.here in ready:
                try:
                    result = worker.here.recv()
                except (EOFError, OSError):  # the process died
                    if (failure := self._died(worker)) is not None:
                        yield item, failure
                    continue
                if result is None:
                    worker.ready, worker.since = True, time.monotonic()
                    continue
                worker.item, worker.since = None, math.inf
                self.deaths.pop(id(item), None)
                yield item, result
            elif time.monotonic() - worker.since >= self.timeout:
                self.all.remove(worker)
                worker.stop()
                reason = f"stopped after {self.timeout:g} s"
                yield item, PointAnswer(status="timeout", reason=reason, runtime=self.timeout)

    def _died(self, worker: _Worker) -> PointAnswer | None:
        """Give the item of a dead process to another; the failure where that is no use."""
        self.all.remove(worker)
        worker.stop()
        deaths = self.deaths[id(worker.item)] = self.deaths.get(id(worker.item), 0) + 1
        if deaths < MOST_DEATHS:
            self.again.append(worker.item)
            return None
        code = worker.process.exitcode
        reason = f"its process died {MOST_DEATHS} times (exit code {code})"
        return PointAnswer(status="failed", reason=reason)


@dataclass(frozen=True, slots=True)
class Dask:
    """Items spread over the workers of a Dask cluster.

    ``client`` is a `distributed.Client`, whatever it is connected to. Items of a worker that is
    lost go to another one; Dask gives an item up when too many workers died under it
    (``distributed.scheduler.allowed-failures``).
    """

    client: Any

    @contextmanager
    def started(self, function: Callable[[Any], Any]) -> Iterator[Run]:
        """Return what yields every item with its result.

        Raises
        ------
        InputError
            If the scheduler is lost.
        """
        from distributed import CancelledError
        from distributed.comm import CommClosedError

        def run(items: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
            try:
                yield from self._run(function, items)
            except (CancelledError, CommClosedError):
                message = "the scheduler was lost; what is finished is in the store."
                raise InputError(Problem("dask", message)) from None

        yield run

    def _run(
        self, function: Callable[[Any], Any], items: Iterable[Any]
    ) -> Iterator[tuple[Any, Any]]:
        from distributed import wait as wait_for

        coming = _Coming(items)
        flying: dict[Any, Any] = {}
        try:
            while coming.more or flying:
                most = 2 * max(sum(self.client.nthreads().values()), 1)
                while coming.more and len(flying) < most:
                    item = coming.take()
                    if item is None:
                        break
                    flying[self.client.submit(function, item, pure=False)] = item
                if not flying:
                    time.sleep(PAUSE if coming.more else 0)
                    continue
                with suppress(TimeoutError):
                    wait_for(list(flying), timeout=PAUSE * 5, return_when="FIRST_COMPLETED")
                for future in [future for future in flying if future.done()]:
                    item = flying.pop(future)
                    error = future.exception()
                    if error is not None:
                        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
                        yield item, PointAnswer(status="failed", reason=reason)
                    else:
                        yield item, future.result()
                    future.release()
        finally:
            with suppress(Exception):  # the scheduler may be gone
                self.client.cancel(list(flying))


def n_processors() -> int:
    """Return how many processors this process may use. [1]"""
    with suppress(AttributeError):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def executor_for(jobs: int | None, timeout: float | None = None, dask: Any = None) -> Executor:
    """Return where to run: on Dask, in processes, or here.

    Parameters
    ----------
    jobs : int or None
        Processes; None: as many as there are processors. [1]
    timeout : float or None
        After which an item is given up. [s]
    dask : distributed.Client, str or None
        A Dask cluster, or the address of its scheduler, to run on instead.

    Raises
    ------
    InputError
        If they are out of range or contradict one another, or there is no scheduler.
    """
    if jobs is not None:
        require_jobs(jobs)
    if timeout is not None:
        require_quantity("timeout", timeout, "s", above_zero=True)
    if dask is not None:
        if jobs is not None or timeout is not None:
            name = "jobs" if jobs is not None else "timeout"
            message = "given with a Dask cluster; allowed: without."
            raise InputError(Problem(name, message))
        return Dask(_dask_client(dask) if isinstance(dask, str) else dask)
    count = n_processors() if jobs is None else jobs
    if count == 1 and timeout is None:
        return Serial()
    return Processes(count, math.inf if timeout is None else timeout)


def _dask_client(address: str) -> Any:
    """Return a client of the Dask scheduler at an address."""
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
