import pytest
from hypothesis import given
from hypothesis import strategies as st

from crosstack.errors import InputError
from crosstack.mapping.strategy import (
    KernelSplit,
    ParallelDimension,
    Strategy,
    parse_order,
    parse_strategy,
    strategies,
    whole_order,
)

degrees = st.integers(1, 64)


@given(st.builds(Strategy, kp1=degrees, kp2=degrees, dp=degrees, lp=degrees))
def test_what_is_printed_is_read_again(strategy):
    assert parse_strategy(str(strategy)) == strategy


def test_names_are_those_of_the_paper():
    assert str(Strategy(kp1=4, kp2=2, dp=8, lp=1)) == "RC-4-2-d8-p1"
    assert parse_strategy("tp=8, pp=4,DP=16") == Strategy(kp2=8, lp=4, dp=16)
    assert parse_strategy("dp=2") == Strategy(dp=2)
    spread = Strategy(kp2=8, lp=4, dp=16, ep=8)
    assert parse_strategy("tp=8,pp=4,ep=8,dp=16") == spread
    assert str(spread) == "RC-1-8-d16-p4-e8"
    assert (parse_strategy(str(spread)), spread.n_chips) == (spread, 512)
    assert parse_strategy("cr-4-d2-p3") == Strategy(split=KernelSplit.CR, kp1=4, dp=2, lp=3)


@pytest.mark.parametrize(
    "text", ["", "RC-4-d8-p1", "CR-4-2-d8-p1", "RC-4-2", "RC-0-2-d1-p1", "R" * 10_000]
)
def test_what_is_no_strategy_is_refused_with_the_form(text):
    with pytest.raises(InputError, match="strategy"):
        parse_strategy(text)


def test_chips_with_parts_of_the_experts_are_data_parallel_ones():
    with pytest.raises(InputError, match="ep: got 8; allowed: a divisor of .* degree, 4"):
        parse_strategy("dp=4,ep=8")


def test_cr_splits_one_axis_only():
    with pytest.raises(InputError, match="kp2"):
        Strategy(split=KernelSplit.CR, kp1=2, kp2=2)


def brute(n):
    every = range(1, n + 1)
    rc = {(a, b, d, p) for a in every for b in every for d in every for p in every
          if a * b * d * p == n}  # fmt: skip
    cr = {(a, d, p) for a in every for d in every for p in every if a > 1 and a * d * p == n}
    return len(rc) + len(cr)


@pytest.mark.parametrize("n", [1, 2, 6, 8, 12])
def test_every_strategy_is_listed_once(n):
    found = strategies(n)
    assert len(set(found)) == len(found) == brute(n)
    assert all(s.n_chips == n for s in found)


def test_the_number_of_stages_can_be_bounded():
    assert max(s.lp for s in strategies(16, max_lp=4)) == 4


def test_an_order_is_read_innermost_first():
    assert parse_order("dp, KP1") == (ParallelDimension.DP, ParallelDimension.KP1)


@pytest.mark.parametrize(
    ("text", "says"), [("kp3", 'Did you mean "kp'), ("dp,dp", "each dimension once"), ("", "kp1")]
)
def test_a_wrong_order_is_refused(text, says):
    with pytest.raises(InputError, match=says):
        parse_order(text)


def test_dimensions_of_one_shard_may_be_left_out_of_an_order():
    order = whole_order(parse_strategy("RC-2-1-d4-p1"), parse_order("dp,kp1"))
    assert [d.value for d in order] == ["dp", "kp1", "kp2", "lp"]
    with pytest.raises(InputError, match="leaves out kp1 of RC-2-1-d4-p1"):
        whole_order(parse_strategy("RC-2-1-d4-p1"), parse_order("dp"))
