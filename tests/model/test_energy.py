"""Energy of an iteration from the powers of what is sold, by hand, and what is missing for it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import crosstack as ct
from crosstack.errors import InputError
from crosstack.evaluate.plan import optimise
from crosstack.io import library
from crosstack.io.native import read_task
from crosstack.machine.prices import system_price
from crosstack.mapping.degrees import Degrees
from crosstack.mapping.mapping import Constraints
from crosstack.mapping.search import search
from crosstack.model.collectives import NOTHING
from crosstack.model.energy import Basis, energy_of_budget, energy_rates, powers_of
from crosstack.model.kernels.clock import product_time
from crosstack.model.mesh_plan import AffineTime, MeshPlan
from crosstack.model.objective import YEAR, YEARS, Objective, price_of
from crosstack.model.rules import rules_named
from crosstack.published.dfmodel.graphs.llm import llm
from crosstack.workload.transformer_training import Recompute

LLAMA = Path(__file__).resolve().parents[2] / "examples" / "llama3_8b_sn40l.yaml"
RULES = rules_named("crosstack")
LAYERS, SEQUENCES, CHIPS = 32, 16, 8


@pytest.fixture(scope="module")
def on_dgx():
    """One token of Llama 3 8B for 16 sequences on a DGX H100."""
    given = Constraints(degrees=Degrees(tensor=CHIPS, pipeline=1, data=1))
    task = replace(ct.load(LLAMA), system=library.system_on("h100-dgx"), constraints=given)
    answer = optimise(task, objective="energy", work_limit=1e5)
    assert answer.mapping.degree(ct.Parallelism.TENSOR) == CHIPS
    return answer


def test_a_token_on_a_dgx_h100_takes_what_its_data_sheets_say(on_dgx):
    """140 W idle and 700 W at 989.4 TFLOP/s a module; 5.5 W of an NVSwitch a port of 25 GB/s."""
    e = on_dgx.evaluation
    runs = [(LAYERS, e.kernels), *((end.count, end.kernels) for end in e.ends)]
    each = [(SEQUENCES * CHIPS * times, k) for times, kernels in runs for k in kernels]
    static = CHIPS * 140.0 * e.time
    compute = (700.0 - 140.0) * sum(times * k.work for times, k in each) / 989.4e12
    switches = 0.22 * 450.0 * sum(times * k.network_time for times, k in each)
    assert [end.name for end in e.ends] == ["embedding", "head"]
    assert e.energy.static == pytest.approx(static)
    assert e.energy.compute == pytest.approx(compute, rel=1e-4)
    assert e.energy.network == pytest.approx(switches)
    assert e.energy.memory == 0  # in the module's power
    assert e.energy.total == pytest.approx(static + compute + switches, rel=1e-4)
    assert e.energy.basis is Basis.IDLE


def test_the_price_is_that_of_the_node_over_four_years(on_dgx):
    task = on_dgx.task
    assert price_of(task.system, (CHIPS,)) == 310_000.0
    answer = optimise(task, objective="price", work_limit=1e5)
    share = 310_000.0 * answer.evaluation.time / (YEARS * YEAR)
    assert answer.certificate.objective == pytest.approx(share)


def test_two_nodes_pay_for_cables_and_switches_between_them():
    system = library.system_on("h100-dgx", chips=16, fabric="rail-only")
    bill = system_price(system, (8, 2))
    assert bill.chips == 620_000.0
    # 16 ports of 50 GB/s, each with a cable and a port of a switch.
    assert (bill.links, bill.switches) == pytest.approx((16 * 1320.0, 16 * 36_000.0 / 64))
    powers = powers_of(system, (8, 2))
    assert powers.links == pytest.approx((0.22 * 450.0, 1720.0 / 64))


@pytest.mark.parametrize(
    ("name", "objective", "fields"),
    [
        ("b200-dgx", "energy", ["prices.switch_power"]),
        ("b200-dgx", "energy-delay", ["prices.switch_power"]),
        ("tpu-v5e-pod", "energy", ["chip.power"]),
        ("a100-dgx-80gb", "price", ["chip.price", "prices.link", "prices.switch"]),
        ("mi300x-8", "price", ["chip.price", "prices.link"]),
    ],
)
def test_what_is_not_published_is_named_field_by_field(name, objective, fields):
    task = replace(ct.load(LLAMA), system=library.system_on(name, chips=8))
    with pytest.raises(InputError) as caught:
        optimise(task, objective=objective, work_limit=1e4)
    assert [p.path for p in caught.value.problems] == [f"system.{field}" for field in fields]
    assert all("give it in " in p.message for p in caught.value.problems)


def test_a_price_of_the_file_stands_in_place_of_the_librarys():
    text = LLAMA.read_text().partition("system:")[0]
    system = "system: {on: h100-dgx, prices: {switch_power: 1 W/(GB/s)}}\n"
    task = read_task(text + system, "test.yaml")
    assert powers_of(task.system, (8,)).links == pytest.approx((450.0,))


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("v100-dgx-2", "fp16"),
        ("a100-dgx-40gb", "bf16"),
        ("mi300x-8", "bf16"),
        ("tpu-v4-cube", "bf16"),
    ],
)
def test_energy_is_answered_where_everything_is_published(name, dtype):
    system = library.system_on(name, chips=8)
    task = ct.load(LLAMA, [f"workload.dtype={dtype}"])
    problem = (task.workload, system, task.constraints, RULES)
    mapping, certificate = search(*problem, objective=Objective.ENERGY, work_limit=2e4)
    found = ct.evaluate(task.workload, system, mapping)
    assert found.energy.total == pytest.approx(certificate.objective, rel=1e-9)
    faster, _ = search(*problem, work_limit=2e4)
    assert ct.evaluate(task.workload, system, faster).time <= found.time * (1 + 1e-9)


def test_links_of_two_levels_draw_their_power_for_as_long_as_each_is_busy():
    system = library.system_on("h100-dgx", chips=16, fabric="rail-only")
    plan = MeshPlan(
        sizes=(8, 2), parallelism=(ct.Parallelism.TENSOR,) * 2, microbatch_size=1, tensor=16,
        pipeline=1, data=1, n_microbatches=1, layers_per_stage=1, collectives={}, changes={},
        periodic=NOTHING, stage_transfer=AffineTime(), n_layers=1,
    )  # fmt: skip
    inside, outside = (dimension.bandwidth for dimension in system.network)
    # a ring in the node leaves an eighth, of which half goes to the other one
    busy = 7 / 8 / inside, 1 / 8 / 2 / outside
    power = (busy[0] * 0.22 * 450.0 + busy[1] * 1720.0 / 64) / sum(busy)
    assert energy_rates(system, plan).tensor == pytest.approx(16 * power)


def test_a_chip_of_which_only_its_power_is_known_draws_it_all_the_time():
    found = energy_of_budget(700.0, 3.0)
    assert (found.static, found.total, found.basis) == (2100.0, 2100.0, Basis.BUDGET)


def test_memories_on_a_chip_that_say_nothing_draw_nothing():
    task = ct.load(LLAMA)
    system = replace(
        task.system,
        chip=replace(task.system.chip, power=500.0, idle_power=100.0),
        prices=replace(task.system.prices, memory_power=1.0, switch_power=1.0),
        network=tuple(replace(d, link_power=1.0) for d in task.system.network),
    )
    found = optimise(replace(task, system=system), work_limit=1e4, gap=0.9).evaluation
    assert [end.name for end in found.ends] == ["embedding", "head"]
    assert (found.energy.on_chip, found.energy.basis) == (0.0, Basis.IDLE)


# ---------------------------------------------------------------- chips described by their parts


def with_parts(name: str):
    """Return a chip whose units and memories say what they draw."""
    chip = library.chip(name).with_compute(power=300.0)
    for i in range(len(chip.levels)):
        chip = chip.with_level(i, energy_per_bit=(i + 1) * 1e-14, static_power=1.0 + i)
    return chip.with_memory(energy_per_bit=4e-12, static_power=10.0)


def test_memory_beside_a_chip_draws_what_its_price_list_says():
    system = library.system_on("h100-dgx")
    priced = replace(system, prices=replace(system.prices, memory_power=12.5))
    assert powers_of(priced, (CHIPS,)).memory == 12.5
    parts = replace(priced, chip=with_parts("h100-sxm"))
    assert powers_of(parts, (CHIPS,)).memory == pytest.approx(12.5 + 8 * 4e-12)  # and its bits


def test_a_product_takes_what_its_work_and_bytes_take_by_unit_and_level():
    chip = with_parts("h100-sxm")
    kernel = "{name: A, kind: gemm_weight, m: 4096, k: 8192, n: 2048}"
    text = f"workload: {{word: 2, sequence_length: 2048, kernels: [{kernel}]}}\n"
    task = read_task(text + "system: {on: h100-sxm}\n", "test.yaml")
    system = replace(task.system, chip=chip)
    e = optimise(replace(task, system=system), objective="energy").evaluation
    product = product_time(RULES.clock.kernels, chip, 4096, 8192, 2048)
    on_chip = sum(
        8e-14 * (i + 1) * float(product.traffic[level.name]) for i, level in enumerate(chip.levels)
    )
    main = float(product.operands.sum())
    assert e.energy.basis is Basis.PARTS
    assert e.energy.static == pytest.approx((1 + 2 + 3 + 10) * e.time)
    assert e.energy.compute == pytest.approx(300 * 2 * 4096 * 8192 * 2048 / chip.peak_throughput)
    assert e.energy.on_chip == pytest.approx(on_chip)
    assert e.energy.memory == pytest.approx(8 * 4e-12 * main)


@pytest.mark.slow
@pytest.mark.parametrize("recompute", list(Recompute))
def test_what_the_search_minimises_is_the_energy_of_a_generated_chip(recompute):
    workload = llm(
        hidden=1024, sequence_length=512, n_heads=8, head_size=128, n_layers=4, global_batch_size=4
    )
    system = library.system_on("a100-dgx-80gb", chips=4)
    system = replace(system, chip=with_parts("a100-sxm-80gb"))
    given = Constraints(recompute=recompute)
    mapping, certificate = search(
        workload, system, given, RULES, objective=Objective.ENERGY, work_limit=2e4
    )
    found = ct.evaluate(workload, system, mapping)
    assert mapping.recompute is recompute
    assert found.energy.on_chip > 0
    assert found.energy.total == pytest.approx(certificate.objective, rel=1e-9)
