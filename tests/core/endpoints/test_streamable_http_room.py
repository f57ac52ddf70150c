"""Tests of Streamable HTTP with a server that does not read: some messages are accepted all the same."""

from __future__ import annotations

import json

import pytest
from driving import connect, driver, notification, request, result
from isthmus.core.base.errors import OVERLOADED
from isthmus.core.base.limits import Limits

BIG = json.dumps({"x": "y" * 3000})


@pytest.mark.parametrize("in_batch", [False, True])
@pytest.mark.parametrize(
    ("message", "is_taken"),
    [
        (result("99"), True),
        (request("1", "ping"), True),
        (notification("notifications/initialized"), True),
        (notification("notifications/cancelled", '{"requestId":1}'), True),
        (notification("notifications/vendor"), False),
        (notification("notifications/roots/list_changed"), False),
        (request("1", "tools/call", '{"name":"t"}'), False),
        (request("1", "tools/list"), False),
    ],
)
def test_messages_that_need_no_room_are_always_accepted(message: bytes, is_taken: bool, in_batch: bool) -> None:
    """Answers, cancellations and requests that the proxy itself answers are accepted. All other messages are refused
    until there is room."""
    limits = Limits(outbox_max_bytes=1000, outbox_high_bytes=1000, outbox_low_bytes=1000)
    world = driver(limits=limits)
    client = connect(world, "http", "pipe", revision="2025-03-26")
    client.notify("notifications/vendor", BIG)
    channel = client.post(b"[" + message + b"]" if in_batch else message)
    refused = [sent for sent in world.sent[channel] if sent.status == 503]
    assert bool(refused) is not is_taken
    if refused:
        error = json.loads(refused[0].message)
        assert error["error"]["code"] == OVERLOADED
        assert error["id"] == (1 if b'"id":1' in message else None)
