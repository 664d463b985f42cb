from __future__ import annotations

import re
from dataclasses import replace
from importlib.resources import files

import numpy as np
import pytest
from builders import named_models
from hypothesis import given
from hypothesis import strategies as st
from oracles.interpreter import POINTS, ROWS

from crosstack.errors import InputError
from crosstack.workload.axes import AxisSize, Causal, Window
from crosstack.workload.dataflow import Graph
from crosstack.workload.functions import TABLE, Function, OperationKind
from crosstack.workload.operations import Block, Operand, Operation, Role, Tensor


def product(**changes: object) -> Operation:
    fields: dict[str, object] = {
        "name": "y", "function": Function.PRODUCT, "output": Operand(tensor="y"),
        "inputs": (Operand(tensor="x"), Operand(tensor="w")),
    }  # fmt: skip
    return Operation(**(fields | changes))  # type: ignore[arg-type]


X = Tensor(name="x", axes=("sequence", "hidden"), role=Role.INPUT)
W = Tensor(name="w", axes=("hidden", "wide"), role=Role.WEIGHT)
Y = Tensor(name="y", axes=("sequence", "wide"))
SIZES = {"sequence": 5, "hidden": 4, "wide": 6, "layer": 3, "wider": 7}


def graph(*operations: Operation, tensors: tuple[Tensor, ...] = (), **block: object) -> Graph:
    return Graph(
        axes=tuple(AxisSize(name=name, size=size) for name, size in SIZES.items()),
        tensors=(X, W, Y, *tensors),
        blocks=(Block(name="all", operations=operations or (product(),), **block),),  # type: ignore[arg-type]
    )


def problems(*operations: Operation, **more: object) -> list[str]:
    with pytest.raises(InputError) as raised:
        graph(*operations, **more)  # type: ignore[arg-type]
    return [str(problem) for problem in raised.value.problems]


def a(name: str, axes: str, **more: object) -> Tensor:
    return Tensor(name=name, axes=tuple(axes.split()), **more)  # type: ignore[arg-type]


def point(name: str, *reads: str, function: Function = Function.ADD, **more: object) -> Operation:
    inputs = tuple(Operand(tensor=read) for read in reads)
    return Operation(
        name=name, function=function, inputs=inputs, output=Operand(tensor=name), **more
    )  # type: ignore[arg-type]


