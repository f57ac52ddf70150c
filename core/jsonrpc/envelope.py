"""The JSON-RPC 2.0 envelope: decoded once, its payloads kept as the bytes they arrived in.

A `Frame` holds the JSON of params, result and error unread. Messages are encoded anew from these parts, so the members
of the envelope are always exactly the standard's, and everything inside is exactly the sender's.

Source: JSON-RPC 2.0; MCP base protocol, "Messages" (ids are strings or integers, never null).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from ..base.errors import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, RemoteProtocolError, Shape
from .bounds import DEPTH_SAFE, check_depth, check_utf8, deeper, replace_lone_surrogates
from .outline import outlined
from .splice import Edit, Outlined, Span, elements, look, members, splice, take

IdKey = tuple[str, str | int]
"""An id or token by value: ("s", text) or ("n", integer). 1 and "1" differ; 1 and 1.0 are the same."""

_SPACES: Final = frozenset({b" ", b"\t", b"\r", b"\n"})

MARK: Final = b"\xef\xbb\xbf"
"""The byte order mark in UTF-8. Source: RFC 8259, 8.1: parsers "MAY ignore the presence of a byte order mark"."""

_INTEGRAL: Final = re.compile(rb"(-?(?:0|[1-9][0-9]*))(?:\.0+)?")
LARGE_BYTES: Final = 64 * 1024
"""The size from which a scan through a message costs more than everything else that is done with it."""

_DIGITS_MAX: Final = 4000
"""The longest integer that is read as a number. Python refuses longer ones by default; such an id is compared as
text."""

ID_MAX_BYTES: Final = 8 * 1024
"""Longest id and progress token. Each is kept as long as its request, and repeated in messages about it. SDKs use
numbers and UUIDs. At it: error -32600, for a progress token -32602."""
METHOD_MAX_CHARS: Final = 8 * 1024
"""Longest method, which is kept likewise. At it: error -32600."""

_string_decoder: Final = msgspec.json.Decoder(str)


class _Envelope(msgspec.Struct):
    jsonrpc: Literal["2.0"]
    id: msgspec.Raw = msgspec.Raw()
    method: str = ""
    params: msgspec.Raw = msgspec.Raw()
    result: msgspec.Raw = msgspec.Raw()
    error: msgspec.Raw = msgspec.Raw()


_envelope_decoder: Final = msgspec.json.Decoder(_Envelope)

# The bytes of each member besides its value, in a message without spaces or escapes. The first one has no comma.
_FRAME_BYTES: Final = len(b'{"jsonrpc":"2.0"}')
_ID_BYTES: Final = len(b',"id":')
_METHOD_BYTES: Final = len(b',"method":""')
_PARAMS_BYTES: Final = len(b',"params":')
_RESULT_BYTES: Final = len(b',"result":')
_ERROR_BYTES: Final = len(b',"error":')


class Frame(msgspec.Struct, frozen=True):
    """One decoded message.

    Attributes:
        id_raw: the id's JSON; None for a notification, and for an error without a usable id.
        method: set on requests and notifications only.
        params, result, error: the JSON of each, unread.
    """

    id_raw: bytes | None = None
    method: str | None = None
    params: bytes | None = None
    result: bytes | None = None
    error: bytes | None = None

    @property
    def is_request(self) -> bool:
        return self.method is not None and self.id_raw is not None

    @property
    def is_notification(self) -> bool:
        return self.method is not None and self.id_raw is None


def decode(message: bytes) -> Frame:
    """Decodes one message.

    A `null` method or params counts as absent. So does a `null` result or error beside the other one: some peers write
    every member that their types have. A lone surrogate (`\\ud800`) stays as it is in a message below `LARGE_BYTES` and
    becomes `\\ufffd` in a larger one.

    Raises:
        RemoteProtocolError: the message is not JSON (PARSE_ERROR), or not a JSON-RPC 2.0 message (INVALID_REQUEST). The
            error's `id_raw` is set where the sender can be answered under its own id, and its `shape` where the kind of
            the message shows. Neither is without "jsonrpc":"2.0".
    """
    if not message.isascii():
        try:
            check_utf8(message)
        except RemoteProtocolError as error:
            raise _recognized(error, message.decode(errors="replace").encode()) from None
    if len(message) < LARGE_BYTES:
        if len(message) >= DEPTH_SAFE:  # else there is no room for so many levels
            check_depth(message)
        frame = _decode_plain(message)
    else:
        frame = _decode_large(message)
        if frame is None:
            readable = replace_lone_surrogates(message)  # once, not whenever a part is read
            if readable is not message:
                message, frame = readable, _decode_large(readable)
        if frame is None:
            check_depth(message)
    if frame is None:
        frame = _decode_members(message)
    if len(message) < LARGE_BYTES:
        return frame
    params, result = frame.params, frame.result
    return Frame(
        frame.id_raw,
        frame.method,
        None if params is None else outlined(params),
        None if result is None else outlined(result),
        frame.error,
    )


def _decode_large(message: bytes) -> Frame | None:
    frame = deeper(_decode_plain, message)
    is_usable = frame is None or frame.method is None or len(frame.method) <= METHOD_MAX_CHARS
    return frame if is_usable else None


def _decode_members(message: bytes) -> Frame:
    """Decodes any message, member by member."""
    spans = members(message)
    version = take(message, spans.get("jsonrpc"))
    if version != b'"2.0"' and text_of(version) != "2.0":  # escapes in the version are odd, and allowed
        # Without it nothing in the message is believed: a line of a log may have an id, a method or a result too.
        said = "no member jsonrpc" if version is None else f"jsonrpc {described(version)}"
        raise RemoteProtocolError(f'got {said}, expected "jsonrpc":"2.0"')
    for name, other in (("method", ""), ("error", "result")):
        if take(message, spans.get(name)) == b"null" and (not other or other in spans):
            del spans[name]
    shape: Shape = "call" if "method" in spans else "reply" if "result" in spans or "error" in spans else ""
    id_raw = take(message, spans.get("id"))
    is_null_id = id_raw == b"null"
    if id_raw is not None and not is_null_id and id_key(id_raw) is None:
        raise RemoteProtocolError(f"got the id {described(id_raw)}, expected a string or an integer", shape=shape)
    if id_raw is not None and len(id_raw) > ID_MAX_BYTES:
        raise RemoteProtocolError(f"got an id of {len(id_raw)} bytes, expected at most {ID_MAX_BYTES}", shape=shape)
    answerable = None if is_null_id else id_raw
    if shape == "call":
        return _decode_call(message, spans, id_raw, is_null_id)
    result, error_raw = take(message, spans.get("result")), take(message, spans.get("error"))
    if result is not None and error_raw is not None:
        result, error_raw = (
            (result, None) if error_raw == b"null" else (None if result == b"null" else result, error_raw)
        )
    if (result is None) == (error_raw is None):
        said = "neither method, result nor error" if result is None else "both result and error"
        raise RemoteProtocolError(f"got {said}, expected exactly one", id_raw=answerable, shape=shape)
    if result is not None and answerable is None:
        raise RemoteProtocolError("got a result without an id, expected the id of its request", shape=shape)
    return Frame(id_raw=answerable, result=result, error=error_raw)


def _decode_plain(message: bytes) -> Frame | None:
    """The fast path of `decode`, for a message of envelope members alone, each once, with no byte between them.

    Returns None for any other message, valid or not. Skipped are the scan for the members' positions and the search for
    duplicate keys. The length shows that both would find nothing: the decoder ignores spaces, unknown members and all
    but the last of duplicate keys, and each of them (or an escape) makes the message longer than the members that were
    found. `test_a_message_without_spaces_means_the_same_as_one_with_them` (tests/core/jsonrpc/test_envelope.py)
    compares both.
    """
    try:
        envelope = _envelope_decoder.decode(message)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    size = _FRAME_BYTES
    id_raw: bytes | None = bytes(envelope.id)
    if id_raw:
        if not (id_raw.isdigit() or (id_raw.startswith(b'"') and b"\\" not in id_raw)) or len(id_raw) > _DIGITS_MAX:
            return None
        size += _ID_BYTES + len(id_raw)
    else:
        id_raw = None
    method = envelope.method
    if method:
        params = bytes(envelope.params)
        if params:
            if not params.startswith((b"{", b"[")):
                return None
            size += _PARAMS_BYTES + len(params)
        if size + _METHOD_BYTES + len(method) != len(message):
            return None
        return Frame(id_raw, method, params or None)
    if id_raw is None:
        return None
    result = bytes(envelope.result)
    if size + _RESULT_BYTES + len(result) == len(message) and result:
        return Frame(id_raw, None, None, result)
    error = bytes(envelope.error)
    if size + _ERROR_BYTES + len(error) == len(message) and error:
        return Frame(id_raw, None, None, None, error)
    return None


def _recognized(error: RemoteProtocolError, readable: bytes) -> RemoteProtocolError:
    """Returns `error` with the `id_raw` and `shape` that `readable`, the message with its fault mended, shows."""
    try:
        frame = decode(readable)
    except RemoteProtocolError as other:
        error.recognize(other.id_raw, other.shape)
    else:
        error.recognize(frame.id_raw, "reply" if frame.method is None else "call")
    return error


def _decode_call(message: bytes, spans: dict[str, Span], id_raw: bytes | None, is_null_id: bool) -> Frame:
    if is_null_id:
        raise RemoteProtocolError("got the id null on a request, expected a string or an integer", shape="call")
    start, stop = spans["method"]
    method_raw = message[start:stop]
    if not method_raw.startswith(b'"'):
        text = f"got a method that is {_kind(method_raw)}, expected a string"
        raise RemoteProtocolError(text, id_raw=id_raw, shape="call")
    if b"\\" not in method_raw:
        method = method_raw[1:-1].decode()
    else:
        try:
            method = _string_decoder.decode(method_raw)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise RemoteProtocolError("got a method that is not Unicode text", id_raw=id_raw, shape="call") from None
    if len(method) > METHOD_MAX_CHARS:
        text = f"got a method of {len(method)} characters, expected at most {METHOD_MAX_CHARS}"
        raise RemoteProtocolError(text, id_raw=id_raw, shape="call")
    params = None
    if "params" in spans:
        start, stop = spans["params"]
        params = message[start:stop]
        if params == b"null":
            params = None
        elif not params.startswith((b"{", b"[")):
            text = f"got params that are {_kind(params)}, expected an object"
            raise RemoteProtocolError(text, id_raw=id_raw, shape="call")
    return Frame(id_raw=id_raw, method=method, params=params)


def is_marked(pieces: Sequence[bytes]) -> bool:
    """True if a message that arrived in `pieces`, none of them empty, begins with a byte order mark."""
    return b"".join(pieces[: len(MARK)]).startswith(MARK) if len(pieces[0]) < len(MARK) else pieces[0].startswith(MARK)


def is_batch(message: bytes) -> bool:
    """True if the message is an array of messages, which 2025-03-26 allows."""
    first = message[:1]
    return first == b"[" or (first in _SPACES and message.lstrip(b" \t\r\n")[:1] == b"[")


def split_batch(message: bytes) -> list[bytes]:
    """Returns the messages of a batch.

    Raises:
        RemoteProtocolError: the batch is no JSON array.
    """
    check_utf8(message)
    check_depth(message)
    return [message[start:stop] for start, stop in elements(message)]


def id_key(id_raw: bytes) -> IdKey | None:
    """Returns the id by value, or None if it is neither a string nor integral. `1.0` and `1` are one id; `1.5` is no
    id."""
    if id_raw[:1] == b'"':
        if b"\\" not in id_raw:
            return ("s", id_raw[1:-1].decode())
        try:
            return ("s", _string_decoder.decode(id_raw))
        except (msgspec.DecodeError, UnicodeDecodeError):
            return ("s", "\0" + id_raw.decode())  # a lone surrogate: such an id equals only the same bytes
    if id_raw.isdigit() and len(id_raw) <= _DIGITS_MAX:  # JSON has no leading zeros
        return ("n", int(id_raw))
    match = _INTEGRAL.fullmatch(id_raw)
    if match is None:
        return None
    if len(match[1]) > _DIGITS_MAX:
        return ("s", "\0" + match[1].decode())
    return ("n", int(match[1]))


def number_of(id_raw: bytes) -> int | None:
    """Returns the number that a peer echoes in an id or a progress token, as a number or as a string; None for all
    else."""
    if id_raw.isdigit() and len(id_raw) <= _DIGITS_MAX:
        return int(id_raw)
    key = id_key(id_raw)
    if key is None:
        return None
    if isinstance(key[1], int):
        return key[1]
    return int(key[1]) if key[1].isdecimal() and key[1].isascii() and len(key[1]) <= _DIGITS_MAX else None


def numbers_of_repeated_id(message: bytes) -> set[int]:
    """Returns the numbers in the members `id` of a response that has more than one, and is below `LARGE_BYTES`.

    Parsers disagree on which member counts, so the response settles no request. But its server takes the requests with
    these numbers for answered.
    """
    if len(message) >= LARGE_BYTES or message.count(b'"id"') < 2:
        return set()
    try:
        pairs = json.loads(message, object_pairs_hook=list)
    except (ValueError, RecursionError):
        return set()
    if not isinstance(pairs, list):
        return set()
    names = [pair[0] for pair in pairs if isinstance(pair, tuple)]
    versions = [value for name, value in pairs if name == "jsonrpc"]
    is_response = versions == ["2.0"] and "method" not in names and ("result" in names) != ("error" in names)
    if not is_response or names.count("id") < 2:
        return set()
    return {value for name, value in pairs if name == "id" and type(value) is int}


# Joined, not formatted: formatting takes ten times as long for large payloads.


def encode_request(id_raw: bytes, method: str, params: bytes | None) -> bytes:
    head = (b'{"jsonrpc":"2.0","id":', id_raw, b',"method":', msgspec.json.encode(method))
    return b"".join((*head, b"}") if params is None else (*head, b',"params":', params, b"}"))


def encode_notification(method: str, params: bytes | None) -> bytes:
    head = (b'{"jsonrpc":"2.0","method":', msgspec.json.encode(method))
    return b"".join((*head, b"}") if params is None else (*head, b',"params":', params, b"}"))


def encode_result(id_raw: bytes, result: bytes) -> bytes:
    return b"".join((b'{"jsonrpc":"2.0","id":', id_raw, b',"result":', result, b"}"))


def begin_result(id_raw: bytes) -> bytes:
    """Returns the bytes that `encode_result` writes before the result; after the result it writes one brace."""
    return b"".join((b'{"jsonrpc":"2.0","id":', id_raw, b',"result":'))


def encode_error_raw(id_raw: bytes | None, error: bytes) -> bytes:
    """Encodes an error response; `error` is the JSON of a whole error object."""
    return b"".join((b'{"jsonrpc":"2.0","id":', id_raw or b"null", b',"error":', error, b"}"))


def encode_error(id_raw: bytes | None, code: int, message: str, data: object = None) -> bytes:
    error: dict[str, object] = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return encode_error_raw(id_raw, msgspec.json.encode(error))


def usable_error(error: bytes) -> bytes:
    """Returns an error object that every client can read: integer code, string message.

    Any other JSON is wrapped in such an object, not lost. Bytes that are not UTF-8 become U+FFFD: the body of an HTTP
    error response is not checked earlier.
    """
    if not error.isascii():
        error = error.decode(errors="replace").encode()
    try:
        spans = members(error)
        code, message = take(error, spans.get("code")), take(error, spans.get("message"))
    except RemoteProtocolError:
        code = message = None
    if code is not None and re.fullmatch(rb"-?[0-9]{1,15}", code) and message is not None and message.startswith(b'"'):
        return error
    text = message if message is not None and message.startswith(b'"') else b'""'
    original = b'{"dev.isthmus/original":%b}' % error
    return b'{"code":%d,"message":%b,"data":%b}' % (INTERNAL_ERROR, text, original)


# --- Members that the protocol itself defines -----------------------------------------------------------------------


def error_object(code: int, message: str) -> bytes:
    """Returns the JSON of an error object without data."""
    return msgspec.json.encode({"code": code, "message": message})


def error_code(error: bytes) -> int | None:
    """Returns the code of an error object; None if there is none that can be read."""
    try:
        raw = member_of(error, "code")
        code = None if raw is None else msgspec.json.decode(raw)
    except (RemoteProtocolError, msgspec.DecodeError):
        return None
    return code if isinstance(code, int) else None


def progress_token(params: bytes | None) -> bytes | None:
    """Returns the JSON of `params._meta.progressToken`; None if it is absent or null.

    Raises:
        RemoteProtocolError: the token is neither a string nor an integer (INVALID_PARAMS). Forwarded unchanged, it
            could be taken for the number of another request.
    """
    if params is None or not params.startswith(b"{"):
        return None
    words = params.outline if isinstance(params, Outlined) else params
    if b"progressToken" not in words and b"\\u" not in words:  # the key may be spelled with escapes
        return None
    span = _token_span(params)
    if span is None:
        return None
    token = params[span[0] : span[1]]
    if token == b"null":
        return None
    if id_key(token) is None:
        text = f"got a progressToken that is {_kind(token)}, expected a string or an integer"
        raise RemoteProtocolError(text, rpc_code=INVALID_PARAMS)
    if len(token) > ID_MAX_BYTES:
        text = f"got a progressToken of {len(token)} bytes, expected at most {ID_MAX_BYTES}"
        raise RemoteProtocolError(text, rpc_code=INVALID_PARAMS)
    return token


def replace_progress_token(params: bytes, token_raw: bytes) -> bytes:
    """Returns `params` with the token that `progress_token` found replaced."""
    span = _token_span(params)
    assert span is not None
    return splice(params, [Edit(span[0], span[1], token_raw)])


def _token_span(params: bytes) -> tuple[int, int] | None:
    meta = members(params).get("_meta")
    if meta is None or params[meta.start : meta.start + 1] != b"{":
        return None
    token = members(params[meta.start : meta.stop]).get("progressToken")
    return None if token is None else (meta.start + token.start, meta.start + token.stop)


def member_of(params: bytes | None, key: str) -> bytes | None:
    """Returns the JSON of one member of an object; None if `params` is absent, no object, or lacks the member."""
    if params is None or not params.startswith(b"{"):
        return None
    return take(params, look(params).get(key))


def text_of(raw: bytes | None) -> str | None:
    """Returns the text of a JSON string, or None if `raw` is anything else."""
    if raw is None or not raw.startswith(b'"'):
        return None
    try:
        return _string_decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _kind(raw: bytes) -> str:
    """Names the type of a JSON value, for messages that may be logged and must show nothing of the payload."""
    kinds = {b'"': "a string", b"[": "an array", b"{": "an object", b"t": "true", b"f": "false", b"n": "null"}
    return kinds.get(raw[:1], "a number that is no integer" if _INTEGRAL.fullmatch(raw) is None else "a number")


def described(raw: bytes) -> str:
    """Returns a number or a version as it is written, and the type of any other value."""
    return raw.decode() if re.fullmatch(rb'"?[-+.0-9Ee]{1,20}"?', raw) else _kind(raw)


def parse_failure(error: RemoteProtocolError) -> bytes:
    """Returns the error response to a message that could not be read.

    Its id is null if the message was a response: that id belongs to a request of the receiver's, not of the sender's.
    """
    return encode_error(
        None if error.shape == "reply" else error.id_raw, error.rpc_code or INVALID_REQUEST, error.message
    )
