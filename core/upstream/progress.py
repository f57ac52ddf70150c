"""Progress as most servers report it: read in one go, and passed on as it came but for its token.

A call may bring hundreds of these a second, several with each read. Those of one call that stand in a row are looked at
together: whose they are, its time to answer and the room on its stream are one matter for all of them. What is not
written plainly is left to `asking`, which reads anything, and does the same about it.

Source: 2024-11-05 to 2026-07-28, basic/utilities/progress.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Final, Literal, NamedTuple

import msgspec

from ..downstream.responder import Courier
from ..state.exchange import Exchange
from ..state.link import Link
from ..state.upstream_session import State
from .writer import Uplink

METHOD: Final = b'"notifications/progress"'
METHOD_STOP_MAX: Final = 64
"""Where the method of the first of a row ends at the latest. The usual libraries write it first, or behind `jsonrpc`;
and what is large is not looked through for it."""

QUOTES: Final = 14
"""Around the names `jsonrpc`, `method`, `params`, `progressToken` and `progress`, and the values of the first two."""
QUOTES_OF_NAME: Final = 2
QUOTES_OF_TEXT: Final = 4
"""Around the name `message` and its value."""


class _Params(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    progressToken: int
    progress: int | float
    total: int | float | None = None
    message: str | None = None


class _Progress(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    jsonrpc: Literal["2.0"]
    method: Literal["notifications/progress"]
    params: _Params


_decoder: Final = msgspec.json.Decoder(_Progress)
_value_decoder: Final = msgspec.json.Decoder(int | float)


class Row(NamedTuple):
    """Progress of one call, at least one message.

    Attributes:
        number: the token of each.
        messages: they themselves. They hold what the protocol names, and nothing else.
        quotes: how many quotation marks they have together, if no member is there twice and no text has any. There
            cannot be fewer.
        first: how far the first of them says it is; each after it says more.
        last: how far the last of them says it is.
    """

    number: int
    messages: Sequence[bytes]
    quotes: int
    first: float
    last: float


def row_at(messages: Sequence[bytes], start: int) -> Row | None:
    """What stands in a row from `messages[start]` on; None if that is something else."""
    if messages[start].find(METHOD, 0, METHOD_STOP_MAX) < 0:
        return None
    number: int | None = None
    quotes, stop, first, last = 0, start, 0.0, 0.0
    decode = _decoder.decode
    for message in islice(messages, start, None):
        try:
            params = decode(message).params
        except (msgspec.DecodeError, UnicodeDecodeError):
            break
        if number is None:
            number, first = params.progressToken, params.progress
        elif params.progressToken != number or params.progress <= last:
            break
        quotes += QUOTES
        if params.total is not None:
            quotes += QUOTES_OF_NAME
        if params.message is not None:
            quotes += QUOTES_OF_TEXT
        stop += 1
        last = params.progress
    return None if number is None else Row(number, messages[start:stop], quotes, first, last)


def retold(row: Row, token_raw: bytes) -> list[bytes] | None:
    """The messages of the row with another token, the JSON `token_raw`. None if any of them has a member twice, which
    readers understand differently, a quotation mark within a text, or its token's name in another spelling.

    They are looked at as one text, with a line end between them: what is asked of each takes longer than all the rest.
    """
    text = b"\n".join(row.messages)
    name = b'"progressToken":%d' % row.number
    if text.count(b'"') != row.quotes or text.count(name) != len(row.messages):
        return None
    messages = text.replace(name, b'"progressToken":' + token_raw).split(b"\n")
    return messages if len(messages) == len(row.messages) else None


def further(told: float, progress_raw: bytes | None) -> float | None:
    """How far it is now, for whoever was `told` before; None if that is no news, since it goes back, or stands: who
    reports does so, or the call was sent once more and begins anew, under the one token that its client has.

    Source: 2025-03-26 to 2026-07-28, basic/utilities/progress: "The `progress` value MUST increase with each
    notification".
    """
    try:
        try:
            progress: float = _value_decoder.decode(progress_raw or b"")
        except msgspec.DecodeError:
            progress = float(progress_raw or b"")  # it may be beyond what numbers can be
    except ValueError:
        return told  # no number: whoever wants to make something of it may
    return progress if progress > told else None


class Progress:
    """What servers say of calls that are under way."""

    def __init__(self, uplink: Uplink, courier: Courier) -> None:
        self._uplink = uplink
        self._courier = courier

    def receive(self, link: Link, row: Row) -> bool:
        """Pass it on. False if it is not for here to judge: nothing has changed."""
        exchange = link.pending.get(row.number) or link.tokens.get(row.number)
        if not isinstance(exchange, Exchange) or exchange.token_raw is None or link.upstream.state is State.CLOSED:
            return False
        messages = retold(row, exchange.token_raw) if row.first > exchange.told else None
        if messages is None:
            return False
        exchange.told = row.last
        self._uplink.expect_reply(link, exchange)
        self._courier.tell_all_progress(link.session_of(exchange), exchange, messages)
        return True