class TestRefused:
    def test_every_problem_with_names_is_said_with_the_nearest(self):
        wrong = product(inputs=(Operand(tensor="xx"), Operand(tensor="ww")), over=())
        assert problems(wrong, tensors=(a("x", "sequence"), a("z", "sequense"))) == [
            "tensors[3].name: duplicate tensor name 'x'; tensors[0] has it already.",
            "tensors[4].axes: no axis is called 'sequense'. Nearest: 'sequence'.",
            "blocks[0].operations[0].inputs[0]: no tensor is called 'xx'. Nearest: 'x'.",
            "blocks[0].operations[0].inputs[1]: no tensor is called 'ww'. Nearest: 'w'.",
        ]

    def test_an_activation_is_made_once(self):
        again = point("again", "x", "x")
        more = (a("again", "sequence hidden"), a("nobody", "sequence"))
        twice = replace(again, name="twice")
        assert problems(product(), again, twice, tensors=more) == [
            "blocks[0].operations[2].output: blocks[0].operations[1] makes 'again' already.",
            "tensors[4]: an activation that no operation makes; what comes from outside is an "
            "input.",
        ]

    def test_a_cycle_is_spelled_out(self):
        more = (a("p", "sequence wide"), a("q", "sequence wide"))
        assert problems(product(), point("p", "q", "y"), point("q", "p", "y"), tensors=more) == [
            "blocks[0]: the graph has a cycle: p -> q -> p."
        ]

    @pytest.mark.parametrize(
        ("axes", "said"),
        [
            ("sequence hidden wide layer", "output: layer is not among the axes of an operand."),
            ("sequence", "inputs: wide stands in one operand alone; what is added up, in both."),
        ],
    )
    def test_a_product_has_axes_of_its_factors(self, axes, said):
        made = replace(Y, axes=tuple(axes.split()))
        with pytest.raises(InputError) as raised:
            Graph(
                axes=graph().axes,
                tensors=(X, W, made),
                blocks=(Block(name="all", operations=(product(),)),),
            )
        assert str(raised.value) == f"blocks[0].operations[0].{said}"

    @pytest.mark.parametrize(
        ("operation", "axes", "said"),
        [
            (point("z", "y", function=Function.SUM, over=("hidden",)), "sequence wide",
             "over: hidden is not among the axes of the first operand."),
            (point("z", "y", function=Function.SUM, over=("wide",)), "sequence wide",
             "output: got axes sequence, wide; allowed: sequence, in any order."),
            (point("z", "y", function=Function.SOFTMAX, over=("wide",)), "sequence",
             "output: got axes sequence; allowed: sequence, wide, in any order."),
            (point("z", "x", "y"), "sequence wide",
             "inputs: hidden is not among the axes of the result."),
            (point("z", "y", function=Function.SHIFT, over=("wide",)), "sequence",
             "output: got axes sequence; allowed: sequence, wide, in any order."),
            (point("z", "y", "i", function=Function.GATHER, over=("wide",)), "sequence",
             "output: got axes sequence; allowed: layer, sequence, in any order."),
            (point("z", "y", "i", function=Function.SCATTER, over=("wide",)), "wide hidden",
             "inputs: got axes sequence, wide; allowed: hidden, layer, in any order."),
            (point("z", "y", "i", function=Function.ROTARY, over=("sequence",)),
             "sequence wide layer", "over: sequence has 5 places; allowed: an even number."),
            (point("z", "y", "y", function=Function.CONCATENATE, over=("hidden",)),
             "sequence hidden", "over: hidden has 4 places, the parts have 12."),
            (point("z", "y", function=Function.SLICE, over=("wide",)), "sequence wide",
             "output: allowed: one axis of a part for wide, and of the others."),
            (point("z", "y", function=Function.SLICE, over=("wide",)), "wide hidden",
             "output: allowed: one axis of a part for wide, and of the others."),
            (point("z", "y", function=Function.SLICE, over=("sequence",)), "wide wider",
             "over: sequence has 5 places, the parts have 7."),
            (point("z", "y", function=Function.SLICE, over=("layer",)), "sequence hidden",
             "over: layer is not among the axes of the operand."),
        ],
    )  # fmt: skip
    def test_axes_fit_the_kind(self, operation, axes, said):
        index = a("i", "layer", role=Role.INDEX)
        assert problems(product(), operation, tensors=(a("z", axes), index))[0].endswith(said)

    def test_a_view_has_as_many_elements(self):
        seen = product(inputs=(Operand(tensor="x", axes=("wide", "hidden")), Operand(tensor="w")))
        assert problems(seen) == [
            "blocks[0].operations[0].inputs[0].axes: got 24 elements (wide, hidden); allowed: "
            "20 of 'x' (sequence, hidden)."
        ]

    def test_a_carry_has_the_same_axes_and_is_made_inside(self):
        assert problems(axis="layer", carries=(("x", "y"), ("y", "x"))) == [
            "blocks[0].carries[0]: 'x' and 'y' have different axes: (sequence, hidden) and "
            "(sequence, wide).",
            "blocks[0].carries[1]: the block makes 'y' itself; allowed: what was made before.",
            "blocks[0].carries[1]: the block does not make 'x'.",
            "blocks[0].carries[1]: 'y' and 'x' have different axes: (sequence, wide) and "
            "(sequence, hidden).",
        ]

    def test_what_a_repeated_block_has_to_itself_is_not_read_later(self):
        inside = Block(name="layers", operations=(product(),), axis="layer")
        after = Block(name="after", operations=(point("z", "y", "y"),))
        tensors = (X, W, Y, a("z", "sequence wide"))
        with pytest.raises(InputError, match=r"blocks\[1\].operations\[0\].inputs\[0\]: 'y' has"):
            Graph(axes=graph().axes, tensors=tensors, blocks=(inside, after))
        with pytest.raises(InputError, match="'y' is made later, by block 'layers'"):
            Graph(axes=graph().axes, tensors=tensors, blocks=(after, inside))

    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"inputs": (Operand(tensor="x"),)}, "inputs: got 1; allowed: 2 of product."),
            ({"over": ("hidden",)}, "over: got 1; allowed: 0 of product."),
            ({"reverse": True}, "reverse: got True; allowed: false: no order."),
            ({"windows": (Window(axis="wide", at="hidden", tap="layer"),)}, "of a convolution"),
        ],
    )
    def test_an_operation_fits_its_function(self, changes, said):
        with pytest.raises(InputError, match=said.replace("(", r"\(")):
            product(**changes)


