"""Two engines that get the same conversation, one of them in another way: their effects and deadlines are compared."""

from __future__ import annotations

import json
from random import Random
from typing import Any, Final

from hypothesis import strategies as st
from inside import Inside
from isthmus.core.base.effects import Dial, Effect, Post, Send, Spawn
from isthmus.core.base.errors import RemoteProtocolError
from isthmus.core.base.events import Cause, Connected, DeleteOpening, End, PostOpening
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, Plan, Profile, ProfileServer, ServerPlan
from isthmus.core.base.revisions import Era
from isthmus.core.base.telemetry import Detail, Tracing
from isthmus.core.bulk import BulkEngine
from isthmus.core.wire.http.mcp_headers import headers_for

DONE: Final = Cause(End.DONE)
REVISION: Final = "2025-11-25"
MODERN: Final = "2026-07-28"
K: Final = "io.modelcontextprotocol/"
NAME: Final = {"name": "s", "version": "1"}
ABLE: Final = {"tools": {}, "logging": {}}
HELLO: Final = {"protocolVersion": REVISION, "capabilities": ABLE, "serverInfo": NAME}
DISCOVERED: Final = {
    "supportedVersions": [MODERN],
    "capabilities": ABLE,
    "resultType": "complete",
    "ttlMs": 0,
    "cacheScope": "private",
    "_meta": {K + "serverInfo": NAME},
}
TOOLS: Final = {
    "tools": [
        {"name": "echo", "inputSchema": {"type": "object"}},
        {
            "name": "routed",
            "inputSchema": {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}},
        },
        {"name": "listing", "inputSchema": {"type": "object"}, "outputSchema": {"type": "array"}},
    ]
}
KNOWN: Final[dict[Era, dict[str, dict[str, Any]]]] = {
    Era.HANDSHAKE: {"initialize": HELLO, "tools/list": TOOLS},
    Era.STATELESS: {"server/discover": DISCOVERED, "tools/list": TOOLS},
}
INITIALIZE: Final = {"protocolVersion": REVISION, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
UNKNOWN: Final = b'"error":{"code":-32601,"message":"Method not found"}}'
LIMITS: Final = Limits(exchanges_per_session_max=3, reply_timeout_s=30.0, outbox_low_bytes=2000, outbox_high_bytes=4000)

PARAMS: Final = (
    b'{"name":"echo","arguments":{"text":"a"}}',
    b'{"name":"echo","_meta":{"progressToken":7}}',
    b'{"name":"echo","_meta":{"com.example/trace":1}}',
    b'{"_meta":{},"name":"echo"}',
    b'{"name":"echo","task":{"ttl":1000}}',
    b'{"name":"\\u0065cho"}',
    '{"name":"écho"}'.encode(),
    b'{"name":"a multitask"}',
    b'{"name":"echo","name":"routed"}',
    b'{"name": "echo", "arguments": {}}',
    b'{"name":"routed","arguments":{"region":"west"}}',
    b'{"name":"listing"}',
    b'{"name":7}',
    b'{"uri":"a:b"}',
    b"{}",
    b"[1]",
)
ANSWERS: Final = (
    b'{"jsonrpc":"2.0","id":%d,"result":{"content":[]}}',
    b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"a"}],"resultType":"complete"}}',
    b'{"jsonrpc":"2.0","id":%d,"result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{}}}}',
    b'{"jsonrpc":"2.0","id":%d,"result":{"_meta":{"io.modelcontextprotocol/serverInfo":{},"a":1},"content":[]}}',
    b'{"jsonrpc":"2.0","id":%d,"result":{"_meta":{"a":1,"a":2},"content":[],"resultType":"complete"}}',
    b'{"jsonrpc":"2.0","id":%d,"result":{"content":[],"ttlMs":5,"cacheScope":"public"}}',
    b'{"jsonrpc":"2.0","id":%d,"result":{"content":[],"structuredContent":{"a":1},"isError":false}}',
    b'{"jsonrpc":"2.0","id":%d,"result":{"content":[],"structuredContent":[1]}}',
    b'{"jsonrpc":"2.0","id":%d,"result":{"content":[],"structuredContent":null}}',
    b'{"jsonrpc":"2.0","id":%d,"result":{"content":null}}',
    b'{"jsonrpc":"2.0","id":%d,"result":{"content":[],"content":[]}}',
    b'{"jsonrpc":"2.0","id":%d,"result":{"content": [] }}',
    b'{"jsonrpc":"2.0","id":%d,"result":{}}',
    b'{"jsonrpc":"2.0","id":%d,"result":{"resultType":"other","content":[]}}',
    b'{"jsonrpc":"2.0","id":%d,"result":{"resultType":"input_required","requestState":"x"}}',
    b'{"jsonrpc":"2.0","id":%d,"result":{"resultType":"task","taskId":"t","status":"working"}}',
    b'{"jsonrpc":"2.0", "id":"%d","result":{"content":[]}}',
    b'{"jsonrpc":"2.0","id":%d,"result":{"_meta":{"traceparent":"00-0-0-00"},"content":[]}}',
    b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"audio","_meta":{"dev.isthmus/original":{}}}]}}',
    b'{"jsonrpc":"2.0","id":%d,"result":{"text":"' + b"x" * 5000 + b'"}}',
    b'{"jsonrpc":"2.0","id":%d,"result":[]}',
    b'{"jsonrpc":"2.0","id":%d,"error":{"code":-32602,"message":"no"}}',
    b'\xef\xbb\xbf{"jsonrpc":"2.0","id":%d,"result":{}}',
    b'[{"jsonrpc":"2.0","id":%d,"result":{}}]',
    b'{"jsonrpc":"2.0","id":99%d,"result":{}}',
    b'{"jsonrpc":"2.0","id":%d,"result":{}',
    b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":%d}}',
)
METHODS: Final = (
    "tools/call",
    "tools/list",
    "prompts/get",
    "resources/read",
    "completion/complete",
    "ping",
    "notifications/tools/list_changed",
)
SENDERS: Final = (
    {},
    {"capabilities": {"roots": {}, "sampling": {}}},
    {"capabilities": {"extensions": {K + "tasks": {}}}},
    {"level": "info"},
    {"revision": "2099-01-01"},
    {"beside": {"com.example/trace": 1}},
    {"token": 5},
)
"""Members of `_meta` that a client of the stateless era may send."""
ODD_HEADERS: Final = (None, "method", "name", "none", "revision", "more")
"""Ways in which the headers of such a client may be wrong."""


