"""Spans of one level of JSON, and edits by splicing, so that bytes nobody reads travel unchanged.

`members` and `elements` return where the values of one object or array lie. Nothing below that level is decoded:
numbers keep their digits, strings their escapes, objects their key order and duplicates. Within the level itself a
duplicate key is refused: two parsers that disagree about which one counts are a security hole.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from ..base.errors import INVALID_REQUEST, PARSE_ERROR, RemoteProtocolError
from .bounds import decode_array, decode_object, replace_lone_surrogates, too_deep


class Span(NamedTuple):
    """A range of bytes: `data[start:stop]` is the value's JSON."""

    start: int
    stop: int


class Edit(NamedTuple):
    """A replacement of `data[start:stop]` by `text`."""

    start: int
    stop: int
    text: bytes


class Outlined(bytes):
    """The bytes of a large JSON object whose members have been located, as `outline.outlined` makes it.

    Attributes:
        spans: the result of `members`.
        outline: the object with 0 in the place of each long value. A `_meta` of any size is there, in outline.
    """

    spans: Mapping[str, Span]
    outline: bytes

    def __new__(cls, data: bytes, spans: Mapping[str, Span], outline: bytes) -> Outlined:
        made = super().__new__(cls, data)
        made.spans, made.outline = spans, outline
        return made


_string_decoder: Final = msgspec.json.Decoder(str)

_SPACE: Final = re.compile(rb"[ \t\r\n]*")
# Possessive: a repetition that can be backtracked costs a hundred times the key's size in memory.
_KEY: Final = re.compile(rb'[ \t\r\n]*"((?:[^"\\]++|\\.)*+)"[ \t\r\n]*:[ \t\r\n]*', re.DOTALL)
_NEXT: Final = re.compile(rb"[ \t\r\n]*([,}\]])[ \t\r\n]*")


def members(data: bytes) -> dict[str, Span]:
    """Returns where each member's value lies in the JSON object `data`, in order.

    A key with a lone surrogate, which no Unicode text can hold, is returned with U+FFFD in its place.

    Raises:
        RemoteProtocolError: `data` is not JSON (PARSE_ERROR), no object, or has a key twice (INVALID_REQUEST).
    """
    if isinstance(data, Outlined):
        return dict(data.spans)
    probe = data
    try:
        values = decode_object(probe)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        probe = _readable(data, error)
        values = _decode_object(probe)
    spans = _compact_spans(values)
    if not spans or next(reversed(spans.values())).stop + 1 == len(probe):
        # Anything passed over (spaces, escapes, a duplicate key) would have made the text longer.
        return spans
    spans = {}
    opening = _SPACE.match(probe)
    assert opening is not None
    at = opening.end() + 1
    while True:
        key_match = _KEY.match(probe, at)
        assert key_match is not None
        raw_key = key_match[1]
        key = _string_decoder.decode(b'"' + raw_key + b'"') if b"\\" in raw_key else raw_key.decode()
        at = key_match.end()
        if key in spans or not probe.startswith(value := bytes(values[key]), at):
            # The decoder keeps the last of two values, so a first value that differs reveals the duplicate.
            raise _twice(key)
        spans[key] = Span(at, at + len(value))
        next_match = _NEXT.match(probe, at + len(value))
        if next_match is None:  # `1` would match at the start of a first value `12`
            raise _twice(key)
        at = next_match.end()
        if next_match[1] == b"}":
            return spans


LOOKS_KEPT: Final = 16
"""Objects whose members are cached: more than are looked into in turn for one message."""
LOOK_MAX_BYTES: Final = 16 * 1024
"""The largest object that is cached. A larger one is not worth its memory."""


def look(data: bytes) -> Mapping[str, Span]:
    """Returns `members`, cached for a while: one message is looked into from many places."""
    return _looks(data) if len(data) <= LOOK_MAX_BYTES else members(data)


@lru_cache(maxsize=LOOKS_KEPT)
def _looks(data: bytes) -> Mapping[str, Span]:
    return members(data)


def _compact_spans(values: dict[str, msgspec.Raw]) -> dict[str, Span]:
    """Computes where the values lie if each key occurs once, without escapes, and no byte is between the members."""
    spans: dict[str, Span] = {}
    at = 1
    for key, value in values.items():
        start = at + len(key) + 3
        stop = start + memoryview(value).nbytes
        spans[key] = Span(start, stop)
        at = stop + 1
    return spans


