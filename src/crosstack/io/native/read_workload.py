"""The ``workload`` section of a native file, made into a `Workload`.

Sizes that the file leaves out follow from the extents and from who makes an operand; see
`default_input_size`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, assert_never

from crosstack.errors import MOST_SHOWN, InputError, Problem
from crosstack.io.native.problems import collecting, unknown_kernel
from crosstack.io.native.read_graph import workload_in
from crosstack.io.native.ready_made import (
    READY_MADE,
    TRAINED,
    made_of_section,
    section_of,
    trained_by,
)
from crosstack.io.native.schema import FileModel
from crosstack.workload.kernel_graph import SIZES_DISAGREE, KernelGraph, kernel_graph
from crosstack.workload.kernels import (
    Axis,
    Communication,
    ComputeUnit,
    Consumer,
    Direction,
    Kernel,
    KernelKind,
    Routing,
    Tensor,
)
from crosstack.workload.workload import Workload

_TRAINED = {"gradients", "optimizer"}
_MOST_ALIKE = 3  # sizes that disagree and are said one by one


def default_unit(kind: KernelKind) -> ComputeUnit:
    """Return where kernels of a kind run: products on the systolic array, the rest on lanes."""
    return ComputeUnit.SYSTOLIC if kind.is_gemm else ComputeUnit.SIMD


def default_output_size(outer: int, m: int, n: int, word: int) -> float:
    """Size of what a kernel makes: outer M N words. [B]"""
    return float(outer * m * n * word)


def default_weight_size(kind: KernelKind, outer: int, m: int, k: int, word: int) -> float:
    """Size of a kernel's weight: outer M K words, if it has one. [B]"""
    return float(outer * m * k * word) if kind is KernelKind.GEMM_WEIGHT else 0.0


def default_input_size(
    kind: KernelKind, operand: int, extents: tuple[int, int, int, int], word: int
) -> float:
    """Size of an operand that no kernel of the graph makes. [B]

    Parameters
    ----------
    kind : KernelKind
        Elementwise kernels read as much as they make; a weight multiplies one K x N input,
        shared by all of ``outer``; a product reads outer M x K and outer K x N.
    operand : int
        0 or 1.
    extents : tuple of int
        outer, m, k, n. [1]
    word : int
        Bytes of one element. [B]
    """
    outer, m, k, n = extents
    if not kind.is_gemm:
        return float(outer * m * n * word)
    if kind is KernelKind.GEMM_WEIGHT:
        return float(k * n * word)
    return float(outer * m * k * word) if operand == 0 else float(outer * k * n * word)


OutputSize = tuple[float, bool]  # bytes, and whether they stand whatever the reader's extents say


def default_input_sizes(
    kind: KernelKind,
    extents: tuple[int, int, int, int],
    word: int,
    made: Sequence[OutputSize | None],
) -> tuple[float, ...]:
    """Sizes of all operands, where some are made by other kernels. [B]

    A size that is written down, or accounted for elsewhere, stands. Others follow from the
    reader's extents, as `default_input_size`, but what is made tells which factor of a product
    comes first, and whether the input of a weight is shared by all of ``outer``.

    Parameters
    ----------
    made : sequence of (float, bool) or None
        What each operand is made with; None where it comes from outside.
    """
    sizes = tuple(default_input_size(kind, i, extents, word) for i in range(kind.n_inputs))
    match kind:
        case KernelKind.GEMM:
            others = sizes[::-1]
        case KernelKind.GEMM_WEIGHT:
            others = tuple(extents[0] * size for size in sizes)
        case KernelKind.ELEMENTWISE | KernelKind.ELEMENTWISE_2:
            others = sizes
        case _:
            assert_never(kind)

    def agree(these: tuple[float, ...]) -> bool:
        return all(m is None or m[1] or m[0] == s for m, s in zip(made, these, strict=True))

    chosen = others if agree(others) and not agree(sizes) else sizes
    return tuple(m[0] if m and m[1] else size for m, size in zip(made, chosen, strict=True))


def default_sequence_length(kernels: tuple[Kernel, ...]) -> int:
    """Largest extent of the tiled axis over the kernels. [1]"""
    return max((getattr(k, k.tiling) for k in kernels if k.tiling is not Axis.NONE), default=1)


def default_boundary_size(graph: KernelGraph) -> float:
    """Bytes made by forward kernels that no forward kernel reads. [B]"""
    forward = {k.name for k in graph.kernels if k.direction is Direction.FORWARD}
    read = {t.producer for t in graph.tensors if any(c.kernel in forward for c in t.consumers)}
    return sum(k.output_size for k in graph.kernels if k.name in forward - read)


