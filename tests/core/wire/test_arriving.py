"""Tests of the room for messages of servers that are arriving: whoever finds none is dropped, and all is given back."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from isthmus.core.base.budget import UNCOUNTED_MAX_BYTES, Budget, Share
from isthmus.core.base.effects import Post
from isthmus.core.base.events import Cause, End
from isthmus.core.base.limits import Limits
from isthmus.core.wire import ndjson, sse
from isthmus.core.wire.http.response import Arrived, Ended, ResponseReader

LARGE = 2 * UNCOUNTED_MAX_BYTES
ANSWER = b'{"jsonrpc":"2.0","id":7,"result":"%b"}'
HEAD: tuple[tuple[bytes, bytes], ...] = ((b"content-type", b"application/json"),)


class Lines:
    """Messages as lines."""

    def __init__(self, share: Share) -> None:
        self.reader = ndjson.LineReader(line_size_max_bytes=10 * LARGE, share=share)

    def begin(self, message: bytes) -> list[Any]:
        return list(self.reader.receive_bytes(message))

    def finish(self) -> list[Any]:
        return list(self.reader.receive_bytes(b"\n"))


class Events:
    """Messages as events of one line."""

    def __init__(self, share: Share) -> None:
        self.reader = sse.EventReader(event_size_max_bytes=10 * LARGE, share=share)

    def begin(self, message: bytes) -> list[Any]:
        return list(self.reader.receive_bytes(b"data: " + message))

    def finish(self) -> list[Any]:
        return list(self.reader.receive_bytes(b"\n\n"))


class ManyLines(Events):
    """Messages as events of several lines, each read whole."""

    def begin(self, message: bytes) -> list[Any]:
        lines = (message[at : at + 1000] for at in range(0, len(message), 1000))
        return [event for line in lines for event in self.reader.receive_bytes(b"data: %b\n" % line)]

    def finish(self) -> list[Any]:
        return list(self.reader.receive_bytes(b"\n"))


@pytest.mark.parametrize("kind", [Lines, Events, ManyLines])
def test_a_message_without_room_is_dropped_and_the_next_one_is_read(kind: Callable[[Share], Any]) -> None:
    budget = Budget(limit=LARGE + UNCOUNTED_MAX_BYTES, owner_limit=10 * LARGE)
    one, other = kind(Share(budget, "a")), kind(Share(budget, "b"))
    assert one.begin(b"x" * LARGE) == []
    assert LARGE <= budget.used <= LARGE + 10_000
    assert other.begin(ANSWER % (b"y" * LARGE)) == []
    assert LARGE <= budget.used <= LARGE + 10_000, "what is dropped takes nothing"
    [dropped] = other.finish()
    assert isinstance(dropped, ndjson.Oversize | sse.Oversize)
    assert dropped.size_bytes > LARGE
    assert dropped.head.startswith(b'{"jsonrpc":"2.0","id":7,')
    [whole] = one.finish()
    assert isinstance(whole, ndjson.Line | sse.Event)
    assert budget.used == 0
    other.begin(b"z" * LARGE)
    assert budget.used >= LARGE
    [whole] = other.finish()
    assert isinstance(whole, ndjson.Line | sse.Event)
    assert budget.used == 0


@pytest.mark.parametrize("kind", [Lines, Events, ManyLines])
def test_usual_messages_take_nothing(kind: Callable[[Share], Any]) -> None:
    budget = Budget(limit=0, owner_limit=0)
    one = kind(Share(budget, "a"))
    one.begin(b"x" * 60_000)
    [whole] = one.finish()
    assert isinstance(whole, ndjson.Line | sse.Event)


def test_a_long_line_in_pieces_gives_its_room_back() -> None:
    budget = Budget(limit=10 * LARGE, owner_limit=10 * LARGE)
    reader = ndjson.LineReader(line_size_max_bytes=10 * LARGE, joined_size_max_bytes=10, share=Share(budget, "a"))
    reader.receive_bytes(b"x" * LARGE)
    assert budget.used == LARGE
    [line] = reader.receive_bytes(b"y" * LARGE + b"\n")
    assert isinstance(line, ndjson.Line)
    assert line.rest
    assert budget.used == 0


def test_a_document_without_room_is_an_error() -> None:
    budget = Budget(limit=LARGE, owner_limit=LARGE)
    reader = ResponseReader(Post("s", b"{}"), Limits(), share=Share(budget, "a"))
    reader.receive_head(200, HEAD)
    assert reader.receive_body(b"x" * LARGE) == []
    assert budget.used == LARGE
    error, ended = reader.receive_body(b"x")
    assert isinstance(error, Arrived)
    assert json.loads(error.message)["error"]["message"].endswith("leave no room: try again")
    assert ended == Ended(Cause(End.BROKEN, "got a reply for which others that are arriving leave no room"))
    assert budget.used == 0


@pytest.mark.parametrize("ends_well", [True, False])
def test_a_document_gives_its_room_back_at_its_end(ends_well: bool) -> None:
    budget = Budget(limit=LARGE, owner_limit=LARGE)
    reader = ResponseReader(Post("s", b"{}"), Limits(), share=Share(budget, "a"))
    reader.receive_head(200, HEAD)
    reader.receive_body(b"x" * LARGE)
    reader.receive_eof(is_complete=ends_well)
    assert budget.used == 0
