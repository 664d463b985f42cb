"""Stores with a damaged, foreign or missing piece: it is named, and the other rows are given."""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="needs crosstack[explore]")

STUDY = """\
base: small.yaml
axes:
  memory: {path: system.memory.bandwidth, values: [10 GB/s, 20 GB/s]}
  use: {path: system.chip.utilization, values: [USES]}
objectives: {time: min, memory_used: min}
constraints: {memory_used: {max: 1 TB}}
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory, run, small_text):
    """Return a store of three studies, six answers and a claim that a kill left."""
    from crosstack.explore.store import Store

    folder = tmp_path_factory.mktemp("whole")
    (folder / "small.yaml").write_text(small_text)
    study, store = folder / "study.yaml", folder / "a.store"
    for uses in ("0.5", "0.5, 0.7", "0.5, 0.7, 0.9"):
        study.write_text(STUDY.replace("USES", uses))
        assert run("sweep", study, "--jobs", 1, "--store", store, "--resume").code == 0
    with Store.open(store).database(write=True) as db:
        (keys,) = db.execute("select keys from answers where number = 6").fetchone()
        db.execute("insert into claims values ('0123456789ab', ?)", (keys,))
    return store


@pytest.fixture
def store(whole, tmp_path):
    """Return a copy to be damaged; the study is beside it."""
    for name in ("small.yaml", "study.yaml"):
        shutil.copy(whole.parent / name, tmp_path)
    shutil.copytree(whole, tmp_path / "a.store")
    return tmp_path / "a.store"


@pytest.fixture
def rows_of(run, tmp_path):
    """Return a function that gives what `study export` has of a store, and what it said."""

    def export(store):
        out = tmp_path / "rows.json"
        found = run("study", "export", store, "-o", out)
        assert found.code == 0, found.err
        return {row["key"]: row for row in json.loads(out.read_text())}, found.problems

    return export


def change(store: Path, *statement) -> None:
    from crosstack.explore.store import Store

    with Store.open(store).database(write=True) as db:
        db.execute(*statement)


def pieces(store: Path) -> list[Path]:
    return sorted(path for path in store.rglob("*") if path.is_file())


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def garbage(path: Path) -> None:
    path.write_bytes(random.Random(1).randbytes(5000))


DAMAGE = {
    "another number": ("rows", b'"time": ', b'"time": 1'),
    "half of it": ("rows", b'"time": ', None),
    "another key": ("keys", None, b"x" * 16),
    "no key": ("keys", None, b""),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_answer_is_named_and_all_others_are_given(store, run, rows_of, damage):
    from crosstack.explore.store import Store

    all_rows, _ = rows_of(store)
    with Store.open(store).database() as db:
        key, rows = db.execute("select keys, rows from answers where number = 2").fetchone()
    column, old, new = DAMAGE[damage]
    if old is not None:
        new = rows.partition(old)[0] if new is None else rows.replace(old, new)
    change(store, f"update answers set {column} = ? where number = 2", (new,))
    rows, (line,) = rows_of(store)
    assert rows == {name: row for name, row in all_rows.items() if name != key.hex()}
    assert "answer 2: is damaged; its points are left out" in line
    found = run("sweep", store.parent / "study.yaml", "--jobs", 1, "--store", store, "--resume")
    assert found.code == 0
    assert "answer 2: was damaged; its points are answered again" in found.err
    rows, problems = rows_of(store)
    assert rows.keys() == all_rows.keys()
    assert problems == []


def test_a_row_with_another_kind_of_value_is_named_and_left_out(store, rows_of):
    from crosstack.explore.store import Store, checksum

    all_rows, _ = rows_of(store)
    with Store.open(store).database() as db:
        key, rows = db.execute("select keys, rows from answers where number = 2").fetchone()
    data = json.loads(rows)
    data[0]["time"] = "long"
    text = json.dumps(data).encode()
    new = (text, checksum(key, text))
    change(store, "update answers set rows = ?, checksum = ? where number = 2", new)
    rows, (line,) = rows_of(store)
    assert rows.keys() == all_rows.keys() - {key.hex()}
    assert "answer 2: is damaged" in line


def test_points_that_two_searches_answered_are_one_row(store, run, rows_of):
    all_rows, _ = rows_of(store)
    twice = "insert into answers (sweep, keys, rows, checksum) "
    change(store, f"{twice} select sweep, keys, rows, checksum from answers where number = 3")
    assert rows_of(store) == (all_rows, [])
    assert "points 6: 6 optimal" in " ".join(run("study", "show", store).out.split())


@pytest.mark.parametrize("damage", [cut, empty, garbage])
def test_a_damaged_database_is_one_line_and_stays_as_it_is(store, run, damage):
    damage(store / "store.sqlite")
    content = (store / "store.sqlite").read_bytes()
    for command in (("show", store), ("export", store, "-o", store.parent / "a.csv")):
        found = run("study", *command)
        assert found.code == 2
        assert len(found.problems) == 1
        assert str(store) in found.problems[0]
    if damage is not empty:
        study = store.parent / "study.yaml"
        found = run("sweep", study, "--store", store, "--resume", "--jobs", 1)
        assert (found.code, len(found.problems)) == (2, 1)
        assert "store.sqlite is damaged" in found.problems[0]
        assert (store / "store.sqlite").read_bytes() == content


def test_a_store_of_another_format_is_refused(store, run):
    change(store, "pragma user_version = 9")
    found = run("study", "show", store)
    assert found.code == 2
    assert "is no store that this version reads (format 2); got format 9" in found.problems[0]


def test_of_damaged_studies_the_last_sound_one_says_what_was_asked(store, run):
    change(store, "update studies set asked = 'x' where rowid = (select max(rowid) from studies)")
    found = run("study", "show", store)
    assert found.code == 0
    assert "studies: is damaged" in found.err
    change(store, "update studies set checksum = 1")
    found = run("study", "show", store)
    assert found.code == 0
    assert "6 optimal" in found.out
    change(store, "delete from studies")
    found = run("study", "show", store)
    assert "nothing is known of what was asked" in found.err
    assert "6 optimal" in found.out


@contextmanager
def without_rights():
    """Act as a user who may not write what root made; who is not root already is one."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def frozen(store):
    """Return the store where nobody may write; others reach it."""
    place = Path(tempfile.mkdtemp(prefix="crosstack-"))
    place.chmod(0o755)
    shutil.copytree(store, place / "a.store")
    shutil.copy(store.parent / "study.yaml", place)
    shutil.copy(store.parent / "small.yaml", place)
    every = [place / "a.store", *(place / "a.store").rglob("*")]
    for path in every:
        path.chmod(0o555 if path.is_dir() else 0o444)
    yield place / "a.store"
    for path in every:
        path.chmod(0o755)
    shutil.rmtree(place)


