"""The shapes of the entries of lists: what clients verify before they use any entry of a list.

Official SDKs refuse a whole list over one entry that breaks the schema. That costs a client of one server the list of
that server, and would cost a client of a profile the lists of all servers. So each entry is verified here. One that
breaks the schema is mended if that changes nothing of what it says, as with a member that is null, or a property whose
schema is `true`. Any other is left out.

Source: 2025-11-25 and 2026-07-28 schema, Tool, Prompt, Resource, ResourceTemplate.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType

from ..base.errors import RemoteProtocolError
from ..jsonrpc.splice import Edit, elements, members, remove_members, set_member, splice, take

Text = str | UnsetType

ANY: Final = {b"true": b"{}", b"false": b'{"not":{}}'}
"""Objects that say the same as the boolean schemas. The schemas of properties were objects before 2026-07-28, and some
servers write `true` in any revision."""


NESTED: Final = frozenset({"annotations", "execution", "arguments", "icons"})
"""Members of entries of which clients verify the members, too."""


class _Icon(msgspec.Struct):
    src: str


class _Entry(msgspec.Struct):
    title: Text = UNSET
    description: Text = UNSET
    icons: list[_Icon] | UnsetType = UNSET


class _Hints(msgspec.Struct, rename="camel"):
    title: Text = UNSET
    read_only_hint: bool | UnsetType = UNSET
    destructive_hint: bool | UnsetType = UNSET
    idempotent_hint: bool | UnsetType = UNSET
    open_world_hint: bool | UnsetType = UNSET


class _Schema(msgspec.Struct):
    type: Literal["object"]
    properties: dict[str, dict[str, Raw]] | UnsetType = UNSET
    required: list[str] | UnsetType = UNSET


class _Execution(msgspec.Struct, rename="camel"):
    task_support: Literal["required", "optional", "forbidden"] | UnsetType = UNSET


class _Tool(_Entry, rename="camel", kw_only=True):
    input_schema: _Schema
    annotations: _Hints | UnsetType = UNSET
    execution: _Execution | UnsetType = UNSET


class _ModernTool(_Tool, rename="camel", kw_only=True):
    output_schema: dict[str, Raw] | UnsetType = UNSET


class _LegacyTool(_Tool, rename="camel", kw_only=True):
    output_schema: _Schema | UnsetType = UNSET


class _Argument(msgspec.Struct):
    name: str
    title: Text = UNSET
    description: Text = UNSET
    required: bool | UnsetType = UNSET


class _Prompt(_Entry):
    arguments: list[_Argument] | UnsetType = UNSET


class _Audience(msgspec.Struct, rename="camel"):
    audience: list[Literal["user", "assistant"]] | UnsetType = UNSET
    priority: float | UnsetType = UNSET
    last_modified: Text = UNSET


class _Resource(_Entry, rename="camel", kw_only=True):
    name: str
    mime_type: Text = UNSET
    annotations: _Audience | UnsetType = UNSET
    size: float | UnsetType = UNSET


_DECODERS: Final[Mapping[str, msgspec.json.Decoder[Any]]] = {
    "tools": msgspec.json.Decoder(_ModernTool),
    "prompts": msgspec.json.Decoder(_Prompt),
    "resources": msgspec.json.Decoder(_Resource),
    "resourceTemplates": msgspec.json.Decoder(_Resource),
}
"""The decoders that verify entries, by the member of the result that has these."""
_LEGACY: Final = {**_DECODERS, "tools": msgspec.json.Decoder(_LegacyTool)}


def mended(array: str, entry: bytes, *, is_stateless: bool) -> bytes:
    """Returns an entry that clients accept: the same object if it is one.

    Args:
        array: the member of the result that has the entries.
        is_stateless: for clients of the stateless era, whose tools may have an output of any type.

    Raises:
        RemoteProtocolError: it breaks the schema, and cannot be mended.
    """
    decoder = (_DECODERS if is_stateless else _LEGACY)[array]
    try:
        decoder.decode(entry)
        return entry
    except msgspec.ValidationError:
        entry = _mend(array, entry, is_stateless=is_stateless)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return entry  # a text that cannot be decoded is for clients to judge
    try:
        decoder.decode(entry)
        return entry
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RemoteProtocolError(str(error)) from None


def _mend(array: str, entry: bytes, *, is_stateless: bool) -> bytes:
    entry = _without_null(entry)
    nested = [span for key, span in members(entry).items() if key in NESTED]
    entry = splice(entry, [Edit(*span, _without_nested_null(entry[span.start : span.stop])) for span in nested])
    if array != "tools":
        return entry
    for key in ("inputSchema", "outputSchema"):
        schema = take(entry, members(entry).get(key))
        if schema is None and key == "inputSchema":
            schema = b"{}"
        if schema is not None and schema.startswith(b"{"):
            entry = set_member(entry, key, _mend_schema(schema, is_object=key == "inputSchema" or not is_stateless))
    return entry


def _without_nested_null(value: bytes) -> bytes:
    """Returns an object, or the objects of an array, without the members that are null."""
    if value.startswith(b"{"):
        return _without_null(value)
    if not value.startswith(b"["):
        return value
    items = [value[start:stop] for start, stop in elements(value)]
    return b"[" + b",".join(_without_null(item) if item.startswith(b"{") else item for item in items) + b"]"


def _mend_schema(schema: bytes, *, is_object: bool) -> bytes:
    """Returns a schema as clients read it. `is_object`: its value is an object."""
    spans = members(schema)
    # Null is a value of other keywords, such as `default`.
    schema = remove_members(
        schema, {key for key in ("properties", "required") if take(schema, spans.get(key)) == b"null"}
    )
    if is_object and "type" not in members(schema):
        schema = set_member(schema, "type", b'"object"')
    properties = take(schema, members(schema).get("properties"))
    if properties is not None and properties.startswith(b"{"):
        found = [(span, ANY.get(properties[span.start : span.stop])) for span in members(properties).values()]
        edits = [Edit(*span, said) for span, said in found if said is not None]
        schema = set_member(schema, "properties", splice(properties, edits))
    return schema


def _without_null(data: bytes) -> bytes:
    """Returns an object without the members that are null, which say nothing."""
    return remove_members(data, {key for key, span in members(data).items() if data[span.start : span.stop] == b"null"})