class TestProducts:
    """(outer, m, k, n) of operations; the columns are the tokens."""

    def extents(self, name: str, of: Graph) -> tuple[int, ...]:
        found = next(nest for _, nest in of.nests() if nest.operation.name == name).product
        return tuple(of.count(getattr(found, group)) for group in ("outer", "m", "k", "n"))

    @pytest.mark.parametrize(
        ("name", "extents"),
        [
            ("Q", (3, 8, 24, 2 * 10)),  # heads side by side share what they read
            ("MHA_GEMM_1", (2 * 3, 10, 8, 10)),
            ("MHA_GEMM_2", (2 * 3, 8, 10, 10)),
            ("PROJ_GEMM", (1, 24, 24, 2 * 10)),
            ("FFN0", (1, 96, 24, 2 * 10)),
            ("SOFTMAX", (3, 10, 1, 2 * 10)),
            ("GeLU", (1, 96, 1, 2 * 10)),
        ],
    )
    def test_of_a_gpt_layer(self, name, extents):
        layer = named_models.gpt_layer(batch=2, sequence=10, heads=3, head=8, ff=96)
        assert self.extents(name, layer) == extents

    def test_of_grouped_queries(self):
        of = named_models.llama(sequence=3, kv_heads=2, group=5, head=4)
        assert self.extents("q", of) == (2, 5 * 4, 6, 2 * 3)
        assert self.extents("k", of) == (2, 4, 6, 2 * 3)
        assert self.extents("scores", of) == (2 * 2, 3, 4, 5 * 3)

    def test_of_experts(self):
        assert self.extents("up", named_models.mixture(capacity=3)) == (4, 5, 4, 3)

    def test_of_a_convolution(self):
        of = named_models.convolutional()
        assert self.extents("convolved", of) == (1, 3, 3 * 3 * 2, 2 * 3 * 2)
        assert self.extents("again", of) == (3, 1, 2, 2 * 2 * 2)  # each channel by itself

    def test_work_is_two_for_each_term_of_a_product(self):
        of = graph()
        assert of.total_work == 2 * 5 * 4 * 6
        assert of.n_parameters == 4 * 6


class TestSizes:
    def test_a_tensor_has_the_bytes_of_its_elements(self):
        assert graph().size("y") == 5 * 6 * 2

    @given(n=st.integers(1, 12), more=st.integers(0, 12), window=st.integers(0, 30))
    def test_density_is_the_share_of_entries_that_count(self, n, more, window):
        k = n + more
        behind = (np.arange(n) + more)[:, None] - np.arange(k)
        seen = (behind >= 0) & (behind < (window or k))
        mask = Causal(query="q", key="k", window=window)
        assert mask.density(n, k) == pytest.approx(seen.mean())

    def test_a_mask_halves_what_counts_of_scores_and_of_what_reads_them(self):
        layer = named_models.gpt_layer(sequence=100)
        by_name = {o.name: layer.density(o) for b in layer.blocks for o in b.operations}
        assert by_name["MHA_GEMM_1"] == by_name["SOFTMAX"] == by_name["MHA_GEMM_2"] == 0.505
        assert by_name["FFN0"] == 1.0


class TestTable:
    @pytest.mark.parametrize("function", Function)
    def test_every_function_has_a_row(self, function):
        row = TABLE[function]
        assert row.work >= 0
        assert len(row.derivatives) in (0, row.operands[1])

    @pytest.mark.parametrize("function", Function)
    def test_steps_read_what_there_is(self, function):
        row = TABLE[function]
        for steps in row.derivatives:
            there = {"y", "dy", *(f"x{i}" for i in range(row.operands[1]))}
            for s, step in enumerate(steps or ()):
                assert {*step.reads} <= there
                fewest, most = TABLE[step.function].operands
                assert fewest <= len(step.reads) <= most
                there.add(f"s{s}")

    def test_every_source_is_in_the_bibliography(self):
        text = (files("crosstack") / "data" / "references.bib").read_text()
        known = set(re.findall(r"@\w+\{(\w+),", text))
        assert {row.source for row in TABLE.values()} - {""} <= known

    def test_the_interpreter_knows_every_function_of_elements_and_of_rows(self):
        kinds = {
            kind: {f for f in Function if TABLE[f].kind is kind}
            for kind in (OperationKind.ELEMENTWISE, OperationKind.REDUCTION)
        }
        apart = {Function.SPREAD, Function.ROTARY}
        apart |= {Function.COMPLEX_MULTIPLY, Function.COMPLEX_GRADIENT}
        assert {*POINTS} == kinds[OperationKind.ELEMENTWISE] - apart
        assert {*ROWS} == kinds[OperationKind.REDUCTION]


class TestDraft:
    def test_operations_between_repeated_blocks_are_blocks_of_their_own(self):
        names = [(block.name, block.axis) for block in named_models.llama().blocks]
        assert names == [("part_1", ""), ("layers", "layer"), ("part_3", "")]

    def test_what_a_block_keeps_has_its_axis(self):
        of = named_models.lstm()
        block = of.block("steps_0")
        assert of.repeats(block) == of.sizes["sequence"]
        kept = block.carries[0][1]
        assert block.axis in of.tensor[kept].axes
