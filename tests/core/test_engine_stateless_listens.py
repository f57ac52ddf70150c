"""Subscriptions of clients without sessions, with servers of both kinds: confirmed, told, made up for, ended."""

from __future__ import annotations

from typing import Any

import pytest
from isthmus.core.ids import ChannelId
from stateless_driving import (
    K,
    Modern,
    assert_empty,
    served,
)

DOWNS = pytest.mark.parametrize("down", ["pipe", "http"])
EVERYTHING = {
    "toolsListChanged": True,
    "promptsListChanged": True,
    "resourcesListChanged": True,
    "resourceSubscriptions": ["a:b"],
}


def listen(client: Modern, **wanted: Any) -> ChannelId:
    return client.request("subscriptions/listen", notifications=wanted or EVERYTHING)


def told(client: Modern, channel: ChannelId, id: Any) -> list[tuple[str, Any]]:
    """(method, what it is about) of all that a subscription was told, which says each time that it is for it."""
    found = []
    for frame in client.told(channel):
        said = frame["params"].get("_meta", {}).get(K + "subscriptionId")
        if said == id and type(said) is type(id):
            subject = frame["params"].get("notifications", frame["params"].get("uri"))
            found.append((frame["method"].removeprefix("notifications/"), subject))
    return found


# --- They end ---------------------------------------------------------------------------------------------------------


@DOWNS
@pytest.mark.parametrize("is_live", [False, True], ids=["opening", "live"])
def test_a_proxy_that_stops_ends_each_subscription_with_its_result(down: str, is_live: bool) -> None:
    """The answer says whose it is; on a pipe the subscription is cancelled as well. Nothing of it is left."""
    world, client, _ = served(down=down)
    channel = listen(client)
    if is_live:
        world.answer(world.hear("resources/subscribe"))
    world.stop()
    answer = client.answered(channel)["result"]
    assert answer["resultType"] == "complete"
    assert answer["_meta"][K + "subscriptionId"] == 1
    cancelled = [f["params"] for f in client.told(channel) if f["method"] == "notifications/cancelled"]
    assert cancelled == ([{"requestId": 1}] if down == "pipe" else [])
    assert_empty(world)
