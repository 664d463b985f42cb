"""Small changes to a Python file: which there are, and a draw of them."""

from __future__ import annotations

import ast
import hashlib
from collections import Counter
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from pathlib import Path

OTHERS: dict[type[ast.AST], tuple[type[ast.AST], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.And: (ast.Or,),
    ast.Or: (ast.And,),
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Div,),
    ast.Div: (ast.Mult,),
    # Without a remainder, `/` is no change.
    ast.FloorDiv: (ast.Mult,),
    ast.Mod: (ast.FloorDiv,),
    ast.Pow: (ast.Mult,),
}
OPPOSITES = "min max, minimum maximum, argmin argmax, sum prod, cumsum cumprod, any all, floor ceil"
PAIRS = [pair.split() for pair in OPPOSITES.split(", ")]
CALLED = dict(PAIRS) | {b: a for a, b in PAIRS}

# What only types, words and people who look at a record see.
UNSEEN_FIELDS = {"annotation", "returns", "decorator_list", "bases"}
UNSEEN_FUNCTIONS = {"__repr__", "__str__", "cast", "debug", "info", "warn", "warning", "field"}
UNSEEN_NODES = (ast.Raise, ast.Assert, ast.JoinedStr)

Lines = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Bytes ``start`` to ``end`` of a file in other words.

    ``key`` names it wherever its line stands; ``around`` are the first and last lines of what
    changes, of its statement, and of its function or class.
    """

    path: str
    scope: str
    around: tuple[Lines, Lines, Lines]
    start: int
    end: int
    before: str
    after: str
    key: str

    def applied(self, source: bytes) -> bytes:
        """Return the text of the file with the change."""
        return source[: self.start] + self.after.encode() + source[self.end :]


def others(node: ast.AST, is_condition: bool) -> Iterator[ast.AST]:
    """Yield what may stand instead of a node."""
    match node:
        case ast.Compare(ops=ops):
            for i, op in enumerate(ops):
                for other in OTHERS[type(op)]:
                    yield _with(node, "ops", [*ops[:i], other(), *ops[i + 1 :]])
        case ast.BoolOp(op=op) | ast.BinOp(op=op) | ast.AugAssign(op=op):
            for other in OTHERS.get(type(op), ()):
                yield _with(node, "op", other())
        # There is no product without a module.
        case ast.Call(func=ast.Name(id=name)) if CALLED.get(name, "prod") != "prod":
            yield _with(node, "func", ast.Name(CALLED[name]))
        case ast.Call(func=ast.Attribute(attr=name)) if name in CALLED:
            yield _with(node, "func", _with(node.func, "attr", CALLED[name]))
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield ast.Constant(value + 1)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield operand
        case ast.Return(value=ast.expr() as value) if ast.unparse(value) != "None":
            yield ast.Return(ast.Constant(None))
        case ast.Name() | ast.Attribute() | ast.Call() if is_condition:
            yield ast.UnaryOp(ast.Not(), node)


def _with(node: ast.AST, field: str, value: object) -> ast.AST:
    other = copy(node)
    setattr(other, field, value)
    return other


def _unseen(node: ast.AST, field: str) -> bool:
    """Whether nobody has to see a change of what a field holds."""
    if field in UNSEEN_FIELDS or isinstance(node, UNSEEN_NODES):
        return True
    match node:
        case ast.FunctionDef(name=x) | ast.Call(func=ast.Name(id=x) | ast.Attribute(attr=x)):
            return x in UNSEEN_FUNCTIONS
        case ast.If(test=ast.Name(id="TYPE_CHECKING")) | ast.keyword(arg="strict" | "maxsize"):
            return True
        case ast.BinOp(left=ast.Constant(value=str()) | ast.JoinedStr()):
            return True
        case ast.BinOp(right=ast.Constant(value=str()) | ast.JoinedStr()):
            return True
    return False


def changes_of(path: Path, root: Path) -> list[Change]:
    """Return all changes to a file, which they name from the folder ``root``."""
    source, name = path.read_bytes(), path.relative_to(root).as_posix()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found: list[Change] = []
    seen: Counter[str] = Counter()

    def walk(parent: ast.AST, scope: str, body: Lines, statement: Lines) -> None:
        for field, value in ast.iter_fields(parent):
            for node in value if isinstance(value, list) else [value]:
                if isinstance(node, ast.AST) and not _unseen(node, field):
                    visit(node, parent, field, scope, body, statement)

    def visit(
        node: ast.AST, parent: ast.AST, field: str, scope: str, body: Lines, statement: Lines
    ) -> None:
        if isinstance(node, ast.stmt):
            inside = getattr(node, "body", None)
            statement = node.lineno, inside[0].lineno - 1 if inside else node.end_lineno or 0
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            scope, body = f"{scope}.{node.name}".lstrip("."), (node.lineno, node.end_lineno or 0)
        for other in others(node, field in ("test", "ifs")):
            before, after = ast.unparse(node), ast.unparse(ast.fix_missing_locations(other))
            # A number says little of where it stands.
            near = ast.unparse(parent if isinstance(node, ast.Constant) else node)
            key = f"{name}::{scope} | {near.splitlines()[0][:160]} | {before} -> {after}"
            seen[key] += 1
            assert isinstance(node, ast.expr | ast.stmt)
            last = node.end_lineno or node.lineno
            found.append(
                Change(
                    path=name,
                    scope=scope,
                    around=((node.lineno, last), statement, body),
                    start=starts[node.lineno - 1] + node.col_offset,
                    end=starts[last - 1] + (node.end_col_offset or 0),
                    before=before,
                    after=f"({after})" if isinstance(node, ast.expr) else after,
                    key=key if seen[key] == 1 else f"{key} #{seen[key]}",
                )
            )
        walk(node, scope, body, statement)

    everywhere = (1, len(starts))
    walk(ast.parse(source), "", everywhere, everywhere)
    return found


def sample(changes: list[Change], seed: int, count: int) -> list[Change]:
    """Return changes drawn by their names, at most one a line.

    A change keeps its place in the draw while other lines are edited, so that two states of a
    project are held to nearly the same changes.
    """

    def drawn(change: Change) -> str:
        return hashlib.sha256(f"{seed} {change.key}".encode()).hexdigest()

    of_line: dict[tuple[str, int], Change] = {}
    for change in sorted(changes, key=drawn):
        of_line.setdefault((change.path, change.around[0][0]), change)
    return list(of_line.values())[:count]