def read_workload(file: FileModel, name: str | None, problems: list[Problem]) -> Workload | None:
    """Return the workload of a section; None, with ``problems`` longer, where something is wrong.

    ``name`` is what to call it, unless the section says.
    """
    name = file.name or name
    if section := section_of(file):
        also = _TRAINED if section in TRAINED else set()
        _refuse_beside(file, section, {"dtype"} | also, problems)
        with collecting(problems, f"workload.{section}"):
            return made_of_section(file, section, name)
        return None
    if file.graph is not None:
        _refuse_beside(file, "graph", {"item"} | _TRAINED, problems)
        with collecting(problems, "workload.graph"):
            made = workload_in(file.graph, name or "graph", **trained_by(file))
            return replace(made, item=file.item or made.item)
        return None
    return _Builder(file, problems).workload(name or "workload")


def _refuse_beside(file: FileModel, section: str, also: set[str], problems: list[Problem]) -> None:
    """Note fields that say again what a section says."""
    for other in sorted(file.model_fields_set - {"name", "accumulator", section} - also):
        message = f"not allowed beside {section}, which gives it; allowed: one of the two."
        problems.append(Problem(f"workload.{other}", message))


@dataclass
class _Read:
    """A tensor as written: its producer's number, its size where given, and who reads it.

    ``readers`` are the number of a kernel, its operand, and whether it is elided.
    """

    producer: int
    size: float | None
    readers: list[tuple[int, int, bool]]


