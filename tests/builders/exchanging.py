"""Stages whose layers exchange weights and gradients."""

from __future__ import annotations

from crosstack.machine.system import Parallelism
from crosstack.model.collectives import NOTHING, AffineTime, ConcaveTime
from crosstack.model.mesh_plan import MeshPlan
from crosstack.workload.transformer_training import Zero


def exchanging(layers: int, weights: float, gradients: float, **others: object) -> MeshPlan:
    """One stage of layers that are sent weights, and leave gradients, in so much time each. [s]"""
    return MeshPlan(
        sizes=(4,),
        parallelism=(Parallelism.DATA,),
        data=4,
        n_microbatches=1,
        layers_per_stage=layers,
        collectives={},
        changes={},
        periodic=NOTHING,
        stage_transfer=AffineTime(),
        n_layers=layers,
        training=True,
        zero=Zero.WEIGHTS.number,
        gather=ConcaveTime((AffineTime(per_byte=weights),)),
        scatter=ConcaveTime((AffineTime(per_byte=gradients),)),
        summed=1.0,
        **others,
    )
