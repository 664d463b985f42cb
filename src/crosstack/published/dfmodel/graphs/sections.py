"""DFModel's graphs by the names that files have for them; a model is named, with what differs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from inspect import Parameter, Signature, signature
from typing import Any

from crosstack.published.dfmodel.graphs.dlrm import dlrm
from crosstack.published.dfmodel.graphs.fft import fft
from crosstack.published.dfmodel.graphs.hpl import hpl
from crosstack.published.dfmodel.graphs.llm import llm
from crosstack.published.dfmodel.graphs.serving import decode, prefill
from crosstack.published.dfmodel.graphs.ssm import hyena, mamba
from crosstack.workload.workload import Workload

SHAPE = ("hidden", "heads", "kv_heads", "head_size", "feed_forward", "layers", "gated")


class _Serving:
    """Makes a phase of serving a model of the library with some of its fields changed."""

    def __init__(self, make: Callable[..., Workload]) -> None:
        self.make = make
        changes = (Parameter(name, Parameter.KEYWORD_ONLY, default=None) for name in SHAPE)
        name = Parameter("name", Parameter.KEYWORD_ONLY, default="")
        self.__signature__ = Signature([*signature(make).parameters.values(), *changes, name])

    def __call__(self, model: str, *, name: str, **given: Any) -> Workload:
        from crosstack.io.transformers import transformer

        changes = {field: given.pop(field) for field in SHAPE if field in given}
        return replace(self.make(replace(transformer(model), **changes), **given), name=name)


GRAPHS: dict[str, Callable[..., Workload]] = {
    "llm": llm,
    "dlrm": dlrm,
    "hpl": hpl,
    "fft": fft,
    "prefill": _Serving(prefill),
    "decode": _Serving(decode),
    "mamba": mamba,
    "hyena": hyena,
}
