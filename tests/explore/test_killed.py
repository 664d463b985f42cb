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
from builders.stores import points_in
from slow_points import one_version, study_of

from crosstack.explore import points as points_module
from crosstack.explore.keys import as_bytes, hex_keys
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
    """Return the points that have a row."""
    return Store.open(store).table().column("number").to_pylist()


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
        while sum(asked(log).values()) == before and time.monotonic() - waited < 120:
            if all(s.poll() is not None for s in sweeps):
                break
            time.sleep(0.005)
        time.sleep(draw.uniform(0.0, 0.3))
        for one in sweeps:
            one.send_signal(signal.SIGKILL)
            one.wait()
        cut_off += sum(1 + turn % 2 for _ in sweeps)
        if not points_in(store):
            continue
        done = finished(store)
        assert len(done) == len(set(done)), "a point has two rows"
        assert known <= set(done), "a finished point was lost"
        known = set(done)
    return cut_off


def check_whole(store: Path, log: Path, *, count: int, cut_off: int) -> None:
    """Finish the sweep and compare it with one that nobody disturbed."""
    last = start(store, log, count, pause=0.0, jobs=1)
    assert last.wait(300) == 0, last.stderr.read()
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
    assert not list(store.glob("*.sweep*"))
    with Store.open(store).database() as db:
        assert db.execute("select * from claims").fetchall() == []


@pytest.mark.slow
def test_a_few_killed_sweeps_lose_and_repeat_nothing(tmp_path):
    store, log = tmp_path / "store", tmp_path / "log"
    cut_off = kill_at_random(store, log, times=2, count=80, seed=1)
    check_whole(store, log, count=80, cut_off=cut_off)


@pytest.mark.slow
def test_a_dozen_killed_sweeps_lose_and_repeat_nothing(tmp_path):
    store, log = tmp_path / "store", tmp_path / "log"
    cut_off = kill_at_random(store, log, times=12, count=4000, seed=2)
    check_whole(store, log, count=4000, cut_off=cut_off)


@pytest.mark.slow
def test_a_store_is_read_while_it_is_written_and_after_a_kill(tmp_path):
    store, log = tmp_path / "store", tmp_path / "log"
    running = start(store, log, 2000)
    counts: list[int] = []
    stop = time.monotonic() + 300
    # A while after the first row: starting takes seconds on a busy machine.
    while time.monotonic() < stop:
        if points_in(store):
            stop = stop if counts else time.monotonic() + 3
            rows = finished(store)
            assert len(rows) == len(set(rows))
            counts.append(len(rows))
        time.sleep(0.05)
    running.kill()
    running.wait()
    counts.append(len(finished(store)))
    assert counts == sorted(counts)
    assert 0 < counts[0] < counts[-1]


@pytest.mark.parametrize(
    "largest_file",
    [
        pytest.param(40, marks=pytest.mark.slow),
        pytest.param(9000, marks=pytest.mark.slow),
        45_000,
    ],
)
def test_a_full_disk_stops_a_sweep_and_another_goes_on(tmp_path, largest_file):
    store, log = tmp_path / "store", tmp_path / "log"
    stopped = start(store, log, 60, pause=0.0, largest_file=largest_file)
    message = stopped.communicate(timeout=300)[1]
    assert stopped.returncode == 1
    assert "cannot be written" in message
    assert len(message.strip().splitlines()) == 1
    check_whole(store, log, count=60, cut_off=10)


@pytest.mark.slow
def test_two_sweeps_on_one_store_share_the_points(tmp_path):
    store, log = tmp_path / "store", tmp_path / "log"
    both = [start(store, log, 400, pause=0.005) for _ in range(2)]
    assert [one.wait(300) for one in both] == [0, 0]
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
            session.record(claimed, [row])
        for session in (one, other):
            assert not len(session.claim(1))
            assert session.complete
    assert store.table().num_rows == 2


@pytest.mark.slow
def test_processes_end_with_a_sweep_that_is_killed(tmp_path):
    store, log = tmp_path / "store", tmp_path / "log"
    running = start(store, log, 5000, pause=0.05, jobs=2)
    waited = time.monotonic() + 120
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
    store.mkdir()
    (store / "store.sqlite").touch()
    assert len(sweep(study_of(3), jobs=1, store=store)) == 3


def test_claims_of_a_sweep_that_is_dead_are_void_and_those_of_one_that_runs_are_not(tmp_path):
    points = expand(study_of(3))
    store = Store.create(tmp_path / "store", layout_of(study_of(3)))
    with store.database(write=True) as db:
        dead = ("0123456789ab", as_bytes(points.keys[:1]))
        db.execute("insert into claims values (?, ?)", dead)
    with Session(store, points.keys) as one, Session(store, points.keys) as other:
        assert one.claim(2).tolist() == [0, 1]
        assert other.claim(2).tolist() == [2]
        assert not len(other.claim(1))


@pytest.mark.slow
def test_interrupting_keeps_what_is_done(tmp_path):
    store, log = tmp_path / "store", tmp_path / "log"
    running = start(store, log, 5000, pause=0.01, jobs=2)
    waited = time.monotonic() + 120
    while sum(asked(log).values()) < 20 and time.monotonic() < waited:
        time.sleep(0.01)
    os.kill(running.pid, signal.SIGINT)
    assert running.wait(120) != 0
    assert len(finished(store)) >= 15
    assert not list(store.glob("*.sweep*"))
