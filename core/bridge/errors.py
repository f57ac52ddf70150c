"""Errors, as the other era may see them.

The codes of one era mean nothing, or something else, in the other. Where a code has a counterpart it is exchanged for
it; where a peer could not have meant what its code says, the error becomes an internal one that keeps code and data
under `data["dev.isthmus/originalCode"]` and `data["dev.isthmus/originalData"]`. All others pass as they came.

Errors come as the JSON of an object whose code is an integer and whose message is a string (`jsonrpc.usable_error`).
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from ..base.errors import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    PARSE_ERROR,
    RESOURCE_NOT_FOUND,
    UNSUPPORTED_VERSION,
    URL_REQUIRED,
    RemoteProtocolError,
)
from ..jsonrpc.append import readable_elements, readable_members, readable_text
from ..jsonrpc.object_editor import Draft
from ..jsonrpc.splice import take
from .content import tool_error

ORIGINAL_CODE: Final = "dev.isthmus/originalCode"
ORIGINAL_DATA: Final = "dev.isthmus/originalData"
ORIGINAL_RESULT: Final = "dev.isthmus/originalResult"

READS: Final = "resources/read"
"""The one method for which a code says that a resource is missing."""

SPECIFIED: Final = range(-32099, -32019)
"""Codes that only the specification may give a meaning (2026-07-28 basic, "Error Codes")."""


class Turn(enum.Enum):
    """What becomes of an error."""

    HIDE = "hide"  # an internal error with the original in its data
    MISSING = "missing"  # "no such resource" of the other era; where no resource is read, as `otherwise` says
    NAME = "name"  # an internal error that names the capability the client lacks


# Codes that are not listed pass.
TO_MODERN: Final[dict[int, Turn]] = {
    PARSE_ERROR: Turn.HIDE,  # the proxy wrote what the server could not read: not the client's fault
    INVALID_REQUEST: Turn.HIDE,
    RESOURCE_NOT_FOUND: Turn.MISSING,  # else hidden: "MUST NOT be emitted" since 2026-07-28
    URL_REQUIRED: Turn.HIDE,  # a question in its own right, which is asked before this table is
    **{code: Turn.HIDE for code in SPECIFIED if code != URL_REQUIRED},  # no legacy peer can mean them
}
TO_LEGACY: Final[dict[int, Turn]] = {
    PARSE_ERROR: Turn.HIDE,
    INVALID_REQUEST: Turn.HIDE,
    INVALID_PARAMS: Turn.MISSING,  # else passed
    HEADER_MISMATCH: Turn.HIDE,  # a fault of the proxy's own hop, as is the next
    UNSUPPORTED_VERSION: Turn.HIDE,
    MISSING_CAPABILITY: Turn.NAME,
    URL_REQUIRED: Turn.HIDE,  # no server of 2026-07-28 may send it
}

# 2026-07-28 basic/transports/streamable-http. Codes that are not listed are answers like any other: 200.
HTTP_STATUS: Final[dict[int, int]] = {
    METHOD_NOT_FOUND: 404,
    PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    HEADER_MISMATCH: 400,
    MISSING_CAPABILITY: 400,
    UNSUPPORTED_VERSION: 400,
}


def to_modern(method: str, params: bytes | None, error: bytes) -> bytes:
    """An error of a server with sessions, for a client of 2026-07-28. Errors of our own need none of this.

    A missing resource is -32602 with `data.uri` then (2026-07-28 server/resources, "Error Handling"), and no code is
    one that must not be emitted. `params` are the request's.
    """
    code = _code(error)
    turn = TO_MODERN.get(code)
    if turn is Turn.MISSING and method == READS:
        return _with_uri(_with_code(error, INVALID_PARAMS), _uri(params))
    return error if turn is None else _hidden(error, code)


def to_legacy(method: str, params: bytes | None, error: bytes) -> bytes:
    """An error of a server of 2026-07-28, for a client with a session.

    -32602 says that a resource is missing if its data name the very one that was asked for; it is -32002 for the client
    then (2025-11-25 server/resources, "Error Handling"). `params` are the request's.
    """
    code = _code(error)
    turn = TO_LEGACY.get(code)
    if turn is Turn.MISSING:
        uri = _uri(params) if method == READS else None
        is_missing = uri is not None and _uri(take(error, readable_members(error).get("data"))) == uri
        return _with_code(error, RESOURCE_NOT_FOUND) if is_missing else error
    if turn is Turn.NAME:
        return _named(error)
    return error if turn is None else _hidden(error, code)


def to_tool_result(method: str, error: bytes) -> bytes | None:
    """The result of a failed tool in an error's place, where the model rather than the program should hear of it.

    A client with a session cannot add a capability to it: with -32021, what its `tools/call` asked for just failed.
    None where the error is one. `error` is as the server sent it, not as `to_legacy` made it.
    """
    if method != "tools/call" or _code(error) not in (MISSING_CAPABILITY, URL_REQUIRED):
        return None
    if _code(error) == MISSING_CAPABILITY:
        return tool_error(_lacking(error))
    message = readable_text(take(error, readable_members(error).get("message")))
    return tool_error(f"The server asks to have a page visited, which it cannot ask this client: {message}")


def to_missing_capability(required: bytes, *, error: bytes | None = None, result: bytes | None = None) -> bytes | None:
    """What a client of 2026-07-28 is told instead, if a server with sessions asked for what it has not declared, was
    refused, and then failed: -32021, as of a server of its own era (2026-07-28 basic, "_meta"). A server that did
    without has not failed: None.

    Args:
        required: the JSON of `requiredCapabilities`.
        error: what the server answered; or
        result: that.
    """
    draft = Draft(b'{"code":%d}' % MISSING_CAPABILITY)
    kept = Draft(b"{}")
    kept.set("requiredCapabilities", required)
    if error is not None:
        said = readable_text(take(error, readable_members(error).get("message")))
        kept.set(ORIGINAL_CODE, b"%d" % _code(error))
        if (data := take(error, readable_members(error).get("data"))) is not None:
            kept.set(ORIGINAL_DATA, data)
    elif result is not None and take(result, readable_members(result).get("isError")) == b"true":
        said = _first_text(result)
        kept.set(ORIGINAL_RESULT, result)
    else:
        return None
    text = f"The server asked for what this client has not declared, and failed: {said or 'see data'}"
    draft.set("message", msgspec.json.encode(text))
    draft.set("data", kept.json())
    return draft.json()


def http_status(error: bytes, *, is_envelope: bool = False) -> int:
    """The status of a response to a client of 2026-07-28 that is this error alone, before anything else was sent.

    Args:
        is_envelope: the proxy found the request's own `_meta` wanting; -32602 is 400 then, and 200 from a server.
    """
    code = _code(error)
    return 400 if is_envelope and code == INVALID_PARAMS else HTTP_STATUS.get(code, 200)


# --- Reading --------------------------------------------------------------------------------------------------------


def _code(error: bytes) -> int:
    code = take(error, readable_members(error).get("code"))
    assert code is not None, "an error that was not made usable"
    return int(code)


def _uri(data: bytes | None) -> str | None:
    return readable_text(take(data or b"", readable_members(data).get("uri")))


def _capabilities(error: bytes) -> bytes | None:
    """The JSON of `data.requiredCapabilities`."""
    data = take(error, readable_members(error).get("data"))
    return take(data or b"", readable_members(data).get("requiredCapabilities"))


# --- Writing --------------------------------------------------------------------------------------------------------


def _with_code(error: bytes, code: int) -> bytes:
    draft = Draft(error)
    draft.set("code", b"%d" % code)
    return draft.json()


def _with_uri(error: bytes, uri: str | None) -> bytes:
    """`error` with a `data.uri`, unless there is one. Data that have no place for it move aside."""
    draft = Draft(error)
    data = draft.get("data")
    if uri is None or _uri(data) is not None:
        return error
    encoded = msgspec.json.encode(uri)
    try:
        inner = Draft(b"{}" if data is None or data == b"null" else data)
    except RemoteProtocolError:  # no object, or one in which nobody can tell what counts
        assert data is not None
        inner = Draft(b"{}")
        inner.set(ORIGINAL_DATA, data)
    inner.set("uri", encoded)
    draft.set("data", inner.json())
    return draft.json()


def _hidden(error: bytes, code: int) -> bytes:
    draft = Draft(error)
    kept = Draft(b"{}")
    kept.set(ORIGINAL_CODE, b"%d" % code)
    data = draft.get("data")
    if data is not None:
        kept.set(ORIGINAL_DATA, data)
    draft.set("code", b"%d" % INTERNAL_ERROR)
    draft.set("data", kept.json())
    return draft.json()


def _named(error: bytes) -> bytes:
    draft = Draft(error)
    draft.set("code", b"%d" % INTERNAL_ERROR)
    draft.set("message", msgspec.json.encode(_lacking(error)))
    return draft.json()


def _lacking(error: bytes) -> str:
    names = ", ".join(readable_members(_capabilities(error)))
    message = readable_text(take(error, readable_members(error).get("message")))
    needed = f"a client that can do {names}" if names else "more than this client can do"
    return f"The server needs {needed}: {message}"


def _first_text(result: bytes) -> str | None:
    """What a tool says of its failure: that is for whoever called it, and must not get lost."""
    for block in readable_elements(take(result, readable_members(result).get("content"))):
        spans = readable_members(block)
        if readable_text(take(block, spans.get("type"))) == "text":
            return readable_text(take(block, spans.get("text")))
    return None
