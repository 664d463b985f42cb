"""Claims about the machine library."""

import math

import pytest

from crosstack.errors import InputError
from crosstack.io import library
from crosstack.io.library import Origin
from crosstack.machine.system import DimensionKind

# A topology is kinds of dimensions alone.
NUMBERED = [section for section in library.SECTIONS if section != "topologies"]


def numbers(section):
    """Return the numbers of a section, each with the name of its entry."""
    found = [
        (name, figure)
        for name in library.names(section)
        for figure in library.entry(section, name).figures
        if isinstance(figure.value, int | float) and not isinstance(figure.value, bool)
    ]
    assert found
    return found


def said_of(faulty):
    return [f"{name}.{figure.field}" for name, figure in faulty]


@pytest.mark.parametrize("section", NUMBERED)
def test_every_number_has_a_source_in_the_references(section):
    known = library.references()
    assert (
        said_of((n, f) for n, f in numbers(section) if f.source not in known or not f.where) == []
    )


@pytest.mark.parametrize("section", NUMBERED)
def test_every_number_says_what_kind_it_is(section):
    assert said_of((n, f) for n, f in numbers(section) if f.kind not in Origin) == []


# Peak of 2 x cores x width x height x GHz, logged by the published setups; they round the clock to
# float32. Source: dfmodel_code logs, Table V of ko2025dfmodel.
@pytest.mark.parametrize(
    ("name", "gflops", "sram"),
    [
        ("h100", 993214.470703125, 118489090),
        ("tpu_v4", 275251.1875, 167772160),
        ("sn30", 614400.0, 671088640),
        ("wse_2", 7513228.962844849, 41964010000),
        ("a100", 311869.4326171875, 88080384),
        ("sn10", 307200.0, 335544320),
        ("sn40l", 638976.0095214844, 545259520),
    ],
)
def test_a_chip_has_the_published_peak_and_sram(name, gflops, sram):
    chip = library.chip(name)
    assert chip.peak_throughput == pytest.approx(gflops * 1e9, rel=1e-6)
    assert chip.on_chip_capacity == sram


def test_no_chip_comes_with_a_utilization():
    assert all(library.chip(name).compute.utilization is None for name in library.names("chips"))


@pytest.mark.parametrize("name", library.names("memories"))
def test_a_memory_is_a_record_of_its_entry(name):
    (memory,) = library.memory(name)
    assert memory.bandwidth == library.entry("memories", name).values["bandwidth"]


@pytest.mark.parametrize("name", library.names("links"))
def test_a_link_is_a_record_of_its_entry(name):
    link = library.link(name)
    assert 0 < link.bandwidth < math.inf
    assert link.link_power == library.entry("links", name).values.get("link_power")


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("torus_2d", ("ring", "ring")),
        ("torus_3d", ("ring", "ring", "ring")),
        ("dragonfly", ("fully_connected", "fully_connected")),
        ("dgx_1", ("ring", "switch")),
        ("dgx_2", ("switch", "switch")),
    ],
)
def test_a_topology_is_what_the_paper_says(name, kinds):
    assert library.topology(name) == tuple(DimensionKind(kind) for kind in kinds)


@pytest.mark.parametrize(
    ("look_up", "name", "nearest"),
    [
        (library.chip, "sn3O", "sn30"),
        (library.memory, "dddr", "ddr"),
        (library.link, "pcie5", "pcie4"),
        (library.topology, "torus2d", "torus_2d"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(look_up, name, nearest):
    with pytest.raises(InputError, match=f'called "{name}". Did you mean "{nearest}"'):
        look_up(name)


def test_an_unknown_section_is_refused():
    with pytest.raises(InputError, match="no section 'chip'"):
        library.names("chip")
