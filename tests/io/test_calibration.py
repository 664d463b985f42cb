"""Claims about calibrating a machine on a table, and the file that comes of it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import pytest

import crosstack
from crosstack.errors import InputError
from crosstack.evaluate.scores import MeasuredProduct, products_said
from crosstack.io import library
from crosstack.io.calibration import machine_text, on_measured
from crosstack.io.measured_runs import read_runs
from crosstack.io.native import read_calibrated, read_system_alone
from crosstack.machine.calibration import AS_SAID, Calibration
from crosstack.workload.dtype import Dtype

B200 = library.chip("b200")
TRUTH = Calibration(products=0.8, memory=0.9)
SHAPES = [
    *((size, size, size) for size in (4096, 6144, 8192, 12288, 16384)),
    *((size, 16384, 1) for size in (16384, 32768, 65536, 131072)),
]


def product_rows(under=TRUTH, gpu="B200"):
    """Rows of products as they take on a chip with these factors."""
    sides = [dict(zip("mkn", shape, strict=True)) for shape in SHAPES]
    rows = [MeasuredProduct(**side, dtype=Dtype.BF16, time=1.0) for side in sides]
    times = products_said(rows, under.chip(B200)).tolist()
    return [
        side | {"gpu": gpu, "dtype": "bf16", "time_s": time}
        for side, time in zip(sides, times, strict=True)
    ]


@pytest.fixture
def saved(tmp_path):
    def save(rows, name="rows.jsonl"):
        path = tmp_path / name
        path.write_text("\n".join(map(json.dumps, rows)))
        return path

    return save


@pytest.fixture
def machine(saved, tmp_path):
    """Return a fit of a node to products of its chip, and its file."""
    found = crosstack.calibrate(saved(product_rows()), "b200-dgx")
    file = tmp_path / "mine.yaml"
    file.write_text(machine_text(found))
    return found, file


def test_a_node_is_calibrated_on_products_of_its_chip(machine, tmp_path):
    said = machine[0].calibration
    assert (said.products, said.memory) == pytest.approx((0.8, 0.9), rel=0.01)
    text = (tmp_path / "rows.jsonl").read_bytes()
    digest = hashlib.sha256(text).hexdigest()[:16]
    assert (said.table, said.rows, said.digest) == ("rows.jsonl", len(SHAPES), digest)


def test_a_saved_machine_is_read_as_it_was_found(machine):
    found, file = machine
    read = read_calibrated(file)
    assert read.on == "b200-dgx"
    for name, value in found.calibration.said.items():
        wanted = pytest.approx(value, rel=1e-5) if isinstance(value, float) else value
        assert getattr(read.calibration, name) == wanted
    alone = read_system_alone(file.read_text(), str(file))
    assert alone == read.calibration.applied(crosstack.system("b200-dgx"))
    assert alone.name == f"b200-dgx, calibrated on {len(SHAPES)} rows"


def test_a_saved_machine_says_what_it_was_found_on_and_how_far_off_it_is(machine):
    found, file = machine
    head = [line for line in file.read_text().splitlines() if line.startswith("#")]
    assert "calibrated" in file.read_text()
    assert f"{100 * found.fit.before.mean:.1f} % on average" in head[1]
    assert f"{100 * found.fit.held_out.mean:.1f} %" in head[1]
    assert any(line.startswith("# products: 0.80") for line in head)
    values = {one.name for one in found.fit.refused}
    assert {line.split()[1] for line in head if "is not told" in line} == values


def test_a_saved_machine_is_the_system_of_a_task(machine, tmp_path):
    task = tmp_path / "task.yaml"
    workload = "workload:\n  llm: {model: llama3-8b, batch: 8, sequence: 128}\n"
    task.write_text(machine[1].read_text() + "  n_chips: 16\n" + workload)
    found = crosstack.load(task).system
    assert found == read_calibrated(machine[1]).calibration.applied(
        crosstack.system("b200-dgx", chips=16)
    )
    crosstack.save(crosstack.load(task), tmp_path / "again.yaml")
    again = crosstack.load(tmp_path / "again.yaml").system  # spelled out, with its factors inside
    assert (again.chip, again.name) == (found.chip, found.name)


def test_rows_that_say_another_chip_are_left_out(saved):
    others = product_rows(Calibration(products=0.5), gpu="H100-SXM5-80GB")
    found = crosstack.calibrate(saved(product_rows() + others), "b200")
    assert found.calibration.products == pytest.approx(0.8, rel=0.01)
    assert found.left_out == {"H100-SXM5-80GB": len(SHAPES)}
    nameless = [{k: v for k, v in row.items() if k != "gpu"} for row in product_rows()]
    assert crosstack.calibrate(saved(nameless), "b200").calibration.rows == len(SHAPES)


def test_so_many_rows_are_taken(saved):
    assert crosstack.calibrate(saved(product_rows() * 2), "b200", most=9).calibration.rows == 9


RUN = {
    "id": "one", "source": "own", "hardware": "A100-SXM-80GB", "gpus": 8, "model": "gpt",
    "family": "gpt", "layers": 4, "hidden": 256, "heads": 4, "kv_heads": 4, "head_size": 64,
    "ffn": 1024, "gated": False, "seq": 512, "vocab": 1000, "tied": True, "precision": "fp16",
    "global_batch": 16, "micro_batch": 2, "tp": 1, "pp": 1, "dp": 8, "software": "Megatron-LM",
    "step_s": 0.1,
}  # fmt: skip


def test_runs_are_on_the_machine_as_it_was_measured(saved, machine):
    path = saved([RUN, RUN | {"hardware": "B200"}, RUN | {"hardware": "H100"}], "runs.jsonl")
    table, (_, file) = read_runs(path), machine
    found = on_measured(table, read_calibrated(file))
    (run,) = found.sets["own"]
    assert run == table.sets["own"][1].under(read_calibrated(file).calibration)
    assert run.system.name == f"b200-dgx, calibrated on {len(SHAPES)} rows"
    assert found.left_out == {"another machine than b200-dgx": 2}
    of_chip = replace(read_calibrated(file), on="b200", calibration=AS_SAID)
    assert on_measured(table, of_chip).sets["own"] == [table.sets["own"][1]]


@pytest.mark.parametrize(
    ("rows", "on", "said"),
    [
        (product_rows(), "b20", 'on: no node or chip is called "b20". Did you mean "b200"'),
        (product_rows(), "h100-sxm", "rows.jsonl: got kernels of B200; allowed: some of h100-sxm"),
        (product_rows()[:3], "b200", "rows.jsonl: rows: got 3; allowed: 8 or more"),
        ([{"m": 0, "dtype": "bf16"}], "b200", "rows.jsonl:1: m: got 0; allowed: 1, 2, 3"),
        ([{"ranks": 8}], "b200", "rows.jsonl: has rows of collectives; allowed: rows of kernels"),
        ([RUN], "b200", 'on: no node is called "b200". Did you mean "b200-dgx"'),
        ([RUN], "b200-dgx", "rows.jsonl: got runs on a100-dgx-80gb; allowed: some on b200-dgx"),
        (
            [RUN | {"tp": 3}] * 9 + [RUN | {"step_s": None, "oom": True}],
            "a100-dgx-80gb",
            "rows.jsonl: got 0 runs on a100-dgx-80gb that tell it (left out: out of memory, 1, "
            "cannot be spread so, 9); allowed: 8 or more.",
        ),
    ],
)
def test_a_table_that_tells_nothing_of_a_machine_is_refused(saved, rows, on, said):
    with pytest.raises(InputError) as caught:
        crosstack.calibrate(saved(rows), on)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: x", "mine.yaml: system: required, but missing: a machine"),
        ("system: [1]", "mine.yaml: system: required, but missing: a machine"),
        ("system: {on: b200}", "mine.yaml: system.calibrated: required, but missing"),
        ("system: {calibrated: {}}", "mine.yaml: system.on: required, but missing"),
        ("system: {on: b200, calibrated: {}}\nworkloads: 1", "mine.yaml: workloads: unknown field"),
        ("system: {on: b200, calibrated: {}}\nworkload: 1", "mine.yaml: workload: is said in the"),
        (
            "system: {on: b200, memory: {bandwidth: 9 TB/s}}",
            "system.memory: is said in the file of",
        ),
        ("system: {on: b200, calibrated: {}, chips: 1}", "mine.yaml: system.chips: unknown field"),
        (
            "system: {on: b200, calibrated: {product: 0.9}}",
            'mine.yaml: system.calibrated.product: unknown field. Did you mean "products"?',
        ),
        (
            "system: {on: b200, calibrated: {products: 2}}",
            "mine.yaml: system.calibrated.products: got 2.0; allowed: 0.4 to 1.3",
        ),
        ("system: {on: b20, calibrated: {}}", 'system.on: no node or chip is called "b20"'),
    ],
)
def test_a_file_that_is_no_calibrated_machine_is_refused(tmp_path, text, said):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_calibrated(path)
    assert said in str(caught.value)
