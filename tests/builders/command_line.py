"""Arguments of a command, and a machine that serves a model of 8B parameters."""

from __future__ import annotations

from pathlib import Path


def options(usual: dict[str, object], **changes: object) -> list[object]:
    """Return options with their values: the usual ones, some of them changed."""
    given = {**usual, **{f"--{name}": value for name, value in changes.items()}}
    return [part for pair in given.items() for part in pair]


def give_machine(file: Path, memory: str) -> Path:
    """Put four chips of the SN40L, each with so much main memory, into a file of a task."""
    text = file.read_text()
    file.write_text(
        text[: text.index("system:")] + "system:\n  name: rdu\n"
        "  chip: {n_cores: 1040, lanes: 32, stages: 6, frequency: 1.6GHz, sram_capacity: 520MB}\n"
        f"  memory: {{bandwidth: 1638GB/s, capacity: {memory}}}\n"
        "  network: [{kind: ring, size: 4, bandwidth: 50GB/s, parallelism: tensor}]\n"
    )
    return file
