"""Releases of the public tool, told apart by the little that differs between them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

__all__ = ["RELEASES", "Release", "Transformers"]


class Transformers(Enum):
    """What a release makes of a transformer.

    ``ABSENT``: it trains language models of LSTM cells alone. ``ESTIMATED``: three times the
    forward time of the six products of its layers (``run_perf.py``). ``RUN``: a graph of
    operations, event by event (``run_perf_llmtest.py``).
    """

    ABSENT = auto()
    ESTIMATED = auto()
    RUN = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """What one release does and another does not.

    ``shares_links_by_degree``: the bandwidth of a parallel dimension is divided by 2 up to degree
    4, by 5 up to 8, by 4 above, as on one machine of eight chips, whatever the system; degree 1 is
    halved too.

    References
    ----------
    deepflow_code
    """

    name: str
    shares_links_by_degree: bool
    transformers: Transformers


RELEASES = {
    release.name: release
    for release in (
        # e8fc755, 2025-09-15, and its other program
        Release(
            name="deepflow-2025", shares_links_by_degree=True, transformers=Transformers.ESTIMATED
        ),
        Release(
            name="deepflow-2025-graph", shares_links_by_degree=True, transformers=Transformers.RUN
        ),
        # 566c192, 2021-09-11, with a configuration file alone
        Release(
            name="deepflow-2021", shares_links_by_degree=False, transformers=Transformers.ABSENT
        ),
        # e4e5d38, 2020-10-30
        Release(
            name="deepflow-2020", shares_links_by_degree=True, transformers=Transformers.ABSENT
        ),
    )
}