def compact_members(data: bytes) -> dict[str, slice] | None:
    """The fast path of `members`, for an object with no space between its members, no escape in their names, no key
    twice.

    Returns None for anything else, valid or not. Skipped is the search for each key in the text: positions are computed
    from the lengths of keys and values, and their sum is the length of `data` only if nothing else is in it.
    tests/core/jsonrpc/test_splice_compact.py compares both.
    """
    try:
        values = decode_object(data)
    except (RemoteProtocolError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    spans: dict[str, slice] = {}
    at = 1
    for key, value in values.items():
        start = at + len(key) + 3
        stop = start + memoryview(value).nbytes
        spans[key] = slice(start, stop)
        at = stop + 1
    return spans if at == len(data) or (not spans and data == b"{}") else None


def elements(data: bytes) -> list[Span]:
    """Returns where each element lies in the JSON array `data`.

    Raises:
        RemoteProtocolError: `data` is not JSON (PARSE_ERROR), or no array (INVALID_REQUEST).
    """
    probe = data
    try:
        values = decode_array(probe)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        probe = _readable(data, error)
        values = _decode_array(probe)
    opening = _SPACE.match(probe)
    assert opening is not None
    at = opening.end() + 1
    spans: list[Span] = []
    for raw in values:
        space = _SPACE.match(probe, at)
        assert space is not None
        start = space.end()
        stop = start + len(bytes(raw))
        spans.append(Span(start, stop))
        comma = _NEXT.match(probe, stop)
        assert comma is not None
        at = comma.end()
    return spans


def items_of(data: bytes | None) -> list[bytes]:
    """Returns the JSON of each element; empty if `data` is absent or no array."""
    if data is None or not data.startswith(b"["):
        return []
    return [data[span.start : span.stop] for span in elements(data)]


def take(data: bytes, span: Span | None) -> bytes | None:
    """Returns the JSON at a span; None for no span."""
    return None if span is None else data[span.start : span.stop]


def splice(data: bytes, edits: Iterable[Edit]) -> bytes:
    """Returns `data` with each edit made. Spans are those of `data` and must not overlap."""
    pieces: list[bytes] = []
    at = 0
    for edit in sorted(edits):
        assert edit.start >= at, "edits overlap"
        pieces.append(data[at : edit.start])
        pieces.append(edit.text)
        at = edit.stop
    pieces.append(data[at:])
    return b"".join(pieces)


def set_member(data: bytes, key: str, value: bytes) -> bytes:
    """Returns the object `data` with member `key` set to the JSON `value`: replaced in place, or added at the end."""
    spans = members(data)
    span = spans.get(key)
    if span is not None:
        return splice(data, [Edit(span.start, span.stop, value)])
    member = msgspec.json.encode(key) + b":" + value
    end = data.rindex(b"}")
    return data[:end] + (b"," if spans else b"") + member + data[end:]


def remove_member(data: bytes, key: str) -> bytes:
    """Returns the object `data` without member `key`. The others keep their bytes, keys and order."""
    spans = members(data)
    if key not in spans:
        return data
    names, stop = list(spans), spans[key].stop
    at = names.index(key)
    if at:
        return splice(data, [Edit(spans[names[at - 1]].stop, stop, b"")])
    if len(spans) > 1:  # the first of several is removed with the comma after it
        comma = _NEXT.match(data, stop)
        assert comma is not None
        stop = comma.end()
    return splice(data, [Edit(data.index(b"{") + 1, stop, b"")])


def remove_members(data: bytes, names: Container[str]) -> bytes:
    """Returns the object `data` without the members of these names. The others keep their bytes, keys and order."""
    spans = members(data)
    edits: list[Edit] = []
    before = data.index(b"{") + 1  # a member removed at the front goes with the comma after it
    has_kept = False
    for name, span in spans.items():
        if name not in names:
            if edits and not has_kept:
                comma = _NEXT.match(data, before)
                assert comma is not None
                edits.append(Edit(before, comma.end(), b""))
            has_kept = True
        else:
            edits.append(Edit(before, span.stop, b""))
        before = span.stop
    return splice(data, edits) if edits else data


def insert_members(data: bytes, added: Mapping[str, bytes]) -> bytes:
    """Returns the object `data` with new members after its own. `remove_members` takes them out again."""
    spans = members(data)
    assert not added.keys() & spans.keys(), "a member is there already"
    if not added:
        return data
    at = max((span.stop for span in spans.values()), default=data.index(b"{") + 1)
    return data[:at] + (b"," if spans else b"") + build_object(added)[1:-1] + data[at:]


def build_object(parts: Mapping[str, bytes]) -> bytes:
    """Returns the JSON object of these members, each value being JSON already."""
    return b"{" + b",".join(msgspec.json.encode(key) + b":" + value for key, value in parts.items()) + b"}"


def extend_array(data: bytes, items: Iterable[bytes], *, at_front: bool = False) -> bytes:
    """Returns the array `data` with the JSON `items` added, at the end or at the front."""
    added = b",".join(items)
    if not added:
        return data
    spans = elements(data)
    if at_front:
        start = data.index(b"[") + 1
        return data[:start] + added + (b"," if spans else b"") + data[start:]
    end = data.rindex(b"]")
    return data[:end] + (b"," if spans else b"") + added + data[end:]


def _readable(data: bytes, error: Exception) -> bytes:
    """Returns `data` with lone surrogates made decodable, at the same length.

    JSON allows a lone `\\ud800` and peers send it (in truncated strings); the decoder refuses it. A replacement of the
    same length gives the same spans, and the spans are applied to the original bytes.
    """
    if isinstance(error, RecursionError):
        raise too_deep() from None
    readable = replace_lone_surrogates(data)
    if readable is data:
        raise _refusal(data, error) from None
    return readable


def _decode_object(data: bytes) -> dict[str, msgspec.Raw]:
    try:
        return decode_object(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _refusal(data, error) from None


def _decode_array(data: bytes) -> list[msgspec.Raw]:
    try:
        return decode_array(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _refusal(data, error) from None


def _twice(key: str) -> RemoteProtocolError:
    shown = key if len(key) <= 60 else key[:60] + "…"
    return RemoteProtocolError(f"got the member {shown!r} twice in one object, expected it once")


def _refusal(data: bytes, error: Exception) -> RemoteProtocolError:
    if isinstance(error, msgspec.ValidationError):
        return RemoteProtocolError(f"got JSON of another type than expected: {error}", rpc_code=INVALID_REQUEST)
    return RemoteProtocolError(f"got text that is not JSON: {error}", rpc_code=PARSE_ERROR)
