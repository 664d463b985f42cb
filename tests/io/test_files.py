"""Claims about the gatekeeper of files and about plain YAML."""

import os
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crosstack.errors import InputError
from crosstack.io import files
from crosstack.io.files import read_text, write_atomically, writing
from crosstack.io.load import load, save
from crosstack.io.yaml_tree import parse_yaml

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "my_graph.yaml"


def refusal(call, *arguments):
    with pytest.raises(InputError) as caught:
        call(*arguments)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_text_is_read_without_its_byte_order_mark(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_bytes(b"\xef\xbb\xbfname: \xc3\xa9\n")
    assert read_text(path) == "name: é\n"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "the file is empty."),
        (b" \n\n", "the file is empty."),
        (b"name: x\0y", "a NUL byte at offset 7"),
        (b"name: \xff", "a bad byte at offset 6"),
        ("name: x".encode("utf-16"), "is not text"),
    ],
)
def test_what_is_not_text_is_refused_with_the_file_name(tmp_path, content, says):
    path = tmp_path / "a.yaml"
    path.write_bytes(content)
    message = refusal(read_text, path)
    assert message.startswith(f"{path}: ")
    assert says in message


def test_a_missing_file_is_refused(tmp_path):
    assert "no such file" in refusal(read_text, tmp_path / "none.yaml")


def test_a_directory_is_refused(tmp_path):
    assert "is a directory" in refusal(read_text, tmp_path)


def test_a_device_is_refused():
    assert "not a regular file" in refusal(read_text, os.devnull)


def test_a_path_with_a_nul_byte_is_refused():
    assert "cannot be read" in refusal(read_text, "a\0b")


def test_a_large_file_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "large.yaml"
    with path.open("wb") as file:
        file.truncate(300_000_000)  # sparse: takes no room and no time
    assert refusal(read_text, path).endswith("file is 300 MB; allowed: up to 64 MB.")


def test_writing_replaces_the_old_file(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("old")
    write_atomically(path, "é\n")
    assert path.read_bytes() == "é\n".encode()


def test_writing_leaves_no_other_file_behind(tmp_path):
    write_atomically(tmp_path / "a.yaml", "x")
    assert [p.name for p in tmp_path.iterdir()] == ["a.yaml"]


def test_writing_keeps_the_permissions_of_the_old_file(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("old")
    path.chmod(0o640)
    write_atomically(path, "new")
    assert path.stat().st_mode & 0o777 == 0o640


def test_writing_that_fails_keeps_the_old_file_and_no_other(tmp_path, monkeypatch):
    path = tmp_path / "a.yaml"
    path.write_text("old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "replace", full)
    assert "No space left" in refusal(write_atomically, path, "new")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.yaml"]


def test_writing_into_a_missing_directory_is_refused(tmp_path):
    message = refusal(write_atomically, tmp_path / "none" / "a.yaml", "x")
    assert "there is no directory" in message


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_writing_into_a_read_only_directory_is_refused(tmp_path):
    tmp_path.chmod(0o500)
    assert "cannot be written" in refusal(write_atomically, tmp_path / "a.yaml", "x")


@pytest.mark.parametrize("name", ["a\0b", "x" * 5000, "é" * 130])
def test_a_name_no_file_can_have_is_refused(tmp_path, name):
    assert "cannot be written" in refusal(write_atomically, f"{tmp_path}/{name}", "x")
    assert "cannot be read" in refusal(read_text, f"{tmp_path}/{name}")


def test_writing_through_a_link_keeps_the_link(tmp_path):
    (tmp_path / "link.yaml").symlink_to(tmp_path / "real.yaml")
    write_atomically(tmp_path / "link.yaml", "x")
    assert (tmp_path / "link.yaml").is_symlink()
    assert (tmp_path / "real.yaml").read_text() == "x"


def test_saving_with_an_unknown_suffix_is_refused(tmp_path):
    task = load(EXAMPLE)
    assert "unknown suffix '.json'" in refusal(save, task, tmp_path / "a.json")


def test_a_saved_task_loads_equal(tmp_path):
    task = load(EXAMPLE)
    save(task, tmp_path / "a.yaml")
    assert load(tmp_path / "a.yaml") == task


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e9", 1e9),
        ("1.0e+9", 1e9),
        ("-.5", -0.5),
        ("12", 12),
        ("'12'", "12"),
        ("010", "010"),
        ("1:30", "1:30"),
        ("0x10", "0x10"),
        ("yes", "yes"),
        ("off", "off"),
        ("2024-01-01", "2024-01-01"),
        ("true", True),
        ("null", None),
        ("", None),
        ("{1: a, no: b}", {"1": "a", "no": "b"}),
        ("[a, [1, 2.5]]", ["a", [1, 2.5]]),
    ],
)
def test_yaml_is_read_plainly(text, value):
    found = parse_yaml(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: 1\nb: 2\na: 3", "line 3, column 1: the key 'a' is given twice."),
        ("a: &x 1\nb: *x", "line 2, column 4: an alias (*x)"),
        ("a: !!python/name:os.system x", "line 1, column 4: a tag"),
        ("a: 1\n---\nb: 2", "line 2, column 1: a second document"),
        ("a: [1\nb: 2", "line 2, column 2: not YAML:"),
        ("a: b: c", "line 1, column 5: not YAML:"),
        (
            "path: [system.network[0].kind]",
            'line 1, column 22: not YAML: "[" in the middle of a text; put the text in quotes: '
            '"system.network[0].kind".',
        ),
        ("{a: 1,\n b: m[0][1].n, c: 2}", 'put the text in quotes: "m[0][1].n".'),
        ('a: [k["x y"].m]', "put the text in quotes: 'k[\"x y\"].m'."),
        ("a: [" + "b" * 10**6 + "[0]]", "put the text in quotes:"),
        ("\tx: 1", "line 1, column 1: not YAML:"),
        ("{[a]: 1}", "a list or mapping as a key"),
        ("[" * 100_000, "nested deeper than 50 levels."),
        ("a: \x07", "not YAML: the character at offset"),
        ("a: \ud800", "not YAML:"),
    ],
)
def test_the_traps_of_yaml_are_errors_of_one_line(text, says):
    assert says in refusal(parse_yaml, text)


def test_an_alias_bomb_is_refused_at_once():
    lines = ["a0: &a0 [x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    assert "an alias" in refusal(parse_yaml, "\n".join(lines))


@given(st.text(max_size=80))
def test_no_text_does_worse_to_the_yaml_reader_than_an_input_error(text):
    with suppress(InputError):
        parse_yaml(text)


def test_what_is_written_in_place_of_a_file_is_there_whole_or_not_at_all(tmp_path):
    target = tmp_path / "table.bin"
    target.write_bytes(b"old")
    target.chmod(0o640)
    link = tmp_path / "link.bin"
    link.symlink_to(target)
    with suppress(ZeroDivisionError), writing(link) as temporary:
        temporary.write_bytes(b"half")
        raise ZeroDivisionError
    assert target.read_bytes() == b"old"
    with writing(link) as temporary:
        temporary.write_bytes(b"new")
        assert temporary.suffix == ".bin"
        assert target.read_bytes() == b"old"
    assert target.read_bytes() == b"new"
    assert link.is_symlink()
    assert target.stat().st_mode & 0o777 == 0o640
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.bin", "table.bin"]
