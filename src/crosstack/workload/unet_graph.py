"""U-Nets over named axes: convolutions with biases, features that pass by the levels below."""

from __future__ import annotations

from dataclasses import dataclass

from crosstack.workload.architectures.convolution import Convolution
from crosstack.workload.architectures.unet import HALVED, UNet
from crosstack.workload.dataflow import Graph
from crosstack.workload.draft import Draft
from crosstack.workload.dtype import Dtype
from crosstack.workload.functions import Function
from crosstack.workload.image_draft import IMAGES, ImageDraft
from crosstack.workload.passes.backward import training as with_backward


def unet_graph(model: UNet, *, images: int, dtype: Dtype = Dtype.BF16, train: bool = True) -> Graph:
    """Return a U-Net and its loss, with its backward pass if it is trained.

    Parameters
    ----------
    model : UNet
        The shape.
    images : int
        Of the batch. [1]
    dtype : Dtype
        Of every tensor but labels.
    train : bool
        Whether there is a backward pass.

    Notes
    -----
    What passes by the levels below is cropped to the places that are left, and concatenated, each
    a kernel of its own. An up-convolution is a convolution whose window slides over what it makes.
    The loss is the mean over all places of the cross entropy of each (``ronneberger2015unet``,
    equation 1), without weights of places; there is no dropout.
    """
    draft = _Draft(Draft(dtype=dtype))
    convolutions = {c.name: c for c in model.convolutions}
    draft.sized(images, model.convolutions, taps=(1, HALVED))
    last = draft.picture(model.image, model.colours)
    passed: list[str] = []
    for level in range(1, model.levels + 1):
        last = draft.pair(convolutions, f"down_{level}", last)
        if level < model.levels:
            passed.append(last)
            before = convolutions[f"down_{level}_2"]
            last = draft.pooled(
                f"pool_{level}", last, channels=before.channels, size=before.places, taps=HALVED
            )
    for level in reversed(range(1, model.levels)):
        sized = convolutions[f"down_{level}_2"].places
        last = draft.joined(convolutions[f"up_{level}"], last, passed.pop(), sized)
        last = draft.pair(convolutions, f"up_{level}", last)
    draft.classified(convolutions["head"], last)
    graph = draft.base.graph()
    return with_backward(graph, loss="loss") if train else graph


@dataclass(frozen=True, slots=True)
class _Draft(ImageDraft):
    """The graph so far, with what U-Nets are made of."""

    def biased(self, c: Convolution, read: str) -> str:
        """Add a convolution and its bias."""
        found = self.convolution(c, read)
        bias = self.base.weight(f"b_{c.name}", f"c{c.channels}")
        return self.base.make(f"bias_{c.name}", Function.ADD, found, bias)

    def pair(self, convolutions: dict[str, Convolution], name: str, read: str) -> str:
        """Add the two convolutions of a level, a rectifier behind each."""
        for part in (f"{name}_1", f"{name}_2"):
            read = self.active(self.biased(convolutions[part], read), part)
        return read

    def joined(self, up: Convolution, read: str, passed: str, size: int) -> str:
        """Add an up-convolution, and what passed by, of so many places, before what it makes."""
        made, left = self.biased(up, read), up.size
        level = up.name.removeprefix("up_")
        if left < size:
            passed = self.cropped(
                f"crop_{level}", passed, channels=up.channels, size=size, left=left
            )
        both = f"c{up.inputs}"  # as many as both have
        return self.base.make(
            f"join_{level}", Function.CONCATENATE, passed, made,
            axes=f"{IMAGES} y{left} x{left} {both}", over=both,
        )  # fmt: skip

    def classified(self, head: Convolution, read: str) -> None:
        """Add the classes of every place, and the loss of the batch."""
        draft, logits = self.base, self.biased(head, read)
        places = f"{IMAGES} y{head.size} x{head.size}"
        labels = draft.index("labels", places)
        losses = draft.reduced(
            "losses", Function.CROSS_ENTROPY, logits, labels, over=f"c{head.channels}"
        )
        draft.reduced("loss", Function.MEAN, losses, over=places)
