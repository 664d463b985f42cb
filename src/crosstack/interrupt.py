"""Ctrl-C while the command loads its modules ends it at once, and without a traceback.

Loading takes most of a second. `crosstack.cli.main.main`, which knows how to end, is not there yet
then, and a `KeyboardInterrupt` inside another library's import may come out as anything. Where
crosstack is imported by another program, nothing is changed.
"""

from __future__ import annotations

import os
import signal
import sys

__all__ = ["INTERRUPTED_EXIT", "loaded", "loading"]

INTERRUPTED_EXIT = 130  # as a shell says of a process that SIGINT ended


def loading() -> None:
    """End quietly at an interrupt from now on, if this process is the command."""
    if _is_command() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def loaded() -> None:
    """Raise `KeyboardInterrupt` at an interrupt again."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(*_: object) -> None:
    os._exit(INTERRUPTED_EXIT)


def _is_command() -> bool:
    """Whether this process was started as ``crosstack`` or as ``python -m crosstack``."""
    started = sys.orig_argv[1:3]  # sys.argv is that of the parent in a process of a pool
    script = os.path.basename(started[0]) if started else ""
    return script in ("crosstack", "crosstack.exe") or started == ["-m", "crosstack"]
