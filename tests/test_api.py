"""The public functions and records refuse what they cannot take with an error of their own."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

import crosstack
from crosstack import Constraints, Dimension, Job, Mapping, System, Task, Workload
from crosstack.cli.main import main
from crosstack.workload.kernel_graph import kernel_graph

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
TASK = crosstack.load(EXAMPLES / "my_graph.yaml")
WORKLOAD, SYSTEM, GRAPH = TASK.workload, TASK.system, TASK.workload.graph
MAPPING = Mapping(
    sizes=(4, 2),
    parallelism=(crosstack.Parallelism.TENSOR, crosstack.Parallelism.DATA),
    microbatch_size=1,
    n_tiles=1,
    sharding=(crosstack.Axis.NONE,) * len(GRAPH),
    partitions=(0,) * len(GRAPH),
)
LLAMA = crosstack.model("llama3-8b")
SYSTEM_FIELDS = {name: getattr(SYSTEM, name) for name in ("chip", "network", "n_chips")}
MAPPING_FIELDS = {
    name: getattr(MAPPING, name)
    for name in ("sizes", "parallelism", "microbatch_size", "n_tiles", "sharding", "partitions")
}
TRAIN = Job(model=LLAMA, batch=8, sequence=2048)
JOB = Job(model=LLAMA, kind="decode", batch=8, context=4096)
SPEED = {"context": 16, "window": 2, "acceptance": 0.5}

NODE = crosstack.system("h100-dgx")
CALLS = {
    "predict, job": lambda bad: crosstack.predict(bad, NODE),
    "predict, system": lambda bad: crosstack.predict(TRAIN, bad),
    "predict, parallel": lambda bad: crosstack.predict(TRAIN, NODE, bad),
    "predict, dtype": lambda bad: crosstack.predict(TRAIN, NODE, dtype=bad),
    "predict, microbatches": lambda bad: crosstack.predict(TRAIN, NODE, microbatches=bad),
    "predict, order": lambda bad: crosstack.predict(TRAIN, NODE, order=bad),
    "explain, task": crosstack.explain,
    "explain, step": lambda bad: crosstack.explain(TASK, step=bad),
    "codesign": crosstack.codesign,
    "serve, model": lambda bad: crosstack.serve(bad, NODE, context=8),
    "serve, system": lambda bad: crosstack.serve(LLAMA, bad, context=8),
    "serve, context": lambda bad: crosstack.serve(LLAMA, NODE, context=bad),
    "serve, phase": lambda bad: crosstack.serve(LLAMA, NODE, context=8, phase=bad),
    "model": crosstack.model,
    "system": crosstack.system,
    "system, chips": lambda bad: crosstack.system("h100-dgx", chips=bad),
    "load": crosstack.load,
    "load, overrides": lambda bad: crosstack.load(EXAMPLES / "my_graph.yaml", bad),
    "save, task": lambda bad: crosstack.save(bad, "never.yaml"),
    "save, path": lambda bad: crosstack.save(TASK, bad),
    "optimise, task": crosstack.optimise,
    "Job, model": lambda bad: Job(model=bad, sequence=8),
    "Job, kind": lambda bad: Job(model=LLAMA, kind=bad, sequence=8),
    "Job, batch": lambda bad: Job(model=LLAMA, batch=bad, sequence=8),
    "Degrees": lambda bad: crosstack.Degrees(tensor=bad),
    "optimise, system": lambda bad: crosstack.optimise(WORKLOAD, bad),
    "evaluate, task": lambda bad: crosstack.evaluate(bad, MAPPING),
    "evaluate, mapping": lambda bad: crosstack.evaluate(WORKLOAD, SYSTEM, bad),
    "sweep": crosstack.sweep,
    "speculate, draft": lambda bad: crosstack.speculate(bad, LLAMA, SYSTEM, **SPEED),
    "speculate, system": lambda bad: crosstack.speculate(LLAMA, LLAMA, bad, **SPEED),
    "Task, workload": lambda bad: Task(workload=bad, system=SYSTEM),
    "Task, system": lambda bad: Task(workload=WORKLOAD, system=bad),
    "Workload, graph": lambda bad: Workload(graph=bad),
    "Dimension, kind": lambda bad: Dimension(kind=bad, bandwidth=1.0),
    **{
        f"System, {name}": lambda bad, name=name: System(**{**SYSTEM_FIELDS, name: bad})
        for name in SYSTEM_FIELDS
    },
    **{
        f"Mapping, {name}": lambda bad, name=name: Mapping(**{**MAPPING_FIELDS, name: bad})
        for name in MAPPING_FIELDS
    },
    **{
        f"KernelGraph, {name}": lambda bad, name=name: kernel_graph(
            **{"kernels": GRAPH.kernels, "tensors": GRAPH.tensors, "word": 2, name: bad}
        )
        for name in ("kernels", "tensors", "word")
    },
    **{
        f"Constraints, {name}": lambda bad, name=name: Constraints(**{name: bad})
        for name in ("degrees", "n_tiles", "partitions", "sharding", "kernel_by_kernel")
    },
    **{
        f"optimise, {name}": lambda bad, name=name: crosstack.optimise(TASK, **{name: bad})
        for name in (
            "constraints",
            "rules",
            "work_limit",
            "time_limit",
            "gap",
            "jobs",
            "start",
            "progress",
        )
    },
}
MAY_BE_NONE = {
    "optimise, constraints", "optimise, rules", "optimise, progress", "optimise, work_limit",
    "optimise, start", "Constraints, n_tiles", "Degrees", "system, chips",
    "predict, dtype", "predict, microbatches", "predict, order",
}  # fmt: skip


@pytest.mark.parametrize(
    "bad", [None, 3.5, math.nan, {}, [3], "x", b"x", object()], ids=lambda b: type(b).__name__
)
@pytest.mark.parametrize("call", CALLS)
def test_a_wrong_type_is_an_error_of_ours(call, bad):
    if bad is None and call in MAY_BE_NONE:
        return
    if bad == [3] and call == "serve, context":
        return
    if bad == 3.5 and call in ("optimise, time_limit", "optimise, work_limit"):
        return
    with pytest.raises(crosstack.CrosstackError):
        CALLS[call](bad)


def test_everything_public_is_there_and_named_once():
    assert len(set(crosstack.__all__)) == len(crosstack.__all__)
    for name in crosstack.__all__:
        assert getattr(crosstack, name) is not None
    american = "optimize"
    with pytest.raises(AttributeError, match=american):
        getattr(crosstack, american)


def test_importing_the_package_imports_no_arrays():
    """Numbers come with the first question: a program that asks none does not wait."""
    script = "import crosstack, sys; sys.exit('numpy' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize(("call", "near"), [("model", "llama3-8b"), ("system", "h100-dgx")])
def test_a_misspelt_name_is_told_the_nearest(call, near):
    with pytest.raises(crosstack.InputError, match=f'Did you mean "{near}"'):
        getattr(crosstack, call)(near + "x")


def test_a_job_is_predicted_as_the_command_does(tmp_path):
    how = {"schedule": "1f1b", "recompute": "full", "exchange": "paired"}
    found = crosstack.predict(TRAIN, NODE, "tp=4,pp=2", microbatches=8, **how)
    options = [word for name, value in how.items() for word in (f"--{name}", value)]
    saved = tmp_path / "step.json"
    arguments = ["llama3-8b", "--on", "h100-dgx", "--chips", "8", "--batch", "8", "--sequence",
                 "2048", "--given", "tp=4,pp=2", "--microbatches", "8", *options]  # fmt: skip
    with pytest.raises(SystemExit):
        main(["predict", *arguments, "--json", str(saved)])
    assert json.loads(saved.read_text())["time"] == found.time


def test_releases_predict_training_alone():
    with pytest.raises(crosstack.InputError, match="a release knows steps of training alone"):
        crosstack.predict(JOB, NODE, rules="deepflow-2025")


def test_a_word_that_is_no_change_of_a_step_is_refused():
    with pytest.raises(crosstack.InputError, match='Did you mean "microbatches"'):
        crosstack.predict(TRAIN, NODE, microbatch=2)


def test_what_comes_back_prints_in_ten_lines():
    served = crosstack.serve(LLAMA, NODE, context=(128, 4096), tensor=(1, 8), batch=[1, 64])
    predicted = crosstack.predict(TRAIN, NODE, "tp=8", microbatches=8, recompute="full")
    given = Constraints(degrees=crosstack.Degrees(tensor=8), microbatch_size=1)
    explained = crosstack.explain(JOB, NODE, constraints=given)
    for found in (served, predicted, explained):
        assert 1 < len(str(found).splitlines()) <= 10
        assert len(repr(found)) <= 800


def test_the_error_says_what_is_allowed():
    with pytest.raises(crosstack.InputError, match=r"path: got \{\}; allowed: str or Path\."):
        crosstack.load({})


@pytest.mark.parametrize(
    "record", [TASK, WORKLOAD, SYSTEM, GRAPH, MAPPING, LLAMA, JOB], ids=lambda r: type(r).__name__
)
def test_a_record_prints_in_ten_lines(record):
    assert len(repr(record)) <= 800


def test_an_answer_prints_what_it_found_in_ten_lines():
    answer = crosstack.optimise(TASK, gap=0.5)
    assert len(str(answer).splitlines()) <= 10
    assert "iteration time" in str(answer)
    assert len(repr(answer)) <= 800
    assert len(repr(answer.evaluation)) <= 800
