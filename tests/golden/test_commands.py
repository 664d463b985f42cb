"""What commands say by default, on the examples and on machines and models of today."""

from __future__ import annotations

import csv
import itertools
import json
from pathlib import Path

import pytest

FAMILY = "commands"
HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parents[1] / "examples"
N5 = EXAMPLES / "chips/n5_hbm3.yaml"

EASY = "dfmodel-e3b"
# Under the default rules and under a release's; what a limit on work ends is named with it.
MAPPED = [
    ("gpt3_1t_sn30", ()),
    ("gpt3_1t_sn30", ("--set", "system.topology.link=nvlink4_setup")),
    ("gpt3_1t_sn30", ("--set", "system.memory=hbm", "--rules", EASY)),
    ("gpt3_175b_sn10", ("--set", "constraints.max_partitions=4", "--work-limit", "1e5")),
    ("llama3_8b_sn40l", ()),
    ("llama3_8b_sn40l", ("--set", "workload.dfmodel.decode.context=32768")),
    ("my_graph", ("--work-limit", "1e5")),
    *(
        (path.stem, ("--work-limit", "3e4", *rules))
        for path in sorted((HERE / "tasks").glob("*.yaml"))
        for rules in ((), ("--rules", EASY))
    ),
    ("llama_70b_512_h100", ("--set", "constraints.kernel_by_kernel=true")),
    ("llama_70b_8x8x8_h100", ("--set", "constraints.kernel_by_kernel=true", "--work-limit", "1e5")),
]
MAPPED_TASKS = list(dict.fromkeys(name for name, _ in MAPPED))
LONG = {
    "gpt3_1t_sn30", "gpt_1t_wafer", "domain_and_second_memory", "llama3_8b_training",
    "llama_70b_8x8x8_h100", "llama_70b_512_h100",
}  # fmt: skip
MAP_NAMES = (
    "status", "time_s", "bound_s", "layer_time_s", "latency_s", "utilization", "memory_used_b",
    "system_price_usd", "system_power_w", "microbatch_size", "n_microbatches", "n_tiles",
    "workload_flop", "memory_intensity_flop_per_b", "network_intensity_flop_per_b",
)  # fmt: skip

DGX, CARD = ("--on", "a100-dgx-80gb"), ("--on", "a100-pcie-80gb")
GPT3 = ("--model", "gpt3-175b")
LSTM = ("--model", "lstm-lm-40k")
MEGATRON = ("--schedule", "1f1b", "--exchange", "paired", "--recompute", "full")
PREDICTED = [
    (N5, "--set", "packages=512", *GPT3, "--given", "RC-1-8-d8-p8", "--microbatches", 8),
    (N5, "--set", "packages=512", "--set", "node=N7", *GPT3, "--given", "RC-1-8-d8-p8"),
    (N5, *LSTM, "--given", "RC-1-1-d1-p4", "--rules", "deepflow-2021"),
    (N5, "--gemm", "4096,4096,4096"),
    (*DGX, *GPT3, "--given", "RC-1-8-d1-p8", "--microbatches", 64, "--interleave", 3,
     *MEGATRON),
    (*DGX, *GPT3, "--given", "RC-1-8-d1-p8", "--microbatches", 16, "--exchange",
     "sequence", "--recompute", "full"),
    (*DGX, "--model", "gpt-22b", "--given", "RC-1-8-d1-p1", "--recompute", "attention"),
    (*DGX, "--model", "gpt-22b", "--batch", 8, "--given", "RC-1-1-d8-p1"),  # too large
    (*DGX, "--model", "gpt-22b", "--given", "RC-4-2-d1-p4", "--recompute", "full",
     "--package", "2x4x4", "--torus"),
    (*DGX, "--model", "gpt-22b", "--batch", 32, "--given", "RC-1-8-d4-p1",
     "--recompute", "full", "--topology", "switch"),
    (*DGX, *LSTM, "--batch", 128, "--given", "RC-1-4-d4-p1", "--order", "kp2,dp",
     "--topology", "torus:4x2,switch", "--rules", "deepflow-2021"),
    (*DGX, *LSTM, "--given", "RC-4-2-d8-p1", "--package", "4x4", "--packages", "2x2",
     "--rules", "deepflow-2021"),
    (*DGX, "--gemm", "8192,8192,8192", "--given", "RC-1-8-d1-p1"),
    *(
        (*CARD, "--gemm", sides)
        for sides in (
            "16384,4096,12288", "8192,8192,8192", "4096,1,4096", "128,128,128", "1,16384,16384",
            "1000,3000,77", "65536,64,65536", "64,65536,64",
        )
    ),
    (*CARD, "--gemm", "16384,4096,12288", "--set", "frequency=1.05GHz"),
]  # fmt: skip

