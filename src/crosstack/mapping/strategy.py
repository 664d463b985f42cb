"""Parallelism strategies ``RC-{kp1}-{kp2}-d{dp}-p{lp}`` and ``CR-{kp1}-d{dp}-p{lp}``.

Behind either, ``-c{cp}`` says how many chips share each sequence, ``-e{ep}`` how many of the ``dp``
replicas have parts of the experts each, and ``-t{etp}`` over how many of the tensor-parallel chips
each expert is cut (`crosstack.mapping.degrees`).

Source: ``ardalani2022deepflow``, section 3.3. *RC* cuts the first matrix of a product into ``kp1``
blocks of rows and the second into ``kp2`` blocks of columns (inner products). *CR* cuts the first
along its columns and the second along its rows, ``kp1`` ways (outer products). ``dp`` replicas
share the batch, ``lp`` stages share the layers.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import StrEnum

from crosstack.errors import InputError, Problem, nearest, require, require_whole, unknown_name
from crosstack.mapping.degrees import expert_chips, groups_words
from crosstack.model.tiles import divisors
from crosstack.workload.product import product_of

_MORE = r"-d(?P<dp>\d+)-p(?P<lp>\d+)(-c(?P<cp>\d+))?(-e(?P<ep>\d+))?(-t(?P<etp>\d+))?"
_RC = re.compile(r"RC-(?P<kp1>\d+)-(?P<kp2>\d+)" + _MORE, re.I)
_CR = re.compile(r"CR-(?P<kp1>\d+)" + _MORE, re.I)
_DEGREE = re.compile(r"(tp|cp|pp|dp|etp|ep)=(\d+)", re.IGNORECASE)
# Columns of a product, chips of a sequence, stages, replicas, and those with parts of the experts.
_FIELD = {"tp": "kp2", "cp": "cp", "pp": "lp", "dp": "dp", "ep": "ep", "etp": "etp"}
_ALLOWED = (
    "RC-{kp1}-{kp2}-d{dp}-p{lp}, CR-{kp1}-d{dp}-p{lp} or tp={kp2},cp={cp},pp={lp},dp={dp},ep={ep},"
    "etp={etp}, such as RC-4-2-d8-p1, CR-4-d2-p1 or tp=8,pp=4"
)


class KernelSplit(StrEnum):
    """How one matrix product is split over chips: RC rows by columns, CR along the sum."""

    RC = "RC"
    CR = "CR"


class ParallelDimension(StrEnum):
    """The four parallel dimensions; a ring joins the chips of each but ``LP``, which is a line."""

    KP1 = "kp1"
    KP2 = "kp2"
    DP = "dp"
    LP = "lp"


MappingOrder = tuple[ParallelDimension, ...]  # innermost first: its chips are the nearest
NESTED: MappingOrder = tuple(ParallelDimension(name) for name in ("kp2", "kp1", "dp", "lp"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """A kernel split with its degrees, data-parallel replicas and pipeline stages. [1]

    ``ep`` of the replicas each have a part of the routed experts; ``cp`` chips share the tokens of
    each sequence. ``etp`` of the tensor-parallel chips cut each expert: one, some or all; None: as
    is decided. Where it is said, ``ep`` is how many parts the experts are in. [1]
    """

    split: KernelSplit = KernelSplit.RC
    kp1: int = 1
    kp2: int = 1
    dp: int = 1
    lp: int = 1
    ep: int = 1
    cp: int = 1
    etp: int | None = None

    def __post_init__(self) -> None:
        """Check every degree."""
        for dimension in ParallelDimension:
            require_whole(dimension.value, self.degree(dimension), what="chips")
        for name in ("ep", "cp"):
            require_whole(name, getattr(self, name), what="chips")
        if self.etp is not None:
            require_whole("etp", self.etp, what="chips")
        chips = self.expert_chips
        allowed = f"a divisor of the data-parallel degree, {self.dp}"
        if self.ep != chips and self.etp:
            allowed += f", times {groups_words(self.tensor, self.etp)}"
        require(self.dp % chips == 0, "ep", self.ep, allowed)
        if self.split is KernelSplit.CR:
            require(self.kp2 == 1, "kp2", self.kp2, "1 under CR, which splits one axis only")

    def degree(self, dimension: ParallelDimension) -> int:
        """Return how many chips a dimension uses. [1]"""
        return int(getattr(self, dimension.value))

    @property
    def tensor(self) -> int:
        """Tensor-parallel chips. [1]"""
        return self.kp1 if self.split is KernelSplit.CR else self.kp2

    @property
    def expert_chips(self) -> int:
        """Data-parallel chips that have parts of the experts. [1]"""
        try:
            return expert_chips(self.ep, self.etp, self.tensor)
        except InputError as error:
            raise error.renamed({"expert": "ep", "expert_tensor": "etp"}) from None

    @property
    def n_chips(self) -> int:
        """All chips: ``kp1 kp2 dp lp cp``. [1]"""
        return self.kp1 * self.kp2 * self.dp * self.lp * self.cp

    def __str__(self) -> str:
        """Return the strategy as `parse_strategy` reads it."""
        columns = f"-{self.kp2}" if self.split is KernelSplit.RC else ""
        more = "".join(f"-{name[0]}{n}" for name in ("cp", "ep") if (n := getattr(self, name)) > 1)
        more += "" if self.etp is None else f"-t{self.etp}"
        return f"{self.split}-{self.kp1}{columns}-d{self.dp}-p{self.lp}{more}"


def parse_strategy(text: str, chips: int | None = None) -> Strategy:
    """Read a strategy from its name, or from degrees such as ``tp=8,pp=4,dp=16``.

    Tensor-parallel chips are the columns of RC; a degree that is left out is 1, but for ``etp``,
    which is decided, and for ``dp`` where it is said how many ``chips`` there are [1]. Chips with
    parts of the experts are data-parallel ones, so ``ep`` divides ``dp``; with an ``etp`` below
    ``tp`` they are tensor-parallel ones besides, so ``ep etp`` divides ``tp dp``, and ``ep`` is
    ``tp / etp`` if it is left out.

    Raises
    ------
    InputError
        If the text is not one, a degree is 0, or there are other ``chips``.
    """
    parts = [_DEGREE.fullmatch(part.strip()) for part in text[:200].split(",")]
    found = {_FIELD[part[1].lower()]: part[2] for part in parts if part}
    sums = _CR.fullmatch(text.strip())
    match = sums or _RC.fullmatch(text.strip())
    if len(found) < len(parts):
        found = {} if match is None else match.groupdict()
    split = KernelSplit.RC if sums is None else KernelSplit.CR
    if not found or len(text) >= 200:
        close = nearest(text, ("RC-4-2-d8-p1", "CR-4-d8-p1", "tp=8,pp=4,dp=16"), 1)
        hint = f' Did you mean a form like "{close[0]}"?' if close else ""
        raise InputError(Problem("strategy", f"got {text[:60]!r}; allowed: {_ALLOWED}.{hint}"))
    named = {name: int(n) for name, n in found.items() if n}
    if named.get("etp"):
        tensor = named.get("kp2" if split is KernelSplit.RC else "kp1", 1)
        named.setdefault("ep", max(tensor // named["etp"], 1))
    shared = math.prod(n for name, n in named.items() if name in ("kp1", "kp2", "lp", "cp"))
    if chips is not None and shared and chips % shared == 0:
        named.setdefault("dp", chips // shared)
    try:
        made = Strategy(split=split, **named)
    except InputError as error:
        raise error.under("strategy") from None
    if chips is not None and made.n_chips != chips:
        came = f"got {text[:60]!r}, of {made.n_chips:,} chips"
        raise InputError(Problem("strategy", f"{came}; allowed: of {chips:,}, as there are."))
    return made


def parse_order(text: str) -> MappingOrder:
    """Read a mapping order, the innermost dimension first: ``kp1,kp2,dp,lp``.

    Raises
    ------
    InputError
        If a name is none of the dimensions, or comes twice.
    """
    names = [part.strip().lower() for part in text[:200].split(",")]
    known = [dimension.value for dimension in ParallelDimension]
    for name in names:
        if name not in known:
            raise unknown_name("order", "dimension is", name, known)
    if len(set(names)) < len(names):
        message = f"got {text[:60]!r}; allowed: each dimension once, as in kp2,kp1,dp,lp."
        raise InputError(Problem("order", message))
    return tuple(ParallelDimension(name) for name in names)


def whole_order(strategy: Strategy, order: MappingOrder) -> MappingOrder:
    """Return an order of all dimensions; those of one shard may be left out, and come last.

    Raises
    ------
    InputError
        If it leaves out a dimension of several shards, or names one twice.
    """
    require(len(set(order)) == len(order), "order", ",".join(order), "each dimension once")
    left = [dimension for dimension in ParallelDimension if dimension not in order]
    missing = [d.value for d in left if strategy.degree(d) > 1]
    if missing:
        message = (
            f"got {','.join(order)}, which leaves out {', '.join(missing)} of {strategy}; allowed: "
            "every dimension above 1, innermost first."
        )
        raise InputError(Problem("order", message))
    return (*order, *left)


def strategies(n_chips: int, *, max_lp: int | None = None) -> tuple[Strategy, ...]:
    """Return every strategy that uses exactly ``n_chips`` chips, each once.

    Without a kernel split RC and CR are the same; it is listed as RC. ``max_lp`` bounds the
    number of pipeline stages, by the layers of a model for example. [1]

    Raises `InputError` if ``n_chips`` is no whole number above 0.
    """
    require_whole("n_chips", n_chips, what="chips")
    found = []
    for kp1 in divisors(n_chips):
        for lp in divisors(n_chips // kp1):
            if max_lp is not None and lp > max_lp:
                continue
            rest = n_chips // kp1 // lp
            found += [Strategy(kp1=kp1, kp2=n, dp=rest // n, lp=lp) for n in divisors(rest)]
            if kp1 > 1:
                found.append(Strategy(split=KernelSplit.CR, kp1=kp1, dp=rest, lp=lp))
    return tuple(sorted(found, key=lambda s: (s.split is KernelSplit.CR, s.kp1, s.kp2, s.dp)))


def share_of(extent: int, degree: int) -> int:
    """Part of an extent on the fullest chip. [1]"""
    return -(-extent // degree)


def own_shape(m: int, k: int, n: int, strategy: Strategy) -> tuple[int, int, int]:
    """Return the extents of a product split forward that are on the fullest chip. [1]"""
    if strategy.split is KernelSplit.CR:
        return m, share_of(k, strategy.kp1), n
    return share_of(m, strategy.kp1), k, share_of(n, strategy.kp2)


def product_share(step: object, strategy: Strategy) -> tuple[int, int, int] | None:
    """Return M, K and N of a single product on the fullest chip; None of anything else. [1]"""
    product = product_of(step)
    return None if product is None else own_shape(product.m, product.k, product.n, strategy)
