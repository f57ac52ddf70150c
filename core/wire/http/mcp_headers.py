"""Parts of a request that stand in its HTTP headers too, so that what lies between can route without reading bodies.

A client derives the headers from the body, a server refuses a request whose two halves disagree: otherwise a balancer
would decide by one value and the server act on the other. Which arguments of a tool are mirrored, its input schema
says; a tool whose schema says it wrongly is not shown to clients (`annotations`).

Source: 2026-07-28 basic/transports/streamable-http, "Request Metadata".
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from ...base.effects import Headers
from ...base.errors import HEADER_MISMATCH, INVALID_PARAMS, INVALID_REQUEST, RemoteProtocolError
from ...jsonrpc.envelope import text_of
from ...jsonrpc.number_text import SAFE_INTEGER_MAX, is_integral, normal_form, safe_integer
from ...jsonrpc.splice import look, take
from .param_headers import Mirror

REVISION_HEADER: Final = "mcp-protocol-version"
METHOD_HEADER: Final = "mcp-method"
NAME_HEADER: Final = "mcp-name"
PARAM_PREFIX: Final = "mcp-param-"

NAMED_BY: Final = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
"""Which member of the params `Mcp-Name` mirrors. The last three are the tasks extension's."""
MAY_OMIT_NAME: Final = frozenset({"tasks/get", "tasks/update", "tasks/cancel"})
"""Where clients leave `Mcp-Name` out, all of fastmcp-tasks 4.1 for one: whoever routes by it loses, and nobody else."""

_OPEN: Final = "=?base64?"
_CLOSE: Final = "?="
_CLAUSE: Final = "2026-07-28 basic/transports/streamable-http, "
_PLAIN: Final = re.compile(r"[!-~](?:[ -~]*[!-~])?")
_CARRIED: Final = re.compile(r"[\t -~]*")
_DECIMAL: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?")
_FLOATING: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_VALUE_MAX: Final = 4000
"""Characters of a number that are compared. Longer ones are refused: no client writes them."""


# --- Values ---------------------------------------------------------------------------------------------------------


def encode_value(text: str) -> str:
    """The header value for `text`: itself, if every header can carry it unchanged; else Base64 between markers.

    Encoded are also the empty text, which some drop, and text that looks encoded.

    Raises:
        RemoteProtocolError: half a surrogate pair, which UTF-8 cannot hold (INVALID_PARAMS).
    """
    if _PLAIN.fullmatch(text) is not None and not _looks_encoded(text):
        return text
    try:
        encoded = text.encode()
    except UnicodeEncodeError:
        raise RemoteProtocolError(
            "got half a surrogate pair in a value that is mirrored in a header, expected Unicode text",
            rpc_code=INVALID_PARAMS,
            clause=_CLAUSE + "Value Encoding",
        ) from None
    return _OPEN + base64.b64encode(encoded).decode() + _CLOSE


def decode_value(value: str) -> str:
    """The text that a header value stands for.

    Raises:
        RemoteProtocolError: characters that need to be encoded, or markers around anything but the one way to write a
            UTF-8 text in Base64 (HEADER_MISMATCH).
    """
    if _CARRIED.fullmatch(value) is None:
        raise _mismatch("got a header value with other than visible ASCII characters, expected them encoded")
    if not _looks_encoded(value):
        return value
    payload = value[len(_OPEN) : -len(_CLOSE)]
    try:
        decoded = base64.b64decode(payload, validate=True)
        if len(value) >= len(_OPEN + _CLOSE) and base64.b64encode(decoded).decode() == payload:
            return decoded.decode()
    except (binascii.Error, UnicodeDecodeError):
        pass
    raise _mismatch("got a header value that is marked as Base64 and is none, expected Base64 of UTF-8 text")


def _looks_encoded(text: str) -> bool:
    return text.startswith(_OPEN) and text.endswith(_CLOSE)


# --- What a client sends --------------------------------------------------------------------------------------------


