"""A server without sessions, as tests play it, and clients of either era for it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from driving import Client, Driver, Heard, driver, newcomer, notification, request, result
from isthmus.core.base.effects import Cause, Connected, Dial, End, Headers, Join, Post, PostOpening, Spawn
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
    """The body of an error, as servers write it."""
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


def refuse(world: Driver, heard: Heard, status: int, body: bytes = b"") -> None:
    """Over HTTP: the status, and nothing else."""
    world.end(heard.channel, refused(status, body))


def fail(
    world: Driver, heard: Heard, code: int, message: str = "no", *, data: object = None, status: int = 200
) -> None:
    """Answer with an error: on a pipe, or in a response of that status."""
    body = failure(code, message, data=data, id=heard.id)
    if heard.post is None or status == 200:
        world.reply(heard, body)
    else:
        refuse(world, heard, status, body)


def connect_child(world: Driver) -> ChannelId:
    """The process that was started last runs, or the socket is open."""
    channel = next(dial.channel for dial in reversed(world.dials) if isinstance(dial.target, Spawn | Join))
    world.open(channel, Connected())
    return channel


def discovered(world: Driver, capabilities: str = "{}", *, grants: bool = True) -> Heard | None:
    """Be a server without sessions that starts. Returns its `subscriptions/listen`, if it got one."""
    if isinstance(world.dials[-1].target, Spawn | Join):
        connect_child(world)
    world.answer(world.hear("server/discover"), discovery(capabilities))
    if not world.hears("subscriptions/listen"):
        return None
    listen = world.hear("subscriptions/listen")
    if grants:
        grant(world, listen)
    return listen


def grant(world: Driver, listen: Heard, filter: object = None) -> None:
    """Confirm a subscription: all of it, if it is not said of what."""
    wanted = listen.frame["params"]["notifications"] if filter is None else filter
    tell(world, listen, "notifications/subscriptions/acknowledged", {"notifications": wanted})


def tell(world: Driver, listen: Heard, method: str, params: dict[str, object] | None = None) -> None:
    """A notification in a subscription."""
    meta = {f"{META}subscriptionId": listen.id}
    if listen.post is not None and listen.channel not in world.opened:
        world.open(listen.channel, Connected())
        world.opened.add(listen.channel)
    world.say(listen.channel, notification(method, json.dumps({**(params or {}), "_meta": meta})))


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
    """A request of a client without sessions. Returns where its answer comes.

    Args:
        params: a JSON object without `_meta`.
        mirrored: headers beside those that every such request has.
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
    world.say(channel, request(id_raw, method, raw))
    return channel


def bare(params: dict[str, Any]) -> dict[str, Any]:
    """The params of a request without what every request says of its client."""
    meta = {key: value for key, value in params.get("_meta", {}).items() if not key.startswith(META)}
    rest = {key: value for key, value in params.items() if key != "_meta"}
    return rest | ({"_meta": meta} if meta else {})


def asking(questions: dict[str, tuple[str, object]] | None, state: str | None = None) -> str:
    """A result that asks: method and params by key."""
    parts: dict[str, object] = {"resultType": "input_required"}
    if questions is not None:
        parts["inputRequests"] = {key: {"method": m, "params": p} for key, (m, p) in questions.items()}
    if state is not None:
        parts["requestState"] = state
    return json.dumps(parts)


@dataclass
class Pair:
    """A client with a session, and its server without."""

    world: Driver
    client: Client

    def call(
        self, id_raw: str = "1", params: str = '{"name":"t"}', method: str = "tools/call"
    ) -> tuple[ChannelId, Heard]:
        """Make a request. Returns where its answer comes, and what the server was sent."""
        channel = self.client.request(id_raw, method, params)
        if method == "tools/call" and self.world.hears("tools/list"):  # to learn what it wants in headers
            self.world.answer(self.world.hear("tools/list"), '{"resultType":"complete","tools":[]}')
        return channel, self.world.hear(method)

    def reply(self, id: object, text: str) -> None:
        """Answer a question of the server."""
        self.client.say(result(json.dumps(id), text))

    def asked(self, channel: ChannelId) -> list[dict[str, Any]]:
        """The questions on a channel so far."""
        return [frame for frame in self.world.frames(channel) if "method" in frame and "id" in frame]

    def answer(self, channel: ChannelId) -> dict[str, Any] | None:
        """The answer to the request on a channel, if there is one."""
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
    """Both through with their introductions; nothing is left to be heard."""
    world = driver(modern_plan(up, **plan), limits=limits)
    client = newcomer(world, down, up.value)
    channel = client.initialize(f'{{"protocolVersion":"{revision}","capabilities":{declared}}}')
    discovered(world, capabilities)
    client.session = world.sent[channel][-1].session
    client.notify("notifications/initialized")
    if client.pipe is not None:
        world.sent[client.pipe].clear()
    assert not world.heard
    return Pair(world, client)


def posts(world: Driver) -> list[Post]:
    return [dial.target for dial in world.every(Dial) if isinstance(dial.target, Post)]
