"""Sweeps that are ended at any moment lose nothing, repeat nothing and leave a store to read."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from slow_points import one_version, study_of

from crosstack.explore import points as points_module
from crosstack.explore.keys import hex_keys
from crosstack.explore.points import expand
from crosstack.explore.run import layout_of, sweep
from crosstack.explore.session import Session
from crosstack.explore.store import Store

HERE = Path(__file__).resolve().parent


@pytest.fixture(autouse=True)
def _one_version(monkeypatch):
    monkeypatch.setattr(points_module, "model_version", one_version)


def start(store: Path, log: Path, count: int, *, pause=0.004, jobs=1, largest_file=None):
    arguments = [store, log, count, pause, jobs, *([largest_file] if largest_file else [])]
    return subprocess.Popen(
        [sys.executable, str(HERE / "slow_points.py"), *map(str, arguments)],
        stderr=subprocess.PIPE,
        text=True,
    )


def finished(store: Path) -> list[float]:
    """Return the points that have a row, those of journals included, without clearing up."""
    opened = Store.open(store)
    found = [number for part in opened.parts() for number in pyarrow_rows(part)]
    done = {part.stem for part in opened.parts()}
    left = [path for path in opened.journals() if path.stem not in done]
    return found + [row["number"] for path in left for row in opened._rows(path)]


def pyarrow_rows(part: Path) -> list[float]:
    import pyarrow.parquet

    return pyarrow.parquet.ParquetFile(part).read().column("number").to_pylist()


def asked(log: Path) -> Counter:
    return Counter(float(line) for line in log.read_text().split()) if log.exists() else Counter()


def kill_at_random(store: Path, log: Path, *, times: int, count: int, seed: int) -> int:
    """Run and kill sweeps, one or two at once; return how many evaluations were cut off."""
    draw = random.Random(seed)
    cut_off = 0
    known: set[float] = set()
    for turn in range(times):
        sweeps = [start(store, log, count, jobs=1 + turn % 2) for _ in range(1 + (turn % 5 == 4))]
        # Importing takes most of a second, and differs from machine to machine: wait for the
        # first sign of work, then for a moment that is drawn.
        before, waited = sum(asked(log).values()), time.monotonic()
        while sum(asked(log).values()) == before and time.monotonic() - waited < 30:
            if all(s.poll() is not None for s in sweeps):
                break
            time.sleep(0.005)
        time.sleep(draw.uniform(0.0, 0.3))
        for one in sweeps:
            one.send_signal(signal.SIGKILL)
            one.wait()
        cut_off += sum(1 + turn % 2 for _ in sweeps)
        if not (store / "store.json").exists():
            continue
        done = finished(store)
        assert len(done) == len(set(done)), "a point has two rows"
        assert known <= set(done), "a finished point was lost"
        known = set(done)
    return cut_off


def check_whole(store: Path, log: Path, *, count: int, cut_off: int) -> None:
    """Finish the sweep and compare it with one that nobody disturbed."""
    last = start(store, log, count, pause=0.0, jobs=1)
    assert last.wait(120) == 0, last.stderr.read()
    table = Store.open(store).table()
    study = study_of(count)
    assert sorted(table.column("key").to_pylist()) == sorted(hex_keys(expand(study).keys))
    undisturbed = sweep(study, jobs=1, table="arrow")
    columns = ["key", "number", "status", "reason", "square"]
    ours = table.select(columns).sort_by("number")
    assert ours.equals(undisturbed.select(columns).sort_by("number"))
    # Asked twice is only what had no row when its sweep was killed: one point a process.
    twice = {x: n for x, n in asked(log).items() if n > 1}
    assert sum(n - 1 for n in twice.values()) <= cut_off
    assert not list((store / "journal").iterdir())
    assert not list((store / "claims").iterdir())


def test_a_few_killed_sweeps_lose_and_repeat_nothing(tmp_path):
    store, log = tmp_path / "store", tmp_path / "log"
    cut_off = kill_at_random(store, log, times=2, count=300, seed=1)
    check_whole(store, log, count=300, cut_off=cut_off)


@pytest.mark.slow
def test_fifty_killed_sweeps_lose_and_repeat_nothing(tmp_path):
    store, log = tmp_path / "store", tmp_path / "log"
    cut_off = kill_at_random(store, log, times=50, count=4000, seed=2)
    check_whole(store, log, count=4000, cut_off=cut_off)


@pytest.mark.slow
def test_a_store_is_read_by_other_tools_while_it_is_written_and_after_a_kill(tmp_path):
    duckdb = pytest.importorskip("duckdb")
    store, log = tmp_path / "store", tmp_path / "log"
    running = start(store, log, 2000)
    counts: list[int] = []
    stop = time.monotonic() + 60
    # A while after the first part: starting takes seconds on a busy machine.
    while time.monotonic() < stop:
        if list((store / "parts").glob("*.parquet")) if store.exists() else []:
            stop = stop if counts else time.monotonic() + 3
            query = f"select count(*), count(distinct key) from '{store}/parts/*.parquet'"
            rows, keys = duckdb.sql(query).fetchall()[0]
            assert rows == keys
            counts.append(rows)
        time.sleep(0.05)
    running.kill()
    running.wait()
    assert counts == sorted(counts)
    assert counts[-1] > 0


@pytest.mark.parametrize(
    "largest_file",
    [pytest.param(40, marks=pytest.mark.slow), pytest.param(600, marks=pytest.mark.slow), 1800],
)
def test_a_full_disk_stops_a_sweep_and_another_goes_on(tmp_path, largest_file):
    store, log = tmp_path / "store", tmp_path / "log"
    stopped = start(store, log, 60, pause=0.0, largest_file=largest_file)
    message = stopped.communicate(timeout=60)[1]
    assert stopped.returncode == 1
    assert "cannot be written" in message
    assert len(message.strip().splitlines()) == 1
    check_whole(store, log, count=60, cut_off=10)


@pytest.mark.slow
def test_two_sweeps_on_one_store_share_the_points(tmp_path):
    store, log = tmp_path / "store", tmp_path / "log"
    both = [start(store, log, 400, pause=0.005) for _ in range(2)]
    assert [one.wait(120) for one in both] == [0, 0]
    assert set(asked(log).values()) == {1}
    check_whole(store, log, count=400, cut_off=0)


def test_two_sweeps_that_wait_for_each_other_both_end(tmp_path):
    points = expand(study_of(2))
    store = Store.create(tmp_path / "store", layout_of(study_of(2)))
    with Session(store, points.keys) as one, Session(store, points.keys) as other:
        for session in (one, other):
            claimed = session.claim(1)
            key = hex_keys(points.keys[claimed])[0]
            row = {"key": key, "number": float(claimed[0]), "status": "feasible"}
            session.record(claimed.tolist(), [row])
        for session in (one, other):
            assert not len(session.claim(1))
            assert not session.complete
        one.release()
        other.release()
        assert other.complete
        one.release()
        assert one.complete
    assert store.table().num_rows == 2


@pytest.mark.slow
def test_processes_end_with_a_sweep_that_is_killed(tmp_path):
    store, log = tmp_path / "store", tmp_path / "log"
    running = start(store, log, 5000, pause=0.05, jobs=2)
    waited = time.monotonic() + 30
    while sum(asked(log).values()) < 4 and time.monotonic() < waited:
        time.sleep(0.01)
    running.kill()
    running.wait()
    time.sleep(0.5)
    before = sum(asked(log).values())
    time.sleep(0.5)
    assert sum(asked(log).values()) == before


def test_a_store_whose_making_was_cut_off_is_made_again(tmp_path):
    store = tmp_path / "store"
    for name in ("parts", "journal", "claims"):
        (store / name).mkdir(parents=True)
    (store / ".crosstack-x1y2z3").write_text('{"format": ')
    assert len(sweep(study_of(3), jobs=1, store=store)) == 3


def test_half_of_a_part_that_a_dead_sweep_left_is_cleared_away(tmp_path):
    points = expand(study_of(3))
    store = Store.create(tmp_path / "store", layout_of(study_of(3)))
    with Session(store, points.keys) as session:
        half = store.path / "parts" / f".{session.name}-000001.parquet.77"
    (store.path / "claims" / session.name).touch()
    half.write_bytes(b"PAR1")
    assert store.table().num_rows == 0
    assert not half.exists()


def test_a_line_that_was_cut_off_is_no_row(tmp_path):
    study = study_of(12)
    points = expand(study)
    store = Store.create(tmp_path / "store", layout_of(study))
    with Session(store, points.keys) as session:
        numbers = session.claim(2)
        rows = [
            {"key": key, "number": float(i), "status": "feasible", "square": 0.5}
            for i, key in enumerate(hex_keys(points.keys[numbers]))
        ]
        session.record(numbers.tolist(), rows)
        journal = Path(session._journal.name)
        content = journal.read_bytes()
    assert Store.open(store.path).table().num_rows == 2
    for end in (0, 1, len(content) // 2 + 3, len(content) - 1):
        for part in store.parts():
            part.unlink()
        journal.write_bytes(content[:end])
        table = store.table()
        assert table.num_rows == content[:end].count(b"\n")


def test_a_part_that_is_there_already_is_not_made_again_from_its_journal(tmp_path):
    study = study_of(3)
    points = expand(study)
    store = Store.create(tmp_path / "store", layout_of(study))
    with Session(store, points.keys) as session:
        numbers = session.claim(1)
        row = {"key": hex_keys(points.keys[numbers])[0], "number": 0.0, "status": "feasible"}
        session.record(numbers.tolist(), [row])
        journal = Path(session._journal.name)
        content = journal.read_bytes()
    journal.write_bytes(content)  # as if the process had died between the two steps
    assert store.table().num_rows == 1
    assert not journal.exists()


@pytest.mark.slow
def test_interrupting_keeps_what_is_done(tmp_path):
    store, log = tmp_path / "store", tmp_path / "log"
    running = start(store, log, 5000, pause=0.01, jobs=2)
    waited = time.monotonic() + 30
    while sum(asked(log).values()) < 20 and time.monotonic() < waited:
        time.sleep(0.01)
    os.kill(running.pid, signal.SIGINT)
    assert running.wait(20) != 0
    assert len(finished(store)) >= 15
    assert not list((store / "claims").iterdir())
    assert not list((store / "journal").iterdir())
