"""State spaces and long convolutions over named axes: numbers, gradients, work, kernels."""

from __future__ import annotations

import numpy as np
import pytest
from builders.compared import edges_of, facts, work_of
from builders.losses import with_loss
from builders.named_models import values_of
from builders.roots import real_factors, two_parts
from oracles.differences import gradient_errors
from oracles.interpreter import run

from crosstack.errors import InputError
from crosstack.published.dfmodel.graphs.ssm import hyena, mamba
from crosstack.workload.dataflow import Graph
from crosstack.workload.lowering import lowered
from crosstack.workload.operations import Role
from crosstack.workload.ssm_graph import Convolution, hyena_graph, mamba_graph

SMALL = {"hidden": 3, "sequence": 6, "layers": 2, "batch": 2, "state_size": 2}
ALIKE = {"hidden": 64, "sequence": 128}
OLD = {"hidden": 64, "sequence_length": 128}
GRAPHS = {
    "mamba": lambda: mamba_graph(**SMALL, filter_size=3, step_rank=2),
    "hyena": lambda: hyena_graph(**SMALL),
    "hyena as a recurrence": lambda: hyena_graph(**SMALL, convolution=Convolution.SCAN),
}


def filled(graph: Graph) -> dict[str, np.ndarray]:
    """Values of what comes from outside, roots of unity and decays that fade among them."""
    values = values_of(graph)
    for name in values:
        if name == "A":
            values[name] = -np.abs(values[name])
        elif name.startswith("Decay"):
            values[name] = np.tanh(values[name])
    if "Roots_1" in values:
        values |= roots(graph.sizes["row_wave"], graph.sizes["column_wave"])
    return values


