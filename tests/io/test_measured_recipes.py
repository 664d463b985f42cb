"""Claims about recipes of Megatron-Bridge: which a run follows, by its release and its machine."""

from __future__ import annotations

import pytest

from crosstack.io.measured_recipes import PLAIN, RECIPES, recipe_of
from crosstack.workload.dtype import Dtype

QWEN, GPT = "Qwen3_235B_A22B (tokendrop)", "GPT OSS 120B"


@pytest.mark.parametrize(
    ("model", "machine", "dtype", "release", "said"),
    [
        # every copy of a token, beside other microbatches, fused experts
        (QWEN, "H100", Dtype.FP8, (25, 9), (True, False, False)),
        (QWEN, "H100", Dtype.FP8, (25, 11), (True, True, False)),
        (QWEN, "GB200", Dtype.MXFP8, (26, 4, 1), (False, False, False)),
        (QWEN, "GB200", Dtype.MXFP8, (26, 6), (False, True, True)),
        (QWEN, "GB200", Dtype.BF16, (26, 6), (False, False, False)),
        (QWEN, "B200", Dtype.MXFP8, (26, 6), (True, False, False)),
        (QWEN, "B200", Dtype.MXFP8, (26, 6, 1), (False, True, True)),
        (GPT, "H100", Dtype.BF16, (26, 6), (True, False, False)),
        (GPT, "GB200", Dtype.BF16, (26, 2, 1), (False, True, False)),
        (GPT, "GB200", Dtype.BF16, (26, 4, 1), (True, True, False)),
        (GPT, "B300", Dtype.BF16, (26, 2), (True, False, False)),
        (GPT, "B300", Dtype.BF16, (26, 2, 1), (False, False, False)),
        ("DeepSeek V3", "GB300", Dtype.MXFP8, (26, 6), (False, True, True)),
        ("DeepSeek V3", "B200", Dtype.MXFP8, (26, 6, 1), (False, False, False)),
    ],
)
def test_a_run_follows_the_recipe_of_its_release_and_machine(model, machine, dtype, release, said):
    recipe = recipe_of(model, machine, dtype, release)
    assert (recipe.every_copy, recipe.combined, recipe.fused_experts) == said


def test_whole_iterations_are_recorded_of_experts_in_one_kernel_but_for_one_recipe():
    tuned = [each for each in RECIPES if each.fused_experts]
    assert [each.machines for each in tuned if not each.recorded] == [("B300",)]
    assert not any(each.recorded for each in RECIPES if not each.fused_experts)


def test_a_model_of_no_recipe_sends_a_token_to_a_chip_once_beside_nothing():
    recipe = recipe_of("LLAMA3.1_405B", "H100", Dtype.BF16, (26, 6))
    assert recipe is PLAIN


def test_a_later_recipe_of_the_same_runs_stands_behind_an_earlier_one():
    for i, first in enumerate(RECIPES):
        for second in RECIPES[i + 1 :]:
            if (first.model, first.machines) == (second.model, second.machines):
                assert first.since <= second.since
