"""A job: a model, and what is done with it; the graph and the workload that follow from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from typing import Any

from crosstack.errors import InputError, Problem, require, require_whole, unknown_name
from crosstack.records import Count, Number, brief, require_type, require_types
from crosstack.workload.architectures import ImageModel, Model, ResidualNetwork, Transformer
from crosstack.workload.architectures.graphs import decode, forward, prefill, training
from crosstack.workload.dataflow import Graph
from crosstack.workload.dtype import Dtype
from crosstack.workload.graph_workload import require_trained, workload_of
from crosstack.workload.image_draft import IMAGES
from crosstack.workload.lstm import LstmModel, language_model
from crosstack.workload.optimizer import Optimizer, optimizer_named
from crosstack.workload.passes.dispatched import OF_RECIPE, dispatched
from crosstack.workload.passes.quantized import RECIPES, quantized
from crosstack.workload.passes.single_precision_loss import single_precision_loss
from crosstack.workload.product import Product, product
from crosstack.workload.residual_graph import residual_graph
from crosstack.workload.transformer_training import (
    ImageTraining,
    Training,
    TransformerTraining,
    has_experts,
    require_dispatch,
    require_imbalance,
    require_packed,
)
from crosstack.workload.unet_graph import unet_graph
from crosstack.workload.workload import Workload


class JobKind(StrEnum):
    """What is done with a model.

    ``TRAIN``: a step forward and backward. ``FORWARD``: forward alone. ``PREFILL``: prompts are
    read. ``DECODE``: the next tokens of sequences are written, after those whose keys and values
    are kept.
    """

    TRAIN = "train"
    FORWARD = "forward"
    PREFILL = "prefill"
    DECODE = "decode"


_DONE: dict[str, str] = {
    JobKind.TRAIN: "training",
    JobKind.FORWARD: "forward",
    JobKind.PREFILL: "prefill",
    JobKind.DECODE: "decoding",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A model, and one iteration of what is done with it.

    Parameters
    ----------
    model : Transformer, ResidualNetwork or UNet
        What `crosstack.model` returns, or a shape of one's own. What is done with the latter two is
        to train them or to run them forward, on images of which none has a length.
    kind : JobKind or str
        ``train``, ``forward``, ``prefill`` or ``decode``.
    batch : int
        Sequences or images of an iteration, over all chips. [1]
    sequence : int, optional
        Tokens of each; those that decoding writes at a time: 1 where it is left out. [1]
    context : int, optional
        Tokens that decoding kept of each. [1]
    dtype : Dtype or str
        Of weights and activations; of training in FP8 or fewer bits, what products of layers read
        (`crosstack.workload.passes.quantized`), the rest being ``bf16``.
    expert_imbalance : float
        Tokens of the fullest expert over an even share of them, 1 or more: all others wait for it
        (``shazeer2017moe``). [1]
    expert_dispatch : Dtype or str, optional
        What training sends tokens to experts in, ``bf16``, ``fp8``, ``mxfp8`` or ``fp8-blocks``
        (`crosstack.workload.passes.dispatched`); where it is left out, as layers work on them, but
        for a ``dtype`` of ``fp8-blocks``, which sends those.
    packed : int, optional
        Tokens of each of the documents that a sequence to train on is packed of, the last one
        shorter where they do not fill it; tokens see their own document alone
        (``grattafiori2024llama3``, section 3.2). Left out, a sequence is one document. [1]
    block : str
        Which layers are mapped, where a model has several kinds; those that repeat most, if empty.
    gradients : Dtype or str, optional
        What training keeps and sums gradients of weights in, ``fp32`` or ``bf16``; as many bytes as
        rules count where it is left out, 2.
    optimizer : Optimizer or str, optional
        What updates the weights: a name of `crosstack.workload.optimizer.OPTIMIZERS`, or what it
        keeps of each, such as ``14 B``; as many bytes as rules count where it is left out, 12.

    Raises
    ------
    InputError
        If a choice is not known, a number is out of range, or a length is missing or not allowed.
    """

    model: Model
    kind: JobKind | str = JobKind.TRAIN
    batch: Count = 1
    sequence: int | None = None
    context: int | None = None
    dtype: Dtype | str = Dtype.BF16
    expert_imbalance: Number = 1.0
    expert_dispatch: Dtype | str | None = None
    packed: Count | None = None
    block: str = ""
    gradients: Dtype | str | None = None
    optimizer: Optimizer | str | None = None

    __repr__ = brief

    def __post_init__(self) -> None:
        require_types(self)
        self._as_optimizer()
        for name, known in (("kind", JobKind), ("dtype", Dtype), ("gradients", Dtype)):
            value = getattr(self, name)
            if name == "gradients" and value is None:
                continue
            if value not in list(known):
                raise unknown_name(name, f"{name} is", value, list(known))
            object.__setattr__(self, name, known(value))
        if self.kind is not JobKind.TRAIN and Dtype(self.dtype).scaled:
            usual = ", ".join(dtype for dtype in Dtype if not dtype.scaled)
            raise InputError(Problem("dtype", f"{self.dtype}: allowed to train; else: {usual}."))
        if isinstance(self.model, Transformer):
            self._check_lengths()
        else:
            self._check_images()
        require_imbalance(self.model, self.expert_imbalance)
        sent = require_dispatch(self.model, self.expert_dispatch)
        object.__setattr__(self, "expert_dispatch", sent)
        good = sent is None or self.kind is JobKind.TRAIN
        require(good, "expert_dispatch", str(sent), f"none to {self.kind}; to train")
        gradients = None if self.gradients is None else Dtype(self.gradients)
        require_trained(self.kind is JobKind.TRAIN, gradients, self.updating)

    def _check_images(self) -> None:
        """Raise `InputError` for what is said of images that they have not, or is not done."""
        for name in ("sequence", "context", "packed"):
            value = getattr(self, name)
            require(value is None, name, value, f"none: {self.model.name} works on images")
        done = self.kind in (JobKind.TRAIN, JobKind.FORWARD)
        require(done, "kind", str(self.kind), f"train or forward, of {self.model.name}")
        plain = self.dtype not in RECIPES
        usual = ", ".join(dtype for dtype in Dtype if dtype not in RECIPES and not dtype.scaled)
        require(plain, "dtype", str(self.dtype), f"{usual}, of {self.model.name}")
        require(not self.block, "block", self.block, "none: it is mapped as a whole")

    def _check_lengths(self) -> None:
        """Fill in the lengths that follow; raise `InputError` where one is missing or wrong."""
        decoding = self.kind is JobKind.DECODE
        if decoding and self.sequence is None:
            object.__setattr__(self, "sequence", 1)
        if decoding and self.context is None:
            raise InputError(Problem("context", "required to decode: the tokens that are kept."))
        if not decoding and self.context is not None:
            raise InputError(Problem("context", f"allowed to decode; this is to {self.kind}."))
        if self.sequence is None:
            raise InputError(Problem("sequence", f"required to {self.kind}: tokens of each."))
        require_whole("sequence", self.sequence)
        if self.packed is not None:
            training = self.kind in (JobKind.TRAIN, JobKind.FORWARD)
            allowed = f"none to {self.kind}; documents are packed to train on"
            require(training, "packed", self.packed, allowed)
            require_packed(self.packed, self.sequence)
        if self.context is not None:
            require_whole("context", self.context)

    def _as_optimizer(self) -> None:
        """Replace the name of an optimizer by what it is."""
        if isinstance(self.optimizer, str):
            try:
                object.__setattr__(self, "optimizer", optimizer_named(self.optimizer))
            except InputError as error:
                raise error.under("optimizer") from None

    @property
    def updating(self) -> Optimizer | None:
        """The optimizer, where one is said."""
        return self.optimizer if isinstance(self.optimizer, Optimizer) else None

    def __str__(self) -> str:
        """Return what is done with which model, and how much of it."""
        if self.sequence is None:
            images = f"{self.batch:,} image{'' if self.batch == 1 else 's'}"
            return f"{self.name}: {images}, in {self.dtype}"
        kept = f", {self.context:,} kept of each" if self.context else ""
        tokens = f"{self.sequence:,} token{'' if self.sequence == 1 else 's'}"
        sequences = f"{self.batch:,} sequence{'' if self.batch == 1 else 's'}"
        return f"{self.name}: {sequences} of {tokens}{kept}, in {self.dtype}"

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.model.name}, {_DONE[self.kind]}"

    @property
    def graph(self) -> Graph:
        """The graph of operations over named axes, of the whole batch."""
        if isinstance(self.model, ImageModel):
            said: dict[str, Any] = {"images": self.batch, "dtype": Dtype(self.dtype)}
            said["train"] = self.kind is JobKind.TRAIN
            if isinstance(self.model, ResidualNetwork):
                return residual_graph(self.model, **said)
            return unet_graph(self.model, **said)
        recipe = RECIPES.get(Dtype(self.dtype)) if self.kind is JobKind.TRAIN else None
        much: dict[str, Any] = {"batch": self.batch, "dtype": Dtype.BF16 if recipe else self.dtype}
        much["capacity"] = self.expert_imbalance
        much |= {} if self.packed is None else {"document": self.packed}
        assert self.sequence is not None  # both are required where the job is made
        if self.kind is JobKind.DECODE:
            assert self.context is not None
            return decode(self.model, context=self.context, tokens=self.sequence, **much)
        makers: dict[str, Callable[..., Graph]] = {
            JobKind.TRAIN: training, JobKind.FORWARD: forward, JobKind.PREFILL: prefill
        }  # fmt: skip
        made = makers[self.kind](self.model, sequence=self.sequence, **much)
        made = single_precision_loss(made) if self.kind is JobKind.TRAIN else made
        made = quantized(made, recipe) if recipe else made
        sent = self.sent_in
        return made if sent is None else dispatched(made, sent)

    @property
    def sent_in(self) -> Dtype | None:
        """What tokens go to experts in; None: as they are."""
        if self.expert_dispatch is not None:
            return Dtype(self.expert_dispatch)
        training = self.kind is JobKind.TRAIN and has_experts(self.model)
        return OF_RECIPE.get(Dtype(self.dtype)) if training else None

    @property
    def workload(self) -> Workload:
        """What is mapped: all layers with what runs before and behind them, or ``block`` alone."""
        return _workload(self)

    @property
    def left_out(self) -> tuple[tuple[str, int], ...]:
        """Blocks of the graph that are not mapped, and how often each runs. [1]"""
        of = self.workload.made_of
        return () if of is None else of.left_out