class Half:
    """One of two engines that get the same inputs. `alias`: that of the server in a profile; None: there is none."""

    def __init__(
        self, server: ServerPlan, alias: str | None, *, is_fast: bool, emits: bool, tracing: Tracing | None
    ) -> None:
        random = Random(1)
        telemetry = Detail.STEPS if emits else Detail.NONE
        plan = Plan(servers=(server,), telemetry=telemetry, tracing=tracing)
        if alias is not None:
            servers = ProfileServer(id="s", alias=alias), ProfileServer(id="other")
            other = ServerPlan(id="other", kind=Kind.PIPE)
            profile = Profile(id="all", servers=servers)
            plan = Plan(servers=(*plan.servers, other), profiles=(profile,), telemetry=telemetry, tracing=tracing)
        self.engine = BulkEngine(plan, entropy=random.randbytes, unix_at_zero=1.7e9, limits=LIMITS)
        self.taken = 0
        fast_path: Any = Inside(self.engine).fast_path
        for name in ("receive_call", "receive_reply", "receive_answer"):
            method = getattr(fast_path, name)

            def take(*given: Any, method: Any = method) -> bool:
                taken = is_fast and method(*given)
                self.taken += taken
                return bool(taken)

            setattr(fast_path, name, take)


class Pair:
    """Two engines with the same inputs, and what is open: clients' POSTs by their channels, and requests to the
    server.

    Args:
        alias: as in `Half`. The names of tools get it where they are called.
        more: other settings of the server.
    """

    def __init__(
        self,
        kind: Kind = Kind.HTTP,
        client: Era = Era.HANDSHAKE,
        server: Era = Era.HANDSHAKE,
        alias: str | None = None,
        emits: bool = False,
        tracing: Tracing | None = None,
        **more: Any,
    ) -> None:
        plan = ServerPlan(id="s", kind=kind, era=server, **more)
        self.halves = (
            Half(plan, alias, is_fast=True, emits=emits, tracing=tracing),
            Half(plan, alias, is_fast=False, emits=emits, tracing=tracing),
        )
        self.client, self.server, self.alias = client, server, alias
        self.endpoint = "s" if alias is None else "all"
        self.now = 0.0
        self.session: str | None = None
        self.posts: list[ChannelId] = []
        self.dials: list[tuple[ChannelId, int, str]] = []  # with number and method of the request
        self.child: ChannelId | None = None
        self.sent_bytes: dict[ChannelId, int] = {}
        self.open()

    def both(self, method: str, *given: Any, **named: Any) -> list[Effect]:
        self.now += 0.001
        fast, slow = [getattr(half.engine, method)(*given, self.now, **named) for half in self.halves]
        assert fast == slow
        engines = [half.engine for half in self.halves]
        assert engines[0].next_timeout() == engines[1].next_timeout()
        assert engines[0].exchange_count == engines[1].exchange_count
        self.learn(fast)
        return fast  # type: ignore[no-any-return]

    def learn(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                self.sent_bytes[effect.channel] = self.sent_bytes.get(effect.channel, 0) + len(effect.message)
                self.session = effect.session or self.session
                if effect.channel == self.child:
                    self.note_request(effect.channel, effect.message)
            elif isinstance(effect, Dial) and isinstance(effect.target, Spawn):
                self.child = effect.channel
            elif isinstance(effect, Dial) and isinstance(effect.target, Post):
                if not self.note_request(effect.channel, effect.target.message):
                    self.both("receive_close", effect.channel, DONE)
            elif isinstance(effect, Dial):
                self.both("receive_close", effect.channel, Cause(End.REFUSED, status=405))

    def note_request(self, channel: ChannelId, message: bytes) -> bool:
        frame = json.loads(message)
        is_request = "id" in frame and "method" in frame
        if is_request:
            self.dials.append((channel, frame["id"], frame["method"]))
        return is_request

    def new_channel(self) -> ChannelId:
        first, second = (half.engine.new_channel() for half in self.halves)
        assert first == second
        return first

    def post(self, message: bytes, **extra: Any) -> ChannelId:
        channel = self.new_channel()
        extra = {"revision": REVISION if self.session else None, **extra}
        opening = PostOpening(self.endpoint, session=self.session, **extra)
        self.both("receive_at_once", channel, opening=opening, message=message)
        self.posts.append(channel)
        return channel

    def answer(self, index: int, template: bytes, *, is_streamed: bool = False) -> None:
        channel, number, _ = self.dials.pop(index)
        message = template % number
        if channel == self.child:
            self.both("receive_messages", channel, [message])
        elif is_streamed:
            self.both("receive_open", channel, Connected())
            self.both("receive_messages", channel, [message])
            self.both("receive_close", channel, DONE)
        else:
            self.both("receive_at_once", channel, opening=Connected(), message=message, cause=DONE)

    def call(self, method: str, params: bytes, id: int, sender: dict[str, Any], odd: str | None) -> None:
        """A request, or a notification, of a client of this era."""
        if self.alias:
            params = params.replace(b'"name":"', b'"name":"%b__' % self.alias.encode())
            params = params.replace(b'"uri":"', b'"uri":"%b+' % self.alias.encode())
        end = b"}" if method.startswith("notifications") else b',"id":%d}' % id
        if self.client is Era.HANDSHAKE:
            self.post(b'{"jsonrpc":"2.0","method":"%b","params":%b%b' % (method.encode(), params, end))
            return
        revision = sender.get("revision", MODERN)
        meta_members = {K + "protocolVersion": revision, K + "clientCapabilities": sender.get("capabilities", {})}
        meta_members |= sender.get("beside", {})
        if "level" in sender:
            meta_members[K + "logLevel"] = sender["level"]
        if "token" in sender:
            meta_members["progressToken"] = sender["token"]
        meta = json.dumps(meta_members, separators=(",", ":")).encode()
        if params.startswith(b"{"):
            params = b'{"_meta":%b%b' % (meta, b"," + params[1:] if params != b"{}" else b"}")
        headers = {"mcp-method": method}
        try:
            headers = dict(headers_for(method, params))
        except RemoteProtocolError:
            pass
        if odd in ("method", "name"):
            headers["mcp-" + odd] = "other"
        elif odd == "none":
            headers = {}
        elif odd == "more":
            headers["mcp-param-region"] = "west"
        self.post(
            b'{"jsonrpc":"2.0","method":"%b","params":%b%b' % (method.encode(), params, end),
            mirrored=tuple(headers.items()),
            revision=REVISION if odd == "revision" else revision,
        )

    def open(self) -> None:
        if self.client is Era.HANDSHAKE:
            self.post(json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": INITIALIZE}).encode())
            while self.session is None:
                self.introduce()
            self.post(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
        for _ in range(2):  # the first finds out the server's tools
            self.call("tools/call", PARAMS[0], 1, {}, None)
            while self.dials[-1:] == [] or self.dials[-1][2] != "tools/call":
                self.introduce()
            self.answer(0, ANSWERS[0])

    def is_at_rest(self, template: bytes, *, is_streamed: bool) -> bool:
        """True if nothing is open once the server has answered."""
        for _ in range(4):
            if self.dials and self.dials[-1][2] in KNOWN[self.server]:
                self.introduce()
            elif self.dials:
                self.answer(-1, template, is_streamed=is_streamed)
        return not self.dials and self.halves[0].engine.exchange_count == 0

    def introduce(self) -> None:
        """The server answers `initialize`, `server/discover` or `tools/list`."""
        if self.child is not None and not self.dials:
            self.both("receive_open", self.child, Connected())
        method = self.dials[-1][2]
        known = KNOWN[self.server]
        member = b'"result":%b}' % json.dumps(known[method]).encode() if method in known else UNKNOWN
        self.answer(-1, b'{"jsonrpc":"2.0","id":%d,' + member)


CALLS = st.tuples(
    st.just("call"),
    st.sampled_from(METHODS),
    st.sampled_from(PARAMS),
    st.integers(1, 3),
    st.sampled_from(SENDERS),
    st.sampled_from(ODD_HEADERS),
)
PLAIN_CALLS = st.tuples(
    st.just("call"), st.sampled_from(METHODS[:2]), st.just(PARAMS[0]), st.integers(1, 3), st.just({}), st.none()
)
OPERATIONS = st.one_of(
    PLAIN_CALLS,
    PLAIN_CALLS,
    PLAIN_CALLS,
    CALLS,
    st.tuples(st.just("answer"), st.integers(0, 2), st.sampled_from(ANSWERS[:2]), st.booleans()),
    st.tuples(st.just("answer"), st.integers(0, 2), st.sampled_from(ANSWERS[:2]), st.booleans()),
    st.tuples(st.just("answer"), st.integers(0, 2), st.sampled_from(ANSWERS), st.booleans()),
    st.tuples(st.just("hang up"), st.integers(0, 3), st.booleans()),
    st.tuples(st.just("break"), st.integers(0, 3)),
    st.tuples(st.just("wait"), st.sampled_from([0.5, 29.0, 31.0])),
    st.tuples(st.sampled_from(["cancel", "end", "drain", "level"])),
)
COMBINATIONS: Final = [(kind, client, server) for kind in (Kind.HTTP, Kind.PIPE) for client in Era for server in Era]


def play(pair: Pair, name: str, *given: Any) -> None:
    match name:
        case "call":
            pair.call(*given)
        case "level":
            pair.call("logging/setLevel", b'{"level":"info"}', 9, {}, None)
        case "answer" if given[0] < len(pair.dials):
            pair.answer(given[0], given[1], is_streamed=given[2])
        case "cancel":
            pair.post(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}')
        case "hang up" if given[0] < len(pair.posts):
            channel = pair.posts.pop(given[0])
            left = pair.sent_bytes.pop(channel, 0)
            cause = DONE if given[1] else Cause(End.GONE)
            pair.both("receive_at_once", channel, size_bytes=left if given[1] else 0, cause=cause)
        case "break" if given[0] < len(pair.dials):
            channel, *_ = pair.dials.pop(given[0])
            pair.both("receive_close", channel, Cause(End.BROKEN, "cut"))
            if channel == pair.child:
                pair.child = None
        case "wait":
            pair.now += given[0]
            pair.both("handle_timeout")
        case "end":
            pair.both("receive_open", pair.new_channel(), DeleteOpening("s", session="x"))
        case "drain":
            pair.both("receive_drain")