def headers_for(method: str, params: bytes | None, mirrors: Sequence[Mirror] = ()) -> Headers:
    """The headers, names in lower case, that mirror a request. The revision's own is for the caller to add.

    Args:
        params: the JSON of the params, as they will be sent.
        mirrors: what the schema of the called tool says.

    Raises:
        RemoteProtocolError: a mirrored value that occurs twice, or that no header can carry in a way all servers read
            alike: half a surrogate pair, a fraction, an integer beyond ±(2^53-1) (INVALID_PARAMS); a method that is no
            visible ASCII (INVALID_REQUEST).
    """
    if _PLAIN.fullmatch(method) is None:
        raise RemoteProtocolError("got a method that no header can carry, expected visible ASCII characters")
    headers = [(METHOD_HEADER, method)]
    raw_name = _at_path(params, _name_path(method))
    if raw_name is not None and raw_name.startswith(b'"'):
        headers.append((NAME_HEADER, encode_value(_text(raw_name))))
    for mirror in mirrors if method == "tools/call" else ():
        raw = _argument(params, mirror)
        if raw is not None:
            headers.append((PARAM_PREFIX + mirror.name.lower(), encode_value(_shown(raw, mirror))))
    return tuple(headers)


NAMES_KEPT: Final = 256
"""Tools, prompts and resources whose headers are remembered: clients call the same ones again and again."""
NAME_MAX_BYTES: Final = 512
"""A longer name is not worth keeping it for that."""


class Named(NamedTuple):
    """What a request is for, by its params, and the headers that mirror it where no schema wants more."""

    name: str
    headers: Headers


def named(method: str, params: bytes, spans: Mapping[str, slice]) -> Named | None:
    """What a request names, as most do it. None for any other, which may be right or wrong.

    Args:
        spans: `compact_members` of the params.
    """
    member = NAMED_BY.get(method)
    if member is None:
        return _named(method, b"")
    span = spans.get(member)
    if span is None or span.stop - span.start > NAME_MAX_BYTES:
        return None
    return _named(method, params[span])


@lru_cache(maxsize=NAMES_KEPT)
def _named(method: str, raw_name: bytes) -> Named | None:
    if not raw_name:
        return Named("", ((METHOD_HEADER, method),))
    name = text_of(raw_name)
    if name is None:
        return None
    return Named(name, ((METHOD_HEADER, method), (NAME_HEADER, encode_value(name))))


def _shown(raw: bytes, mirror: Mirror) -> str:
    """The text of a value, by its own type: servers compare with what is there, and judge its type elsewhere."""
    if raw.startswith(b'"'):
        return _text(raw)
    if raw in (b"true", b"false"):
        return raw.decode()
    integer = safe_integer(raw.decode())
    # Where the schema has no number, servers compare with the text that their language has for this one.
    if integer is None or (mirror.type != "integer" and str(integer) != raw.decode()):
        raise RemoteProtocolError(
            f"got another number for {'.'.join(mirror.path)!r} than the header Mcp-Param-{mirror.name} can carry, "
            f"expected an integer within ±{SAFE_INTEGER_MAX}, in decimal digits",
            rpc_code=INVALID_PARAMS,
            clause=_CLAUSE + "Schema Extension",
        )
    return str(integer)


# --- What a server checks -------------------------------------------------------------------------------------------


def read_mirrored(headers: Sequence[tuple[bytes, bytes]]) -> Headers:
    """Of a request's raw headers, names in lower case, those that mirror a part of its body: in order, with doubles."""
    return tuple(
        (name.decode("latin-1"), value.decode("latin-1").strip(" \t"))
        for name, value in headers
        if name in (b"mcp-method", b"mcp-name") or name.startswith(b"mcp-param-")
    )


