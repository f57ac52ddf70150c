"""Tests of malformed subscriptions to a server of the stateless era; the well-formed ones are dialogues."""

from __future__ import annotations

import pytest
from isthmus.core.base.plan import Kind
from stateless_server import LISTENING, pair


@pytest.mark.parametrize("params", ["{}", '{"uri":1}', '{"uri":null}', '{"uri":"a","uri":"b"}', '{"uri":"\\ud800"}'])
def test_a_subscription_without_a_uri_is_refused(params: str) -> None:
    """A subscription needs a resource."""
    both = pair("http", Kind.PIPE, capabilities=LISTENING)
    channel = both.client.request("5", "resources/subscribe", params)
    assert both.world.only_message(channel)["error"]["code"] in (-32602, -32600)
    both.world.wait(1.0)
    assert not both.world.was_sent("subscriptions/listen")
