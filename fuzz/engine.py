"""Clients, servers and the storage act in any order: nothing is raised, and each client gets its own responses, once.

The input is a list of operations of three bytes each: what happens, to whom, and how. Operation 14 sends the bytes
after it as a message. The driver does what `docs/engine.md` requires of it, so no accepted outcome is an exception. It
reports events one by one, or several together and messages in parts; the size from which a message counts as large is
small here:

- A request is answered at most once, to its own client, with the result of its own server. Once the engine is stopped,
  it is answered exactly once, if its client is still connected and has not cancelled it.
- No effect concerns a channel that has ended, and no deadline that was handled is due again.
- Sessions, processes and channels stay within their limits, and none is left when all peers have gone.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final
from unittest.mock import patch

from isthmus.core.base.effects import Close, Dial, Effect, Join, Listen, Pass, Post, Send, Spawn
from isthmus.core.base.events import (
    Cause,
    Connected,
    DeleteOpening,
    End,
    EventPipeOpening,
    GetOpening,
    PipeOpening,
    PostOpening,
    Primed,
    Queued,
    UploadOpening,
)
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import (
    ArtifactProducer,
    AutoFiles,
    Kind,
    LocatorMode,
    OutputLocator,
    Plan,
    ServerPlan,
    Sharing,
    UploadConsumer,
)
from isthmus.core.base.storage import (
    Allocate,
    Allocated,
    Append,
    Appended,
    Collect,
    Collected,
    CollectedFile,
    Conflicted,
    Extend,
    Extended,
    Fetch,
    Fetched,
    Forget,
    Halt,
    Load,
    Loaded,
    Materialize,
    Materialized,
    Receive,
    Save,
    Saved,
    SeenFile,
    Serve,
    Sighting,
    StorageAnswer,
    StorageFailed,
    Survey,
    Surveyed,
)
from isthmus.core.bulk import BulkEngine
from isthmus.core.jsonrpc import envelope
from isthmus.core.jsonrpc.envelope_edges import EDGE_BYTES
from isthmus.core.routing import passthrough
from isthmus.core.status import Command
from isthmus.core.wire.http.mcp_headers import headers_for
from isthmus.core.wire.http.response import ENDED_ORDERLY

SERVERS: Final = ("own", "web", "shared", "files", "auto")
PLAN: Final = Plan(
    servers=(
        ServerPlan(id="own", kind=Kind.PIPE, spares=1),
        ServerPlan(id="web", kind=Kind.HTTP, may_fall_back=True, passes_authorization=True),
        ServerPlan(id="shared", kind=Kind.PIPE, sharing=Sharing.CONCURRENT),
        ServerPlan(
            id="files",
            kind=Kind.PIPE,
            consumers=(UploadConsumer(tools=("eat",), file_path_argument="path", accept_other=True),),
            producers=(ArtifactProducer(tools=("echo",), output_locator=OutputLocator(mode=LocatorMode.REGEX)),),
        ),
        ServerPlan(id="auto", kind=Kind.HTTP, auto_files=AutoFiles()),
    ),
    link_keys=(b"the key of this target",),
    workspaces_path="/w",
    fallback_base_url="http://here",
    stores_events=True,
    mirrors_polling=True,
)
LIMITS: Final = Limits(
    sessions_max=6,
    children_max=4,
    exchanges_per_session_max=4,
    questions_per_session_max=3,
    streams_per_session_max=2,
    events_max=2,
    held_per_session_max=2,
    suspended_calls_per_session_max=2,
    suspended_calls_max=3,
    tasks_max=4,
    tasks_per_session_max=2,
    listens_per_session_max=2,
    request_size_max_bytes=4096,
    reply_size_max_bytes=4096,
    notifications_waiting_max=3,
    batch_max=3,
    artifacts_per_session_max=2,
)
OPERATIONS_MAX: Final = 160
"""The bound on operations of one input: a failure that more of them reach can be reached with fewer."""
CHANNELS_MAX: Final = 200
DEADLINES_MAX: Final = 200
"""The bound on deadlines handled by one `wait`: silent servers are polled again and again, without an end."""
LARGE_BYTES: Final = 150
PARTS_MIN_BYTES: Final = 300
FILLER: Final = "y" * PARTS_MIN_BYTES

REVISIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN: Final = "2026-07-28"
CAPABILITIES: Final = (
    "{}",
    '{"roots":{"listChanged":true},"sampling":{},"elicitation":{}}',
    '{"roots":{},"sampling":{"tools":{}},"elicitation":{"form":{},"url":{}},"tasks":{"requests":{"tools":{"call":{}}}}}',
)
SERVER_CAPABILITIES: Final = (
    "{}",
    '{"tools":{"listChanged":true},"resources":{"subscribe":true},"logging":{},"prompts":{}}',
    '{"tools":{},"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}}',
)
REQUESTS: Final = (
    ("tools/call", '"name":"echo","arguments":{"tag":"TAG"}'),
    ("tools/call", '"name":"echo","arguments":{"tag":"TAG"},"_meta":{"progressToken":"TAG"}'),
    ("tools/call", '"name":"echo","arguments":{"tag":"TAG"},"task":{"ttl":5000}'),
    ("tools/call", '"name":"eat","arguments":{"path":"upload://sessions/0/1","tag":"TAG"}'),
    ("prompts/get", '"name":"TAG"'),
    ("tools/list", '"cursor":"TAG"'),
    ("resources/list", ""),
    ("resources/read", '"uri":"artifact://sessions/0/1/TAG"'),
    ("resources/subscribe", '"uri":"TAG"'),
    ("ping", ""),
    ("tasks/list", ""),
    ("tasks/result", '"taskId":"TAG"'),
    ("server/discover", ""),
    ("subscriptions/listen", '"notifications":{"toolsListChanged":true}'),
    ("acme/own", '"tag":"TAG"'),
    ("initialize", '"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"TAG","version":"1"}'),
)
QUESTIONS: Final = (
    ("roots/list", ""),
    ("sampling/createMessage", '"messages":[],"maxTokens":1'),
    ("elicitation/create", '"message":"m","requestedSchema":{"type":"object","properties":{}}'),
    ("ping", ""),
)
NOTIFICATIONS: Final = (
    ("notifications/tools/list_changed", ""),
    ("notifications/message", '"level":"info","data":"x"'),
    ("notifications/resources/updated", '"uri":"x"'),
    ("notifications/cancelled", '"requestId":1'),
    ("notifications/roots/list_changed", ""),
    ("notifications/tasks/status", '"taskId":"x","status":"working","createdAt":"","lastUpdatedAt":"","ttl":1'),
)
ENDS: Final = (
    Cause(End.DONE),
    Cause(End.GONE),
    Cause(End.BROKEN, "cut"),
    Cause(End.UNREACHABLE, "no", unsent=True),
    Cause(End.REFUSED, status=404),
    Cause(End.REFUSED, status=405),
    Cause(End.REFUSED, status=401, challenge="Bearer"),
    Cause(End.BROKEN, "cut", last_event_id="e", retry_ms=5),
    Cause(End.TIMED_OUT),
    Cause(End.REFUSED, status=400, body=b'{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"x"}}'),
)
WAITS_S: Final = (0.0, 0.01, 0.3, 1.0, 6.0, 31.0, 400.0, 4000.0)
ODD: Final = (None, 7, -1, True, "", "x", [], {}, [None], [[]], {"a": None}, {"type": "text"}, 10**20, 1.5)
TAG: Final = re.compile(rb"tag-[0-9]+")
ID: Final = re.compile(rb'"id" *: *("[^"]*"|-?[0-9]+(?:\.0+)?)')


def with_odd_value(message: bytes, place: int, what: int) -> bytes:
    """Returns the message with an unexpected value at one place of its result, params or error."""
    try:
        frame = json.loads(message)
    except ValueError:
        return message
    places: list[tuple[Any, Any]] = []
    waiting = [(frame, name) for name in ("result", "params", "error") if name in frame]
    while waiting:
        holder, key = waiting.pop()
        places.append((holder, key))
        held = holder[key]
        if isinstance(held, dict):
            waiting += [(held, below) for below in held]
        elif isinstance(held, list):
            waiting += [(held, below) for below in range(len(held))]
    if places:
        holder, key = places[place % len(places)]
        holder[key] = ODD[what % len(ODD)]
    return json.dumps(frame).encode()


@dataclass(eq=False)
class Client:
    """A client of one server.

    Attributes:
        asked, answered: how often each id was sent in a request, and in a response to it, as written in the JSON.
        is_loose: it has cancelled a request, or sent a message that may be unanswerable: not all of its requests need a
            response.
        tags: the texts that only its own requests contain.
        questions: server requests that it has received: their channels and ids.
    """

    server: str
    pipe: ChannelId | None = None
    is_modern: bool = False
    session: str | None = None
    asked: Counter[str] = field(default_factory=Counter)
    answered: Counter[str] = field(default_factory=Counter)
    is_initialized: bool = False
    is_loose: bool = False
    tags: set[str] = field(default_factory=set)
    questions: list[tuple[ChannelId, str]] = field(default_factory=list)
    last_event_id: str | None = None


@dataclass(eq=False)
class Delivered:
    """A message that a server has received: on its stdin, or in a POST."""

    channel: ChannelId
    message: bytes
    is_posted: bool


class World:
    def __init__(self) -> None:
        self.engine = BulkEngine(
            PLAN, entropy=random.Random(1).randbytes, unix_at_zero=1e9, has_storage=True, limits=LIMITS
        )
        self.now = 0.0
        self.clients: list[Client] = []
        self.owners: dict[ChannelId, Client] = {}
        self.open: set[ChannelId] = set()
        self.upstream: dict[ChannelId, Dial] = {}
        self.connected: set[ChannelId] = set()
        self.children: set[ChannelId] = set()
        self.delivered: list[Delivered] = []
        self.orders: list[Effect] = []
        self.records: dict[str, bytes] = {}
        self.events: set[tuple[Client, str, str]] = set()
        self.tags = 0
        self.unsent: Counter[ChannelId] = Counter()
        self.passed: dict[ChannelId, list[bytes]] = {}  # the parts so far of responses that are not complete
        self.missing: Counter[ChannelId] = Counter()  # how many bytes of these are still to come
        self.is_together = False  # the events of this operation are reported together, and messages in `pieces` parts
        self.pieces = 1

    # --- Effects ----------------------------------------------------------------------------------------------------

    def do(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                self.handle_send(effect)
            elif isinstance(effect, Pass):
                self.handle_pass(effect)
            elif isinstance(effect, Close):
                assert effect.channel in self.open
                self.children.discard(effect.channel)
            elif isinstance(effect, Dial):
                self.open.add(effect.channel)
                self.upstream[effect.channel] = effect
                if isinstance(effect.target, Spawn | Join):
                    self.children.add(effect.channel)
                    spawned = [self.upstream[channel].target for channel in self.children]
                    assert sum(isinstance(target, Spawn) for target in spawned) <= LIMITS.children_max
                elif isinstance(effect.target, Post):
                    self.delivered.append(Delivered(effect.channel, effect.target.message, True))
            elif isinstance(effect, Serve | Receive | Append):
                assert effect.channel in self.open
                self.orders.append(effect)
            elif isinstance(effect, Load | Save | Allocate | Survey | Collect | Extend | Materialize | Fetch):
                self.orders.append(effect)
            elif isinstance(effect, Forget):
                self.records.pop(effect.key, None)
        for effect in effects:
            is_last = isinstance(effect, Close) or (isinstance(effect, Send) and effect.is_last)
            if is_last or (isinstance(effect, Pass) and not self.missing[effect.channel]):
                self.close(effect.channel, Cause(End.DONE))  # type: ignore[union-attr]
        assert self.engine.session_count <= LIMITS.sessions_max
        assert self.engine.exchange_count <= LIMITS.sessions_max * LIMITS.exchanges_per_session_max

    def handle_pass(self, order: Pass) -> None:
        channel = order.channel
        assert channel in self.open
        assert (channel in self.passed) is not bool(order.size_bytes)
        parts = self.passed.setdefault(channel, [])
        parts += order.pieces
        self.missing[channel] += order.size_bytes - sum(map(len, order.pieces))
        assert self.missing[channel] >= 0
        if not self.missing[channel]:
            del self.passed[channel]
            self.handle_send(Send(channel, b"".join(parts), is_last=True))

    def handle_send(self, send: Send) -> None:
        assert send.channel in self.open
        self.unsent[send.channel] += len(send.message)
        if send.channel in self.children:
            self.delivered.append(Delivered(send.channel, send.message, False))
            return
        client = self.owners.get(send.channel)
        if client is None:
            return
        client.session = send.session or client.session
        client.last_event_id = send.event_id or client.last_event_id
        if not send.message or send.event == "endpoint" or send.status >= 400:
            return
        frames = json.loads(send.message)
        for frame in frames if isinstance(frames, list) else [frames]:
            if "method" in frame:
                if "id" in frame:
                    client.questions.append((send.channel, json.dumps(frame["id"])))
                continue
            key = ID.search(send.message)[1].decode() if frame.get("id") is not None else "null"  # type: ignore[index]
            if isinstance(frames, list):
                key = json.dumps(frame.get("id"))
            if send.event_id is not None:
                if (client, key, send.event_id) in self.events:
                    continue  # replayed to a client that reconnected
                self.events.add((client, key, send.event_id))
            client.answered[key] += 1
            assert key == "null" or client.answered[key] <= client.asked[key], f"{key} is answered twice"
            if "result" in frame:
                assert {tag.decode() for tag in TAG.findall(send.message)} <= client.tags, "an answer of another client"

    def close(self, channel: ChannelId, cause: Cause) -> None:
        if channel in self.open:
            size_bytes = self.unsent[channel] if self.is_together else 0
            self.forget(channel)
            if size_bytes and channel in self.owners:
                self.do(self.engine.receive_at_once(channel, self.now, size_bytes=size_bytes, cause=cause))
            else:
                self.do(self.engine.receive_close(channel, cause, self.now))

    def forget(self, channel: ChannelId) -> None:
        """Marks a channel as ended, just before that is reported to the engine."""
        self.open.discard(channel)
        self.children.discard(channel)
        self.delivered = [delivered for delivered in self.delivered if delivered.channel != channel]
        if self.passed.pop(channel, None) is not None:
            self.owners[channel].is_loose = True  # its response was cut off
        del self.unsent[channel], self.missing[channel]

    def receive(self, channel: ChannelId, message: bytes) -> None:
        if channel not in self.open:
            return
        if self.is_together and channel in self.upstream and message:
            self.do(self.engine.receive_pieces(channel, self.cut(message), self.now))
        else:
            self.do(self.engine.receive_message(channel, message, self.now))

    def cut(self, message: bytes) -> tuple[bytes, ...]:
        size = max(1, -(-len(message) // self.pieces))
        return tuple(message[at : at + size] for at in range(0, len(message), size))

    def receive_response(self, channel: ChannelId, opening: Connected, message: bytes) -> None:
        """Reports the response to a POST as one document: whole, or in parts as they arrive."""
        engine = self.engine
        if not engine.passes(channel, message[:EDGE_BYTES], len(message)):
            self.forget(channel)
            self.do(
                engine.receive_at_once(channel, self.now, opening=opening, message=message, cause=ENDED_ORDERLY),
            )
            return
        first, rest = message[:EDGE_BYTES], self.cut(message[EDGE_BYTES:])
        self.do(engine.receive_part(channel, (first,), self.now, opening=opening, size_bytes=len(message)))
        for piece in rest[:-1]:
            if channel in self.open:
                self.do(engine.receive_part(channel, (piece,), self.now))
        if channel in self.open:
            self.forget(channel)
            self.do(engine.receive_part(channel, rest[-1:], self.now, cause=ENDED_ORDERLY))

    def report_sent(self, how: int) -> None:
        """Reports that some of the bytes queued for a peer were sent."""
        waiting = sorted(channel for channel in self.open if self.unsent[channel])
        if waiting:
            channel = waiting[how % len(waiting)]
            size_bytes = min(how, self.unsent[channel])
            self.unsent[channel] -= size_bytes
            self.do(self.engine.receive_sent(channel, size_bytes, self.now))

    def wait(self, seconds: float) -> None:
        end = self.now + seconds
        for _ in range(DEADLINES_MAX):
            due = self.engine.next_timeout()
            if due is None or due.at > end:
                break
            self.now = max(self.now, due.at)
            self.do(self.engine.handle_timeout(self.now))
            following = self.engine.next_timeout()
            assert following is None or following.at > self.now, f"{following} is due again"
        self.now = max(self.now, end)

    # --- Clients ----------------------------------------------------------------------------------------------------

    def add_client(self, who: int, how: int) -> None:
        if len(self.owners) >= CHANNELS_MAX:
            return
        client = Client(SERVERS[who % len(SERVERS)], is_modern=bool(how & 2))
        self.clients.append(client)
        if how & 1:
            client.pipe = self.engine.new_channel()
            self.owners[client.pipe] = client
            self.open.add(client.pipe)
            opening = EventPipeOpening(client.server, endpoint="/m") if how & 4 else PipeOpening(client.server)
            self.do(self.engine.receive_open(client.pipe, opening, self.now))
        if not client.is_modern:
            text = f'"protocolVersion":"{REVISIONS[how >> 3 & 3]}","capabilities":{CAPABILITIES[(how >> 5) % 3]}'
            self.send_request(client, "initialize", f'{text},"clientInfo":{{"name":"c","version":"1"}}', how)

    def send_request(self, client: Client, method: str, params: str, how: int, who: int = 0) -> None:
        id_raw = str(self.tags if how & 3 else 0)  # some clients use one id again and again
        tag = f"tag-{self.tags}"
        self.tags += 1
        client.tags.add(tag)
        params = params.replace("TAG", tag)
        if client.is_modern:
            meta = (
                f'"_meta":{{"io.modelcontextprotocol/protocolVersion":"{MODERN}",'
                f'"io.modelcontextprotocol/clientCapabilities":{CAPABILITIES[how % 3]}}}'
            )
            params = re.sub(r',?"_meta":\{.*?\}', "", params)
            params = f"{params},{meta}" if params else meta
        message = f'{{"jsonrpc":"2.0","id":{id_raw},"method":"{method}","params":{{{params}}}}}'
        mirrored = headers_for(method, f"{{{params}}}".encode(), ()) if client.is_modern else ()
        if who & 128:
            client.is_loose = True
        self.send_message(
            client, with_odd_value(message.encode(), how, who) if who & 128 else message.encode(), mirrored
        )

    def send_message(self, client: Client, message: bytes, mirrored: tuple[tuple[str, str], ...] = ()) -> None:
        """Sends a message of a client: on its pipe, or in a POST."""
        for found in ID.findall(message):
            client.asked[found.decode()] += 1
        if client.pipe is not None:
            if client.pipe in self.open:
                self.receive(client.pipe, message)
            else:
                client.is_loose = True
        elif len(self.owners) < CHANNELS_MAX:
            channel = self.engine.new_channel()
            self.owners[channel] = client
            self.open.add(channel)
            revision = MODERN if client.is_modern else None
            opening = PostOpening(client.server, session=client.session, revision=revision, mirrored=mirrored)
            if self.is_together:
                self.do(self.engine.receive_at_once(channel, self.now, opening=opening, message=message))
            else:
                self.do(self.engine.receive_open(channel, opening, self.now))
                self.receive(channel, message)

    def act_as_client(self, client: Client, how: int) -> None:
        """Does something else that a client may do: disconnects, responds, cancels, opens a stream, uploads a file."""
        kind, how = how & 7, how >> 3
        if kind == 0:
            channel = client.pipe
            if channel is None:
                mine = [one for one in self.owners if self.owners[one] is client and one in self.open]
                channel = mine[how % len(mine)] if mine else None
            client.is_loose = True
            if channel is not None:
                self.close(channel, ENDS[how % 3])
        elif kind == 1 and client.questions:
            _, id_raw = client.questions.pop(how % len(client.questions))
            answer = ('{"roots":[]}', '{"action":"accept","content":{}}', "7", '{"role":"user","content":[]}')[how & 3]
            self.send_message(
                client, f'{{"jsonrpc":"2.0","result":{answer},"id" :{id_raw}}}'.encode().replace(b'"id" :', b'"id"  :')
            )
            client.asked[id_raw] -= 1  # it was a response, not a request
        elif kind == 2:
            client.is_loose = True
            ids = list(client.asked) or ["1"]
            params = f'"requestId":{ids[how % len(ids)]}'
            self.send_message(
                client, f'{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{{params}}}}}'.encode()
            )
        elif kind == 3:
            self.send_message(client, b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
        elif kind in (4, 5) and client.pipe is None and len(self.owners) < CHANNELS_MAX:
            channel = self.engine.new_channel()
            self.owners[channel] = client
            self.open.add(channel)
            last = client.last_event_id if kind == 5 else None
            opening = GetOpening(client.server, session=client.session, last_event_id=last)
            self.do(self.engine.receive_open(channel, opening, self.now))
        elif kind == 6 and client.pipe is None and len(self.owners) < CHANNELS_MAX:
            channel = self.engine.new_channel()
            self.owners[channel] = client
            self.open.add(channel)
            self.do(self.engine.receive_open(channel, DeleteOpening(client.server, session=client.session), self.now))
        elif kind == 7 and len(self.owners) < CHANNELS_MAX:
            channel = self.engine.new_channel()
            self.owners[channel] = Client("nobody")
            self.open.add(channel)
            opening = UploadOpening("files", {"mcp_upload_exp": "1"}, session=client.session, size_bytes=how)
            self.do(self.engine.receive_open(channel, opening, self.now))

    # --- Servers ----------------------------------------------------------------------------------------------------

    def connect(self, who: int, how: int) -> None:
        waiting = [channel for channel in self.upstream if channel in self.open and channel not in self.connected]
        if not waiting:
            return
        channel = waiting[who % len(waiting)]
        if how & 3 and how & 32 and isinstance(self.upstream[channel].target, Listen):
            self.do(self.engine.receive_open(channel, Queued(), self.now))
        elif how & 3:
            self.connected.add(channel)
            session = "S" if how & 4 else None
            self.do(self.engine.receive_open(channel, Connected(session, (("c", "v"),) if how & 8 else ()), self.now))
            if how & 16 and channel in self.open and isinstance(self.upstream[channel].target, Post):
                self.do(self.engine.receive_open(channel, Primed(), self.now))
        else:
            self.close(channel, ENDS[how // 4 % len(ENDS)])

    def respond(self, who: int, how: int) -> None:
        """Makes a server respond to one of the messages that it has received."""
        if not self.delivered:
            return
        delivered = self.delivered.pop(who % len(self.delivered))
        reply = self.reply(delivered, how >> 1)
        reply = with_odd_value(reply, how, who) if who & 128 else reply
        if delivered.is_posted and delivered.channel not in self.connected:
            self.connected.add(delivered.channel)
            opening = Connected("S" if how & 1 else None)
            if self.is_together and how & 128 == 0 and reply and delivered.channel in self.open:
                self.receive_response(delivered.channel, opening, reply)
                return
            self.do(self.engine.receive_open(delivered.channel, opening, self.now))
        self.receive(delivered.channel, reply)
        if delivered.is_posted and how & 128 == 0:
            self.close(delivered.channel, Cause(End.DONE))

    def reply(self, delivered: Delivered, how: int) -> bytes:
        try:
            frame = json.loads(delivered.message)
        except ValueError:
            return b""
        if not isinstance(frame, dict) or "method" not in frame or "id" not in frame:
            return b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}'
        id_raw, method = json.dumps(frame["id"]), frame["method"]
        tags = TAG.findall(delivered.message)
        tag = tags[-1].decode() if tags else "x"
        if how & 15 == 15:
            return f'{{"jsonrpc":"2.0","id":{id_raw},"error":{{"code":-32601,"message":"{tag}"}}}}'.encode()
        if how & 15 == 14:
            return f'{{"jsonrpc":"2.0","id":{id_raw}9,"result":{{}}}}'.encode()
        if how & 15 == 13:
            body = '"requestState":"s","inputRequests":{"a":{"method":"roots/list"}}'
            return f'{{"jsonrpc":"2.0","id":{id_raw},"result":{{"resultType":"input_required",{body}}}}}'.encode()
        if how & 15 == 12:
            body = f'"task":{{"taskId":"{tag}","status":"working","createdAt":"","lastUpdatedAt":"","ttl":null}}'
            return f'{{"jsonrpc":"2.0","id":{id_raw},"result":{{{body}}}}}'.encode()
        info = '"serverInfo":{"name":"s","version":"1"}'
        if method == "initialize":
            capabilities = SERVER_CAPABILITIES[(how >> 2) % 3]
            text = f'"protocolVersion":"{REVISIONS[3 - (how & 3)]}","capabilities":{capabilities},{info}'
        elif method == "server/discover" and how & 1:
            capabilities = SERVER_CAPABILITIES[1]
            text = f'"resultType":"complete","supportedVersions":["{MODERN}"],"capabilities":{capabilities},{info}'
        elif method == "server/discover":
            return f'{{"jsonrpc":"2.0","id":{id_raw},"error":{{"code":-32601,"message":"no"}}}}'.encode()
        elif method == "tools/list":
            text = '"tools":[{"name":"echo","inputSchema":{"type":"object"}},{"name":"eat","inputSchema":{}}]'
        else:
            filler = FILLER if self.pieces > 1 else ""
            text = f'"content":[{{"type":"text","text":"saved {tag} to /w/{tag}.png{filler}"}}]'
        return f'{{"jsonrpc":"2.0","id":{id_raw},"result":{{{text}}}}}'.encode()

    def act_as_server(self, who: int, how: int) -> None:
        """Makes a server send a request or a notification, or disconnect."""
        channels = [channel for channel in self.upstream if channel in self.open and channel in self.connected]
        if not channels:
            return
        channel = channels[who % len(channels)]
        kind, how = how & 3, how >> 2
        if kind == 0:
            self.close(channel, ENDS[how % len(ENDS)])
        elif kind == 1:
            method, params = QUESTIONS[how % len(QUESTIONS)]
            self.receive(
                channel, f'{{"jsonrpc":"2.0","id":"q{how}","method":"{method}","params":{{{params}}}}}'.encode()
            )
        elif kind == 2:
            method, params = NOTIFICATIONS[how % len(NOTIFICATIONS)]
            self.receive(channel, f'{{"jsonrpc":"2.0","method":"{method}","params":{{{params}}}}}'.encode())
        else:
            tokens = [
                token
                for delivered in self.delivered
                for token in re.findall(rb'"progressToken":([^,}]+)', delivered.message)
            ]
            token = tokens[how % len(tokens)].decode() if tokens else "1"
            params = f'"progressToken":{token},"progress":{how}'
            self.receive(
                channel, f'{{"jsonrpc":"2.0","method":"notifications/progress","params":{{{params}}}}}'.encode()
            )

    def settle(self, how: int) -> None:
        """Makes all peers do what is expected of them, for up to 31 steps."""
        for _ in range(how & 31):
            if any(channel in self.open and channel not in self.connected for channel in self.upstream):
                self.connect(0, 7)
            elif self.delivered:
                self.respond(0, 1 | how >> 5 << 1)
            elif self.orders:
                self.store(0, 3)
            else:
                uninitialized = [client for client in self.clients if client.answered and not client.is_initialized]
                if not uninitialized:
                    return
                uninitialized[0].is_initialized = True
                if not uninitialized[0].is_modern:
                    self.act_as_client(uninitialized[0], 3)

    # --- Storage ----------------------------------------------------------------------------------------------------

    def store(self, who: int, how: int) -> None:
        if not self.orders:
            return
        order = self.orders.pop(who % len(self.orders))
        if isinstance(order, Serve):
            self.close(order.channel, Cause(End.DONE))
        elif isinstance(order, Receive):
            files = b'{"filename":"a","size_bytes":1,"sha256":"x"}'
            self.receive(order.channel, b'{"files":[%b]}' % b",".join([files] * (1 + how % len(order.blobs))))
        elif isinstance(order, Append):
            report = Appended(order.offset, halt=Halt.FAILED)
            self.receive(
                order.channel, json.dumps({"size_bytes": report.size_bytes, "halt": report.halt.value}).encode()
            )
        elif isinstance(order, Load | Save | Allocate | Survey | Collect | Extend | Materialize | Fetch):
            answer = StorageFailed("no", is_full=bool(how & 8), is_missing=bool(how & 16)) if how & 7 == 7 else None
            self.do(self.engine.receive_answer(order.ticket, answer or self.answer(order, how), self.now))

    def answer(
        self, order: Load | Save | Allocate | Survey | Collect | Extend | Materialize | Fetch, how: int
    ) -> StorageAnswer:
        match order:
            case Load(key=key):
                return Loaded(self.records.get(key) if how & 1 else b"\xff")
            case Save(key=key, if_version=0) if key in self.records:
                return Conflicted()
            case Save(key=key, value=value):
                self.records[key] = value
                return Saved()
            case Allocate():
                return Allocated("/w/out/a.png")
            case Survey(named=named):
                found = Sighting(files=(SeenFile("/w/a.png", 5, "s"),)) if how & 1 else Sighting("missing")
                listed = (SeenFile("/w/b.png", 7, str(how)),) if how & 2 else ()
                return Surveyed((found,) * len(named), listed)
            case Collect(sources=sources):
                one = CollectedFile(path="/w/a.png", filename="a.png", size_bytes=5, sha256="x")
                return Collected((one if how & 1 else CollectedFile("missing"),) * len(sources))
            case Extend(offset=offset, data=data, is_last=is_last):
                return Extended(offset + len(data), "x" if is_last else "")
            case Materialize():
                return Materialized("/w/in/a.png", "s")
            case Fetch():
                return Fetched(b"{}" if how & 1 else b"\xff")


def run_operations(world: World, data: bytes) -> None:
    at = 0
    for _ in range(OPERATIONS_MAX):
        if at + 3 > len(data):
            return
        what, who, how = data[at : at + 3]
        at += 3
        world.is_together, world.pieces = bool(what & 16), 1 + (what >> 5)
        client = world.clients[who % len(world.clients)] if world.clients else None
        match what % 16:
            case 0 | 1:
                world.add_client(who, how)
            case 2 | 3 | 4 if client is not None:
                world.send_request(client, *REQUESTS[how >> 4], how, who)
            case 5 if client is not None:
                world.act_as_client(client, how)
            case 6:
                world.connect(who, how)
            case 7 | 8:
                world.settle(how)
            case 9 | 10:
                world.respond(who, how)
            case 11:
                world.act_as_server(who, how)
            case 12:
                world.store(who, how)
            case 13:
                world.wait(WAITS_S[how % len(WAITS_S)])
            case 14 if client is not None:
                raw = data[at : at + how].replace(b"\\", b"")
                at += how
                client.is_loose = True
                if who & 1 and world.delivered:
                    world.receive(world.delivered[who % len(world.delivered)].channel, raw)
                else:
                    world.send_message(client, raw)
            case 15:
                command = (Command.START, Command.STOP, Command.RESTART)[how % 3]
                if who & 1:
                    world.do(world.engine.receive_command(SERVERS[who % len(SERVERS)], command, world.now))
                elif how == 0:
                    world.do(world.engine.receive_drain(world.now))
                else:
                    world.report_sent(how)


def test_one_input(data: bytes) -> None:
    with (
        patch.object(envelope, "LARGE_BYTES", LARGE_BYTES),
        patch.object(passthrough, "PARTS_MIN_BYTES", PARTS_MIN_BYTES),
    ):
        run(data)


def run(data: bytes) -> None:
    world = World()
    run_operations(world, data)
    here = [client for client in world.clients if client.pipe in world.open and not client.is_loose]
    world.do(world.engine.receive_stop(world.now))
    for client in here:
        assert +client.asked == +client.answered, "a request without an answer"
    world.wait(100.0)
    assert world.engine.exchange_count == 0
    for channel in sorted(world.open):
        world.close(channel, Cause(End.GONE))
    world.wait(1e6)
    assert world.engine.session_count == 0
