"""JSON-RPC errors, translated between the eras.

Codes of one era mean nothing, or something else, in the other. A code with a counterpart is replaced by it. A code that
the peer's era does not allow becomes an internal error that keeps code and data under
`data["dev.isthmus/originalCode"]` and `data["dev.isthmus/originalData"]`. All other errors pass unchanged.

Input is the JSON of an error object whose code is an integer and whose message is a string (`envelope.usable_error`).
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
from ..jsonrpc.object_editor import ObjectEditor
from ..jsonrpc.splice import take
from .content import tool_error

ORIGINAL_CODE: Final = "dev.isthmus/originalCode"
ORIGINAL_DATA: Final = "dev.isthmus/originalData"
ORIGINAL_RESULT: Final = "dev.isthmus/originalResult"

READS: Final = "resources/read"
"""The only method for which an error code says that a resource is missing."""

SPECIFIED: Final = range(-32099, -32019)
"""Codes that only the specification may give a meaning (2026-07-28 basic, "Error Codes")."""


class Treatment(enum.Enum):
    """The treatment of an error."""

    HIDE = "hide"  # becomes an internal error with the original in its data
    MISSING = "missing"  # becomes "no such resource" of the other era; where no resource is read, see the tables
    NAME = "name"  # becomes an internal error that names the capability the client lacks


# Codes that are not listed pass unchanged.
TO_MODERN: Final[dict[int, Treatment]] = {
    PARSE_ERROR: Treatment.HIDE,  # the server could not read what the proxy wrote: not the client's fault
    INVALID_REQUEST: Treatment.HIDE,
    RESOURCE_NOT_FOUND: Treatment.MISSING,  # else hidden: "MUST NOT be emitted" since 2026-07-28
    URL_REQUIRED: Treatment.HIDE,  # handled as a server request before this table is consulted
    **{code: Treatment.HIDE for code in SPECIFIED if code != URL_REQUIRED},  # no handshake-era peer can mean them
}
TO_LEGACY: Final[dict[int, Treatment]] = {
    PARSE_ERROR: Treatment.HIDE,
    INVALID_REQUEST: Treatment.HIDE,
    INVALID_PARAMS: Treatment.MISSING,  # else passed
    HEADER_MISMATCH: Treatment.HIDE,  # a fault of the proxy's own request, as is the next
    UNSUPPORTED_VERSION: Treatment.HIDE,
    MISSING_CAPABILITY: Treatment.NAME,
    URL_REQUIRED: Treatment.HIDE,  # no server of 2026-07-28 may send it
}

# 2026-07-28 basic/transports/streamable-http. Codes that are not listed have the status of any response: 200.
HTTP_STATUS: Final[dict[int, int]] = {
    METHOD_NOT_FOUND: 404,
    PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    HEADER_MISMATCH: 400,
    MISSING_CAPABILITY: 400,
    UNSUPPORTED_VERSION: 400,
}


def to_modern(method: str, params: bytes | None, error: bytes) -> bytes:
    """Translates an error of a handshake-era server for a client of 2026-07-28.

    A missing resource becomes -32602 with `data.uri` (2026-07-28 server/resources, "Error Handling"). The result has no
    code that must not be emitted. `params` are the request's. Errors of the proxy's own need no translation.
    """
    code = _code(error)
    turn = TO_MODERN.get(code)
    if turn is Treatment.MISSING and method == READS:
        return _with_uri(_with_code(error, INVALID_PARAMS), _uri(params))
    return error if turn is None else _hidden(error, code)


def to_legacy(method: str, params: bytes | None, error: bytes) -> bytes:
    """Translates an error of a server of 2026-07-28 for a client with a session.

    -32602 means a missing resource if its data name the very URI that was requested; it becomes -32002 for the client
    (2025-11-25 server/resources, "Error Handling"). `params` are the request's.
    """
    code = _code(error)
    turn = TO_LEGACY.get(code)
    if turn is Treatment.MISSING:
        uri = _uri(params) if method == READS else None
        is_missing = uri is not None and _uri(take(error, readable_members(error).get("data"))) == uri
        return _with_code(error, RESOURCE_NOT_FOUND) if is_missing else error
    if turn is Treatment.NAME:
        return _named(error)
    return error if turn is None else _hidden(error, code)


def to_tool_result(method: str, error: bytes) -> bytes | None:
    """Returns a failed tool result for an error that the model, not the program, should see; None for any other error.

    These errors are -32042 and -32021 to a `tools/call`: a client with a session cannot add a capability to it, so the
    call just failed. `error` is as the server sent it, not as `to_legacy` translated it.
    """
    if method != "tools/call" or _code(error) not in (MISSING_CAPABILITY, URL_REQUIRED):
        return None
    if _code(error) == MISSING_CAPABILITY:
        return tool_error(_lacking(error))
    message = readable_text(take(error, readable_members(error).get("message")))
    return tool_error(f"The server asks for a visit to a page, which this client does not offer: {message}")


def to_missing_capability(required: bytes, *, error: bytes | None = None, result: bytes | None = None) -> bytes | None:
    """Returns the error -32021 in place of a failure that followed a server request for an undeclared capability.

    A handshake-era server asked a client of 2026-07-28 for what the client has not declared, was refused, and then
    failed. The client gets the error that a server of its own era sends (2026-07-28 basic, "_meta"). Returns None if
    the server did without and has not failed.

    Args:
        required: the JSON of `requiredCapabilities`.
        error: the server's error response, or None.
        result: the server's result, or None.
    """
    draft = ObjectEditor(b'{"code":%d}' % MISSING_CAPABILITY)
    kept = ObjectEditor(b"{}")
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
    """Returns the HTTP status of a response that consists of this error alone, for a client of 2026-07-28.

    It applies only before anything else was sent on the response.

    Args:
        is_envelope: the proxy rejected the request's own `_meta`: -32602 is 400 then; from a server it is 200.
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
    """Returns the JSON of `data.requiredCapabilities`."""
    data = take(error, readable_members(error).get("data"))
    return take(data or b"", readable_members(data).get("requiredCapabilities"))


