from __future__ import annotations

import math

import pytest
from slow_points import study_of

from crosstack.errors import InputError
from crosstack.explore.points import expand
from crosstack.explore.pool import Processes
from crosstack.explore.run import layout_of, run_study, sweep
from crosstack.explore.store import Store

SAME = ["key", "number", "status", "reason", "square", "model"]


def test_every_point_is_a_row_with_its_reason():
    table = sweep(study_of(12), jobs=1, table="arrow")
    status = dict(zip(table["number"].to_pylist(), table["status"].to_pylist(), strict=True))
    reason = dict(zip(table["number"].to_pylist(), table["reason"].to_pylist(), strict=True))
    assert status == {
        **dict.fromkeys(map(float, range(12)), "feasible"),
        3.0: "infeasible",
        4.0: "invalid",
        5.0: "failed",
    }
    assert "SRAM" in reason[3.0]
    assert reason[4.0] == "x: is 4."
    assert "ZeroDivisionError: by five" in reason[5.0]
    assert table["square"].to_pylist()[7] == 49 / 3.0
    assert table["square"].to_pylist()[3] is None


def test_processes_answer_as_this_one_does_to_the_last_bit():
    alone = sweep(study_of(25), jobs=1, table="arrow")
    beside = sweep(study_of(25), jobs=2, table="arrow")
    assert beside.select(SAME).equals(alone.select(SAME))


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_a_table_is_made_with_what_is_asked_for(kind):
    module = pytest.importorskip(kind)
    table = sweep(study_of(3), jobs=1, table=kind)
    assert isinstance(table, module.DataFrame)
    assert list(table["number"]) == [0.0, 1.0, 2.0]


def test_a_sweep_goes_on_where_another_ended(tmp_path):
    log = tmp_path / "log"
    sweep(study_of(6, log=str(log)), jobs=1, store=tmp_path / "store")
    table = sweep(study_of(9, log=str(log)), jobs=1, store=tmp_path / "store", resume=True)
    assert len(table) == 9
    assert log.read_text().split() == [str(i) for i in range(9)]


def test_a_store_with_points_is_not_gone_on_with_unasked(tmp_path):
    sweep(study_of(2), jobs=1, store=tmp_path / "store")
    with pytest.raises(InputError, match="holds 2 points already"):
        sweep(study_of(2), jobs=1, store=tmp_path / "store")


def test_a_store_with_other_columns_is_refused(tmp_path, write):
    sweep(study_of(2), jobs=1, store=tmp_path / "store")
    write("chip.yaml", "memory: hbm3\nchip_area: 800 mm^2\npower: 500 W\n")
    other = write("other.yaml", "base: chip.yaml\nevaluate: chip\naxes: {power: [400, 500]}\n")
    with pytest.raises(InputError, match=r"other columns.*Only there: number, square") as caught:
        sweep(write("other.yaml", other.read_text().replace("power:", "node:").replace(
            "[400, 500]", "[N5, N7]")), jobs=1, store=tmp_path / "store", resume=True)  # fmt: skip
    assert len(caught.value.problems) == 1


def test_a_folder_with_something_else_is_no_store(tmp_path):
    (tmp_path / "thesis.txt").write_text("years")
    with pytest.raises(InputError, match="is a directory with something else"):
        sweep(study_of(2), jobs=1, store=tmp_path)
    with pytest.raises(InputError, match="is no store"):
        Store.open(tmp_path)


def test_a_point_past_its_time_is_a_row():
    study = study_of(2, pause=30.0)
    table = sweep(study, jobs=2, timeout=1.5, table="arrow")
    assert table["status"].to_pylist() == ["timeout", "timeout"]
    assert table["reason"].to_pylist() == ["stopped after 1.5 s"] * 2


def test_a_process_that_dies_is_tried_again_once_and_then_a_row(tmp_path):
    log = tmp_path / "log"
    table = sweep(study_of(3, deadly=1, log=str(log)), jobs=2, table="arrow")
    assert table["status"].to_pylist() == ["feasible", "failed", "feasible"]
    assert table["reason"].to_pylist()[1] == "its process died 2 times (exit code 7)"
    assert sorted(log.read_text().split()) == ["0", "1", "1", "2"]


def test_progress_counts_points_and_ends_at_all_of_them(tmp_path):
    study = study_of(8)
    seen = []
    store = Store.create(tmp_path / "store", layout_of(study))
    run_study(study, store, Processes(1, math.inf), progress=seen.append)
    assert [p.done for p in seen] == list(range(1, 9))
    assert seen[-1].left == 0
    assert seen[-1].counts == {"feasible": 5, "infeasible": 1, "invalid": 1, "failed": 1}
    assert all(p.rate > 0 for p in seen)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"jobs": 0}, "jobs: got 0"),
        ({"timeout": 0.0}, "timeout: got 0"),
        ({"dask": "tcp://x:1", "jobs": 2}, "jobs: given with a Dask cluster"),
        ({"table": "excel"}, "table: got 'excel'"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        sweep(study_of(1), **{"jobs": 1, **options} if "dask" not in options else options)


@pytest.mark.slow
def test_dask_answers_as_this_process_does_though_a_worker_is_killed(tmp_path):
    distributed = pytest.importorskip("distributed", reason="needs crosstack[dask]")
    import os
    import signal
    import threading
    import time

    log = tmp_path / "log"
    study = study_of(200, pause=0.05, log=str(log))
    alone = sweep(study_of(200), jobs=1, table="arrow")
    cluster = distributed.LocalCluster(
        n_workers=3, threads_per_worker=1, processes=True, dashboard_address=":0"
    )
    with cluster, distributed.Client(cluster) as client:
        first = next(iter(client.run(os.getpid).values()))

        def kill_one() -> None:
            while not log.exists() or len(log.read_text().split()) < 40:
                time.sleep(0.02)
            os.kill(first, signal.SIGKILL)

        killer = threading.Thread(target=kill_one)
        killer.start()
        table = sweep(study, dask=client, store=tmp_path / "store", table="arrow")
        killer.join()
        assert first not in client.run(os.getpid).values()
    same = [name for name in SAME if name != "key"]  # the key knows the log's name
    assert table.select(same).equals(alone.select(same))
    assert len(expand(study)) == 200


def test_a_lost_scheduler_ends_the_sweep_in_one_line():
    distributed = pytest.importorskip("distributed", reason="needs crosstack[dask]")

    class Gone:
        def nthreads(self):
            return {"tcp://a": 1}

        def submit(self, *_, **__):
            raise distributed.CancelledError

        def cancel(self, futures):
            raise OSError("connection refused")

    with pytest.raises(InputError, match="dask: the scheduler was lost"):
        sweep(study_of(2), dask=Gone())


def test_no_scheduler_is_one_line():
    pytest.importorskip("distributed", reason="needs crosstack[dask]")
    with pytest.raises(InputError, match=r"dask: no scheduler at nowhere"):
        sweep(study_of(1), dask="nowhere://1")
