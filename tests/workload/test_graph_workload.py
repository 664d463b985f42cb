"""A block of a graph over named axes as a workload: how often it runs, on what, and its answers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from builders.losses import with_loss
from builders.named_models import gpt_layer, llama, mixture
from builders.random_graphs import random_graph

import crosstack
from crosstack.errors import InputError
from crosstack.io.native import read_graph, read_task, write_task
from crosstack.io.transformers import transformer
from crosstack.mapping.mapping import Task
from crosstack.workload.architectures import graphs
from crosstack.workload.dataflow import Graph
from crosstack.workload.dlrm_graph import recommendation_graph
from crosstack.workload.dtype import Dtype
from crosstack.workload.fft_graph import fourier_graph
from crosstack.workload.graph_workload import workload_of
from crosstack.workload.hpl_graph import factorisation_graph
from crosstack.workload.lowering import lowered
from crosstack.workload.lstm import LstmModel, language_model_graph
from crosstack.workload.operations import Role
from crosstack.workload.passes.backward import training
from crosstack.workload.ssm_graph import hyena_graph, mamba_graph

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "graphs" / "my_transformer.yaml"
SMALL = [
    "axes.batch.size=3", "axes.sequence.size=64", "axes.key_sequence=64", "training=false",
]  # fmt: skip
TABLES = {
    "width": 8, "n_bottom": 1, "n_top": 1, "n_tables": 3, "rows": 50, "embedding_size": 4,
    "samples": 16,
}  # fmt: skip


class TestWorkload:
    def test_a_block_that_repeats_is_as_many_layers(self):
        graph = training(llama(layers=5), "loss")
        workload = workload_of(graph, block="layers")
        assert (workload.n_layers, workload.training) == (5, True)
        assert workload.graph == lowered(graph, "layers")
        assert workload.boundary_size == graph.size("x")

    def test_items_are_the_global_batch(self):
        graph = training(gpt_layer(batch=6), "loss")
        workload = workload_of(graph, items="batch")
        assert workload.global_batch_size == 6
        assert workload.graph == lowered(training(gpt_layer(batch=1), "loss"), "part_1")
        assert workload.work == pytest.approx(workload_of(graph).work)

    def test_work_of_layers_is_that_of_the_graph(self):
        graph = training(llama(), "loss")
        workload = workload_of(graph, block="layers", items="batch")
        found = sum(
            graph.work(nest) * graph.repeats(block)
            for block, nest in graph.nests()
            if "layers" in (block.name, block.twin)
        )
        assert workload.work == found

    def test_tables_are_data_and_no_weights(self):
        graph = recommendation_graph(**TABLES)
        workload = workload_of(graph, items="sample")
        assert workload.data_size == graph.size("tables") == 3 * 50 * 4 * 2
        perceptrons = 2 * 8 * 8 + 3 * 3 * 8
        assert workload.graph.total_weight_size == 2 * perceptrons
        assert graph.n_parameters == perceptrons + 3 * 50 * 4 + 8  # and those of the click
        assert workload.global_batch_size == 16

    def test_what_stands_before_and_behind_the_layers_are_ends(self):
        graph = read_graph(EXAMPLE)
        workload = workload_of(graph)
        assert [end.name for end in workload.before] == ["start"]
        assert [end.name for end in workload.after] == ["end"]
        assert workload.n_layers == 6
        assert workload.before[0].table_size == graph.size("embedding")
        assert workload.work > workload.without_ends().work
        assert workload.without_ends() == workload_of(graph, block="layers")

    def test_a_table_that_two_ends_read_is_shared(self):
        graph = graphs.training(transformer("gemma-2b"), sequence=64)
        workload = workload_of(graph)
        size = graph.size("embedding")
        assert [end.shared_size for end in workload.ends] == [size, size]

    def test_a_graph_of_several_blocks_none_of_which_repeats_says_which(self):
        graph = read_graph(EXAMPLE)
        first = graph.blocks[0]
        made = replace(first.operations[0], name="again")
        made = replace(made, output=replace(made.output, tensor="again"))
        used = {"x", *(x.tensor for x in made.inputs)}
        two = Graph(
            axes=graph.axes,
            tensors=(
                *(t for t in graph.tensors if t.name in used),
                replace(graph.tensor["x"], name="again"),
            ),
            blocks=(first, replace(first, name="other", operations=(made,))),
        )
        with pytest.raises(InputError, match="block: left out; allowed: one of start, other"):
            workload_of(two)

    @pytest.mark.parametrize(
        ("field", "close"), [("block", "no block is called 'layer'. Nearest: 'layers'"),
                             ("items", "no axis is called 'layerz'. Nearest: 'layer'")]
    )  # fmt: skip
    def test_names_that_nothing_has_are_refused(self, field, close):
        value = {"block": "layer", "items": "layerz"}[field]
        with pytest.raises(InputError, match=f"{field}: {close}"):
            workload_of(read_graph(EXAMPLE), **{"block": "layers", field: value})


GRAPHS = {
    "mamba": lambda: with_loss(mamba_graph(hidden=16, sequence=32), "Add"),
    "hyena": lambda: with_loss(hyena_graph(hidden=16, sequence=32), "Add"),
    "lstm": lambda: language_model_graph(
        LstmModel(batch=4, sequence=8, vocabulary=100, layers=1, width=16)
    ),
    "recommendation": lambda: recommendation_graph(**TABLES),
    "fourier": lambda: with_loss(
        fourier_graph(length=64, radix=8, dtype=Dtype.BF16), "Step_column_1"
    ),
    "factorisation": lambda: with_loss(
        factorisation_graph(side=32, block=8, dtype=Dtype.FP64), "Rest"
    ),
}


def mapped(graph: Graph) -> None:
    """Every block is mapped, and evaluates to what the search says."""
    system = crosstack.load(EXAMPLE, ["system={on: h100-dgx, n_chips: 2}"]).system
    for block in {b.twin for b in graph.blocks if b.twin}:
        workload = workload_of(graph, block=block)
        answer = crosstack.optimise(workload, system, work_limit=2000)
        time = crosstack.evaluate(workload, system, answer.mapping).time
        assert answer.certificate.objective == pytest.approx(time, rel=1e-9)


class TestMapped:
    @pytest.mark.parametrize("name", GRAPHS)
    def test_every_block_of_a_graph_is_trained_and_mapped(self, name):
        graph = training(GRAPHS[name](), "loss", of=(Role.WEIGHT, Role.INPUT))
        mapped(graph)

    @pytest.mark.parametrize(
        "seed", [0, 1, 2, *(pytest.param(s, marks=pytest.mark.slow) for s in range(3, 22))]
    )
    def test_every_block_of_any_graph_is_trained_and_mapped(self, seed):
        mapped(training(random_graph(Random(seed)), "loss", of=(Role.WEIGHT, Role.INPUT)))

    def test_what_a_kernel_hands_to_itself_stays_as_it_lies(self):
        graph = training(GRAPHS["lstm"](), "loss")
        kernels = workload_of(graph, block="cells_1").graph
        ends = zip(kernels.join_source.tolist(), kernels.join_target.tolist(), strict=True)
        assert [i for i, j in ends if i == j] == []

    def test_a_graph_of_ones_own_is_mapped_and_evaluated_the_same(self):
        task = crosstack.load(EXAMPLE, [*SMALL, "system={on: h100-dgx, n_chips: 2}"])
        assert (task.workload.name, task.workload.global_batch_size) == ("my_transformer", 3)
        answer = crosstack.optimise(task.workload, task.system)
        time = crosstack.evaluate(task.workload, task.system, answer.mapping).time
        assert answer.certificate.objective == pytest.approx(time, rel=1e-9)
        assert answer.certificate.status == "optimal"

    def test_it_stands_in_a_task_as_in_a_file_of_its_own(self):
        system = "system: {on: h100-dgx, n_chips: 2}\n"
        inside = "\n".join(f"    {line}" for line in EXAMPLE.read_text().splitlines())
        whole = f"workload:\n  name: mine\n  graph:\n{inside}\n{system}"
        alone = f"name: mine\n{EXAMPLE.read_text()}\n{system}"
        changes = ["axes.batch.size=2"]
        task = read_task(alone, "mine.yaml", changes)
        assert read_task(whole, "mine.yaml", [f"workload.graph.{changes[0]}"]) == task
        assert read_task(alone, "mine.yaml", [("axes.batch.size", 2)]) == task
        assert task.workload.global_batch_size == 2

    @pytest.mark.parametrize("model", [llama, mixture])
    def test_a_task_with_a_graph_is_written_and_read_back_the_same(self, model):
        graph = training(model(), "loss")
        block = "layers" if model is llama else ""
        system = crosstack.load(EXAMPLE, ["system={on: h100-dgx, n_chips: 2}"]).system
        workload = workload_of(graph, block=block, name="mine")
        task = Task(workload=workload, system=system)
        again = read_task(write_task(task), "mine.yaml")
        assert again == task
        assert again.workload.made_of == workload.made_of

    def test_what_was_changed_since_is_written_as_it_is(self):
        task = crosstack.load(EXAMPLE, [*SMALL, "system={on: h100-dgx, n_chips: 2}"])
        workload = replace(task.workload.without_ends(), global_batch_size=7)
        again = read_task(write_task(replace(task, workload=workload)), "mine.yaml")
        assert again.workload.global_batch_size == 7
        assert again.workload.graph.names == workload.graph.names

    def test_a_record_does_not_print_the_graph_it_is_made_of(self):
        task = crosstack.load(EXAMPLE, [*SMALL, "system={on: h100-dgx, n_chips: 2}"])
        assert "made_of" not in repr(task.workload)

    @pytest.mark.parametrize(
        ("change", "problem"),
        [
            ("axes.hidden=0", "axes.hidden.size: got 0; allowed: a whole number, at least 1."),
            ("block=layer", "block: no block is called 'layer'. Nearest: 'layers'."),
            ("axes.depth=3", None),
            ("system.n_chips=0", "system.n_chips: got 0; allowed: a whole number, at least 1."),
            ("operations=[]", "blocks: allowed: blocks or operations, one of the two."),
            ("axes.heads.sizes=3", "axes.heads.sizes: unknown field. Did you mean"),
            ("axes.hidden.size=3", "axes.hidden: is 256, not a mapping."),
        ],
    )  # fmt: skip
    def test_a_slip_is_said_by_the_field_of_the_file(self, change, problem):
        changes = ["system={on: h100-dgx, n_chips: 2}", change]
        if problem is None:
            assert crosstack.load(EXAMPLE, changes).workload.n_layers == 6
            return
        with pytest.raises(InputError) as refused:
            crosstack.load(EXAMPLE, changes)
        assert problem in str(refused.value).removeprefix(f"{EXAMPLE}: ")

    def test_a_graph_without_a_machine_is_refused(self):
        with pytest.raises(InputError, match="system: required, but missing: a section, or --on"):
            crosstack.load(EXAMPLE)

    def test_what_a_graph_gives_is_not_said_beside_it(self):
        inside = "\n".join(f"    {line}" for line in EXAMPLE.read_text().splitlines())
        text = f"workload:\n  n_layers: 3\n  graph:\n{inside}\nsystem: {{on: h100-dgx}}"
        with pytest.raises(InputError, match=r"workload\.n_layers: not allowed beside graph"):
            read_task(text, "mine.yaml")
