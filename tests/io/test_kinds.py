"""A file in another's place is called by its name, not field by field."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crosstack.errors import InputError
from crosstack.io.chip_file import read_chip
from crosstack.io.kinds import FileKind, refuse_other_kinds
from crosstack.io.native import read_task
from crosstack.io.native.read_graph import graph_in
from crosstack.io.rules import rules_in
from crosstack.io.study_file import codesign_file, optimize_file, study_file
from crosstack.io.yaml_tree import parse_yaml

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
FILES = {
    FileKind.TASK: "my_graph.yaml",
    FileKind.CHIP: "chips/n5_hbm3.yaml",
    FileKind.GRAPH: "graphs/my_transformer.yaml",
    FileKind.STUDY: "studies/memory_and_links.yaml",
    FileKind.CODESIGN: "codesign/llama3_decode.yaml",
    FileKind.SEARCH: "optimize/lstm_64.yaml",
}
SAVED = {
    FileKind.MAPPED: {"crosstack_version": "1", "workload": "a", "system": "b", "certificate": {}},
    FileKind.PREDICTED: {"crosstack_version": "1", "strategy": None},
}
TEXTS = {
    **{kind: (EXAMPLES / name).read_text() for kind, name in FILES.items()},
    **{kind: json.dumps(tree) for kind, tree in SAVED.items()},
    FileKind.RULES: "base: crosstack",
}
READERS = {
    FileKind.TASK: lambda text: read_task(text, "file"),
    FileKind.CHIP: lambda text: read_chip(text, "file"),
    FileKind.GRAPH: lambda text: graph_in(text, "file"),
    FileKind.STUDY: lambda text: study_file(text, "file"),
    FileKind.CODESIGN: lambda text: codesign_file(text, Path("file")),
    FileKind.SEARCH: lambda text: optimize_file(text, "file"),
    FileKind.RULES: lambda text: rules_in(parse_yaml(text), "rules"),
}


@pytest.mark.parametrize("given", TEXTS)
@pytest.mark.parametrize("wanted", READERS)
def test_another_kind_of_file_is_one_line_with_both_names(wanted, given):
    if given is wanted or (given, wanted) == (FileKind.GRAPH, FileKind.TASK):
        return  # with a machine, a graph is a task
    with pytest.raises(InputError) as refused:
        READERS[wanted](TEXTS[given])
    (problem,) = refused.value.problems
    said = f"is {given.words}, not {wanted.words}; it goes with "
    assert str(problem).removeprefix("file: ").startswith(said)


@pytest.mark.parametrize("kind", FILES)
def test_a_file_of_its_kind_passes(kind):
    refuse_other_kinds(parse_yaml(TEXTS[kind]), kind)


@pytest.mark.parametrize("wanted", READERS)
def test_a_file_of_no_kind_is_told_field_by_field(wanted):
    with pytest.raises(InputError, match="nothing: unknown field"):
        READERS[wanted]("nothing: 1")
