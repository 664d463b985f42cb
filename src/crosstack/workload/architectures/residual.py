"""Residual convolutional networks (``he2016resnet``): the record, and what it holds and computes.

Blocks are bottlenecks: a 1 x 1 convolution to fewer channels, a 3 x 3 one, a 1 x 1 one back to four
times as many, and what came in is added, through a 1 x 1 convolution where its shape differs. The
stride of a stage is that of its first 3 x 3 convolution, as all recent training has it
(``goyal2017imagenet``, section 5.1).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from crosstack.errors import require
from crosstack.records import Count, require_types
from crosstack.workload.architectures.convolution import Convolution

EXPANSION = 4  # channels of a block's result over those inside
STEM = 7  # taps of the first convolution, along either axis


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidualNetwork:
    """The shape of a residual network of bottlenecks.

    Parameters
    ----------
    blocks : tuple of int
        Of each stage; a stage has twice the channels of the one before, at half its size. [1]
    width : int
        Channels inside the blocks of the first stage. [1]
    image, colours : int
        Places along either axis of an image, a multiple of 2 for the first convolution, for the
        pooling and for each stage but the first; numbers of a place. [1]
    classes : int
        That an image may be of. [1]
    name : str
        For people.

    Raises
    ------
    InputError
        If numbers are out of range or do not fit each other.
    """

    blocks: tuple[Count, ...]
    width: Count = 64
    image: Count = 224
    colours: Count = 3
    classes: Count = 1000
    name: str = "residual network"

    def __post_init__(self) -> None:
        require_types(self)
        require(len(self.blocks) > 0, "blocks", self.blocks, "at least one stage")
        halved = 2 ** (len(self.blocks) + 1)
        require(self.image % halved == 0, "image", self.image, f"a multiple of {halved}")

    @property
    def convolutions(self) -> tuple[Convolution, ...]:
        """All convolutions, in the order in which they run."""
        return tuple(self._convolutions())

    def _convolutions(self) -> Iterator[Convolution]:
        size = self.image // 2
        yield _padded("conv1", self.colours, self.width, STEM, self.image, 2)
        size, last = size // 2, self.width
        for stage, count in enumerate(self.blocks):
            inner, stride = self.width << stage, 1 if stage == 0 else 2
            for block in range(count):
                name, step = f"{stage + 1}_{block + 1}", stride if block == 0 else 1
                out = inner * EXPANSION
                yield _padded(f"reduce_{name}", last, inner, 1, size, 1)
                yield _padded(f"conv_{name}", inner, inner, 3, size, step)
                yield _padded(f"expand_{name}", inner, out, 1, size // step, 1)
                if block == 0:
                    yield _padded(f"skip_{name}", last, out, 1, size, step)
                size, last = size // step, out

    @property
    def features(self) -> int:
        """Channels of what is classified. [1]"""
        return self.width * EXPANSION << (len(self.blocks) - 1)

    @property
    def n_parameters(self) -> int:
        """Weights of convolutions, a factor and a term of each of their channels, and the head."""
        weights = sum(c.weights + 2 * c.channels for c in self.convolutions)
        return weights + (self.features + 1) * self.classes

    @property
    def forward_flop(self) -> float:
        """Work of one image in a forward pass, products alone, two FLOP each. [FLOP]"""
        products = sum(c.multiplications for c in self.convolutions)
        return 2.0 * (products + self.features * self.classes)


def _padded(
    name: str, inputs: int, channels: int, taps: int, size: int, stride: int
) -> Convolution:
    """Return a convolution with as many places, times its stride, as come in."""
    return Convolution(name, inputs, channels, taps, size, stride, padding=taps // 2)
