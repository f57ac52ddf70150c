"""Small faults that a programmer might have made, as trees to compile.

A mutant has one change of one node. None is made where it could change nothing that matters, or nothing that a test
ought to see: in annotations, docstrings, `assert`s, `__slots__`, and sentences for people.
"""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

COMPARISONS: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OPERATORS: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Add,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}


class Mutant(NamedTuple):
    """One faulty version of a module.

    Attributes:
        where: the dotted name of its function; "" at module level.
        change: `before -> after`; with `#2` and so on if the function has several that look alike.
        line: its line, for people.
        step: the number of the node, in the order of `ast.walk`, and of its change.
        spans: its lines, and those of the statement around it, for finding its tests.
    """

    where: str
    change: str
    line: int
    step: tuple[int, int]
    spans: tuple[range, range] = (range(0), range(0))

    @property
    def name(self) -> str:
        """The identifier, which does not depend on line numbers."""
        return f"{self.where or 'module'}: {self.change}"


def mutants_of(source: str) -> list[Mutant]:
    """Returns all mutants, in the order of the source's nodes."""
    tree = ast.parse(source)
    places, heads = _places(tree), _heads(tree)
    found, seen = [], Counter[tuple[str, str]]()
    for index, node in enumerate(ast.walk(tree)):
        if id(node) not in places:
            continue
        where = places[id(node)]
        for number, after in enumerate(_changes(node)):
            change = f"{_text(node)} -> {_text(after) if after is not None else 'nothing'}"
            seen[where, change] += 1
            if seen[where, change] > 1:
                change += f" #{seen[where, change]}"
            line = getattr(node, "lineno", 1)
            found.append(Mutant(where, change, line, (index, number), (_own(node), heads[id(node)])))
    return found


def _own(node: ast.AST) -> range:
    """Returns the lines of a node; for a statement, without those of statements in it."""
    line, end = getattr(node, "lineno", 1), getattr(node, "end_lineno", None)
    body = getattr(node, "body", None)
    if isinstance(node, ast.stmt) and body:
        end = body[0].lineno - 1
    return range(line, max(end or line, line) + 1)


def _heads(tree: ast.Module) -> dict[int, range]:
    """Returns, by each node's identity, the lines of the innermost statement around it."""
    found: dict[int, range] = {}

    def enter(node: ast.AST, head: range) -> None:
        head = found[id(node)] = _own(node) if isinstance(node, ast.stmt) else head
        for child in ast.iter_child_nodes(node):
            enter(child, head)

    enter(tree, range(0))
    return found


def mutated(source: str, mutant: Mutant) -> ast.Module:
    """Returns the module with the one fault in it."""
    tree = ast.parse(source)
    index, number = mutant.step
    target = next(node for at, node in enumerate(ast.walk(tree)) if at == index)
    after = list(_changes(target))[number]
    if after is None:
        assert isinstance(target, ast.stmt)
        after = ast.Pass()
    replaced = _Replacing(target, after).visit(tree)
    assert isinstance(replaced, ast.Module)
    return ast.fix_missing_locations(replaced)


class _Replacing(ast.NodeTransformer):
    def __init__(self, target: ast.AST, after: ast.AST) -> None:
        self._target = target
        self._after = after

    def visit(self, node: ast.AST) -> ast.AST:
        if node is self._target:
            return ast.copy_location(self._after, node)
        visited = self.generic_visit(node)
        assert isinstance(visited, ast.AST)
        return visited


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.If | ast.While):
        return f"{type(node).__name__.lower()} {_text(node.test)}"
    line = " ".join(ast.unparse(node).split())
    return line if len(line) <= 100 else line[:97] + "..."


def _places(tree: ast.Module) -> dict[int, str]:
    """Returns the nodes that may be changed, by their identity, with the function of each."""
    found: dict[int, str] = {}

    def enter(node: ast.AST, where: str) -> None:
        if _is_left_alone(node):
            return
        found[id(node)] = where
        inner = where
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = f"{where}.{node.name}".lstrip(".")
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "bases", "keywords") and not isinstance(
                node, ast.Call
            ):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    enter(child, inner)

    enter(tree, "")
    return found


def _is_left_alone(node: ast.AST) -> bool:
    match node:
        case ast.Assert() | ast.JoinedStr() | ast.Import() | ast.ImportFrom():
            return True
        case ast.Expr(value=ast.Constant()):  # a docstring
            return True
        case ast.Assign(targets=[ast.Name(id="__slots__" | "__all__")]):
            return True
        case ast.Assign(value=ast.Call(func=ast.Name(id="TypeVar"))):
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
    return False


def _changes(node: ast.AST) -> Iterator[ast.AST | None]:
    """Yields the replacements of a node. None removes it."""
    match node:
        case ast.Compare(ops=ops):
            for at, op in enumerate(ops):
                after = copy.deepcopy(node)
                after.ops[at] = COMPARISONS[type(op)]()
                yield after
        case ast.BoolOp(op=op):
            after_bool = copy.deepcopy(node)
            after_bool.op = ast.Or() if isinstance(op, ast.And) else ast.And()
            yield after_bool
        case ast.UnaryOp(op=ast.Not()):
            yield node.operand
        case ast.BinOp(op=op) if type(op) in OPERATORS:
            after_binary = copy.deepcopy(node)
            after_binary.op = OPERATORS[type(op)]()
            yield after_binary
        case ast.AugAssign(op=op) if type(op) in OPERATORS:
            after_assigned = copy.deepcopy(node)
            after_assigned.op = OPERATORS[type(op)]()
            yield after_assigned
        case ast.If(test=test) | ast.While(test=test) if _is_plain(test):
            after_test = copy.copy(node)
            after_test.test = ast.UnaryOp(ast.Not(), test)
            yield after_test
        case ast.IfExp(test=test) if _is_plain(test):
            yield ast.IfExp(ast.UnaryOp(ast.Not(), test), node.body, node.orelse)
        case ast.Constant(value=value):
            yield from _other_constants(value)
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield ast.Return(ast.Constant(None))
        case ast.Expr(value=ast.Call()) | ast.Raise() | ast.Delete():
            yield None
        case ast.Break():
            yield ast.Continue()
        case ast.Continue():
            yield ast.Break()
        case ast.Dict(keys=keys) if len(keys) > 1:
            for at in range(len(keys)):
                less = copy.deepcopy(node)
                del less.keys[at], less.values[at]
                yield less


def _is_plain(test: ast.expr) -> bool:
    """True if the test contains no node that is changed by itself."""
    return not isinstance(test, ast.Compare | ast.BoolOp | ast.Constant) and not (
        isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
    )


def _other_constants(value: object) -> Iterator[ast.AST]:
    if isinstance(value, bool):
        yield ast.Constant(not value)
    elif isinstance(value, int | float):
        yield ast.Constant(value + 1)
    elif isinstance(value, str) and " " not in value:
        yield ast.Constant(value + "Q")
    elif isinstance(value, bytes) and b" " not in value:
        yield ast.Constant(value + b"Q")
