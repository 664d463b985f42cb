import math
import subprocess
import sys

import pytest

from crosstack.mapping.mapping import Status
from crosstack.mapping.search import Progress
from crosstack.model.rules import rules_named
from crosstack.report.text import (
    answer_tables,
    kernel_table,
    plain_text,
    progress_line,
    task_text,
)
from crosstack.report.wording import (
    certificate_sentence,
    common_scale,
    elided_names,
    key_numbers,
    partition_rows,
    scaled,
    stage_rows,
)


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


@pytest.mark.parametrize(
    ("status", "ending"),
    [
        (Status.LIMIT, "stopped at the time limit or at the end of the method after 250 ms."),
        (Status.FEASIBLE, "in 250 ms."),
    ],
)
def test_short_of_a_proof_the_bound_and_the_gap_are_said(make_answer, status, ending):
    answer = make_answer(["a", "b"], [(0, 1)], [0, 1], status=status)
    sentence = certificate_sentence(answer)
    assert "optimal" not in sentence
    assert "no mapping can beat" in sentence
    assert "(gap 10 %)" in sentence
    assert sentence.endswith(ending)


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
    assert "all-reduce" in text


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
    start = Progress(objective=math.inf, bound=0.0, boxes_done=0, boxes_waiting=1)
    assert progress_line(start) == "nothing found yet; no bound; 0 done, 1 waiting"
    later = Progress(objective=2.0, bound=1.9, boxes_done=1200, boxes_waiting=3)
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