def check(
    method: str | None,
    params: bytes | None,
    revision: str,
    headers: Headers,
    mirrors: Sequence[Mirror] | None,
    *,
    header_revision: str | None,
) -> None:
    """Compare a request with its headers.

    A notification need have none (the revision defines none for it), and those it has must be right. A header for an
    argument that is not there is refused: whoever routes by it would see what the server does not. One that the schema
    does not name is left alone.

    Args:
        method: of the body; None for what is neither request nor notification.
        revision: the one that the body names.
        headers: as `read_mirrored` gives them.
        mirrors: what the schema of the called tool says; None if it is not known, and nothing can be said of arguments.
        header_revision: the `MCP-Protocol-Version` header.

    Raises:
        RemoteProtocolError: they disagree, a required one is missing, or one is there twice (HEADER_MISMATCH, 400); or
            a mirrored member of the body is there twice (INVALID_PARAMS).
    """
    lines: dict[str, str] = {}
    for name, value in headers:
        if name in lines:
            raise _mismatch(f"got two {_spelled(name)} headers, expected one")
        lines[name] = value
    is_needed = method is not None and not method.startswith("notifications/")
    if is_needed or header_revision is not None:
        check_revision(header_revision, revision)
    sent = lines.get(METHOD_HEADER)
    _compare("Mcp-Method", sent, method if is_needed or sent is not None else None)
    if method is None:
        return
    path = _name_path(method)
    if path and not (method in MAY_OMIT_NAME and NAME_HEADER not in lines):
        raw_name = _at_path(params, path)
        named = _text(raw_name) if raw_name is not None and raw_name.startswith(b'"') else None
        _compare("Mcp-Name", _decoded(lines.get(NAME_HEADER)), named)
    for mirror in mirrors or () if method == "tools/call" else ():
        _check_argument(lines.get(PARAM_PREFIX + mirror.name.lower()), params, mirror)


def check_revision(sent: str | None, revision: str) -> None:
    """Compare the `MCP-Protocol-Version` header, if it was sent, with the revision that the body names.

    Raises:
        RemoteProtocolError: they differ, or there is no header (HEADER_MISMATCH, 400).
    """
    _compare("MCP-Protocol-Version", sent, revision)


def _check_argument(value: str | None, params: bytes | None, mirror: Mirror) -> None:
    raw = _argument(params, mirror)
    header = f"Mcp-Param-{mirror.name}"
    sent = _decoded(value)
    if raw is None:
        _compare(header, sent, None)
    elif raw.startswith(b'"') or raw in (b"true", b"false"):
        _compare(header, sent, _shown(raw, mirror))
    else:
        number = raw.decode()
        grammar = _DECIMAL if is_integral(number) else _FLOATING
        if sent is not None and len(sent) <= _VALUE_MAX and grammar.fullmatch(sent) is not None:
            # "servers SHOULD compare the header value and the body value numerically rather than as strings"
            sent, number = normal_form(sent), normal_form(number)
        _compare(header, sent, number)


def _compare(header: str, sent: str | None, expected: str | None) -> None:
    """The message names no value: it may be logged, and arguments are private."""
    if sent == expected:
        return
    if sent is None:
        raise _mismatch(f"got no {header} header, expected one that agrees with the body")
    if expected is None:
        raise _mismatch(f"got a {header} header without that value in the body, expected neither or both")
    raise _mismatch(f"got a {header} header that differs from the body, expected the same value")


def _mismatch(message: str) -> RemoteProtocolError:
    return RemoteProtocolError(message, rpc_code=HEADER_MISMATCH, http_status=400, clause=_CLAUSE + "Server Validation")


def _decoded(value: str | None) -> str | None:
    return None if value is None else decode_value(value)


def _spelled(name: str) -> str:
    return "-".join(part.capitalize() for part in name.split("-"))


# --- The body -------------------------------------------------------------------------------------------------------


def _name_path(method: str) -> tuple[str, ...]:
    member = NAMED_BY.get(method)
    return () if member is None else (member,)


def _at_path(data: bytes | None, path: tuple[str, ...]) -> bytes | None:
    """The JSON at a path of members; None if there is nothing, or the path is empty. Nothing beside it is read."""
    if not path:
        return None
    for key in path:
        if data is None or not data.startswith(b"{"):
            return None
        try:
            data = take(data, look(data).get(key))
        except RemoteProtocolError as error:
            if error.rpc_code == INVALID_REQUEST:  # a member twice
                error.rpc_code, error.clause = INVALID_PARAMS, _CLAUSE + "Server Validation"
            raise
    return data


def _argument(params: bytes | None, mirror: Mirror) -> bytes | None:
    """The value to mirror, if there is one: null counts as absent, and a list or an object has no text."""
    raw = _at_path(params, ("arguments", *mirror.path))
    return None if raw is None or raw == b"null" or raw.startswith((b"{", b"[")) else raw


def _text(raw: bytes) -> str:
    text = text_of(raw)
    if text is None:
        raise RemoteProtocolError(
            "got half a surrogate pair in a value that is mirrored in a header, expected Unicode text",
            rpc_code=INVALID_PARAMS,
            clause=_CLAUSE + "Value Encoding",
        )
    return text
