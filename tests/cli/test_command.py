"""The command as a whole: help, version, mistakes on the command line, bugs, real processes."""
# ruff: noqa: E501 - the tables are one case a line

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
import typer

import crosstack

COMMANDS = [["map"], ["evaluate"], ["show"], ["convert"], ["generate"], ["generate", "llm"], ["validate"], ["sweep"], ["study"], ["study", "plot"]]  # fmt: skip


@pytest.mark.parametrize("help_", ["--help", "-h"])
@pytest.mark.parametrize("command", [[], *COMMANDS], ids=" ".join)
def test_every_command_has_help(run, command, help_):
    outcome = run(*command, help_)
    assert (outcome.code, outcome.err) == (0, "")
    assert "Usage: crosstack" in " ".join(outcome.out.split())


@pytest.mark.parametrize("command", [[], *COMMANDS], ids=" ".join)
def test_help_fits_80_columns_and_has_no_control_codes(run, command):
    lines = run(*command, "--help").out.splitlines()
    assert max(map(len, lines)) <= 80
    assert all(line.isprintable() for line in lines)


@pytest.mark.parametrize("command", [["map"], ["evaluate"], ["show"], ["convert"]], ids=" ".join)
def test_help_shows_an_example(run, command):
    assert f"crosstack {command[0]} " in run(*command, "--help").out.split("Usage")[1][60:]


def test_every_command_has_one_panel_and_every_panel_only_commands():
    from crosstack.cli.main import PANELS, app

    listed = [name for names in PANELS.values() for name in names]
    assert sorted(listed) == sorted(typer.main.get_command(app).commands)


def test_help_begins_with_mapping(run):
    listed = run("--help").out
    places = [listed.index(f" {name} ") for name in ("map", "evaluate", "show", "generate")]
    assert places == sorted(places)
    assert places[-1] < listed.index(" speculate ")


def test_the_exit_codes_are_in_the_help(run):
    text = " ".join(run("--help").out.split())
    for code in ("0 done", "2 bad input", "3 no answer", "4 stopped at a limit", "1 a bug"):
        assert code in text


def test_nothing_at_all_shows_the_help(run):
    assert "COMMAND" in run().out


def test_the_version_is_printed(run):
    assert run("--version").out == f"crosstack {crosstack.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["mapp"], "No such command 'mapp'. Did you mean 'map'?"),
        (["map"], "Missing argument 'FILE|MODEL'. See: crosstack map --help"),
        (["map", "a", "b"], "unexpected extra argument"),
        (["map", "a", "--json"], "--json"),
        (["convert", "a"], "Missing argument 'B'"),
        (["generate", "cnn"], "No such command 'cnn'"),
        (["show", "a", "--gap", "1"], "No such option"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_line(run, arguments, says):
    outcome = run(*arguments)
    (line,) = outcome.problems
    assert (outcome.code, outcome.out) == (2, "")
    assert says in line


# --- --debug ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [["--debug", "map", "none.yaml"], ["map", "--debug", "none.yaml"], ["map", "none.yaml", "--debug"]],
    ids=["first", "between", "last"],
)  # fmt: skip
def test_the_traceback_is_shown_on_request_with_the_same_exit_code(run, arguments):
    outcome = run(*arguments)
    assert outcome.code == 2
    assert outcome.err.startswith("Traceback")
    assert outcome.err.endswith("crosstack: none.yaml: no such file.\n")


@pytest.fixture
def broken(monkeypatch):
    """Make the search raise what it never should."""

    def search(*_, **__):
        raise ZeroDivisionError("1 / 0\nin line 3")

    monkeypatch.setattr(crosstack, "optimise", search)


def test_a_bug_is_one_line_that_says_how_to_see_more(run, small, broken):
    outcome = run("map", small, "--json", small.parent / "result.json")
    (line,) = outcome.problems
    assert outcome.code == 1
    assert line == r"a bug: ZeroDivisionError: 1 / 0\nin line 3. Run again with --debug."


def test_a_bug_leaves_no_file(run, small, broken):
    run("map", small, "--json", small.parent / "result.json")
    assert [path.name for path in small.parent.iterdir()] == ["small.yaml"]


def test_a_bug_shows_its_traceback_on_request(run, small, broken):
    outcome = run("map", small, "--debug")
    assert (outcome.code, outcome.err.startswith("Traceback")) == (1, True)


def test_an_interruption_is_no_bug(run, small, monkeypatch):
    def search(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(crosstack, "optimise", search)
    outcome = run("map", small)
    assert (outcome.code, outcome.problems) == (130, ["interrupted"])


# --- real processes -----------------------------------------------------------------------------

COMMAND = [sys.executable, "-m", "crosstack"]


def process(arguments, **options):
    """Run a command to its end."""
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.run(arguments, check=False, text=True, timeout=300, **streams)


def test_the_module_runs_as_a_command(small, tmp_path):
    done = process([*COMMAND, "map", small, "--json", tmp_path / "result.json"])
    assert (done.returncode, done.stderr) == (0, "")
    assert "Proved optimal" in done.stdout


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_a_terminal_of_few_letters_is_no_bug(small, encoding):
    done = process([*COMMAND, "map", small], env={**os.environ, "PYTHONIOENCODING": encoding})
    assert (done.returncode, done.stderr) == (0, "")


def test_a_reader_that_goes_away_is_no_bug_and_loses_no_result(small):
    reader, writer = os.pipe()
    os.close(reader)
    result = small.parent / "result.json"
    done = process([*COMMAND, "map", small, "--json", result], stdout=writer)
    os.close(writer)
    assert (done.returncode, done.stderr, result.exists()) == (0, "", True)


@pytest.mark.skipif(os.name != "posix", reason="sends itself a signal")
def test_a_search_that_is_interrupted_leaves_no_file(small):
    code = (
        "import os, signal, sys, time\n"
        "import crosstack\n"
        "from crosstack.cli.main import main\n"
        # A shell that runs this in the background makes it ignore the signal.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "def search(*_, **__):\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    time.sleep(60)\n"
        "crosstack.optimise = search\n"
        "main(sys.argv[1:])\n"
    )
    arguments = ["map", small, "--json", small.parent / "result.json"]
    done = process([sys.executable, "-c", code, *arguments])
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "crosstack: interrupted\n")
    assert [path.name for path in small.parent.iterdir()] == ["small.yaml"]


@pytest.mark.skipif(os.name != "posix", reason="sends itself a signal")
@pytest.mark.parametrize("library", ["numpy", "typer"])
@pytest.mark.parametrize("way", ["module", "script"])
def test_an_interruption_while_modules_load_says_nothing(tmp_path, library, way):
    # Imported in place of a library, by crosstack itself and by its command line.
    (tmp_path / f"{library}.py").write_text(
        "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)\n"
    )
    script = tmp_path / "crosstack"
    script.write_text("from crosstack.cli.main import main\nmain()\n")
    command = COMMAND if way == "module" else [sys.executable, script]
    done = process(
        [*command, "--version"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        # A shell that runs this in the background makes it ignore the signal.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_the_command_starts_without_what_it_does_not_need():
    code = (
        "import sys\n"
        "from crosstack.cli.main import main\n"
        "try: main(['--version'])\n"
        "except SystemExit: print(*sys.modules)"
    )
    done = process([sys.executable, "-c", code])
    assert not {"highspy", "pydantic", "google.protobuf"} & set(done.stdout.split())
