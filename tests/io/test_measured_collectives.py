"""Claims about tables of measured collectives: what is read, refused, and left out."""

from __future__ import annotations

import json

import pytest

from crosstack.errors import InputError
from crosstack.evaluate.collective_scores import Library, MeasuredCollective
from crosstack.io import library
from crosstack.io.measured import MOST_PROBLEMS
from crosstack.io.measured_collectives import is_of_collectives, read_collectives
from crosstack.workload.kernels import Collective

ROW = {
    "op": "all_reduce", "ranks": 4, "bytes": 1024, "time_s": 1e-5, "gpu": "H100-SXM5-80GB",
    "kernel": "NCCL",
}  # fmt: skip


@pytest.fixture
def saved(tmp_path):
    def save(*rows):
        path = tmp_path / "rows.jsonl"
        path.write_text("\n".join(r if isinstance(r, str) else json.dumps(r) for r in rows))
        return path

    return save


def test_a_row_is_a_collective_among_chips_of_a_node(saved):
    other = ROW | {"ranks": 8, "kernel": "vLLM_custom_eager"}
    found = read_collectives(saved(ROW, "", other))
    four, eight = found.sets
    assert four.system == library.system_on("h100-dgx", chips=4)
    assert four.rows == (
        MeasuredCollective(collective=Collective.ALL_REDUCE, ranks=4, size=1024, time=1e-5),
    )
    assert eight.rows[0].library is Library.VLLM_EAGER
    assert not found.left_out


def test_more_chips_than_a_node_has_are_several_nodes(saved):
    (found,) = read_collectives(saved(ROW | {"ranks": 16})).sets
    assert [level.size for level in found.system.network] == [8, 2]


def test_machines_and_kernels_that_are_not_known_are_left_out(saved):
    rows = [ROW, ROW | {"gpu": "L40S"}, ROW | {"gpu": "L40S"}, ROW | {"kernel": "oneCCL"}]
    found = read_collectives(saved(*rows))
    assert found.left_out == {"L40S, no node of the library": 2, "run by oneCCL": 1}
    with pytest.raises(InputError, match="has no collective of a machine that is known"):
        read_collectives(saved(ROW | {"gpu": "L40S"}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ranks": 1}, "rows.jsonl:2: ranks: got 1; allowed: 2, 3, 4 ..."),
        ({"bytes": 0}, "rows.jsonl:2: bytes: got 0; allowed: 1, 2, 3 ..."),
        ({"bytes": True}, "rows.jsonl:2: bytes: got True; allowed: 1, 2, 3 ..."),
        ({"time_s": "soon"}, "rows.jsonl:2: time_s: got 'soon'; allowed: seconds, above 0."),
        ({"op": "all_redce"}, 'no collective is called "all_redce". Did you mean "all_reduce"?'),
    ],
)
def test_what_is_no_row_is_refused_with_its_line(saved, change, message):
    with pytest.raises(InputError) as refused:
        read_collectives(saved(ROW, ROW | change))
    assert message in str(refused.value)


def test_no_more_problems_are_told_than_a_person_reads(saved):
    with pytest.raises(InputError) as refused:
        read_collectives(saved(*[ROW | {"ranks": 0, "bytes": 0}] * 50))
    assert len(refused.value.problems) == MOST_PROBLEMS


def test_tables_are_told_apart_by_their_first_row(saved):
    assert is_of_collectives(saved("", ROW))
    assert not is_of_collectives(saved({"m": 1}, ROW))
