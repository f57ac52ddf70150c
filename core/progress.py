"""Progress as most servers report it: read in one go, and passed on as it came but for its token.

A call may bring hundreds of these a second, several with each read. Those of one call that stand in a row are looked at
together: whose they are, its time to answer and the room on its stream are one matter for all of them. What is not
written plainly is left to `asking`, which reads anything, and does the same about it.

Source: 2024-11-05 to 2026-07-28, basic/utilities/progress.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Final, Literal

import msgspec

from .courier import Courier
from .exchange import Exchange
from .links import Link
from .uplink import Uplink
from .upstream import State

METHOD: Final = b'"notifications/progress"'
METHOD_STOP_MAX: Final = 64
"""Where the method ends at the latest. The usual libraries write it first, or behind `jsonrpc`; and what is large is
not looked through for it."""

QUOTES: Final = 14
"""Around the names `jsonrpc`, `method`, `params`, `progressToken` and `progress`, and the values of the first two."""
QUOTES_OF_NAME: Final = 2
QUOTES_OF_TEXT: Final = 4


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


class Progress:
    """What servers say of calls that are under way."""

    def __init__(self, uplink: Uplink, courier: Courier) -> None:
        self._uplink = uplink
        self._courier = courier

    def receive(self, link: Link, messages: Sequence[bytes], start: int) -> int:
        """Pass on what stands in a row from `messages[start]` on and is plain progress of one call. Returns how many
        messages that was."""
        number = plain_token(messages[start])
        if number is None or link.upstream.state is State.CLOSED:
            return 0
        exchange = link.pending.get(number) or link.tokens.get(number)
        if not isinstance(exchange, Exchange) or exchange.token_raw is None:
            return 0
        theirs, ours = b'"progressToken":' + exchange.token_raw, b'"progressToken":%d' % number
        told: list[bytes] = []
        for message in islice(messages, start, None):
            if plain_token(message) != number or ours not in message:
                break
            told.append(message.replace(ours, theirs, 1))
        if told:
            self._uplink.expect_reply(link, exchange)
            self._courier.tell_all_progress(link.session_of(exchange), exchange, told)
        return len(told)


def plain_token(message: bytes) -> int | None:
    """The token of a progress notification that holds what the protocol names, each member once, and no escapes. None
    for anything else.

    That no member is there twice shows by the quotation marks: without escapes there are two around each name and
    each text.
    """
    if message.find(METHOD, 0, METHOD_STOP_MAX) < 0 or b"\\" in message:
        return None
    try:
        params = _decoder.decode(message).params
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    quotes = QUOTES
    if params.total is not None:
        quotes += QUOTES_OF_NAME
    if params.message is not None:
        quotes += QUOTES_OF_TEXT
    return params.progressToken if message.count(b'"') == quotes else None
