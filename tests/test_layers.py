"""The directions in which parts of the house may look, and what the core may not even load."""

from __future__ import annotations

import ast
import functools
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from each_row import each_row
from rooms import LOOSE, PARTS, ROOMS, room_of

ROOT = Path(__file__).parent.parent

# No clock, no randomness, no files, no sockets, no threads: what is left computes.
PURE = {
    "__future__",
    "base64",
    "binascii",
    "bisect",
    "collections",
    "datetime",  # to format given moments; that nobody asks it for the time is a test below
    "difflib",
    "enum",
    "fnmatch",  # of names, not of files
    "functools",
    "hashlib",
    "heapq",
    "hmac",
    "importlib",  # for the public names, which are loaded when they are asked for
    "ipaddress",  # to judge what is written like one
    "itertools",
    "json",
    "math",
    "operator",
    "posixpath",
    "re",
    "struct",
    "tomllib",  # of text, not of files
    "types",
    "typing",
    "unicodedata",
    "urllib.parse",
    "zlib",  # of bytes, not of files
    "msgspec",
}

OPTIONAL = {"core/base/regex.py": {"re2"}}
"""Packages that one file imports, when it needs them: it computes, too, and the core works without it."""

FORBIDDEN = {
    "_asyncio",
    "_queue",
    "_random",
    "_socket",
    "_ssl",
    "anyio",
    "asyncio",
    "concurrent",
    "glob",
    "h11",
    "http",
    "logging",
    "mimetypes",
    "multiprocessing",
    "pathlib",
    "queue",
    "random",
    "secrets",
    "select",
    "selectors",
    "shutil",
    "signal",
    "socket",
    "ssl",
    "subprocess",
    "tempfile",
    "threading",
    "wsproto",
}


def sources(part: str) -> list[Path]:
    found = sorted(path for path in (ROOT / part).rglob("*.py") if "__pycache__" not in path.parts)
    assert found
    return found


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@functools.cache
def imports(path: Path, *, absolute_only: bool = False) -> tuple[tuple[int, str], ...]:
    """(line, absolute name) of every import in a file, wherever in it, relative ones resolved below `isthmus`."""
    return tuple(_imports(path, absolute_only))


def _imports(path: Path, absolute_only: bool) -> Iterator[tuple[int, str]]:
    package = ["isthmus", *path.relative_to(ROOT).parts[:-1]]
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            assert node.module is not None
            yield node.lineno, node.module
        elif isinstance(node, ast.ImportFrom) and not absolute_only:
            base = package[: len(package) - node.level + 1]
            for alias in node.names:
                yield node.lineno, ".".join([*base, *([node.module] if node.module else []), alias.name])


@pytest.mark.parametrize("part", PARTS)
def test_each_part_looks_only_where_it_may(part: str) -> None:
    """Calls go down: the core sees itself, transports see the core, storage sees itself, the app sees all."""
    for path in sources(part):
        for line, name in imports(path):
            where = f"{path.relative_to(ROOT)}:{line} imports {name}"
            parts = name.split(".")
            if parts[0] == "isthmus":
                assert len(parts) > 1, f"{where}, which is everything"
                assert parts[1] == part or parts[1] in PARTS[part], where
            else:
                assert parts[0] not in PARTS, f"{where}: the folders are installed below isthmus"


def arrows(room: str) -> dict[str, list[str]]:
    """The other rooms of the same part that the files of a room import, and where each is imported."""
    found: dict[str, list[str]] = {}
    for path in sources(room.partition("/")[0]):
        file = path.relative_to(ROOT).as_posix()
        if room_of(file) != room:
            continue
        for line, name in imports(path):
            words = name.split(".")[1:]
            if name.partition(".")[0] != "isthmus" or words[0] != file.partition("/")[0]:
                continue
            module = next(
                (
                    "/".join(words[:count]) + end
                    for count in range(len(words), 0, -1)
                    for end in (".py", "/__init__.py")
                    if (ROOT / ("/".join(words[:count]) + end)).exists()
                ),
                "",
            )
            assert module, f"{file}:{line} imports {name}, which is no module"
            if room_of(module) != room:
                found.setdefault(room_of(module), []).append(f"{file}:{line}")
    return found


@each_row("room", ROOMS)
def test_rooms_import_only_the_rooms_that_their_row_names(room: str) -> None:
    """A row also names no room that its files do not import: an arrow that nothing needs goes."""
    found = arrows(room)
    wrong = {target: places for target, places in found.items() if target not in ROOMS[room]}
    assert not wrong, f"{room} imports rooms that tests/rooms.py does not allow it: {wrong}"
    unused = set(ROOMS[room]) - found.keys()
    assert not unused, f"{room} does not import {sorted(unused)} any more: take them out of its row in tests/rooms.py"


def test_rooms_stand_in_order() -> None:
    """A row names only rooms of rows above it, so that there are no circles."""
    rows = list(ROOMS)
    for at, room in enumerate(rows):
        assert set(ROOMS[room]) <= set(rows[:at]), f"{room} names a room that stands below it"


def test_each_file_stands_in_a_room() -> None:
    """Every folder is a room, and outside the rooms stand only the files that may."""
    for part in PARTS:
        for path in sources(part):
            file = path.relative_to(ROOT).as_posix()
            assert room_of(file) in ROOMS, f"{file} is in no room of tests/rooms.py"
            if part in LOOSE and path.parent == ROOT / part and path.stem != "__init__":
                assert path.stem in LOOSE[part], f"{file} stands outside the rooms of {part}/"


