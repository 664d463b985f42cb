"""Which small changes to a project do its fast tests notice?

``python tests/mutation/run.py --count 400`` draws changes of the engine, runs for each the tests
that run the changed line, and says which changes no test noticed. mutmut leaves out functions with
decorators and chooses no tests by line; cosmic-ray starts all tests anew for every change.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import yaml
from changes import Change, changes_of, sample
from rich.console import Console
from rich.progress import track
from rich.table import Table
from suite import Changed, Suite

ROOT = Path(__file__).resolve().parents[2]
ENGINE = ("workload", "machine", "model", "mapping", "evaluate")
TESTED_BY = (*ENGINE, "golden", "published", "explore")
FEW_FILES, FEW_SECONDS = 4, 2.0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--root", type=Path, default=ROOT)
    parser.add_argument(
        "--source", type=Path, nargs="+", default=[Path("src/crosstack") / name for name in ENGINE]
    )
    parser.add_argument(
        "--tests", type=Path, nargs="+", default=[Path("tests") / name for name in TESTED_BY]
    )
    parser.add_argument("--kept", type=Path, default=Path(".mutation"), help="what runs leave")
    parser.add_argument(
        "--seconds", type=float, default=30.0, help="of tests, as in the trace, that a change gets"
    )
    parser.add_argument("--least", type=float, default=0.0, help="share killed, or exit with 1")
    parser.add_argument(
        "--again",
        choices=("survived", "all"),
        help="decide again what an earlier run decided, which is kept otherwise",
    )
    return parser.parse_args()


def decide(suite: Suite, change: Change, seconds: float) -> str:
    """Return what kills a change, or why it survives, in brackets."""
    tests = suite.tests_of(change.path, change.around)
    if not tests:
        return "(no fast test runs it)"
    path = suite.root / change.path
    finder = Changed(path, change.applied(path.read_bytes()))
    few, many = staged(suite, tests, seconds)
    for part in (few, many):
        limit = 20 + 3 * sum(suite.times[test] for test in part)
        if part and (failed := suite.run(part, finder, limit)):
            return failed[0]
    return f"(noticed by none of {len(few) + len(many)} tests, of {len(tests)})"


def staged(suite: Suite, tests: Sequence[str], seconds: float) -> tuple[list[str], list[str]]:
    """Return the fastest tests of few files, which kill most changes, and those that follow."""
    few: list[str] = []
    many: list[str] = []
    files: set[str] = set()
    short = spent = 0.0
    for test in tests:
        if few and spent + suite.times[test] > seconds:
            continue
        spent += suite.times[test]
        file = test.partition("::")[0]
        if (file in files or len(files) < FEW_FILES) and short < FEW_SECONDS:
            files.add(file)
            few.append(test)
            short += suite.times[test]
        else:
            many.append(test)
    return few, many


def show(
    console: Console, chosen: list[Change], by: dict[str, str], equal: dict[str, str]
) -> float:
    """Print what survives and the share that is killed, and return that share."""
    table = Table("place", "change", "survives", title="Changes that survive")
    kinds = Counter[str]()
    for change in chosen:
        kind = "equivalent" if change.key in equal else kind_of(by[change.key])
        kinds[kind] += 1
        if kind == "survived":
            place = f"{change.path}:{change.around[0][0]} {change.scope}"
            table.add_row(place, f"{change.before} -> {change.after}", by[change.key])
    counted = kinds["killed"] + kinds["survived"]
    share = kinds["killed"] / counted if counted else 1.0
    console.print(table)
    console.print(
        f"{kinds['killed']} of {counted} killed ({share:.1%}), {kinds['survived']} survive;"
        f" {kinds['equivalent']} more change nothing"
    )
    return share


def kind_of(by: str) -> str:
    return "survived" if by.startswith("(") else "killed"


def main() -> int:
    asked = arguments()
    console, start = Console(), time.monotonic()
    root = asked.root.resolve()
    os.chdir(root)
    kept = root / asked.kept
    sources = [root / source for source in asked.source]
    suite = Suite(root=root, sources=sources, tests=[root / p for p in asked.tests], kept=kept)
    suite.trace(console.print)
    files = [file for source in sources for file in sorted(source.rglob("*.py"))]
    every = [change for file in files for change in changes_of(file, root)]
    chosen = sample(every, asked.seed, asked.count)
    listed = root / "tests" / "mutation" / "equivalent.yaml"
    entries = yaml.safe_load(listed.read_text()) if listed.exists() else []
    equal = {entry["change"]: entry["reason"] for entry in entries}

    results = kept / "results.json"
    by: dict[str, str] = json.loads(results.read_text()) if results.exists() else {}
    again = {key for key in by if asked.again == "all" or kind_of(by[key]) == asked.again}
    left = [c for c in chosen if c.key not in equal and (c.key not in by or c.key in again)]
    for change in track(left, f"{len(every)} changes, {len(left)} to decide", console=console):
        by[change.key] = decide(suite, change, asked.seconds)
        results.write_text(json.dumps(by, indent=1))

    # A test that fails by itself kills nothing.
    killers = {by[c.key] for c in chosen if c.key not in equal} & suite.times.keys()
    alone = suite.run(sorted(killers), None, 3600.0)
    for change in [change for change in left if by[change.key] in alone]:
        for test in alone:
            suite.times.pop(test, None)
        by[change.key] = decide(suite, change, asked.seconds)
    results.write_text(json.dumps(by, indent=1))
    share = show(console, chosen, by, equal)
    console.print(f"{(time.monotonic() - start) / 60:.0f} minutes; {results}")
    return int(share < asked.least)


if __name__ == "__main__":
    raise SystemExit(main())
