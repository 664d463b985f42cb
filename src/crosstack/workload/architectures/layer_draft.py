"""A kind of layer as it is written down: weights, norms, projections, what is kept of tokens."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from crosstack.workload.architectures.layer import LayerKind, Norm
from crosstack.workload.architectures.transformer import Transformer
from crosstack.workload.axes import AxisUse, Causal
from crosstack.workload.draft import Draft, Read
from crosstack.workload.dtype import Dtype
from crosstack.workload.functions import Function
from crosstack.workload.operations import Role

TOKENS = "batch sequence"
HIDDEN = f"{TOKENS} hidden"
DROPPED = 0.1  # share of the elements: ``radford2019gpt2`` and Megatron alike; costs nothing
EPSILON = 1e-5  # keeps the root of a norm from zero


@dataclass(slots=True, kw_only=True)
class LayerDraft:
    """Layers of one kind, which repeat along an axis of their own.

    ``kind`` is what is particular to these layers, ``label`` what names of theirs begin with, empty
    where all layers are of one kind; ``axis`` is what they repeat along, empty: what is added runs
    once. ``cached`` tokens of before have keys and values that they read [1]; ``keeps``: whether
    keys and values are kept for later; ``absorbed``: whether latent attention keeps the latent
    vector, and makes no keys and values of it; ``drops``: whether some elements are left out, as in
    training where the model has dropout. An expert takes at most ``capacity`` times an even
    share of the tokens. [1] ``document``: tokens of each of the documents that a sequence is packed
    of, 0: it is one. [1]
    """

    draft: Draft
    model: Transformer
    kind: LayerKind = field(default_factory=LayerKind)
    label: str = ""
    axis: str = ""
    cached: int = 0
    keeps: bool = False
    absorbed: bool = False
    drops: bool = False
    capacity: float = 1.0
    document: int = 0

    def named(self, name: str) -> str:
        """Return the name of something in these layers."""
        return f"{self.label}{name}"

    @property
    def n_tokens(self) -> int:
        """New tokens of all sequences. [1]"""
        return self.size("batch") * self.size("sequence")

    def size(self, axis: str) -> int:
        """Return how long an axis is. [1]"""
        return next(known.size for known in self.draft.axes if known.name == axis)

    def axes(self, use: AxisUse = AxisUse.FEATURE, /, **sizes: int) -> None:
        """Add those axes that are not there yet."""
        known = {axis.name for axis in self.draft.axes}
        self.draft.axis(use, **{name: size for name, size in sizes.items() if name not in known})

    # ------------------------------------------------------------ keys

    @property
    def context(self) -> str:
        """The axis of the tokens of before that these layers look at."""
        return "window_context" if self.cached and self.kind.window else "context"

    @property
    def keys(self) -> str:
        """The axis of all tokens that these layers look at."""
        return "window_key_sequence" if self.cached and self.kind.window else "key_sequence"

    @property
    def seen(self) -> Causal:
        """Which keys a query sees."""
        about = {"window": self.kind.window, "document": self.document}
        return Causal(query="sequence", key=self.keys, **about)

    def keep(self, name: str) -> None:
        """Keep what was made of the new tokens, for every layer."""
        made = self.draft.tensors[name]
        axes = (self.axis, *made.axes)
        self.draft.tensors[name] = replace(made, axes=axes, role=Role.KV_CACHE)

    def with_past(self, name: str, new: str, rest: str) -> Read:
        """Return ``name`` of all tokens, what is kept first, then ``new`` of the new ones.

        ``rest`` are its axes besides those of tokens.
        """
        if self.keeps and not self.absorbed:
            self.keep(new)
        axes = f"batch {self.keys} {rest}"
        if not self.cached:
            return self.draft.seen(new, axes)
        kept = self.draft.tensor(
            self.named(f"{name}_kept"), f"{self.axis} batch {self.context} {rest}", Role.KV_CACHE
        )
        return self.make(f"{name}_all", Function.CONCATENATE, kept, new, axes=axes, over=self.keys)

    # ------------------------------------------------------------ operations

    def weight(self, name: str, axes: str) -> str:
        """Add a weight that each of the layers has."""
        return self.draft.weight(self.named(name), f"{self.axis} {axes}")

    def make(self, name: str, function: Function, *reads: Read, **more: Any) -> str:
        """Add an operation, see `Draft.make`."""
        return self.draft.make(self.named(name), function, *reads, **more)

    def rows(self, name: str, function: Function, *reads: Read, over: str, **more: Any) -> str:
        """Add a reduction that keeps axes, see `Draft.rows`."""
        return self.draft.rows(self.named(name), function, *reads, over=over, **more)

    def reduced(self, name: str, function: Function, *reads: Read, over: str) -> str:
        """Add a reduction that loses axes, see `Draft.reduced`."""
        return self.draft.reduced(self.named(name), function, *reads, over=over)

    def add(self, name: str, one: Read, other: Read) -> str:
        """Add up two tensors; the result has the axes of the first."""
        return self.make(name, Function.ADD, one, other, axes=" ".join(self.draft.names(one)))

    def product(self, name: str, read: Read, weight: str, axes: str, *, bias: str = "") -> str:
        """Multiply by a weight, and add a bias with some axes, where there is one."""
        made = self.draft.product(self.named(name), read, weight, axes)
        if bias:
            made = self.add(f"{name}_biased", made, self.weight(f"b_{name}", bias))
        return made

    def projected(self, name: str, read: Read, into: str, out: str, *, bias: str = "") -> str:
        """Multiply tokens by a weight with axes ``into`` that are added up, and ``out``."""
        weight = self.weight(f"w_{name}", f"{into} {out}")
        return self.product(name, read, weight, f"{TOKENS} {out}", bias=bias)

    def dropped(self, name: str, read: str, **more: Any) -> str:
        """Leave out a share of the elements, where the layers do.

        Which ones is told by a mask of a byte an element (``korthikanti2023reducing``, section
        4.1); ``more`` is as of `make`.
        """
        if not self.drops:
            return read
        axes = " ".join(self.draft.names(read))
        kept = self.named(f"{name}_mask")
        self.draft.tensor(kept, f"{self.axis} {axes}".strip(), Role.MASK, dtype=Dtype.INT8)
        return self.make(
            f"{name}_dropped", Function.DROPOUT, read, kept, axes=axes, parameter=DROPPED, **more
        )

    def norm(self, name: str, read: str, over: str = "hidden", kind: Norm | None = None) -> str:
        """Norm the places of an axis, as the model does unless a kind is given."""
        layer = (kind or self.model.norm) is Norm.LAYER
        weights = [self.weight(f"{name}_scale", over)]
        weights += [self.weight(f"{name}_shift", over)] if layer else []
        function = Function.LAYER_NORM if layer else Function.RMS_NORM
        return self.rows(name, function, read, *weights, over=over, parameter=EPSILON)
