"""Products timed by the default clock, where a test says no other."""

from crosstack.model.kernels.clock import KernelTime, product_time
from crosstack.model.kernels.roofline import Roofline

__all__ = ["gemm_time"]


def gemm_time(chip, m, k, n, *, clock=None, **given) -> KernelTime:
    return product_time(clock or Roofline(), chip, m, k, n, **given)
