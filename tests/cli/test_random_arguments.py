"""Good command lines with arguments exchanged, dropped and added are never a bug."""

from __future__ import annotations

import contextlib
import random
import re
import shlex
from pathlib import Path

import pytest
import typer

from crosstack.cli.main import app

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"

# One or more of every command that ends in a moment; files are those of `folder`.
LINES = """
map small.yaml --gap 0.5 --json out.json --html out.html --svg out.svg --kernels
map small.txt --time-limit 1 --rules dfmodel-e4 --jobs 1
map small.yaml --start result.json --work-limit 1e9 --set system.memory.bandwidth=1GB/s
evaluate small.yaml --mapping result.json --rules crosstack --svg out.svg
show small.yaml --given RC-2-1-d1-p1 --svg out.svg
show result.json
show prediction.json
show technology hbm3
generate llm --hidden 64 --heads 4 --sequence 32 --layers 2 --batch 4 -o out.yaml
generate decode --model llama3-8b --context 64 --tokens 2 --batch 4 --block layers
generate prefill --model llama3-8b --sequence 64
generate dlrm --width 64 --bottom 2 --top 2 --tables 4 --rows 100 --embedding-size 8 --samples 16
generate fft --length 4096 --radix 4
generate mamba --hidden 64 --sequence 64 --layers 2
generate hyena --hidden 64 --sequence 64 --convolution scan
convert small.yaml out.txt --result result.json
convert small.txt out.yaml
explain small.yaml --step 0.1 --gap 0.5 --json out.json --svg out.svg
explain result.json --time-limit 1
space small.yaml --rules crosstack
rules
report result.json -o out.html --task small.yaml
report prediction.json -o out.html
serve-sweep small.yaml --model llama3-8b --tp 1,2 --pp 1,2 --batch 1,4 --context 64 --csv out.csv
speculate small.yaml --draft llama-68m --target llama-68m --context 64 --window 2 --acceptance 0.8
chip generate chip.yaml --set node=N3 -o out.yaml --json out.json
predict --on a100-pcie-80gb --gemm 64,64,64 --json out.json
predict chip.yaml --model lstm-lm-40k --given RC-1-1-d1-p1 --batch 64 --json out.json
predict --on a100-dgx-80gb --model gpt-22b --given RC-1-8-d1-p1 --microbatches 4 --recompute full
predict --on a100-dgx-80gb --model gpt-22b --given RC-1-4-d1-p4 --package 4x4 --torus
trace chip.yaml --model lstm-lm-40k --given RC-1-1-d1-p1 -o out.json --svg out.svg
place RC-4-2-d8-p1 --package 4x4 --packages 2x2 --all --json out.json --svg out.svg
sweep study.yaml --jobs 1 --store new.store --resume
study init new.yaml --base small.yaml
study show study.yaml --top 3
study show study.store --study study.yaml
study plot study.store --x memory_used --y time -o out.svg --front
study export study.store -o out.csv
report study.store -o out.html
optimize search.yaml --set search.evaluations=3 --json out.json --store out.store --resume
codesign front.yaml --set search.evaluations=2 --json out.json --svg out.svg --jobs 1
figure nowhere -o out
""".strip().splitlines()

VALUES = [
    "-1", "0", "1", "3", "7", "nan", "inf", "-inf", "1e400", "1e-400", "9" * 40, "x", "", " ",
    "0.5", "3 GB", "é\u2028", "[red]", "\x1b[31m", "--", "-x", "--nothing", "a=b", "=", "1,2",
    "1,x", "1,,2", "8,8,8", "0x4", "4x2", "RC-1-1-d1-p1", "RC-0-1-d1-p1", "RC-3-1-d1-p1", "tp=2",
    "tensor", "h100", "llama3-8b", "gpt3-175b", "crosstack", "deepflow-2025", "dfmodel-e3b",
    "system.n_chips=3", "workload.global_batch_size=nan", "a[0]=3", "system.network[9].size=2",
    "time", "N5", "hbm3",
]  # fmt: skip
NUMBERS = ["0", "1", "2", "3", "4", "5", "8", "16", "100", "1e9", "0.3", "-1", "2147483648"]
FILES = {
    "empty.yaml": b"", "empty.json": b"", "binary.yaml": bytes(range(256)),
    "binary.json": bytes(range(256)), "object.json": b"{}", "list.json": b"[]",
    "number.json": b"3", "deep.json": b"[" * 3000, "list.yaml": b"[1, 2]", "number.yaml": b"3",
    "nan.yaml": b"workload: .nan\nsystem: .inf", "loop.yaml": b"a: &a [*a]",
    "tab.yaml": b"a:\n\t- b", "word.txt": b"x",
}  # fmt: skip
STUDY = """\
base: small.yaml
axes:
  memory: {path: system.memory.bandwidth, values: [10 GB/s, 20 GB/s]}
objectives: {time: min, memory_used: min}
"""


