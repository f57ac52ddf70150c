"""The `Mcp-*` headers, which repeat parts of a request so that intermediaries can route without reading bodies.

A client derives the headers from the body. A server refuses a request whose headers and body disagree: otherwise a load
balancer would decide by one value and the server act on the other. The input schema of a tool says which arguments are
mirrored in `Mcp-Param-*`; `param_headers` reads it, and drops tools whose annotations are wrong.

Source: 2026-07-28 basic/transports/streamable-http, "Request Metadata".
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from ...base.errors import HEADER_MISMATCH, INVALID_PARAMS, INVALID_REQUEST, RemoteProtocolError
from ...base.events import Headers
from ...jsonrpc.envelope import text_of
from ...jsonrpc.number_text import SAFE_INTEGER_MAX, is_integral, normal_form, safe_integer
from ...jsonrpc.splice import look, take
from .param_headers import Mirror

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
"""The member of the params that `Mcp-Name` mirrors, by method. The last three methods are of the tasks extension."""
MAY_OMIT_NAME: Final = frozenset({"tasks/get", "tasks/update", "tasks/cancel"})
"""Methods for which a missing `Mcp-Name` is accepted: clients omit it, as all of fastmcp-tasks 4.1 do. Only an
intermediary that routes by it is worse off."""

_OPEN: Final = "=?base64?"
_CLOSE: Final = "?="
_CLAUSE: Final = "2026-07-28 basic/transports/streamable-http, "
_PLAIN: Final = re.compile(r"[!-~](?:[ -~]*[!-~])?")
_CARRIED: Final = re.compile(r"[\t -~]*")
_DECIMAL: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?")
_FLOATING: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_VALUE_MAX: Final = 4000
"""The most characters of a number that is compared by value. A longer header must equal the body literally: no client
writes one."""


# --- Values ---------------------------------------------------------------------------------------------------------


def encode_value(text: str) -> str:
    """Returns the header value for `text`: the text itself if a header carries it unchanged, else Base64 between
    markers.

    The empty text is encoded too, since some implementations drop empty headers, and so is text that looks encoded.

    Raises:
        RemoteProtocolError: `text` has half a surrogate pair, which UTF-8 cannot hold (INVALID_PARAMS).
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
    """Returns the text that a header value stands for; the inverse of `encode_value`.

    Raises:
        RemoteProtocolError: the value has characters that need to be encoded, or markers around anything but the
            canonical Base64 of a UTF-8 text (HEADER_MISMATCH).
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
    """Returns the headers that mirror a request, names in lower case. The caller adds `MCP-Protocol-Version`.

    Args:
        params: the JSON of the params, as they will be sent.
        mirrors: the mirrored arguments, from the schema of the called tool.

    Raises:
        RemoteProtocolError: a mirrored value occurs twice, or no header can carry it in a way that all servers read
            alike: half a surrogate pair, a fraction, an integer beyond ±(2^53-1) (INVALID_PARAMS). Or the method is not
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
            headers.append((PARAM_PREFIX + mirror.name.lower(), encode_value(_header_text(raw, mirror))))
    return tuple(headers)


NAMES_KEPT: Final = 256
"""The number of tools, prompts and resources whose headers are cached: clients call the same ones repeatedly."""
NAME_MAX_BYTES: Final = 512
"""The longest name that is cached, as JSON."""


class Named(NamedTuple):
    """The tool, prompt, resource or task that a request names ("" if its method names none), and the headers that
    mirror the request if no schema asks for more."""

    name: str
    headers: Headers


def named(method: str, params: bytes, spans: Mapping[str, slice]) -> Named | None:
    """The fast path for `headers_for` and the name of a request. None: the general path decides, which may also refuse.

    The result depends on the method and the JSON of the name alone, so it is cached under both, and a repeated request
    skips the parsing of the params and the encoding. Names over `NAME_MAX_BYTES` and names that are no string are left
    to the general path.

    Args:
        spans: `compact_members` of the params.
    """
    member = NAMED_BY.get(method)
    if member is None:
        return _cached_name(method, b"")
    span = spans.get(member)
    if span is None or span.stop - span.start > NAME_MAX_BYTES:
        return None
    return _cached_name(method, params[span])