@lru_cache(16)
def _workload(job: Job) -> Workload:
    gradients = None if job.gradients is None else Dtype(job.gradients)
    said: dict[str, Any] = {"gradients": gradients, "optimizer": job.updating}
    said["name"] = job.name
    if isinstance(job.model, ImageModel):
        return replace(workload_of(job.graph, items=IMAGES, **said), item="image")
    return workload_of(job.graph, block=job.block, items="batch", **said)


Work = Workload | Job | Product | LstmModel | TransformerTraining | ImageTraining


def is_product(work: Work) -> bool:
    """Return whether a single product is computed, which one chip does without a strategy."""
    return isinstance(work, Product)


def most_stages(work: Work) -> int:
    """Return over how many stages of a pipeline a step may be spread. [1]"""
    if isinstance(work, LstmModel):
        return work.layers + 2
    return work.model.layers if isinstance(work, TransformerTraining) else 1


def _trained(step: TransformerTraining | ImageTraining, dtype: Dtype) -> Job:
    """Return the job of a step of training."""
    said: dict[str, Any] = {
        "model": step.model, "batch": step.batch, "dtype": dtype, "gradients": step.gradients,
        "optimizer": step.optimizer,
    }  # fmt: skip
    if isinstance(step, ImageTraining):
        return Job(**said)
    said |= {"sequence": step.sequence, "packed": step.packed}
    said["expert_dispatch"] = step.expert_dispatch
    return Job(expert_imbalance=step.expert_imbalance or 1.0, **said)


def as_workload(given: Work, dtype: Dtype = Dtype.BF16, *, rows: int = 1) -> Workload:
    """Return a workload, or that of a job or of another record that says what is computed.

    Parameters
    ----------
    given : Workload, Job, Product, LstmModel, TransformerTraining or ImageTraining
        What is computed.
    dtype : Dtype
        What a record computes in that does not say it.
    rows : int
        Into how many pieces the rows of a single product are cut, as items of a batch. [1]

    Raises
    ------
    InputError
        If it is nothing of these, or the rows do not divide.
    """
    require_type("job", given, Work)
    if isinstance(given, Training):
        given = _trained(given, dtype)
    if isinstance(given, Job):
        return given.workload
    if isinstance(given, Product):
        return product(given, rows=rows, dtype=dtype)
    return language_model(given, dtype=dtype) if isinstance(given, LstmModel) else given