class _Builder:
    """Builds an explicit graph, collecting problems on the way."""

    def __init__(self, file: FileModel, problems: list[Problem]) -> None:
        self.file, self.problems = file, problems
        self.kernels = file.kernels or []
        self.index: dict[str, int] = {}
        self.tensors: list[_Read] = []
        self.producer_of: dict[tuple[int, int], int] = {}
        self.elided: set[tuple[int, int]] = set()

    def workload(self, name: str) -> Workload | None:
        before, file = len(self.problems), self.file
        if file.kernels is None:
            others = f"(or one of {', '.join(READY_MADE)}, graph)"
            self._note("kernels", f"required, but missing {others}.")
        if file.word is None:
            self._note("word", "required, but missing.")
        for i, kernel in enumerate(self.kernels):
            first = self.index.setdefault(kernel.name, i)
            if first != i:
                taken = f"the name {kernel.name!r} is taken by workload.kernels[{first}]."
                self._note(f"kernels[{i}].name", taken)
        if file.gradients is not None:
            self._note("gradients", "allowed with llm, images or graph; kernels say what they sum.")
        self._read_inputs()
        self._read_tensors(file.tensors or [])
        for tensor in self.tensors:
            for reader, operand, elided in tensor.readers:
                self.producer_of.setdefault((reader, operand), tensor.producer)
                if elided:
                    self.elided.add((reader, operand))
        if file.kernels == []:
            self._note("kernels", "got no kernels; allowed: at least one.")
        if file.word is None or not self.kernels:
            return None
        kernels = self._kernels(file.word)
        if len(self.problems) > before:
            return None
        graph = self._graph(kernels, file.word)
        return None if graph is None else self._whole(graph, name)

    def _note(self, path: str, message: str) -> None:
        self.problems.append(Problem(f"workload.{path}", message))

    def _read_inputs(self) -> None:
        """Note who reads what, from the ``inputs`` of every kernel."""
        readers: dict[int, list[tuple[int, int, bool]]] = {}
        for i, kernel in enumerate(self.kernels):
            path, given = f"kernels[{i}].inputs", kernel.inputs or []
            most = kernel.kind.n_inputs
            if len(given) > most:
                came = f"got {len(given)} operands"
                self._note(path, f"{came}; allowed for {kernel.kind}: up to {most}.")
            elif given and self.file.tensors is not None:
                self._note(path, "not allowed beside workload.tensors, which says who reads what.")
            else:
                for operand, entry in enumerate(given):
                    producer = entry and self._number(entry.kernel, f"{path}[{operand}]")
                    if producer is not None:
                        readers.setdefault(producer, []).append((i, operand, entry.elided))
        self.tensors += [_Read(producer, None, readers[producer]) for producer in sorted(readers)]

    def _read_tensors(self, files: list[FileModel]) -> None:
        """Note who reads what, from the list of tensors."""
        for t, tensor in enumerate(files):
            path = f"tensors[{t}]"
            producer = self._number(tensor.producer, f"{path}.producer")
            numbers = [
                (self._number(one.kernel, f"{path}.consumers[{c}].kernel"), one)
                for c, one in enumerate(tensor.consumers)
            ]
            readers = [(i, one.operand, one.elided) for i, one in numbers if i is not None]
            if producer is not None:
                self.tensors.append(_Read(producer, tensor.size, readers))

    def _number(self, name: str, path: str) -> int | None:
        if name not in self.index:
            hint = len(self.problems) < MOST_SHOWN
            self._note(path, unknown_kernel(name, self.index, hint=hint))
        return self.index.get(name)

    def _kernels(self, word: int) -> list[Kernel]:
        kernels: list[Kernel] = []
        outputs = [
            default_output_size(f.outer or 1, f.m, f.n, word)
            if f.output_size is None
            else f.output_size
            for f in self.kernels
        ]
        for i, file in enumerate(self.kernels):
            with collecting(self.problems, f"workload.kernels[{i}]"):
                kernels.append(self._kernel(i, file, outputs, word))
        return kernels

    def _kernel(self, i: int, file: FileModel, outputs: list[float], word: int) -> Kernel:
        outer, k = file.outer or 1, file.k or 1

        def output_of(operand: int) -> OutputSize | None:
            producer = self.producer_of.get((i, operand))
            if producer is None:
                return None
            known = self.kernels[producer].output_size is not None
            return outputs[producer], known or (i, operand) in self.elided

        made = [output_of(operand) for operand in range(file.kind.n_inputs)]
        usual = default_input_sizes(file.kind, (outer, file.m, k, file.n), word, made)
        sizes = file.input_sizes or [None] * file.kind.n_inputs
        others: dict[str, Any] = {}
        if file.routing is not None:
            others["routing"] = file.routing.record(Routing)
        if file.weight_size is None:
            others["weight_size"] = default_weight_size(file.kind, outer, file.m, k, word)
        return file.record(
            Kernel,
            unit=file.unit or default_unit(file.kind),
            output_size=outputs[i],
            input_sizes=tuple(
                own if size is None else size
                for size, own in itertools.zip_longest(sizes, usual[: len(sizes)], fillvalue=0.0)
            ),
            communications=tuple(one.record(Communication) for one in file.communications or ()),
            **others,
        )

    def _graph(self, kernels: list[Kernel], word: int) -> KernelGraph | None:
        tensors = (
            Tensor(
                producer=kernels[tensor.producer].name,
                size=kernels[tensor.producer].output_size if tensor.size is None else tensor.size,
                consumers=tuple(
                    Consumer(kernel=kernels[i].name, operand=operand, elided=elided)
                    for i, operand, elided in tensor.readers
                ),
            )
            for tensor in self.tensors
        )
        try:
            return kernel_graph(
                kernels=tuple(kernels), tensors=tuple(tensors), word=word, dtype=self.file.dtype
            )
        except InputError as error:
            self.problems.extend(self._together(error.problems))
            return None

    def _together(self, found: Sequence[Problem]) -> Iterator[Problem]:
        """Yield the problems in the file's words, operands of other sizes in one where many are."""
        alike: dict[str, list[Problem]] = {}
        for problem in found:
            if problem.message.startswith(SIZES_DISAGREE):
                alike.setdefault(self._hint(problem.path), []).append(problem)
            else:
                yield problem.at(self._place(problem.path))
        for hint, group in alike.items():
            named = len(group) if len(group) <= _MOST_ALIKE else 1
            others = group[named:]
            for k, problem in enumerate(group[:named]):
                more = self._others(others) if k == 0 and others else ""
                message = problem.message + hint + more
                yield Problem(self._place(problem.path), message, count=1 + len(others))

    def _others(self, group: Sequence[Problem]) -> str:
        """Name the first operands of a group, and say how many there are."""
        names = []
        for problem in group[:_MOST_ALIKE]:
            reader, operand = self._operand(problem.path) or (0, 0)
            producer = self.producer_of[reader, operand]
            names.append(f"{self.kernels[producer].name!r} to {self.kernels[reader].name!r}")
        end = ", ..." if len(group) > len(names) else "."
        return f" {len(group)} more disagree likewise: {', '.join(names)}{end}"

    def _operand(self, path: str) -> tuple[int, int] | None:
        """Return the reader's number and operand that the record's path of a consumer means."""
        match = re.match(r"tensors\[(\d+)\]\.consumers\[(\d+)\]$", path)
        return self.tensors[int(match[1])].readers[int(match[2])][:2] if match else None

    def _hint(self, path: str) -> str:
        """Return what else to say of an operand whose size nobody wrote down."""
        place = self._operand(path)
        if place is None or (self.kernels[place[0]].input_sizes or [None, None])[place[1]]:
            return ""
        return " That is by its extents; input_sizes would say it otherwise."

    def _place(self, path: str) -> str:
        """Return where in the file the record's path is."""
        place = self._operand(path)
        if self.file.tensors is None and place is not None:
            return f"workload.kernels[{place[0]}].inputs[{place[1]}]"
        if self.file.tensors is None and path.startswith("tensors"):
            return "workload.kernels"
        return f"workload.{path}"

    def _whole(self, graph: KernelGraph, name: str) -> Workload | None:
        usual = {
            "sequence_length": default_sequence_length(graph.kernels),
            "boundary_size": default_boundary_size(graph),
        }
        others = {field: v for field, v in usual.items() if getattr(self.file, field) is None}
        with collecting(self.problems, "workload"):
            return self.file.record(Workload, graph=graph, name=name, **others)
        return None
