"""Structured output of any type, wrapped for clients that know objects only, and unwrapped again.

Before 2026-07-28 a tool's `outputSchema` describes an object, and `structuredContent` is one. Any other value is put
into an object under `result`, schema and value alike, so that a value fits its schema exactly when it did before. The
official TypeScript SDK wraps in the same form, so a client behind both sees the same.

A schema that moves one level down must still find its own parts: pointers into the document are changed to begin with
`#/properties/result`. Names (`#part`) do not depend on the place, and a subtree with an `$id` is a document of its own.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ..base.errors import INTERNAL_ERROR, RemoteProtocolError
from ..jsonrpc.envelope import text_of
from ..jsonrpc.object_editor import ObjectEditor, each
from ..jsonrpc.splice import extend_array

ROOT: Final = "#/properties/result"
"""The place of the original root in a wrapped schema."""

DATA_KEYS: Final = frozenset({"const", "enum", "default", "examples"})
"""Keywords that hold values, in which a `$ref` is data like any other."""

MAP_KEYS: Final = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"}
)
"""Keywords that hold schemas by name. The names are no keywords, whatever they look like."""

DIALECT_2019: Final = frozenset(
    {"https://json-schema.org/draft/2019-09/schema", "http://json-schema.org/draft/2019-09/schema"}
)
"""The only dialect with `$recursiveRef` (JSON Schema 2019-09 core, 8.2.4.2)."""

DEPTH_MAX: Final = 128
"""Levels of an output schema. Real ones have fewer than 30; each level is parsed again and takes some levels of the
stack. At it: the list or the result gets error -32603."""


# --- Schemas --------------------------------------------------------------------------------------------------------


def needs_wrap(schema: bytes) -> bool:
    """True if only 2026-07-28 allows this output schema: an object whose type is not "object"."""
    return schema.startswith(b"{") and text_of(ObjectEditor(schema).get("type")) != "object"


def wrap_schema(schema: bytes) -> bytes:
    """Returns the schema of objects `{"result": v}` for each `v` that fits the JSON Schema object `schema`.

    In a schema of 2019-09 whose root is no `$recursiveAnchor`, a `$recursiveRef` means a `$ref` to the root, and
    becomes one. With such an anchor it keeps its text, which then refers to the wrapper: no other way can express it.

    Raises:
        RemoteProtocolError: an object along the way has a key twice, or there are more levels than `DEPTH_MAX`.
    """
    root = ObjectEditor(schema)
    dialect = root.get("$schema")
    named = text_of(dialect)
    is_2019 = named is not None and named.removesuffix("#") in DIALECT_2019
    move = _Move("#", ROOT, joins_recursion=is_2019 and root.get("$recursiveAnchor") != b"true")
    hoisted = b'"$schema":%b,' % dialect if dialect is not None and named is not None else b""
    inner = move.schema(schema)
    return b'{%b"type":"object","properties":{"result":%b},"required":["result"]}' % (hoisted, inner)


class _Move:
    """A change of a schema's place in its document: pointers that begin with `old` begin with `new` afterwards.

    Args:
        joins_recursion: `$recursiveRef` becomes a `$ref` to the root's new place.
    """

    def __init__(self, old: str, new: str, *, joins_recursion: bool = False) -> None:
        self._old = old
        self._new = new
        self._joins_recursion = joins_recursion

    def schema(self, schema: bytes, depth: int = 0) -> bytes:
        """Moves a schema, or an array of schemas. Any other JSON is returned unchanged."""
        if depth > DEPTH_MAX:
            text = f"got an output schema of more than {DEPTH_MAX} levels, expected fewer"
            raise RemoteProtocolError(text, rpc_code=INTERNAL_ERROR)
        if schema.startswith(b"["):
            return each(schema, lambda item: self.schema(item, depth + 1))
        if not schema.startswith(b"{"):
            return schema
        draft = ObjectEditor(schema)
        if _has_own_base(draft):
            return schema
        for key, value in draft.items():
            if key in ("$ref", "$dynamicRef"):
                draft.set(key, self._pointer(value))
            elif key in MAP_KEYS and value.startswith(b"{"):
                named = ObjectEditor(value)
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

    def _join_recursion(self, draft: ObjectEditor) -> None:
        draft.remove("$recursiveRef")
        target = msgspec.json.encode(self._new)
        if "$ref" not in draft:
            draft.set("$ref", target)
        else:  # both apply, and an object has room for one `$ref`
            both = draft.get("allOf") or b"[]"
            draft.set("allOf", extend_array(both if both.startswith(b"[") else b"[]", [b'{"$ref":%b}' % target]))


def _has_own_base(schema: ObjectEditor) -> bool:
    """True if pointers in a schema count from itself. An `$id` of a fragment alone is only a name, as in draft 7."""
    raw = schema.get("$id")
    return raw is not None and not (text_of(raw) or "").startswith("#")


# --- Values ---------------------------------------------------------------------------------------------------------


def wrap_value(value: bytes) -> bytes:
    """Returns the structured content that fits `wrap_schema(S)` for a value that fits S."""
    return b'{"result":%b}' % value
