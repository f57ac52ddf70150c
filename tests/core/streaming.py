"""Clients and calls whose streams outlive their connections, for the tests of `core.streams` in the engine."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from driving import GONE, Client, Driver, Heard, notification, request
from isthmus.core.base.effects import Connected, Send, Spawn
from isthmus.core.base.ids import ChannelId

LOG = "notifications/message"
WITH_TOKEN = '{"_meta":{"progressToken":"t"}}'


@dataclass
class Call:
    """A request that is under way, and what its server says about it."""

    world: Driver
    channel: ChannelId
    heard: Heard

    def say(self, message: bytes) -> None:
        self.world.say(self.heard.channel, message)

    def progress(self, number: int = 0) -> None:
        token = self.heard.frame["params"]["_meta"]["progressToken"]
        self.say(notification("notifications/progress", f'{{"progressToken":{token},"progress":{number}}}'))

    def log(self, number: int, size: int = 0) -> None:
        self.say(notification(LOG, json.dumps({"data": number, "x": "y" * size})))

    def ask(self, number: int) -> None:
        self.say(request(f'"q{number}"', "elicitation/create", json.dumps({"q": number})))

    def answer(self, text: str = "{}") -> None:
        self.world.answer(self.heard, text)


def call_of(world: Driver, client: Client, id_raw: str = "1") -> Call:
    channel = client.request(id_raw, "tools/call", WITH_TOKEN)
    heard = world.hear("tools/call")
    if heard.post is not None:
        world.open(heard.channel, Connected())
    return Call(world, channel, heard)


def child_of(world: Driver) -> ChannelId:
    return world.last_dial(Spawn).channel


def tag(message: bytes) -> Any:
    """What of a message tells it from all others."""
    frame = json.loads(message)
    if "method" not in frame:
        return frame
    params = frame.get("params", {})
    return params.get("progress", params.get("data", params.get("q", frame["method"])))


def tags(world: Driver, channel: ChannelId) -> list[Any]:
    return [tag(message) for message in world.messages(channel)]


def last_id(world: Driver, channel: ChannelId) -> str | None:
    """The last event id a client has seen on a connection."""
    ids = [send.event_id for send in world.every(Send) if send.channel == channel and send.event_id is not None]
    return ids[-1] if ids else None


def is_refused(world: Driver, channel: ChannelId, status: int) -> bool:
    (send,) = world.sent[channel]
    return send.is_last and send.status == status and json.loads(send.message)["error"]["code"] == -32600


def away(world: Driver, client: Client, id_raw: str, *, size: int = 0) -> Call:
    """A call whose stream is cut off; that it has something to come back for is up to `size`."""
    call = call_of(world, client, id_raw)
    call.progress()
    world.end(call.channel, GONE)
    if size:
        call.log(int(id_raw), size)
    return call


def can_resume(world: Driver, client: Client, number: int) -> bool:
    channel = client.resume(f"{number}-1")
    refused = any(send.status == 400 for send in world.sent[channel])
    return not refused
