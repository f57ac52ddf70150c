"""Random access rules, and random callers whose grants change with any request, against a plain reading of the rules.

Clients of both eras, on pipes, event pipes and HTTP, of several principals, call, get, read, subscribe, complete, list
and listen. Their servers are processes and URLs of both eras, some shared, and answer some time later. The model knows
the grants that came with each request, and checks that

- a request reaches a server only if these grants allow it, and reaches it then;
- what is hidden is answered exactly as what does not exist, and is in no list;
- what needs scopes is refused with all of them, and is listed;
- every answer belongs to the principal that asked.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

import pytest
from driving import GONE, NO_STREAM, SentMessage, driver, request
from isthmus.core.base.effects import Dial, Join, Listen, Spawn
from isthmus.core.base.events import Connected, EventPipeOpening, MessageOpening, PipeOpening, PostOpening
from isthmus.core.base.grants import Grants
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.plan import AccessRule, AccessRules, Kind, ServerPlan, Sharing
from isthmus.core.base.revisions import Era
from isthmus.core.wire.http.mcp_headers import headers_for
from stateless_driving import meta, refuse_discovery, respond
from stateless_server import grant

KINDS: Final = ("tools", "prompts", "resources")
NAMES: Final = {
    "tools": ("read", "write", "delete", "delete-all"),
    "prompts": ("plan", "review", "delete"),
    "resources": ("doc:a", "doc:b", "secret:a"),
}
PATTERNS: Final = {
    "tools": ("delete", "delete*", "w?ite", "*"),
    "prompts": ("plan", "[dr]e*", "*"),
    "resources": ("doc:a", "doc:*", "secret:*"),
}
GROUPS: Final = ("staff", "ops")
SCOPES: Final = ("run", "write")
ABLE: Final = {"tools": {}, "prompts": {}, "resources": {"subscribe": True}, "completions": {}}
LISTS: Final = {
    "tools/list": ("tools", "tools", "name"),
    "prompts/list": ("prompts", "prompts", "name"),
    "resources/list": ("resources", "resources", "uri"),
    "resources/templates/list": ("resources", "resourceTemplates", "uriTemplate"),
}
USES: Final = {
    "tools/call": ("tools", "name"),
    "prompts/get": ("prompts", "name"),
    "resources/read": ("resources", "uri"),
    "resources/subscribe": ("resources", "uri"),
    "completion/complete": ("prompts", "name"),
}
ALLOWED, NEEDS_SCOPES, HIDDEN = "allowed", "needs scopes", "hidden"
WAYS: Final = ("pipe", "events", "http", "modern pipe", "modern http", "modern http")


def some(rng: random.Random, names: tuple[str, ...]) -> frozenset[str]:
    return frozenset(name for name in names if rng.random() < 0.4)


def drawn_rules(rng: random.Random) -> AccessRules:
    def rule() -> AccessRule:
        return AccessRule(tuple(sorted(some(rng, SCOPES))), tuple(sorted(some(rng, GROUPS))))

    kinds = {kind: tuple((pattern, rule()) for pattern in PATTERNS[kind] if rng.random() < 0.7) for kind in KINDS}
    return AccessRules(AccessRule(tuple(sorted(some(rng, SCOPES)))) if rng.random() < 0.3 else AccessRule(), **kinds)


@dataclass
class Asked:
    """A request, with what is to become of it."""

    client: One
    method: str
    name: str
    grants: Grants
    verdict: str
    scopes: frozenset[str]
    has_arrived: bool = False


@dataclass(eq=False)
class One:
    """One client."""

    server: str
    principal: str
    way: str
    grants: Grants
    channel: ChannelId | None = None
    token: str = ""
    session: str | None = None

    @property
    def is_modern(self) -> bool:
        return self.way.startswith("modern")


class Storm:
    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        plans = []
        for number, kind in enumerate((Kind.PIPE, Kind.HTTP, Kind.PIPE)):
            era, sharing = rng.choice(list(Era)), Sharing.NONE if kind is Kind.HTTP else rng.choice(list(Sharing))
            plans.append(ServerPlan(id=f"s{number}", kind=kind, era=era, sharing=sharing, access=drawn_rules(rng)))
        self.plans = {plan.id: plan for plan in plans}
        self.world = driver(*plans, seed=seed)
        self.clients: list[One] = []
        self.asked: dict[tuple[ChannelId | None, int], Asked] = {}
        self.by_mark: dict[str, Asked] = {}
        self.started: set[ChannelId] = set()
        self.read: dict[ChannelId, int] = {}
        self.held: list[SentMessage] = []
        self.last = 0
        self.verdicts: list[str] = []
        for _ in range(6):
            self.join()

    # --- Clients ----------------------------------------------------------------------------------------------------

    def drawn_grants(self) -> Grants:
        return Grants(some(self.rng, SCOPES), some(self.rng, GROUPS))

    def join(self) -> None:
        rng, world = self.rng, self.world
        one = One(rng.choice(list(self.plans)), rng.choice(("ann", "bob")), rng.choice(WAYS), self.drawn_grants())
        self.clients.append(one)
        if one.way in ("pipe", "modern pipe"):
            one.channel = world.engine.new_channel()
            world.open(one.channel, PipeOpening(one.server, one.principal, "http://here", grants=one.grants))
        elif one.way == "events":
            one.channel = world.engine.new_channel()
            world.open(one.channel, EventPipeOpening(one.server, one.principal, "http://here", "/m", grants=one.grants))
            one.token = world.messages(one.channel)[0].decode().partition("sessionId=")[2]
            world.sent[one.channel].clear()
        if not one.is_modern:
            params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
            channel = self.say(one, request("0", "initialize", json.dumps(params)))
            self.serve_all()
            one.session = world.sent[channel][-1].session
            world.sent[channel].clear()
            self.say(one, b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
            self.serve_all()

    def say(self, one: One, message: bytes, method: str = "", params: Any = None) -> ChannelId:
        world = self.world
        if one.way in ("pipe", "modern pipe"):
            assert one.channel is not None
            world.send(one.channel, message)
            return one.channel
        channel = world.engine.new_channel()
        if one.way == "events":
            world.open(channel, MessageOpening(one.server, one.token, one.principal, grants=one.grants))
            if self.rng.random() < 0.3:  # the head of another POST comes before this body
                other = world.engine.new_channel()
                world.open(other, MessageOpening(one.server, one.token, one.principal, grants=self.drawn_grants()))
                world.end(other, GONE)
            world.send(channel, message)
            assert one.channel is not None
            return one.channel
        revision, mirrored = (None, ())
        if one.is_modern:
            revision, mirrored = "2026-07-28", headers_for(method, json.dumps(params).encode())
        world.open(
            channel,
            PostOpening(
                one.server,
                one.principal,
                one.session,
                revision,
                base_url="http://here",
                mirrored=mirrored,
                grants=one.grants,
            ),
        )
        world.send(channel, message)
        return channel

    def ask(self) -> None:
        rng = self.rng
        one = rng.choice(self.clients)
        if one.way not in ("pipe", "modern pipe") and rng.random() < 0.5:
            one.grants = self.drawn_grants()
        methods = [*LISTS, *USES, *USES, "tools/call"]
        if one.is_modern:
            methods = [method for method in methods if method != "resources/subscribe"]
        method = rng.choice(methods)
        self.last += 1
        kind = (LISTS.get(method) or USES[method])[0]
        name, params = "", {"_meta": {}}
        if method in USES:
            name = rng.choice(NAMES[kind])
            params = {USES[method][1]: name}
            if method == "completion/complete":
                params = {"ref": {"type": "ref/prompt", "name": name}, "argument": {"name": "a", "value": "b"}}
        verdict, scopes = (ALLOWED, frozenset()) if not name else self.judge(one.server, kind, name, one.grants)
        mark = f"{one.principal}-{self.last}"
        params["_meta"] = {"mark": mark} | (meta({}) if one.is_modern else {})
        asked = Asked(one, method, name, one.grants, verdict, scopes)
        self.by_mark[mark] = asked
        channel = self.say(one, request(str(self.last), method, json.dumps(params)), method, params)
        self.asked[channel, self.last] = asked

    def judge(self, server: str, kind: str, name: str, grants: Grants) -> tuple[str, frozenset[str]]:
        rules = self.plans[server].access
        assert rules is not None
        patterns: Any = getattr(rules, kind)
        found = next((rule for pattern, rule in patterns if fnmatchcase(name, pattern)), AccessRule())
        scopes = frozenset(rules.server.scopes) | frozenset(found.scopes)
        if found.groups and not grants.groups & set(found.groups):
            return HIDDEN, scopes
        return (ALLOWED if scopes <= grants.scopes else NEEDS_SCOPES), scopes

    # --- Servers ----------------------------------------------------------------------------------------------------

    def serve_all(self) -> None:
        """Lets servers start and answer, until nothing is left to do."""
        while self.pump() or self.held:
            while self.held:
                self.answer(self.held.pop(0))

    def pump(self) -> bool:
        """Starts servers, answers what is asked of them for themselves, and takes the requests of clients."""
        world, is_busy = self.world, False
        for dial in world.every(Dial):
            if dial.channel in self.started or dial.channel in world.over:
                continue
            if isinstance(dial.target, Spawn | Join):
                self.started.add(dial.channel)
                world.open(dial.channel, Connected())
                is_busy = True
            elif isinstance(dial.target, Listen):
                self.started.add(dial.channel)
                world.end(dial.channel, NO_STREAM)
                is_busy = True
        unread, world.unread = world.unread, []
        for received in unread:
            is_busy = True
            self.take(received)
        return is_busy

    def take(self, received: SentMessage) -> None:
        world, frame = self.world, received.frame
        method = frame.get("method")
        if method == "initialize":
            able = json.dumps({"protocolVersion": "2025-11-25", "capabilities": ABLE})
            world.answer(received, able, session="S" if received.post is not None else None)
        elif method == "server/discover":
            if self.server_of(received).era is Era.HANDSHAKE:
                world.unread.append(received)
                refuse_discovery(world)
            else:
                found = {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": ABLE}
                world.answer(received, json.dumps(found | {"ttlMs": 0, "cacheScope": "public"}))
        elif method == "subscriptions/listen":
            grant(world, received)
        elif "id" not in frame:
            world.acknowledge(received)
        else:
            mark = frame.get("params", {}).get("_meta", {}).get("mark")
            if mark is not None:
                asked = self.by_mark[mark]
                assert asked.verdict == ALLOWED, f"a server was sent what its caller may not: {asked}"
                assert not asked.has_arrived
                asked.has_arrived = True
            self.held.append(received)

    def server_of(self, received: SentMessage) -> ServerPlan:
        [dial] = [each for each in self.world.every(Dial) if each.channel == received.channel]
        return self.plans[dial.target.server]

    def answer(self, received: SentMessage) -> None:
        frame = received.frame
        method, params = frame["method"], frame.get("params", {})
        found: dict[str, Any] = {"content": [], "messages": [], "contents": [], "completion": {"values": []}}
        if method in LISTS:
            kind, array, key = LISTS[method]
            entries = [{key: name, "name": name, "inputSchema": {"type": "object"}} for name in NAMES[kind]]
            found = {array: entries}
            if self.server_of(received).era is Era.STATELESS:
                found |= {"ttlMs": 0, "cacheScope": "public"}
        else:
            keys = {"tools/call": "content", "prompts/get": "messages", "resources/read": "contents"}
            keys |= {"completion/complete": "completion"}
            key = keys.get(method, "")
            found = {key: found[key]} if key else {}
        mark = params.get("_meta", {}).get("mark")
        found["_meta"] = {"mark": mark}
        if self.server_of(received).era is Era.STATELESS:
            found["resultType"] = "complete"
        respond(self.world, received, json.dumps(found))

    # --- Answers ----------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Checks the answers that have come."""
        for channel in {channel for channel, _ in self.asked}:
            assert channel is not None
            messages = self.world.messages(channel)
            fresh, self.read[channel] = messages[self.read.get(channel, 0) :], len(messages)
            for frame in map(json.loads, fresh):
                if "method" not in frame:
                    self.settle(self.asked.pop((channel, frame["id"])), frame)
                else:
                    assert frame["method"].endswith("/list_changed"), frame

    def settle(self, asked: Asked, frame: dict[str, Any]) -> None:
        error, one = frame.get("error"), asked.client
        self.verdicts.append(asked.verdict if asked.name else "list")
        if asked.verdict == NEEDS_SCOPES:
            assert error is not None, asked
            assert error["code"] == -31009, (asked, error)
            assert error["data"]["scope"] == " ".join(sorted(asked.scopes)), asked
        elif asked.verdict == HIDDEN:
            assert error is not None, asked
            kind = USES[asked.method][0]
            is_uri = kind == "resources"
            wanted = f"Resource not found: {asked.name}" if is_uri else f"Unknown {kind[:-1]}: {asked.name}"
            assert error["message"] == wanted, (asked, error)
            assert "outcome" not in (error.get("data") or {}), asked
        else:
            assert error is None, (asked, error)
            if asked.method == "resources/subscribe":
                return  # the proxy may be subscribed already, or subscribes with a request of its own
            assert asked.has_arrived, asked
            mark = frame["result"]["_meta"]["mark"]
            assert self.by_mark[mark] is asked, "the answer is another's"
            assert mark.startswith(one.principal)
            if asked.method in LISTS:
                kind, array, key = LISTS[asked.method]
                names = [entry[key] for entry in frame["result"][array]]
                visible = [
                    name for name in NAMES[kind] if self.judge(one.server, kind, name, asked.grants)[0] != HIDDEN
                ]
                assert names == visible, asked
                assert frame["result"].get("cacheScope", "private") == "private"

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.ask()
            self.pump()
            while self.held and self.rng.random() < 0.6:
                self.answer(self.held.pop(self.rng.randrange(len(self.held))))
                self.pump()
            self.check()
        self.serve_all()
        self.world.wait(1.0)  # subscriptions with servers of the stateless era are asked for some moments later
        self.serve_all()
        self.check()
        assert not self.asked, f"not answered: {self.asked}"


@pytest.mark.parametrize("seed", range(12))
def test_each_request_is_judged_by_the_grants_that_came_with_it(seed: int) -> None:
    storm = Storm(seed)
    storm.run(150)
    assert len(storm.verdicts) == 150


def test_the_storms_meet_every_verdict() -> None:
    verdicts = []
    for seed in range(3):
        storm = Storm(seed)
        storm.run(60)
        verdicts += storm.verdicts
    assert {ALLOWED, NEEDS_SCOPES, HIDDEN, "list"} == set(verdicts)
