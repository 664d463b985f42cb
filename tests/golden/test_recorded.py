"""Recorded runs of DeepFlow and inputs of DFModel, computed again by our commands.

They are not part of the repository (../shared/data/deepflow, ../shared/data/dfmodel). That
they come out as recorded is tested where the steps, the products and the chips are; these rows hold
what was not recorded, too, and go by the command line.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
DATA, SETUPS = SHARED / "deepflow", SHARED / "dfmodel" / "setups"
FAMILY = "recorded"
WAFER = "configs/hardware-config/waferscale_20v100_80hbm.yaml"
# A search is held against its record in tests/explore/test_search.py.
SEARCH = "GD_search"


def recorded():
    path = DATA / "golden.jsonl"
    if not path.exists():
        reason = "recorded runs are not part of the repository (../shared/data/deepflow)"
        return [pytest.param(None, marks=pytest.mark.skip(reason=reason))]
    runs = [json.loads(line) for line in path.read_text().splitlines()]
    return [pytest.param(run, id=run["id"]) for run in runs if run["kind"] != SEARCH]


def release_of(run):
    """Return the year of a release."""
    return {"566c192": "2021", "e4e5d38": "2020"}.get(run["version"][:7], "2025")


def settings(changes):
    return [
        part for name, value in changes.items() for part in ("--set", f"{name}={json.dumps(value)}")
    ]


def hardware_of(run):
    """Return the hardware file of a run and what is changed in it."""
    file = run.get("config") or run.get("hardware_config") or WAFER
    return DATA / "configs" / release_of(run) / file, settings(run.get("hardware_overrides", {}))


def changed_model(run, tmp_path):
    """Return the model file of a run, written with what is changed in it."""
    source = run.get("model_config") or f"configs/model-config/{run['id'].rpartition('_')[2]}.yaml"
    model = yaml.safe_load((DATA / "configs" / "2025" / source).read_text())
    model["model_param"] |= run.get("model_overrides", {})
    path = tmp_path / Path(source).name
    path.write_text(yaml.safe_dump(model))
    return path


def step_of(run, tmp_path):
    """Return what is predicted, as options; None where a run only makes a chip."""
    kind, given = run["kind"], run.get("cli", {})
    if kind in ("AGE", "EDGE"):
        dataflow = run["id"].startswith("edge_dataflow")
        return ("--gemm", "4096,1024,2048") if dataflow else None
    if kind.startswith("GEMM"):
        if given:  # without a kernel split that release swaps K and N
            return "--gemm", f"{given['m']},{given['n']},{given['k']}"
        sides = run["model_overrides"]
        return "--gemm", f"{sides['M']},{sides['K']},{sides['N']}"
    if kind == "LSTM-author-recorded":
        second = "" if given["t"] == "CR" else f"-{given['kp2']}"
        strategy = f"{given['t']}-{given['kp1']}{second}-d{given['dp']}-p{given['lp']}"
        names = {"batch_size": "batch_size", "seq_len": "seq_len", "vocab_size": "vocab_size",
                 "num_layer": "num_layers", "hidden_dim": "layer_size"}  # fmt: skip
        changes = {f"model_param.{names[name]}": given[name] for name in names}
        return "--given", strategy, *settings(changes)
    if release_of(run) == "2021":
        return ()
    return "--model", changed_model(run, tmp_path)


def rules_of(run):
    graph = "-graph" if run["kind"].startswith("LLM-graph") else ""
    return f"deepflow-{release_of(run)}{graph}"


def refusal(said):
    return {"refused": "infeasible" if "infeasible" in said else "bad input"}


def chip_row(command, row, run, tmp_path):
    """Return what the generator makes of the hardware file."""
    file, changes = hardware_of(run)
    year = "2021" if release_of(run) == "2020" else release_of(run)
    out = tmp_path / "chip.json"
    rules = f"deepflow-{year}"
    said = command("chip", "generate", file, *changes, "--rules", rules, "--json", out,
                   refusals=(2, 3))  # fmt: skip
    if said:
        return row(name="chip", rules=rules, values=refusal(said))
    found = json.loads(out.read_text())
    chip = found["hierarchy"]
    values = {name: chip["compute"][name] for name in ("n_units", "frequency", "voltage")}
    values |= {name: chip[name] for name in ("peak_throughput", "throughput", "n_stacks")}
    values |= {name: found[name] for name in ("area", "power")}
    for level in chip["levels"]:
        for name in ("capacity", "bandwidth", "static_power"):
            values[f"{level['name']} {name}"] = level[name]
    for place in ("intra", "inter"):
        links = chip[place] or {}
        values |= {f"{place} {name}": links[name] for name in links}
    return row(name="chip", rules=rules, values=values)


def step_row(command, row, run, step, tmp_path):
    """Return what a step or a product takes."""
    file, changes = hardware_of(run)
    out, rules = tmp_path / "step.json", rules_of(run)
    said = command("predict", file, *changes, *step, "--rules", rules, "--json", out,
                   refusals=(2, 3))  # fmt: skip
    if said:
        return row(name="step", rules=rules, values=refusal(said))
    found = json.loads(out.read_text())
    values = {name: found[name] for name in ("time", "run_time", "n_chips")}
    values |= {f"part {name}": time for name, time in found["parts"].items()}
    for name, level in found.get("kernel", {}).get("levels", {}).items():
        values[f"{name} traffic"] = level["traffic"]
        values[f"{name} tile"] = " x ".join(f"{side:.0f}" for side in level["tile"])
    return row(name="step", rules=rules, values=values)


def placement_rows(command, row, run, tmp_path):
    """Return how every recorded order of a strategy shares links."""
    given, out = run["input"], tmp_path / "place.json"
    names = ("kp1", "kp2", "dp", "lp")
    strategy = "RC-{kp1}-{kp2}-d{dp}-p{lp}".format(**given)
    side = f"{given['wafer_dim']}x{given['wafer_dim']}"
    for placed in run["output"]:
        order = ",".join(name for name in placed["order"] if given[name] > 1)
        command("place", strategy, "--package", side, "--packages", f"{given['num_wafer']}x1",
                "--order", order, "--rules", "deepflow-2025", "--json", out)  # fmt: skip
        found = json.loads(out.read_text())
        values = dict(found["edges_on_busiest_link"])
        values["crosses"] = " ".join(name for name in names if name in found["crosses_packages"])
        yield row(name=order, rules="deepflow-2025", values=values)


@pytest.mark.slow
@pytest.mark.parametrize("recorded_run", recorded())
def test_recorded_runs_come_out_as_they_did(recorded_run, run, golden, row, tmp_path):
    if recorded_run["kind"] == "device-mapping":
        rows = list(placement_rows(run, row, recorded_run, tmp_path))
    else:
        rows = [chip_row(run, row, recorded_run, tmp_path)]
        step = step_of(recorded_run, tmp_path)
        if step is not None:
            rows.append(step_row(run, row, recorded_run, step, tmp_path))
    golden.check(FAMILY, recorded_run["id"], rows)


def setups():
    return sorted(SETUPS.glob("*.txt")) or [
        pytest.param(None, marks=pytest.mark.skip("inputs of DFModel are in ../shared/data"))
    ]


@pytest.mark.slow
@pytest.mark.parametrize("setup", setups(), ids=lambda path: path and path.stem)
def test_inputs_of_dfmodel_are_mapped_as_they_were(setup, run, golden, row, tmp_path):
    out, rows = tmp_path / "map.json", []
    for rules in ((), ("--rules", "crosstack")):
        said = run("map", setup, *rules, "--work-limit", "1e5", "--json", out, refusals=(3,))
        found = {} if said else json.loads(out.read_text())
        names = ("status", "time_s", "bound_s", "layer_time_s", "latency_s", "memory_used_b",
                 "system_price_usd", "system_power_w")  # fmt: skip
        values = {name: found[name] for name in names if found} or {"refused": said}
        name = "other rules" if rules else "its own rules"
        rows.append(row(name=name, rules=found.get("rules", "crosstack"), values=values))
    golden.check(FAMILY, f"dfmodel {setup.stem}", rows)


def test_every_run_of_the_file_is_computed(golden):
    runs = [param.values[0] for param in recorded()]
    if runs == [None] or not SETUPS.exists():
        pytest.skip("recorded runs are not part of the repository (../shared/data)")
    cases = [run["id"] for run in runs] + [f"dfmodel {path.stem}" for path in setups()]
    golden.check_cases(FAMILY, cases)
