"""A transformer in training: which one, and what is done with it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Annotated

from crosstack.errors import (
    InputError,
    Problem,
    require,
    require_quantity,
    require_whole,
    unknown_name,
)
from crosstack.records import Checked, Count, Number, require_types
from crosstack.workload.architectures import ImageModel, Model, Transformer
from crosstack.workload.dtype import Dtype
from crosstack.workload.optimizer import Optimizer
from crosstack.workload.passes.dispatched import DISPATCHES


class Exchange(StrEnum):
    """What the chips of a kernel split send one another between the products of a layer.

    ``GATHERED``: every output, so that any product may follow (``ardalani2022deepflow``).
    ``PAIRED``: the second product of attention and of the feed-forward network takes the rows of
    its weight that match the columns its chip has; their partial sums are added on every chip
    (``shoeybi2019megatron``). ``SEQUENCE``: the same, and each chip is left with the sums of its
    own tokens, so that norms and residual sums are spread too (``korthikanti2023reducing``).
    """

    GATHERED = "gathered"
    PAIRED = "paired"
    SEQUENCE = "sequence"


class Recompute(StrEnum):
    """What is computed again in the backward pass instead of being kept (``chen2016training``).

    ``ATTENTION``: scores, softmax and weighted values, the *selective* recomputation of
    ``korthikanti2023reducing``. ``FULL``: a layer keeps its input alone.
    """

    NONE = "none"
    ATTENTION = "attention"
    FULL = "full"


def recompute_named(said: Recompute | str) -> tuple[Recompute, int | None]:
    """Return what is computed again, and in how many layers: ``full``, or ``full:4`` of its words.

    Layers are the first of every stage, or of every piece of one: Megatron's
    ``--recompute-method block --recompute-num-layers`` (``nvidia_megatron_core``). None: all. [1]

    Raises
    ------
    InputError
        If it is none of those.
    """
    if isinstance(said, Recompute):
        return said, None
    word, colon, count = (part.strip() for part in str(said).partition(":"))
    if word not in list(Recompute):
        raise unknown_name("recompute", "recompute is", word, list(Recompute))
    if not colon:
        return Recompute(word), None
    some = word != Recompute.NONE
    whole = count.isascii() and count.isdecimal() and len(count) <= 6 and int(count) > 0
    require(some and whole, "recompute", said, "attention:N or full:N, N layers, at least 1")
    return Recompute(word), int(count)


def recompute_word(recompute: Recompute, layers: int | None) -> str:
    """Return what `recompute_named` reads: what is computed again, in so many layers. [1]"""
    return recompute.value if layers is None else f"{recompute.value}:{layers}"


class Schedule(StrEnum):
    """In which order a stage takes its microbatches.

    ``GPIPE``: all forward, then all backward (``huang2019gpipe``). ``ONE_F_ONE_B``: as soon as one
    has come back, it goes first (``narayanan2021megatron``), so that stage s of p holds at most
    p - s of them. ``ZB_H1``: as that, but gradients of weights wait until there is nothing else to
    do (``qi2024zero``); at least as many microbatches as stages. ``ZB_H2``: as that, with twice as
    many under way, and ``ZB_V``: with two pieces a stage, the first and the last one on one chip
    (sections 2.3 and 6 there); at least one less than twice as many. ``DUALPIPE``: they enter at
    both ends, and a forward pass runs together with a backward pass, so that tokens are on their
    way to experts while others are computed (``deepseek2024v3``, section 3.2.1); an even number of
    stages, and of microbatches, twice as many at least. ``COMBINED``: one forward, one backward,
    which run together so, of different microbatches (``nvidia_combined_1f1b``); one stage, or
    stages that are cut into pieces.
    """

    GPIPE = "gpipe"
    ONE_F_ONE_B = "1f1b"
    ZB_H1 = "zb-h1"
    DUALPIPE = "dualpipe"
    ZB_H2 = "zb-h2"
    ZB_V = "zb-v"
    COMBINED = "combined-1f1b"

    @property
    def defers_weights(self) -> bool:
        """Whether gradients of weights are computed apart from those of inputs, and later."""
        return self in (Schedule.ZB_H1, Schedule.ZB_H2, Schedule.ZB_V, Schedule.DUALPIPE)

    @property
    def keeps_weights(self) -> bool:
        """Whether layers exchange no weights or gradients when they run."""
        return self.defers_weights or self is Schedule.COMBINED

    @property
    def both_ends(self) -> bool:
        """Whether microbatches enter at both ends, so that each chip has two stages."""
        return self is Schedule.DUALPIPE

    @property
    def pairs(self) -> bool:
        """Whether a forward pass runs together with a backward pass of another microbatch."""
        return self in (Schedule.DUALPIPE, Schedule.COMBINED)

    @property
    def ends_meet(self) -> bool:
        """Whether the chip that the model begins on is also one that it ends on."""
        return self in (Schedule.DUALPIPE, Schedule.ZB_V)

    @property
    def by_events(self) -> bool:
        """Whether no closed form is known: paths are what an iteration takes at least."""
        return self.pairs or self in (Schedule.ZB_H2, Schedule.ZB_V)

    @property
    def searched(self) -> bool:
        """Whether it is tried where no schedule is given."""
        return self not in (Schedule.ZB_H2, Schedule.ZB_V)

    @property
    def ahead(self) -> int:
        """Microbatches that a stage begins before the next one does. [1]"""
        return 2 if self in (Schedule.ZB_H2, Schedule.ZB_V) else 1

    @property
    def pieces(self) -> int | None:
        """Pieces that every stage has, None where there may be any number. [1]"""
        if self in (Schedule.ONE_F_ONE_B, Schedule.COMBINED):
            return None
        return 2 if self is Schedule.ZB_V else 1

    @property
    def at_once(self) -> int:
        """Passes that a chip runs together. [1]"""
        return 2 if self.pairs else 1


class Zero(StrEnum):
    """What data-parallel chips have shares of, instead of all of it each.

    ``NONE``: nothing; ``STATE``: the optimizer's state, of which each updates its part of the
    weights; ``GRADIENTS``: those too; ``WEIGHTS``, or fsdp: weights too (``rajbhandari2020zero``).
    ``HYBRID``: all three, but among the chips that the fastest links join, and each such group has
    all (hybrid sharding, ``zhao2023fsdp`` section 3.2.2).
    """

    NONE = "0"
    STATE = "1"
    GRADIENTS = "2"
    WEIGHTS = "3"
    HYBRID = "hsdp"
    FSDP = "3"

    @property
    def number(self) -> int:
        """Its place in `ZEROS`: each shares what those before it do, but among other chips. [1]"""
        return ZEROS.index(self)


ZEROS: tuple[Zero, ...] = tuple(Zero)


class ContextExchange(StrEnum):
    """How chips that share a sequence come to the keys and values that attention needs.

    ``RING``: blocks of keys and values go round, each worked on while the next one comes
    (``liu2024ringattention``). ``ALL_GATHER``: all of them come before attention, and sums of their
    gradients go back (``grattafiori2024llama3``, section 3.3.2). ``ULYSSES``: tokens of all heads
    are exchanged for all tokens of some heads, and back (``jacobs2023ulysses``).
    """

    RING = "ring"
    ALL_GATHER = "all-gather"
    ULYSSES = "ulysses"


class Hidden(StrEnum):
    """What chips send beside their work, instead of waiting until it is sent.

    ``GRADIENTS``: sums of gradients of a layer, or of a bucket of them, while others run backward
    (``li2020pytorch``, section 3.2). ``WEIGHTS``: what layers bring of weights that data-parallel
    chips have shares of, before they need it (prefetching, ``zhao2023fsdp`` section 3.3).
    ``SENDS``: activations and their gradients from stage to stage, and blocks of keys and values in
    a ring. ``COLLECTIVES``: what chips that share kernels send one another for those, piece by
    piece while the kernels run (``chang2024flux``).
    """

    GRADIENTS = "gradients"
    WEIGHTS = "weights"
    SENDS = "sends"
    COLLECTIVES = "collectives"


def overlap_named(said: str | Iterable[str]) -> tuple[Hidden, ...]:
    """Return what is hidden, each once and in the order of `Hidden`.

    Parameters
    ----------
    said : str or iterable of str
        Words with commas between them, or ``none``; or the words.

    Raises
    ------
    InputError
        If a word is not known, at ``overlap``.
    """
    if isinstance(said, str):
        said = () if said == "none" else said.split(",")
    words = tuple(word.strip() for word in said)
    for word in words:
        if word not in list(Hidden):
            raise unknown_name("overlap", "traffic is", word, [*Hidden, "none"])
    return tuple(kind for kind in Hidden if kind in words)


class Offload(StrEnum):
    """What of a training lies in the memory of a chip's host.

    ``OPTIMIZER``: the optimizer's state with a copy of the gradients, and the host's processors
    update the weights (``ren2021zerooffload``; Megatron's ``--optimizer-cpu-offload``). ``STATE``:
    the optimizer's state, which comes to the chip for the update and goes back
    (``rajbhandari2021zeroinfinity``). ``ACTIVATIONS``: what layers keep for the backward pass.
    """

    OPTIMIZER = "optimizer"
    STATE = "state"
    ACTIVATIONS = "activations"


def offload_named(said: str | Iterable[str]) -> tuple[Offload, ...]:
    """Return what lies in the memory of the host, each once and in the order of `Offload`.

    Parameters
    ----------
    said : str or iterable of str
        Words with ``+`` or commas between them, or ``none``; or the words.

    Raises
    ------
    InputError
        If a word is not known, or the state is updated in two places, at ``offload``.
    """
    if isinstance(said, str):
        said = () if said == "none" else said.replace("+", ",").split(",")
    words = tuple(word.strip() for word in said)
    for word in words:
        if word not in list(Offload):
            raise unknown_name("offload", "what is offloaded is", word, [*Offload, "none"])
    one = not {Offload.OPTIMIZER, Offload.STATE} <= {*words}
    allowed = "optimizer, which the host updates, or state, which the chip does"
    require(one, "offload", "+".join(words), allowed)
    return tuple(kind for kind in Offload if kind in words)


# Fields of a step that take a word.
CHOICES: dict[str, type[StrEnum]] = {
    "exchange": Exchange,
    "recompute": Recompute,
    "schedule": Schedule,
    "zero": Zero,
    "context_exchange": ContextExchange,
    "gradients": Dtype,
    "expert_dispatch": Dtype,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Training(Checked):
    """One step of training, with what is decided of it; None: that is not given.

    Parameters
    ----------
    batch : int
        Sequences or images of one step. [1]
    microbatches, microbatch_size : int
        Parts of a replica's batch that follow one another through the pipeline, or sequences or
        images of each: one of the two. [1]
    recompute, recompute_layers, schedule, zero
        What the backward pass computes again, in how many layers of a stage or of a piece of one
        (None: all, where it is given), in which order a stage takes its microbatches, and what
        data-parallel chips have shares of.
    interleave : int
        Stages on every chip, spread over the model; above 1 with `Schedule.ONE_F_ONE_B`. [1]
    overlap, offload
        As of `crosstack.mapping.mapping.Constraints`.
    gradients, optimizer
        As of a `Job`.
    """

    batch: Count
    microbatches: Count | None = None
    microbatch_size: Count | None = None
    recompute: Recompute | None = None
    recompute_layers: Count | None = None
    schedule: Schedule | None = None
    interleave: Count | None = None
    zero: Zero | None = None
    overlap: tuple[Hidden, ...] | None = None
    offload: tuple[Offload, ...] = ()
    gradients: Dtype | None = None
    optimizer: Optimizer | None = None

    def __post_init__(self) -> None:
        require_types(self)
        one = self.microbatches is None or self.microbatch_size is None
        require(one, "microbatch_size", self.microbatch_size, "none beside microbatches")

    @property
    def exchanged(self) -> Exchange | None:
        """What the chips of a kernel split send one another, where that is said."""
        return None

    @property
    def context_exchanged(self) -> ContextExchange | None:
        """How chips that share a sequence exchange keys and values, where that is said."""
        return None

    @property
    def steps(self) -> float:
        """Steps of a whole training run, 0 where only a step is asked for. [1]"""
        return 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageTraining(Training):
    """A step of training of a model of images."""

    model: ImageModel

    @property
    def name(self) -> str:
        """That of the model, for people."""
        return self.model.name


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformerTraining(Training):
    """A step of training of a transformer.

    Parameters
    ----------
    model : Transformer
        What is trained.
    sequence : int
        Tokens of a sequence. [1]
    exchange, context_exchange
        What the chips of a kernel split send one another, and how chips that share a sequence
        exchange keys and values.
    expert_imbalance, packed : float, int
        As of a `Job`. [1]
    expert_dispatch : Dtype
        As of a `Job`.
    tokens : float
        Of a whole training run, of which a step is a part; 0 where only a step is asked for. [1]
    ideal_stages, communication : int, float
        Of a whole run that is only estimated: stages that its layers are divided by, and what is
        added for communication; a step reads neither. [1], [s]
    """

    model: Transformer
    sequence: Count
    exchange: Exchange | None = None
    context_exchange: ContextExchange | None = None
    expert_imbalance: Number | None = None
    expert_dispatch: Dtype | None = None
    packed: Count | None = None
    tokens: Number = 0.0
    ideal_stages: Count = 1
    communication: Annotated[float, partial(require_quantity, unit="s")] = 0.0

    def __post_init__(self) -> None:
        super(TransformerTraining, self).__post_init__()
        if self.expert_imbalance is not None:
            require_imbalance(self.model, self.expert_imbalance)
        require_dispatch(self.model, self.expert_dispatch)
        if self.packed is not None:
            require_packed(self.packed, self.sequence)

    @property
    def name(self) -> str:
        """That of the model, for people."""
        return self.model.name

    @property
    def exchanged(self) -> Exchange | None:
        """What the chips of a kernel split send one another, where that is said."""
        return self.exchange

    @property
    def context_exchanged(self) -> ContextExchange | None:
        """How chips that share a sequence exchange keys and values, where that is said."""
        return self.context_exchange

    @property
    def steps(self) -> float:
        """Steps of a training run: tokens over those of a step. [1]"""
        return self.tokens / (self.batch * self.sequence)


def require_imbalance(model: Model, imbalance: float) -> None:
    """Raise `InputError` unless a model may have experts that are so unevenly full. [1]"""
    require_quantity("expert_imbalance", imbalance, "1")
    require(imbalance >= 1, "expert_imbalance", imbalance, "1 or more: an even share")
    even = has_experts(model) or imbalance == 1
    require(even, "expert_imbalance", imbalance, f"1: {model.name} has no experts")


def has_experts(model: Model) -> bool:
    """Whether a model has experts that tokens are sent to."""
    return isinstance(model, Transformer) and model.experts is not None


def require_dispatch(model: Model, dtype: Dtype | str | None) -> Dtype | None:
    """Return what a model sends tokens to its experts in, if that is said.

    Raises
    ------
    InputError
        For a model without experts, or a type that nothing is sent in.
    """
    if dtype is None:
        return None
    allowed = f"none: {model.name} has no experts"
    require(has_experts(model), "expert_dispatch", str(dtype), allowed)
    if dtype not in DISPATCHES:
        raise unknown_name("expert_dispatch", "tokens are sent in", str(dtype), list(DISPATCHES))
    return Dtype(dtype)


def transformer_training(step: object) -> TransformerTraining:
    """Return a step of training of a transformer; `InputError` for everything else."""
    if isinstance(step, TransformerTraining):
        return step
    raise InputError(Problem("model", "allowed: a transformer, of which nothing else is known."))


def require_packed(document: int, sequence: int) -> None:
    """Raise `InputError` unless a sequence may be packed of documents of so many tokens. [1]"""
    require_whole("packed", document, what="tokens")
    allowed = f"at most the {sequence:,} tokens of a sequence"
    require(document <= sequence, "packed", document, allowed)


def training_of(step: object) -> Training | None:
    """Return a step that may say how it is trained, None for everything else."""
    return step if isinstance(step, Training) else None