SERVED = ("serve-sweep", EXAMPLES / "llama3_8b_sn40l.yaml", "--model", "llama3-8b")
SPECULATED = [
    ("--target", "llama3-8b", "--window", 4, "--acceptance", 0.8),
    ("--target", "llama3-70b", "--window", 6, "--acceptance", 0.6, "--branches", 2),
]
PLACED = [
    ("RC-4-2-d8-p1", "--package", "4x4", "--packages", "2x2"),
    ("RC-4-2-d8-p1", "--package", "8x8", "--torus"),
    ("CR-8-d2-p4", "--package", "2x2x2", "--packages", "2x2x2"),
    ("RC-4-2-d8-p1", "--package", "4x4", "--packages", "4x1", "--rules", "deepflow-2025"),
]
GENERATED = [
    (N5,),
    (N5, "--set", "node=N3"),
    (N5, "--set", "memory=hbm2e", "--set", "power=300 W"),
    (EXAMPLES / "optimize/chip.yaml", "--set", "node=N7"),
    (EXAMPLES / "codesign/chip.yaml",),
    (N5, "--rules", "deepflow-paper"),
    (N5, "--rules", "deepflow-2025"),
    (N5, "--rules", "deepflow-2021"),
]
BEST = ["search.evaluations=10", "search.searches=2 search.evaluations=40 model=gpt-22b"]


def name_of(arguments):
    """Return arguments as they are typed; a file by its name alone."""
    return " ".join(arg.stem if isinstance(arg, Path) else str(arg) for arg in arguments)


def rules_in(arguments):
    given = dict(itertools.pairwise(arguments))
    return given.get("--rules", "crosstack")


def read(path):
    return json.loads(path.read_text())


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow if n in LONG else ()) for n in MAPPED_TASKS],
)
def test_maps(name, run, golden, row, tmp_path):
    rows, out = [], tmp_path / "map.json"
    own = HERE / "tasks" / f"{name}.yaml"
    file = own if own.exists() else EXAMPLES / f"{name}.yaml"
    for options in (options for what, options in MAPPED if what == name):
        run("map", file, *options, "--json", out)
        found = read(out)
        values = {value: found[value] for value in MAP_NAMES} | found["parallelism"]
        values["partitions"] = len(found["partitions"])
        rows.append(row(name=name_of((name, *options)), rules=rules_in(options), values=values))
    golden.check(FAMILY, f"map {name}", rows)


def prediction_values(found):
    """Return time, memory and what a single product takes."""
    values = {"time": found["time"], "run_time": found["run_time"], "chips": found["n_chips"]}
    memory = found["memory"]
    if memory is not None:
        values["memory total"] = memory["total"]
        values |= {f"memory {name}": max(sizes) for name, sizes in memory["rows"].items()}
    kernel = found.get("kernel") or {}
    for name in ("bound", "compute_time", "waiting_time", "reduction_time", "utilization"):
        if name in kernel:
            values[f"kernel {name}"] = kernel[name]
    for name, level in kernel.get("levels", {}).items():
        values |= {f"{name} {what}": level[what] for what in ("traffic", "passing", "time")}
    return values


RECURRENT = [(N5, *LSTM, "--given", "RC-1-4-d1-p1"), (N5, *LSTM, "--given", "CR-4-d2-p1")]


@pytest.mark.parametrize(
    ("options", "name"),
    [
        (PREDICTED, "predict"),
        pytest.param(RECURRENT, "predict a recurrence", marks=pytest.mark.slow),
    ],
    ids=["step", "recurrence"],
)
def test_predictions(options, name, run, golden, row, tmp_path):
    rows, out = [], tmp_path / "step.json"
    for arguments in options:
        said = run("predict", *arguments, "--json", out, refusals=(3,))
        values = {"refused": said} if said else prediction_values(read(out))
        rows.append(row(name=name_of(arguments), rules="crosstack", values=values))
    golden.check(FAMILY, name, rows)


def test_serving(run, golden, row, tmp_path):
    rows, out = [], tmp_path / "points.csv"
    for phase in ("decode", "prefill"):
        run(*SERVED, "--phase", phase, "--tp", "1,2,16", "--batch", "1,16", "--context",
            "1024,16384", "--csv", out)  # fmt: skip
        for point in csv.DictReader(out.open()):
            values = {
                name.partition(" [")[0]: point[name] if name == "bound_by" else float(point[name])
                for name in point
                if name.endswith("]") or name == "bound_by"
            }
            sizes = (f"{name} {point[name]}" for name in ("tensor", "batch", "context"))
            rows.append(row(name=f"{phase}, {', '.join(sizes)}", rules="crosstack", values=values))
    golden.check(FAMILY, "serve-sweep", rows)


