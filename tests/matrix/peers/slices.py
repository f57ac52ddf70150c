"""JSON as the bytes it came in: the positions of an object's members, and the parts of a JSON-RPC message.

Uses the standard library alone, and no part of the product.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

_SPACE = re.compile(r"[ \t\r\n]*")
_decoder = json.JSONDecoder(parse_int=str, parse_float=str, strict=False)


def spans(raw: bytes) -> dict[str, tuple[int, int]]:
    """Returns where the value of each member of an object starts and stops. Of two with one name the last counts."""
    text = raw.decode("latin-1")  # one character a byte
    at = _past_space(text, 0)
    assert text[at] == "{", raw[:80]
    at = _past_space(text, at + 1)
    found: dict[str, tuple[int, int]] = {}
    while text[at] != "}":
        name, at = _decoder.raw_decode(text, at)
        at = _past_space(text, at)
        assert text[at] == ":", raw[:80]
        start = _past_space(text, at + 1)
        _, stop = _decoder.raw_decode(text, start)
        found[name] = start, stop
        at = _past_space(text, stop)
        if text[at] == ",":
            at = _past_space(text, at + 1)
    return found


def _past_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    assert match is not None
    return match.end()


def members(raw: bytes) -> dict[str, bytes]:
    return {name: raw[start:stop] for name, (start, stop) in spans(raw).items()}


def member(raw: bytes | None, *path: str) -> bytes | None:
    """Returns a nested member; None if there is none."""
    for name in path:
        if raw is None or not raw.startswith(b"{"):
            return None
        raw = members(raw).get(name)
    return raw


def replaced(raw: bytes, path: tuple[str, ...], value: bytes) -> bytes:
    """Returns the object with the value at the end of the path replaced; unchanged if there is none."""
    if not raw.startswith(b"{") or path[0] not in (found := spans(raw)):
        return raw
    start, stop = found[path[0]]
    if len(path) > 1:
        value = replaced(raw[start:stop], path[1:], value)
    return raw[:start] + value + raw[stop:]


class Parts(NamedTuple):
    """The members of a message, each as it was written."""

    id: bytes | None
    method: str | None
    params: bytes | None
    result: bytes | None
    error: bytes | None

    @property
    def is_request(self) -> bool:
        return self.method is not None and self.id is not None

    @property
    def is_answer(self) -> bool:
        return self.method is None


def parts(message: bytes) -> Parts:
    """Splits a message. Raises if it is no JSON-RPC message."""
    found = members(message)
    assert found["jsonrpc"] == b'"2.0"', message[:80]
    assert {"method", "result", "error"} & found.keys(), message[:80]
    method = found.get("method")
    name = None if method is None else str(json.loads(method))
    return Parts(found.get("id"), name, found.get("params"), found.get("result"), found.get("error"))
