"""The table of functions: operations counted in their formulas, steps that fit what they call."""

from __future__ import annotations

import pytest

from crosstack.workload.functions import TABLE, Function

F = Function
SIGMOID = "exponential add divide"
NORM = "sum subtract square sum divide"  # a row less its mean over its root mean square
ROOT = "square sum divide"
# What is done with each element, in the order of the formula.
FORMULAS = {
    F.COPY: "",
    F.QUANTIZE: "multiply greatest",
    F.ADD: "add",
    F.SUBTRACT: "subtract",
    F.MULTIPLY: "multiply",
    F.DIVIDE: "divide",
    F.TANH_GRADIENT: "square subtract multiply",
    F.SIGMOID: SIGMOID,
    F.SIGMOID_GRADIENT: "subtract multiply multiply",
    F.SQUARED_RELU: "greater square",
    F.SQUARED_RELU_GRADIENT: "greater double multiply",
    F.GELU: "multiply multiply scale add scale tanh add multiply halve",
    F.SILU: SIGMOID,  # x takes the place of the 1 that is divided
    F.SILU_GRADIENT: f"{SIGMOID} subtract multiply add multiply multiply",
    F.GATED_GELU: "multiply multiply scale add scale tanh add multiply halve multiply",
    F.GATED_SILU: f"{SIGMOID} multiply",
    F.SOFTPLUS: "exponential add logarithm",
    F.SOFT_CAP: "divide tanh multiply",
    F.SOFT_CAP_GRADIENT: "divide square subtract multiply",
    F.COMPLEX_MULTIPLY: "multiply multiply add",
    F.DROPOUT: "mask scale",
    F.ROTARY: "multiply multiply add",
    F.SUM: "add",
    F.SOFTMAX: "greatest subtract exponential sum divide",
    F.SOFTMAX_GRADIENT: "multiply sum subtract multiply",
    F.LAYER_NORM: f"{NORM} multiply add",
    F.LAYER_NORM_GRADIENT: f"{NORM} multiply sum multiply sum multiply subtract subtract scale",
    F.BATCH_NORM: f"{NORM} multiply add",
    F.BATCH_NORM_GRADIENT: f"{NORM} multiply sum multiply sum multiply subtract subtract scale",
    F.MAX_POOL: "greater",
    F.MAX_POOL_GRADIENT: "greater add",
    F.CROP: "",
    F.CROP_GRADIENT: "",
    F.RMS_NORM: f"{ROOT} multiply",
    F.RMS_NORM_GRADIENT: f"{ROOT} multiply multiply sum multiply subtract scale",
    F.CROSS_ENTROPY: "greatest subtract exponential sum",
    F.CROSS_ENTROPY_GRADIENT: "greatest subtract exponential sum divide subtract multiply",
    F.SHIFT: "",
    F.RECURRENCE: "multiply add",
    F.SCATTER: "add",
    F.GATHER: "",
    F.PRODUCT: "multiply add",
}


@pytest.mark.parametrize("function", FORMULAS)
def test_a_function_does_what_its_formula_says_with_each_element(function):
    assert TABLE[function].work == len(FORMULAS[function].split())


@pytest.mark.parametrize("function", TABLE)
def test_every_operand_has_a_derivative_or_none_has(function):
    row = TABLE[function]
    assert len(row.derivatives) in (0, row.operands[1])
    assert all(0 <= operand < row.operands[1] for operand in row.linear)
    assert row.operands[0] <= row.operands[1]


@pytest.mark.parametrize("function", TABLE)
def test_steps_read_as_many_operands_as_their_functions_have(function):
    row = TABLE[function]
    names = {"y", "dy", *(f"x{i}" for i in range(row.operands[1]))}
    for steps in filter(None, row.derivatives):
        for i, step in enumerate(steps):
            fewest, most = TABLE[step.function].operands
            assert fewest <= len(step.reads) <= most
            assert {*step.reads} <= names | {f"s{j}" for j in range(i)}
            assert not step.reverse or TABLE[step.function].reversible or step.function is F.SLICE
