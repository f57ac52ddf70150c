"""Pages that a server wants visited before a call (URL elicitation): its errors, and its notifications of visits."""

from __future__ import annotations

import json
from typing import Any

from driving import Driver, SentMessage, error, notification
from isthmus.core.base.ids import ChannelId
from stateless_driving import ACCEPT, Modern

COMPLETE = "notifications/elicitation/complete"


def page(name: str) -> dict[str, Any]:
    return {"mode": "url", "elicitationId": name, "url": f"http://h/{name}", "message": "m"}


def refuse(world: Driver, received: SentMessage, *names: str) -> None:
    data = {"elicitations": [page(name) for name in names]}
    world.reply(received, error(str(received.id), json.dumps({"code": -32042, "message": "visit", "data": data})))


def agreed(world: Driver, client: Modern, *names: str, tool: str = "t") -> tuple[ChannelId, ChannelId]:
    """Makes a call whose client has agreed to visit pages, and whose server still wants them visited. Returns the
    channel of the answer, and that of the server."""
    channel = client.request("tools/call", name=tool)
    refuse(world, world.take_sent("tools/call"), *names)
    result = client.answered(channel, client.last_id)["result"]
    assert result["resultType"] == "input_required"
    answers = dict.fromkeys(result["inputRequests"], ACCEPT)
    channel = client.request("tools/call", name=tool, requestState=result["requestState"], inputResponses=answers)
    received = world.take_sent("tools/call")
    refuse(world, received, *names)
    return channel, received.channel


def done(world: Driver, child: ChannelId, name: str) -> None:
    world.send(child, notification(COMPLETE, json.dumps({"elicitationId": name})))
