"""Residual convolutional networks over named axes: convolutions, batch norms, sums past a block."""

from __future__ import annotations

from dataclasses import dataclass

from crosstack.workload.architectures.convolution import Convolution
from crosstack.workload.architectures.residual import ResidualNetwork
from crosstack.workload.dataflow import Graph
from crosstack.workload.draft import Draft
from crosstack.workload.dtype import Dtype
from crosstack.workload.functions import Function
from crosstack.workload.image_draft import IMAGES, ImageDraft
from crosstack.workload.passes.backward import training as with_backward

EPSILON = 1e-5  # keeps a root from zero
POOLED = 3  # places along either axis


def residual_graph(
    model: ResidualNetwork, *, images: int, dtype: Dtype = Dtype.BF16, train: bool = True
) -> Graph:
    """Return a residual network and its loss, with its backward pass if it is trained.

    Parameters
    ----------
    model : ResidualNetwork
        The shape.
    images : int
        Of the batch. [1]
    dtype : Dtype
        Of every tensor but labels.
    train : bool
        Whether there is a backward pass.

    Notes
    -----
    A convolution reads its image where it lies, whatever products it is: no kernel writes windows
    side by side first. Batch norm is over the images that a chip works on at a time
    (``goyal2017imagenet``, section 2.3).
    """
    draft = _Draft(Draft(dtype=dtype))
    draft.sized(
        images, model.convolutions, places=(model.image // 4,), taps=(POOLED,),
        classes=model.classes,
    )  # fmt: skip
    convolutions = {c.name: c for c in model.convolutions}
    first = convolutions["conv1"]
    last = draft.picture(model.image, model.colours)
    last = draft.normed(first, last)
    last = draft.active(last, first.name)
    last = draft.pooled(
        "pool", last, channels=first.channels, size=first.places, taps=POOLED, padding=POOLED // 2
    )
    for stage, count in enumerate(model.blocks, start=1):
        for block in range(1, count + 1):
            last = draft.block(convolutions, f"{stage}_{block}", last)
    draft.classified(model, last)
    graph = draft.base.graph()
    return with_backward(graph, loss="loss") if train else graph


@dataclass(frozen=True, slots=True)
class _Draft(ImageDraft):
    """The graph so far, with what residual networks are made of."""

    def normed(self, c: Convolution, read: str) -> str:
        """Add a convolution and the batch norm behind it."""
        draft, channel = self.base, f"c{c.channels}"
        found = self.convolution(c, read)
        scale = draft.weight(f"scale_{c.name}", channel)
        shift = draft.weight(f"shift_{c.name}", channel)
        over = f"{IMAGES} y{c.places} x{c.places}"
        return draft.rows(
            f"norm_{c.name}", Function.BATCH_NORM, found, scale, shift, over=over, parameter=EPSILON
        )

    def block(self, convolutions: dict[str, Convolution], name: str, read: str) -> str:
        """Add a bottleneck."""
        last = read
        for part in (f"reduce_{name}", f"conv_{name}"):
            last = self.active(self.normed(convolutions[part], last), part)
        last = self.normed(convolutions[f"expand_{name}"], last)
        skip = convolutions.get(f"skip_{name}")
        before = read if skip is None else self.normed(skip, read)
        total = self.base.make(f"add_{name}", Function.ADD, last, before)
        return self.active(total, f"add_{name}")

    def classified(self, model: ResidualNetwork, read: str) -> None:
        """Add the mean over all places, the classifier and the loss of the batch."""
        draft, size = self.base, model.convolutions[-1].places
        mean = draft.reduced("mean", Function.MEAN, read, over=f"y{size} x{size}")
        weight = draft.weight("W_head", f"c{model.features}_in classes")
        seen = draft.seen(mean, f"{IMAGES} c{model.features}_in")
        logits = draft.product("head", seen, weight, f"{IMAGES} classes")
        logits = draft.make("head_bias", Function.ADD, logits, draft.weight("bias", "classes"))
        losses = draft.reduced(
            "losses", Function.CROSS_ENTROPY, logits, draft.index("labels", IMAGES), over="classes"
        )
        draft.reduced("loss", Function.MEAN, losses, over=IMAGES)
