"""The slowest of many chips of one kind: what the others wait for, in every step that all take.

Chips of a kind need different voltages for a clock, so that at their limit on power some run slower
than others: in five clusters by 8 % on average, whatever ran and however they were cooled
(``sinha2022gpus``). What is measured of one chip is that of a usual one; chips that send one
another something in every layer, or once a step, all take as long as the slowest of them.
"""

from __future__ import annotations

from statistics import NormalDist

# Standard deviation of the clock at the limit on power over its mean: 8 % is taken to be from
# whisker to whisker, four distances of quartiles, and clocks to be normally distributed. [1]
SPREAD = 0.08 / (4 * 2 * NormalDist().inv_cdf(0.75))


def slowest_share(n_chips: int) -> float:
    """Return the clock of the slowest of some chips at their limit on power over a usual one's. [1]

    Notes
    -----
    ``1 / (1 + s e)`` of the deviation s and the mean e of the largest of n numbers that are
    normally distributed, about the ``(n - 3/8) / (n + 1/4)`` quantile: of one chip it is 1.

    References
    ----------
    blom1958statistical
    sinha2022gpus
    """
    largest = NormalDist().inv_cdf((n_chips - 3 / 8) / (n_chips + 1 / 4))
    return 1.0 / (1.0 + SPREAD * largest)
