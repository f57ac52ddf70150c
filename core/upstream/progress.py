"""The fast path for progress notifications of servers: reads those of one call in one go, and passes them on with the
client's token. `UpstreamWriter.write` replaces that token on the way to the server.

A call may bring hundreds of notifications a second, several with each read. Those of one call that follow one another
are handled together: their exchange, its reply timeout and the room on its stream are looked up once. Skipped are the
generic decoder and a separate pass through the responder. A message that is not plain (unknown members, members that
stand twice, escaped names, progress that does not increase) is left to `server_messages`, which reads any message and
comes to the same result: tests/core/upstream/test_progress.py compares both.

Source: 2024-11-05 to 2026-07-28, basic/utilities/progress.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Final, Literal, NamedTuple

import msgspec

from ..downstream.responder import Responder
from ..state.exchange import Exchange
from ..state.link import Link
from ..state.upstream_session import UpstreamSessionState
from .writer import UpstreamWriter

METHOD: Final = b'"notifications/progress"'
METHOD_STOP_MAX: Final = 64
"""The offset up to which `METHOD` must end in the first message. The usual libraries write it first, or after
`jsonrpc`; large messages are not searched for it."""

QUOTES: Final = 14
"""Quotation marks around the names `jsonrpc`, `method`, `params`, `progressToken` and `progress`, and the values of the
first two."""
QUOTES_OF_NAME: Final = 2
QUOTES_OF_TEXT: Final = 4
"""Quotation marks around the name `message` and its value."""


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
    """Consecutive progress notifications of one call, at least one.

    Attributes:
        number: the token of each.
        messages: their bytes. They hold the members that the protocol names, and no others.
        quotes: the count of their quotation marks, if no member stands twice and no text has any. There cannot be
            fewer.
        first: the `progress` of the first of them; each after it has a higher one.
        last: the `progress` of the last of them.
    """

    number: int
    messages: Sequence[bytes]
    quotes: int
    first: float
    last: float


def row_at(messages: Sequence[bytes], start: int) -> Row | None:
    """Returns the row of notifications that begins with `messages[start]`; None if that is another message."""
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


def with_token(row: Row, token_raw: bytes) -> list[bytes] | None:
    """Returns the messages of the row with another token, the JSON `token_raw`.

    None if any of them has a member twice, which readers understand differently, a quotation mark within a text, or its
    token's name in another spelling. All messages are searched as one text, with a line end between them: a search of
    each takes longer than all the rest.
    """
    text = b"\n".join(row.messages)
    name = b'"progressToken":%d' % row.number
    if text.count(b'"') != row.quotes or text.count(name) != len(row.messages):
        return None
    messages = text.replace(name, b'"progressToken":' + token_raw).split(b"\n")
    return messages if len(messages) == len(row.messages) else None


def value_of(progress_raw: bytes | None) -> float | None:
    """Returns the value of a notification; None if that is no number."""
    try:
        try:
            value: float = _value_decoder.decode(progress_raw or b"")
        except msgspec.DecodeError:
            value = float(progress_raw or b"")  # JSON numbers have no bound: this may become infinite
    except ValueError:
        return None
    return value


def must_increase(link: Link, exchange: Exchange) -> bool:
    """True if progress that stands or goes back is dropped, since the proxy has a part in it.

    Otherwise it passes, and the client decides. The proxy has a part in the progress of a request that it translates or
    has sent more than once, which begins anew under the one token that the client has, and of a server's task that it
    waits for itself.

    Source: 2025-03-26 to 2026-07-28, basic/utilities/progress: "The `progress` value MUST increase with each
    notification".
    """
    return (
        link.session_of(exchange).is_stateless != link.is_stateless
        or exchange.attempts > 1
        or (exchange.upstream_task is not None and exchange.task is None)
    )


class Progress:
    """The handler of progress rows."""

    def __init__(self, writer: UpstreamWriter, responder: Responder) -> None:
        self._writer = writer
        self._responder = responder

    def receive(self, link: Link, row: Row) -> bool:
        """Passes a row on to its client. False, and nothing has changed, if it must be handled by `server_messages`."""
        exchange = link.pending.get(row.number) or link.tokens.get(row.number)
        if (
            not isinstance(exchange, Exchange)
            or exchange.token_raw is None
            or link.upstream.state is UpstreamSessionState.CLOSED
        ):
            return False
        messages = with_token(row, exchange.token_raw) if row.first > exchange.told else None
        if messages is None:
            return False
        exchange.receive_progress(row.last)
        self._writer.expect_reply(link, exchange)
        self._responder.tell_all_progress(link.sessions[exchange.sid], exchange, messages)
        return True
