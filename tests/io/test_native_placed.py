"""Native YAML of what lies on the chips in its own way, and of what machines have beside."""

from __future__ import annotations

from dataclasses import replace

import pytest

from crosstack.errors import InputError
from crosstack.io import library, native
from crosstack.machine.memory import main_memory
from crosstack.mapping.mapping import Task
from crosstack.published.dfmodel.graphs.dlrm import dlrm
from crosstack.published.dfmodel.graphs.fft import fft
from crosstack.published.dfmodel.graphs.hpl import hpl
from crosstack.published.dfmodel.graphs.serving import decode, prefill
from crosstack.published.dfmodel.graphs.ssm import Scan, hyena, mamba
from crosstack.workload.dtype import Dtype
from crosstack.workload.ssm_graph import Convolution

SYSTEM = """
system:
  chip: {n_cores: 4, lanes: 2, stages: 2, frequency: 1GHz, sram_capacity: 1MB}
  memory: {bandwidth: 1GB/s}
  network: [{kind: ring, size: 4, bandwidth: 1GB/s}]
"""
DLRM = {
    "width": 64, "n_bottom": 1, "n_top": 2, "n_tables": 8, "rows": 100, "embedding_size": 16,
    "samples": 8, "global_batch_size": 16,
}  # fmt: skip


PLAIN = replace(library.model("llama-68m"), gated=False)


def read(text: str) -> Task:
    return native.read_task(text + SYSTEM, "w.yaml", ())


@pytest.mark.parametrize(
    "workload",
    [
        dlrm(**DLRM),
        hpl(size=64, block=16),
        fft(length=4096),
        decode(library.model("llama-68m"), context=16),
        decode(library.model("llama-68m"), context=16, chips=4),
        prefill(library.model("llama-68m"), tokens=16),
        mamba(hidden=64, sequence_length=16),
        hyena(hidden=64, sequence_length=16),
    ],
    ids=lambda w: w.name,
)
def test_a_workload_comes_back(workload):
    assert read(native.write_workload(workload)).workload == workload


@pytest.mark.parametrize(
    ("section", "made"),
    [
        ("dlrm", dlrm(**DLRM)),
        ("hpl", hpl(size=64, block=16, iterations=2)),
        ("fft", fft(length=4096, radix=4)),
        ("prefill", replace(prefill(PLAIN, tokens=16), name="prefill")),
        ("decode", replace(decode(PLAIN, context=16, tokens=2), name="decode")),
        ("mamba", mamba(hidden=64, sequence_length=16, scan=Scan.SERIAL)),
        ("hyena", hyena(hidden=64, sequence_length=16, convolution=Convolution.SCAN)),
    ],
)
def test_a_graph_of_a_release_is_a_section(section, made):
    fields = {
        "dlrm": ", ".join(f"{name}: {value}" for name, value in DLRM.items()),
        "hpl": "size: 64, block: 16, iterations: 2",
        "fft": "length: 4096, radix: 4",
        "prefill": "model: llama-68m, gated: false, tokens: 16",
        "decode": "model: llama-68m, gated: false, context: 16, tokens: 2",
        "mamba": "hidden: 64, sequence_length: 16, scan: serial",
        "hyena": "hidden: 64, sequence_length: 16, convolution: scan",
    }
    text = f"workload: {{dfmodel: {{{section}: {{{fields[section]}}}}}}}"
    assert read(text).workload == made


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "workload: {dfmodel: {hpl: {size: 64, block: 65}}}",
            "workload.dfmodel.hpl.block: got 65; allowed: at most",
        ),
        ("workload: {dfmodel: {hpl: {size: 64}}}", "workload.dfmodel.hpl.block: required, but"),
        (
            "workload: {dfmodel: {hppl: {size: 64}}}",
            "workload.dfmodel.hppl: unknown field. Did you",
        ),
        ("workload: {dfmodel: {}}", "workload.dfmodel: got 0 graphs; allowed: one"),
        (
            "workload: {dfmodel: {mamba: {hidden: 8, sequence_length: 8, scan: fast}}}",
            "workload.dfmodel.mamba.scan: got 'fast'; allowed: one of serial, parallel",
        ),
        (
            "workload: {dfmodel: {decode: {model: llama-68m, context: 8, head: 2}}}",
            'workload.dfmodel.decode.head: unknown field. Did you mean "heads"?',
        ),
        ("workload: {fft: {length: 64, radix: 1}}", "workload.fft.radix: got 1"),
        (
            "workload: {fft: {length: 64, radx: 2}}",
            "workload.fft.radx: unknown field. Did you mean",
        ),
        (
            "workload: {dfmodel: {hpl: {size: 64, block: 8}}, word: 2}",
            "workload.word: not allowed beside dfmodel",
        ),
        ("workload: {word: 2}", "or one of llm, prefill, decode, images, dlrm, fft"),
        (
            "workload: {decode: {context: 8}}",
            "workload.decode.hidden: required, but missing; or model",
        ),
        ("workload: {decode: {context: 8, model: llama}}", "workload.decode.model: no model"),
        ("workload: {hyena: {hidden: 8, sequence: 2}}", "workload.hyena.filter_size"),
        ("workload: {fft: {length: 64}, llm: {hidden: 1}}", "workload.llm"),
    ],
)
def test_what_makes_no_sense_is_refused(text, says):
    with pytest.raises(InputError) as caught:
        read(text)
    assert says in str(caught.value)


