"""How many strategies a second are priced where blocks are known, and how fast is a block solved?

GPT-3 175B (a batch of 1,536 sequences of 2,048) trained on 512 H100 in servers of eight: every use
of the network by tensor, pipeline and data parallelism, levels shared, every microbatch size, kind
of recomputation and schedule. First all blocks are solved, each within a small limit on work, and
priced for every degree of data parallelism; then the strategies are priced again and again from
that table, one process. Beside them is what is reported of Calculon (`calculon_code`), whose search
prints a rate of its own: other hardware, another model, one strategy at a time; not a race.
"""

from __future__ import annotations

import time

import numpy as np
from timing import measure, print_machine

from crosstack.evaluate.blocks import BlockTable
from crosstack.evaluate.strategy_times import strategy_times
from crosstack.io.library.machines import system_on
from crosstack.io.transformers import transformer
from crosstack.mapping.strategies import all_strategies
from crosstack.model.rules import rules_named
from crosstack.workload.architectures import graphs
from crosstack.workload.graph_workload import workload_of
from crosstack.workload.transformer_training import Schedule

CALCULON = (101, 2120)  # strategies a second a core, as reported; no publication of them is known
GOAL = 100_000
BLOCK_WORK = 1e3  # units of work a block: the first mappings of a search


def main() -> None:
    """Print both rates."""
    print_machine()
    graph = graphs.training(transformer("gpt3-175b"), sequence=2048, batch=1536)
    workload = workload_of(graph, block="layers", items="batch", name="gpt3-175b")
    system, rules = system_on("h100-dgx", chips=512), rules_named("crosstack")
    given = (workload, system, rules, None, tuple(Schedule))
    strategies = all_strategies(*given)
    table = BlockTable(workload=workload, system=system, rules=rules, work_limit=BLOCK_WORK)
    start = time.perf_counter()
    found = strategy_times(strategies, table)
    taken, solved = time.perf_counter() - start, len(table.solved)
    print(
        f"{solved:,} block problems, solved and priced {len(table.rows):,} times: {taken:.1f} s; "
        f"{solved / taken:,.1f} block problems/s"
    )
    count = {"count": len(strategies), "unit": "strategies"}
    measure("listed: uses, microbatches, recomputation", lambda: all_strategies(*given), **count)
    many = strategies.at(np.arange(GOAL) % len(strategies))
    for name, some in (("all of them", strategies), ("100,000, some again", many)):
        run = lambda some=some: strategy_times(some, table)  # noqa: E731
        measure(f"priced, blocks known: {name}", run, count=len(some), unit="strategies")
    best = np.where(found.fits, found.time, np.inf)
    print(f"{int(found.fits.sum()):,} fit; the fastest takes {best.min():.3f} s an iteration")
    print(f"Calculon, as reported: {CALCULON[0]:,} to {CALCULON[1]:,} strategies/s; goal {GOAL:,}")


if __name__ == "__main__":
    main()
