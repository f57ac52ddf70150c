"""Tests of cancellations by clients: which upstream session gets them."""

from __future__ import annotations

import pytest
from driving import FORGOTTEN, connect, driver


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_call_is_cancelled_only_in_the_session_that_has_it(is_lost: bool) -> None:
    """A new session knows nothing of earlier calls. A call of its own is cancelled there, under the id that it was sent
    with."""
    world = driver()
    client = connect(world, "http", "http", session="S1")
    client.request("1", "tools/call", '{"name":"a"}')
    old = world.take_sent("tools/call")
    if is_lost:
        client.request("2", "tools/list")
        world.end(world.take_sent("tools/list").channel, FORGOTTEN)
        world.start_server(session="S2")
        world.answer(world.take_sent("tools/list"), '{"tools":[]}')
    client.notify("notifications/cancelled", '{"requestId":1}')
    assert world.was_sent("notifications/cancelled") is not is_lost
    if not is_lost:
        assert world.take_sent("notifications/cancelled").frame["params"] == {"requestId": old.id}
    client.request("3", "tools/call", '{"name":"b"}')
    new = world.take_sent("tools/call")
    client.notify("notifications/cancelled", '{"requestId":3}')
    cancelled = world.take_sent("notifications/cancelled")
    assert cancelled.frame["params"] == {"requestId": new.id}
    assert cancelled.post is not None
    assert cancelled.post.session == ("S2" if is_lost else "S1")