# --- Writing --------------------------------------------------------------------------------------------------------


def _with_code(error: bytes, code: int) -> bytes:
    draft = ObjectEditor(error)
    draft.set("code", b"%d" % code)
    return draft.json()


def _with_uri(error: bytes, uri: str | None) -> bytes:
    """Returns `error` with a `data.uri`, unless it has one. Data without a place for it move to `ORIGINAL_DATA`."""
    draft = ObjectEditor(error)
    data = draft.get("data")
    if uri is None or _uri(data) is not None:
        return error
    encoded = msgspec.json.encode(uri)
    try:
        inner = ObjectEditor(b"{}" if data is None or data == b"null" else data)
    except RemoteProtocolError:  # no object, or an object with a duplicate key
        assert data is not None
        inner = ObjectEditor(b"{}")
        inner.set(ORIGINAL_DATA, data)
    inner.set("uri", encoded)
    draft.set("data", inner.json())
    return draft.json()


def _hidden(error: bytes, code: int) -> bytes:
    draft = ObjectEditor(error)
    kept = ObjectEditor(b"{}")
    kept.set(ORIGINAL_CODE, b"%d" % code)
    data = draft.get("data")
    if data is not None:
        kept.set(ORIGINAL_DATA, data)
    draft.set("code", b"%d" % INTERNAL_ERROR)
    draft.set("data", kept.json())
    return draft.json()


def _named(error: bytes) -> bytes:
    draft = ObjectEditor(error)
    draft.set("code", b"%d" % INTERNAL_ERROR)
    draft.set("message", msgspec.json.encode(_lacking(error)))
    return draft.json()


def _lacking(error: bytes) -> str:
    names = ", ".join(readable_members(_capabilities(error)))
    message = readable_text(take(error, readable_members(error).get("message")))
    needed = f"a client that can do {names}" if names else "more than this client can do"
    return f"The server needs {needed}: {message}"


def _first_text(result: bytes) -> str | None:
    """Returns the text in which a tool describes its failure, so that it reaches the caller."""
    for block in readable_elements(take(result, readable_members(result).get("content"))):
        spans = readable_members(block)
        if readable_text(take(block, spans.get("type"))) == "text":
            return readable_text(take(block, spans.get("text")))
    return None
