"""Clients of the stateless era (2026-07-28) on top of `driving`, and helpers for the servers behind them.

The servers are of either era, and the test plays them. `assert_empty` checks that an engine holds nothing any more.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from driving import GONE, LATEST, Client, Driver, SentMessage, driver, notification, request, result
from inside import Inside
from isthmus.core.base.effects import Join, Spawn
from isthmus.core.base.effects import Listen as Get
from isthmus.core.base.events import Connected, Headers, PipeOpening, PostOpening
from isthmus.core.base.grants import NO_GRANTS, Grants
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, ServerPlan
from isthmus.core.jsonrpc import envelope
from isthmus.core.state.context import Context
from isthmus.core.state.upstream_channels import DeleteRole, UpstreamPostRole, UpstreamStreamRole
from isthmus.core.state.upstream_session import UpstreamSessionState
from isthmus.core.wire.http.mcp_headers import headers_for

REVISION = "2026-07-28"
K = "io.modelcontextprotocol/"
ABLE: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
"""The capabilities of a client that can answer every kind of question."""

FORM = '{"message":"Who?","requestedSchema":{"type":"object","properties":{}}}'
PROMPT = '{"messages":[],"maxTokens":1}'
QUESTIONS = {"elicitation/create": FORM, "sampling/createMessage": PROMPT, "roots/list": "{}"}
"""Valid params of each kind of question, by method."""

ANSWERS: dict[str, dict[str, Any]] = {
    "elicitation/create": {"action": "accept", "content": {"name": "Ann"}},
    "sampling/createMessage": {"role": "assistant", "model": "m", "content": {"type": "text", "text": "x"}},
    "roots/list": {"roots": [{"uri": "file:///a"}]},
}
ACCEPT = ANSWERS["elicitation/create"]

PUSHING = (
    '{"tools":{"listChanged":true},"prompts":{"listChanged":true},"logging":{},'
    '"resources":{"listChanged":true,"subscribe":true}}'
)
"""The capabilities of a server that sends every kind of notification."""


def meta(
    capabilities: dict[str, Any] | None = None, *, level: str | None = None, token: Any = None, revision: str = REVISION
) -> dict[str, Any]:
    """Returns the `_meta` of a request."""
    found: dict[str, Any] = {
        K + "protocolVersion": revision,
        K + "clientCapabilities": ABLE if capabilities is None else capabilities,
        K + "clientInfo": {"name": "tester", "version": "1"},
    }
    if level is not None:
        found[K + "logLevel"] = level
    if token is not None:
        found["progressToken"] = token
    return found


@dataclass
class Modern:
    """A client of the stateless era, over HTTP or on a pipe.

    Attributes:
        capabilities: what it declares with each request.
        last_id: the last id given to a request that names none; ids count from 1.
    """

    driver: Driver
    server: str
    pipe: ChannelId | None = None
    principal: str = ""
    capabilities: dict[str, Any] = field(default_factory=lambda: dict(ABLE))
    headers: Headers = ()
    last_id: int = 0
    grants: Grants = NO_GRANTS

    def body(
        self,
        method: str,
        *,
        id_raw: str | None = None,
        level: str | None = None,
        token: Any = None,
        capabilities: dict[str, Any] | None = None,
        **params: Any,
    ) -> bytes:
        if id_raw is None:
            self.last_id += 1
            id_raw = str(self.last_id)
        declared = self.capabilities if capabilities is None else capabilities
        return request(id_raw, method, json.dumps({"_meta": meta(declared, level=level, token=token), **params}))

    def request(self, method: str, *, takes_events: bool = True, **rest: Any) -> ChannelId:
        """Sends one request. Returns the channel of its response."""
        return self.send(self.body(method, **rest), takes_events=takes_events)

    def call(self, name: str = "ask", arguments: dict[str, Any] | None = None, **rest: Any) -> ChannelId:
        return self.request("tools/call", name=name, arguments={} if arguments is None else arguments, **rest)

    def send(
        self,
        message: bytes,
        *,
        mirrored: Headers | None = None,
        revision: str | None = REVISION,
        session: str | None = None,
        takes_events: bool = True,
    ) -> ChannelId:
        """Sends these bytes; over HTTP with the headers that mirror them, unless others are given."""
        if self.pipe is not None:
            self.driver.send(self.pipe, message)
            return self.pipe
        if mirrored is None:
            frame = envelope.decode(message)
            mirrored = () if frame.method is None else headers_for(frame.method, frame.params)
        channel = self.driver.engine.new_channel()
        opening = PostOpening(
            server=self.server,
            principal=self.principal,
            session=session,
            revision=revision,
            accepts_events=takes_events,
            base_url="http://here",
            headers=self.headers,
            mirrored=mirrored,
            grants=self.grants,
        )
        self.driver.open(channel, opening)
        self.driver.send(channel, message)
        return channel

    def cancel(self, channel: ChannelId, id_raw: str = "1") -> None:
        """Cancels a request: closes its stream over HTTP, cancels it by its id on a pipe."""
        if self.pipe is not None:
            self.driver.send(self.pipe, notification("notifications/cancelled", f'{{"requestId":{id_raw}}}'))
        else:
            self.driver.end(channel, GONE)

    def answered(self, channel: ChannelId, id: Any = None) -> dict[str, Any]:
        """Returns the response on a channel: the only one, or that to the request of this id."""
        found = [
            frame
            for frame in self.driver.frames(channel)
            if "method" not in frame and (id is None or (frame["id"] == id and type(frame["id"]) is type(id)))
        ]
        assert len(found) == 1, found
        return dict(found[0])

    def notifications(self, channel: ChannelId) -> list[dict[str, Any]]:
        """Returns the notifications on a channel."""
        return [frame for frame in self.driver.frames(channel) if "method" in frame]


def modern(
    world: Driver,
    server: str,
    down: str = "http",
    *,
    principal: str = "",
    capabilities: dict[str, Any] | None = None,
) -> Modern:
    """Returns a client that has sent nothing yet. `down` is "pipe" or "http"."""
    client = Modern(world, server, principal=principal)
    if capabilities is not None:
        client.capabilities = capabilities
    if down == "pipe":
        client.pipe = world.engine.new_channel()
        world.open(client.pipe, PipeOpening(server, principal, "http://here"))
    return client


def handshake_client(client: Modern) -> Client:
    """Returns a client of the handshake era on the same pipe."""
    assert client.pipe is not None
    return Client(client.driver, client.server, client.pipe, principal=client.principal)


def bridge(*servers: ServerPlan, limits: Limits | None = None, seed: int = 1, **plan: Any) -> Driver:
    """Returns a driver of an engine; by default its servers are "pipe" and "http", of unknown era."""
    both = (ServerPlan(id="pipe", kind=Kind.PIPE), ServerPlan(id="http", kind=Kind.HTTP))
    return driver(*(servers or both), limits=limits, seed=seed, **plan)


# --- Servers ----------------------------------------------------------------------------------------------------------


def start_legacy_server(
    world: Driver, *, capabilities: str = PUSHING, session: str = "S1", revision: str = LATEST
) -> ChannelId | None:
    """Plays a server of the handshake era that starts for a client of the stateless era.

    The server refuses `server/discover`, is dialled anew and finishes the handshake. Returns its open GET stream if it
    speaks HTTP.
    """
    if world.was_sent("server/discover") or not world.was_sent("initialize"):
        last = world.dials[-1]
        if isinstance(last.target, Spawn | Join):
            world.open(last.channel, Connected())
        if world.was_sent("server/discover"):
            refuse_discovery(world)
    if isinstance(world.dials[-1].target, Spawn | Join) and not world.was_sent("initialize"):
        world.open(world.dials[-1].channel, Connected())
    text = f'{{"protocolVersion":"{revision}","capabilities":{capabilities},"serverInfo":{{"name":"s","version":"1"}}}}'
    world.answer(world.take_sent("initialize"), text, session=session)
    world.acknowledge(world.take_sent("notifications/initialized"))
    gets = [dial for dial in world.dials if isinstance(dial.target, Get) and dial.channel not in world.over]
    if not gets:
        return None
    world.open(gets[-1].channel, Connected())
    return gets[-1].channel


def refuse_discovery(world: Driver) -> None:
    """Plays a server that does not know `server/discover`."""
    probe = world.take_sent("server/discover")
    message = f'{{"jsonrpc":"2.0","id":{probe.id},"error":{{"code":-32601,"message":"Method not found"}}}}'.encode()
    if probe.post is None:
        world.send(probe.channel, message)
        if probe.channel in world.closed:  # it was dialled anew
            world.unread = [received for received in world.unread if received.channel != probe.channel]
            world.engine.receive_close(probe.channel, GONE, world.now)
    else:
        world.reply(probe, message)


def start_stateless_server(world: Driver, *, capabilities: str = PUSHING) -> None:
    """Plays a server of the stateless era that starts."""
    last = world.dials[-1]
    if isinstance(last.target, Spawn | Join):
        world.open(last.channel, Connected())
    text = (
        f'{{"resultType":"complete","supportedVersions":["{REVISION}"],"capabilities":{capabilities},'
        f'"ttlMs":0,"cacheScope":"private","_meta":{{"{K}serverInfo":{{"name":"s","version":"1"}}}}}}'
    )
    world.answer(world.take_sent("server/discover"), text)


def ask(
    world: Driver, received: SentMessage, method: str = "elicitation/create", id_raw: str = '"q"', params: str = ""
) -> None:
    """Plays a server that sends a request during a call, on the stream of the call."""
    send_during(world, received, request(id_raw, method, params or QUESTIONS[method]))


def send_during(world: Driver, received: SentMessage, message: bytes) -> None:
    """Plays a server that sends a message during a call."""
    if received.post is not None and received.channel not in world.over:
        world.open(received.channel, Connected())
    world.send(received.channel, message)


def collect(world: Driver) -> None:
    """Waits until the time for collecting further questions is over."""
    world.wait(Inside(world.engine).context.limits.collect_s)


def rounds(client: Modern, channel: ChannelId, id: Any = None) -> tuple[dict[str, Any], str]:
    """Returns the questions and the `requestState` that a request was answered with."""
    answer = client.answered(channel, id)["result"]
    assert answer["resultType"] == "input_required"
    return answer["inputRequests"], answer["requestState"]


def suspended(
    world: Driver, client: Modern, method: str = "elicitation/create", question_id: str = '"q"', **rest: Any
) -> tuple[SentMessage, dict[str, Any], str]:
    """Suspends a call, by a question of its server under the id `question_id`.

    Returns the call as the server received it, the questions and the `requestState`.
    """
    channel = client.call(**rest)
    received = world.take_sent("tools/call")
    ask(world, received, method, question_id)
    collect(world)
    questions, state = rounds(client, channel, client.last_id)
    return received, questions, state


def served(
    up: str = "pipe",
    down: str = "http",
    *,
    servers: Sequence[ServerPlan] = (),
    limits: Limits | None = None,
    capabilities: str = PUSHING,
    **plan: Any,
) -> tuple[Driver, Modern, ChannelId | None]:
    """Returns a driver and a client whose server, of the handshake era, is ready, and its GET stream if it has one."""
    world = bridge(*servers, limits=limits, **plan)
    client = modern(world, up, down)
    channel = client.request("server/discover")
    stream = start_legacy_server(world, capabilities=capabilities)
    assert client.answered(channel)["result"]["supportedVersions"] == [REVISION]
    world.sent[channel].clear()
    client.last_id = 0
    return world, client, stream


def respond(world: Driver, received: SentMessage, text: str = '{"content":[]}') -> None:
    """Answers a call, whose stream may already be open."""
    send_during(world, received, result(str(received.id), text))
    if received.post is not None and received.channel not in world.over:
        world.end(received.channel)


# --- Remaining state --------------------------------------------------------------------------------------------------


def settle(world: Driver) -> None:
    """Closes every channel that the engine has ended, and accepts every POST that needs no response."""
    context: Context = Inside(world.engine).context
    while found := [
        channel for channel, role in context.channels() if not context.is_open(channel) or _ends_by_itself(role)
    ]:
        for channel in found:
            world.end(channel)


def _ends_by_itself(role: object) -> bool:
    """True for a DELETE, for a POST without a request, and for the stream of a session that is over."""
    if isinstance(role, UpstreamStreamRole):
        return role.link.upstream.state is UpstreamSessionState.CLOSED
    return isinstance(role, DeleteRole) or (isinstance(role, UpstreamPostRole) and role.number is None)


def tables(engine: Any) -> dict[str, Any]:
    """Returns everything that an engine holds of calls, clients and servers, by the name of its table."""
    inside = Inside(engine)
    questions, links = inside.questions, list(inside.links.links.values())
    return {
        "sessions": inside.sessions.sessions,
        "by_sid": inside.sessions._by_sid,
        "by_affinity": inside.by_affinity,
        "suspended calls": questions.suspended_calls._by_id,
        "url elicitations": questions.url_elicitation._waiting,
        "url elicitations done": questions.url_elicitation._done,
        "deferred": {sid: waiting for sid, waiting in questions.deferred_questions._waiting.items() if waiting},
        "rounds": [e for s in inside.sessions.sessions.values() for e in s.exchanges.values() if e.round is not None],
        "links": links,
        "links by session": inside.links.by_sid,
        "timers": inside.context.timers._live,
        "pending": [entry for link in links for entry in link.pending.values()],
        "queues": [entry for link in links for entry in link.queue],
        "learning": [entry for link in links for entry in (*link.tools.waiting, *link.subscriptions.waiting)],
        "streams": [*inside.streams._over, *inside.streams._fed, *inside.streams._silent],
        "storage": inside.storage_orders._thens,
        "paused": inside.context._paused,
    }


def assert_empty(world: Driver, *but: str) -> None:
    """Checks that no session, link, timer or channel is left, nor an entry in a table that `but` does not name."""
    settle(world)
    left = {name: table for name, table in tables(world.engine).items() if table and name not in but}
    assert not left, left
    if "channels" not in but:
        assert not Inside(world.engine).context.channels()


def assert_idle(world: Driver) -> None:
    """Checks that no request, question or suspended call is open and that no timer runs but those of idleness.

    Sessions and their servers may go on.
    """
    settle(world)
    state = tables(world.engine)
    for name in (
        "suspended calls",
        "url elicitations",
        "deferred",
        "rounds",
        "pending",
        "queues",
        "learning",
        "streams",
    ):
        assert not state[name], (name, state[name])
    timers = {purpose for purpose, _ in state["timers"]}
    assert timers <= {"idle", "linger", "rest"}, timers
    for session in state["sessions"].values():
        assert not session.exchanges
        assert not session.questions
        assert not session.listens
