"""Tests with random peers of both eras, which send messages and leave in any order that a seed gives.

Nothing raises, no request is answered twice, and once all peers are gone no state is left.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import pytest
from driving import Driver, SentMessage, driver
from inside import Inside
from isthmus.core.base.effects import Delete, Dial, Post, Send
from isthmus.core.base.effects import Listen as Get
from isthmus.core.base.errors import RemoteProtocolError
from isthmus.core.base.events import (
    Cause,
    Connected,
    DeleteOpening,
    End,
    GetOpening,
    Headers,
    PipeOpening,
    PostOpening,
    Primed,
)
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Affinity, Kind, ServerPlan, Sharing
from isthmus.core.base.revisions import LATEST_MODERN, LEGACY, Era
from isthmus.core.status import Command
from isthmus.core.wire.http.mcp_headers import headers_for
from stateless_driving import ABLE, ANSWERS, QUESTIONS, K, assert_empty

SEEDS = range(12)
STEPS = 250

SERVERS = (
    ServerPlan(id="pipe", kind=Kind.PIPE),
    ServerPlan(id="http", kind=Kind.HTTP, may_fall_back=True),
    ServerPlan(id="modern pipe", kind=Kind.PIPE, era=Era.STATELESS),
    ServerPlan(id="modern http", kind=Kind.HTTP, era=Era.STATELESS),
    ServerPlan(id="shared", kind=Kind.PIPE, sharing=Sharing.CONCURRENT, idle_stop_s=20.0),
    ServerPlan(id="serial", kind=Kind.SOCKET, sharing=Sharing.SERIAL),
)

LIMITS = Limits(
    suspended_calls_per_session_max=3,
    suspended_calls_max=5,
    listens_per_session_max=3,
    subscriptions_per_session_max=4,
    questions_per_session_max=6,
    exchanges_per_session_max=12,
    held_per_session_max=3,
    rounds_max=4,
    suspended_call_ttl_s=40.0,
    suspended_call_logs_max=2,
    session_idle_ttl_s=90.0,
    reply_timeout_s=120.0,
    question_timeout_s=60.0,
    server_era_ttl_s=100.0,
)
"""Small limits, so that a short run reaches them."""

ODD = (
    *("null", "true", "0", "-1", "1.5", "1e400", "12345678901234567890", '""', '"x"', '"\\ud800"', '"r1"', "[]", "{}"),
    *("[1]", '{"a":1,"a":2}', "[" * 300 + "]" * 300, json.dumps("v" * 6000), json.dumps("\0" * 300), '"2026-07-28"'),
)
"""JSON that stands where something else is expected."""

METHODS = (
    *("tools/call",) * 6,
    *("tools/list", "prompts/get", "resources/read", "prompts/list", "completion/complete", "ping"),
    *("server/discover", "subscriptions/listen", "subscriptions/listen", "resources/subscribe"),
    *("resources/unsubscribe", "logging/setLevel", "tasks/get", "vendor/x"),
)
NOTIFICATIONS = (
    *("notifications/progress", "notifications/message", "notifications/cancelled", "notifications/vendor"),
    *("notifications/tools/list_changed", "notifications/resources/updated", "notifications/elicitation/complete"),
    *("notifications/subscriptions/acknowledged", "notifications/resources/list_changed"),
)
ENDS = (
    *(Cause(End.DONE), Cause(End.GONE), Cause(End.BROKEN, "died"), Cause(End.UNREACHABLE), Cause(End.TIMED_OUT)),
    *(Cause(End.BROKEN, stale=True), Cause(End.BROKEN, unsent=True), Cause(End.DONE, last_event_id="7", retry_ms=5)),
    *(Cause(End.REFUSED, status=status) for status in (400, 401, 404, 405, 500, 503, 204)),
)
CAPABILITIES = {
    "tools": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
    "prompts": {},
    "logging": {},
}
TOOL = {"name": "t", "inputSchema": {"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": "A"}}}}


class RandomPeers:
    """One engine with random clients and servers.

    Attributes:
        odd: the probability that a value of the next message is another, or that a member stands twice.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.servers = [server.id for server in self.rng.sample(SERVERS, 2)]
        affinity = self.rng.choice(list(Affinity))
        self.world: Driver = driver(*SERVERS, limits=LIMITS, seed=seed, affinity=affinity)
        self.pipes: list[tuple[ChannelId, str]] = []
        self.sessions: list[tuple[str, str]] = []  # server and id
        self.states: list[tuple[str, dict[str, Any], list[str]]] = []  # requests to retry, keys of answers
        self.asked: list[tuple[ChannelId, Any, str]] = []  # questions on pipes: channel, id and method
        self.connected: set[ChannelId] = set()
        self.received: list[SentMessage] = []
        self.last_id = 0
        self.odd = 0.0

    # --- Texts ------------------------------------------------------------------------------------------------------

    def text(self, value: Any) -> str:
        """Returns the JSON of a value, with random faults."""
        if self.rng.random() < self.odd:
            return self.rng.choice(ODD)
        if isinstance(value, dict):
            parts = [f"{json.dumps(key)}:{self.text(member)}" for key, member in value.items()]
            if parts and self.rng.random() < self.odd:
                parts.append(self.rng.choice(parts))
            return "{" + ",".join(parts) + "}"
        if isinstance(value, list):
            return "[" + ",".join(map(self.text, value)) + "]"
        return json.dumps(value)

    def message(self, **members: Any) -> bytes:
        """Returns one message, whose envelope is mostly valid."""
        self.odd = self.rng.choice((0.0, 0.0, 0.0, 0.03, 0.2))
        if self.rng.random() < 0.02:
            return self.text(members).encode()
        parts = ['"jsonrpc":"2.0"']
        for name, value in members.items():
            is_envelope = name in ("id", "method")
            parts.append(f'"{name}":{json.dumps(value) if is_envelope else self.text(value)}')
        return ("{" + ",".join(parts) + "}").encode()

    # --- Clients ----------------------------------------------------------------------------------------------------

    def id(self) -> Any:
        self.last_id += 1
        return self.rng.choice((self.last_id, f"s{self.last_id}"))

    def params(self, method: str) -> dict[str, Any]:
        rng = self.rng
        uri = rng.choice(("a:b", "a:c", "a:b/d", "e:f"))
        filter = {"toolsListChanged": rng.random() < 0.5, "resourceSubscriptions": [uri]}
        found: dict[str, dict[str, Any]] = {
            "tools/call": {"name": rng.choice("tu"), "arguments": {"a": "x"}},
            "resources/read": {"uri": uri},
            "resources/subscribe": {"uri": uri},
            "resources/unsubscribe": {"uri": uri},
            "logging/setLevel": {"level": rng.choice(("debug", "error"))},
            "subscriptions/listen": {"notifications": filter},
            "prompts/get": {"name": "p"},
        }
        return dict(found.get(method, {}))

    def meta(self) -> dict[str, Any]:
        rng = self.rng
        meta: dict[str, Any] = {
            K + "protocolVersion": LATEST_MODERN if rng.random() < 0.97 else rng.choice(["2027-01-01", "2025-11-25"]),
            K + "clientCapabilities": rng.choice((ABLE, ABLE, ABLE, {}, {"roots": {}})),
        }
        if rng.random() < 0.4:
            meta[K + "logLevel"] = rng.choice(("debug", "info", "emergency"))
        if rng.random() < 0.4:
            meta["progressToken"] = rng.choice((1, "t", 7))
        return meta

    def modern_request(self, server: str) -> tuple[str, bytes, str]:
        """Returns a request of the stateless era: its method, its bytes, and the id of its server."""
        method = self.rng.choice(METHODS)
        params = self.params(method)
        if self.states and self.rng.random() < 0.5:
            server, params, keys = self.rng.choice(self.states[-8:])
            method = params["method"]
            params = {name: value for name, value in params.items() if name != "method"}
            kept = [key for key in keys if self.rng.random() < 0.8]
            params["inputResponses"] = {key.partition(" ")[0]: ANSWERS[key.partition(" ")[2]] for key in kept}
            if self.rng.random() < 0.1:
                params["requestState"] = self.rng.choice(("theirs", "ist1.x.y", params["requestState"][:-1] + "A"))
        elif self.rng.random() < 0.05:
            params["requestState"] = "theirs"
        params["_meta"] = self.meta()
        return method, self.message(id=self.id(), method=method, params=params), server

    def legacy_message(self) -> bytes:
        rng = self.rng
        kind = rng.random()
        if kind < 0.1:
            return self.initialize()
        if kind < 0.2:
            return self.message(method="notifications/initialized")
        if kind < 0.25:
            return self.message(
                method="notifications/cancelled", params={"requestId": rng.randint(1, self.last_id + 1)}
            )
        if kind < 0.35:
            answer = rng.choice([*ANSWERS.values(), {}])
            if rng.random() < 0.3:
                return self.message(id=rng.randint(1, 6), error={"code": -1, "message": "no"})
            return self.message(id=rng.randint(1, 6), result=answer)
        method = rng.choice(METHODS)
        return self.message(id=self.id(), method=method, params=self.params(method))

    def initialize(self) -> bytes:
        revision = self.rng.choice([*LEGACY, "2025-11-25", "2025-11-25", "2024-01-01"])
        able = self.rng.choice((ABLE, ABLE, ABLE, {}))
        opening = {"protocolVersion": revision, "capabilities": able, "clientInfo": {"name": "c"}}
        return self.message(id=self.id(), method="initialize", params=opening)

    def step_client(self) -> None:
        rng, world = self.rng, self.world
        if self.asked and rng.random() < 0.4:
            channel, id, method = self.asked.pop(rng.randrange(len(self.asked)))
            if channel not in world.over:
                world.send(channel, self.message(id=id, result=ANSWERS.get(method, {})))
            return
        self.pipes = [(channel, server) for channel, server in self.pipes if channel not in world.over]
        server = rng.choice(self.servers)
        if rng.random() < 0.08 or not self.pipes:
            channel = world.engine.new_channel()
            world.open(channel, PipeOpening(server, rng.choice(("", "ann")), "http://here"))
            self.pipes.append((channel, server))
            if rng.random() < 0.6:
                world.send(channel, self.initialize())
                world.send(channel, self.message(method="notifications/initialized"))
        elif rng.random() < 0.03:
            self.hang_up(rng.choice(self.pipes)[0])
        elif rng.random() < 0.5:
            channel, server = rng.choice(self.pipes)
            if rng.random() < 0.6:
                world.send(channel, self.modern_request(server)[1])
            else:
                world.send(channel, self.legacy_message())
        elif rng.random() < 0.7:
            method, body, server = self.modern_request(server)
            try:
                mirrored = headers_for(method, json.dumps(json.loads(body).get("params")).encode())
            except (RemoteProtocolError, ValueError, AttributeError, RecursionError):
                mirrored = ()
            self.post(server, body, LATEST_MODERN, None, mirrored)
        else:
            if self.sessions and rng.random() < 0.8:
                server, session = rng.choice(self.sessions[-4:])
            else:
                session = None
            opening = rng.random()
            channel = world.engine.new_channel()
            if session is not None and opening < 0.15:
                world.open(channel, GetOpening(server, "", session))
            elif session is not None and opening < 0.2:
                world.open(channel, DeleteOpening(server, "", session))
            else:
                self.post(server, self.legacy_message(), None, session, ())
        posts = [channel for channel in world.sent if channel not in world.over and channel not in world.children]
        if posts and rng.random() < 0.05:
            self.hang_up(rng.choice(posts))

    def post(self, server: str, body: bytes, revision: str | None, session: str | None, mirrored: Headers) -> None:
        world = self.world
        channel = world.engine.new_channel()
        opening = PostOpening(
            server=server,
            session=session,
            revision=revision,
            accepts_events=self.rng.random() < 0.9,
            base_url="http://here",
            mirrored=mirrored,
        )
        world.open(channel, opening)
        world.send(channel, body)
        if channel not in world.over and self.rng.random() < 0.1:
            self.hang_up(channel)

    def hang_up(self, channel: ChannelId) -> None:
        if channel not in self.world.over:
            self.world.end(channel, Cause(End.GONE))

    # --- Servers ----------------------------------------------------------------------------------------------------

    def open_dials(self) -> list[Dial]:
        return [dial for dial in self.world.dials if dial.channel not in self.world.over]

    def step_server(self) -> None:
        rng, world = self.rng, self.world
        self.received += world.unread
        world.unread.clear()
        self.received = [received for received in self.received[-60:] if received.channel not in world.over]
        dials = self.open_dials()
        fresh = [dial for dial in dials if dial.channel not in self.connected]
        if fresh and rng.random() < 0.5:
            dial = rng.choice(fresh)
            if rng.random() < 0.05:
                self.end(dial.channel)
            elif not isinstance(dial.target, Delete):
                self.connect(dial)
        elif self.received and rng.random() < 0.75:
            self.answer(self.received.pop(rng.randrange(len(self.received))))
        elif dials and rng.random() < 0.85:
            dial = rng.choice(dials)
            if not isinstance(dial.target, Delete):
                self.connect(dial)
                self.speak(dial.channel)
        elif dials:
            self.end(rng.choice(dials).channel)

    def connect(self, dial: Dial) -> None:
        if dial.channel not in self.connected:
            self.connected.add(dial.channel)
            session = "S" if self.rng.random() < 0.7 else None
            self.world.open(dial.channel, Connected(session=session))
            if isinstance(dial.target, Get | Post) and self.rng.random() < 0.1:
                self.world.open(dial.channel, Primed())

    def end(self, channel: ChannelId) -> None:
        cause = self.rng.choice(ENDS)
        if cause.status and self.rng.random() < 0.6:
            code = self.rng.choice((-32601, -32022, -32020, -32021, -32600, -32602, -32042, 5))
            body = self.message(id=None, error={"code": code, "message": "no", "data": {"supported": [LATEST_MODERN]}})
            cause = Cause(End.REFUSED, status=cause.status, body=body)
        self.world.end(channel, cause)

    def speak(self, channel: ChannelId, number: int | None = None) -> None:
        """Sends a message of a server, of its own or about one of its requests."""
        rng = self.rng
        number = number or rng.randint(1, 12)
        if rng.random() < 0.5:
            method = rng.choice([*QUESTIONS, *QUESTIONS, "ping", "vendor/ask"])
            params = json.loads(QUESTIONS.get(method, "{}"))
            if rng.random() < 0.5:
                params["_meta"] = {"progressToken": number}
            message = self.message(id=rng.choice((number, f"q{rng.random()}")), method=method, params=params)
        else:
            params = {"progressToken": number, "progress": 1, "level": "info", "requestId": number, "uri": "a:b/x"}
            params |= {"elicitationId": "v1", "_meta": {K + "subscriptionId": number}}
            params["notifications"] = {"toolsListChanged": True, "resourceSubscriptions": ["a:b"]}
            message = self.message(method=rng.choice(NOTIFICATIONS), params=params)
        self.world.send(channel, message)

    def answer(self, received: SentMessage) -> None:
        rng, world = self.rng, self.world
        frame = json.loads(received.raw)
        if received.post is not None and ("id" not in frame or "method" not in frame or rng.random() < 0.1):
            self.end(received.channel)
            return
        if "id" not in frame or "method" not in frame:
            return
        dial = self.dial_of(received.channel)
        self.connect(dial)
        for _ in range(rng.choice((0, 0, 1, 2))):
            self.speak(received.channel, number=frame["id"])
            if rng.random() < 0.5:
                self.received.append(received)  # it is answered later
                return
        if frame["method"] == "subscriptions/listen" and rng.random() < 0.8:
            asked = frame.get("params")
            filter = asked.get("notifications") if isinstance(asked, dict) else None
            params = {"notifications": filter, "_meta": {K + "subscriptionId": frame["id"]}}
            world.send(received.channel, self.message(method="notifications/subscriptions/acknowledged", params=params))
            return
        is_legacy = dial.target.server not in ("modern pipe", "modern http") and frame["method"] == "server/discover"
        if is_legacy and rng.random() < 0.85:
            message = self.message(id=frame["id"], error={"code": -32601, "message": "no"})
        elif rng.random() < 0.12:
            code = rng.choice((-32601, -32602, -32022, -32020, -32021, -32042, -32002, 1))
            pages = [{"mode": "url", "message": "m", "url": "http://x", "elicitationId": rng.choice(("v1", "v2"))}]
            data = {"elicitations": pages, "supported": [rng.choice((LATEST_MODERN, "2025-11-25"))]}
            error = {"code": code, "message": "no", "data": data}
            message = self.message(id=frame["id"], error=error)
        else:
            message = self.message(id=frame["id"], result=self.result(frame["method"]))
        if received.channel in world.over:
            return
        world.send(received.channel, message)
        if received.post is not None and received.channel not in world.over and rng.random() < 0.9:
            world.end(received.channel)

    def dial_of(self, channel: ChannelId) -> Dial:
        return next(dial for dial in self.world.dials if dial.channel == channel)

    def result(self, method: str) -> dict[str, Any]:
        rng = self.rng
        common = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
        if method == "initialize":
            return {"protocolVersion": rng.choice([*LEGACY]), "capabilities": CAPABILITIES, "serverInfo": {"name": "s"}}
        if method == "server/discover":
            return {"supportedVersions": [LATEST_MODERN], "capabilities": CAPABILITIES, **common}
        if method == "tools/list":
            cursor = {"nextCursor": "c"} if rng.random() < 0.3 else {}
            return {"tools": [TOOL], **common, **cursor}
        if method in ("tools/call", "prompts/get", "resources/read") and rng.random() < 0.4:
            asked = {f"k{n}": {"method": m, "params": json.loads(QUESTIONS[m])} for n, m in enumerate(QUESTIONS)}
            questions = {key: one for key, one in asked.items() if rng.random() < 0.6}
            return {"resultType": "input_required", "inputRequests": questions, "requestState": "theirs"}
        return {"content": [{"type": "text", "text": "x"}], "structuredContent": 1, **common}

    # --- Checks -----------------------------------------------------------------------------------------------------

    def remember(self, seen: int) -> int:
        """Records what clients can use later: sessions, and questions with their `requestState`."""
        for effect in self.world.log[seen:]:
            if not isinstance(effect, Send) or effect.channel in self.world.children or not effect.message:
                continue
            if effect.session is not None:
                session = Inside(self.world.engine).sessions.sessions.get(effect.session)
                if session is not None:
                    self.sessions.append((session.server, effect.session))
            if b'"method"' in effect.message[:60] and b'"id"' in effect.message[:30]:
                frame = json.loads(effect.message)
                if any(effect.channel == channel for channel, _ in self.pipes):
                    self.asked.append((effect.channel, frame["id"], frame["method"]))
            if b'"input_required"' in effect.message and b"ist1." in effect.message:
                self._keep(effect)
        return len(self.world.log)

    def _keep(self, effect: Send) -> None:
        result = json.loads(effect.message)["result"]
        state, stateless_responder = result["requestState"], Inside(self.world.engine).questions
        keys = [f"{key} {entry['method']}" for key, entry in result["inputRequests"].items()]
        for session, exchange in stateless_responder.suspended_calls._by_id.values():
            if exchange.said is not None and exchange.suspended_call is not None:
                params = json.loads(exchange.said)
                params.pop("_meta", None)
                self.states.append((session.server, {**params, "method": exchange.method, "requestState": state}, keys))
        params = {"method": "tools/call", "name": self.rng.choice("tu"), "arguments": {"a": "x"}, "requestState": state}
        self.states.append((self.rng.choice(self.servers), params, keys))

    def assert_answered_once(self) -> None:
        answers: Counter[tuple[ChannelId, str]] = Counter()
        for channel, sends in self.world.sent.items():
            if channel in self.world.children:
                continue
            for send in sends:
                if send.event != "message":
                    continue
                frame = json.loads(send.message)
                for one in frame if isinstance(frame, list) else [frame]:
                    if "method" not in one and one.get("id") is not None:
                        answers[channel, json.dumps(one["id"])] += 1
        twice = {key: count for key, count in answers.items() if count > 1}
        assert not twice, twice

    def run(self, steps: int) -> None:
        rng, world = self.rng, self.world
        seen = 0
        for _ in range(steps):
            kind = rng.random()
            if kind < 0.45:
                self.step_client()
            elif kind < 0.9:
                self.step_server()
            elif kind < 0.99:
                world.wait(rng.choice((0.0, 0.02, 0.05, 0.5, 2.0, 11.0, 45.0)))
            elif rng.random() < 0.3:
                server, command = rng.choice(self.servers), rng.choice(list(Command))
                world._note(world.engine.receive_command(server, command, world.now))
                world._note(world.engine.receive_command(server, Command.START, world.now))
            seen = self.remember(seen)
        if rng.random() < 0.3:
            world._note(world.engine.receive_drain(world.now))
        if rng.random() < 0.3:
            world.stop()
        for channel, _ in Inside(world.engine).context.channels():
            if channel not in world.over:
                world.end(channel, Cause(End.GONE))
        for server in SERVERS:
            world._note(world.engine.receive_command(server.id, Command.STOP, world.now))
        self.assert_answered_once()


@pytest.mark.parametrize("seed", SEEDS)
def test_random_peers_leave_nothing(seed: int) -> None:
    peers = RandomPeers(seed)
    peers.run(STEPS)
    for _ in range(40):
        peers.world.wait(30.0)
        for dial in peers.open_dials():
            peers.world.end(dial.channel, Cause(End.UNREACHABLE))
    peers.assert_answered_once()
    assert_empty(peers.world)
