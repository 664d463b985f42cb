"""Products in pairs: the second takes what the first leaves on its chip.

The first product of a pair has columns of its weight on every chip, the second the rows that match
them, so nothing is sent between the two. The partial sums behind the second are added; before the
first, so are those of the gradient (``shoeybi2019megatron``, section 3).
"""

from __future__ import annotations

from dataclasses import dataclass

from crosstack.evaluate.distributed import KP2, Distributed

__all__ = ["ColumnRowPairs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnRowPairs:
    """Times on one of the kp2 chips of a strategy RC-1-kp2.

    ``spread``: between pairs each chip has a share of the tokens in place of all of them
    (``korthikanti2023reducing``, section 4.2.2): an all-reduce becomes a reduce-scatter there and
    an all-gather before the next pair. What is gathered is gathered once more in the backward
    pass, hidden behind a product, as the source does; that is not counted.
    """

    chips: Distributed
    spread: bool

    def product(self, m: int, k: int, n: int, *, second: bool) -> tuple[float, float]:
        """Return the time of an M x K by K x N product, forward and backward. [s]"""
        times, degree = self.chips.times, self.chips.strategy.kp2
        k, n = (-(-k // degree), n) if second else (k, -(-n // degree))
        forward = times.product(m, k, n)
        backward = times.product(k, m, n) + times.product(m, n, k)
        if second:
            sent = self.out(m, n)
        else:
            back, ahead = self.out(m, k)
            sent = ahead, back
        return forward + sent[0], backward + sent[1]

    def out(self, rows: int, columns: int) -> tuple[float, float]:
        """Return what is sent behind a pair, forward and backward; before one, the reverse. [s]"""
        if not self.spread:
            return self.chips.all_reduce(rows, columns, KP2), 0.0
        return (
            self.chips.reduce_scatter(rows, columns, KP2),
            self.chips.all_gather(rows, columns, KP2),
        )
