"""Helpers for tests that play a server of the stateless era, and clients of either era for it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from driving import Client, Driver, SentMessage, driver, new_client, notification, request, result
from isthmus.core.base.effects import Dial, Join, Post, Spawn
from isthmus.core.base.events import Cause, Connected, End, Headers, PostOpening
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.plan import Kind, ServerPlan
from isthmus.core.base.revisions import LATEST_MODERN, Era
from isthmus.core.jsonrpc.splice import set_member
from isthmus.core.wire.http.mcp_headers import headers_for

META = "io.modelcontextprotocol/"
LISTENING = '{"tools":{"listChanged":true},"resources":{"listChanged":true,"subscribe":true},"logging":{}}'
DIED = Cause(End.BROKEN, "exited with code 1")
SILENT = Cause(End.DONE)


def refused(status: int, body: bytes = b"") -> Cause:
    return Cause(End.REFUSED, status=status, body=body)


def failure(code: int, message: str = "no", *, data: object = None, id: object = None) -> bytes:
    """Returns the body of an error response, as servers write it."""
    error = {"code": code, "message": message} | ({} if data is None else {"data": data})
    return json.dumps({"jsonrpc": "2.0", "id": id, "error": error}).encode()


def discovery(capabilities: str = "{}", *, revisions: tuple[str, ...] = (LATEST_MODERN,), rest: str = "") -> str:
    listed = json.dumps(list(revisions))
    return (
        f'{{"resultType":"complete","supportedVersions":{listed},"capabilities":{capabilities},'
        f'"ttlMs":0,"cacheScope":"private"{rest}}}'
    )


def modern_plan(kind: Kind, *, era: Era | None = Era.STATELESS, **rest: Any) -> ServerPlan:
    return ServerPlan(id=kind.value, kind=kind, era=era, **rest)


def refuse(world: Driver, received: SentMessage, status: int, body: bytes = b"") -> None:
    """Answers a POST with a status and no message."""
    world.end(received.channel, refused(status, body))


def fail(
    world: Driver, received: SentMessage, code: int, message: str = "no", *, data: object = None, status: int = 200
) -> None:
    """Answers with an error: on a pipe, or in a response of that status."""
    body = failure(code, message, data=data, id=received.id)
    if received.post is None or status == 200:
        world.reply(received, body)
    else:
        refuse(world, received, status, body)


def connect_child(world: Driver) -> ChannelId:
    """Connects the process or socket that was dialled last. Returns its channel."""
    channel = next(dial.channel for dial in reversed(world.dials) if isinstance(dial.target, Spawn | Join))
    world.open(channel, Connected())
    return channel


def discovered(world: Driver, capabilities: str = "{}", *, grants: bool = True) -> SentMessage | None:
    """Plays a server of the stateless era that starts. Returns its `subscriptions/listen`, if it got one."""
    if isinstance(world.dials[-1].target, Spawn | Join):
        connect_child(world)
    world.answer(world.take_sent("server/discover"), discovery(capabilities))
    if not world.was_sent("subscriptions/listen"):
        return None
    listen = world.take_sent("subscriptions/listen")
    if grants:
        grant(world, listen)
    return listen


def grant(world: Driver, listen: SentMessage, filter: object = None) -> None:
    """Acknowledges a subscription; without a filter, all of it."""
    wanted = listen.frame["params"]["notifications"] if filter is None else filter
    tell(world, listen, "notifications/subscriptions/acknowledged", {"notifications": wanted})


def tell(world: Driver, listen: SentMessage, method: str, params: dict[str, object] | None = None) -> None:
    """Sends a notification of a subscription."""
    meta = {f"{META}subscriptionId": listen.id}
    if listen.post is not None and listen.channel not in world.opened:
        world.open(listen.channel, Connected())
        world.opened.add(listen.channel)
    world.send(listen.channel, notification(method, json.dumps({**(params or {}), "_meta": meta})))


def modern_call(
    client: Client,
    id_raw: str = "1",
    method: str = "tools/list",
    params: str = "{}",
    *,
    declared: str = "{}",
    mirrored: Headers = (),
    meta: str = "",
) -> ChannelId:
    """Sends a request of a client of the stateless era. Returns the channel of its response.

    Args:
        params: a JSON object without `_meta`.
        mirrored: headers in addition to those that every such request has.
        meta: further members of `_meta`.
    """
    envelope = (
        f'{{"{META}protocolVersion":"{LATEST_MODERN}","{META}clientCapabilities":{declared},'
        f'"{META}clientInfo":{{"name":"c","version":"1"}}{meta}}}'
    )
    raw = set_member(params.encode(), "_meta", envelope.encode()).decode()
    if client.pipe is not None:
        return client.request(id_raw, method, raw)
    world = client.driver
    channel = world.engine.new_channel()
    opening = PostOpening(
        server=client.server,
        principal=client.principal,
        revision=LATEST_MODERN,
        base_url="http://here",
        headers=client.headers,
        mirrored=headers_for(method, raw.encode()) + mirrored,
    )
    world.open(channel, opening)
    world.send(channel, request(id_raw, method, raw))
    return channel


def bare(params: dict[str, Any]) -> dict[str, Any]:
    """Returns the params of a request without the members of `_meta` that every request has."""
    meta = {key: value for key, value in params.get("_meta", {}).items() if not key.startswith(META)}
    rest = {key: value for key, value in params.items() if key != "_meta"}
    return rest | ({"_meta": meta} if meta else {})


def input_required_result(questions: dict[str, tuple[str, object]] | None, state: str | None = None) -> str:
    """Returns an `input_required` result. `questions` are (method, params) by key."""
    parts: dict[str, object] = {"resultType": "input_required"}
    if questions is not None:
        parts["inputRequests"] = {key: {"method": m, "params": p} for key, (m, p) in questions.items()}
    if state is not None:
        parts["requestState"] = state
    return json.dumps(parts)


@dataclass
class Pair:
    """A client of the handshake era, and its server of the stateless era."""

    world: Driver
    client: Client

    def call(
        self, id_raw: str = "1", params: str = '{"name":"t"}', method: str = "tools/call"
    ) -> tuple[ChannelId, SentMessage]:
        """Sends a request. Returns the channel of its response, and the message that the server was sent."""
        channel = self.client.request(id_raw, method, params)
        if method == "tools/call" and self.world.was_sent("tools/list"):  # to learn which arguments it wants in headers
            self.world.answer(self.world.take_sent("tools/list"), '{"resultType":"complete","tools":[]}')
        return channel, self.world.take_sent(method)

    def reply(self, id: object, text: str) -> None:
        """Answers a question of the server."""
        self.client.send(result(json.dumps(id), text))

    def asked(self, channel: ChannelId) -> list[dict[str, Any]]:
        """Returns the questions on a channel so far."""
        return [frame for frame in self.world.frames(channel) if "method" in frame and "id" in frame]

    def answer(self, channel: ChannelId) -> dict[str, Any] | None:
        """Returns the response to the request on a channel, if there is one."""
        found = [frame for frame in self.world.frames(channel) if "method" not in frame]
        return found[-1] if found else None


def pair(
    down: str = "pipe",
    up: Kind = Kind.HTTP,
    *,
    declared: str = '{"elicitation":{"form":{},"url":{}},"sampling":{},"roots":{}}',
    revision: str = "2025-11-25",
    capabilities: str = "{}",
    limits: Any = None,
    **plan: Any,
) -> Pair:
    """Returns a client and a server that are ready for requests. No message is left unread."""
    world = driver(modern_plan(up, **plan), limits=limits)
    client = new_client(world, down, up.value)
    channel = client.initialize(f'{{"protocolVersion":"{revision}","capabilities":{declared}}}')
    discovered(world, capabilities)
    client.session = world.sent[channel][-1].session
    client.notify("notifications/initialized")
    if client.pipe is not None:
        world.sent[client.pipe].clear()
    assert not world.unread
    return Pair(world, client)


def posts(world: Driver) -> list[Post]:
    return [dial.target for dial in world.every(Dial) if isinstance(dial.target, Post)]
