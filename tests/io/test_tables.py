"""Claims about the tables that say which fields files have."""

import pytest

from crosstack.errors import InputError
from crosstack.io.chip_file import CHIP_FILE
from crosstack.io.deepflow.schema import FIELDS as DEEPFLOW
from crosstack.io.native.problems import checked
from crosstack.io.native.tables import Table
from crosstack.io.native.task_fields import FIELDS
from crosstack.io.saved_file import SAVED
from crosstack.io.study_file import STUDIES

TABLES = {"deepflow": DEEPFLOW, "saved": SAVED, "task": FIELDS, "chip": CHIP_FILE, "study": STUDIES}
TABLE = """
whole:
  alone: {text: name, list: parts}
  name as called: text
  parts: part list = []
  beside: part by name?
  word: left | right = left
part:
  length: m > 0
  scope: machine.memory.Scope = chip
long: {like: part, others: ignored, width: m | null}
"""


@pytest.fixture
def table(tmp_path, monkeypatch):
    (tmp_path / "format").mkdir()
    (tmp_path / "format" / "__init__.py").touch()
    (tmp_path / "format" / "table.yaml").write_text(TABLE)
    monkeypatch.syspath_prepend(tmp_path)
    return Table("format", "table.yaml")


@pytest.mark.parametrize(
    ("table", "name"),
    [(t, name) for t, found in TABLES.items() for name in found.tree],
)
def test_every_mapping_of_a_table_has_a_shape_with_defaults_that_it_allows(table, name):
    shape = TABLES[table][name]
    problems = []
    try:
        checked(shape, {})
    except InputError as error:
        problems = [p for p in error.problems if p.message != "required, but missing."]
    assert problems == []


def test_a_value_alone_stands_for_a_field_by_what_it_is(table):
    assert checked(table["whole"], "x").called == "x"
    with pytest.raises(InputError) as caught:
        checked(table["whole"], [3])
    assert [p.path for p in caught.value.problems] == ["name", "parts[0]"]


def test_what_may_be_null_may_not_be_left_out(table):
    long = checked(table["long"], {"length": "2 mm", "width": None, "depth": 1})
    assert (long.length, long.width, long.scope) == (2e-3, None, "chip")
    with pytest.raises(InputError, match="width: required, but missing"):
        checked(table["long"], {"length": 1})


def test_words_are_those_of_the_table(table):
    with pytest.raises(InputError, match="word: got 'up'"):
        checked(table["whole"], {"name": "x", "word": "up"})
    with pytest.raises(InputError, match=r"beside\.it\.scope: got 'up'; allowed: unit, "):
        checked(table["whole"], {"name": "x", "beside": {"it": {"length": 1, "scope": "up"}}})
