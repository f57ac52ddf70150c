"""Snapshots of tests: the inputs and effects of their engines, one a line.

A test checks one property. Its snapshot holds everything else: each byte of each message, the order of the effects,
the stored records, and every deadline. `make snapshots` writes all snapshots anew; their differences are reviewed.

A snapshot is JSON Lines. `in` is an input of an engine with its arguments (`told`); `out` is one effect that the input
returned; `due` is the next deadline, where it changes; `at rest` is what the engine reports at the end. Fields with
their default value are left out, messages stand as they are, and long messages are cut.

The snapshots of a test module stand in one file, below a table of contents. A test gets a snapshot when its name stands
in that file: add a line `== name`, then run `make snapshots`.
"""

from __future__ import annotations

import difflib
import enum
import functools
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import msgspec
from isthmus.core.bulk import BulkEngine

FOLDER: Final = Path(__file__).with_name("snapshots")
INPUTS: Final = (
    "receive_open",
    "receive_message",
    "receive_messages",
    "receive_pieces",
    "receive_part",
    "receive_close",
    "receive_sent",
    "receive_at_once",
    "receive_answer",
    "receive_drain",
    "receive_stop",
    "receive_command",
    "receive_task_cancel",
    "receive_file_delete",
    "receive_records",
    "handle_timeout",
)
REPORTS: Final = ("report", "tasks", "files", "file_ends")
TEXT_MAX: Final = 3000
"""The longest text in a snapshot; of a longer one, the beginning and a digest are kept."""
LINES_SHOWN_MAX: Final = 40
"""The longest difference that is shown, in lines."""

_SECTION: Final = "== "


# --- Files ----------------------------------------------------------------------------------------------------------


def place_of(nodeid: str) -> tuple[Path, str]:
    """Returns the path of the file for the snapshot of a test, and the name of the test there."""
    file, _, name = nodeid.partition("::")
    module = Path(file.partition("tests/core/")[2])
    return FOLDER / module.parent / f"{module.stem.removeprefix('test_')}.jsonl", name


@lru_cache(maxsize=4)
def read(path: Path) -> dict[str, list[str]]:
    """Returns the snapshots of a module, by the names of their tests."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        if line.startswith(_SECTION):
            lines = found.setdefault(line.removeprefix(_SECTION), [])
        elif line.startswith("{"):
            lines.append(line)
    return found


def write(path: Path, name: str, lines: list[str]) -> None:
    """Writes the snapshot of a test into its file."""
    found = read(path)
    found[name] = lines
    path.write_text(formatted(path, found), encoding="utf-8")


def formatted(path: Path, found: Mapping[str, list[str]]) -> str:
    """Returns the text of a file: the table of contents, then a section for each test."""
    module = path.relative_to(FOLDER)
    head = [f"# Snapshots of tests/core/{module.with_name(f'test_{module.stem}.py').as_posix()}, by `make snapshots`."]
    head += ["#", "#  line  lines  test"]
    at = len(head) + len(found) + 2
    for name in sorted(found):
        head.append(f"# {at:5} {len(found[name]):6}  {name}")
        at += len(found[name]) + 2
    sections = [line for name in sorted(found) for line in ("", f"{_SECTION}{name}", *found[name])]
    return "\n".join([*head, *sections, ""])


# --- Recording ------------------------------------------------------------------------------------------------------


class Recording:
    """All inputs of the engines of a test, and the effects that they return."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._engines: list[BulkEngine] = []
        self._due: dict[int, object] = {}
        self._depth = 0

    def wrap(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps a method of engines so that its calls are recorded."""

        @functools.wraps(method)
        def recording(engine: BulkEngine, *given: Any, **named: Any) -> Any:
            self._depth += 1
            try:
                effects = method(engine, *given, **named)
            except Exception as error:
                if self._depth == 1:
                    self._note(engine, name, given, named)
                    self._write({"refused": f"{type(error).__name__}: {error}"})
                raise
            finally:
                self._depth -= 1
            if not self._depth:
                self._note(engine, name, given, named)
                for effect in effects:
                    self._write({"out": shown(effect)})
                self._note_due(engine)
            return effects

        return recording

    def end(self) -> None:
        for number, engine in enumerate(self._engines, 1):
            for name in REPORTS:
                if found := getattr(engine, name)():
                    self._write({"at rest": name, **({"engine": number} if number > 1 else {}), "is": shown(found)})

    def _note(self, engine: BulkEngine, name: str, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        if not any(engine is known for known in self._engines):
            self._engines.append(engine)
        number = next(at for at, known in enumerate(self._engines, 1) if known is engine)
        line: dict[str, Any] = {"in": name}
        if number > 1:
            line["engine"] = number
        arguments = [shown(each) for each in given] + [{name: shown(each)} for name, each in named.items()]
        self._write({**line, "told": arguments})

    def _note_due(self, engine: BulkEngine) -> None:
        due = engine.next_timeout()
        shown_due = None if due is None else [round(due.at, 6), due.why]
        if self._due.get(id(engine)) != shown_due:
            self._due[id(engine)] = shown_due
            self._write({"due": shown_due})

    def _write(self, line: dict[str, Any]) -> None:
        self.lines.append(msgspec.json.encode(line).decode())


def shown(value: Any) -> Any:
    """Returns a value as it stands in a line of a snapshot."""
    if isinstance(value, bytes | bytearray):
        return _message(bytes(value))
    if isinstance(value, msgspec.Struct):
        fields = {
            field.name: shown(getattr(value, field.name))
            for field in msgspec.structs.fields(value)
            if field.required or getattr(value, field.name) != field.default
        }
        return {type(value).__name__: fields}
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, dict):
        return {str(key): shown(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [shown(each) for each in value]
    if isinstance(value, set | frozenset):
        return sorted((shown(each) for each in value), key=str)
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, str) and len(value) > TEXT_MAX:
        return _cut(value, value.encode())
    return value


def _message(value: bytes) -> Any:
    """Returns JSON as it is written, and other bytes as text."""
    text = value.decode("utf-8", "backslashreplace")
    if len(text) > TEXT_MAX:
        return _cut(text, value)
    if text[:1] in ("{", "[") and "\n" not in text and "\r" not in text:
        try:
            json.loads(value)
        except ValueError:
            return text
        return msgspec.Raw(value)
    return text


def _cut(text: str, value: bytes) -> str:
    return f"{text[:200]}… {len(value)} bytes, {hashlib.sha256(value).hexdigest()[:16]}"


@contextmanager
def recorded() -> Iterator[Recording]:
    """Records the inputs and effects of every engine in the block."""
    found = Recording()
    before = {name: getattr(BulkEngine, name) for name in INPUTS}
    try:
        for name, method in before.items():
            setattr(BulkEngine, name, found.wrap(name, method))
        yield found
    finally:
        for name, method in before.items():
            setattr(BulkEngine, name, method)
    found.end()


def difference(kept: list[str], now: list[str]) -> str:
    """Returns the unified difference of two snapshots; "" if they are equal."""
    if kept == now:
        return ""
    lines = [line[:400] for line in difflib.unified_diff(kept, now, "kept", "now", lineterm="", n=2)]
    rest = len(lines) - LINES_SHOWN_MAX
    return "\n".join(lines[:LINES_SHOWN_MAX] + ([f"… {rest} more lines"] if rest > 0 else []))
