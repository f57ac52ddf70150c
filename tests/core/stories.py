"""Some tests are stories: what their engines were told and what they ordered is kept, line by line.

A test sees what it asks for; its story sees all the rest as well: each byte of each message, the order of effects, what
is stored, and every deadline. A story that changes is a change that somebody makes on purpose: `make stories` writes
them anew, and their differences are read like prose.

A story is JSON Lines. `in` is what an engine was told, at which moment; `out` one order of its answer each; `due` its
next deadline, where that moves; `at rest` what it reports at the end. Fields that are as they always are left out,
messages stand as they are, and long ones are cut.
"""

from __future__ import annotations

import difflib
import enum
import functools
import hashlib
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
from isthmus.core.engine import Engine

FOLDER: Final = Path(__file__).with_name("stories")
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
    "handle_timeout",
)
REPORTS: Final = ("report", "tasks", "files", "file_ends")
TEXT_MAX: Final = 3000
"""Of a longer message, its beginning and a digest are kept."""
LINES_SHOWN_MAX: Final = 40
"""Of a difference."""


def path_of(nodeid: str) -> Path:
    """Where the story of a test is, or would be."""
    file, _, name = nodeid.partition("::")
    plain = re.sub(r"[^A-Za-z0-9_.,=\[\]-]", "_", name)
    if plain != name or len(plain) > 120:
        plain = f"{plain[:110]}~{hashlib.sha256(name.encode()).hexdigest()[:6]}"
    place = Path(file.partition("tests/core/")[2])
    return FOLDER / place.parent / place.stem.removeprefix("test_") / f"{plain}.jsonl"


class Told:
    """All that the engines of a test are told, and what they order."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._engines: list[Engine] = []
        self._due: dict[int, object] = {}
        self._depth = 0

    def listen(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        """The same method of engines, that is written down here."""

        @functools.wraps(method)
        def heard(engine: Engine, *given: Any, **named: Any) -> Any:
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

        return heard

    def end(self) -> None:
        for number, engine in enumerate(self._engines, 1):
            for name in REPORTS:
                if found := getattr(engine, name)():
                    self._write({"at rest": name, **({"engine": number} if number > 1 else {}), "is": shown(found)})

    def _note(self, engine: Engine, name: str, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        if not any(engine is known for known in self._engines):
            self._engines.append(engine)
        number = next(at for at, known in enumerate(self._engines, 1) if known is engine)
        line: dict[str, Any] = {"in": name}
        if number > 1:
            line["engine"] = number
        told = [shown(each) for each in given] + [{name: shown(each)} for name, each in named.items()]
        self._write({**line, "told": told})

    def _note_due(self, engine: Engine) -> None:
        due = engine.next_timeout()
        said = None if due is None else [round(due.at, 6), due.why]
        if self._due.get(id(engine)) != said:
            self._due[id(engine)] = said
            self._write({"due": said})

    def _write(self, line: dict[str, Any]) -> None:
        self.lines.append(msgspec.json.encode(line).decode())


def shown(value: Any) -> Any:
    """A value as a line of a story has it."""
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
    """JSON as it is written, and other bytes as text."""
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
def told() -> Iterator[Told]:
    """Write down what engines are told meanwhile."""
    found = Told()
    before = {name: getattr(Engine, name) for name in INPUTS}
    try:
        for name, method in before.items():
            setattr(Engine, name, found.listen(name, method))
        yield found
    finally:
        for name, method in before.items():
            setattr(Engine, name, method)
    found.end()


def difference(kept: list[str], now: list[str]) -> str:
    """Where they part; "" where they are one."""
    if kept == now:
        return ""
    lines = [line[:400] for line in difflib.unified_diff(kept, now, "kept", "now", lineterm="", n=2)]
    rest = len(lines) - LINES_SHOWN_MAX
    return "\n".join(lines[:LINES_SHOWN_MAX] + ([f"… {rest} more lines"] if rest > 0 else []))
