"""A saved answer has every field of the layout that is promised, with its value."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from oracles.answer_data import answer_data

import crosstack
from crosstack.io import library

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
LLAMA, SN30 = EXAMPLES / "llama3_8b_sn40l.yaml", EXAMPLES / "gpt3_1t_sn30.yaml"


def unlimited():
    task = crosstack.load(EXAMPLES / "my_graph.yaml")
    chip = task.system.chip.with_memory(capacity=None)
    return replace(task, system=replace(task.system, chip=chip))


def temporal():
    system = library.system_on("h100-dgx", chips=8)
    prices = replace(system.prices, switch_power=1e-10)
    return replace(crosstack.load(LLAMA), system=replace(system, prices=prices))


CASES = {
    "temporal chips": (temporal, {}),
    "rules of a release": (lambda: crosstack.load(SN30), {"rules": "dfmodel-readme"}),
    "a memory without limit": (unlimited, {}),
    "the least energy": (temporal, {"objective": "energy"}),
}


@pytest.mark.parametrize("name", CASES)
def test_a_saved_answer_is_laid_out_as_promised(name):
    task, options = CASES[name]
    answer = crosstack.optimise(task(), work_limit=3e4, **options)
    assert answer.to_dict() == answer_data(answer)
    assert json.loads(answer.to_json()) == json.loads(json.dumps(answer_data(answer)))
