"""Processes that share lists of items with the one that started them, each taken by who is free.

They are started before it is known what the items are about, as a process takes a second to begin;
that is told once, to those that are ready. Whoever is free takes the next item of a list, this
process, too, so one that comes late, or never, costs nothing but its own start.
"""

from __future__ import annotations

import io
import multiprocessing
import pickle
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from multiprocessing.connection import Connection, wait
from queue import SimpleQueue
from typing import Any, Protocol

from crosstack.explore.pool import end_with, n_processors

__all__ = ["Subject", "Team", "team_of", "usual_jobs"]

MOST_USUAL = 4  # processes if nothing is said: more wait for what one of them searches first
MOST_LISTS = 2


class Subject(Protocol):
    """What items are about, alike in every process."""

    @property
    def shared(self) -> tuple[object, ...]:
        """What all of them have after they were told, which is not told again."""

    @property
    def news(self) -> object:
        """What is known since they were told."""

    def learn(self, news: Any) -> None:
        """Take over what another process knows since."""

    def answer(self, item: Any) -> Any:
        """Return the result of an item, the same in any process."""


class _Pickler(pickle.Pickler):
    """Writes what both ends have as its number."""

    def __init__(self, file: io.BytesIO, shared: Sequence[object]) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self.numbers = {id(one): number for number, one in enumerate(shared)}

    def persistent_id(self, obj: object) -> int | None:
        return self.numbers.get(id(obj))


class _Unpickler(pickle.Unpickler):
    """Reads what `_Pickler` wrote."""

    def __init__(self, data: bytes, shared: Sequence[object]) -> None:
        super().__init__(io.BytesIO(data))
        self.shared = shared

    def persistent_load(self, pid: Any) -> object:
        return self.shared[pid]


def _written(thing: object, shared: Sequence[object] = ()) -> bytes:
    file = io.BytesIO()
    _Pickler(file, shared).dump(thing)
    return file.getvalue()


def _read(data: bytes, shared: Sequence[object] = ()) -> Any:
    return _Unpickler(data, shared).load()


class _Turns:
    """The next item of each list that nobody has taken, known to all processes.

    Without a ``context`` there is but one.
    """

    def __init__(self, context: Any = None) -> None:
        self.next: Any = [0] * MOST_LISTS if context is None else context.RawArray("q", MOST_LISTS)
        self.lock: Any = nullcontext() if context is None else context.Lock()

    def take(self, number: int, items: Sequence[Any]) -> int | None:
        """Return the place of an item that nobody else has; None where none is left."""
        with self.lock:
            place = self.next[number]
            self.next[number] = place + 1
        return place if place < len(items) else None

    def left(self, number: int, items: Sequence[Any]) -> bool:
        """Whether a list has items that nobody has taken."""
        return int(self.next[number]) < len(items)


class _Member:
    """Another process, and what it was told."""

    def __init__(self, turns: _Turns, context: Any) -> None:
        self.here, there = context.Pipe()
        self.process = context.Process(target=_work, args=(there, turns), daemon=True)
        self.process.start()
        there.close()
        self.told = -1  # lists; below 0: not what they are about, either
        self.left = 0  # lists that it still works on

    def ready(self) -> bool:
        """Whether it has begun."""
        return self.told >= 0 or self.here.poll()

    def stop(self) -> None:
        """End the process, whatever it does."""
        self.process.kill()
        self.process.join()
        self.here.close()


