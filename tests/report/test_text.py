import math
import subprocess
import sys
from dataclasses import replace

import pytest

import crosstack
from crosstack.evaluate.plan import given_plan
from crosstack.io import library
from crosstack.mapping.mapping import Status, Stop
from crosstack.mapping.search import Progress
from crosstack.model.rules import rules_named
from crosstack.published.dfmodel.graphs.dlrm import dlrm
from crosstack.published.dfmodel.graphs.fft import fft
from crosstack.published.dfmodel.graphs.hpl import hpl
from crosstack.published.dfmodel.graphs.llm import llm
from crosstack.published.dfmodel.graphs.serving import decode, prefill
from crosstack.published.dfmodel.graphs.ssm import hyena, mamba
from crosstack.report.certificate_words import certificate_sentence, closing_sentence
from crosstack.report.html import answer_html
from crosstack.report.plan_rows import (
    beside_rows,
    key_numbers,
    partition_rows,
    stage_rows,
    tables_of_parts,
)
from crosstack.report.svg import answer_svg
from crosstack.report.text import (
    answer_tables,
    kernel_table,
    plain_text,
    progress_line,
    task_text,
)
from crosstack.report.wording import (
    common_scale,
    elided_names,
    many,
    scaled,
    throughput_words,
    time_words,
)
from crosstack.workload.dtype import Dtype


def flat(text):
    return " ".join(text.split())


def test_eighty_columns_hold_the_certificate_and_every_number(small_answer):
    text = plain_text(answer_tables(small_answer), 80)
    assert all(len(line) <= 80 for line in text.splitlines())
    assert certificate_sentence(small_answer) in flat(text)
    for _, value in key_numbers(small_answer):
        assert value in flat(text)
    for row in partition_rows(small_answer).rows:
        assert all(cell in text for cell in row[2:])


def test_stages_that_split_the_graph_have_a_table(staged_answer):
    text = plain_text(answer_tables(staged_answer), 80)
    assert "Pipeline stages, for one microbatch" in text
    assert "4 stages, 2 hold the graph" in text
    assert [row[1] for row in stage_rows(staged_answer).rows] == ["0 to 1", "2"]
    for row in stage_rows(staged_answer).rows:
        assert all(cell in text for cell in row)


def test_whole_copies_have_none(small_answer):
    assert "Pipeline stages, for" not in plain_text(answer_tables(small_answer), 80)


def test_a_proof_is_called_one(small_answer):
    sentence = certificate_sentence(small_answer)
    assert sentence.startswith("Proved optimal: no mapping is faster than ")
    assert "(free: sharding; given: number of tiles)" in sentence


def stopped(answer, bound, stop, **task):
    """The answer as a search leaves it that stops with a bound of that share of its time."""
    c = answer.certificate
    certificate = replace(
        c, status=Status.LIMIT, bound=bound * c.objective, stopped=stop, free=("partitions",)
    )
    return replace(answer, certificate=certificate, task=replace(answer.task, **task))


@pytest.mark.parametrize(
    ("stop", "ending"),
    [
        (Stop.TIME_LIMIT, "stopped at the time limit after 250 ms."),
        (Stop.WORK_LIMIT, "stopped at the limit on work after 250 ms."),
        (Stop.INTERRUPT, "interrupted after 250 ms."),
        (Stop.METHOD, "which can neither improve nor bound what is left after 250 ms."),
    ],
)
def test_short_of_a_proof_the_gap_and_why_the_search_stopped_are_said(small_answer, stop, ending):
    sentence = certificate_sentence(stopped(small_answer, 0.95, stop))
    assert "optimal" not in sentence
    assert "no mapping can beat" in sentence
    assert "(gap 5 %)" in sentence
    assert sentence.endswith(ending)


def test_inside_the_gap_that_was_asked_for_no_limit_is_said(make_answer):
    answer = make_answer(["a", "b"], [(0, 1)], [0, 1], status=Status.FEASIBLE)
    assert certificate_sentence(answer).endswith("found in 250 ms.")


def test_a_gap_above_a_tenth_does_not_look_like_a_proof(small_answer):
    answer = stopped(small_answer, 0.3, Stop.TIME_LIMIT)
    assert certificate_sentence(answer).startswith("NOT PROVED, a gap of 70 %.")
    text = flat(plain_text(answer_tables(answer), 80))
    assert closing_sentence(answer) in text
    assert f"at best {time_words(answer.certificate.bound)}" in text
    page = answer_html(answer)
    assert 'role="alert"' in page
    assert "To close the gap give" in page
    assert "To close the gap give" in answer_svg(answer)


@pytest.mark.parametrize("bound", [1.0, 0.91])
def test_a_gap_below_a_tenth_needs_no_closing(small_answer, bound):
    answer = stopped(small_answer, bound, Stop.TIME_LIMIT)
    assert closing_sentence(answer) == ""
    assert 'role="alert"' not in answer_html(answer)


