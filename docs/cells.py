"""Runs a script cell by cell and writes it down as a page, with what every cell prints and draws.

A cell starts at a line ``# %%``; ``# %% [markdown]`` starts text. What a cell prints comes below
it, and so does every picture (``.svg``) that it saves.

Usage: python docs/cells.py SCRIPT PAGE     (in the directory that the script runs in)
"""

from __future__ import annotations

import contextlib
import io
import shutil
import sys
from pathlib import Path
from typing import Any

MARK = "# %%"
TEXT = f"{MARK} [markdown]"


def cells(text: str) -> list[tuple[bool, int, str]]:
    """Return the cells of a script: whether it is text, its first line, what is in it."""
    found: list[tuple[bool, int, list[str]]] = [(False, 1, [])]
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith(MARK):
            found.append((line.strip() == TEXT, number + 1, []))
        else:
            found[-1][2].append(line)
    return [(is_text, at, "\n".join(lines).strip("\n")) for is_text, at, lines in found if lines]


def uncommented(text: str) -> str:
    """Return a cell of text without the comment signs."""
    return "\n".join(line.removeprefix("#").removeprefix(" ") for line in text.splitlines())


def page(script: Path, pictures: Path) -> str:
    """Run a script and return its page; pictures are copied beside it."""
    names: dict[str, Any] = {"__name__": "__main__"}
    parts = []
    before = set(Path().glob("*.svg"))
    for is_text, at, source in cells(script.read_text()):
        if is_text:
            parts.append(uncommented(source))
            continue
        if not source:
            continue
        parts.append(f"```python\n{source}\n```")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            # Empty lines in front, so that an error names the line of the script.
            exec(compile("\n" * (at - 1) + source, script.name, "exec"), names)
        if printed.getvalue():
            parts.append(f"```text\n{printed.getvalue().rstrip()}\n```")
        now = set(Path().glob("*.svg"))
        for picture in sorted(now - before):
            shutil.copy(picture, pictures / picture.name)
            parts.append(f"![{picture.stem.replace('_', ' ')}]({picture.name})")
        before = now
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    script, target = Path(sys.argv[1]), Path(sys.argv[2])
    target.write_text(page(script, target.parent))