def roots(rows: int, columns: int) -> dict[str, np.ndarray]:
    """Roots of unity of the two products of a transform of ``rows x columns``, and back."""
    row, column, rw = np.arange(rows // 2), np.arange(columns), np.arange(rows)
    first = np.exp(-2j * np.pi * np.outer(row, rw) / rows)
    turns = rw[:, None, None] / (rows * columns) + column / columns  # of a row wave, column wave
    second = np.exp(-2j * np.pi * turns * column[:, None])  # row wave, column, column wave
    last = np.exp(2j * np.pi * np.outer(rw, row) / rows) / (rows * columns)
    return {
        "Roots_1": two_parts(first),
        "Roots_2": real_factors(second, 2),
        "Roots_3": real_factors(second.conj().swapaxes(1, 2), 2),
        "Roots_4": np.stack([last.real, -last.imag], 1),
    }


class TestNumbers:
    def test_a_layer_of_mamba_is_its_recurrence_step_by_step(self):
        graph = mamba_graph(**SMALL | {"layers": 1}, filter_size=3, step_rank=2)
        values = filled(graph)
        made = run(graph, values)
        w = {name: value[0] for name, value in values.items() if name != "x"}

        def silu(x: np.ndarray) -> np.ndarray:
            return x / (1 + np.exp(-x))

        for sequence, out in zip(values["x"], made["Add"], strict=True):
            normed = sequence / np.sqrt((sequence**2).mean(-1, keepdims=True) + 1e-5) * w["W_Norm"]
            inner = normed @ w["W_In_Proj_x"]
            before = np.vstack([np.zeros((2, 6)), inner])
            taken = silu(sum(before[i : i + 6] * w["W_Conv"][i] for i in range(3)))
            step = np.log1p(np.exp(taken @ w["W_Step_Down"] @ w["W_Step_Up"]))
            state = np.zeros((6, 2))
            for t in range(6):
                drive = np.outer(step[t] * taken[t], taken[t] @ w["W_B_Proj"])
                state = np.exp(step[t][:, None] * w["A"]) * state + drive
                shown = state @ (taken[t] @ w["W_C_Proj"]) * silu(normed[t] @ w["W_In_Proj_z"])
                assert out[t] == pytest.approx(sequence[t] + shown @ w["W_Out_Proj"])

    @pytest.mark.parametrize("length", [6, 8, 5])
    def test_a_product_of_transforms_is_a_causal_convolution(self, length):
        graph = hyena_graph(**SMALL | {"sequence": length, "layers": 1}, filter_size=2)
        values = filled(graph)
        made = run(graph, values)
        assert np.shape(made["Inverse_FFT_1_columns"]) == (2, length, 3)
        taps = values["Filter_1"][0]
        for sequence in range(2):
            for channel in range(3):
                whole = np.convolve(made["Conv_v"][sequence, :, channel], taps[channel])[:length]
                found = made["Inverse_FFT_1_columns"][sequence, :, channel]
                assert found == pytest.approx(whole)

    def test_a_recurrence_is_a_convolution_with_what_fades(self):
        graph = hyena_graph(**SMALL | {"layers": 1}, convolution=Convolution.SCAN)
        values = filled(graph)
        made = run(graph, values)
        into, decay, out = (values[f"{name}_1"][0] for name in ("B", "Decay", "C"))
        taps = np.einsum("ws,wst->wt", into * out, decay[..., None] ** np.arange(6))
        whole = np.convolve(made["Conv_v"][1, :, 2], taps[2])[:6]
        assert made["Read_Out_1"][1, :, 2] == pytest.approx(whole)


@pytest.mark.parametrize("name", GRAPHS)
def test_derived_gradients_are_those_of_differences(name):
    graph = with_loss(GRAPHS[name](), "Add")
    found = gradient_errors(graph, filled(graph))
    assert {*found} == {t.name for t in graph.tensors if t.role in (Role.WEIGHT, Role.INPUT)}
    for tensor, (derived, differences) in found.items():
        assert derived == pytest.approx(differences, rel=1e-5, abs=1e-7), tensor


class TestKernels:
    """Beside the kernels by extents: what is the same, and all that is not."""

    def test_projections_of_mamba_are_the_same(self):
        old, new = mamba(**OLD).graph, lowered(mamba_graph(**ALIKE), "layers")
        one, other = facts(old), facts(new)
        same = {name for name in one if one[name] == other.get(name)}
        assert same == {
            "Norm", "In_Proj_x", "In_Proj_z", "Step_Down", "Step_Up", "Gate", "Out_Proj", "Conv",
            "Read_Out",
        }  # fmt: skip
        # What layers hand on is added at the end; two tensors are two kernels; decays and what
        # drives the states are made one by one.
        assert {*one} - {*other} == {"Add_Prev_Layer", "State_Proj", "Discretise"}
        assert {*other} - {*one} == {
            "Add", "B_Proj", "C_Proj", "Exponent", "Decay", "Step_x", "Drive"
        }  # fmt: skip

    def test_work_of_mamba_is_that_of_its_formulas(self):
        old, new = mamba(**OLD).graph, lowered(mamba_graph(**ALIKE), "layers")
        d, s, tokens, inner = 64, 16, 128, 128
        assert work_of(new, "B_Proj", "C_Proj") == work_of(old, "State_Proj")
        each = tokens * inner
        assert work_of(new, "Exponent", "Decay", "Drive") == work_of(old, "Discretise")
        assert work_of(new, "Step_x", "Gate") == 2 * each
        # A recurrence step by step; as prefixes of pairs the kernels count 6 on each state.
        assert work_of(new, "Scan") == 2 * each * s == work_of(old, "Scan") / 3
        assert work_of(new, "SiLU*", "Softplus") == 3 * 3 * each
        products = 3 * d * inner + 2 * 4 * inner + 2 * s * inner
        assert sum(new.work[new.systolic]) == 2 * tokens * products
        # Taps of each channel's own, and states by what reads them, are sums in the lanes.
        assert work_of(new, "Conv", "Read_Out") == 2 * each * (4 + s)

    @pytest.mark.parametrize("convolution", [Convolution.FFT_GEMM, Convolution.SCAN])
    def test_all_of_hyena_but_its_transforms_and_recurrences_is_the_same(self, convolution):
        old = hyena(**OLD, convolution=convolution).graph
        new = lowered(hyena_graph(**ALIKE, convolution=convolution), "layers")
        one, other = facts(old), facts(new)
        states = {f"{what}_{i}" for what in ("States", "Read_Out") for i in (1, 2)}
        states = states if convolution is Convolution.SCAN else set()
        projected = {"Norm", "Gate_1", "Gate_2", "Out_Proj"}
        projected |= {f"{what}_{part}" for what in ("Proj", "Conv") for part in ("v", "x1", "x2")}
        assert {n for n in one if one[n] == other.get(n)} == projected | states

    def test_transforms_of_hyena_take_the_work_of_their_products(self):
        old, new = hyena(**OLD).graph, lowered(hyena_graph(**ALIKE), "layers")
        whole = work_of(old, "FFT_1_rows")
        assert whole == 64 * 2 * 32 * 32 * 16
        for rows in ("FFT_1_rows", "Filter_FFT_1_rows", "Inverse_FFT_1_rows"):
            assert work_of(new, rows) == whole
        # Real numbers, and half of them zero: a quarter; so are the transforms of filters.
        for columns in ("FFT_1_columns", "Filter_FFT_1_columns", "Inverse_FFT_1_columns"):
            assert work_of(new, columns) == whole / 4
        assert work_of(new, "Filtered_1") == work_of(old, "Filter_1") == 6 * 64 * 256

    def test_readers_are_the_same(self):
        old = edges_of(hyena(**OLD, convolution=Convolution.SCAN).graph)
        graph = hyena_graph(**ALIKE, convolution=Convolution.SCAN)
        new = edges_of(lowered(graph, "layers"))
        assert old ^ new == {("Add_Prev_Layer", "Norm"), ("Out_Proj", "Add")}


class TestRefused:
    def test_butterflies_are_no_operations_over_axes(self):
        with pytest.raises(InputError, match=r"convolution: got .*one of fft_gemm, scan"):
            hyena_graph(**ALIKE, convolution=Convolution.FFT_VECTOR)

    def test_a_filter_is_not_longer_than_the_sequence(self):
        with pytest.raises(InputError, match="filter_size: got 7; allowed: at most the sequence"):
            mamba_graph(**SMALL, filter_size=7)

    def test_sizes_are_whole_numbers(self):
        with pytest.raises(InputError, match="batch"):
            mamba_graph(**SMALL | {"batch": 0})