def test_what_closes_a_gap_is_what_is_free_as_it_is_in_the_mapping(small_answer):
    dimension = replace(small_answer.task.system.network[0], size=None, parallelism=None)
    system = replace(small_answer.task.system, network=(dimension,))
    workload = replace(small_answer.task.workload, global_batch_size=8)
    answer = stopped(small_answer, 0.3, Stop.TIME_LIMIT, system=system, workload=workload)
    c = replace(answer.certificate, free=("dimension sizes", "parallelism", "partitions"))
    assert closing_sentence(replace(answer, certificate=c)) == (
        "To close the gap give what is free; here it is --set 'system.network[0].size=4' "
        "--given tp=4,pp=1,dp=1 --microbatch-size 1, or more time (--time-limit)."
    )


def test_what_can_be_one_way_only_is_not_asked_for(lonely_answer):
    free = replace(lonely_answer.task.system.network[0], parallelism=None)
    system = replace(lonely_answer.task.system, network=(free,))
    given = replace(lonely_answer.task.constraints, n_tiles=None)
    workload = replace(lonely_answer.task.workload, sequence_length=1)
    answer = stopped(
        lonely_answer, 0.3, Stop.WORK_LIMIT, system=system, constraints=given, workload=workload
    )
    assert "kernel_by_kernel" in closing_sentence(answer)


def test_a_method_that_ended_is_helped_by_given_partitions_alone(small_answer):
    assert closing_sentence(stopped(small_answer, 0.3, Stop.METHOD)) == (
        "To close the gap give the partitions of some kernels (constraints.partitions), or of "
        "all: --set 'constraints.kernel_by_kernel=true'; more time does not help."
    )


def test_a_file_with_its_own_names_is_told_those(small_answer):
    paths = {"constraints.microbatch_size": "execution.llm.micro_batch_size"}
    workload = replace(small_answer.task.workload, global_batch_size=8)
    answer = stopped(small_answer, 0.3, Stop.INTERRUPT, paths=paths, workload=workload)
    assert "execution.llm.micro_batch_size (1)" in closing_sentence(answer)


def test_rules_that_decide_by_bytes_first_claim_no_more_than_they_prove(small_answer):
    import dataclasses

    answer = dataclasses.replace(small_answer, rules=rules_named("dfmodel-readme"))
    assert "no mapping whose sharding moves the fewest bytes is faster" in certificate_sentence(
        answer
    )


def test_names_are_not_read_as_markup(make_answer):
    answer = make_answer(["[bold]x[/bold]", "[/]"], [(0, 1)], [0, 1])
    assert "[bold]x[/bold]" in plain_text(answer_tables(answer), 120)
    assert "[/]" in plain_text(kernel_table(answer), 120)
    assert "[bold]x[/bold]" in plain_text(task_text(answer.task), 120)


def test_kernel_table_lists_every_kernel(small_answer):
    text = plain_text(kernel_table(small_answer), 80)
    assert all(k.name in text for k in small_answer.evaluation.kernels)
    assert "reduce-scatter" in text  # sums of a product along K


def test_task_text_says_the_graph_and_the_machine(small_answer):
    text = flat(plain_text(task_text(small_answer.task), 80))
    for words in ("kernels 12:", "GEMM with a weight", "ring of 4, 1 GB/s, 100 ns", "SRAM 1 GB"):
        assert words in text


def test_one_kernel_on_one_chip(lonely_answer):
    text = plain_text(answer_tables(lonely_answer), 80)
    assert "FLOP per byte of collectives nothing moves" in flat(text)
    assert "tensors 0, read 0 times" in flat(plain_text(task_text(lonely_answer.task), 80))


def test_many_partitions_are_counted_not_listed(make_answer):
    n = 100
    answer = make_answer([f"k{i}" for i in range(n)], [], list(range(n)))
    assert "40 more partitions" in plain_text(answer_tables(answer), 80)


def test_progress_is_one_line_from_the_start():
    start = Progress(objective=math.inf, bound=0.0, nodes_done=0, nodes_waiting=1)
    assert progress_line(start) == "nothing found yet; no bound; 0 done, 1 waiting"
    later = Progress(objective=2.0, bound=1.9, nodes_done=1200, nodes_waiting=3)
    assert (
        progress_line(later) == "best 2 s; no mapping beats 1.9 s (gap 5 %); 1,200 done, 3 waiting"
    )


def test_a_column_of_times_has_one_unit():
    unit, worth, decimals = common_scale([2.5e-3, 1e-9, 0.0])
    assert unit == "ms"
    assert [scaled(t, worth, decimals) for t in (2.5e-3, 1e-9, 0.0)] == ["2.500", "<0.001", "0"]


