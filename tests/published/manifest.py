"""What scores depend on, fixed before a set is scored: constants, and rows with their split.

Usage: python tests/published/manifest.py (writes manifest.yaml beside it; needs
../shared/data/measured), python tests/published/manifest.py scores (prints how far off rows for
development and rows that are held out are).

A constant is what a module of the physics or of scores calls so, or a number that a field has where
nothing is given; an entry is a chip, a node, a link or a framework of the library, with its
sources. Numbers inside a formula are code, and not among them. A row is held out where the SHA-256
of its id is a multiple of five. Of all are kept the first digits of hashes.
"""

from __future__ import annotations

import ast
import hashlib
import json
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from crosstack.evaluate.collective_scores import score_sets
from crosstack.evaluate.kernel_scores import score_kernels
from crosstack.evaluate.run_scores import score_runs
from crosstack.evaluate.scores import Score
from crosstack.io.measured import read_kernels
from crosstack.io.measured_collectives import read_collectives
from crosstack.io.measured_runs import read_runs
from crosstack.io.yaml_tree import parse_yaml

HERE = Path(__file__).resolve()
ROOT = HERE.parents[2]
MANIFEST = HERE.with_name("manifest.yaml")
MEASURED = ROOT.parent / "shared/data/measured"
SOURCE = ROOT / "src/crosstack"
MODULES = (
    "model/kernels/*.py",
    "model/collectives/*.py",
    "model/attention.py",
    "model/dispatch.py",
    "model/fused_attention.py",
    "model/optimizer_step.py",
    "machine/slowest.py",
    "evaluate/*scores.py",
    "evaluate/attention_programs.py",
    "evaluate/expert_loads.py",
    "evaluate/expert_searches.py",
    "evaluate/product_tiles.py",
    "io/measured*.py",
)
LIBRARY = "data/library/**/*.yaml"
NESTED = ("networks.yaml",)  # whose entries are one level down
ONE_IN = 5  # rows that are held out [1]
FEWEST = 20  # rows of a part of a set that is scored [1]
MOST_RUNS = 60  # of a part of a source [1]
DIGITS = 16  # of a hash that is kept [1]
Hashes = dict[str, dict[str, Any]]
HEAD = """\
# What scores depend on (docs/ablation.md): hashes of constants and of the library, and of measured
# rows with their split. Written by `python tests/published/manifest.py`; a test says what differs.
"""


def hashed(text: str) -> str:
    """Return the beginning of the SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]


def constants(path: Path) -> Iterator[tuple[str, str]]:
    """Return the constants of a module, and what fields have where nothing is given, as code."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    owners = [("", tree.body)]
    owners += [(f"{each.name}.", each.body) for each in tree.body if isinstance(each, ast.ClassDef)]
    for owner, body in owners:
        for line in body:
            if isinstance(line, ast.Assign):
                target, value = line.targets[0], line.value
            elif isinstance(line, ast.AnnAssign) and line.value is not None:
                target, value = line.target, line.value
            else:
                continue
            name = ast.unparse(target)
            number = isinstance(value, ast.Constant) and isinstance(value.value, int | float)
            if name.isupper() or (owner and number):
                yield f"{owner}{name}", ast.unparse(value)


def entries(path: Path) -> Iterator[tuple[str, str]]:
    """Return the entries of a file of the library, with their sources, as text."""
    tree: dict[str, Any] = parse_yaml(path.read_text(encoding="utf-8"))
    nested = path.name in NESTED
    for name, entry in tree.items():
        for under, part in entry.items() if nested else [("", entry)]:
            yield f"{name}.{under}".rstrip("."), json.dumps(part, sort_keys=True, default=str)


@cache
def held_out(name: str) -> bool:
    """Whether the row of that id is held out."""
    return int(hashlib.sha256(name.encode()).hexdigest(), 16) % ONE_IN == 0


