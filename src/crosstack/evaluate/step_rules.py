"""Which published way of timing a training step is followed, one field for each choice.

The defaults are what crosstack holds right. The named constructors reproduce the releases of the
public tool (``deepflow_code``); a field they set that the defaults do not is a defect of theirs,
and its text says what it does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from crosstack.errors import require, require_whole

__all__ = ["StepRules"]

GIBI = 2.0**30
MOST_KERNELS = 1024  # at a time; a GPU runs up to 128 (nvidia_cuda_guide)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRules:
    """How a step is timed; sources are ``deepflow_code`` unless said otherwise.

    Parameters
    ----------
    shares_links_by_degree : bool
        Divide the bandwidth of a parallel dimension by 2 up to degree 4, by 5 up to 8, by 4 above:
        the links of one eight-chip machine, put on every system. Degree 1 is halved too.
    halves_degree_one : bool
        Whether that division is made at degree 1 as well; matters only with the field before.
    host_bandwidth : float or None
        Embedding vectors are copied from the host at this rate in the forward pass; None reads
        them from main memory. [B/s]
    frees_last_link : bool
        A transfer inside a chip sets the last link free when it ends, whatever uses it, so
        that gradient reductions overlap on one link.
    rejects_two_stages : bool
        Two pipeline stages fail, as the index of the embedding's stage runs out.
    lookup_without_sequence : bool
        A transformer's embedding, and the backward pass of its head, handle one token of each
        sequence instead of all.
    skips_embedding_update : bool
        A transformer's embedding, with its positions, and head sum their gradients but are not
        updated.
    launches_twice : bool
        The launch of each product of a transformer's layer counts twice.
    reduces_by_layer : bool
        The gradients of a transformer's layer are summed when all of it is through, not one by one.
    skips_activation : bool
        A transformer has no kernel between its two feed-forward products.
    ignores_kernel_split : bool
        A transformer's graph leaves out the kernel parallelism that was asked for.
    drops_softmax_memory : bool
        The footprint of a pipelined model leaves the softmax out.
    merges_batch_into_rows : bool
        The scores of all heads are one product with the heads among the rows, so that keys and
        values are read once for all of them. Otherwise every head has its own.
    optimizer_bytes : float
        State of the optimizer for each weight; 12 B: a weight and two moments in single precision
        (``rajbhandari2020zero``, section 3.1). Weights and gradients come on top. [B]
    counts_gradients : bool
        Whether gradients take memory; the releases leave them out.
    accepts_dead_links : bool
        A network without power still carries less than a byte a second, as its wires keep a
        frequency by rounding; otherwise that is no link.
    enforces_capacity : bool
        Whether a model that does not fit is an error; the releases report a rate and go on.
    floors_shares : bool
        The part of an extent that each chip of a kernel split has is rounded down, so that a
        remainder is nobody's work; the gradients of RC have fractions.
    estimates_transformers : bool
        A transformer's step is three times the forward time of the six products of its layers,
        over as many stages as the model says; nothing else counts, and no events are run.
    kernels_at_once : int
        Kernels that a chip runs at a time in the event simulation, each as fast as alone
        (``ardalani2022deepflow``, section 5.3, where it is k); every release runs one. [1]
    """

    shares_links_by_degree: bool = False
    halves_degree_one: bool = False
    host_bandwidth: float | None = None
    frees_last_link: bool = False
    rejects_two_stages: bool = False
    lookup_without_sequence: bool = False
    skips_embedding_update: bool = False
    launches_twice: bool = False
    reduces_by_layer: bool = False
    skips_activation: bool = False
    ignores_kernel_split: bool = False
    drops_softmax_memory: bool = False
    merges_batch_into_rows: bool = False
    optimizer_bytes: float = 12.0
    counts_gradients: bool = True
    accepts_dead_links: bool = False
    enforces_capacity: bool = True
    floors_shares: bool = False
    estimates_transformers: bool = False
    kernels_at_once: int = 1

    def __post_init__(self) -> None:
        """Check the number."""
        require_whole("kernels_at_once", self.kernels_at_once)
        few = self.kernels_at_once <= MOST_KERNELS
        require(few, "kernels_at_once", self.kernels_at_once, f"at most {MOST_KERNELS:,}")
        one = self.kernels_at_once == 1 or not (self.frees_last_link or self.estimates_transformers)
        require(one, "kernels_at_once", self.kernels_at_once, "1 under the rules of a release")

    @classmethod
    def deepflow_2025(cls) -> StepRules:
        """Return the rules of release e8fc755 (2025-09-15), its program ``run_perf.py``."""
        return cls(
            shares_links_by_degree=True,
            halves_degree_one=True,
            host_bandwidth=12.4 * GIBI,
            frees_last_link=True,
            rejects_two_stages=True,
            lookup_without_sequence=True,
            skips_embedding_update=True,
            launches_twice=True,
            reduces_by_layer=True,
            skips_activation=True,
            ignores_kernel_split=True,
            drops_softmax_memory=True,
            merges_batch_into_rows=True,
            optimizer_bytes=0.0,
            counts_gradients=False,
            accepts_dead_links=True,
            enforces_capacity=False,
            floors_shares=True,
            estimates_transformers=True,
        )

    @classmethod
    def deepflow_2025_graph(cls) -> StepRules:
        """Return the rules of the same release, its program ``run_perf_llmtest.py``."""
        return replace(cls.deepflow_2025(), estimates_transformers=False)

    @classmethod
    def deepflow_2021(cls) -> StepRules:
        """Return the rules of release 566c192 (2021-09-11) with a configuration file alone."""
        return cls(
            host_bandwidth=12.4 * GIBI,
            frees_last_link=True,
            rejects_two_stages=True,
            drops_softmax_memory=True,
            optimizer_bytes=0.0,
            counts_gradients=False,
            accepts_dead_links=True,
            enforces_capacity=False,
            floors_shares=True,
        )

    @classmethod
    def deepflow_2020(cls) -> StepRules:
        """Return the rules of release e4e5d38 (2020-10-30): links shared as in 2025."""
        return replace(cls.deepflow_2021(), shares_links_by_degree=True, halves_degree_one=True)
