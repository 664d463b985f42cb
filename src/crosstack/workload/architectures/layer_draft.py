"""A kind of layer as it is written down: weights, norms, projections, what is kept of tokens."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from crosstack.workload.architectures.layer import LayerKind, Norm
from crosstack.workload.architectures.transformer import Transformer
from crosstack.workload.axes import AxisUse, Causal
from crosstack.workload.draft import Draft, Read
from crosstack.workload.functions import Function
from crosstack.workload.operations import Role

TOKENS = "batch sequence"
HIDDEN = f"{TOKENS} hidden"
EPSILON = 1e-5  # keeps the root of a norm from zero


@dataclass(slots=True, kw_only=True)
class LayerDraft:
    """Layers of one kind, which repeat along an axis of their own.

    Parameters
    ----------
    draft : Draft
        Of the whole graph.
    model : Transformer
        The shape.
    kind : LayerKind
        What is particular to these layers.
    label : str
        What names of theirs begin with; empty where all layers are of one kind.
    axis : str
        The axis that they repeat along; empty: what is added runs once.
    cached : int
        Tokens of before whose keys and values these layers read. [1]
    keeps : bool
        Whether keys and values are kept for later.
    absorbed : bool
        Whether latent attention keeps the latent vector, and makes no keys and values of it.
    capacity : float
        Tokens that an expert takes at most, of an even share of them. [1]
    """

    draft: Draft
    model: Transformer
    kind: LayerKind = field(default_factory=LayerKind)
    label: str = ""
    axis: str = ""
    cached: int = 0
    keeps: bool = False
    absorbed: bool = False
    capacity: float = 1.0

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
        return self._keys("context")

    @property
    def keys(self) -> str:
        """The axis of all tokens that these layers look at."""
        return self._keys("key_sequence")

    def _keys(self, name: str) -> str:
        return f"window_{name}" if self.cached and self.kind.window else name

    @property
    def seen(self) -> Causal:
        """Which keys a query sees."""
        return Causal(query="sequence", key=self.keys, window=self.kind.window)

    def keep(self, name: str) -> None:
        """Keep what was made of the new tokens, for every layer."""
        made = self.draft.tensors[name]
        axes = (self.axis, *made.axes)
        self.draft.tensors[name] = replace(made, axes=axes, role=Role.KV_CACHE)

    def with_past(self, name: str, new: str, rest: str) -> Read:
        """Return something of all tokens, what is kept of before first.

        Parameters
        ----------
        name : str
            Of it.
        new : str
            The same of the new tokens.
        rest : str
            Its axes besides those of tokens.
        """
        if self.keeps and not self.absorbed:
            self.keep(new)
        axes = f"batch {self.keys} {rest}"
        if not self.cached:
            return self.draft.seen(new, axes)
        kept = self.draft.tensor(
            self.named(f"{name}_kept"), f"{self.axis} batch {self.context} {rest}", Role.KV_CACHE
        )
        return self.draft.make(
            self.named(f"{name}_all"), Function.CONCATENATE, kept, new, axes=axes, over=self.keys
        )

    # ------------------------------------------------------------ operations

    def weight(self, name: str, axes: str) -> str:
        """Add a weight that each of the layers has."""
        return self.draft.weight(self.named(name), f"{self.axis} {axes}")

    def make(
        self, name: str, function: Function, *reads: Read, axes: str, parameter: float = 0.0
    ) -> str:
        """Add an operation on single elements."""
        return self.draft.make(self.named(name), function, *reads, axes=axes, parameter=parameter)

    def add(self, name: str, one: Read, other: Read) -> str:
        """Add up two tensors; the result has the axes of the first."""
        return self.make(name, Function.ADD, one, other, axes=" ".join(self.draft.names(one)))

    def product(self, name: str, read: Read, weight: str, axes: str, *, bias: str = "") -> str:
        """Multiply by a weight, and add a bias with some axes, where there is one."""
        made = self.draft.product(self.named(name), read, weight, axes)
        if bias:
            made = self.add(f"{name}_biased", made, self.weight(f"b_{name}", bias))
        return made

    def norm(self, name: str, read: str, over: str = "hidden", kind: Norm | None = None) -> str:
        """Norm the places of an axis, as the model does unless a kind is given."""
        layer = (kind or self.model.norm) is Norm.LAYER
        weights = [self.weight(f"{name}_scale", over)]
        weights += [self.weight(f"{name}_shift", over)] if layer else []
        return self.draft.rows(
            self.named(name), Function.LAYER_NORM if layer else Function.RMS_NORM, read, *weights,
            over=over, parameter=EPSILON,
        )  # fmt: skip
