"""Reads and writes tasks in any format crosstack knows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from crosstack.errors import InputError, Problem, require
from crosstack.io.files import in_file, read_text, write_atomically
from crosstack.io.yaml_tree import Change, Content
from crosstack.mapping.mapping import Task
from crosstack.records import require_type

_NATIVE = (".yaml", ".yml")
_DFMODEL = (".txt", ".pbtxt")


def load(path: str | Path, overrides: Sequence[str] = ()) -> Task:
    """Return the task that a file holds, changed by ``path=value`` before it is checked.

    ``.yaml`` and ``.yml`` are native, anything else is that or DFModel's protobuf text by what it
    looks like. `InputError` with every problem found, one line each:
    ``FILE: path: what is wrong``.
    """
    require_type("path", path, str | Path)
    listed = isinstance(overrides, Sequence) and not isinstance(overrides, str)
    good = listed and all(isinstance(override, str) for override in overrides)
    require(good, "overrides", overrides, 'a list of "path=value"')
    return task_in(read_text(path), str(path), overrides)


def task_in(content: Content, source: str, overrides: Sequence[Change] = ()) -> Task:
    """Return the task that a file called ``source`` holds, text or tree; as `load`."""
    if isinstance(content, str) and not _is_native(content, source):
        from crosstack.io.dfmodel.read import read_task

        return read_task(content, source, overrides)
    from crosstack.io import native

    return native.read_task(content, source, overrides)


def _is_native(text: str, source: str) -> bool:
    if Path(source).suffix.lower() in _NATIVE:
        return True
    from crosstack.io.dfmodel.read import looks_like

    return not looks_like(text)


def as_in_file(
    error: InputError, task: Task, path: str | Path, overrides: Sequence[str] = ()
) -> InputError:
    """Return the error of a task under the name of the file it was read from, with its fields.

    Parameters
    ----------
    error : InputError
        Its paths are those of the task's record.
    task : Task
        What `load` made of ``path`` and ``overrides``.
    path : str or Path
        The file.
    overrides : sequence of str
        What was changed on the way.
    """
    text = read_text(path)
    if not _is_native(text, str(path)):
        return in_file(task.as_in_file(error), str(path))
    from crosstack.io import native

    return in_file(native.in_own_words(error, task, text, overrides), str(path))


def save(task: Task, path: str | Path) -> None:
    """Write a task to a file, in the format of its suffix.

    ``.yaml`` or ``.yml``: native; ``.txt`` or ``.pbtxt``: DFModel's protobuf text. `InputError` if
    the suffix is another, or the file cannot be written.
    """
    require_type("task", task, Task)
    require_type("path", path, str | Path)
    suffix = Path(path).suffix.lower()
    if suffix in _NATIVE:
        from crosstack.io import native

        write_atomically(path, native.write_task(task))
    elif suffix in _DFMODEL:
        from crosstack.io.dfmodel.write import write_task

        write_atomically(path, write_task(task))
    else:
        allowed = ", ".join((*_NATIVE, *_DFMODEL))
        raise InputError(Problem(str(path), f"unknown suffix {suffix!r}; allowed: {allowed}."))
