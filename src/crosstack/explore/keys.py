"""The key of a point: a hash of its problem and of the model that answers it.

A problem is the base's tree with fields changed, the options of the evaluator, and what is kept:
leaves, each a path and a value. The key is the exclusive-or of 128-bit hashes of all leaves, so
that it does not depend on their order, and that of a million points comes from a hash a *value*,
not a hash a point. The model is crosstack's version with a hash of the source of every package
whose formulas may enter an answer.
"""

from __future__ import annotations

import hashlib
import json
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
    "as_words",
    "changes_key",
    "from_hex",
    "hex_keys",
    "is_in",
    "model_version",
    "number_keys",
    "problem_key",
]

KEY_BYTES = 16
MODEL = (
    "units.py", "workload", "technology", "chip", "system", "solve", "model", "mapping",
    "evaluate", "io",
)  # fmt: skip
Keys = NDArray[np.uint64]


@cache
def model_version() -> str:
    """Return what tells apart two states of the model: ``0.3.0+1f0c9a...``."""
    root = Path(version_file).parent
    digest = hashlib.blake2b(digest_size=6)
    for name in MODEL:
        top = root / name
        files = [top] if top.is_file() else sorted(top.rglob("*"))
        for file in files:
            if file.suffix in (".py", ".yaml"):
                digest.update(file.relative_to(root).as_posix().encode())
                digest.update(hashlib.blake2b(file.read_bytes()).digest())
    return f"{__version__}+{digest.hexdigest()}"


def _hash(path: str, value: Any) -> int:
    text = json.dumps([path, value], ensure_ascii=True)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=KEY_BYTES).digest(), "little")


def _same(value: Any) -> Any:
    """Return a number as what equals it: 1 and 1.0 are one value in a file."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    return value


def problem_key(tree: Any) -> int:
    """Return the key of nested data, 0 for none."""
    key = 0
    for path, value in leaves(tree):
        key ^= _hash(path, _same(value))
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
            key ^= _hash(path, _same(value))
    for path, value in new.items():
        key ^= _hash(path, _same(value))
    return key


def number_keys(
    base: Sequence[tuple[str, Any]], paths: Sequence[str], numbers: NDArray[np.float64]
) -> Keys:
    """Return `changes_key` of every number, when fields ``paths`` of ``base`` get that number."""
    keys = np.zeros((len(numbers), 2), dtype=np.uint64)
    values = [repr(_same(value)).encode() for value in numbers.tolist()]
    for path in paths:
        start = json.dumps([path, 0])[:-2].encode()  # up to the value, as `_hash` writes it
        digests = [
            hashlib.blake2b(start + value + b"]", digest_size=KEY_BYTES).digest()
            for value in values
        ]
        keys ^= np.frombuffer(b"".join(digests), dtype="<u8").reshape(-1, 2)
    removed = 0
    for path, value in base:
        if any(_inside(path, changed) for changed in paths):
            removed ^= _hash(path, _same(value))
    return keys ^ as_words([removed])


def _inside(path: str, of: str) -> bool:
    return path == of or path.startswith((f"{of}.", f"{of}["))


def as_words(keys: Sequence[int]) -> Keys:
    """Return keys as pairs of 64-bit words, shape (n, 2)."""
    raw = b"".join(key.to_bytes(KEY_BYTES, "little") for key in keys)
    return np.frombuffer(raw, dtype="<u8").reshape(-1, 2)


def hex_keys(keys: Keys) -> list[str]:
    """Return keys as text, 32 hexadecimal digits each."""
    text = keys.astype("<u8").tobytes().hex()
    size = 2 * KEY_BYTES
    return [text[i : i + size] for i in range(0, len(text), size)]


def from_hex(keys: Iterable[str]) -> Keys:
    """Return the keys that `hex_keys` wrote."""
    return np.frombuffer(bytes.fromhex("".join(keys)), dtype="<u8").reshape(-1, 2)


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
