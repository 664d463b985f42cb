from __future__ import annotations

import math

import pytest

from crosstack.errors import InputError
from crosstack.machine.memory import main_memory
from crosstack.machine.system import Dimension, DimensionKind, Prices


def test_the_sizes_multiply_to_the_chips(a_system, a_dimension):
    network = (a_dimension(size=4), a_dimension(size=2))
    assert a_system(network=network, n_chips=8).n_chips == 8


def test_sizes_that_do_not_are_refused(a_system, a_dimension):
    network = (a_dimension(size=4), a_dimension(size=4))
    with pytest.raises(InputError, match="n_chips: got 8, but the network joins 4 x 4 chips"):
        a_system(network=network, n_chips=8)


def test_a_free_size_takes_what_is_left(a_system, a_dimension):
    network = (a_dimension(size=4), a_dimension(size=None))
    assert a_system(network=network, n_chips=12).n_chips == 12


def test_a_free_size_cannot_take_a_fraction(a_system, a_dimension):
    network = (a_dimension(size=4), a_dimension(size=None))
    with pytest.raises(InputError, match="joins 4 x free chips"):
        a_system(network=network, n_chips=6)


def test_given_sizes_past_the_chips_are_refused(a_system, a_dimension):
    network = (a_dimension(size=16), a_dimension(size=None))
    with pytest.raises(InputError, match="n_chips: got 8"):
        a_system(network=network, n_chips=8)


@pytest.mark.parametrize("n_dimensions", [0, 5])
def test_a_network_has_one_to_four_dimensions(a_system, a_dimension, n_dimensions):
    network = (a_dimension(size=1),) * n_dimensions
    with pytest.raises(InputError, match=f"^network: got {n_dimensions}; allowed: 1 to 4"):
        a_system(network=network, n_chips=1)


def test_one_chip_is_a_system(a_system, a_dimension):
    assert a_system(network=(a_dimension(size=1),), n_chips=1).n_chips == 1


@pytest.mark.parametrize("n_chips", [0, -8, 8.0, True])
def test_chips_are_counted_in_whole_numbers(a_system, n_chips):
    with pytest.raises(InputError, match="^n_chips: got"):
        a_system(n_chips=n_chips)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"size": 0}, "size"),
        ({"bandwidth": 0.0}, "bandwidth"),
        ({"bandwidth": math.inf}, "bandwidth"),
        ({"latency": -1e-9}, "latency"),
        ({"link_power": -1.0}, "link_power"),
    ],
)
def test_a_wrong_field_of_a_dimension_is_named(a_dimension, changes, field):
    with pytest.raises(InputError, match=f"^{field}: got"):
        a_dimension(**changes)


def test_size_and_use_of_a_dimension_may_be_left_open():
    dimension = Dimension(kind=DimensionKind.SWITCH, bandwidth=1e9)
    assert (dimension.size, dimension.parallelism) == (None, None)


def test_memory_without_a_capacity_is_unlimited():
    assert main_memory(bandwidth=1e9)[0].capacity is None


def test_what_is_left_free_of_a_memory_has_no_room():
    memory = main_memory(bandwidth=1e9, capacity=8e9, spare=3e9)[0]
    assert (memory.capacity, memory.room) == (8e9, 5e9)
    with pytest.raises(InputError, match="less than there is, 8 GB"):
        main_memory(bandwidth=1e9, capacity=8e9, spare=8e9)


@pytest.mark.parametrize(
    "changes",
    [
        {"bandwidth": 0.0},
        {"bandwidth": 1.0, "capacity": 0.0},
        {"bandwidth": 2.0, "capacity": 1.0, "second_bandwidth": 0.0, "second_capacity": 1.0},
        {"bandwidth": 2.0, "capacity": 1.0, "second_bandwidth": 1.0, "second_capacity": 0.0},
    ],
)
def test_memory_of_nothing_is_refused(changes):
    with pytest.raises(InputError, match="above 0"):
        main_memory(**changes)


@pytest.mark.parametrize("field", ["link", "switch", "memory", "switch_power", "memory_power"])
def test_negative_prices_are_refused(field):
    with pytest.raises(InputError, match=f"^{field}: got -1"):
        Prices(**{field: -1})


class TestKindsOfDimension:
    def dimension(self, kind, **more):
        return Dimension(kind=kind, bandwidth=1e9, **more)

    @pytest.mark.parametrize(
        ("kind", "more", "says"),
        [
            ("ring", {"shape": (4, 4)}, "shape: got '4x4'; allowed: that of a mesh or torus"),
            ("torus", {"size": 8, "shape": (3, 3)}, "shape: got 3x3; allowed: a shape of 8 chips"),
            ("mesh", {"shape": (2, 2, 2, 2)}, "shape: got '2x2x2x2'; allowed: 1 to 3 axes"),
            ("fat_tree", {"oversubscription": 0.5}, "oversubscription: got 0.5; allowed: 1 or"),
            ("switch", {"oversubscription": 2.0}, "oversubscription: got 2.0; allowed: that of a"),
            ("ring", {"pod_size": 4}, "pod_size: got 4; allowed: that of a fat_tree, dragonfly"),
            ("dragonfly", {"pod_size": 0}, "pod_size: got 0"),
            ("torus", {"reduces": True}, "reduces: got True; allowed: false where there is no s"),
        ],
    )
    def test_what_a_kind_does_not_have_is_refused(self, kind, more, says):
        with pytest.raises(InputError) as caught:
            self.dimension(DimensionKind(kind), **more)
        assert str(caught.value).startswith(says)

    def test_a_torus_without_a_shape_is_nearly_square(self):
        assert self.dimension(DimensionKind.TORUS).axes(32) == (8, 4)
        assert self.dimension(DimensionKind.RING).axes(32) == (32,)