def _work(there: Connection, turns: _Turns) -> None:
    """Answer items of the lists that come, until the other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is for the process that waits
    parent = multiprocessing.parent_process()
    assert parent is not None  # this is a child
    threading.Thread(target=end_with, args=(parent,), daemon=True).start()
    told: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_receive, args=(there, told), daemon=True).start()
    with suppress(OSError):
        there.send_bytes(b"")  # ready
        subject: Subject = _read(told.get())
        while True:
            number, items, news = _read(told.get(), subject.shared)
            subject.learn(news)
            while (place := turns.take(number, items)) is not None:
                result = subject.answer(items[place])
                there.send_bytes(_written((number, place, result), subject.shared))
            there.send_bytes(_written(None))


def _receive(there: Connection, told: SimpleQueue[bytes]) -> None:
    """Take what is sent at once: whoever sends is never held up by an item."""
    with suppress(EOFError, OSError):
        while True:
            told.put(there.recv_bytes())


class Team:
    """The process that makes it, and others beside it."""

    def __init__(self, count: int) -> None:
        """Start so many others. [1]"""
        context = multiprocessing.get_context("spawn")
        self.turns = _Turns(context if count else None)
        self.members = [_Member(self.turns, context) for _ in range(count)]
        self.subject: Subject | None = None
        self.lists: list[Sequence[Any]] = []
        self.about = b""

    def begin(self, subject: Subject) -> None:
        """Say what items are about."""
        self.subject = subject

    def share(self, items: Sequence[Any]) -> int:
        """Let all take from a list, as far as they know what it is about; return its number."""
        self.lists.append(items)
        self._tell()
        return len(self.lists) - 1

    def _tell(self) -> None:
        """Tell those that are ready what they do not know."""
        assert self.subject is not None
        shared = self.subject.shared
        if not any(self.turns.left(*each) for each in enumerate(self.lists)):
            return
        for member in list(self.members):
            if member.told == len(self.lists) or not member.ready():
                continue
            with self._unless_gone(member):
                if member.told < 0:
                    member.here.recv_bytes()
                    self.about = self.about or _written(self.subject)
                    member.here.send_bytes(self.about)
                    member.told = 0
                for number in range(member.told, len(self.lists)):
                    news = number, self.lists[number], self.subject.news
                    member.here.send_bytes(_written(news, shared))
                    member.told, member.left = number + 1, member.left + 1

    @contextmanager
    def _unless_gone(self, member: _Member) -> Iterator[None]:
        """Go on without a process that is gone."""
        try:
            yield
        except (EOFError, OSError):
            self.members.remove(member)
            member.stop()

    def results(self, numbers: Sequence[int]) -> Iterator[tuple[int, int, Any]]:
        """Yield the list, the place there and the result of every item of some lists, in any order.

        This process takes from them in the order given. What others took and did not live to
        answer is answered here.
        """
        assert self.subject is not None
        missing = {(n, place) for n in numbers for place in range(len(self.lists[n]))}
        for number in numbers:
            items = self.lists[number]
            while (place := self.turns.take(number, items)) is not None:
                self._tell()
                yield number, place, self.subject.answer(items[place])
                missing.discard((number, place))
                for found in self._answers(timeout=0):
                    missing.discard(found[:2])
                    yield found
        while missing and any(member.left for member in self.members):
            for found in self._answers(timeout=None):
                missing.discard(found[:2])
                yield found
        for number, place in sorted(missing):
            yield number, place, self.subject.answer(self.lists[number][place])

    def _answers(self, timeout: float | None) -> Iterator[tuple[int, int, Any]]:
        """Yield what others have answered, or answer before a timeout; None: wait for one. [s]"""
        assert self.subject is not None
        busy: dict[Any, _Member] = {m.here: m for m in self.members if m.left}
        for here in wait(list(busy), timeout):
            member = busy[here]
            with self._unless_gone(member):
                found = _read(member.here.recv_bytes(), self.subject.shared)
                if found is None:
                    member.left -= 1
                else:
                    yield found

    def stop(self) -> None:
        """End all others."""
        for member in self.members:
            member.stop()


def usual_jobs() -> int:
    """Return how many processes there are if nothing is said: one a processor, to some. [1]"""
    return min(n_processors(), MOST_USUAL)


@contextmanager
def team_of(jobs: int) -> Iterator[Team]:
    """Give this process and ``jobs - 1`` others, which end with the context. [1]"""
    team = Team(jobs - 1)
    try:
        yield team
    finally:
        team.stop()