def test_a_machine_with_everything_comes_back():
    task = read(native.write_workload(fft(length=4096)))
    chip = task.system.chip.with_level(0, banks=4, bank_capacity=64.0)
    memory = main_memory(bandwidth=1e9, capacity=1e9, second_bandwidth=1e8, second_capacity=1e10)
    system = replace(task.system, chip=replace(chip, memories=memory), domain_size=2, copies=3)
    task = replace(task, system=system)
    assert native.read_task(native.write_task(task), "all.yaml", ()) == task


HPL = """
workload: {dfmodel: {hpl: {size: 64, block: 16}}}
system:
  chip: CHIP
  memory: {bandwidth: 1GB/s}
  network: [{kind: ring, size: 4, bandwidth: 1GB/s}]
"""
CELLS = "n_cores: 4, lanes: 2, stages: 2, frequency: 1GHz, sram_capacity: 1MB"


def read_hpl(chip: str, *overrides: str) -> Task:
    return native.read_task(HPL.replace("CHIP", chip), "w.yaml", overrides)


def test_rates_are_those_of_the_file():
    chip = read_hpl(f"{{{CELLS}, rates: {{fp64: 2 GFLOP/s, bf16: 32 GFLOP/s}}}}").system.chip
    assert [chip.rate(Dtype.FP64), chip.rate(Dtype.BF16)] == [2e9, 32e9]


def test_a_faster_clock_speeds_up_the_rates_of_the_library():
    twice = read_hpl("{library: h100, frequency: 3.674 GHz}").system.chip
    assert twice.rate(Dtype.FP64) == pytest.approx(2 * 67e12)


def test_a_rate_may_be_put_over_the_librarys():
    chip = read_hpl("h100", "system.chip.library=h100", "system.chip.rates.fp64=60 TFLOP/s")
    rates = chip.system.chip
    assert rates.rate(Dtype.FP64) == pytest.approx(60e12)
    assert rates.rate(Dtype.BF16) == pytest.approx(989.5e12)


def test_without_rates_a_chip_of_the_library_has_one_peak():
    chip = read_hpl("{library: h100, rates: null}").system.chip
    assert chip.rate(Dtype.FP64) == chip.peak_throughput


@pytest.mark.parametrize("chip", ["h100", f"{{{CELLS}, rates: {{fp64: 3 GFLOP/s}}}}"])
def test_rates_come_back_to_the_last_bit(chip):
    task = read_hpl(chip)
    assert native.read_task(native.write_task(task), "again.yaml", ()) == task


@pytest.mark.parametrize(
    ("chip", "message"),
    [
        ("{library: h100, rates: {fp65: 1e12}}", "system.chip.rates.fp65: got"),
        ("{library: h100, rates: {fp64: 0}}", "system.chip.rates.fp64: got 0"),
        ("{library: h100, rates: {fp64: 1e9}, relative_rates: {fp64: 1}}", "not allowed beside"),
    ],
)  # fmt: skip
def test_bad_rates_are_refused(chip, message):
    with pytest.raises(InputError, match=message):
        read_hpl(chip)


def test_a_workload_may_say_what_it_is_computed_in():
    task = read_hpl("h100", "workload.dtype=fp32")
    assert task.workload.graph.dtype is Dtype.FP32
    assert native.read_task(native.write_task(task), "again.yaml", ()) == task


def test_bandwidths_may_be_in_bits_a_second():
    task = read_hpl(
        "h100", "system.network[0].bandwidth=400 Gb/s", "system.memory.bandwidth=1 Tbit/s"
    )
    assert (task.system.network[0].bandwidth, task.system.chip.main_memory.bandwidth) == (
        5e10,
        1.25e11,
    )