@pytest.mark.slow
def test_speculation(run, golden, row, tmp_path):
    rows, out = [], tmp_path / "speculation.json"
    machine = EXAMPLES / "llama3_8b_sn40l.yaml"
    for options in SPECULATED:
        run("speculate", machine, "--draft", "llama-68m", "--context", 4096, *options,
            "--json", out)  # fmt: skip
        rows.append(row(name=name_of(options), rules="crosstack", values=read(out)))
    golden.check(FAMILY, "speculate", rows)


def test_placements(run, golden, row, tmp_path):
    rows, out = [], tmp_path / "place.json"
    for options in PLACED:
        run("place", *options, "--json", out)
        found = read(out)
        values = {"order": " ".join(found["order"]), "hops": found["hops"]}
        values |= found["edges_on_busiest_link"]
        rows.append(row(name=name_of(options), rules=rules_in(options), values=values))
    golden.check(FAMILY, "place", rows)


def chip_values(found):
    """Return what a generated chip can do."""
    chip = found["hierarchy"]
    values = {name: chip["compute"][name] for name in ("n_units", "frequency", "voltage", "power")}
    values |= {name: chip[name] for name in ("peak_throughput", "throughput", "n_stacks")}
    values |= {name: found[name] for name in ("area", "power", "unused_area", "unused_power")}
    for level in chip["levels"]:
        for name in ("capacity", "bandwidth", "energy_per_bit", "static_power"):
            values[f"{level['name']} {name}"] = level[name]
    for place in ("intra", "inter"):
        links = chip[place] or {}
        values |= {f"{place} {name}": links[name] for name in links}
    return values


def test_generated_chips(run, golden, row, tmp_path):
    rows, out = [], tmp_path / "chip.json"
    for options in GENERATED:
        run("chip", "generate", *options, "--json", out)
        rows.append(
            row(name=name_of(options), rules=rules_in(options), values=chip_values(read(out)))
        )
    golden.check(FAMILY, "chip generate", rows)


@pytest.mark.slow
@pytest.mark.parametrize("settings", BEST)
def test_best_chips(settings, run, golden, row, tmp_path):
    out = tmp_path / "best.json"
    given = [part for setting in settings.split() for part in ("--set", setting)]
    run("optimize", EXAMPLES / "optimize/lstm_64.yaml", *given, "--json", out)
    found = read(out)
    values = {"bound": found["bound"], **found["metrics"], **found["choice"]}
    golden.check(FAMILY, f"optimize {settings}", [row(name="best", rules="crosstack",
                                                      values=values)])  # fmt: skip


@pytest.mark.slow
def test_front_of_machines(run, golden, row, tmp_path):
    out = tmp_path / "front.json"
    run("codesign", EXAMPLES / "codesign/llama3_decode.yaml", "--set", "search.evaluations=12",
        "--json", out)  # fmt: skip
    found = read(out)
    rows = []
    for place in ("front", "dominated"):
        for number, point in enumerate(found[place]):
            names = ("throughput_per_s", "price_usd", "power_w", "time_s", "bound_s", "status",
                     "chip_area_m2", "die_price_usd", "die_yield")  # fmt: skip
            values = {name: point[name] for name in names} | point["choice"]
            rows.append(row(name=f"{place} {number}", rules="crosstack", values=values))
    golden.check(FAMILY, "codesign", rows)


def test_workloads(golden, row, task_named):
    rows = []
    names = {path.stem for folder in (HERE / "tasks", EXAMPLES) for path in folder.glob("*.yaml")}
    for name in sorted(names):
        workload = task_named(name).workload
        kernels = workload.graph.kernels
        rows.append(
            row(
                name=name,
                rules="",
                values={
                    "work": float(workload.work),
                    "kernels": len(kernels),
                    "tensors": len(workload.graph.tensors),
                    "weights": float(sum(kernel.weight_size for kernel in kernels)),
                    "outputs": float(sum(kernel.output_size for kernel in kernels)),
                },
            )
        )
    golden.check(FAMILY, "workloads", rows)


def test_every_case_of_the_file_is_computed(golden):
    maps = [f"map {name}" for name in MAPPED_TASKS]
    own = ("predict", "predict a recurrence", "serve-sweep", "speculate", "place",
           "chip generate", "codesign", "workloads")  # fmt: skip
    best = [f"optimize {settings}" for settings in BEST]
    golden.check_cases(FAMILY, [*maps, *own, *best])
