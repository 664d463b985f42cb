"""Releases of the public tool, told apart by the little that differs between them.

Source: ``deepflow_code`` at commits e8fc755 (2025-09-15, with its two programs), 566c192
(2021-09-11, with a configuration file alone) and e4e5d38 (2020-10-30).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto


class Transformers(Enum):
    """What a release makes of a transformer.

    ``ABSENT``: it trains language models of LSTM cells alone. ``ESTIMATED``: three times the
    forward time of the six products of its layers (``run_perf.py``). ``RUN``: a graph of
    operations, event by event (``run_perf_llmtest.py``).
    """

    ABSENT = auto()
    ESTIMATED = auto()
    RUN = auto()


@dataclass(frozen=True, slots=True)
class Release:
    """What one release does and another does not.

    ``shares_links_by_degree``: the bandwidth of a parallel dimension is divided by 2 up to degree
    4, by 5 up to 8, by 4 above, as on one machine of eight chips, whatever the system; degree 1 is
    halved too.
    """

    shares_links_by_degree: bool
    transformers: Transformers


RELEASES = {
    "deepflow-2025": Release(True, Transformers.ESTIMATED),
    "deepflow-2025-graph": Release(True, Transformers.RUN),
    "deepflow-2021": Release(False, Transformers.ABSENT),
    "deepflow-2020": Release(True, Transformers.ABSENT),
}
