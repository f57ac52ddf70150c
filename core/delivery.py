"""Files on their way into a tool: upload handles in its arguments become paths the upstream can open.

The handles are found and checked before anything is sent, then replaced where they stand; every other byte of the
params stays. `arguments` with a key twice on the way to a handle are refused: the upstream might read the other one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple
from urllib.parse import quote

import msgspec

from .dotted import Place, walk
from .errors import RemoteProtocolError
from .handle import UPLOAD_SCHEME, HandleError, parse_upload
from .jsonrpc import text_of
from .plan import Deliver, UploadConsumer
from .rewrite import Edit, elements, members, set_member, splice, take

REFERENCES_MAX: Final = 256
"""Handles in one call. Tools take a handful; each one costs a record to load and a file to place."""

_SEEN_MAX: Final = 80


class Reference(NamedTuple):
    """One handle in the params: its JSON string is `params[start:stop]`, `text` what it says."""

    start: int
    stop: int
    sid: str
    uid: str
    text: str


class ArgumentProblem(Exception):
    """Arguments a tool cannot be called with. The message is for whoever made the call: which argument, what came,
    what to do."""


def tool_named(patterns: Sequence[str], name: str) -> bool:
    """Whether an adapter's `tools` cover the tool."""
    return name in patterns


def find_references(params: bytes, consumer: UploadConsumer, *, helper: str) -> list[Reference]:
    """The handles at the consumer's argument in the params of a `tools/call`, in order.

    A string is one handle, a list of strings many; an argument that is absent or null holds none.

    Args:
        helper: name of the tool that offers uploads, for the advice in messages.

    Raises:
        ArgumentProblem: anything else is there, or more than `REFERENCES_MAX` handles.
    """
    advice = (
        f"To pass a file: call {helper}, POST the file to the upload_url it gives, and pass the upload handle from "
        "the response."
    )
    found: list[Reference] = []
    path = consumer.arguments[0]
    for place in _places(params, f"arguments.{path}"):
        label = place.label.removeprefix("arguments.")
        raw = params[place.start : place.stop]
        if not place.fits:
            raise ArgumentProblem(f"Argument {label}: got {_shown(raw)}, which cannot hold {path}. {advice}")
        if raw == b"null":
            continue
        if not raw.startswith(b"["):
            found.append(_reference(params, place, label, consumer, advice))
            continue
        for index, (start, stop) in enumerate(elements(raw)):
            item = Place("", place.start + start, place.start + stop, True)
            found.append(_reference(params, item, f"{label}[{index}]", consumer, advice))
    if len(found) > REFERENCES_MAX:
        raise ArgumentProblem(
            f"Argument {path}: got {len(found)} upload handles, expected at most {REFERENCES_MAX} in one call."
        )
    return found


def deliver(params: bytes, consumer: UploadConsumer, placed: Sequence[tuple[Reference, str]]) -> bytes:
    """The params with each reference replaced by the absolute path beside it, or by its `file://` URI."""
    edits = []
    for reference, path in placed:
        text = "file://" + quote(path) if consumer.deliver is Deliver.FILE_URI else path
        edits.append(Edit(reference.start, reference.stop, msgspec.json.encode(text)))
    return splice(params, edits)


def requested_filename(params: bytes, argument: str) -> str | None:
    """What the caller wrote into the output path argument; None if it wrote no string there."""
    try:
        places = walk(params, f"arguments.{argument}")
    except RemoteProtocolError:
        return None
    return text_of(params[places[0].start : places[0].stop]) if places and places[0].fits else None


def place_output(params: bytes, argument: str, path: str) -> bytes:
    """The params with the output path argument set to `path`; objects missing on the way are made.

    Raises:
        ArgumentProblem: something on the way is neither an object nor null, or has a key twice.
    """
    return _set_at(params, ("arguments", *argument.split(".")), 0, msgspec.json.encode(path))


def _set_at(data: bytes, keys: tuple[str, ...], depth: int, value: bytes) -> bytes:
    if depth == len(keys):
        return value
    if data == b"null":
        data = b"{}"
    label = ".".join(keys[1:depth]) or "arguments"
    if not data.startswith(b"{"):
        raise ArgumentProblem(f"Argument {label}: got {_shown(data)}, expected an object.")
    try:
        below = take(data, members(data).get(keys[depth])) or b"null"
    except RemoteProtocolError as error:
        raise ArgumentProblem(f"Argument {label}: {error.message}.") from None
    return set_member(data, keys[depth], _set_at(below, keys, depth + 1, value))


def _places(params: bytes, path: str) -> list[Place]:
    try:
        return walk(params, path)
    except RemoteProtocolError as error:
        raise ArgumentProblem(f"Argument {path.removeprefix('arguments.')}: {error.message}.") from None


def _reference(params: bytes, place: Place, label: str, consumer: UploadConsumer, advice: str) -> Reference:
    raw = params[place.start : place.stop]
    text = text_of(raw)
    try:
        is_usual = text is not None and text.startswith(UPLOAD_SCHEME)
        sid, uid = parse_upload(text or "", UPLOAD_SCHEME if is_usual else consumer.uri_scheme)
    except HandleError as error:
        raise ArgumentProblem(f"Argument {label}: got {_shown(raw)}, {error}. {advice}") from None
    assert text is not None
    return Reference(place.start, place.stop, sid, uid, text)


def _shown(raw: bytes) -> str:
    text = raw[: 4 * _SEEN_MAX].decode(errors="replace")
    return text if len(text) <= _SEEN_MAX else text[:_SEEN_MAX] + "…"
