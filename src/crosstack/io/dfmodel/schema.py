"""The schema of DFModel's text files, built at run time: no compiler, no generated code.

Names and types, in ``schema.yaml``, are those of the public tool (``dfmodel_code``). Where its
releases differ, this is their union. Text holds names only, so a field number matters to nobody:
numbers are the public ones where they are known and free ones where they are not, or where two
releases gave one number to two fields (``perfect_overlap`` and ``overlap``, ``execution`` and
``miscellany``). The type names are our own.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

from crosstack.io.yaml_tree import parse_yaml

_PACKAGE = "crosstack.dfmodel"
_SCALARS = {"int": "INT64", "real": "FLOAT", "bool": "BOOL", "string": "STRING"}
_TREE: Any = parse_yaml(files(__package__).joinpath("schema.yaml").read_text(encoding="utf-8"))
_MESSAGES: dict[str, dict[str, str]] = _TREE["messages"]
ENUMS: dict[str, tuple[str, ...]] = {name: tuple(v) for name, v in _TREE["enums"].items()}
TOPOLOGIES = {name: tuple(name.split("_")) for name in _MESSAGES["System/topology_variant"]}
# Names of the repeated fields, wherever they stand.
REPEATED = frozenset(
    name for given in _MESSAGES.values() for name, words in given.items() if words.endswith("*")
)


def dimension_letters(count: int) -> tuple[str, ...]:
    """Return what DFModel calls the ``count`` dimensions of a network, innermost first."""
    return ("w", "x", "y", "z") if count == 4 else ("x", "y", "z")[:count]


def _fields(given: dict[str, str], **oneof: int) -> Iterator[dict[str, Any]]:
    for name, words in given.items():
        if name == "like":
            yield from _fields(_TREE["groups"][words], **oneof)
            continue
        number, kind = words.removesuffix("*").split()
        # Values of a proto3 enum share the scope the enum stands in: each enum gets its own.
        scope = f"{kind}Scope." if kind in ENUMS else ""
        of = {"typeName": f".{_PACKAGE}.{scope}{kind}"}
        if kind in _SCALARS:
            of = {"type": f"TYPE_{_SCALARS[kind]}"}
        label = "LABEL_REPEATED" if words.endswith("*") else "LABEL_OPTIONAL"
        yield {"name": name, "number": int(number), "label": label} | of | oneof


def _file() -> dict[str, Any]:
    """Return the description of the file, as protobuf writes it in JSON."""
    messages: dict[str, dict[str, Any]] = {}
    for name, values in ENUMS.items():
        numbered = [{"name": value, "number": number} for number, value in enumerate(values)]
        messages[f"{name}Scope"] = {"enumType": [{"name": name, "value": numbered}]}
    for path, given in _MESSAGES.items():
        name, _, oneof = path.partition("/")
        message = messages.setdefault(name, {"field": []})
        if oneof:
            message["oneofDecl"] = [{"name": oneof}]
        message["field"] += _fields(given, **({"oneofIndex": 0} if oneof else {}))
    listed = [{"name": name} | message for name, message in messages.items()]
    return {"name": "dfmodel.proto", "package": _PACKAGE, "syntax": "proto3", "messageType": listed}


_POOL = descriptor_pool.DescriptorPool()
_POOL.AddSerializedFile(
    json_format.ParseDict(_file(), descriptor_pb2.FileDescriptorProto()).SerializeToString()
)
_DSE = message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"{_PACKAGE}.DSE"))


def new_dse() -> Any:  # Any: the class is made at run time, no checker knows its fields
    """Return an empty DFModel file: message ``DSE``."""
    return _DSE()
