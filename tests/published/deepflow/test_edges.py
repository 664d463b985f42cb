"""What files and placements of the releases state of the links."""

from dataclasses import replace

import pytest
from builders.steps import counted

from crosstack.evaluate.predict import predict
from crosstack.io import library
from crosstack.machine.chip import Link
from crosstack.machine.packages import system_of_packages
from crosstack.machine.topology import Grid
from crosstack.mapping.placement import place
from crosstack.mapping.strategy import ParallelDimension, Strategy, parse_strategy
from crosstack.model.kernels.roofline import Roofline
from crosstack.model.rules import rules_named
from crosstack.published.deepflow.edges import (
    Derate,
    EdgeSharing,
    edges_of_placement,
    stated_peers,
)
from crosstack.published.deepflow.steps import over_edges
from crosstack.workload.dtype import Dtype
from crosstack.workload.product import Product

KP1, KP2, DP, LP = ParallelDimension
CHIP = replace(
    library.chip("a100-pcie-80gb"),
    intra=Link(n_links=1, bandwidth=9e11, latency=1e-6),
    inter=Link(n_links=1, bandwidth=8e10, latency=1e-6),
)


def test_a_placement_says_which_links_a_dimension_uses_and_shares():
    placement = place(parse_strategy("RC-4-2-d8-p1"), Grid(package=(4, 4), packages=(2, 2)))
    system = system_of_packages(CHIP, chips_per_package=16, n_packages=4)
    peers = stated_peers(placement.strategy, system, edges_of_placement(placement))
    found = {d: peers[d].group.extents[0].dimension.bandwidth for d in ParallelDimension}
    assert found[KP1] == 9e11
    assert found[DP] == 8e10 / placement.by_dimension[DP].between


@pytest.mark.parametrize("name", ["crosstack", "deepflow-2021"])
def test_edges_that_share_links_wait_for_each_other(name):
    system = system_of_packages(CHIP, chips_per_package=4)
    product, strategy = Product(m=8192, k=8192, n=8192), Strategy(kp2=4)
    times = Roofline().times(CHIP)

    def waits(derate):
        edges = EdgeSharing(derates=(Derate(inside=derate),) * 4)
        found = over_edges(rules_named(name).step, edges)(
            product, strategy, system, Dtype.BF16, rules=counted(times)
        )  # fmt: skip
        return dict(found.parts)["collective"]

    # Each doubling adds what the one before it added twice over: the links' part alone grows.
    assert waits(4) - waits(2) == pytest.approx(2 * (waits(2) - waits(1)))
    assert waits(2) > waits(1)


def test_the_engine_has_the_links_of_the_machine_alone():
    system = system_of_packages(CHIP, chips_per_package=4)
    product, strategy = Product(m=8192, k=8192, n=8192), Strategy(kp2=4)
    rules = rules_named("crosstack")
    stated = over_edges(predict, EdgeSharing(derates=(Derate(inside=2),) * 4))
    assert (
        predict(product, strategy, system, Dtype.BF16, rules=rules).time
        < stated(product, strategy, system, Dtype.BF16, rules=rules).time
    )
