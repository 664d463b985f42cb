"""Operations of a transformer in training, timed on one chip: of a layer, embedding and head.

Operations of a layer, in order: the query, key and value projection, norms of heads if there are
any, scores, scaling and softmax, weighted values, output projection, residual sum, norm, the
feed-forward products with the activation between them, residual sum, norm. A gate is columns beside
those of the first feed-forward product, and is multiplied in behind the activation. Before the
layers an embedding, behind them the head with its loss. Products are split RC or CR with their
exchange (`Distributed`), or in pairs (`crosstack.evaluate.column_row`); heads are spread over all
chips of the split, copies of those of keys and values where there are fewer; pointwise kernels take
their share. A tied table is there once on one stage, and summed once; of two stages each has a copy
and sends the other its gradient. Sources: ``vaswani2017`` for the layer; ``ainslie2023gqa``,
``shazeer2020glu``; ``deepflow_code`` for operations and bytes of elementwise kernels, also for root
mean squares; ``hendrycks2016gelu`` for the activation, which is none there: read and written once,
its backward pass as many operations again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from crosstack.evaluate.column_row import ColumnRowPairs
from crosstack.evaluate.distributed import KP2, Distributed
from crosstack.mapping.strategy import KernelSplit
from crosstack.model.schedule.pipeline import Operation
from crosstack.workload.architectures import NormPlace
from crosstack.workload.transformer_training import Exchange, Recompute, TransformerTraining

__all__ = ["Ends", "Layer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """Times of the operations of a layer, of one microbatch of ``batch`` sequences on one chip."""

    job: TransformerTraining
    chips: Distributed
    batch: int

    @property
    def tokens(self) -> int:
        """Of a microbatch. [1]"""
        return self.batch * self.job.sequence

    @property
    def kv_heads(self) -> int:
        """Heads of keys and values on all chips of the split, copies too. [1]"""
        s = self.chips.strategy
        return max(self.job.model.kv_heads, s.kp1 if s.split is KernelSplit.CR else s.kp2)

    @property
    def pairs(self) -> ColumnRowPairs | None:
        """What replaces RC's own exchange, if anything."""
        if self.job.exchange is Exchange.GATHERED or self.chips.strategy.kp2 == 1:
            return None
        return ColumnRowPairs(chips=self.chips, spread=self.job.exchange is Exchange.SEQUENCE)

    def of_tokens(self, elements: float, work: float, numbers: float, launches: int) -> float:
        """`pointwise` of what every chip has, or a share, as the exchange leaves it. [s]"""
        pairs, s = self.pairs, self.chips.strategy
        whole = pairs is not None and not pairs.spread
        return self.pointwise(elements * (s.kp2 if whole else 1), work, numbers, launches)

    def pointwise(self, elements: float, work: float, numbers: float, launches: int) -> float:
        """``work`` operations and ``numbers`` moved for each of the elements of all chips."""
        times, s = self.chips.times, self.chips.strategy
        own = elements / (s.kp1 * s.kp2)
        return times.elementwise(work * own, numbers * own * times.element_size) + launches * (
            times.launch_overhead
        )

    def _product(self, name: str, m: int, k: int, n: int, *, second: bool = False) -> Operation:
        """A product of a layer; ``second`` of a pair."""
        chips = self.chips
        if (pairs := self.pairs) is not None:
            forward, backward = pairs.product(m, k, n, second=second)
        else:
            forward, backward = chips.forward(m, k, n), chips.backward(m, k, n)
        reduce = chips.reduce_gradient(k, n)
        return Operation(name=name, forward=forward, backward=backward, reduce=reduce)

    def _per_head(self, name: str, m: int, k: int, n: int) -> Operation:
        """Products of every head of keys; each with its own factors, one beside the other."""
        times, s = self.chips.times, self.chips.strategy
        own = self.batch * self.kv_heads // (s.kp1 * s.kp2)
        rows = m * self.job.model.heads // self.kv_heads  # heads of queries that share it
        return Operation(
            name=name,
            forward=times.product(rows, k, n, own),
            backward=times.product(rows, n, k, own) + times.product(k, rows, n, own),
        )

    def _gathered_heads(self) -> float:
        """Put the heads of all columns together before the output projection of RC. [s]"""
        s, m = self.chips.strategy, self.job.model
        if s.split is KernelSplit.CR or s.kp2 == 1 or self.pairs is not None:
            return 0.0
        return self.chips.all_gather(self.tokens / s.kp1, m.heads * m.head_size, KP2)

    def again(self) -> tuple[Operation, ...]:
        """Operations of one layer, with what its backward pass computes again."""
        again = self.job.recompute
        if again is Recompute.NONE:
            return self.operations()
        joined = self._gathered_heads() if again is Recompute.ATTENTION else 0.0
        core = {"scores": 0.0, "softmax": 0.0, "values": joined}  # the output is not gathered again
        return tuple(
            replace(o, backward=o.backward + o.forward - core.get(o.name, 0.0))
            if again is Recompute.FULL or o.name in core
            else o
            for o in self.operations()
        )

    def operations(self) -> tuple[Operation, ...]:
        """Operations of one layer."""
        return *self._attention(), *self._sums(1), *self._feed_forward(), *self._sums(2)

    def _attention(self) -> tuple[Operation, ...]:
        m, length = self.job.model, self.job.sequence
        scores = self.tokens * m.heads * length
        softmax = Operation(
            name="softmax",
            forward=self.pointwise(scores, 1, 2, 1) + self.pointwise(scores, 3, 7, 4),
            backward=self.pointwise(scores, 1, 2, 1) + self.pointwise(scores, 5, 11, 4),
        )
        joined = self._gathered_heads()
        values = self._per_head("values", length, length, m.head_size)
        values = replace(values, forward=values.forward + joined, backward=values.backward + joined)
        inner = m.heads * m.head_size
        normed = self.tokens * (m.heads + self.kv_heads) * m.head_size
        return (
            self._projection(),
            *((_norm("norm of heads", self.pointwise, normed),) if m.qk_norm else ()),
            self._per_head("scores", length, m.head_size, length),
            softmax,
            values,
            self._product("output", self.tokens, inner, m.hidden, second=True),
        )

    def _projection(self) -> Operation:
        """Queries, keys and values; under RC their columns, whole heads, stay where they are."""
        m, s = self.job.model, self.chips.strategy
        columns = (m.heads + 2 * self.kv_heads) * m.head_size
        whole = self._product("queries, keys, values", self.tokens, m.hidden, columns)
        if s.split is KernelSplit.CR or s.kp2 == 1 or self.pairs is not None:
            return whole
        stays = self.chips.all_gather(self.tokens // s.kp1, columns, KP2)
        return replace(whole, forward=whole.forward - stays)

    def _feed_forward(self) -> tuple[Operation, ...]:
        m, tokens = self.job.model, self.tokens
        inside = tokens * m.feed_forward
        activation = Operation(
            name="activation",
            forward=self.pointwise(inside, 9, 2, 1),
            backward=self.pointwise(inside, 18, 3, 1),
        )
        gate = Operation(
            name="gate",
            forward=self.pointwise(inside, 1, 3, 1),
            backward=self.pointwise(inside, 2, 5, 1),
        )
        first = m.feed_forward * (2 if m.gated else 1)
        return (
            self._product("feed-forward 1", tokens, m.hidden, first),
            activation,
            *((gate,) if m.gated else ()),
            self._product("feed-forward 2", tokens, m.feed_forward, m.hidden, second=True),
        )

    def _sums(self, half: int) -> tuple[Operation, ...]:
        """The residual sum behind a half of the layer, and the norms that go with it."""
        wide, norms = self.tokens * self.job.model.hidden, self.job.model.norms
        residual = self.of_tokens(wide, 1, 3, 1)
        found = [Operation(name=f"residual {half}", forward=residual, backward=residual)]
        if norms is not NormPlace.SHARED or half == 1:
            found.append(_norm(f"norm {half}", self.of_tokens, wide))
        if norms is NormPlace.BOTH:
            found.insert(0, _norm(f"norm of half {half}", self.of_tokens, wide))
        return tuple(found)


def _norm(name: str, kernel: Callable[[float, float, float, int], float], size: float) -> Operation:
    """A norm of ``size`` elements [1], by the kernel that counts whose they are."""
    return Operation(name=name, forward=kernel(size, 5, 9, 3), backward=kernel(size, 7, 11, 4))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """Times of what comes before the first layer and behind the last one."""

    layer: Layer

    @property
    def _between(self) -> tuple[float, float, float]:
        """Lead from the width of a table to that of a layer, or back: forward, backward, sum."""
        m, chips = self.layer.job.model, self.layer.chips
        if m.embedding in (0, m.hidden):
            return 0.0, 0.0, 0.0
        shape = m.embedding, m.hidden
        product = self.layer.tokens, *shape
        return chips.forward(*product), chips.backward(*product), chips.reduce_gradient(*shape)

    @property
    def _table(self) -> tuple[float, float]:
        """Sum the gradient of the table of tokens, and of the head. [s]"""
        m, chips = self.layer.job.model, self.layer.chips
        width = m.embedding or m.hidden
        each = chips.reduce_gradient(m.vocabulary, width)
        if not m.tied:
            return each, chips.reduce_gradient(width, m.vocabulary)
        s, times = chips.strategy, chips.times
        if s.lp == 1:
            return each, 0.0
        own = m.vocabulary * width / (s.kp1 if s.split is KernelSplit.CR else s.kp2)
        other = chips.hand_over(own * times.element_size, s.lp - 1)
        return (each + other + times.elementwise(own, 3 * own * times.element_size),) * 2

    def embedding(self) -> Operation:
        """Look every token up, forward; add up its gradient, backward."""
        m, tokens = self.layer.job.model, self.layer.tokens
        look = self.layer.of_tokens(tokens * (m.embedding or m.hidden), 0, 2, 1)
        # Each chip knows some of the vocabulary.
        pairs = self.layer.pairs
        summed, gathered = (0.0, 0.0) if pairs is None else pairs.out(tokens, m.hidden)
        forward, backward, reduce = self._between
        return Operation(
            name="embedding",
            forward=look + summed + forward,
            backward=look + gathered + backward,
            reduce=self._table[0] + reduce,
        )

    def head(self) -> Operation:
        """Project to the vocabulary and take the loss; only sums over it are exchanged."""
        m, chips, tokens = self.layer.job.model, self.layer.chips, self.layer.tokens
        s, times, known = chips.strategy, chips.times, m.vocabulary
        width = m.embedding or m.hidden
        if (pairs := self.layer.pairs) is not None:
            forward, backward = pairs.product(tokens, width, known, second=False)
            forward += chips.all_gather(tokens, 1, KP2)
        else:
            forward = chips.forward(tokens, width, known)
            if s.split is KernelSplit.RC and s.kp2 > 1:
                forward += chips.all_gather(tokens // s.kp1, 1, KP2)
                forward -= chips.all_gather(tokens // s.kp1, known, KP2)
            backward = chips.backward(tokens, width, known)
        split, made = s.kp1 * s.kp2, tokens * known
        size = made * times.element_size
        loss = times.elementwise((3 * made - tokens) / split, 7 * size / split)
        back = times.elementwise(5 * made / split, 11 * size / split)
        before = self._between
        return Operation(
            name="head and loss",
            forward=before[0] + forward + loss + 4 * times.launch_overhead,
            backward=before[1] + backward + back + 4 * times.launch_overhead,
            reduce=before[2] + self._table[1],
        )