def test_a_long_list_of_names_is_cut_and_counted():
    assert elided_names(["abc", "def", "ghi"], 11) == "3: abc, def … +1"
    assert elided_names(["a_very_long_name"], 4) == "1: a_very_long_name"


def test_importing_crosstack_imports_no_terminal_library():
    code = "import sys, crosstack; assert 'rich' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


WORKLOADS = {
    "llm": (
        llm(
            hidden=64, sequence_length=32, n_heads=4, head_size=16, n_layers=1,
            global_batch_size=1,
        ),
        "2 sequences/s, 64 tokens/s",
    ),
    "prefill": (prefill(library.model("llama3-8b"), tokens=16), "2 prompts/s, 32 tokens/s"),
    "decode": (decode(library.model("llama3-8b"), context=16), "2 tokens/s"),
    "draft": (
        decode(library.model("llama3-8b"), context=16, tokens=4),
        "2 windows of 4 tokens a second",
    ),
    "mamba": (mamba(hidden=64, sequence_length=32), "2 sequences/s, 64 tokens/s"),
    "hyena": (hyena(hidden=64, sequence_length=32), "2 sequences/s, 64 tokens/s"),
    "hpl": (hpl(size=64, block=16), "2 matrices/s"),
    "fft": (fft(length=64), "2 transforms/s"),
    "dlrm": (
        dlrm(
            width=8, n_bottom=1, n_top=1, n_tables=1, rows=8, embedding_size=8, samples=64,
            global_batch_size=1,
        ),
        "2 batches of 64 samples a second",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_workload_names_what_it_works_on(name):
    workload, words = WORKLOADS[name]
    assert throughput_words(workload, 2.0) == words


def test_a_graph_of_ones_own_works_on_samples(small_answer):
    lines = told(small_answer)
    assert any("layer time, one sample" in line for line in lines)
    assert not any("sequences/s" in line or "sequence length" in line for line in lines)


def test_a_name_of_ones_own_stands_everywhere(small_answer):
    workload = replace(small_answer.task.workload, item="image", item_part="patch")
    lines = told(replace(small_answer, task=replace(small_answer.task, workload=workload)))
    assert any("layer time, one image" in line for line in lines)
    assert any("images/s" in line and "patches/s" in line for line in lines)
    assert any("work of an image" in line for line in lines)
    assert any("patches of an image" in line for line in lines)
    assert any("One layer of one image takes" in line for line in lines)


def told(answer):
    """What text and page say of an answer and its task."""
    texts = plain_text(answer_tables(answer), 200), plain_text(task_text(answer.task), 200)
    return [*texts[0].splitlines(), *texts[1].splitlines(), *answer_html(answer).splitlines()]


@pytest.mark.parametrize(
    ("noun", "several"),
    [
        ("kernel", "kernels"),
        ("matrix", "matrices"),
        ("query", "queries"),
        ("batch of 64 samples", "batches of 64 samples"),
        ("more partition", "more partitions"),
    ],
)
def test_a_noun_has_its_plural(noun, several):
    assert many(noun) == several


def test_what_is_not_given_is_said_to_be_and_left_out_of_totals(small_answer):
    dimension = replace(small_answer.task.system.network[0], latency=None)
    system = replace(small_answer.task.system, network=(dimension,))
    task = replace(small_answer.task, system=system)
    text = flat(plain_text(answer_tables(given_plan(task, small_answer.mapping)), 80))
    for words in (
        "price not given: memory, links",
        "chips 40 USD 20 W",
        "total not given not given",
        "energy of an iteration not known: system.prices.memory_power, "
        "system.network[0].link_power, system.prices.switch_power missing",
    ):
        assert words in text
    assert "1 GB/s not given" in text  # the latency of a hop
    shown = flat(plain_text(task_text(task), 80))
    for words in ("latency not given", "link not given, switch not given, memory not given"):
        assert words in shown


def test_the_peak_is_that_of_what_is_computed_with(small_answer):
    chip = small_answer.task.system.chip.with_compute(relative_rates=((Dtype.BF16, 0.5),))
    task = replace(small_answer.task, system=replace(small_answer.task.system, chip=chip))
    text = flat(plain_text(answer_tables(given_plan(task, small_answer.mapping)), 80))
    assert "% of 256 GFLOP/s in bf16" in text
    assert "peak of a chip 256 GFLOP/s in bf16" in flat(plain_text(task_text(task), 80))


def test_what_runs_beside_the_layers_is_a_table_of_its_own():
    job = crosstack.Job(model=crosstack.model("llama-68m"), kind="prefill", batch=2, sequence=64)
    answer = crosstack.optimise(job, crosstack.system("h100-dgx", chips=1), work_limit=1e4)
    rows = beside_rows(answer)
    assert [row[:3] for row in rows.rows] == [("embedding", "first", "1"), ("head", "last", "1")]
    assert ("Before and behind the layers, one sequence", rows) in tables_of_parts(answer)
