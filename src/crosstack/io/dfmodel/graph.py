"""DFModel's dataflow graph to `KernelGraph`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from crosstack.errors import MOST_SHOWN, InputError, Problem
from crosstack.io.dfmodel import vocabulary as words
from crosstack.io.dfmodel.schema import ENUMS
from crosstack.io.dfmodel.vocabulary import choice, fields_of, refused, unsupported
from crosstack.workload.kernel_graph import KernelGraph, kernel_graph
from crosstack.workload.kernels import Communication, Consumer, Direction, Kernel, Placement, Tensor

_K_SHARDING = ENUMS["Sharding"].index("K_SHARDING")
_ALL_REDUCE = ENUMS["CommunicationType"].index("ALL_REDUCE")


def read_graph(
    message: Any,
    word: int,
    placement: Placement = Placement.SEARCHED,
    partners: int = 1,
    *,
    by_bytes: bool = True,
) -> KernelGraph:
    """Return the graph of a file.

    `InputError` with every problem found.

    Parameters
    ----------
    message : KernelGraph message
        With kernels in any order; connections name them by id.
    word : int
        Bytes of one element. [B]
    placement : Placement
        Of the workload. A transform's step has a weight only if its bytes are written down.
    partners : int
        Chips that a chip exchanges the written number of bytes with, each, unless that is also
        what it reads from main memory for it: then, as in the inputs of the design space, it is
        what the chip exchanges in all. [1]
    by_bytes : bool
        Whether operands are told by their bytes, as the public tool does where it decides
        shardings; otherwise an edge whose bytes fit none feeds the first operand that is free.

    Notes
    -----
    Tensors are listed by producer, the readers of one by their place among the kernels; the
    file's order of connections decides only which operand they feed, where both fit. Ids of
    connections are not looked at: the public generator repeats them. What the public tool fills
    in (sharding, extents of shards, all-reduces of K-sharded kernels) is passed over.
    """
    kernels: list[Kernel] = []
    problems: list[Problem] = []
    for i, kernel in enumerate(message.kernels):
        try:
            path = f"dataflow_graph.kernels[{i}]"
            kernels.append(_kernel(kernel, path, word, placement, partners))
        except InputError as error:
            problems.extend(error.problems)
    if problems:
        raise InputError(problems)
    if any(kernel.direction is Direction.BACKWARD for kernel in kernels):
        # A file does not say what the backward pass needs of a kernel; the generator's names do.
        kernels = [
            replace(kernel, saved=words.saved_of(kernel.name))
            if kernel.direction is Direction.FORWARD
            else kernel
            for kernel in kernels
        ]
    kernels = [
        replace(kernel, row_wise=not kernel.kind.is_gemm and words.is_row_wise(kernel.name))
        for kernel in kernels
    ]
    edges = _edges(message)
    if not by_bytes:
        kernels = _fed(kernels, edges)
    tensors = _tensors(message, kernels, edges)
    with fields_of("dataflow_graph", {"tensors": "connections", "word": "/execution.word"}):
        return kernel_graph(kernels=tuple(kernels), tensors=tensors, word=word)


def _fed(kernels: list[Kernel], edges: list[tuple[int, int]]) -> list[Kernel]:
    """Return the kernels with operands of as many bytes as their producers make.

    An edge whose bytes fit none feeds the first operand that no edge feeds, or else the first.
    """
    fed = list(kernels)
    made = [kernel.output_size for kernel in kernels]
    operands = words.matching_operands(edges, made, [kernel.input_sizes for kernel in kernels])
    known = zip(edges, operands, strict=True)
    taken = {(target, operand) for (_, target), operand in known if operand is not None}
    for (source, target), matching in zip(edges, operands, strict=True):
        sizes = list(fed[target].input_sizes)
        free = (o for o in range(len(sizes)) if (target, o) not in taken)
        operand = next(free, 0) if matching is None else matching
        taken.add((target, operand))
        sizes[operand] = made[source]
        fed[target] = replace(fed[target], input_sizes=tuple(sizes))
    return fed


def _kernel(message: Any, path: str, word: int, placement: Placement, partners: int) -> Kernel:
    variant = message.WhichOneof("kernel_variant")
    if variant is None:
        raise refused(path, "what the kernel computes is not set", ", ".join(words.VARIANTS))
    names, body, inside = words.VARIANTS[variant], getattr(message, variant), f"{path}.{variant}"
    if names.weight and body.use_effective_stage:
        raise unsupported(f"{inside}.use_effective_stage", "an effective stage", "false")
    communications = tuple(
        c if c.periodic or c.size == body.memory_size else replace(c, size=c.size * partners)
        for c in _communications(body, inside)
    )
    unit = choice(f"{path}.type", "KernelType", message.type, words.UNITS)
    direction = choice(
        f"{path}.fwd_bwd", "FwdBwd", message.fwd_bwd, words.DIRECTIONS, unset=Direction.FORWARD
    )
    tiling = choice(f"{inside}.tiling", "Tiling", body.tiling, words.TILINGS)
    fields = {
        **words.KERNEL_FIELDS,
        **{f"input_sizes[{i}]": name for i, name in enumerate(names.inputs)},
        "k": "K",
        "weight_size": names.weight or "",
        "repeats": "num_input",
        "name": f"/{path}.name",
    }
    with fields_of(inside, fields):
        return Kernel(
            name=message.name,
            kind=names.kind,
            k=body.K if names.kind.is_gemm else 1,
            input_sizes=tuple(getattr(body, name) for name in names.inputs),
            weight_size=_weight_size(body, names, word, placement),
            unit=unit,
            direction=direction,
            tiling=tiling,
            communications=communications,
            repeats=body.num_input or None,
            **{field: getattr(body, name) for field, name in words.KERNEL_FIELDS.items()},
        )


def _weight_size(body: Any, names: words.Variant, word: int, placement: Placement) -> float:
    if names.weight is None or body.skip_weight:
        return 0.0
    if placement is Placement.COLUMNS:
        return float(getattr(body, names.weight))
    # The public tool counts a weight by its extents, whether or not its bytes are written down.
    counted = words.single(float(body.outer) * body.M * body.K * word)
    return float(getattr(body, names.weight)) or counted


def _communications(body: Any, path: str) -> tuple[Communication, ...]:
    found: list[Communication] = []
    for suffix in ("", "_2"):
        kind = getattr(body, f"communication_type{suffix}")
        size = getattr(body, f"communication_size{suffix}")
        where = f"{path}.communication_type{suffix}"
        if kind == 0:
            if size:
                raise refused(where, "a size, but no type", ", ".join(words.COLLECTIVES))
            continue
        if kind == _ALL_REDUCE and body.sharding == _K_SHARDING:
            continue  # filled in by the tool: the all-reduce this sharding causes
        collective = choice(where, "CommunicationType", kind, words.COLLECTIVES)
        with fields_of(path, {"size": f"communication_size{suffix}"}):
            found.append(
                Communication(
                    collective=collective,
                    # A transformer's gradients: the tool counts the output, written down or not.
                    size=size or body.output_tensor_size,
                    periodic=ENUMS["CommunicationType"][kind] == words.PERIODIC,
                )
            )
    return tuple(found)


def _edges(message: Any) -> list[tuple[int, int]]:
    """Return (producer, consumer) of each connection, as places among the kernels."""
    places: dict[int, int] = {}
    problems: list[Problem] = []
    for i, kernel in enumerate(message.kernels):
        if kernel.id in places:
            first = places[kernel.id]
            said = f"duplicate id {kernel.id}; kernels[{first}] has it already."
            problems.append(Problem(f"dataflow_graph.kernels[{i}].id", said))
        places.setdefault(kernel.id, i)
    edges: list[tuple[int, int]] = []
    for c, connection in enumerate(message.connections):
        for end in ("startIdx", "endIdx"):
            number = getattr(connection, end)
            if number not in places:
                # Looking for the nearest of many takes long, and nobody reads past a few.
                asked = places if len(problems) < MOST_SHOWN else ()
                close = sorted(asked, key=lambda known: (abs(known - number), known))[:3]
                hint = f" Nearest: {', '.join(map(str, close))}." if close else ""
                where = f"dataflow_graph.connections[{c}].{end}"
                problems.append(Problem(where, f"no kernel has id {number}.{hint}"))
        edges.append((places.get(connection.startIdx, -1), places.get(connection.endIdx, -1)))
    if problems:
        raise InputError(problems)
    return edges


def _tensors(
    message: Any, kernels: list[Kernel], edges: list[tuple[int, int]]
) -> tuple[Tensor, ...]:
    made = [kernel.output_size for kernel in kernels]
    operands = words.matching_operands(edges, made, [kernel.input_sizes for kernel in kernels])
    problems: list[Problem] = []
    readers: dict[int, list[tuple[int, int, bool]]] = {}
    fed: dict[tuple[int, int], int] = {}
    connected = zip(edges, operands, message.connections, strict=True)
    for i, ((source, target), operand, connection) in enumerate(connected):
        path, maker, reader = f"dataflow_graph.connections[{i}]", kernels[source], kernels[target]
        if operand is None or made[source] == 0:
            takes = " or ".join(f"{size:.9g} B" for size in reader.input_sizes)
            came = f"{maker.name!r} makes {made[source]:.9g} B, but {reader.name!r} takes {takes}"
            problems.append(Problem(path, f"{came}; allowed: equal sizes, above 0."))
        elif not connection.zero_out and (target, operand) in fed:
            left = f"no operand left that connections[{fed[target, operand]}] does not feed"
            came = f"{reader.name!r} has {left}"
            problems.append(Problem(path, f"{came}; allowed: one connection an operand."))
        else:
            if not connection.zero_out:
                fed[target, operand] = i
            readers.setdefault(source, []).append((target, operand, connection.zero_out))
    if problems:
        raise InputError(problems)
    return tuple(
        Tensor(
            producer=kernels[source].name,
            size=made[source],
            consumers=tuple(
                Consumer(kernel=kernels[target].name, operand=operand, elided=elided)
                for target, operand, elided in sorted(targets)
            ),
        )
        for source, targets in sorted(readers.items())
    )
