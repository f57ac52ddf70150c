"""Structured output of any form, for clients that know objects only; and back.

Before 2026-07-28 a tool's `outputSchema` describes an object, and `structuredContent` is one. What is not is put into
an object under `result`, schema and value alike, so that each value fits its schema exactly when it did before. The
official TypeScript SDK wraps in the same form, and a client behind both sees one and the same.

A schema that moves one level down must still find its own parts: pointers into the document are led through
`#/properties/result`. Names (`#part`) do not depend on the place, and a subtree with an `$id` is a document of its own.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ..base.errors import INTERNAL_ERROR, RemoteProtocolError
from ..jsonrpc.envelope import text_of
from ..jsonrpc.equality import is_same
from ..jsonrpc.object_editor import Draft, each
from ..jsonrpc.splice import extend_array

ROOT: Final = "#/properties/result"
"""Where the root of a wrapped schema lies."""

DATA_KEYS: Final = frozenset({"const", "enum", "default", "examples"})
"""Keywords that hold values, in which a `$ref` is a value like any other."""

MAP_KEYS: Final = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"}
)
"""Keywords that hold schemas by name: the names are no keywords, whatever they look like."""

DIALECT_2019: Final = frozenset(
    {"https://json-schema.org/draft/2019-09/schema", "http://json-schema.org/draft/2019-09/schema"}
)
"""The one dialect with `$recursiveRef` (JSON Schema 2019-09 core, 8.2.4.2)."""

DEPTH_MAX: Final = 128
"""Levels of an output schema. Real ones have fewer than 30; each is read anew, and costs some levels of the stack."""


# --- Schemas --------------------------------------------------------------------------------------------------------


def needs_wrap(schema: bytes) -> bool:
    """Whether an output schema is one that only 2026-07-28 allows: an object whose type is not "object"."""
    return schema.startswith(b"{") and text_of(Draft(schema).get("type")) != "object"


def wrap_schema(schema: bytes) -> bytes:
    """The schema of objects `{"result": v}` for each `v` that fits the JSON Schema object `schema`.

    In a schema of 2019-09 whose root is no `$recursiveAnchor`, a `$recursiveRef` is a `$ref` to the root, and becomes
    one; with such an anchor it keeps its text, which then means the wrapper: there is no other way to say it.

    Raises:
        RemoteProtocolError: an object on the way has a key twice, or there are more levels than `DEPTH_MAX`.
    """
    root = Draft(schema)
    dialect = root.get("$schema")
    named = text_of(dialect)
    is_2019 = named is not None and named.removesuffix("#") in DIALECT_2019
    move = _Move("#", ROOT, joins_recursion=is_2019 and root.get("$recursiveAnchor") != b"true")
    hoisted = b'"$schema":%b,' % dialect if dialect is not None and named is not None else b""
    inner = move.schema(schema)
    return b'{%b"type":"object","properties":{"result":%b},"required":["result"]}' % (hoisted, inner)


def unwrap_schema(wrapped: bytes) -> bytes | None:
    """The schema that `wrap_schema` made `wrapped` of; None if it has another form. Raises as `wrap_schema` does.

    A `$recursiveRef` that became a `$ref` stays one, which means the same.
    """
    inner = Draft(Draft(wrapped).get("properties") or b"{}").get("result")
    if inner is None or not inner.startswith(b"{"):
        return None
    schema = _Move(ROOT, "#").schema(inner)
    return schema if is_same(wrap_schema(schema), wrapped) else None


class _Move:
    """A schema's way to another place in its document: pointers that begin with `old` then begin with `new`.

    Args:
        joins_recursion: `$recursiveRef` becomes a `$ref` to the root's new place.
    """

    def __init__(self, old: str, new: str, *, joins_recursion: bool = False) -> None:
        self._old = old
        self._new = new
        self._joins_recursion = joins_recursion

    def schema(self, schema: bytes, depth: int = 0) -> bytes:
        """A schema, or an array of schemas, or what is neither and stays as it is."""
        if depth > DEPTH_MAX:
            text = f"got an output schema of more than {DEPTH_MAX} levels, expected fewer"
            raise RemoteProtocolError(text, rpc_code=INTERNAL_ERROR)
        if schema.startswith(b"["):
            return each(schema, lambda item: self.schema(item, depth + 1))
        if not schema.startswith(b"{"):
            return schema
        draft = Draft(schema)
        if _has_own_base(draft):
            return schema
        for key, value in draft.items():
            if key in ("$ref", "$dynamicRef"):
                draft.set(key, self._pointer(value))
            elif key in MAP_KEYS and value.startswith(b"{"):
                named = Draft(value)
                for name, part in named.items():
                    named.set(name, self.schema(part, depth + 2))
                draft.set(key, named.json())
            elif key not in DATA_KEYS:
                draft.set(key, self.schema(value, depth + 1))
        if self._joins_recursion and text_of(draft.get("$recursiveRef")) == "#":
            self._join_recursion(draft)
        return draft.json()

    def _pointer(self, raw: bytes) -> bytes:
        target = text_of(raw)
        if target is None or not (target == self._old or target.startswith(self._old + "/")):
            return raw
        return msgspec.json.encode(self._new + target.removeprefix(self._old))

    def _join_recursion(self, draft: Draft) -> None:
        draft.remove("$recursiveRef")
        target = msgspec.json.encode(self._new)
        if "$ref" not in draft:
            draft.set("$ref", target)
        else:  # both apply, and an object has room for one
            both = draft.get("allOf") or b"[]"
            draft.set("allOf", extend_array(both if both.startswith(b"[") else b"[]", [b'{"$ref":%b}' % target]))


def _has_own_base(schema: Draft) -> bool:
    """Whether pointers in a schema count from itself. An `$id` of a fragment alone is a name, as in draft 7."""
    raw = schema.get("$id")
    return raw is not None and not (text_of(raw) or "").startswith("#")


# --- Values ---------------------------------------------------------------------------------------------------------


def wrap_value(value: bytes) -> bytes:
    """The structured content that fits `wrap_schema(S)`, of one that fits S."""
    return b'{"result":%b}' % value


def unwrap_value(wrapped: bytes) -> bytes | None:
    """The value that `wrap_value` made `wrapped` of; None if it has another form."""
    if not wrapped.startswith(b"{"):
        return None
    draft = Draft(wrapped)
    value = draft.remove("result")
    return None if draft else value
