"""What chips have in the memory of their hosts: the account of it, and whether it fits."""

from __future__ import annotations

import numpy as np

from crosstack.errors import InfeasibleError
from crosstack.model.memory import ROUNDING, CopyMemory, host_rows
from crosstack.model.memory_account import MemoryAccount, StageMemory
from crosstack.model.mesh_plan import MeshPlan

HOST_MEMORY = "host memory"
HOST_LEVERS = (
    "more data-parallel shares (ZeRO) of the optimizer's state",
    "less on the host (--offload)",
    "more chips",
)


def host_account(plan: MeshPlan, memory: CopyMemory) -> MemoryAccount | None:
    """Return what chips of every stage have on their hosts; None where nothing is there."""
    if not plan.offloaded.kinds:
        return None
    rows = zip(*host_rows(plan, memory, np.arange(plan.pipeline)), strict=True)
    return MemoryAccount.of(
        [StageMemory(optimizer_state=float(s), activations=float(a)) for s, a in rows]
    )


def check_host(plan: MeshPlan, account: MemoryAccount | None) -> None:
    """Raise `InfeasibleError` where a host has no room for what its chips have there."""
    if account is None or account.peak <= plan.offloaded.capacity * (1 + ROUNDING):
        return
    raise InfeasibleError(
        resource=HOST_MEMORY,
        demand=account.peak,
        limit=plan.offloaded.capacity,
        unit="B",
        where=f"a chip's share of its host, most of it {account.kind},",
        levers=HOST_LEVERS,
    )
