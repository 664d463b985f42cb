"""Parameters and work of models as their publishers print them, beside what our graphs count."""

from __future__ import annotations

from dataclasses import replace
from importlib.resources import files
from typing import Any

from crosstack.io import library
from crosstack.io.library.entries import Origin, entry
from crosstack.io.library.models import PublishedParameters, published_parameters
from crosstack.io.yaml_tree import parse_yaml
from crosstack.published.case import Progress, Row, held_row, silent
from crosstack.workload.architectures import Transformer
from crosstack.workload.job import Job
from crosstack.workload.workload import Workload

# What work of an image is, where multiplications are printed, and where sizes alone are.
_WORK_OF = {
    Origin.DATASHEET: "of an image forward, two FLOP for a multiplication as printed",
    Origin.PAPER: "of an image forward, two FLOP for a multiplication of the sizes printed",
}
_WORK: Any = parse_yaml(files(__package__).joinpath("models.yaml").read_text(encoding="utf-8"))


def model_rows(progress: Progress = silent) -> list[Row]:
    """Count the parameters of every model of the library, and the work of what `_WORK` lists."""
    rows: list[Row] = []
    for name in library.names("models"):
        progress(name)
        (figure,) = (f for f in entry("models", name).figures if f.field == "parameters.total")
        source = f"{figure.source}: {figure.where}"
        rows += parameter_rows(library.model(name), published_parameters(name), source)
    for name in library.names("images"):
        rows += image_rows(name)
    return rows + [_work(name, told) for name, told in _WORK.items()]


def parameter_rows(model: Transformer, said: PublishedParameters, source: str) -> list[Row]:
    """Return a row of all parameters, and of those that a token passes where that is published.

    Publishers differ in whether they count the table of tokens among the latter: the nearer of both
    counts is taken.
    """
    told: dict[str, Any] = {
        "suite": "models", "case": model.name, "rules": "-", "unit": "1", "status": "counted",
        "source": source,
    }  # fmt: skip
    whole = held_row(
        **told,
        quantity="parameters",
        published=said.total - said.beside,
        ours=model.parameters.total,
        tolerance=said.rounding / said.total,
        note=f"of {said.total:,} published, {said.beside:,} are no language model's"
        if said.beside
        else "",
    )
    if not said.active:
        return [whole]
    most = model.active_parameters
    counts = most, most - model.parameters.embedding
    ours = min(counts, key=lambda count: abs(count - said.active))
    note = "without the table of tokens" if ours == counts[1] < most else ""
    active = held_row(
        **told,
        quantity="active parameters",
        published=said.active,
        ours=ours,
        tolerance=2 * said.active_rounding / said.active,  # a unit: some round, some cut
        note=note,
    )
    return [whole, active]


def image_rows(name: str) -> list[Row]:
    """Return rows of the parameters of a model of images, and of the work of an image."""
    model, said = library.image_model(name), published_parameters(name, "images")
    figures = {figure.field: figure for figure in entry("images", name).figures}
    total, work = figures["parameters.total"], figures["work.forward"]
    told: dict[str, Any] = {
        "suite": "models", "case": model.name, "rules": "-", "status": "counted",
    }  # fmt: skip
    whole = held_row(
        **told,
        unit="1",
        source=f"{total.source}: {total.where}",
        quantity="parameters",
        published=said.total,
        ours=model.n_parameters,
        tolerance=said.rounding / said.total,
    )
    done = held_row(
        **told,
        unit="FLOP",
        source=f"{work.source}: {work.where}",
        quantity="work",
        published=work.value,
        ours=model.forward_flop,
        tolerance=figures["work.rounding"].value / work.value,
        note=_WORK_OF[work.kind],
    )
    return [whole, done]


def _work(name: str, told: Any) -> Row:
    """Return a row of the work of an iteration, or of a training of so many tokens. [FLOP]"""
    model = replace(library.model(told["model"]), **told.get("shape", {}))
    tokens = told["batch"] * told["sequence"]  # of an iteration
    times = told.get("tokens", tokens) / tokens
    return held_row(
        suite="models",
        case=name,
        rules="-",
        source=told["source"],
        quantity="work",
        unit="FLOP",
        published=told["work"],
        ours=_counted(model, told) * times,
        tolerance=told["tolerance"],
        status="counted",
        note=told["note"],
    )


def _counted(model: Transformer, told: Any) -> float:
    """Work of an iteration, as what is published counts it. [FLOP]"""
    batch, sequence = int(told["batch"]), int(told["sequence"])
    if (counted := told.get("counted")) is not None:
        forward = model.forward_flop(sequence, causal=False)
        each = {
            "weights": 3 * (forward.total - forward.attention),
            "again": 4 * forward.total - forward.head,
        }
        return batch * sequence * each[counted]
    workload = Job(model=model, batch=batch, sequence=sequence).workload
    return unmasked_work(workload) if told.get("masked") else workload.work


def unmasked_work(workload: Workload) -> float:
    """Work of an iteration without what masks of attention leave out. [FLOP]"""
    runs = [(workload.graph_repetitions, workload.graph)]
    runs += [(end.count, end.graph) for end in workload.ends]
    done = (count * float(graph.work @ graph.density.min(axis=1)) for count, graph in runs)
    return workload.global_batch_size * sum(done)
