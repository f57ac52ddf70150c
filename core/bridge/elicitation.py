"""Elicitation forms of 2025-11-25 and later, translated for clients of 2025-06-18, and the answers translated back.

Forms of 2025-06-18 have texts, numbers, booleans, and a choice of one option, whose titles stand in `enumNames`. A
choice of one titled option is written that way. A choice of several options becomes one boolean for each option; the
booleans are combined again when the answer comes. Both directions read the original form, so only the server's question
has to be remembered.

Source: 2025-06-18 and 2025-11-25 client/elicitation, "Requested Schema".
"""

from __future__ import annotations

import msgspec

from ..base.errors import INVALID_PARAMS, RemoteProtocolError
from ..jsonrpc.envelope import id_key, member_of, text_of
from ..jsonrpc.splice import build_object, insert_members, items_of, members, remove_members, set_member, take


class Choice(msgspec.Struct, frozen=True):
    """A field with a choice of several options, and the booleans it is shown as.

    Attributes:
        keys: the boolean fields, one for each option.
        options: the JSON of each option's value.
        titles: the JSON of each option's title.
        items_min, items_max: how many may be chosen; None: any number.
    """

    keys: tuple[str, ...]
    options: tuple[bytes, ...]
    titles: tuple[bytes, ...]
    items_min: int
    items_max: int | None
    is_required: bool


def plain_form(schema: bytes) -> bytes:
    """Returns a `requestedSchema` that a client of 2025-06-18 can show. Fields that it can show already keep their
    bytes."""
    properties = member_of(schema, "properties")
    if properties is None or not properties.startswith(b"{"):
        return schema
    choices = _choices(schema, properties)
    shown: dict[str, bytes] = {}
    for name, span in members(properties).items():
        field = properties[span.start : span.stop]
        if name in choices:
            shown |= _as_booleans(name, field, choices[name])
        else:
            shown[name] = _plain_field(field)
    plain = set_member(schema, "properties", build_object(shown))
    required = member_of(schema, "required")
    if choices and required is not None:  # an option left alone means it is not chosen, so no boolean is required
        kept = [item for item in items_of(required) if text_of(item) not in choices]
        plain = set_member(plain, "required", b"[" + b",".join(kept) + b"]")
    return plain


def full_content(schema: bytes, content: bytes) -> bytes:
    """Returns the user's content with the booleans of each choice combined into its array again.

    Raises:
        RemoteProtocolError: an option is neither true nor false, or too few or too many are chosen (INVALID_PARAMS).
    """
    properties = member_of(schema, "properties")
    if properties is None or not properties.startswith(b"{"):
        return content
    chosen: dict[str, bytes] = {}
    apart: set[str] = set()
    spans = members(content)
    for name, choice in _choices(schema, properties).items():
        apart |= {name, *choice.keys}
        marks = [take(content, spans.get(key)) for key in choice.keys]
        if any(mark not in (None, b"null", b"true", b"false") for mark in marks):
            raise RemoteProtocolError(
                f"got an option of {name!r} that is no boolean, expected one", rpc_code=INVALID_PARAMS
            )
        options = [option for option, mark in zip(choice.options, marks, strict=True) if mark == b"true"]
        is_untouched = not any(mark in (b"true", b"false") for mark in marks)
        if not options and not choice.is_required and (is_untouched or choice.items_min):
            continue  # an optional field without a choice is left out
        if len(options) < choice.items_min or (choice.items_max is not None and len(options) > choice.items_max):
            wanted = f"from {choice.items_min} to {'any number' if choice.items_max is None else choice.items_max}"
            text = f"got {len(options)} options of {name!r} chosen, expected {wanted}"
            raise RemoteProtocolError(text, rpc_code=INVALID_PARAMS)
        chosen[name] = b"[" + b",".join(options) + b"]"
    return insert_members(remove_members(content, apart), chosen) if apart else content


def _choices(schema: bytes, properties: bytes) -> dict[str, Choice]:
    """Returns the choices of several options in a form, by field name. The same form always gives the same keys."""
    spans = members(properties)
    taken = set(spans)
    required = {text_of(item) for item in items_of(member_of(schema, "required"))}
    choices: dict[str, Choice] = {}
    for name, span in spans.items():
        field = properties[span.start : span.stop]
        items = member_of(field, "items")
        if text_of(member_of(field, "type")) != "array" or items is None:
            continue
        titled = items_of(member_of(items, "anyOf"))
        options = [_const(option) for option in titled] or items_of(member_of(items, "enum"))
        titles = [_title(option) for option in titled] or options
        if not options:
            continue  # no list of options: only the client may know such a field
        keys = [_unused(f"{name}.{index}", taken) for index in range(1, len(options) + 1)]
        items_max = _count(member_of(field, "maxItems"))
        choices[name] = Choice(
            keys=tuple(keys),
            options=tuple(options),
            titles=tuple(titles),
            items_min=_count(member_of(field, "minItems")) or 0,
            items_max=items_max,
            is_required=name in required,
        )
    return choices


def _as_booleans(name: str, field: bytes, choice: Choice) -> dict[str, bytes]:
    about = member_of(field, "description") or member_of(field, "title") or msgspec.json.encode(name)
    preset = {text_of(item) for item in items_of(member_of(field, "default"))}
    shown: dict[str, bytes] = {}
    for key, option, title in zip(choice.keys, choice.options, choice.titles, strict=True):
        parts = {"type": b'"boolean"', "title": title, "description": about}
        if preset and text_of(option) in preset:
            parts["default"] = b"true"
        shown[key] = build_object(parts)
    return shown


def _plain_field(field: bytes) -> bytes:
    """Returns a field without members that 2025-06-18 does not have."""
    if not field.startswith(b"{"):
        return field
    spans = members(field)
    if "default" in spans and text_of(take(field, spans.get("type"))) != "boolean":
        field = remove_members(field, {"default"})  # 2025-06-18 has defaults for booleans only
    titled = items_of(take(field, members(field).get("oneOf")))
    if not titled:
        return field
    names = {"enum": b"[" + b",".join(map(_const, titled)) + b"]"}
    names["enumNames"] = b"[" + b",".join(map(_title, titled)) + b"]"
    return insert_members(remove_members(field, {"oneOf", *names}), names)


def _const(option: bytes) -> bytes:
    return member_of(option, "const") or b'""'


def _title(option: bytes) -> bytes:
    return member_of(option, "title") or _const(option)


def _count(raw: bytes | None) -> int | None:
    key = None if raw is None else id_key(raw)
    return key[1] if key is not None and isinstance(key[1], int) else None


def _unused(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name
