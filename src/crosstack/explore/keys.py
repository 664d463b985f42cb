"""The key of a point: a hash of its problem and of the model that answers it.

A problem is the base's tree with fields changed, the options of the evaluator, and what is kept:
leaves, each a path and a value. The key is the exclusive-or of 128-bit hashes of all leaves, so
that it does not depend on their order, and that of a million points comes from a hash a *value*,
not a hash a point. Numbers are hashed as arrays: BLAKE2 of the path, mixed with the bits of the
number in two words, so that two numbers in one place never have one hash.

The model is crosstack's version with a hash of the source of every package whose formulas may enter
an answer.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crosstack.explore.axes import Assignment
from crosstack.explore.flat import leaves
from crosstack.version import __file__ as version_file
from crosstack.version import __version__

__all__ = [
    "KEY_BYTES",
    "Keys",
    "as_bytes",
    "as_words",
    "changes_key",
    "from_bytes",
    "hex_keys",
    "is_in",
    "model_version",
    "number_keys",
    "point_keys",
    "problem_key",
    "source_hash",
    "stated",
]

KEY_BYTES = 16
MODEL = (
    "units.py", "workload", "technology", "machine", "model", "mapping", "evaluate", "io",
    "published", "data", "explore/budget_space.py", "explore/design.py", "explore/machines.py",
)  # fmt: skip
Keys = NDArray[np.uint64]


@cache
def model_version() -> str:
    """Return what tells apart two states of the model: ``0.3.0+1f0c9a...``."""
    return f"{__version__}+{source_hash(*MODEL)}"


def source_hash(*names: str) -> str:
    """Return a hash of the source of packages and modules, by their place in crosstack's."""
    root = Path(version_file).parent
    digest = hashlib.blake2b(digest_size=6)
    for name in names:
        top = root / name
        files = [top] if top.is_file() else sorted(top.rglob("*"))
        for file in files:
            if file.suffix in (".py", ".yaml"):
                digest.update(file.relative_to(root).as_posix().encode())
                digest.update(hashlib.blake2b(file.read_bytes()).digest())
    return digest.hexdigest()


def _digest(*parts: Any) -> int:
    text = json.dumps(parts, ensure_ascii=True)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=KEY_BYTES).digest(), "little")


def _hash(path: str, value: Any) -> int:
    if _is_number(value):
        return _as_int(_number_hashes(path, np.array([value], dtype=float)))
    return _digest(path, value)


def _is_number(value: Any) -> bool:
    """Return whether a value is a number that a float holds: 1 and 1.0 are one value in a file."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isinstance(value, float) or (abs(value) < 2**1023 and int(float(value)) == value)


def _number_hashes(path: str, numbers: NDArray[np.float64]) -> Keys:
    """Return the hashes of numbers at a path."""
    bits = (numbers + 0.0).view(np.uint64)  # -0 is 0
    keys = np.empty((len(bits), 2), dtype=np.uint64)
    for word, start in enumerate(as_words([_digest(path)])[0]):
        keys[:, word] = _mixed(_mixed(bits ^ start) + start)
    return keys


def _mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return words mixed, one to one: the last step of SplitMix64 (``steele2014splittable``)."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        words = (words ^ (words >> np.uint64(shift))) * np.uint64(factor)
    return words ^ (words >> np.uint64(31))


def problem_key(tree: Any) -> int:
    """Return the key of nested data, 0 for none."""
    key = 0
    for path, value in leaves(tree):
        key ^= _hash(path, value)
    return key


def changes_key(base: Sequence[tuple[str, Any]], assignments: Iterable[Assignment]) -> int:
    """Return what changes a key when fields of ``base``, its leaves, get other values."""
    paths: list[str] = []
    new: dict[str, Any] = {}
    for path, value in assignments:
        new = {p: v for p, v in new.items() if not _inside(p, path)}
        new.update(leaves(value, path))
        paths.append(path)
    key = 0
    for path, value in base:
        if any(_inside(path, changed) for changed in paths):
            key ^= _hash(path, value)
    for path, value in new.items():
        key ^= _hash(path, value)
    return key


def number_keys(
    base: Sequence[tuple[str, Any]], paths: Sequence[str], numbers: NDArray[np.float64]
) -> Keys:
    """Return `changes_key` of every number, when fields ``paths`` of ``base`` get that number."""
    keys = np.zeros((len(numbers), 2), dtype=np.uint64)
    for path in paths:
        keys ^= _number_hashes(path, numbers)
    removed = 0
    for path, value in base:
        if any(_inside(path, changed) for changed in paths):
            removed ^= _hash(path, value)
    return keys ^ as_words([removed])


def point_keys(problem: Any, names: Sequence[str], points: NDArray[np.float64]) -> list[str]:
    """Return the key of every point of a problem: numbers with ``names``, a point a row."""
    keys = np.broadcast_to(as_words([problem_key(problem)]), (len(points), 2)).copy()
    for name, column in zip(names, np.asarray(points, dtype=float).T, strict=True):
        keys ^= _number_hashes(name, np.ascontiguousarray(column))
    return hex_keys(keys)


def stated(record: object) -> str:
    """Return what a record says of itself, for a key: without where it lies in memory."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(record))


def _inside(path: str, of: str) -> bool:
    return path == of or path.startswith((f"{of}.", f"{of}["))


def _as_int(key: Keys) -> int:
    """Return the one key of an array as a number, as `as_words` takes it."""
    return int.from_bytes(as_bytes(key), "little")


def as_words(keys: Sequence[int]) -> Keys:
    """Return keys as pairs of 64-bit words, shape (n, 2)."""
    return from_bytes(b"".join(key.to_bytes(KEY_BYTES, "little") for key in keys))


def as_bytes(keys: Keys) -> bytes:
    """Return keys as bytes, one after the other."""
    return keys.astype("<u8").tobytes()


def from_bytes(keys: bytes) -> Keys:
    """Return the keys that `as_bytes` wrote."""
    return np.frombuffer(keys, dtype="<u8").reshape(-1, 2)


def hex_keys(keys: Keys) -> list[str]:
    """Return keys as text, 32 hexadecimal digits each."""
    text = as_bytes(keys).hex()
    size = 2 * KEY_BYTES
    return [text[i : i + size] for i in range(0, len(text), size)]


def is_in(keys: Keys, known: Keys) -> NDArray[np.bool_]:
    """Return which of ``keys`` are among ``known``."""
    if not len(known) or not len(keys):
        return np.zeros(len(keys), dtype=bool)
    pair = np.dtype([("a", "<u8"), ("b", "<u8")])
    found, among = (np.ascontiguousarray(k, dtype="<u8").view(pair)[:, 0] for k in (keys, known))
    # The first word decides nearly always; where it is found, the second is looked at too.
    order = np.argsort(among["a"], kind="stable")
    first = among["a"][order]
    left = np.searchsorted(first, found["a"], side="left")
    right = np.searchsorted(first, found["a"], side="right")
    hit = np.zeros(len(keys), dtype=bool)
    second = among["b"][order]
    for step in range(int((right - left).max(initial=0))):
        at = np.minimum(left + step, len(second) - 1)
        hit |= (left + step < right) & (second[at] == found["b"])
    return hit
