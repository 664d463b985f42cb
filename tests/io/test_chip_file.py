"""Claims about crosstack's own chip file."""

from pathlib import Path

import pytest

from crosstack.errors import InputError
from crosstack.io.chip_file import read_chip
from crosstack.io.technology import read_library, shipped
from crosstack.machine.generate.generated import generate
from crosstack.machine.network import RING, SWITCH, DimensionKind, NetworkLevel

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "chips" / "n5_hbm3.yaml"
SHORT = "memory: hbm3\nchip_area: 800 mm^2\npower: 500 W\n"


def made(text, *overrides):
    description = read_chip(text, "mine.yaml", overrides)
    return generate(description.template, description.budget)


def test_the_shortest_file_makes_a_chip():
    chip = made(SHORT)
    assert chip.chip.name == "mine"
    assert [level.name for level in chip.chip.storage] == ["registers", "L1", "L2", "DRAM"]


def test_the_public_v100_comes_out_of_the_defaults():
    # deepflow_code, configs/v100.yaml: 815 mm2, 300 W, node of 1230 mm2, HBM2 of 100 mm2 a stack.
    chip = made("memory: hbm2\nchip_area: 815 mm^2\npackage_area: 1230 mm^2\npower: 300 W\n")
    assert chip.chip.compute.n_units == 640
    assert chip.chip.compute.frequency == pytest.approx(1.522e9, rel=1e-3)
    assert chip.chip.level("L2").capacity == 6 * 2**20
    assert chip.chip.inter.bandwidth == pytest.approx(51.6e9, rel=1e-3)


def test_the_example_is_a_chip_of_its_node():
    chip = made(EXAMPLE.read_text())
    steps = 3.33 * 1.8  # N12 to N5, foundry: nodes.yaml
    assert chip.chip.compute.n_units == 32 * int(240 * steps / 0.38 / 32)
    assert chip.unused_power == pytest.approx(5.0)


@pytest.mark.parametrize("scaling", ["paper", "foundry"])
def test_a_later_node_is_never_slower(scaling):
    rates = [
        made(EXAMPLE.read_text(), f"node={node}", f"scaling={scaling}").chip.compute.peak_throughput
        for node in shipped().names("nodes")
    ]  # fmt: skip
    assert rates == sorted(rates)


def test_a_memory_of_the_users_own_can_be_used():
    own = "technology:\n  substrates:\n    glass:\n      wires_per_length: {value: 250 /mm, kind: assumed, source: me}\n      maximum_area: {value: 5000 mm^2, kind: assumed, source: me}\n"  # noqa: E501
    description = read_chip(SHORT + own + "substrate: glass\n", "mine.yaml")
    assert description.template.dram.technology.wires_per_length == 250e3
    assert float(description.budget.package_area) == pytest.approx(5000e-6)


def test_a_library_file_can_be_used():
    library = read_library(
        "nodes:\n  N0: {previous: {value: N1, kind: assumed, source: me}, "
        "sram_cell: {value: 0.01 um^2, kind: assumed, source: me}, "
        "density: {value: 2, kind: assumed, source: me}}\n",
        "own.yaml",
    )
    first = read_chip(SHORT + "node: N1\n", "a.yaml", (), library)
    second = read_chip(SHORT + "node: N0\n", "a.yaml", (), library)
    areas = [one.template.compute.unit.area for one in (first, second)]
    assert areas[1] == pytest.approx(areas[0] / 2)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("node: N4", 'node: no node is called "N4". Did you mean "N'),
        ("unit: tensorcore", "unit: no compute unit is called"),
        ("nod: N5", 'nod: unknown field. Did you mean "node"'),
        ("substrate: paper", 'substrate: no substrate is called "paper"'),
        ("inter: nvlink9", 'inter.link: no link is called "nvlink9". Did you mean "nvlink'),
        ("package_area: 1 m^2", "package_area: got 1e+06 mm^2; allowed: up to 2700 mm^2"),
        ("shares: {area: {cmpute: 10 %}}", 'shares.area.cmpute: unknown field. Did you mean "comp'),
        ("scaling: linear", "scaling: got 'linear'; allowed: paper, foundry"),
        ("levels: [{name: L1, sram: sram_l9, scope: chip}]", "levels[0].sram: no on-chip memory"),
        ("levels: [{name: DRAM, sram: sram_l1, scope: chip}]", "a name of its own for each level"),
    ],
)
def test_a_mistake_is_told_with_its_place(line, says):
    with pytest.raises(InputError) as caught:
        read_chip(f"{SHORT}{line}\n", "mine.yaml")
    assert says in str(caught.value)
    assert str(caught.value).startswith("mine.yaml: ")


def test_an_unknown_memory_is_told():
    with pytest.raises(InputError, match='memory: no main memory is called "hbm5"'):
        read_chip(SHORT.replace("hbm3", "hbm5"), "mine.yaml")


JOINED = SHORT + "intra: {link: on_package, kind: torus, shape: 4x2}\nchips_per_package: 8\n"


def test_a_level_of_the_network_has_a_kind_and_a_shape():
    found = read_chip(JOINED, "mine.yaml")
    assert found.inside == NetworkLevel(kind=DimensionKind.TORUS, shape=(4, 2))
    assert found.between == SWITCH


def test_wires_are_shared_out_over_the_neighbours_of_a_kind_that_is_given():
    # A torus of 4 x 2: a link each way round both axes.
    def neighbours(*overrides):
        return read_chip(JOINED, "mine.yaml", overrides).template.intra.n_neighbours

    assert neighbours() == 4
    assert neighbours("intra.neighbours=2") == 2
    assert neighbours("intra={link: on_package, kind: fully_connected}") == 7
    assert neighbours("intra=on_package") == 1


def test_chips_are_joined_otherwise_with_the_same_wires():
    found = read_chip(JOINED, "mine.yaml").joined(RING, RING)
    assert (found.inside, found.between) == (RING, RING)
    assert (found.template.intra.n_neighbours, found.template.inter.n_neighbours) == (2, 1)


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("intra.kind=mash", "intra.kind"),
        ("intra.shape=4x4", "intra.shape: got 4x4; allowed: a shape of 8 chips"),
        ("intra.kind=ring", "intra.shape: got '4x2'; allowed: that of a mesh or torus"),
        ("intra.shape=wide", "intra.shape: got 'wide'; allowed: whole numbers joined by x"),
    ],
)
def test_a_wrong_level_is_named_where_it_stands(override, says):
    with pytest.raises(InputError) as caught:
        read_chip(JOINED, "mine.yaml", [override])
    assert says in str(caught.value)
