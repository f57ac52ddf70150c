"""Tests of when a silent reply gets a comment, which is asked for twice in each `keep_alive_s`."""

from __future__ import annotations

from typing import Any

from isthmus.core.wire.http.reply import HttpReply, ReplyBody, ReplyHead
from isthmus.transports.http_server.replies import Exchange


class Sink:
    """Takes what a reply writes."""

    def __init__(self) -> None:
        self.outs: list[Any] = []

    def queue(self, exchange: Exchange, outs: Any, message_bytes: int) -> None:
        self.outs += outs


def test_a_reply_is_opened_at_the_second_call_and_gets_a_comment_at_each_second_one() -> None:
    """A reply that is silent for half of `keep_alive_s` may still become a plain document, and none is silent for
    longer than `keep_alive_s`."""
    sink = Sink()
    exchange = Exchange(sink, HttpReply(may_commit=True))  # type: ignore[arg-type]
    counts = []
    for _ in range(6):
        exchange.keep_alive()
        counts.append(len(sink.outs))
    assert counts == [0, 2, 2, 3, 3, 4]
    assert [type(out) for out in sink.outs] == [ReplyHead, ReplyBody, ReplyBody, ReplyBody]


def test_a_reply_whose_session_is_still_to_come_is_never_opened() -> None:
    sink = Sink()
    exchange = Exchange(sink, HttpReply())  # type: ignore[arg-type]
    for _ in range(4):
        exchange.keep_alive()
    assert sink.outs == []
