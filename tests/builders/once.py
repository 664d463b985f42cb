"""What takes long and many tests read: one process of a run computes it, the others read it."""

from __future__ import annotations

import fcntl
import os
import pickle
from collections.abc import Callable
from functools import cache, wraps
from pathlib import Path
from typing import TypeVar

FOLDER = "CROSSTACK_TESTS_ONCE"  # environment variable: where the processes of a run keep it

R = TypeVar("R")


def folder_of_run() -> Path:
    """Return the folder that all processes of this run share; gone when the run ends."""
    return Path(os.environ[FOLDER])


def once_a_run(function: Callable[..., R]) -> Callable[..., R]:
    """Decorate a function of names; its answers are pickled, so equal wherever they are read.

    A process that asks for what another computes just now waits for it.
    """

    @cache
    @wraps(function)
    def answer(*names: str) -> R:
        path = folder_of_run() / "-".join((function.__module__, function.__name__, *names))
        with open(f"{path}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                path.write_bytes(pickle.dumps(function(*names)))
            found: R = pickle.loads(path.read_bytes())
            return found

    return answer
