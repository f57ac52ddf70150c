"""Bounds of the JSON that peers send: its depth, its members and elements, its lone surrogates.

While a message is read nobody else is served, and a peer decides what is in it. So whatever costs more than a pass
through the bytes is counted, and refused above a bound, before anything is kept of it.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable
from functools import cache
from typing import Final, TypeVar

import msgspec

from ..base.errors import PARSE_ERROR, RemoteProtocolError

T = TypeVar("T")

DEPTH_SAFE: Final = 256
"""The number of levels that can be read on any stack. Real messages have fewer than 30. At it: deeper messages are read
as far as the stack goes, and refused with error -32700 beyond."""

DEPTH_SPARE: Final = 128
"""Levels of the stack that may lie between two readings of the same message."""

SCAN_SAFE_BYTES: Final = 64 * 1024
"""The size up to which a message costs little, whatever is in it. Larger ones are counted before they are read."""

MEMBERS_MAX: Final = 20_000
"""Members of one object that is looked into. Each costs about a microsecond, during which nobody else is served. At it:
error -32600, or that of what is read."""

ELEMENTS_MAX: Final = 20_000
"""Elements of one array that is looked into: a list of so many tools has some 5 MB. At it: error -32600, or that of
what is read."""

VALUES_MAX: Final = 100_000
"""Most values of JSON that is read as a whole. Each costs half a microsecond, and takes some hundred bytes as an object
of Python. At it: the first strings are found by a search, and the paths in structured content are not reworded."""

LONE_SURROGATES_MAX: Final = 10_000
"""Lone surrogates in one message, and what looks like them behind an escaped backslash. A text that was cut between the
halves of a pair has one. At it: error -32700."""

_object_decoder: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_array_decoder: Final = msgspec.json.Decoder(list[msgspec.Raw])
_raw_decoder: Final = msgspec.json.Decoder(msgspec.Raw)

_HEX: Final = rb"[0-9a-fA-F]{2}"
_HIGH: Final = rb"\\u[dD][89abAB]" + _HEX
_LOW: Final = rb"\\u[dD][c-fC-F]" + _HEX
# Halves that seem to be alone. Those beside their other half are among them if a backslash before may escape the first.
_MAYBE_LONE: Final = re.compile(
    rb"\\u[dD](?:[89abAB]%b(?:(?!%b)|(?<=\\%b))|[c-fC-F]%b(?<![^\\]%b%b))" % (_HEX, _LOW, _HIGH, _HEX, _HIGH, _LOW)
)
_LOW_HALF: Final = re.compile(_LOW)
_HIGH_HALF: Final = re.compile(_HIGH)
_HALF_BYTES: Final = len(rb"\ud800")


def check_utf8(data: bytes) -> None:
    """Checks that `data` is UTF-8, as JSON text is (RFC 8259, section 8.1).

    Raises:
        RemoteProtocolError: a byte is not UTF-8 (PARSE_ERROR).
    """
    if not data.isascii():
        try:
            data.decode()
        except UnicodeDecodeError as error:
            raise RemoteProtocolError(
                f"got a byte that is not UTF-8 at offset {error.start}, expected UTF-8 text", rpc_code=PARSE_ERROR
            ) from None


def check_depth(data: bytes) -> None:
    """Checks that `data` is not nested more deeply than can be read.

    The depth that can be read depends on the stack. So the reading is tried with `DEPTH_SPARE` levels more than `data`
    has: what passes here can be read again by functions that are called later. `data` need not be JSON; that is for its
    reader to judge.

    Raises:
        RemoteProtocolError: `data` is nested too deeply (PARSE_ERROR).
    """
    # To count millions of brackets takes longer than to try.
    if len(data) < SCAN_SAFE_BYTES and data.count(b"[") + data.count(b"{") < DEPTH_SAFE:
        return
    if not _is_json(data):
        replaced = replace_lone_surrogates(data)  # a decoder that stops at a lone surrogate has not seen what follows
        if replaced is not data:
            _is_json(replaced)


def _is_json(data: bytes) -> bool:
    """Returns True if `data` is JSON, and False if it is not.

    Raises:
        RemoteProtocolError: `data` cannot be read `DEPTH_SPARE` levels down (PARSE_ERROR).
    """
    try:
        _raw_decoder.decode(b"[" * DEPTH_SPARE + data + b"]" * DEPTH_SPARE)
    except RecursionError:
        raise too_deep() from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True


def deeper(read: Callable[[bytes], T], data: bytes, levels: int = DEPTH_SPARE) -> T:
    """Calls `read` with `data` on a stack with `levels` fewer levels left, and returns its result.

    What can be read so can be read again anywhere later. It takes the place of `check_depth` for a reader that goes
    through the data anyway.
    """
    return deeper(read, data, levels - 1) if levels else read(data)


def replace_lone_surrogates(data: bytes) -> bytes:
    """Returns `data` with U+FFFD in the place of each lone surrogate, at the same length; `data` itself if it has none.

    Raises:
        RemoteProtocolError: there are more than `LONE_SURROGATES_MAX` (PARSE_ERROR).
    """
    pieces: list[bytes] = []
    at = 0
    for count, match in enumerate(_MAYBE_LONE.finditer(data)):
        if count == LONE_SURROGATES_MAX:
            text = f"got more than {LONE_SURROGATES_MAX} lone surrogates in one message, expected Unicode text"
            raise RemoteProtocolError(text, rpc_code=PARSE_ERROR)
        if _is_lone(data, match.start()):
            pieces += (data[at : match.start()], rb"\ufffd")
            at = match.end()
    return b"".join((*pieces, data[at:])) if pieces else data


def _is_lone(data: bytes, at: int) -> bool:
    """True if the half of a surrogate pair that seems to begin at `at` is an escape, and is without its other half."""
    if _is_escaped(data, at):
        return False
    if _LOW_HALF.match(data, at) is None:
        return _LOW_HALF.match(data, at + _HALF_BYTES) is None
    before = at - _HALF_BYTES
    return before < 0 or _HIGH_HALF.match(data, before) is None or _is_escaped(data, before)


def _is_escaped(data: bytes, at: int) -> bool:
    """True if the backslash at `at` is the second half of an escaped one: an odd number of them is before it.

    They are counted in blocks that grow as long as they hold nothing else, and then shrink: nothing is copied.
    """
    start, size, grows = at, 1, True
    while size:
        is_full = size <= start and data.count(b"\\", start - size, start) == size
        start -= size if is_full else 0
        grows = grows and is_full
        size = size * 2 if grows else size // 2
    return (at - start) % 2 == 1


def decode_object(data: bytes) -> dict[str, msgspec.Raw]:
    """Returns the members of a JSON object, their values unread.

    Raises:
        msgspec.DecodeError, UnicodeDecodeError, RecursionError: `data` is no JSON object, or has a lone surrogate.
        RemoteProtocolError: there are more than `MEMBERS_MAX` (INVALID_REQUEST).
    """
    if len(data) >= SCAN_SAFE_BYTES and data.count(b'"') > 2 * MEMBERS_MAX:
        _check_member_count(data)
    return _object_decoder.decode(data)


def decode_array(data: bytes) -> list[msgspec.Raw]:
    """Returns the elements of a JSON array, unread.

    Raises:
        msgspec.DecodeError, UnicodeDecodeError, RecursionError: `data` is no JSON array, or has a lone surrogate.
        RemoteProtocolError: there are more than `ELEMENTS_MAX` (INVALID_REQUEST).
    """
    if len(data) >= SCAN_SAFE_BYTES and data.count(b",") >= ELEMENTS_MAX:
        _check_element_count(data)
    return _array_decoder.decode(data)


def has_few_values(data: bytes) -> bool:
    """True if JSON has at most about `VALUES_MAX` values, so that they can be read as objects of Python. Commas and
    brackets in strings count as well."""
    return len(data) < SCAN_SAFE_BYTES or data.count(b",") + data.count(b"[") + data.count(b"{") <= VALUES_MAX


def _check_member_count(data: bytes) -> None:
    """Refuses an object of more than `MEMBERS_MAX` members, without keeping any.

    The decoder looks each name up as an enumeration's value and asks about those that are none.
    """
    count = 0

    class Name(enum.Enum):
        ANY = ""

        @classmethod
        def _missing_(cls, value: object) -> Name:
            nonlocal count
            count += 1
            if count > MEMBERS_MAX:
                raise ValueError
            return cls.ANY

    try:
        msgspec.json.decode(data, type=dict[Name, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass  # the reader says what is wrong
    if count > MEMBERS_MAX:
        raise RemoteProtocolError(f"got an object of more than {MEMBERS_MAX} members, expected that many at most")


def _check_element_count(data: bytes) -> None:
    """Refuses an array of more than `ELEMENTS_MAX` elements, without keeping more."""
    try:
        _first_elements().decode(data)
    except msgspec.ValidationError as error:
        if "at most" in str(error):  # else it is no array
            text = f"got an array of more than {ELEMENTS_MAX} elements, expected that many at most"
            raise RemoteProtocolError(text) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass  # the reader says what is wrong


@cache
def _first_elements() -> msgspec.json.Decoder[msgspec.Struct]:
    """Returns a decoder that stops behind `ELEMENTS_MAX` elements. One of lists would keep all before it counts."""
    fields = [(f"e{at}", msgspec.Raw, msgspec.Raw()) for at in range(ELEMENTS_MAX)]
    return msgspec.json.Decoder(msgspec.defstruct("FirstElements", fields, array_like=True, forbid_unknown_fields=True))


class TooDeepError(RemoteProtocolError):
    """JSON that no stack can read. Unlike other text that cannot be read, it is whole as far as that can be told."""


def too_deep() -> TooDeepError:
    return TooDeepError("got JSON nested too deeply, expected a few hundred levels at most", rpc_code=PARSE_ERROR)
