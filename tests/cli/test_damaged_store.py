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

pa = pytest.importorskip("pyarrow", reason="needs crosstack[explore]")
pq = pytest.importorskip("pyarrow.parquet")

STUDY = """\
base: small.yaml
axes:
  memory: {path: system.memory.bandwidth, values: [10 GB/s, 20 GB/s]}
  use: {path: system.chip.utilization, values: [USES]}
objectives: {time: min, memory_used: min}
constraints: {memory_used: {max: 1 TB}}
"""
DEAD = "0123456789ab"


@pytest.fixture(scope="module")
def whole(tmp_path_factory, run, small_text):
    """Return a store of two parts with two rows each, and a journal with two that a kill left."""
    from crosstack.explore.store import Store
    from crosstack.explore.store_files import journal_line

    folder = tmp_path_factory.mktemp("whole")
    (folder / "small.yaml").write_text(small_text)
    study, store = folder / "study.yaml", folder / "a.store"
    for uses in ("0.5", "0.5, 0.7", "0.5, 0.7, 0.9"):
        study.write_text(STUDY.replace("USES", uses))
        assert run("sweep", study, "--jobs", 1, "--store", store, "--resume").code == 0
        os.utime(study)
    opened = Store.open(store)
    parts = opened.parts()
    assert [pq.read_metadata(part).num_rows for part in parts] == [2, 2, 2]
    last = next(p for p in parts if 0.9 in pq.read_table(p).column("use").to_pylist())
    rows = pq.read_table(last).to_pylist()
    last.unlink()
    journal = store / "journal" / f"{DEAD}-000000.jsonl"
    journal.write_text("".join(map(journal_line, rows)))
    (store / "claims" / DEAD).write_bytes(b"".join(bytes.fromhex(row["key"]) for row in rows))
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


def pieces(store: Path) -> list[Path]:
    return sorted(path for path in store.rglob("*") if path.is_file())


def part(store: Path) -> Path:
    return sorted((store / "parts").glob("*.parquet"))[0]


def keys_in(path: Path) -> set[str]:
    return set(pq.read_table(path).column("key").to_pylist())


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def garbage(path: Path) -> None:
    path.write_bytes(random.Random(1).randbytes(5000))


def other_columns(path: Path) -> None:
    pq.write_table(pa.table({"key": ["x"], "time": [1.0]}), path)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("damage", [cut, empty, garbage, other_columns, folder])
def test_a_damaged_part_is_named_and_all_other_rows_are_given(store, rows_of, damage):
    all_rows, _ = rows_of(store)
    hit = part(store)
    lost = keys_in(hit)
    damage(hit)
    rows, problems = rows_of(store)
    assert rows == {key: row for key, row in all_rows.items() if key not in lost}
    (line,) = problems
    assert f"parts/{hit.name}: " in line
    assert "left out" in line


def test_a_part_that_is_not_of_the_store_is_named_and_left_out(store, rows_of):
    all_rows, _ = rows_of(store)
    other_columns(store / "parts" / "mine.parquet")
    rows, (line,) = rows_of(store)
    assert rows == all_rows
    assert "parts/mine.parquet: is foreign" in line


def test_a_copy_of_a_part_doubles_no_row(store, run, rows_of):
    all_rows, _ = rows_of(store)
    shutil.copy(part(store), store / "parts" / "copy.parquet")
    assert rows_of(store) == (all_rows, [])
    assert "points 6: 6 optimal" in " ".join(run("study", "show", store).out.split())


@pytest.mark.parametrize("key", [None, "", "no key", "Z" * 32, "é" * 32])
def test_rows_with_a_garbage_key_are_named_and_left_out(store, rows_of, key):
    all_rows, _ = rows_of(store)
    hit = part(store)
    table = pq.read_table(hit)
    lost, kept = table.column("key").to_pylist()
    keys = pa.array([key, kept], pa.string())
    pq.write_table(table.set_column(0, table.schema.field(0), keys), hit)
    rows, (line,) = rows_of(store)
    assert rows == {k: row for k, row in all_rows.items() if k != lost}
    assert "1 damaged row (no key or no status)" in line


def test_a_sweep_sets_a_damaged_part_aside_and_answers_its_points_again(store, run, rows_of):
    all_rows, _ = rows_of(store)
    hit = part(store)
    garbage(hit)
    content = hit.read_bytes()
    found = run("sweep", store.parent / "study.yaml", "--jobs", 1, "--store", store, "--resume")
    assert found.code == 0
    assert f"it is set aside as aside/{hit.name}" in found.err
    assert (store / "aside" / hit.name).read_bytes() == content
    rows, problems = rows_of(store)
    assert rows.keys() == all_rows.keys()
    assert problems == []


