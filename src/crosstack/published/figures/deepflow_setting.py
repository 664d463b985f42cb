"""What the case studies of the DeepFlow paper have in common (``ardalani2022deepflow``, section 9).

A language model on 512 chips of 850 mm2 and 300 W; nodes scaled by 1.8 in area and 1.3 in power;
memories and networks by their bandwidth. What the paper leaves out is as in the public tool's V100
(``deepflow_code``, configs/v100.yaml of 2021), whose shares its section 4 shows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from crosstack.evaluate.step_settings import StepSettings
from crosstack.explore.budget_space import BudgetSpace
from crosstack.explore.design import DesignProblem
from crosstack.io.chip_file import read_chip
from crosstack.machine.chip import Chip, Link
from crosstack.machine.packages import system_of_packages
from crosstack.machine.system import System
from crosstack.mapping.strategy import Strategy
from crosstack.model.rules import Rules, rules_named
from crosstack.published.deepflow.edges import edges_of_paper
from crosstack.published.deepflow.steps import over_edges
from crosstack.workload.lstm import LstmModel

__all__ = [
    "CHIPS",
    "DATA_PARALLEL",
    "MEMORIES",
    "MODEL",
    "NETWORKS",
    "NODES",
    "problem",
    "rules_of_paper",
    "system_builder",
]

CHIPS = 512
NODES = ("N12", "N7", "N5", "N3", "N2", "N1.4", "N1")
MEMORIES = {"HBM2": 1e12, "HBM2E": 2e12, "HBM3": 2.6e12, "HBM4": 3.3e12}  # B/s
NETWORKS = {"NDR-x8": 100e9, "XDR-x8": 200e9, "GDR-x8": 400e9}  # B/s
INTER_LATENCY = 5e-6  # deepflow_code, configs/v100.yaml [s]
INTRA_BANDWIDTH, INTRA_LATENCY = 2e12, 5e-6  # section 9.2; latency as above
MODEL = LstmModel(
    batch=16384,
    sequence=20,
    vocabulary=800_000,
    layers=2,
    width=16384,
    name="language model of the case studies",
)
DATA_PARALLEL = Strategy(dp=CHIPS)
# The paper does not ask whether the model fits the memory: one copy of it with gradients and
# optimizer takes 0.5 TB, so that data parallelism alone, from which it starts, fits none of its
# time.
SETTINGS = StepSettings(enforces_capacity=False)
_CHIP = """
node: {node}
scaling: paper
memory: {{dram: hbm2, bandwidth: {memory:g} B/s}}
chip_area: 850 mm^2
package_area: 1250 mm^2
power: 300 W
"""


def system_builder(
    network: float, *, per_package: int = 1, intra_bandwidth: float = INTRA_BANDWIDTH
) -> Callable[[Chip], System]:
    """Return what joins 512 chips by a network of this bandwidth between packages. [B/s]"""

    def build(chip: Chip) -> System:
        inter = Link(n_links=1, bandwidth=network, latency=INTER_LATENCY)
        intra = Link(n_links=1, bandwidth=intra_bandwidth, latency=INTRA_LATENCY)
        joined = replace(chip, inter=inter, intra=intra if per_package > 1 else None)
        return system_of_packages(
            joined, chips_per_package=per_package, n_packages=CHIPS // per_package
        )

    return build


def rules_of_paper(name: str) -> Rules:
    """Return rules of a name over the links of the paper's rings."""
    rules = rules_named(name)
    return replace(rules, step=over_edges(rules.step, edges_of_paper))


def problem(
    node: str,
    memory: str,
    network: str,
    strategy: Strategy = DATA_PARALLEL,
    *,
    rules: str = "crosstack",
    per_package: int = 1,
    model: LstmModel = MODEL,
) -> DesignProblem:
    """Return one case: memory and network have the bandwidth they are given, whatever they take.

    Their shares are held; compute and the memory on the chip share out the rest.
    """
    text = _CHIP.format(node=node, memory=MEMORIES[memory])
    chip = read_chip(text, f"{node}, {memory}")
    return DesignProblem(
        free=BudgetSpace(template=chip.template, budget=chip.budget, held=("DRAM", "inter")),
        workload=model,
        strategy=strategy,
        system=system_builder(NETWORKS[network], per_package=per_package),
        rules=rules_of_paper(rules),
        settings=SETTINGS,
    )
