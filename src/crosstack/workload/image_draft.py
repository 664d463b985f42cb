"""Networks of images as they are written down: axes by their size, convolutions, pooling."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from crosstack.workload.architectures.convolution import Convolution
from crosstack.workload.axes import AxisUse, Window
from crosstack.workload.draft import Draft
from crosstack.workload.functions import Function

IMAGES = "image"


@dataclass(frozen=True, slots=True)
class ImageDraft:
    """The graph so far; axes are called by what they are and their size.

    ``y56`` and ``x56`` are places, ``c64`` channels, ``tap_y3`` taps; with ``_in`` they are those
    of what is read.
    """

    base: Draft

    def sized(
        self,
        images: int,
        convolutions: Iterable[Convolution],
        *,
        places: Iterable[int] = (),
        taps: Iterable[int] = (),
        **more: int,
    ) -> None:
        """Add all axes: images, places and channels as they come in and go out, taps, others."""
        every = tuple(convolutions)
        self.base.axis(AxisUse.TOKEN, **{IMAGES: images})
        sizes = sorted({*places, *(c.size for c in every), *(c.places for c in every)})
        along = {f"{a}{n}{end}": n for n in sizes for a in "yx" for end in ("", "_in")}
        self.base.axis(AxisUse.TOKEN, **along)
        channels = sorted({c.inputs for c in every} | {c.channels for c in every})
        self.base.axis(**{f"c{n}{end}": n for n in channels for end in ("", "_in")})
        counts = sorted({c.taps for c in every} | {*taps})
        self.base.axis(**{f"tap_{a}{n}": n for n in counts for a in "yx"}, **more)

    def picture(self, size: int, colours: int) -> str:
        """Add the images that are worked on."""
        return self.base.tensor("picture", f"{IMAGES} y{size} x{size} c{colours}")

    def convolution(self, c: Convolution, read: str) -> str:
        """Add a convolution, without a bias."""
        draft, channel = self.base, f"c{c.channels}"
        if c.taps == c.stride == 1:  # places one by one: a product
            weight = draft.weight(f"W_{c.name}", f"c{c.inputs}_in {channel}")
            seen = draft.seen(read, f"{IMAGES} y{c.size} x{c.size} c{c.inputs}_in")
            return draft.product(c.name, seen, weight, f"{IMAGES} y{c.size} x{c.size} {channel}")
        taps = f"tap_y{c.taps} tap_x{c.taps}"
        weight = draft.weight(f"W_{c.name}", f"{taps} c{c.inputs}_in {channel}")
        reads, makes = f"{c.size}_in", f"{c.places}"
        if c.transposed:
            reads, makes = f"{c.places}_in", f"{c.size}"
        slid, at = (makes, reads) if c.transposed else (reads, makes)
        slides = _slides(slid, at, c.taps, stride=c.stride, padding=c.padding)
        seen = draft.seen(read, f"{IMAGES} y{reads} x{reads} c{c.inputs}_in")
        axes = f"{IMAGES} y{makes} x{makes} {channel}"
        return draft.convolve(c.name, seen, weight, axes, *slides)

    def active(self, read: str, name: str) -> str:
        """Add a rectifier."""
        return self.base.make(f"relu_{name}", Function.RELU, read)

    def pooled(
        self, name: str, read: str, *, channels: int, size: int, taps: int, padding: int = 0
    ) -> str:
        """Add the greatest of places in both directions, around every second one."""
        made = (size + 2 * padding - taps) // 2 + 1
        slides = _slides(f"{size}_in", f"{made}", taps, stride=2, padding=padding)
        seen = self.base.seen(read, f"{IMAGES} y{size}_in x{size}_in c{channels}")
        axes = f"{IMAGES} y{made} x{made} c{channels}"
        return self.base.make(name, Function.MAX_POOL, seen, axes=axes, windows=slides)

    def cropped(self, name: str, read: str, *, channels: int, size: int, left: int) -> str:
        """Add the places in the middle, so many of them left along either axis."""
        slides = _slides(f"{size}_in", f"{left}", 1, start=(size - left) // 2)
        seen = self.base.seen(read, f"{IMAGES} y{size}_in x{size}_in c{channels}")
        axes = f"{IMAGES} y{left} x{left} c{channels}"
        return self.base.make(name, Function.CROP, seen, axes=axes, windows=slides)


def _slides(axis: str, at: str, taps: int, **more: int) -> tuple[Window, ...]:
    """Return windows along both axes of places."""
    return tuple(
        Window(axis=f"{a}{axis}", at=f"{a}{at}", tap=f"tap_{a}{taps}", **more) for a in "yx"
    )
