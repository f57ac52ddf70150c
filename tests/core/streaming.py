"""Clients and calls whose event streams outlive their connections."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from driving import GONE, Client, Driver, SentMessage, notification, request
from isthmus.core.base.effects import Send, Spawn
from isthmus.core.base.events import Connected
from isthmus.core.base.ids import ChannelId

LOG = "notifications/message"
WITH_TOKEN = '{"_meta":{"progressToken":"t"}}'


@dataclass
class Call:
    """A running request, and the messages that its server sends about it."""

    world: Driver
    channel: ChannelId
    received: SentMessage

    def send(self, message: bytes) -> None:
        self.world.send(self.received.channel, message)

    def progress(self, number: int = 0) -> None:
        token = self.received.frame["params"]["_meta"]["progressToken"]
        self.send(notification("notifications/progress", f'{{"progressToken":{token},"progress":{number}}}'))

    def log(self, number: int, size: int = 0) -> None:
        self.send(notification(LOG, json.dumps({"data": number, "x": "y" * size})))

    def ask(self, number: int) -> None:
        self.send(request(f'"q{number}"', "elicitation/create", json.dumps({"q": number})))

    def answer(self, text: str = "{}") -> None:
        self.world.answer(self.received, text)


def call_of(world: Driver, client: Client, id_raw: str = "1") -> Call:
    channel = client.request(id_raw, "tools/call", WITH_TOKEN)
    received = world.take_sent("tools/call")
    if received.post is not None:
        world.open(received.channel, Connected())
    return Call(world, channel, received)


def child_of(world: Driver) -> ChannelId:
    return world.last_dial(Spawn).channel


def tag(message: bytes) -> Any:
    """Returns the part of a message that identifies it."""
    frame = json.loads(message)
    if "method" not in frame:
        return frame
    params = frame.get("params", {})
    return params.get("progress", params.get("data", params.get("q", frame["method"])))


def tags(world: Driver, channel: ChannelId) -> list[Any]:
    return [tag(message) for message in world.messages(channel)]


def last_id(world: Driver, channel: ChannelId) -> str | None:
    """Returns the last event id that a client has seen on a connection."""
    ids = [send.event_id for send in world.every(Send) if send.channel == channel and send.event_id is not None]
    return ids[-1] if ids else None


def is_refused(world: Driver, channel: ChannelId, status: int) -> bool:
    (send,) = world.sent[channel]
    return send.is_last and send.status == status and json.loads(send.message)["error"]["code"] == -32600


def disconnected_call(world: Driver, client: Client, id_raw: str, *, size: int = 0) -> Call:
    """Returns a call whose connection is lost. With a `size`, a log message of that size waits on its stream."""
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