def lines_of(path: Path) -> dict[str, str]:
    """Return the rows of a table by their id, as they stand in it."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return {str(json.loads(line)["id"]): line for line in lines if line.strip()}


def split(path: Path) -> dict[str, Any]:
    """Return how many rows of a table are for development and held out, and what is in them."""
    rows = lines_of(path)
    apart = [name for name in rows if held_out(name)]
    return {
        "rows": len(rows),
        "development": len(rows) - len(apart),
        "held_out": len(apart),
        "hash": hashed("\n".join(rows.values())),
        "held_out_ids": hashed("\n".join(sorted(apart))),
    }


def fixed() -> Hashes:
    """Return hashes of constants and of the library, by file."""
    modules = sorted({path for pattern in MODULES for path in SOURCE.glob(pattern)})
    files = [(path, constants) for path in modules]
    files += [(path, entries) for path in sorted(SOURCE.glob(LIBRARY))]
    found = {
        path.relative_to(SOURCE).as_posix(): {name: hashed(text) for name, text in parts(path)}
        for path, parts in files
    }
    return {name: hashes for name, hashes in found.items() if hashes}


def sets() -> Hashes:
    """Return how every measured table is split."""
    return {path.name: split(path) for path in sorted(MEASURED.glob("*.jsonl"))}


def written() -> dict[str, Any]:
    """Return the manifest as it is in the project."""
    tree: dict[str, Any] = parse_yaml(MANIFEST.read_text(encoding="utf-8"))
    return tree


def differences(was: Hashes, now: Hashes) -> list[str]:
    """Return what was added, taken away or changed, by file and name."""
    before, after = (
        {f"{file}: {name}": value for file, names in of.items() for name, value in names.items()}
        for of in (was, now)
    )
    names = sorted(before.keys() | after.keys())
    return [name for name in names if before.get(name) != after.get(name)]


def write() -> None:
    """Write the manifest anew."""
    tree = {"one_in": ONE_IN, "sets": sets(), "fixed": fixed()}
    lines = [HEAD, f"one_in: {tree['one_in']} # rows that are held out\n"]
    for part in ("sets", "fixed"):
        lines.append(f"{part}:\n")
        for file, names in tree[part].items():
            lines.append(f"  {file}:\n")
            lines += [f"    {name}: {json.dumps(value)}\n" for name, value in names.items()]
    MANIFEST.write_text("".join(lines), encoding="utf-8")


# ---------------------------------------------------------------- scores


def parts_of(path: Path, folder: Path) -> Iterator[Path]:
    """Write the rows for development and those that are held out, each as a table."""
    rows = lines_of(path)
    for apart in (False, True):
        part = folder / f"{path.stem}{int(apart)}.jsonl"
        kept = [line for name, line in rows.items() if held_out(name) is apart]
        part.write_text("\n".join(kept), encoding="utf-8")
        yield part


def scores_of(path: Path) -> dict[str, list[Score]]:
    """Return the scores of a table, by machine or source."""
    found: dict[str, list[Score]] = {}
    if path.stem.startswith("training"):
        for source, runs in read_runs(path).sets.items():
            score = score_runs(runs, most=MOST_RUNS).ours
            found[source] = [] if score is None else [score]
    elif path.stem.startswith("collectives"):
        for (gpu, _, what), score in score_sets(read_collectives(path).sets).items():
            if what != "all":
                found.setdefault(gpu, []).append(score.ours)
    else:
        for each in read_kernels(path).sets:
            if len(each.rows) > 1:  # one of some kinds tells what all take besides
                found.setdefault(each.gpu, []).append(score_kernels(each.rows, each.chip).ours)
    return found


def scores(name: str) -> Iterator[tuple[str, tuple[int, float], tuple[int, float]]]:
    """Return rows and mean error of both parts of a table, by machine or source. [1]

    Those with `FEWEST` rows or more in both.
    """
    with tempfile.TemporaryDirectory() as folder:
        known, apart = map(scores_of, parts_of(MEASURED / name, Path(folder)))
    for what in known.keys() & apart.keys():
        rows = [sum(score.rows for score in part[what]) for part in (known, apart)]
        if min(rows) < FEWEST:
            continue
        means = [
            sum(score.mean * score.rows for score in part[what]) / count
            for part, count in zip((known, apart), rows, strict=True)
        ]
        yield what, (rows[0], means[0]), (rows[1], means[1])


SCORED = ("gemm", "attention", "moe", "collectives", "training")


def main() -> None:
    """Write the manifest, or print scores."""
    if sys.argv[1:] != ["scores"]:
        write()
        return
    head = ("table", "machine or source", "rows", "mean", "rows held out", "mean")
    print(f"| {' | '.join(head)} |\n{'|---' * len(head)}|")
    for name in SCORED:
        for what, known, apart in sorted(scores(f"{name}.jsonl")):
            cells = [f"{rows} | {100 * mean:.1f}" for rows, mean in (known, apart)]
            print(f"| {name} | {what} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
