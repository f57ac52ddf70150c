"""The comparison of conversations, without ids and progress tokens, which belong to one hop.

Each message becomes a readable line: its kind, its stream if that matters, and its payload as bytes. Long payloads are
shown by their size and hash.
"""

from __future__ import annotations

import difflib
import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from slices import member, parts, replaced
from talk import CANCELLED_ID, ChapterMessage

SHOWN = 600


class Line(NamedTuple):
    kind: str
    payload: str
    is_notification: bool
    chapter: str = ""
    stream: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.payload}"


def shown(payload: bytes | None) -> str:
    """Returns the payload with every byte visible."""
    if payload is None:
        return "-"
    if len(payload) > SHOWN * 4:
        return f"{payload[:100]!r}… {len(payload)} bytes, sha256 {hashlib.sha256(payload).hexdigest()}"
    return repr(payload)[2:-1]


def _value(raw: bytes) -> str:
    return repr(json.loads(raw))


class View:
    """The messages of one side, as the other side received them."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self._count = 0

    def line(self, message: bytes, chapter: str = "", stream: str = "") -> Line | None:
        """Returns the line of a message, or None for messages that each hop sends for itself."""
        found = parts(message)
        if found.method == "ping" or found.method == "notifications/initialized":
            return None
        if found.is_answer:
            assert found.id is not None
            name, payload = ("result", found.result) if found.error is None else ("error", found.error)
            return Line(f"{name} of {shown(found.id)}:", shown(payload), False, chapter, stream)
        params = found.params
        if found.is_request:
            assert found.id is not None
            self._count += 1
            self._known[_value(found.id)] = f"{found.method} (request {self._count})"
            if params is not None:
                params = replaced(params, ("_meta", "progressToken"), b"TOKEN")
            return Line(f"request {found.method}:", shown(params), False, chapter, stream)
        if found.method == "notifications/cancelled":
            number = member(params, "requestId")
            whose = None if number is None else self._known.get(_value(number))
            if whose is None or params is None:
                return None  # names no request, so it ends at this hop
            params = replaced(params, ("requestId",), whose.encode())
        return Line(f"notification {found.method}:", shown(params), True, chapter, stream)


def received_by_client(messages: Sequence[ChapterMessage]) -> list[Line]:
    view = View()
    lines = []
    for one in messages:
        line = view.line(one.message, one.chapter, one.stream)
        if line is not None and not line.kind.endswith(f"of {shown(CANCELLED_ID)}:"):
            lines.append(line)
    return lines


def received_by_server(folder: Path, name: bytes) -> list[Line]:
    """Returns the messages from the session of the client with that name, as the server logged them, without the
    name."""
    for file in sorted(folder.glob("*.jsonl")):
        sessions: dict[int, list[dict[str, str]]] = defaultdict(list)
        for text in file.read_text().splitlines():
            entry = json.loads(text)
            sessions[entry["session"]].append(entry)
        for entries in sessions.values():
            if name.decode() in entries[0]["message"]:
                return list(_logged(entries, name))
    raise AssertionError(f"no server in {folder} has heard of {name!r}")


def _logged(entries: Iterable[dict[str, str]], name: bytes) -> Iterable[Line]:
    view = View()
    for entry in entries:
        message = entry["message"].encode("latin-1").replace(name, b"NAME")
        line = view.line(message)
        if line is not None:
            yield line


def assert_same(direct: Sequence[Line], proxied: Sequence[Line], what: str) -> None:
    """Asserts that the lines are the same, and shows the difference."""
    left, right = [str(line) for line in direct], [str(line) for line in proxied]
    if left != right:
        difference = difflib.unified_diff(left, right, "direct", "proxied", lineterm="", n=1)
        raise AssertionError(f"{what}:\n" + "\n".join(line[: SHOWN * 2] for line in difference))