def test_a_damaged_part_is_made_again_from_its_journal(store, rows_of):
    all_rows, _ = rows_of(store)  # which makes a part of the journal
    hit = store / "parts" / f"{DEAD}-000000.parquet"
    from crosstack.explore.store_files import journal_line

    rows = pq.read_table(hit).to_pylist()
    (store / "journal" / f"{DEAD}-000000.jsonl").write_text("".join(map(journal_line, rows)))
    garbage(hit)
    assert rows_of(store)[0] == all_rows


def test_a_damaged_line_of_a_journal_is_named_and_its_other_lines_are_given(store, rows_of):
    journal = store / "journal" / f"{DEAD}-000000.jsonl"
    first, second, _ = journal.read_text().split("\n")
    journal.write_text(f"{first.replace('optimal', 'optimum')}\n{second}\n")
    rows, (line,) = rows_of(store)
    assert json.loads(second.partition("\t")[0])["key"] in rows
    assert json.loads(first.partition("\t")[0])["key"] not in rows
    assert f"journal/{journal.name}: 1 damaged line; it is set aside" in line


@pytest.mark.parametrize("name", ["parts", "journal", "claims", "studies", "lock", "store.json"])
def test_a_missing_piece_hides_nothing_else(store, rows_of, run, name):
    all_rows, _ = rows_of(store)
    missing = store / name
    if missing.is_dir():
        shutil.rmtree(missing)
    else:
        missing.unlink()
    rows, _ = rows_of(store)
    assert rows == ({} if name == "parts" else all_rows)
    for command in (("study", "show", store), ("report", store, "-o", store.parent / "a.html")):
        assert run(*command).code == 0
    resumed = run("sweep", store.parent / "study.yaml", "--store", store, "--resume", "--jobs", 1)
    assert resumed.code == 0
    assert rows_of(store)[0].keys() == all_rows.keys()


@pytest.mark.parametrize("damage", [cut, empty, garbage])
def test_the_columns_of_a_damaged_store_file_are_those_of_its_parts(store, rows_of, run, damage):
    all_rows, _ = rows_of(store)
    damage(store / "store.json")
    rows, (line,) = rows_of(store)
    assert rows == all_rows
    assert "store.json: is damaged; the columns are those of the parts" in line
    study = store.parent / "study.yaml"
    assert run("sweep", study, "--store", store, "--resume", "--jobs", 1).code == 0
    assert rows_of(store) == (all_rows, [])


def test_of_damaged_studies_the_last_sound_one_says_what_was_asked(store, run):
    studies = sorted((store / "studies").iterdir(), key=lambda path: path.stat().st_mtime_ns)
    garbage(studies[-1])
    os.utime(studies[-1])
    found = run("study", "show", store)
    assert found.code == 0
    assert f"studies/{studies[-1].name}: is damaged" in found.err
    for path in studies:
        garbage(path)
    found = run("study", "show", store)
    assert found.code == 0
    assert "6 optimal" in found.out


@pytest.mark.parametrize("place", ["journal/notes.txt", "claims/notes.txt", "journal/x-1.jsonl"])
def test_a_foreign_file_is_named_and_left_alone(store, rows_of, place):
    all_rows, _ = rows_of(store)
    (store / place).write_text("mine\n")
    rows, (line,) = rows_of(store)
    assert rows == all_rows
    assert f"{place}: is foreign" in line
    assert (store / place).read_text() == "mine\n"


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
    "seeds", [range(8), pytest.param(range(8, 208), marks=pytest.mark.slow)], ids=len
)
def test_bytes_that_flip_are_never_a_bug_and_cost_no_other_row(whole, tmp_path, run, seeds):
    from crosstack.explore.store import Store

    sound = tmp_path / "sound"
    shutil.copytree(whole, sound)
    owned = {path.stem: keys_in(path) for path in (sound / "parts").iterdir()}
    source = {row["key"]: row for row in Store.open(sound).table().to_pylist()}
    owned[f"{DEAD}-000000"] = source.keys() - set().union(*owned.values())
    for seed in seeds:
        store = tmp_path / f"{seed}"
        shutil.copytree(whole, store)
        hit = damaged_at_random(store, random.Random(seed))
        shown = run("study", "show", store)
        assert shown.code == 0, (hit, shown.err)
        found = {row["key"]: row for row in Store.open(store).table().to_pylist()}
        kept = source.keys() - owned.get(hit.stem, set())
        assert {key: found.get(key) for key in kept} == {key: source[key] for key in kept}, hit
        # What is given of the piece itself is right, too.
        assert {key: source.get(key) for key in found} == found, hit
        shutil.rmtree(store)
