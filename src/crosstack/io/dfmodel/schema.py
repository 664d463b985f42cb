"""The schema of DFModel's text files, built at run time: no compiler, no generated code.

Names and types are those of the public tool (``dfmodel_code``). Where its releases differ, this
is their union. Text holds names only, so a field number matters to nobody: numbers are the public
ones where they are known and free ones where they are not, or where two releases gave one number
to two fields (``perfect_overlap`` and ``overlap``, ``execution`` and ``miscellany``). The type
names are our own.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from crosstack.io.yaml_tree import parse_yaml

_PACKAGE = "crosstack.dfmodel"

_Field = tuple[str, int, str]  # name, number, type
_TREE: Any = parse_yaml(files(__package__).joinpath("schema.yaml").read_text(encoding="utf-8"))
ENUMS: dict[str, tuple[str, ...]] = {name: tuple(v) for name, v in _TREE["enums"].items()}
TOPOLOGIES: dict[str, tuple[int, tuple[str, ...]]] = {
    name: (number, tuple(name.split("_"))) for name, number in _TREE["topologies"].items()
}


def dimension_letters(count: int) -> tuple[str, ...]:
    """Return what DFModel calls the ``count`` dimensions of a network, innermost first."""
    return ("w", "x", "y", "z") if count == 4 else ("x", "y", "z")[:count]


_SCALARS = {
    "int": descriptor_pb2.FieldDescriptorProto.TYPE_INT64,
    "real": descriptor_pb2.FieldDescriptorProto.TYPE_FLOAT,
    "bool": descriptor_pb2.FieldDescriptorProto.TYPE_BOOL,
    "string": descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
}


def _fields(given: dict[str, str]) -> Iterator[_Field]:
    for name, words in given.items():
        if name == "like":
            yield from _fields(_TREE["groups"][words])
        else:
            number, kind = words.split()
            yield name, int(number), kind


def _network(letters: tuple[str, ...]) -> Iterator[_Field]:
    """Yield what every dimension of a network has: chips, bandwidth of a link, parallelism."""
    for i, letter in enumerate(letters, start=1):
        yield letter, i, "int"
        yield f"link_bw_{letter}", i + 10, "real"
        yield f"par_{letter}", i + 20, "string"


_MESSAGES: dict[str, tuple[_Field, ...]] = {
    **{path: tuple(_fields(given)) for path, given in _TREE["messages"].items()},
    "System/topology_variant": tuple(
        (name, number, f"Network_{name}") for name, (number, _) in TOPOLOGIES.items()
    ),
    **{
        f"Network_{name}": tuple(_network(dimension_letters(len(words))))
        for name, (_, words) in TOPOLOGIES.items()
    },
}


# Names of the repeated fields, wherever they stand.
REPEATED: frozenset[str] = frozenset(
    name for members in _MESSAGES.values() for name, _, kind in members if kind.endswith("*")
)


def _type_name(kind: str) -> str:
    # Values of a proto3 enum share the scope the enum stands in: each enum gets its own.
    return f".{_PACKAGE}.{kind}Scope.{kind}" if kind in ENUMS else f".{_PACKAGE}.{kind}"


def _add_field(
    message: descriptor_pb2.DescriptorProto, field: _Field, oneof: int | None = None
) -> None:
    name, number, kind = field
    proto = descriptor_pb2.FieldDescriptorProto
    made = message.field.add(name=name, number=number, label=proto.LABEL_OPTIONAL)
    if kind.endswith("*"):
        kind, made.label = kind[:-1], proto.LABEL_REPEATED
    if kind in _SCALARS:
        made.type = _SCALARS[kind]
    else:
        made.type = proto.TYPE_ENUM if kind in ENUMS else proto.TYPE_MESSAGE
        made.type_name = _type_name(kind)
    if oneof is not None:
        made.oneof_index = oneof


def _file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(
        name="crosstack_dfmodel.proto", package=_PACKAGE, syntax="proto3"
    )
    for name, values in ENUMS.items():
        scope = file.message_type.add(name=f"{name}Scope")
        enum = scope.enum_type.add(name=name)
        for number, value in enumerate(values):
            enum.value.add(name=value, number=number)
    messages: dict[str, descriptor_pb2.DescriptorProto] = {}
    for path, members in _MESSAGES.items():
        name, _, oneof = path.partition("/")
        if name not in messages:
            messages[name] = file.message_type.add(name=name)
        message = messages[name]
        if oneof:
            message.oneof_decl.add(name=oneof)
        for field in members:
            _add_field(message, field, len(message.oneof_decl) - 1 if oneof else None)
    return file


_POOL = descriptor_pool.DescriptorPool()
_POOL.AddSerializedFile(_file().SerializeToString())
_DSE = message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"{_PACKAGE}.DSE"))


def new_dse() -> Any:  # Any: the class is made at run time, no checker knows its fields
    """Return an empty DFModel file: message ``DSE``."""
    return _DSE()
