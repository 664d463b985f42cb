"""A convolution of images: what it reads and makes, its weights, and what it multiplies."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Convolution:
    """A convolution: channels that come in and go out, taps along an axis, size of what comes in.

    ``padding`` places beside the image count as zero, at either end. One that is ``transposed``
    goes the other way: it makes `size` places along an axis out of `places`, each of which adds
    to as many of the result as it has taps. [1]
    """

    name: str
    inputs: int
    channels: int
    taps: int
    size: int
    stride: int = 1
    padding: int = 0
    transposed: bool = False

    @property
    def places(self) -> int:
        """Places of its window along either axis; of what goes out, unless transposed. [1]"""
        return (self.size + 2 * self.padding - self.taps) // self.stride + 1

    @property
    def weights(self) -> int:
        """Weights, without a bias. [1]"""
        return self.inputs * self.channels * self.taps**2

    @property
    def multiplications(self) -> int:
        """Products of an image: all weights, at every place of the window. [1]"""
        return self.weights * self.places**2
