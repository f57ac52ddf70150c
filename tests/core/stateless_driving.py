"""Clients without sessions (2026-07-28) on top of `driving`: their requests say all, in the body and in headers.

Behind them are servers with sessions or without, which are played by hand as everywhere. `assert_empty` says whether an
engine has let go of everything.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from driving import GONE, LATEST, Client, Driver, Heard, driver, notification, request, result
from isthmus.core.base.effects import Connected, Headers, Join, PipeOpening, PostOpening, Spawn
from isthmus.core.base.effects import Listen as Get
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, ServerPlan
from isthmus.core.jsonrpc import envelope
from isthmus.core.state.context import Desk
from isthmus.core.state.link import FarewellRole, UpPostRole, UpStreamRole
from isthmus.core.state.upstream_session import State
from isthmus.core.wire.http.mcp_headers import headers_for

REVISION = "2026-07-28"
K = "io.modelcontextprotocol/"
ABLE: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
"""What a client declares that can be asked everything."""

FORM = '{"message":"Who?","requestedSchema":{"type":"object","properties":{}}}'
PROMPT = '{"messages":[],"maxTokens":1}'
QUESTIONS = {"elicitation/create": FORM, "sampling/createMessage": PROMPT, "roots/list": "{}"}
"""Of each question, params that can be asked."""

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
"""What a server declares that tells of everything."""


def meta(
    capabilities: dict[str, Any] | None = None, *, level: str | None = None, token: Any = None, revision: str = REVISION
) -> dict[str, Any]:
    """The `_meta` of a request."""
    said: dict[str, Any] = {
        K + "protocolVersion": revision,
        K + "clientCapabilities": ABLE if capabilities is None else capabilities,
        K + "clientInfo": {"name": "tester", "version": "1"},
    }
    if level is not None:
        said[K + "logLevel"] = level
    if token is not None:
        said["progressToken"] = token
    return said


@dataclass
class Modern:
    """A client without sessions, over HTTP or on a pipe.

    Attributes:
        capabilities: what it declares with each request.
        last_id: ids are counted from 1, for requests that name none.
    """

    driver: Driver
    server: str
    pipe: ChannelId | None = None
    principal: str = ""
    capabilities: dict[str, Any] = field(default_factory=lambda: dict(ABLE))
    headers: Headers = ()
    last_id: int = 0

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

    def request(self, method: str, *, takes_events: bool = True, **said: Any) -> ChannelId:
        """Say one request. Returns the channel that its answer comes on."""
        return self.send(self.body(method, **said), takes_events=takes_events)

    def call(self, name: str = "ask", arguments: dict[str, Any] | None = None, **said: Any) -> ChannelId:
        return self.request("tools/call", name=name, arguments={} if arguments is None else arguments, **said)

    def send(
        self,
        message: bytes,
        *,
        mirrored: Headers | None = None,
        revision: str | None = REVISION,
        session: str | None = None,
        takes_events: bool = True,
    ) -> ChannelId:
        """Say these bytes; over HTTP with the headers that belong to them, if no others are given."""
        if self.pipe is not None:
            self.driver.say(self.pipe, message)
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
        )
        self.driver.open(channel, opening)
        self.driver.say(channel, message)
        return channel

    def cancel(self, channel: ChannelId, id_raw: str = "1") -> None:
        """Want no answer: the stream is closed, or, on a pipe, the request cancelled by its id."""
        if self.pipe is not None:
            self.driver.say(self.pipe, notification("notifications/cancelled", f'{{"requestId":{id_raw}}}'))
        else:
            self.driver.end(channel, GONE)

    def answered(self, channel: ChannelId, id: Any = None) -> dict[str, Any]:
        """The answer on a channel: the only one there, or that to the request of this id."""
        found = [
            frame
            for frame in self.driver.frames(channel)
            if "method" not in frame and (id is None or (frame["id"] == id and type(frame["id"]) is type(id)))
        ]
        assert len(found) == 1, found
        return dict(found[0])

    def told(self, channel: ChannelId) -> list[dict[str, Any]]:
        """The notifications on a channel."""
        return [frame for frame in self.driver.frames(channel) if "method" in frame]


def modern(
    world: Driver,
    server: str,
    down: str = "http",
    *,
    principal: str = "",
    capabilities: dict[str, Any] | None = None,
) -> Modern:
    """A client that has said nothing yet. `down` is "pipe" or "http"."""
    client = Modern(world, server, principal=principal)
    if capabilities is not None:
        client.capabilities = capabilities
    if down == "pipe":
        client.pipe = world.engine.new_channel()
        world.open(client.pipe, PipeOpening(server, principal, "http://here"))
    return client


def beside(client: Modern) -> Client:
    """The same pipe, as a client that has sessions speaks on it."""
    assert client.pipe is not None
    return Client(client.driver, client.server, client.pipe, principal=client.principal)


def bridge(*servers: ServerPlan, limits: Limits | None = None, seed: int = 1, **plan: Any) -> Driver:
    """An engine with servers that are not asked which era they speak, unless others are given: "pipe" and "http"."""
    both = (ServerPlan(id="pipe", kind=Kind.PIPE), ServerPlan(id="http", kind=Kind.HTTP))
    return driver(*(servers or both), limits=limits, seed=seed, **plan)


# --- Servers ----------------------------------------------------------------------------------------------------------


def rise(
    world: Driver, *, capabilities: str = PUSHING, session: str = "S1", revision: str = LATEST
) -> ChannelId | None:
    """Be a server with sessions that starts because of a client without: it refuses `server/discover`, is dialled anew,
    and says its capabilities. Returns its GET stream, which is open, if it is one of HTTP."""
    if world.hears("server/discover") or not world.hears("initialize"):
        last = world.dials[-1]
        if isinstance(last.target, Spawn | Join):
            world.open(last.channel, Connected())
        if world.hears("server/discover"):
            refuse_discovery(world)
    if isinstance(world.dials[-1].target, Spawn | Join) and not world.hears("initialize"):
        world.open(world.dials[-1].channel, Connected())
    text = f'{{"protocolVersion":"{revision}","capabilities":{capabilities},"serverInfo":{{"name":"s","version":"1"}}}}'
    world.answer(world.hear("initialize"), text, session=session)
    world.acknowledge(world.hear("notifications/initialized"))
    gets = [dial for dial in world.dials if isinstance(dial.target, Get) and dial.channel not in world.over]
    if not gets:
        return None
    world.open(gets[-1].channel, Connected())
    return gets[-1].channel


def refuse_discovery(world: Driver) -> None:
    """Be a server that knows no `server/discover`."""
    probe = world.hear("server/discover")
    message = f'{{"jsonrpc":"2.0","id":{probe.id},"error":{{"code":-32601,"message":"Method not found"}}}}'.encode()
    if probe.post is None:
        world.say(probe.channel, message)
        if probe.channel in world.closed:  # it was dialled anew
            world.heard = [heard for heard in world.heard if heard.channel != probe.channel]
            world.engine.receive_close(probe.channel, GONE, world.now)
    else:
        world.reply(probe, message)


def emerge(world: Driver, *, capabilities: str = PUSHING) -> None:
    """Be a server without sessions that starts."""
    last = world.dials[-1]
    if isinstance(last.target, Spawn | Join):
        world.open(last.channel, Connected())
    text = (
        f'{{"resultType":"complete","supportedVersions":["{REVISION}"],"capabilities":{capabilities},'
        f'"ttlMs":0,"cacheScope":"private","_meta":{{"{K}serverInfo":{{"name":"s","version":"1"}}}}}}'
    )
    world.answer(world.hear("server/discover"), text)


def ask(world: Driver, heard: Heard, method: str = "elicitation/create", id_raw: str = '"q"', params: str = "") -> None:
    """Be a server that asks in the course of a call: on its stream, which is opened for that."""
    speak(world, heard, request(id_raw, method, params or QUESTIONS[method]))


def speak(world: Driver, heard: Heard, message: bytes) -> None:
    """Be a server that says something in the course of a call."""
    if heard.post is not None and heard.channel not in world.over:
        world.open(heard.channel, Connected())
    world.say(heard.channel, message)


def collect(world: Driver) -> None:
    """Let the time pass in which more questions are waited for."""
    world.wait(world.engine._desk.limits.collect_s)


def rounds(client: Modern, channel: ChannelId, id: Any = None) -> tuple[dict[str, Any], str]:
    """The questions that a request was answered with, and the state to bring back."""
    answer = client.answered(channel, id)["result"]
    assert answer["resultType"] == "input_required"
    return answer["inputRequests"], answer["requestState"]


def parked(
    world: Driver, client: Modern, method: str = "elicitation/create", asked: str = '"q"', **said: Any
) -> tuple[Heard, dict[str, Any], str]:
    """A call that its server, which is ready, has asked something for, under the id `asked`. Returns the call, the
    questions and the state."""
    channel = client.call(**said)
    heard = world.hear("tools/call")
    ask(world, heard, method, asked)
    collect(world)
    questions, state = rounds(client, channel, client.last_id)
    return heard, questions, state


def served(
    up: str = "pipe", down: str = "http", *, limits: Limits | None = None, capabilities: str = PUSHING, **plan: Any
) -> tuple[Driver, Modern, ChannelId | None]:
    """A client and a server with sessions that is ready, and its GET stream if it has one."""
    world = bridge(limits=limits, **plan)
    client = modern(world, up, down)
    channel = client.request("server/discover")
    stream = rise(world, capabilities=capabilities)
    assert client.answered(channel)["result"]["supportedVersions"] == [REVISION]
    world.sent[channel].clear()
    client.last_id = 0
    return world, client, stream


def give(world: Driver, heard: Heard, text: str = '{"content":[]}') -> None:
    """Answer a call whose stream may be open already."""
    speak(world, heard, result(str(heard.id), text))
    if heard.post is not None and heard.channel not in world.over:
        world.end(heard.channel)


# --- What is left -----------------------------------------------------------------------------------------------------


def settle(world: Driver) -> None:
    """Let every channel be gone that the engine has ended, and every POST that needs no answer be taken."""
    desk: Desk = world.engine._desk
    while found := [channel for channel, role in desk.channels() if not desk.is_open(channel) or _is_notice(role)]:
        for channel in found:
            world.end(channel)


def _is_notice(role: object) -> bool:
    """What a server does by itself: it takes what needs no answer, and ends the stream of a session that is over."""
    if isinstance(role, UpStreamRole):
        return role.link.upstream.state is State.CLOSED
    return isinstance(role, FarewellRole) or (isinstance(role, UpPostRole) and role.number is None)


def tables(engine: Any) -> dict[str, Any]:
    """All that an engine keeps of calls, clients and servers, by the name of its table."""
    servers, legwork = engine._servers, engine._legwork
    links = list(servers.links.values())
    return {
        "sessions": engine._clients.sessions,
        "by_sid": engine._clients._by_sid,
        "by_affinity": engine._stateless._by_affinity,
        "parks": legwork.parking._by_id,
        "visits": legwork.visits._waiting,
        "visits done": legwork.visits._done,
        "deferred": {sid: waiting for sid, waiting in legwork.deferring._waiting.items() if waiting},
        "rounds": [e for s in engine._clients.sessions.values() for e in s.exchanges.values() if e.round is not None],
        "links": links,
        "links by session": servers.by_sid,
        "timers": engine._desk.timers._live,
        "pending": [entry for link in links for entry in link.pending.values()],
        "queues": [entry for link in links for entry in link.queue],
        "learning": [entry for link in links for entry in link.learning + link.subscribing],
        "streams": [*engine._streams._over, *engine._streams._fed, *engine._streams._silent],
        "storage": engine._waiting._thens,
        "paused": engine._desk._paused,
    }


def assert_empty(world: Driver, *but: str) -> None:
    """Nothing is left of anybody: no session, link, timer, channel, nor an entry in any table."""
    settle(world)
    left = {name: table for name, table in tables(world.engine).items() if table and name not in but}
    assert not left, left
    if "channels" not in but:
        assert not world.engine._desk.channels()


def assert_idle(world: Driver) -> None:
    """Sessions and their servers may go on, but nothing is under way: no request, question, park or timer but those of
    idleness."""
    settle(world)
    state = tables(world.engine)
    for name in ("parks", "visits", "deferred", "rounds", "pending", "queues", "learning", "streams"):
        assert not state[name], (name, state[name])
    timers = {purpose for purpose, _ in state["timers"]}
    assert timers <= {"idle", "linger", "rest"}, timers
    for session in state["sessions"].values():
        assert not session.exchanges
        assert not session.asks
        assert not session.listens
