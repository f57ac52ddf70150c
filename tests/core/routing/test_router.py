"""Calls that their client wants no more: who is told so."""

from __future__ import annotations

import pytest
from driving import FORGOTTEN, connect, driver


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_session_is_not_told_of_calls_of_the_one_before_it(is_lost: bool) -> None:
    """It knows nothing of them. A call of its own is cancelled there, under the number that it was made with."""
    world = driver()
    client = connect(world, "http", "http", session="S1")
    client.request("1", "tools/call", '{"name":"a"}')
    old = world.hear("tools/call")
    if is_lost:
        client.request("2", "tools/list")
        world.end(world.hear("tools/list").channel, FORGOTTEN)
        world.shake_hands(session="S2")
        world.answer(world.hear("tools/list"), '{"tools":[]}')
    client.notify("notifications/cancelled", '{"requestId":1}')
    assert world.hears("notifications/cancelled") is not is_lost
    if not is_lost:
        assert world.hear("notifications/cancelled").frame["params"] == {"requestId": old.id}
    client.request("3", "tools/call", '{"name":"b"}')
    new = world.hear("tools/call")
    client.notify("notifications/cancelled", '{"requestId":3}')
    told = world.hear("notifications/cancelled")
    assert told.frame["params"] == {"requestId": new.id}
    assert told.post is not None
    assert told.post.session == ("S2" if is_lost else "S1")
