from __future__ import annotations

import math
import pickle

import pytest

from crosstack.errors import (
    CrosstackError,
    InfeasibleError,
    InputError,
    LimitError,
    Problem,
    nearest,
    require,
    require_quantity,
    require_whole,
)


def infeasible() -> InfeasibleError:
    return InfeasibleError(
        resource="SRAM",
        demand=2e9,
        limit=1e9,
        unit="B",
        where="partition 3",
        levers=("a larger SRAM", "more tiles"),
    )


@pytest.mark.parametrize(
    ("error", "code"),
    [
        pytest.param(CrosstackError(), 1, id="bug"),
        pytest.param(InputError(()), 2, id="bad input"),
        pytest.param(infeasible(), 3, id="infeasible"),
        pytest.param(LimitError(), 3, id="no answer before a limit"),
    ],
)
def test_every_branch_has_its_exit_code(error, code):
    assert error.exit_code == code


@pytest.mark.parametrize("error", [InputError(()), infeasible()])
def test_one_base_catches_every_error(error):
    assert isinstance(error, CrosstackError)


def test_bad_input_is_a_value_error():
    assert issubclass(InputError, ValueError)


def test_a_problem_reads_as_path_then_message():
    assert str(Problem("chip.lanes", "got 0.")) == "chip.lanes: got 0."


def test_more_problems_than_anybody_reads_are_counted():
    error = InputError(Problem(f"f{i}", "got 0.") for i in range(23))
    assert len(error.problems) == 23
    assert str(error).splitlines()[19:] == ["f19: got 0.", "and 3 more problems."]


def test_a_problem_that_stands_for_many_counts_as_many():
    more = Problem("f", "980 more unknown fields.", count=980)
    error = InputError([*(Problem(f"f{i}", "got 0.") for i in range(20)), more])
    assert str(error.under("file")).splitlines()[-1] == "and 980 more problems."


def test_twenty_problems_are_all_said():
    error = InputError(Problem(f"f{i}", "got 0.") for i in range(20))
    assert str(error).splitlines()[-1] == "f19: got 0."


def test_a_problem_without_a_path_is_its_message():
    assert str(Problem("", "got 0.")) == "got 0."


def test_an_input_error_has_one_line_for_each_problem():
    error = InputError([Problem("a", "first."), Problem("b", "second.")])
    assert str(error) == "a: first.\nb: second."


def test_an_input_error_takes_a_single_problem():
    assert InputError(Problem("a", "wrong.")).problems == (Problem("a", "wrong."),)


@pytest.mark.parametrize(
    ("prefix", "path", "joined"),
    [
        pytest.param("system", "chip", "system.chip", id="field"),
        pytest.param("kernels", "[3].name", "kernels[3].name", id="item"),
        pytest.param("", "chip", "chip", id="no prefix"),
        pytest.param("system", "", "system", id="no path"),
    ],
)
def test_a_prefix_goes_before_the_path(prefix, path, joined):
    (problem,) = InputError(Problem(path, "wrong.")).under(prefix).problems
    assert problem.path == joined


@pytest.mark.parametrize("part", ["SRAM", "2 GB", "1 GB", "partition 3", "more tiles"])
def test_an_infeasible_error_names_what_is_short_and_what_would_help(part):
    assert part in str(infeasible())


def test_the_nearest_name_comes_first():
    assert nearest("bandwith", ["latency", "bandwidth", "band"])[0] == "bandwidth"


def test_the_nearest_name_ignores_case():
    assert nearest("QKV", ["qkv"]) == ["qkv"]


def test_no_name_is_near_to_nonsense():
    assert nearest("zzzz", ["bandwidth", "latency"]) == []


def test_the_nearest_names_are_no_more_than_asked():
    assert len(nearest("kernel", [f"kernel{i}" for i in range(9)], count=2)) == 2


def test_what_holds_passes():
    require(True, "size", 1, "at least 1")


def test_what_does_not_hold_says_field_value_and_what_is_allowed():
    with pytest.raises(InputError, match=r"size: got -1; allowed: at least 1\."):
        require(False, "size", -1, "at least 1")


@pytest.mark.parametrize("value", [1, 2**53 - 1])
def test_whole_numbers_pass(value):
    require_whole("size", value)


@pytest.mark.parametrize("value", [0, -1, 1.0, True, None, "1", 2**53, math.nan, math.inf])
def test_what_is_not_a_whole_number_in_range_is_refused(value):
    with pytest.raises(InputError, match="size: got"):
        require_whole("size", value)


def test_a_whole_number_may_start_at_zero_where_asked():
    require_whole("partition", 0, minimum=0)


@pytest.mark.parametrize("value", [0, 0.0, 1, 1e300])
def test_quantities_pass(value):
    require_quantity("size", value, "B")


@pytest.mark.parametrize("value", [-1, -1e-9, math.nan, math.inf, -math.inf, True, None, "1", 1j])
def test_what_is_not_a_finite_quantity_is_refused(value):
    with pytest.raises(InputError, match=r"size: got .*\[B\]"):
        require_quantity("size", value, "B")


def test_zero_is_refused_where_a_quantity_must_be_above_it():
    with pytest.raises(InputError, match="above 0"):
        require_quantity("bandwidth", 0, "B/s", above_zero=True)


def test_infinity_passes_where_it_is_allowed():
    require_quantity("capacity", math.inf, "B", infinite=True)


def test_not_a_number_never_passes():
    with pytest.raises(InputError):
        require_quantity("capacity", math.nan, "B", infinite=True)


def test_a_number_too_large_for_a_float_is_bad_input():
    with pytest.raises(InputError):
        require_quantity("size", 10**400, "B")


class OwnError(InputError):
    """Whose making takes something else."""

    def __init__(self, line: int, *, name: str) -> None:
        self.line = line
        super().__init__(Problem(name, f"line {line}"))


@pytest.mark.parametrize(
    "error",
    [
        CrosstackError("text", 3),
        InputError([Problem("a", "b"), Problem("c", "d", 3)]),
        infeasible(),
        LimitError("no mapping found before the limit"),
        OwnError(3, name="a file"),
    ],
)
@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_an_error_comes_back_from_another_process_as_it_was(error, protocol):
    again = pickle.loads(pickle.dumps(error, protocol))
    assert type(again) is type(error)
    assert again.args == error.args
    assert str(again) == str(error)
    assert vars(again) == vars(error)
