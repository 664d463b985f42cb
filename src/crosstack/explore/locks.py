"""Locks on files that the operating system drops when their holder dies, however it dies."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["held", "held_if_possible", "try_lock"]

if sys.platform == "win32":
    import msvcrt
    import time

    def _take(handle: int, *, wait: bool) -> bool:
        while True:
            try:
                os.lseek(handle, 1 << 40, os.SEEK_SET)  # beside the contents
                msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
                return True
            except OSError:
                if not wait:
                    return False
                time.sleep(0.01)
else:
    import fcntl

    def _take(handle: int, *, wait: bool) -> bool:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            return False
        return True


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold the lock on a file, made if need be; waits for whoever holds it."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        _take(handle, wait=True)
        yield
    finally:
        os.close(handle)


@contextmanager
def held_if_possible(path: Path) -> Iterator[bool]:
    """Hold the lock on a file, and say whether: who only reads may lack the right to it."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError:
        yield False
        return
    taken = False
    try:
        with suppress(OSError):  # a file system without locks
            taken = _take(handle, wait=True)
        yield taken
    finally:
        os.close(handle)


def try_lock(path: Path, *, create: bool = False) -> int | None:
    """Return an open handle that holds the lock on a file; None where somebody else does."""
    flags = os.O_RDWR | os.O_APPEND | (os.O_CREAT | os.O_EXCL if create else 0)
    handle = os.open(path, flags, 0o666)
    if _take(handle, wait=False):
        return handle
    os.close(handle)
    return None