@lru_cache(maxsize=NAMES_KEPT)
def _cached_name(method: str, raw_name: bytes) -> Named | None:
    if not raw_name:
        return Named("", ((METHOD_HEADER, method),))
    name = text_of(raw_name)
    if name is None:
        return None
    return Named(name, ((METHOD_HEADER, method), (NAME_HEADER, encode_value(name))))


def _header_text(raw: bytes, mirror: Mirror) -> str:
    """Returns the header text of a value by its own JSON type, not that of the schema: servers compare with the value
    that is there, and check its type elsewhere."""
    if raw.startswith(b'"'):
        return _text(raw)
    if raw in (b"true", b"false"):
        return raw.decode()
    integer = safe_integer(raw.decode())
    # If the schema type is not a number, servers compare with the text that their own language prints for this number.
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
    """Returns those of a request's raw headers, names in lower case, that mirror its body: in order, duplicates
    included."""
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
    """Checks that the headers of a message agree with its body.

    A notification may omit the headers, since the revision defines none for it, but those it has must agree. A header
    for an argument that the body does not have is refused: an intermediary would see a value that the server does not.
    A `Mcp-Param-*` header that the schema does not name is ignored.

    Args:
        method: the method in the body; None for a message that is neither request nor notification.
        revision: the revision that the body names.
        headers: the result of `read_mirrored`.
        mirrors: the mirrored arguments, from the schema of the called tool; None if the schema is not known, in which
            case arguments are not checked.
        header_revision: the `MCP-Protocol-Version` header.

    Raises:
        RemoteProtocolError: header and body disagree, a required header is missing, or one occurs twice
            (HEADER_MISMATCH, 400). Or a mirrored member of the body occurs twice (INVALID_PARAMS).
    """
    lines: dict[str, str] = {}
    for name, value in headers:
        if name in lines:
            raise _mismatch(f"got two {_header_spelling(name)} headers, expected one")
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
    """Checks that the `MCP-Protocol-Version` header names the revision that the body names.

    Raises:
        RemoteProtocolError: they differ, or the header is missing (HEADER_MISMATCH, 400).
    """
    _compare("MCP-Protocol-Version", sent, revision)


def _check_argument(value: str | None, params: bytes | None, mirror: Mirror) -> None:
    raw = _argument(params, mirror)
    header = f"Mcp-Param-{mirror.name}"
    sent = _decoded(value)
    if raw is None:
        _compare(header, sent, None)
    elif raw.startswith(b'"') or raw in (b"true", b"false"):
        _compare(header, sent, _header_text(raw, mirror))
    else:
        number = raw.decode()
        grammar = _DECIMAL if is_integral(number) else _FLOATING
        if sent is not None and len(sent) <= _VALUE_MAX and grammar.fullmatch(sent) is not None:
            # "servers SHOULD compare the header value and the body value numerically rather than as strings"
            sent, number = normal_form(sent), normal_form(number)
        _compare(header, sent, number)


def _compare(header: str, sent: str | None, expected: str | None) -> None:
    """Refuses a header that differs from the expected value. The error repeats no value: it may be logged, and
    arguments are private."""
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


def _header_spelling(name: str) -> str:
    return "-".join(part.capitalize() for part in name.split("-"))


# --- The body -------------------------------------------------------------------------------------------------------


def _name_path(method: str) -> tuple[str, ...]:
    member = NAMED_BY.get(method)
    return () if member is None else (member,)


def _at_path(data: bytes | None, path: tuple[str, ...]) -> bytes | None:
    """Returns the JSON at a path of members; None if there is none, or the path is empty. Other members are not
    parsed."""
    if not path:
        return None
    for key in path:
        if data is None or not data.startswith(b"{"):
            return None
        try:
            data = take(data, look(data).get(key))
        except RemoteProtocolError as error:
            if error.rpc_code == INVALID_REQUEST:  # a member that occurs twice
                error.blame(INVALID_PARAMS, _CLAUSE + "Server Validation")
            raise
    return data


def _argument(params: bytes | None, mirror: Mirror) -> bytes | None:
    """Returns the argument to mirror, if there is one. Null counts as absent; an array or an object has no header
    text."""
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