@pytest.mark.skipif(sys.platform == "win32", reason="rights of POSIX")
def test_a_store_that_may_only_be_read_is_shown_exported_plotted_and_reported(frozen, store, run):
    from crosstack.report.pages.server import StudyServer

    before = {path: path.stat().st_mtime_ns for path in pieces(frozen)}
    out = Path(tempfile.mkdtemp(prefix="crosstack-"))
    out.chmod(0o777)

    def look_at(store):
        found = [
            run("study", "show", store),
            run("study", "export", store, "-o", out / "a.json"),
            run("study", "plot", store, "--x", "memory", "--y", "time", "-o", out / "a.svg"),
            run("report", store, "-o", out / "a.html"),
        ]
        with StudyServer(store, 0) as server:
            return found, json.loads(server.data()[1])

    look_at(store)  # imports what it needs: that user may not read the library of Python
    for path in out.iterdir():
        path.unlink()
    with without_rights():
        with pytest.raises(OSError, match="denied"):
            (frozen / "x").touch()
        looked, served = look_at(frozen)
        refused = run("sweep", frozen.parent / "study.yaml", "--store", frozen, "--resume")
    for found in looked:
        assert (found.code, found.err) == (0, "")
    assert "6 optimal" in looked[0].out
    assert len(json.loads((out / "a.json").read_text())) == 6
    assert served["points"] == 6
    assert refused.code == 2
    assert "cannot be written" in refused.err
    assert {path: path.stat().st_mtime_ns for path in pieces(frozen)} == before
    shutil.rmtree(out)


def damaged_at_random(store: Path, draw: random.Random) -> Path:
    """Flip, cut or lengthen bytes of one file of a store; return which."""
    hit = draw.choice([path for path in pieces(store) if path.stat().st_size])
    content = bytearray(hit.read_bytes())
    way = draw.randrange(6)
    if way == 0:
        content = content[: draw.randrange(len(content))]
    elif way == 1:
        content += draw.randbytes(draw.randrange(1, 40))
    else:
        for _ in range(draw.choice((1, 1, 1, 4, 30))):
            content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    hit.write_bytes(content)
    return hit


@pytest.mark.parametrize(
    "seeds", [range(8), pytest.param(range(8, 75), marks=pytest.mark.slow)], ids=len
)
def test_bytes_that_flip_are_never_a_bug_or_another_number(whole, tmp_path, run, seeds):
    from crosstack.errors import InputError
    from crosstack.explore.store import Store

    source = {row["key"]: row for row in Store.open(whole).table().to_pylist()}
    for seed in seeds:
        store = tmp_path / f"{seed}"
        shutil.copytree(whole, store)
        hit = damaged_at_random(store, random.Random(seed))
        shown = run("study", "show", store)
        assert shown.code in (0, 2), (hit, shown.err)
        try:
            found = {row["key"]: row for row in Store.open(store).table().to_pylist()}
        except InputError:
            found = {}
        assert {key: source.get(key) for key in found} == found, seed
        shutil.rmtree(store)
