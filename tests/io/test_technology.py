"""Claims about the technology library and a user's own entries."""

from pathlib import Path

import pytest

from crosstack.errors import InputError
from crosstack.io import library as machines
from crosstack.io.library import Origin
from crosstack.io.technology import SECTIONS, read_library, shipped
from crosstack.report.library_text import derived
from crosstack.technology.scaling import Scaling, steps_between

NAMES = [(section, name) for section in SECTIONS for name in shipped().names(section)]
FIGURES = [
    pytest.param(figure, id=f"{name}.{figure.field}")
    for section, name in NAMES
    for figure in shipped().entry(section, name).figures
]
# What the issue of the library asks for.
WANTED = [
    "N12", "N7", "N5", "N3", "N2", "N1.4", "N1", "hbm2", "hbm2e", "hbm3", "hbm4", "ddr5", "lpddr5x",
    "nvlink4", "pcie5", "infiniband_ndr", "infiniband_xdr", "infiniband_gdr", "on_package",
    "wafer_scale", "interposer",
]  # fmt: skip

OWN = """
drams:
  mine:
    title: A memory of my own
    stack_capacity: {value: 8 GB, kind: assumed, source: my notebook}
    stack_area: {value: 100 mm^2, kind: assumed, source: my notebook}
    controller_area: {value: 4 mm^2, kind: assumed, source: my notebook}
    wires_per_stack: {value: 512, kind: assumed, source: my notebook}
    wires_per_length: {value: 300 /mm, kind: assumed, source: my notebook}
    nominal_rate: {value: 10 Gbit/s, kind: assumed, source: my notebook, where: page 3}
    energy_per_bit: {value: 2.5 pJ, kind: assumed, source: my notebook}
    nominal_voltage: {value: 1.0 V, kind: assumed, source: my notebook}
    threshold_voltage: {value: 0.3 V, kind: assumed, source: my notebook}
    minimum_voltage: {value: 800 mV, kind: assumed, source: my notebook}
"""


@pytest.mark.parametrize("figure", FIGURES)
def test_every_number_has_a_source_and_a_place_in_it(figure):
    assert figure.source in machines.references()
    assert figure.where
    assert figure.kind in Origin


@pytest.mark.parametrize("name", WANTED)
def test_what_is_asked_for_is_there(name):
    assert shipped().find(name).name == name


@pytest.mark.parametrize(("section", "name"), NAMES)
def test_every_entry_makes_a_record_and_derived_quantities(section, name):
    shipped().check(section, name, section)
    assert derived(shipped(), shipped().entry(section, name))


def test_names_are_in_one_section_only():
    names = [name.casefold() for _, name in NAMES]
    assert len(set(names)) == len(names)


# Bandwidth of one stack. [GB/s] Source: the standards, as cited in drams.yaml.
@pytest.mark.parametrize(
    ("name", "bandwidth"),
    [("hbm2", 256.0), ("hbm2e", 460.8), ("hbm3", 819.2), ("hbm4", 2048.0), ("ddr5", 51.2)],
)
def test_a_stack_has_the_bandwidth_of_its_standard(name, bandwidth):
    assert shipped().dram(name).stack_bandwidth == pytest.approx(bandwidth * 1e9, rel=1e-12)


# Bandwidth one way of so many lanes. [GB/s] Source: ardalani2022deepflow, section 9 (NDR-x8,
# XDR-x8, GDR-x8 as in 9.1); choquette2022h100 (18 links of 2 pairs).
@pytest.mark.parametrize(
    ("name", "lanes", "bandwidth"),
    [
        ("infiniband_ndr", 8, 100.0),
        ("infiniband_xdr", 8, 200.0),
        ("infiniband_gdr", 8, 400.0),
        ("nvlink4", 36, 450.0),
        ("nvlink3", 48, 300.0),
    ],
)
def test_lanes_have_the_bandwidth_that_is_published(name, lanes, bandwidth):
    link = shipped().link(name)
    assert lanes * link.nominal_rate / 8 == pytest.approx(bandwidth * 1e9, rel=1e-12)


def test_seven_nodes_of_the_paper_are_six_steps():
    steps = steps_between(shipped().nodes(), "N12", "N1", Scaling.PAPER)
    assert steps.density == pytest.approx(1.8**6)
    assert steps.power == pytest.approx(1.3**-6)


@pytest.mark.parametrize("name", [n for n in shipped().names("nodes") if n != "N12"])
def test_the_page_has_the_steps_of_the_library(name):
    page = Path(__file__).resolve().parents[2] / "docs" / "technology.md"
    paper, foundry = (steps_between(shipped().nodes(), "N12", name, s) for s in Scaling)
    row = (
        f"| {name} | {paper.density:.2f} | {foundry.density:.2f} | {paper.power:.3f} | "
        f"{foundry.power:.3f} | {paper.sram_area:.3f} | {foundry.sram_area:.3f} |"
    )
    assert row in page.read_text().splitlines()


def test_entries_of_a_user_are_found_beside_those_shipped():
    found = read_library(OWN, "mine.yaml")
    assert found.dram("mine").stack_bandwidth == pytest.approx(640e9)
    assert found.dram("hbm3") == shipped().dram("hbm3")
    assert ("energy", "2.5 pJ/bit") in derived(found, found.find("MINE"))


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("drams:", "dram:", 'dram: unknown field. Did you mean "drams"'),
        ("nominal_rate:", "nominal_rat:", 'unknown field. Did you mean "nominal_rate"'),
        ("    wires_per_stack: {value: 512,", "    wires_per_stack: {value: 0,", "a whole number"),
        ("value: 2.5 pJ", "value: 2.5 pK", "energy_per_bit.value: got '2.5 pK'; allowed units"),
        ("kind: assumed, source: my notebook, where", "kind: guess, source: x, where", "measured"),
        ("{value: 10 Gbit/s", "{vale: 10 Gbit/s", 'unknown field. Did you mean "value"'),
        ("value: 800 mV", "value: 200 mV", "volts above the threshold, 0.3 V"),
        ("{value: 4 mm^2, kind: assumed, source: my notebook}", "4 mm^2", "a mapping of value,"),
    ],
)  # fmt: skip
def test_a_mistake_in_an_entry_is_told(old, new, says):
    assert old in OWN
    with pytest.raises(InputError) as caught:
        read_library(OWN.replace(old, new, 1), "mine.yaml")
    assert says in str(caught.value)
    assert str(caught.value).startswith("mine.yaml: ")


@pytest.mark.parametrize("text", ["[]", "drams: 3", "drams: {mine: 3}"])
def test_what_is_no_library_is_refused(text):
    with pytest.raises(InputError, match=r"^mine.yaml: .*allowed: a mapping of"):
        read_library(text, "mine.yaml")


def test_an_unknown_name_is_refused_with_the_nearest():
    with pytest.raises(InputError, match='no main memory is called "hmb3"'):
        shipped().dram("hmb3")
    with pytest.raises(InputError, match=r'no technology is called "nvlink". Did you mean "nvlink'):
        shipped().find("nvlink")
