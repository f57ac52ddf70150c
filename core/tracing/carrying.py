"""Reads trace contexts from HTTP headers and from `_meta`, and writes them there.

`_meta` has the members `traceparent`, `tracestate` and `baggage` (2026-07-28 basic, "_meta"; SEP-414). The headers have
the same names and values.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Final

import msgspec

from ..base.errors import RemoteProtocolError
from ..base.events import Headers
from ..jsonrpc.envelope import member_of, text_of
from ..jsonrpc.splice import Outlined, insert_members, look, remove_members, set_member, take
from .baggage import parse_baggage
from .context import TraceContext, format_parent, parse_context

PARENT: Final = "traceparent"
STATE: Final = "tracestate"
BAGGAGE: Final = "baggage"
FIELDS: Final = frozenset({PARENT, STATE, BAGGAGE})
"""The names of the headers, and of the members of `_meta`."""


class Carried(msgspec.Struct, frozen=True):
    """The trace fields of one message.

    Attributes:
        context: its trace context; None if it has no valid one.
        baggage: valid; "" if it has none.
        names: those of `FIELDS` that are there, valid or not.
    """

    context: TraceContext | None = None
    baggage: str = ""
    names: frozenset[str] = frozenset()


NOTHING: Final = Carried()


def carried_by_headers(headers: Headers) -> Carried:
    """Returns what HTTP headers carry. Several lines of `tracestate` or `baggage` are one list; of `traceparent` there
    may be one line only."""
    if not headers:
        return NOTHING
    found: dict[str, str] = {}
    for name, value in headers:
        found[name] = f"{found[name]},{value}" if name in found else value
    return _carried(found)


def carried_by_meta(params: bytes | None) -> Carried:
    """Returns what the `_meta` of params carries. Nothing, if the params cannot be read."""
    if params is None:
        return NOTHING
    words = params.outline if isinstance(params, Outlined) else params
    if b"traceparent" not in words and b"baggage" not in words:
        return NOTHING
    try:
        meta = member_of(params, "_meta")
        if meta is None or not meta.startswith(b"{"):
            return NOTHING
        spans = look(meta)
    except RemoteProtocolError:
        return NOTHING
    return _carried({name: text_of(take(meta, spans[name])) or "" for name in FIELDS if name in spans})


def _carried(found: Mapping[str, str]) -> Carried:
    context = parse_context(found.get(PARENT, ""), found.get(STATE, ""))
    return Carried(context, parse_baggage(found.get(BAGGAGE, "")), frozenset(found))


def fields_of(context: TraceContext | None, baggage: str) -> dict[str, str]:
    """Returns the fields that carry a context and a baggage."""
    fields: dict[str, str] = {}
    if context is not None:
        fields[PARENT] = format_parent(context)
        if context.state:
            fields[STATE] = context.state
    if baggage:
        fields[BAGGAGE] = baggage
    return fields


def with_meta(params: bytes | None, fields: Mapping[str, str], removed: Container[str]) -> bytes | None:
    """Returns params whose `_meta` has these fields, and none of `removed` beside them. A `_meta` that is no object
    stays as it is.

    Raises:
        RemoteProtocolError: the params are no object, or have a member twice.
    """
    meta = member_of(params, "_meta")
    if meta is None and not fields:
        return params
    bare = meta if meta is not None else b"{}"
    if not bare.startswith(b"{"):
        return params
    bare = remove_members(bare, removed)
    added = {name: msgspec.json.encode(value) for name, value in fields.items()}
    return set_member(params or b"{}", "_meta", insert_members(bare, added))


def with_headers(headers: Headers, fields: Mapping[str, str], removed: Container[str]) -> Headers:
    """Returns headers with these fields, and none of `removed` beside them."""
    return (*(pair for pair in headers if pair[0].lower() not in removed), *fields.items())