@pytest.fixture(scope="module")
def folder(run, small_text, dfmodel_text, small_result, tmp_path_factory):
    """Return a directory with good files and bad ones."""
    place = tmp_path_factory.mktemp("arguments")
    for name, content in FILES.items():
        (place / name).write_bytes(content)
    (place / "small.yaml").write_text(small_text)
    (place / "small.txt").write_text(dfmodel_text)
    (place / "result.json").write_text(small_result)
    (place / "study.yaml").write_text(STUDY)
    for name, source in {
        "chip.yaml": "chips/n5_hbm3.yaml",
        "front.yaml": "codesign/llama3_decode.yaml",
        "search.yaml": "optimize/lstm_64.yaml",
    }.items():
        text = (EXAMPLES / source).read_text()
        for part in ("../chips/n5_hbm3.yaml", "chip.yaml"):
            text = text.replace(f"chip: {part}", f"chip: {(EXAMPLES / source).parent / part}")
        # Few strategies of few chips: each is mapped, which takes a second.
        text = text.replace("chips: 64", "chips: 4\nbatch: 128\nstrategies: [RC-1-1-d4-p1]")
        (place / name).write_text(text)
    (place / "directory").mkdir()
    with contextlib.chdir(place):
        saved = run(
            "predict", "--on", "a100-pcie-80gb", "--gemm", "64,64,64", "--json", "prediction.json"
        )
        swept = run("sweep", "study.yaml", "--jobs", 1, "--store", "study.store")
    assert (saved.code, swept.code) == (0, 0), saved.err + swept.err
    return place


def options_of(words):
    """Return the options of the command that a line calls."""
    command = typer.main.get_command(app)
    for word in words:
        command = getattr(command, "commands", {}).get(word)
        if command is None:
            return []
        if not hasattr(command, "commands"):
            break
    return [option for p in command.params if p.param_type_name == "option" for option in p.opts]


def changed(words, rng, names):
    """Return a line with one to three arguments exchanged, dropped, doubled or added."""
    words = list(words)
    options = [o for o in options_of(words) if o not in ("--help", "-h", "--dask", "--jobs")]
    for _ in range(rng.choice((1, 1, 2))):
        values = [at for at, word in enumerate(words) if at and not word.startswith("-")]
        numbers = [at for at in values if re.search(r"\d", words[at]) and "." not in words[at]]
        value = rng.choice(VALUES) if rng.random() < 0.6 else rng.choice(names)
        action = rng.random()
        if action < 0.6 and numbers:
            at = rng.choice(numbers)
            words[at] = re.sub(r"\d+", lambda _: rng.choice(NUMBERS), words[at])
        elif action < 0.8 and values:
            words[rng.choice(values)] = value
        elif action < 0.9 and options:
            words += [rng.choice(options), value]
        elif len(words) > 1:
            words.pop(rng.randrange(1, len(words)))
    return words


def check(run, words):
    outcome = run(*words)
    told = f"{shlex.join(words)}\n{outcome.err}"
    assert outcome.code in (0, 2, 3, 4), told
    assert "a bug" not in outcome.err, told
    assert "Traceback" not in outcome.out + outcome.err, told
    if outcome.code in (2, 3):  # a command without any argument prints its help
        assert outcome.problems or "Usage: " in outcome.out, told


def lines(run, folder, seed, count, monkeypatch):
    monkeypatch.chdir(folder)
    rng = random.Random(seed)
    names = [*FILES, "missing.yaml", "directory", "small.yaml", "small.txt", "result.json",
             "prediction.json", "study.yaml", "study.store", "chip.yaml"]  # fmt: skip
    for _ in range(count):
        check(run, changed(shlex.split(rng.choice(LINES)), rng, names))


@pytest.mark.slow
def test_the_lines_are_good_as_they_are(run, folder, monkeypatch):
    monkeypatch.chdir(folder)
    for line in LINES:
        outcome = run(*shlex.split(line))
        assert outcome.code == (2 if "nowhere" in line else 0), f"{line}\n{outcome.err}"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_random_arguments_are_never_a_bug(run, folder, seed, monkeypatch):
    lines(run, folder, seed, 60, monkeypatch)
