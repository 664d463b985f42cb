"""Sections of a native file that are a ready-made workload over named axes."""

from __future__ import annotations

from dataclasses import replace

import pytest

import crosstack
from crosstack import Dtype, InputError, Job
from crosstack.io import library, native
from crosstack.workload.ssm_graph import Convolution

SYSTEM = """
system:
  chip: {n_cores: 4, lanes: 2, stages: 2, frequency: 1GHz, sram_capacity: 1MB}
  memory: {bandwidth: 1GB/s}
  network: [{kind: ring, size: 4, bandwidth: 1GB/s}]
"""
DLRM = {
    "width": 64, "n_bottom": 1, "n_top": 2, "n_tables": 8, "rows": 100, "embedding_size": 16,
    "samples": 8,
}  # fmt: skip
LLAMA = library.model("llama-68m")
MADE = {
    "llm: {model: llama-68m, sequence: 16, batch: 4}": lambda: Job(
        model=LLAMA, sequence=16, batch=4
    ).workload,
    "llm: {model: llama-68m, layers: 4, sequence: 16, training: false}": lambda: Job(
        model=replace(LLAMA, layers=4), kind="forward", sequence=16
    ).workload,
    "prefill: {model: llama-68m, sequence: 16}": lambda: Job(
        model=LLAMA, kind="prefill", sequence=16
    ).workload,
    "decode: {model: llama-68m, context: 16, tokens: 2}": lambda: Job(
        model=LLAMA, kind="decode", context=16, sequence=2
    ).workload,
    "decode: {model: deepseek-v3, context: 16, block: dense_layers}": lambda: Job(
        model=library.model("deepseek-v3"), kind="decode", context=16, block="dense_layers"
    ).workload,
    f"dlrm: {{{', '.join(f'{k}: {v}' for k, v in DLRM.items())}}}": lambda: crosstack.dlrm(
        **DLRM
    ),
    "fft: {length: 4096, radix: 4}": lambda: crosstack.fft(length=4096, radix=4),
    "mamba: {hidden: 64, sequence: 16}": lambda: crosstack.mamba(
        hidden=64, sequence=16
    ),
    "hyena: {hidden: 64, sequence: 16, convolution: scan}": lambda: crosstack.hyena(
        hidden=64, sequence=16, convolution=Convolution.SCAN
    ),
}  # fmt: skip


def read(text: str) -> crosstack.Task:
    return native.read_task(text + SYSTEM, "w.yaml", ())


@pytest.mark.parametrize("section", MADE)
def test_a_section_is_what_its_function_makes(section):
    made = MADE[section]()
    assert read(f"name: {made.name}\nworkload: {{{section}}}").workload == made


@pytest.mark.parametrize("section", MADE)
def test_a_workload_comes_back_with_its_words(section):
    made = MADE[section]()
    again = read(native.write_workload(made)).workload
    assert again == made
    assert (again.item, again.item_part) == (made.item, made.item_part)


def test_a_shape_is_a_model():
    text = "workload: {llm: {hidden: 64, layers: 2, heads: 4, sequence: 16, batch: 4}}"
    workload = read(text).workload
    assert (workload.n_layers, workload.global_batch_size, workload.sequence_length) == (2, 4, 16)
    assert workload.training


def test_a_dtype_is_that_of_all_tensors():
    text = "workload: {prefill: {model: llama-68m, sequence: 16}, dtype: fp8}"
    graph = read(text).workload.graph
    assert (graph.dtype, graph.word) == (Dtype.FP8, 1)


def test_the_sequence_is_what_is_tiled_however_many_heads_share_keys():
    model = library.model("llama3-8b")
    assert model.group > 1
    assert Job(model=model, kind="prefill", sequence=64).workload.sequence_length == 64


def test_of_several_kinds_of_layers_those_that_repeat_most_are_mapped():
    model = library.model("deepseek-v3")
    assert Job(model=model, sequence=16).workload.n_layers == model.expert_layers


@pytest.mark.parametrize(
    ("section", "says"),
    [
        ("llm: {sequence: 8}", "workload.llm.hidden: required, but missing; or model"),
        ("llm: {model: lama3-8b, sequence: 8}", "workload.llm.model: no model is called"),
        ("llm: {model: gpt3-175b, sequence: 4096}", "workload.llm.sequence: got 4096"),
        ("fft: {length: 48}", "workload.fft.length: got 48; allowed: the square of a power"),
        (
            "dfmodel: {llm: {hidden: wide, sequence_length: 8, n_heads: 2, head_size: 4, "
            "n_layers: 1, global_batch_size: 1}}",
            "workload.dfmodel.llm.hidden: got 'wide'; allowed: a whole number, at least 1.",
        ),
        ("dfmodel: {hpl: {size: 64, block: 8, iterations: all}}", "iterations: got 'all'; allowed"),
        ("dfmodel: {mamba: {hidden: 64, sequence_length: 8, scan: fast}}", "scan: got 'fast'"),
        ("dfmodel: {fft: {length: 64, radix: null, points: 2}}", "dfmodel.fft.points: unknown"),
        ("dfmodel: {decode: {model: llama-68m, context: 8, hidden: '8'}}", "hidden: got '8'"),
        ("hpl: {size: 64, block: 8}", "workload.hpl: no graph over named axes has all panels"),
        (
            "hyena: {hidden: 8, sequence: 8, convolution: fft_vector}",
            "workload.hyena.convolution: got",
        ),
    ],
)
def test_what_cannot_be_made_is_refused(section, says):
    with pytest.raises(InputError) as caught:
        read(f"workload: {{{section}}}")
    assert says in str(caught.value)
