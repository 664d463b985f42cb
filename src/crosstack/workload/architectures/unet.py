"""U-Net (``ronneberger2015unet``): the record, and what it holds and computes.

A contracting path has two 3 x 3 convolutions a level and halves places between levels, by the
greatest of 2 x 2, while channels double. An expanding path doubles places again, by a 2 x 2
up-convolution to half the channels, reads what the other path made at that level beside it, cropped
to what is left of the places, and has two 3 x 3 convolutions, too. A 1 x 1 convolution tells the
class of every place. There is a bias in each, and no norm.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from crosstack.errors import require
from crosstack.records import Count, Natural, require_types
from crosstack.workload.architectures.convolution import Convolution

TAPS = 3  # of a convolution, along either axis
HALVED = 2  # places for one, between levels


@dataclass(frozen=True, slots=True, kw_only=True)
class UNet:
    """The shape of a U-Net.

    Parameters
    ----------
    levels : int
        Of places, the lowest one between both paths. [1]
    width : int
        Channels of the highest level; a level has twice those of the one above. [1]
    image, colours : int
        Places along either axis of an image, such that all that is halved is even; numbers of a
        place. [1]
    classes : int
        That a place may be of. [1]
    padding : int
        Places beside an image that count as zero in a 3 x 3 convolution: 0, as published, where
        every one has two places fewer along an axis than it reads, or 1. [1]
    name : str
        For people.

    Raises
    ------
    InputError
        If numbers are out of range or do not fit each other.
    """

    levels: Count = 5
    width: Count = 64
    image: Count = 572
    colours: Count = 1
    classes: Count = 2
    padding: Natural = 0
    name: str = "U-Net"

    def __post_init__(self) -> None:
        require_types(self)
        require(self.padding <= 1, "padding", self.padding, "0 or 1")
        every = self.convolutions
        halved = [c.places for c in every if c.name in self._halved]
        even = all(places % HALVED == 0 for places in halved)
        allowed = "so many that there is an even number to halve between levels"
        require(even, "image", self.image, allowed)
        left = all(c.places > 0 for c in every)
        require(left, "image", self.image, "so many that some are left on every level")

    @property
    def _halved(self) -> frozenset[str]:
        """Names of the convolutions whose places are halved."""
        return frozenset(f"down_{level}_2" for level in range(1, self.levels))

    @property
    def convolutions(self) -> tuple[Convolution, ...]:
        """All convolutions, in the order in which they run."""
        return tuple(self._convolutions())

    def _convolutions(self) -> Iterator[Convolution]:
        size, last = self.image, self.colours
        for level in range(self.levels):
            size //= HALVED if level else 1
            width = self.width << level
            for conv in self._pair(f"down_{level + 1}", last, width, size):
                yield conv
                size, last = conv.places, conv.channels
        for level in reversed(range(self.levels - 1)):
            width, size = self.width << level, HALVED * size
            name = f"up_{level + 1}"
            yield Convolution(name, last, width, HALVED, size, HALVED, transposed=True)
            for conv in self._pair(name, last, width, size):
                yield conv
                size, last = conv.places, conv.channels
        yield Convolution("head", last, self.classes, 1, size)

    def _pair(self, name: str, inputs: int, channels: int, size: int) -> Iterator[Convolution]:
        """Yield the two convolutions of a level on one of the paths."""
        for i, read in enumerate((inputs, channels), start=1):
            conv = Convolution(f"{name}_{i}", read, channels, TAPS, size, padding=self.padding)
            yield conv
            size = conv.places

    @property
    def n_parameters(self) -> int:
        """Weights of all convolutions, and a bias of each of their channels. [1]"""
        return sum(c.weights + c.channels for c in self.convolutions)

    @property
    def forward_flop(self) -> float:
        """Work of one image in a forward pass, products alone, two FLOP each. [FLOP]"""
        return 2.0 * sum(c.multiplications for c in self.convolutions)
