"""Whole steps of the public releases, from the configuration file to the recorded numbers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from builders.recorded import recorded_runs
from builders.steps import counted

from crosstack.errors import InputError
from crosstack.evaluate.predict import predict
from crosstack.evaluate.rules import crosstack
from crosstack.evaluate.step_settings import StepSettings
from crosstack.io.deepflow import read_hardware, read_model
from crosstack.io.deepflow.steps import strategy_of, system_of, workload_of
from crosstack.machine.generate.generated import generate
from crosstack.mapping.strategy import KernelSplit, Strategy
from crosstack.published.deepflow.chips import Chips, links_of
from crosstack.published.deepflow.edges import edges_of_file, stated_peers
from crosstack.published.deepflow.lstm import lstm_parts
from crosstack.published.deepflow.memory import lstm_account, lstm_parts_memory
from crosstack.published.deepflow.release import RELEASES
from crosstack.published.deepflow.steps import ReleaseSteps
from crosstack.published.deepflow.transformer import operations_of, products_time
from crosstack.workload.dtype import Dtype
from crosstack.workload.lstm import LstmModel
from crosstack.workload.product import Product

DATA = Path(__file__).resolve().parents[4] / "shared/data/deepflow"
MASTER = RELEASES["deepflow-2025"]
STEPS = {year: ReleaseSteps(release=release) for year, release in RELEASES.items()}
PARTS = {
    "Ef": "embedding_forward", "Cf": "cell_forward", "Sf": "softmax_forward",
    "Tf": "transfer_forward", "Eb": "embedding_backward", "Cb": "cell_backward",
    "Sb": "softmax_backward", "Tb": "transfer_backward", "Re": "reduce_embedding",
    "Rc": "reduce_cell", "Rs": "reduce_softmax",
}  # fmt: skip
OPERATIONS = (
    "embedding", "qkv_projection", "attention_score", "attention_scale_softmax",
    "attention_output", "out_proj", "residual1", "layer_norm1", "ffn1", "ffn2", "residual2",
    "layer_norm2",
)  # fmt: skip


def recorded(*kinds, version):
    return recorded_runs(
        DATA / "golden.jsonl",
        lambda run: run["kind"].startswith(kinds) and version in run["version"],
    )


def close(value):
    return pytest.approx(value, rel=1e-9)


def overrides(given):
    return [f"{path}={json.dumps(value)}" for path, value in (given or {}).items()]


@pytest.fixture
def master(release):
    """Return workload, strategy, machine and kernel times of a recorded run of 2025."""

    def make(row):
        changes = overrides(row["hardware_overrides"])
        hardware, chip, times = release("2025", f"2025/{row['hardware_config']}", changes)
        text = (DATA / "configs/2025" / row["model_config"]).read_text()
        model = {f"model_param.{k}": v for k, v in row["model_overrides"].items()}
        workload = workload_of(read_model(text, "model", overrides(model)))
        machine = hardware, system_of(hardware, chip)
        return workload, strategy_of(hardware), machine, times

    return make


def run(version, workload, strategy, machine, times):
    """Predict a step over the links that the file of a machine states."""
    hardware, system = machine
    return STEPS[version].on(hardware)(workload, strategy, system, Dtype.BF16, rules=counted(times))


def links_on(strategy, machine):
    hardware, system = machine
    return links_of(strategy, stated_peers(strategy, system, edges_of_file(hardware)), MASTER)


def chips_of(strategy, machine, times):
    return Chips(strategy=strategy, times=times, links=links_on(strategy, machine))


@pytest.mark.parametrize("row", recorded("GEMM-dist", version="master"))
def test_distributed_products_of_2025(row, master):
    workload, strategy, machine, times = master(row)
    found = run("deepflow-2025", workload, strategy, machine, times)
    links = links_on(strategy, machine)
    names = ("IBK1", "IBK2", "IBD", "IBL")
    for name, link in zip(names, links.values(), strict=True):
        assert link.bandwidth == close(row["output"]["links"][name])
    assert found.time == close(row["output"]["time_s"])


@pytest.mark.parametrize("row", recorded("LSTM", version="master"))
def test_language_model_steps_of_2025(row, master):
    workload, strategy, machine, times = master(row)
    if "error" in row["output"]:
        with pytest.raises(InputError):
            run("deepflow-2025", workload, strategy, machine, times)
        return
    parts = lstm_parts(workload, chips_of(strategy, machine, times))
    for short, name in PARTS.items():
        assert getattr(parts, name) == close(row["output"]["components"][short]), name
    found = run("deepflow-2025", workload, strategy, machine, times)
    forward, backward = found.timelines()
    assert forward.makespan == close(row["output"]["fwd_s"])
    assert backward.makespan == close(row["output"]["bwd_s"])
    assert found.time == close(row["output"]["time_s"])
    assert workload.parameters == row["output"]["params"]


@pytest.mark.parametrize("row", recorded("LLM(", version="master"))
def test_products_of_transformers_of_2025(row, master):
    workload, strategy, machine, times = master(row)
    found = dict(products_time(workload, chips_of(strategy, machine, times)))
    # The recorded files are named after the layer, by number.
    by_layer = {
        name.rsplit("layer", 1)[1].removesuffix(".txt"): time
        for name, time in row["output"]["per_gemm_s"].items()
    }
    for i, time in enumerate(found.values(), start=1):
        assert time == close(by_layer[str(i)])
    layer = 3 * sum(found.values())
    assert layer == close(row["output"]["layer_fw_bw_s"])
    whole = run("deepflow-2025", workload, strategy, machine, times)
    assert whole.run_time == close(row["output"]["total_s"])


@pytest.mark.parametrize("row", recorded("LLM-graph", version="master"))
def test_transformer_steps_of_2025(row, master):
    workload, strategy, machine, times = master(row)
    version = "deepflow-2025-graph"
    if "error" in row["output"]:
        with pytest.raises(InputError, match="no pipeline"):
            run(version, workload, strategy, machine, times)
        return
    operations = operations_of(workload, chips_of(strategy, machine, times))
    parts = row["output"]["components"]
    for operation, name in zip(operations, OPERATIONS, strict=False):
        assert operation.forward == close(parts[f"T_{name}_f"]), name
        assert operation.backward == close(parts[f"T_{name}_b"]), name
    assert operations[-1].forward == close(parts["T_linear_softmax_f"])
    assert operations[-1].backward == close(parts["T_linear_softmax_b"])
    assert operations[1].reduce == close(parts["T_reduction_transformer"])
    layers = [1, *[workload.model.layers] * (len(operations) - 2), 1]
    forward = sum(n * o.forward for n, o in zip(layers, operations, strict=True))
    assert forward == close(row["output"]["fwd_s"])
    assert run(version, workload, strategy, machine, times).time == close(row["output"]["total_s"])


@pytest.mark.parametrize(
    "row",
    [
        row
        for row in recorded("AGE", "EDGE", "GEMM-dist", "LSTM", "LLM-graph", version="master")
        if row.values[0] is None or "links" in row.values[0]["output"]
    ],
)
def test_links_of_every_dimension_are_as_recorded_in_2025(row, release):
    changes = overrides(row["hardware_overrides"])
    hardware, chip, _ = release("2025", f"2025/{row['hardware_config']}", changes)
    links = links_on(strategy_of(hardware), (hardware, system_of(hardware, chip)))
    for i, link in enumerate(links.values()):
        name = ("K1", "K2", "D", "L")[i]
        assert link.bandwidth == close(row["output"]["links"][f"IB{name}"])
        assert link.latency == row["output"]["links"][f"LL{name}"]


@pytest.mark.parametrize("row", recorded("LSTM", version="566c192"))
def test_language_model_steps_of_2021(row, release):
    hardware, chip, times = release("2021", f"2021/{row['config']}")
    workload, strategy = workload_of(hardware.model), strategy_of(hardware)
    found = run("deepflow-2021", workload, strategy, (hardware, system_of(hardware, chip)), times)
    assert found.time == close(row["output"]["time_s"])
    assert workload.parameters == row["output"]["params"]


@pytest.mark.parametrize("row", recorded("LSTM", version="e4e5d38"))
def test_language_model_steps_of_2020(row, release):
    # Recorded by the authors, to eight decimals of a second.
    hardware, chip, times = release("2020", f"2020/{row['config']}")
    cli = row["cli"]
    strategy = Strategy(
        split=KernelSplit(cli["t"]), kp1=cli["kp1"], kp2=cli["kp2"], dp=cli["dp"], lp=cli["lp"]
    )
    model = LstmModel(
        batch=cli["batch_size"], sequence=cli["seq_len"], vocabulary=cli["vocab_size"],
        layers=cli["num_layer"], width=cli["hidden_dim"],
    )  # fmt: skip
    found = run("deepflow-2020", model, strategy, (hardware, system_of(hardware, chip)), times)
    assert round(found.time, 8) == row["output"]["time_s"]


@pytest.mark.parametrize("row", recorded("CLI", version="master"))
def test_the_example_of_the_readme_is_refused_by_default(row, release):
    # Its kp1 of 20 goes over a network that got no power: 9.6e15 s in the release.
    hardware, chip, times = release(
        "2025", "2025/configs/hardware-config/waferscale_20v100_80hbm.yaml"
    )
    mode = row["id"].removeprefix("readme_")
    text = (DATA / f"configs/2025/configs/model-config/{mode}.yaml").read_text()
    workload, strategy = workload_of(read_model(text, mode)), strategy_of(hardware)
    system = system_of(hardware, chip)
    machine = hardware, system
    right = StepSettings(enforces_capacity=False)
    if mode == "LSTM":
        found = run("deepflow-2025", workload, strategy, machine, times)
        assert found.time == close(row["output"]["time_s"])
        with pytest.raises(InputError, match=r"no bandwidth|remainder"):
            predict(workload, strategy, system, Dtype.BF16, right, rules=crosstack())
    else:
        found = run("deepflow-2025", workload, strategy, machine, times)
        assert found.time == close(row["output"]["layer_fw_bw_s"] * workload.model.layers)
        assert found.run_time == close(row["output"]["total_s"])


def edge(name):
    return [p for p in recorded("EDGE", version="master") if p.values[0] is None or p.id == name]


@pytest.mark.parametrize("row", edge("edge_auto_greedy"))
def test_a_file_that_lets_the_release_choose_is_refused_there_and_here(row, release):
    with pytest.raises(InputError, match="auto"):
        release("2025", f"2025/{row['hardware_config']}", overrides(row["hardware_overrides"]))


@pytest.mark.parametrize("row", edge("edge_dp_not_inter"))
def test_replicas_inside_a_node_without_links_are_refused_there_and_here(row, release):
    changes = overrides(row["hardware_overrides"])
    hardware, chip, times = release("2025", f"2025/{row['hardware_config']}", changes)
    model = LstmModel(batch=64, sequence=2, vocabulary=64, layers=1, width=64)
    with pytest.raises(InputError, match="inside a package: .* no bandwidth"):
        STEPS["deepflow-2025"].on(hardware)(
            model, strategy_of(hardware), system_of(hardware, chip), Dtype.BF16,
            rules=counted(times),
        )  # fmt: skip


@pytest.mark.parametrize("row", edge("edge_three_levels"))
def test_three_levels_of_memory_fail_in_the_release_alone(row):
    changes = overrides(row["hardware_overrides"])
    text = (DATA / f"configs/2025/{row['hardware_config']}").read_text()
    hardware = read_hardware(text, "three.yaml", changes)
    chip = generate(hardware.template, hardware.budget).chip
    assert [level.name for level in chip.storage] == ["registers", "L1", "DRAM"]
    product = Product(m=512, k=512, n=512)
    system = system_of(hardware, chip)
    found = predict(product, strategy_of(hardware), system, Dtype.BF16, rules=crosstack())
    assert found.time > 2 * 512**3 / chip.compute.throughput


# The model of the configuration file that the recorded runs change.
SHAPE = {"batch_size": 2000, "vocab_size": 800_000, "num_layers": 2, "layer_size": 19968,
         "seq_len": 20}  # fmt: skip


@pytest.mark.parametrize(
    "row",
    [
        row
        for row in recorded("LSTM", version="")
        if row.values[0] is None or "mem_per_core_bytes" in row.values[0]["output"]
    ],
)
def test_recorded_memory_is_reproduced(row):
    shape = SHAPE | row["model_overrides"]
    degrees = {d: row["hardware_overrides"].get(f"scheduling_param.{d}", 1)
               for d in ("kp1", "kp2", "dp", "lp")}  # fmt: skip
    split = row["hardware_overrides"].get("scheduling_param.t", "RC")
    model = LstmModel(
        batch=shape["batch_size"],
        sequence=shape["seq_len"],
        vocabulary=shape["vocab_size"],
        layers=shape["num_layers"],
        width=shape["layer_size"],
    )
    strategy = Strategy(split=KernelSplit(split), **degrees)
    parts = lstm_parts_memory(model, strategy, 2)
    sizes = [parts[name].total for name in ("embedding", "cells", "softmax")]
    kinds = [
        sum(getattr(part, kind) for part in parts.values())
        for kind in ("weights", "activations", "buffers")
    ]
    peak = lstm_account(model, strategy, 2).peak
    assert [peak, *sizes, 0.0, *kinds] == row["output"]["mem_per_core_bytes"]