OFFERING = ("app/driver_checks", "core", "core/oracle", "core/testing", "storage")
"""Packages that offer public names."""


def test_every_room_is_packaged() -> None:
    """`setup.py` finds the folders that are packages. What a package says of itself loads nothing."""
    folders = {path.parent for part in PARTS for path in sources(part)}
    for folder in sorted(folders):
        file = folder / "__init__.py"
        assert file.exists(), f"{folder.relative_to(ROOT)} has no __init__.py: it would not be installed"
        name = folder.relative_to(ROOT).as_posix()
        if name not in OFFERING:
            assert [type(node) for node in tree_of(file).body] == [ast.Expr], f"{name}/__init__.py is no docstring"


def test_the_listing_of_a_room_fits_a_screen() -> None:
    for room in ROOMS:
        count = sum(1 for path in (ROOT / room).glob("*.py") if path.stem != "__init__")
        assert count <= 40, f"{room} has {count} files"


@pytest.mark.parametrize("part", PARTS)
def test_parts_name_each_other_relatively(part: str) -> None:
    """A part can be copied under another name."""
    for path in sources(part):
        for line, name in imports(path, absolute_only=True):
            assert name.split(".")[0] != "isthmus", f"{path.relative_to(ROOT)}:{line} imports {name}"


def test_the_core_imports_pure_modules_only() -> None:
    """msgspec, a known list of the standard library, itself, and what `OPTIONAL` allows a file."""
    for path in sources("core"):
        allowed = {*PURE, "isthmus", *OPTIONAL.get(path.relative_to(ROOT).as_posix(), ())}
        for line, name in imports(path):
            is_pure = any(name == pure or name.startswith(pure + ".") for pure in allowed)
            assert is_pure, f"{path.relative_to(ROOT)}:{line} imports {name}"


CLOCKS_AND_FILES = {"open", "print", "input", "exec", "eval", "__import__", "breakpoint"}


def test_the_core_asks_nobody_anything() -> None:
    """The core opens no file and asks no clock, whatever its imports would allow."""
    for path in sources("core"):
        for node in ast.walk(tree_of(path)):
            if not isinstance(node, ast.Call):
                continue
            where = f"{path.relative_to(ROOT)}:{node.lineno}"
            if isinstance(node.func, ast.Name):
                assert node.func.id not in CLOCKS_AND_FILES, f"{where} calls {node.func.id}"
            elif isinstance(node.func, ast.Attribute):
                assert node.func.attr not in ("now", "utcnow", "today"), f"{where} calls .{node.func.attr}"


METHOD = re.compile(
    r"\b(completion|elicitation|logging|notifications|prompts|resources|roots|sampling|server|subscriptions|tasks|tools)"
    r"/[a-z]"
)


def test_transports_know_no_method() -> None:
    """A method's name in a transport is a rule in the wrong place."""
    for path in sources("transports"):
        tree = tree_of(path)
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
                text = node.value if isinstance(node.value, str) else node.value.decode("latin-1")
                found = METHOD.search(text)
                assert found is None, f"{path.relative_to(ROOT)}:{node.lineno} says {text[:60]!r}"
                assert text not in ("initialize", "ping"), f"{path.relative_to(ROOT)}:{node.lineno} says {text!r}"


def test_the_search_for_methods_finds_them() -> None:
    assert METHOD.search('{"method":"tools/call"}')
    assert METHOD.search("notifications/progress")
    assert not METHOD.search("text/event-stream application/json isthmus/0.1")


LOAD = """
import json, sys
sys.path[:0] = json.loads(sys.argv[1])
import msgspec, msgspec.json
if len(sys.argv) > 2:
    import importlib
    for name in sys.argv[2:]:
        importlib.import_module(name)
print(json.dumps(sorted(sys.modules)))
"""


def loaded(folder: Path, *modules: str) -> set[str]:
    """The modules that a fresh interpreter, without site packages, has loaded after msgspec and `modules`."""
    program = [sys.executable, "-I", "-S", "-B", "-c", LOAD, json.dumps([str(folder)]), *modules]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    names = json.loads(done.stdout)
    assert isinstance(names, list)
    return set(names)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder from which nothing but msgspec and the core can be imported."""
    import msgspec

    folder = tmp_path_factory.mktemp("bare")
    (folder / "msgspec").symlink_to(Path(msgspec.__file__).parent)
    (folder / "isthmus").mkdir()
    (folder / "isthmus" / "core").symlink_to(ROOT / "core")
    return folder


def test_loading_the_core_loads_nothing_impure(bare: Path) -> None:
    """Every module of it, compared with an interpreter that loaded msgspec alone: nothing that touches the world."""
    modules = [
        ".".join(["isthmus", *path.relative_to(ROOT).with_suffix("").parts]).removesuffix(".__init__")
        for path in sources("core")
    ]
    assert "isthmus.core.engine" in modules
    ours = loaded(bare, *modules)
    assert set(modules) <= ours
    extra = ours - loaded(bare)
    impure = {name for name in extra if name.split(".")[0] in FORBIDDEN}
    assert not impure
    foreign = {name.split(".")[0] for name in extra} - set(sys.stdlib_module_names) - {"isthmus", "msgspec"}
    assert not foreign


def test_the_comparison_would_see_an_impure_module(bare: Path) -> None:
    """The check is not blind: one socket among the imports is seen."""
    assert "socket" in loaded(bare, "socket") - loaded(bare)
