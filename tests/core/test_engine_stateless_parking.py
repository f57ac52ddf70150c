"""Questions of servers with sessions in calls whose clients have none: asked, answered, held for them, given up."""

from __future__ import annotations

import pytest
from driving import Heard, notification
from isthmus.core.limits import Limits
from stateless_driving import (
    ACCEPT,
    ANSWERS,
    ask,
    parked,
    rounds,
    served,
    speak,
)

UPS = pytest.mark.parametrize("up", ["pipe", "http"])
DOWNS = pytest.mark.parametrize("down", ["pipe", "http"])


def progress(heard: Heard, value: int) -> bytes:
    return notification("notifications/progress", f'{{"progressToken":{heard.id},"progress":{value}}}')


# --- Time -------------------------------------------------------------------------------------------------------------


@UPS
def test_a_server_is_not_timed_while_it_waits_for_the_client(up: str) -> None:
    """While a call is parked its server owes nothing, whatever it says meanwhile; with the next leg its time begins
    anew."""
    world, client, _ = served(up, limits=Limits(reply_timeout_s=50.0))
    heard, _, state = parked(world, client, token="t")
    speak(world, heard, progress(heard, 1))
    ask(world, heard, "roots/list", '"second"')
    world.wait(400)
    assert not world.hears("notifications/cancelled")
    channel = client.call(requestState=state, inputResponses={"r1": ACCEPT})
    _, state = rounds(client, channel, client.last_id)
    world.wait(400)
    channel = client.call(requestState=state, inputResponses={"r2": ANSWERS["roots/list"]})
    world.wait(49)
    assert not world.hears("notifications/cancelled")
    world.wait(1)
    assert world.hear("notifications/cancelled").frame["params"]["requestId"] == heard.id
    assert client.answered(channel, client.last_id)["error"]["data"]["outcome"] == "unknown"
