"""Residual convolutional networks over named axes: convolutions, batch norms, sums past a block."""

from __future__ import annotations

from dataclasses import dataclass

from crosstack.workload.architectures.residual import Convolution, ResidualNetwork
from crosstack.workload.axes import AxisUse, Window
from crosstack.workload.dataflow import Graph
from crosstack.workload.draft import Draft
from crosstack.workload.dtype import Dtype
from crosstack.workload.functions import Function
from crosstack.workload.passes.backward import training as with_backward

EPSILON = 1e-5  # keeps a root from zero
IMAGES = "image"


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
    draft.base.axis(AxisUse.TOKEN, **{IMAGES: images})
    draft.sized(model)
    convolutions = {c.name: c for c in model.convolutions}
    axes = f"{IMAGES} y{model.image} x{model.image} c{model.colours}"
    last = draft.base.tensor("picture", axes)
    last = draft.active(draft.convolved(convolutions["conv1"], last))
    last = draft.pooled(convolutions["conv1"], last)
    for stage, count in enumerate(model.blocks, start=1):
        for block in range(1, count + 1):
            last = draft.block(convolutions, f"{stage}_{block}", last)
    draft.classified(model, last)
    graph = draft.base.graph()
    return with_backward(graph, loss="loss") if train else graph


@dataclass(frozen=True, slots=True)
class _Draft:
    """The graph so far; axes are called by what they are and their size."""

    base: Draft

    def sized(self, model: ResidualNetwork) -> None:
        """Add all axes: places, channels as they come in and go out, taps."""
        every = model.convolutions
        places = {model.image, *(c.size for c in every), *(c.places for c in every)}
        places |= {model.image // 4}
        along = {f"{a}{n}{end}": n for n in sorted(places) for a in "yx" for end in ("", "_in")}
        self.base.axis(AxisUse.TOKEN, **along)
        channels = sorted({c.inputs for c in every} | {c.channels for c in every})
        self.base.axis(**{f"c{n}{end}": n for n in channels for end in ("", "_in")})
        taps = sorted({c.taps for c in every} | {3})
        self.base.axis(**{f"tap_{a}{n}": n for n in taps for a in "yx"}, classes=model.classes)

    def convolved(self, c: Convolution, read: str) -> str:
        """Add a convolution and the batch norm behind it."""
        draft, channel = self.base, f"c{c.channels}"
        made = f"{IMAGES} y{c.places} x{c.places} {channel}"
        if c.taps == c.stride == 1:  # places one by one: a product
            weight = draft.weight(f"W_{c.name}", f"c{c.inputs}_in {channel}")
            seen = draft.seen(read, f"{IMAGES} y{c.size} x{c.size} c{c.inputs}_in")
            found = draft.product(c.name, seen, weight, made)
        else:
            taps = f"tap_y{c.taps} tap_x{c.taps}"
            weight = draft.weight(f"W_{c.name}", f"{taps} c{c.inputs}_in {channel}")
            seen = draft.seen(read, f"{IMAGES} y{c.size}_in x{c.size}_in c{c.inputs}_in")
            slides = self.windows(c.size, c.places, c.taps, c.stride)
            found = draft.convolve(c.name, seen, weight, made, *slides)
        scale = draft.weight(f"scale_{c.name}", channel)
        shift = draft.weight(f"shift_{c.name}", channel)
        over = f"{IMAGES} y{c.places} x{c.places}"
        return draft.rows(
            f"norm_{c.name}", Function.BATCH_NORM, found, scale, shift, over=over, parameter=EPSILON
        )

    def windows(self, size: int, places: int, taps: int, stride: int) -> tuple[Window, ...]:
        """Return windows along both axes, padded so that places times stride are the size."""
        return tuple(
            Window(
                axis=f"{a}{size}_in", at=f"{a}{places}", tap=f"tap_{a}{taps}", stride=stride,
                padding=(taps - 1) // 2,
            )
            for a in "yx"
        )  # fmt: skip

    def active(self, read: str) -> str:
        """Add a rectifier."""
        return self.base.make(f"relu_{read.removeprefix('norm_')}", Function.RELU, read)

    def pooled(self, c: Convolution, read: str) -> str:
        """Add the greatest of 3 x 3 places, every second one along either axis."""
        draft, size = self.base, c.places
        seen = draft.seen(read, f"{IMAGES} y{size}_in x{size}_in c{c.channels}")
        axes = f"{IMAGES} y{size // 2} x{size // 2} c{c.channels}"
        slides = self.windows(size, size // 2, 3, 2)
        return draft.make("pool", Function.MAX_POOL, seen, axes=axes, windows=slides)

    def block(self, convolutions: dict[str, Convolution], name: str, read: str) -> str:
        """Add a bottleneck."""
        last = self.active(self.convolved(convolutions[f"reduce_{name}"], read))
        last = self.active(self.convolved(convolutions[f"conv_{name}"], last))
        last = self.convolved(convolutions[f"expand_{name}"], last)
        skip = convolutions.get(f"skip_{name}")
        before = read if skip is None else self.convolved(skip, read)
        return self.active(self.base.make(f"add_{name}", Function.ADD, last, before))

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
