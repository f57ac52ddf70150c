"""State has owners, and parts are complete once they are constructed: both are read from the syntax trees of `core/`.

An attribute is written by the methods of its class, or by another class of the same file. A container that an attribute
holds is changed by them as well. No attribute is left for others to set.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from each_row import each_row

ROOT = Path(__file__).parent.parent
FILES = sorted(path for path in (ROOT / "core").rglob("*.py") if "__pycache__" not in path.parts)

CHANGES = frozenset(
    [
        "add",
        "append",
        "appendleft",
        "clear",
        "discard",
        "extend",
        "insert",
        "move_to_end",
        "pop",
        "popitem",
        "popleft",
        "remove",
        "reverse",
        "setdefault",
        "sort",
        "update",
    ]
)
"""Methods that change a container."""

PROTOCOLS = {
    "core/state/link.py: PlainTranslation": "three translations",
    "core/wire/http/coded_response.py: Reader": "two readers of responses, and the one that decodes for them",
    "core/wire/http/codings.py: Decompressor": "zlib's here, and those of packages that the core does not import",
    "core/state/ports.py: LinkRouter": "links are below `routing`, which implements it",
    "core/state/ports.py: FileDirectory": "profiles may be without `files`, which a copy may leave out",
    "core/state/ports.py: PlainWay": "two ways: on the link of a session, and on a leg of a profile",
    "core/state/ports.py: TaskDirectory": "profiles may be without `tasks`, which a copy may leave out",
    "core/state/ports.py: SessionRouter": "sessions are below `routing`, which implements it",
    "core/state/ports.py: StatelessReplies": "sessions are below `endpoints`, which a copy may leave out in part",
    "core/state/ports.py: TaskKeeper": "exchanges are below `tasks`, which a copy may leave out",
}
"""The protocols of the core, each with the reason why it is no class."""


def own_names(tree: ast.Module) -> set[str]:
    """Returns the attributes of the classes of a file: those that they write on themselves, and class attributes."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_self(node.value):
            found.add(node.attr)
        elif isinstance(node, ast.ClassDef):
            targets = [each.target for each in node.body if isinstance(each, ast.AnnAssign)]
            targets += [target for each in node.body if isinstance(each, ast.Assign) for target in each.targets]
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


def is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def writes(tree: ast.AST) -> Iterator[ast.Attribute]:
    """Yields the attributes of other objects that a file assigns, deletes, or changes as containers."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del) and not is_self(node.value):
            yield node
        held: ast.expr | None = None
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            held = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGES:
            held = node.func.value
        if isinstance(held, ast.Attribute) and not is_self(held.value):
            yield held


def foreign_writes(path: Path) -> list[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    own = own_names(tree)
    place = path.relative_to(ROOT)
    return [f"{place}:{node.lineno}: {ast.unparse(node)}" for node in writes(tree) if node.attr not in own]


@each_row("path", FILES)
def test_state_is_changed_by_its_owner(path: Path) -> None:
    found = foreign_writes(path)
    assert not found, "\n".join(found)


def unset(path: Path) -> Iterator[str]:
    """Yields the attributes that a constructor names and leaves for others to set."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.AnnAssign) and node.value is None and isinstance(node.target, ast.Attribute):
            yield f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node.target)}"


def test_no_attribute_is_left_for_others_to_set() -> None:
    found = [each for path in FILES for each in unset(path)]
    assert not found, "\n".join(found)


def protocols() -> set[str]:
    return {
        f"{path.relative_to(ROOT)}: {node.name}"
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef) and any(ast.unparse(base).startswith("Protocol") for base in node.bases)
    }


def test_each_protocol_has_a_reason() -> None:
    assert protocols() == set(PROTOCOLS)


def test_a_foreign_write_is_found() -> None:
    """The tests above can fail: each of these lines writes what another object owns."""
    lines = ["a.b = 1", "a.b += 1", "del a.b", "a.b, c = 1, 2", "a.b[c] = 1", "del a.b[c]", "a.b.append(c)"]
    assert [len(list(writes(ast.parse(line)))) for line in lines] == [1] * len(lines)
    assert not list(writes(ast.parse("self.b = 1; self.b.append(c); a.b.get(c); b[c] = a.b")))
