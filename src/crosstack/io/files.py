"""The gatekeeper of files: what may be read as text, and writing that never leaves half a file."""

from __future__ import annotations

import itertools
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from crosstack.errors import InputError, Problem, nearest

TEMPORARY = ".crosstack-"  # how names of files start that are being written

MOST_NEIGHBOURS = 1000  # names of files that a misspelt one is compared with

LARGEST_FILE = 64_000_000
"""Largest file that is read. [B]"""


def in_file(error: InputError, source: str) -> InputError:
    """Return the same error with ``source: `` put before the path of every problem."""
    return InputError(p.at(f"{source}: {p.path}" if p.path else source) for p in error.problems)


@contextmanager
def of_file(source: str | Path) -> Iterator[None]:
    """Put the name of a file before the path of every problem that is raised inside."""
    try:
        yield
    except InputError as error:
        raise in_file(error, str(source)) from None


@contextmanager
def under(path: str) -> Iterator[None]:
    """Put a path before that of every problem that is raised inside."""
    try:
        yield
    except InputError as error:
        raise error.under(path) from None


def _refuse(path: str | Path, message: str) -> InputError:
    return InputError(Problem(str(path), message))


def read_text(path: str | Path) -> str:
    """Return the text of a regular file of UTF-8 of at most `LARGEST_FILE`, checked before reading.

    `InputError` if it is missing, a directory, empty, too large, or not text.
    """
    try:
        found = os.stat(path)
        if stat.S_ISDIR(found.st_mode):
            raise _refuse(path, "is a directory; allowed: a file.")
        if not stat.S_ISREG(found.st_mode):
            raise _refuse(path, "is not a regular file.")
        if found.st_size > LARGEST_FILE:
            size, limit = found.st_size / 1e6, LARGEST_FILE / 1e6
            raise _refuse(path, f"file is {size:,.4g} MB; allowed: up to {limit:,.4g} MB.")
        content = Path(path).read_bytes()
    except FileNotFoundError:
        raise _refuse(path, f"no such file.{_neighbour(Path(path))}") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL byte in the path itself
        raise _as_refusal(path, error, "read") from None
    return _decode(path, content)


def _neighbour(path: Path) -> str:
    """Return a hint at a file beside it of nearly the same name; empty where there is none."""
    try:
        beside = sorted(itertools.islice(path.parent.iterdir(), MOST_NEIGHBOURS))
    except (OSError, ValueError):
        return ""
    by_stem = {other.stem: other for other in beside}
    close = nearest(path.stem, by_stem, 1)
    return f' Did you mean "{by_stem[close[0]]}"?' if close else ""


def _decode(path: str | Path, content: bytes) -> str:
    if not content.strip():
        raise _refuse(path, "the file is empty.")
    nul = content.find(b"\0")
    if nul >= 0:
        raise _refuse(path, f"is not text: a NUL byte at offset {nul}.")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _refuse(path, f"is not UTF-8 text: a bad byte at offset {error.start}.") from None


def write_atomically(path: str | Path, text: str) -> None:
    """Write ``text`` to a file so that a reader sees the old file or the new one, never a part.

    `InputError` if the directory does not exist or is not writable.
    """
    try:
        content = text.encode()
    except UnicodeError as error:  # a lone surrogate
        raise _as_refusal(path, error, "written") from None
    with writing(path) as temporary:
        temporary.write_bytes(content)


@contextmanager
def writing(path: str | Path) -> Iterator[Path]:
    """Give a file to write, of the same suffix, that takes the place of ``path`` when it is whole.

    `InputError` if the directory does not exist or is not writable.
    """
    try:
        target = Path(os.path.realpath(path))  # a link stays a link
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise _as_refusal(path, error, "written") from None
    temporary: Path | None = None
    try:
        if not target.parent.is_dir():
            raise _refuse(path, f"there is no directory {str(target.parent)!r}.")
        if target.is_dir():
            raise _refuse(path, "is a directory; allowed: a file.")
        mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else _new_file_mode()
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=TEMPORARY, suffix=target.suffix)
        os.close(handle)
        temporary = Path(name)
        yield temporary
        os.chmod(temporary, mode)
        os.replace(temporary, target)
        temporary = None
    except OSError as error:
        raise _as_refusal(path, error, "written") from None
    finally:
        if temporary is not None:
            with suppress(OSError):
                temporary.unlink()


def make_folder(path: str | Path) -> None:
    """Make the directory that ``path`` will be in, and those above it, or raise `InputError`."""
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise _as_refusal(path, error, "written") from None


def _as_refusal(path: str | Path, error: OSError | ValueError, done: str) -> InputError:
    if isinstance(error, InputError):
        return error
    reason = getattr(error, "strerror", None) or str(error)
    return _refuse(path, f"cannot be {done}: {reason}.")


def _new_file_mode() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask
