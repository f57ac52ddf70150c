"""A model of the engine: a dict of the answers that each client is owed.

Clients on pipes and HTTP, servers on pipes and HTTP, in any order of asking, answering, hanging up, coming back, dying
and waiting. The model knows nothing of the engine's insides: it reads the effects as a peer would. It holds that

- every accepted request gets exactly one answer, on its own channel, under its own id, made of its own payload;
- no message of one session reaches another: answers, progress, questions, logs;
- no tool call is written upstream twice unless it provably did not run;
- a client that was cut off and resumes a stream with event ids gets the events that it missed, once, in order:
  progress, the answer, questions; and every question of a server is answered or refused;
- events without room in memory are kept in the storage, and none of them once their session is over;
- a server's reply that was cut off and can be resumed is resumed from there;
- nothing is sent on a channel after its end.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from typing import Any

from checked_engine import CheckedEngine
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from isthmus.core.base.effects import Close, Delete, Dial, Effect, Listen, Note, Pause, Post, Resume, Send, Spawn
from isthmus.core.base.events import Cause, Connected, DeleteOpening, End, GetOpening, PipeOpening, PostOpening, Primed
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, Plan, ServerPlan
from isthmus.core.base.revisions import Era
from isthmus.core.base.storage import Forget, ForgetAll, Load, Loaded, Save, Saved

SAFE = "prompts/get"
UNSAFE = "tools/call"
LIMITS = Limits(
    exchanges_per_session_max=16, stream_ttl_s=1e6, session_idle_ttl_s=1e6, storage_timeout_s=1e6, events_max=1
)
"""Time limits so long that a client always comes back in time."""


def message(**members: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **members}).encode()


@dataclass(eq=False)
class Owed:
    """One request of a client that waits for its answer."""

    client: Client
    id: Any
    tag: str
    token: str | None
    due: list[int] = field(default_factory=list)
    """Progress that the server has reported and the client has not seen, by its number."""


@dataclass(eq=False)
class Line:
    """One event stream as its client knows it, over all its connections.

    Attributes:
        channel: its newest connection, which may have ended.
        events: (event id, message) of each event that it has seen.
        at: the number of these that it has on this connection, or had when it was resumed.
        places: the event ids that it may resume with, and how many of `events` come before the events that follow them.
    """

    client: Client
    channel: int
    is_listening: bool = False
    events: list[tuple[str, bytes]] = field(default_factory=list)
    at: int = 0
    places: dict[str, int] = field(default_factory=dict)


@dataclass(eq=False)
class Client:
    server: str
    pipe: int | None = None
    session: str | None = None
    stream: int | None = None
    is_over: bool = False
    open_questions: dict[int, str] = field(default_factory=dict)
    """Questions of the server that this client has not answered: id → tag."""


@dataclass(eq=False)
class Upstream:
    """One incarnation of a server's session, as the server sees it: its open requests by their id."""

    client: Client
    is_open: bool = True
    requests: dict[int, tuple[str, str, str | None, int | None]] = field(default_factory=dict)
    """id → (method, tag, token, POST channel)."""
    questions: dict[str, str] = field(default_factory=dict)
    is_greeted: bool = False
    """The handshake is over: questions of the server can reach the client."""
    listen_id: str | None = None
    """The last event id of its GET stream."""


class World(RuleBasedStateMachine):
    @initialize(
        seed=st.integers(0, 2**32),
        first=st.lists(st.tuples(st.sampled_from(["pipe", "http"]), st.booleans()), max_size=3),
    )
    def begin(self, seed: int, first: list[tuple[str, bool]]) -> None:
        """Some clients are there and have sent a request: hypothesis may leave out the rules that would do that."""
        self.random = random.Random(seed)
        plan = Plan(
            servers=(
                ServerPlan(id="pipe", kind=Kind.PIPE, era=Era.HANDSHAKE),
                ServerPlan(id="http", kind=Kind.HTTP, era=Era.HANDSHAKE),
            ),
            link_keys=(b"0123456789abcdef",),
            stores_events=True,
        )
        self.engine = CheckedEngine(
            plan, entropy=self.random.randbytes, unix_at_zero=1e9, has_storage=True, limits=LIMITS
        )
        self.now = 0.0
        self.count = 0
        self.clients: list[Client] = []
        self.owed: dict[int, list[Owed]] = {}
        """Open requests by the channel they are owed on."""
        self.ended: set[int] = set()
        self.children: dict[int, Upstream] = {}
        self.posts: dict[int, tuple[Upstream, int | None, str]] = {}
        self.listens: dict[int, Upstream] = {}
        self.deletes: list[int] = []
        self.current: dict[int, Upstream] = {}
        """The living upstream of each client, by the client's index."""
        self.written: dict[str, int] = {}
        self.may_repeat: dict[str, int] = {}
        self.answered: set[str] = set()
        self.cancelled: set[str] = set()
        self.streamed: set[int] = set()
        """Channels whose client was given an event id."""
        self.lines: dict[int, Line] = {}
        """Streams with event ids, by their newest connection."""
        self.cut: dict[str, tuple[Upstream, int]] = {}
        """Requests whose reply was cut off, by the event id it can be resumed with."""
        self.resumed: dict[int, str] = {}
        """Connections that are the rest of a reply, by channel: the event id they were resumed with."""
        self.begun: set[int] = set()
        """Replies of servers that have begun."""
        self.orphaned: set[tuple[int, Any]] = set()
        self.acting: Client | None = None
        self.posters: dict[int, Client] = {}
        self.by_workspace: dict[str, Client | None] = {}
        self.by_session: dict[str, Upstream] = {}
        self.records: dict[str, bytes] = {}
        self.orders: list[Save | Load] = []
        """Storage orders that are not carried out yet."""
        self.later: list[tuple[str, int]] = []
        """Processes and streams that are being opened."""
        for server, is_pipe in first:
            self.connect(server, is_pipe, True)
            self.confirm()
            self.request_as(self.clients[-1], 1, UNSAFE, True)

    # --- The driver -------------------------------------------------------------------------------------------------

    def tick(self) -> float:
        self.now += 0.001
        return self.now

    def carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send():
                    self.check_send(effect)
                case Close():
                    self.close(effect.channel)
                case Dial():
                    self.dial(effect)
                case Save() | Load():
                    self.orders.append(effect)
                case Forget(key=key):
                    self.records.pop(key, None)
                case ForgetAll(prefix=prefix):
                    self.records = {key: v for key, v in self.records.items() if not key.startswith(prefix)}
                case Pause() | Resume() | Note():
                    pass
                case _:
                    raise AssertionError(f"no such order is expected here: {effect}")

    def client_of(self, channel: int) -> Client | None:
        for client in self.clients:
            if channel == client.pipe:
                return client
        return self.owed[channel][0].client if self.owed.get(channel) else self.posters.get(channel)

    def check_send(self, effect: Send) -> None:
        channel = effect.channel
        assert channel not in self.ended, "a message on a channel after its end"
        if effect.event_id is not None and not self.check_event(effect, effect.event_id):
            return
        assert effect.message, "an empty message without an event id"
        frame = json.loads(effect.message)
        if channel in self.children:
            self.take_sent(self.children[channel], frame, None)
            return
        if effect.is_last:
            self.ended.add(channel)
        client = self.client_of(channel)
        if "method" in frame:
            assert client is not None
            self.check_server_message(client, channel, frame)
            return
        open_requests = self.owed.get(channel, [])
        if frame.get("id") is None:
            assert not open_requests, "an answer without an id"
            return
        mine = [owed for owed in open_requests if owed.id == frame["id"] and type(owed.id) is type(frame["id"])]
        assert mine, f"an answer without a request on channel {channel}: {frame}"
        payload = frame["result"] if "result" in frame else frame["error"].get("data") or {}
        if payload.get("tag"):
            mine = [owed for owed in mine if owed.tag == payload["tag"]]
            assert mine, f"an answer made of another request's payload: {frame}"
        is_cancelled = frame.get("error", {}).get("code") == -32800
        mine = [owed for owed in mine if (owed.tag in self.cancelled) == is_cancelled]
        assert mine, f"an answer to a request that was cancelled: {frame}"
        mine.reverse()  # of two with one id on one pipe, it is the newer that is refused
        open_requests.remove(mine[0])
        assert not mine[0].due, "progress that came before the answer is missing"
        assert mine[0].tag not in self.answered, "a second answer"
        self.answered.add(mine[0].tag)
        if effect.session is not None:
            mine[0].client.session = effect.session
        if "error" in frame and mine[0].tag.startswith("initialize"):
            mine[0].client.is_over = mine[0].client.pipe is None or mine[0].client.is_over

    def check_event(self, effect: Send, id: str) -> bool:
        """True if the client sees the event for the first time. An event that is sent again is the same as before."""
        channel = effect.channel
        self.streamed.add(channel)
        client = self.client_of(channel)
        assert client is not None
        line = self.lines.setdefault(channel, Line(client, channel))
        if line.at < len(line.events):
            assert (id, effect.message) == line.events[line.at], "not what followed the event that was named"
            line.at += 1
            if effect.is_last:
                self.ended.add(channel)
            return False
        assert not any(id in other.places for other in self.lines.values() if other.client is client), "an id twice"
        if effect.message:
            line.events.append((id, effect.message))
            line.at += 1
        else:
            assert not line.events, "primed too late"
        line.places[id] = line.at
        return bool(effect.message)

    def check_server_message(self, client: Client, channel: int, frame: dict[str, Any]) -> None:
        params = frame.get("params", {})
        if frame["method"] == "notifications/progress":
            tokens = {owed.token: owed for owed in self.owed.get(channel, [])}
            assert params["progressToken"] in tokens, "progress for nothing open on this channel"
            owed = tokens[params["progressToken"]]
            assert owed.tag == params["tag"], "progress of another request"
            assert owed.due.pop(0) == params["progress"], "progress that came before is missing"
        elif frame["method"] == "elicitation/create":
            assert params["for"] == self.clients.index(client), "a question for another client"
            assert frame["id"] not in client.open_questions
            client.open_questions[frame["id"]] = params["tag"]
        elif frame["method"] == "notifications/cancelled":
            client.open_questions.pop(params["requestId"], None)
        elif frame["method"] == "notifications/message":
            assert params["for"] == self.clients.index(client), "a log line for another client"

    def close(self, channel: int) -> None:
        self.ended.add(channel)
        if channel in self.children:
            upstream = self.children.pop(channel)
            upstream.is_open = False
            self.carry_out(self.engine.receive_close(channel, Cause(End.DONE), self.tick()))
        elif channel in self.posts:
            del self.posts[channel]
            self.carry_out(self.engine.receive_close(channel, Cause(End.DONE), self.tick()))
        elif channel in self.listens:
            del self.listens[channel]
            self.carry_out(self.engine.receive_close(channel, Cause(End.DONE), self.tick()))

    def dial(self, effect: Dial) -> None:
        channel, target = effect.channel, effect.target
        match target:
            case Spawn():
                client = self.by_workspace.setdefault(target.workspace, self.acting)
                assert client is not None
                self.children[channel] = Upstream(client)
                self.current[self.clients.index(client)] = self.children[channel]
                self.later.append(("spawned", channel))
            case Post():
                frame = json.loads(target.message)
                if frame.get("method") == "initialize":
                    client = self.clients[frame["params"]["who"]]
                    upstream = Upstream(client)
                    self.current[self.clients.index(client)] = upstream
                    self.by_session[f"S{len(self.by_session)}"] = upstream
                else:
                    assert target.session is not None, "a message without the upstream's session"
                    upstream = self.by_session[target.session]
                self.posts[channel] = (
                    upstream,
                    frame.get("id") if "method" in frame else None,
                    frame.get("method", ""),
                )
                self.take_sent(upstream, frame, channel)
            case Listen() if target.last_event_id in self.cut:
                upstream, number = self.cut.pop(target.last_event_id)
                assert target.session is not None
                assert self.by_session[target.session] is upstream, "resumed in another session"
                assert number in upstream.requests, "no request waits for it any more"
                method, tag, token, _ = upstream.requests[number]
                upstream.requests[number] = (method, tag, token, channel)
                self.posts[channel] = (upstream, number, method)
                self.resumed[channel] = target.last_event_id
                self.later.append(("resuming", channel))
            case Listen():
                assert target.session is not None
                upstream = self.by_session[target.session]
                assert target.last_event_id == upstream.listen_id, "not from where it ended"
                self.listens[channel] = upstream
                self.later.append(("listening", channel))
            case Delete():
                self.by_session[target.session].is_open = False
                self.deletes.append(channel)

    # --- The servers ------------------------------------------------------------------------------------------------

    def take_sent(self, upstream: Upstream, frame: dict[str, Any], post: int | None) -> None:
        """A server notes its requests at once, and checks that none is foreign or repeated."""
        params = frame.get("params") or {}
        if "method" in frame and "id" in frame:
            assert frame["id"] not in upstream.requests, "an upstream id in use twice"
            tag = params.get("tag", "")
            if tag:
                owner = tag.split(":")[1]
                assert owner == str(self.clients.index(upstream.client)), "a request on another session's upstream"
                self.written[tag] = self.written.get(tag, 0) + 1
                if frame["method"] == UNSAFE:
                    assert self.written[tag] <= 1 + self.may_repeat.get(tag, 0), "a tool call was repeated"
            token = params.get("_meta", {}).get("progressToken")
            upstream.requests[frame["id"]] = (frame["method"], tag, token, post)
        elif frame.get("method") == "notifications/cancelled":
            upstream.requests.pop(params["requestId"], None)
        elif frame.get("method") == "notifications/initialized":
            upstream.is_greeted = True
        elif "method" not in frame:
            assert frame["id"] in upstream.questions, "a question was answered twice"
            tag = upstream.questions.pop(frame["id"])
            if "result" in frame:
                assert frame["result"]["tag"] == tag, "the answer to another question"

    def send(self, upstream: Upstream, frame: bytes, post: int | None) -> None:
        channel = post if post is not None else next((c for c, u in self.children.items() if u is upstream), None)
        if channel is None:
            channel = next((c for c, u in self.listens.items() if u is upstream), None)
        if channel is not None and channel not in self.ended:
            if channel in self.engine._context.unopened:
                if channel in self.children:
                    return  # a process that does not run yet says nothing
                self.carry_out(self.engine.receive_open(channel, Connected(), self.tick()))
            self.carry_out(self.engine.receive_message(channel, frame, self.tick()))

    def pick(self, options: list[Any]) -> Any:
        return options[self.random.randrange(len(options))] if options else None

    # --- What clients do --------------------------------------------------------------------------------------------

    @rule(server=st.sampled_from(["pipe", "http"]), is_pipe=st.booleans(), settles=st.booleans())
    @precondition(lambda self: len(self.clients) < 4 + 2 * sum(client.is_over for client in self.clients))
    def connect(self, server: str, is_pipe: bool, settles: bool) -> None:
        client = self.acting = Client(server)
        self.clients.append(client)
        channel = self.engine.new_channel()
        opening = PipeOpening(server=server) if is_pipe else PostOpening(server=server)
        if is_pipe:
            client.pipe = channel
        self.expect(client, channel, "x", f"initialize:{len(self.clients) - 1}", None)
        params = {"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}}, "who": len(self.clients) - 1}
        self.carry_out(self.engine.receive_open(channel, opening, self.tick()))
        body = message(id="x", method="initialize", params=params)
        self.carry_out(self.engine.receive_message(channel, body, self.tick()))
        if settles:
            self.settle()

    def expect(self, client: Client, channel: int, id: Any, tag: str, token: str | None) -> None:
        self.posters[channel] = client
        self.owed.setdefault(channel, []).append(Owed(client, id, tag, token))

    def usable(self) -> list[Client]:
        return [c for c in self.clients if not c.is_over and (c.session is not None or c.pipe is not None)]

    def speak(self, client: Client, body: bytes, owed: tuple[Any, str, str | None] | None = None) -> int | None:
        """Sends a message as a client: on its pipe, or on a POST of its own."""
        self.acting = client
        channel = client.pipe
        if channel is None:
            channel = self.engine.new_channel()
            opening = PostOpening(server=client.server, session=client.session)
            self.posters[channel] = client
            self.carry_out(self.engine.receive_open(channel, opening, self.tick()))
        if owed is not None:
            self.expect(client, channel, *owed)
        self.carry_out(self.engine.receive_message(channel, body, self.tick()))
        return channel

    @rule(
        ids=st.lists(st.sampled_from([1, 1, 1, "1", 7]), min_size=1, max_size=3),
        method=st.sampled_from([SAFE, UNSAFE]),
        wants=st.booleans(),
    )
    def request(self, ids: list[Any], method: str, wants: bool) -> None:
        client = self.pick(self.usable())
        for id in ids if client is not None else ():
            self.request_as(client, id, method, wants)

    def request_as(self, client: Client, id: Any, method: str, wants: bool) -> None:
        self.count += 1
        tag = f"{self.count}:{self.clients.index(client)}"
        token = f"t{self.count}" if wants else None
        params: dict[str, Any] = {"tag": tag}
        if token is not None:
            params["_meta"] = {"progressToken": token}
        self.speak(client, message(id=id, method=method, params=params), (id, tag, token))

    @rule()
    def confirm(self) -> None:
        client = self.pick(self.usable())
        if client is not None:
            self.speak(client, message(method="notifications/initialized"))

    @rule()
    def cancel(self) -> None:
        """Cancels a request whose id is open once in its session: it is not owed an answer any more."""
        client = self.pick(self.usable())
        if client is None:
            return
        mine = [(c, o) for c, owed in self.owed.items() for o in owed if o.client is client and o.id != "x"]
        found = self.pick(mine)
        if found is None:
            return
        channel, victim = found
        if (self.clients.index(client), victim.id) in self.orphaned:
            return  # an abandoned request has that id too: which of them is meant is the engine's guess
        same = [(c, o) for c, o in mine if o.id == victim.id and type(o.id) is type(victim.id)]
        is_loading = any(isinstance(order, Load) for order in self.orders)
        if any(c in self.ended or (c in self.streamed and is_loading) for c, _ in same):
            return  # it may have its answer, which the client has not seen
        if len(same) == 1:
            if channel in self.streamed:
                self.cancelled.add(victim.tag)  # a stream with event ids must end with an answer
            else:
                self.owed[channel].remove(victim)
        self.speak(client, message(method="notifications/cancelled", params={"requestId": victim.id}))

    @rule()
    def open_stream(self) -> None:
        client = self.pick([c for c in self.usable() if c.pipe is None and c.stream is None])
        if client is None:
            return
        client.stream = channel = self.engine.new_channel()
        self.posters[channel] = client
        self.lines[channel] = Line(client, channel, is_listening=True)
        opening = GetOpening(server=client.server, session=client.session)
        self.carry_out(self.engine.receive_open(channel, opening, self.tick()))
        if channel in self.ended:
            client.stream = None

    @rule()
    def close_stream(self) -> None:
        client = self.pick([c for c in self.clients if c.stream is not None])
        if client is None:
            return
        channel, client.stream = client.stream, None
        self.ended.add(channel)
        self.carry_out(self.engine.receive_close(channel, Cause(End.GONE), self.tick()))

    @rule()
    def hang_up(self) -> None:
        """A client drops a POST. With event ids it can come back; else nothing is owed on that stream any more."""
        found = self.pick([c for c, o in self.owed.items() if o and o[0].client.pipe is None and c not in self.ended])
        if found is None:
            return
        if any(owed.tag.startswith("initialize") for owed in self.owed[found]):
            self.owed[found][0].client.is_over = True
        if found not in self.streamed:
            self.orphaned |= {(self.clients.index(owed.client), owed.id) for owed in self.owed[found]}
            self.owed[found].clear()
        self.ended.add(found)
        self.carry_out(self.engine.receive_close(found, Cause(End.GONE), self.tick()))

    @rule()
    def come_back(self) -> None:
        """A client resumes a stream after any event it has seen, whether or not it is cut off."""
        line = self.pick([line for line in self.lines.values() if line.places and not line.client.is_over])
        if line is not None:
            self.resume(line, self.pick(list(line.places)))

    def resume(self, line: Line, id: str) -> None:
        client, old = line.client, line.channel
        line.channel = channel = self.engine.new_channel()
        line.at = line.places[id]
        self.lines[channel] = self.lines.pop(old)
        self.posters[channel] = client
        self.streamed.add(channel)
        if old in self.owed:
            self.owed[channel] = self.owed.pop(old)
        if line.is_listening:
            client.stream = channel
        was_open = old not in self.ended
        opening = GetOpening(server=client.server, session=client.session, last_event_id=id)
        self.carry_out(self.engine.receive_open(channel, opening, self.tick()))
        if not any(isinstance(order, Load) for order in self.orders):
            assert line.at == len(line.events), "not all that was seen came again"
        assert old in self.ended, "two connections of one stream"
        if was_open:
            self.carry_out(self.engine.receive_close(old, Cause(End.DONE), self.tick()))

    @rule(is_newest=st.booleans())
    @precondition(lambda self: self.orders)
    def store(self, is_newest: bool) -> None:
        """The storage carries out an order, the oldest or the newest."""
        order = self.orders.pop(-1 if is_newest else 0)
        if isinstance(order, Save):
            self.records[order.key] = order.value
            self.carry_out(self.engine.receive_answer(order.ticket, Saved(), self.tick()))
        else:
            loaded = Loaded(self.records.get(order.key))
            self.carry_out(self.engine.receive_answer(order.ticket, loaded, self.tick()))

    @rule()
    @precondition(lambda self: len(self.usable()) > 1)
    def leave(self) -> None:
        client = self.pick(self.usable())
        if client is None:
            return
        while self.orders:  # events that are still in the storage would be lost with the session
            self.store(False)
        client.is_over = True
        self.acting = client
        if client.pipe is not None:
            self.owed.pop(client.pipe, None)
            self.ended.add(client.pipe)
            self.carry_out(self.engine.receive_close(client.pipe, Cause(End.GONE), self.tick()))
            return
        for cut in [c for c, owed in self.owed.items() if owed and owed[0].client is client and c in self.ended]:
            self.owed[cut].clear()
        channel = self.engine.new_channel()
        opening = DeleteOpening(server=client.server, session=client.session)
        self.carry_out(self.engine.receive_open(channel, opening, self.tick()))
        assert not [o for owed in self.owed.values() for o in owed if o.client is client and o.id != "x"]

    @rule(refuses=st.booleans())
    def answer_question(self, refuses: bool) -> None:
        client = self.pick([c for c in self.usable() if c.open_questions])
        if client is None:
            return
        number = self.pick(list(client.open_questions))
        tag = client.open_questions.pop(number)
        outcome: dict[str, Any] = {"error": {"code": -1, "message": "no"}} if refuses else {"result": {"tag": tag}}
        self.speak(client, message(id=number, **outcome))

    # --- What servers do --------------------------------------------------------------------------------------------

    @rule()
    def progress_of_time(self) -> None:
        """Processes start, and streams open or are refused."""
        pending, self.later = self.later, []
        for kind, channel in pending:
            if channel in self.ended:
                continue
            if kind == "listening" and self.random.random() < 0.5:
                self.listens[channel].listen_id = None
                del self.listens[channel]
                self.ended.add(channel)
                cause = Cause(End.REFUSED, status=405)
                self.carry_out(self.engine.receive_close(channel, cause, self.tick()))
            else:
                self.begin_reply(channel)

    def begin_reply(self, channel: int) -> None:
        self.begun.add(channel)
        self.carry_out(self.engine.receive_open(channel, Connected(), self.tick()))

    @rule()
    def settle(self) -> None:
        """Lets every handshake that is under way succeed: most of what matters happens after it."""
        for _ in range(6):
            self.progress_of_time()
            for upstream, number in self.busy():
                if upstream.requests.get(number, ("",))[0] == "initialize":
                    self.reply_to(upstream, number, 1, False)
            self.acknowledge()

    def busy(self) -> list[tuple[Upstream, int]]:
        live = [u for u in self.current.values() if u.is_open]
        cut = list(self.cut.values())
        return [(u, number) for u in live for number in u.requests if (u, number) not in cut]

    @rule(fails=st.integers(0, 5), as_text=st.booleans())
    def reply(self, fails: int, as_text: bool) -> None:
        found = self.pick(self.busy())
        if found is not None:
            self.reply_to(*found, fails, as_text)

    def reply_to(self, upstream: Upstream, number: int, fails: int, as_text: bool) -> None:
        method, tag, _, post = upstream.requests.pop(number)
        if post is not None and post in self.ended:
            return
        if method == "initialize":
            name = next((name for name, u in self.by_session.items() if u is upstream), None)
            if post is not None:
                self.carry_out(self.engine.receive_open(post, Connected(session=name), self.tick()))
            able = {"tools": {"listChanged": True}, "prompts": {}, "logging": {}}
            outcome: dict[str, Any] = {"result": {"protocolVersion": "2025-11-25", "capabilities": able}}
        else:
            outcome = {"result": {"tag": tag}}
        if fails == 0:
            outcome = {"error": {"code": -32050, "message": "no", "data": {"tag": tag}}}
        self.send(upstream, message(id=str(number) if as_text else number, **outcome), post)
        if post is not None and post in self.posts:
            self.end_post(post, Cause(End.DONE))

    def end_post(self, channel: int, cause: Cause) -> None:
        upstream, number, _ = self.posts.pop(channel)
        if number is not None:
            upstream.requests.pop(number, None)
        self.ended.add(channel)
        self.carry_out(self.engine.receive_close(channel, cause, self.tick()))

    @rule()
    def acknowledge(self) -> None:
        """Notifications and answers that were POSTed get their 202."""
        for channel, (_, number, _) in list(self.posts.items()):
            if number is None and channel in self.posts:
                self.end_post(channel, Cause(End.DONE))

    @rule(how=st.sampled_from(["broken", "stale", "half written", "forgotten", "unreachable", "refused", "empty"]))
    def lose_post(self, how: str) -> None:
        found = self.pick([c for c, (_, number, _) in self.posts.items() if number is not None])
        if found is None:
            return
        upstream, number, method = self.posts[found]
        tag = upstream.requests[number][1] if number in upstream.requests else ""
        causes = {
            "broken": Cause(End.BROKEN, detail="reset"),
            "stale": Cause(End.BROKEN, detail="reset", stale=True),
            "half written": Cause(End.BROKEN, detail="reset", stale=True, unsent=True),
            "forgotten": Cause(End.REFUSED, status=404),
            "unreachable": Cause(End.UNREACHABLE, detail="refused", unsent=True),
            "refused": Cause(End.REFUSED, status=500, body=b"<html>"),
            "empty": Cause(End.DONE),
        }
        if found in self.resumed:
            if how in ("broken", "stale", "half written", "unreachable", "empty"):
                self.cut_off(found, causes[how], self.resumed[found])
                return
        elif how in ("forgotten", "half written", "unreachable"):
            self.may_repeat[tag] = self.may_repeat.get(tag, 0) + 1
        if how == "forgotten" and method != "initialize":
            upstream.is_open = False
        self.end_post(found, causes[how])

    @rule(
        how=st.sampled_from([End.DONE, End.BROKEN]),
        retry_ms=st.sampled_from([None, 0, 2000]),
        primes=st.booleans(),
        is_new=st.booleans(),
    )
    def cut_reply(self, how: End, retry_ms: int | None, primes: bool, is_new: bool) -> None:
        """A server's reply ends early, and can be resumed."""
        found = self.pick([c for c, (u, n, m) in self.posts.items() if n in u.requests and m != "initialize"])
        if found is None:
            return
        if found not in self.begun:
            self.begin_reply(found)
        if primes and found in self.posts:
            self.carry_out(self.engine.receive_open(found, Primed(), self.tick()))
        self.count += 1
        id = f"u{self.count}" if is_new or found not in self.resumed else self.resumed[found]
        last_event_id = id if id != self.resumed.get(found) else None
        self.cut_off(found, Cause(how, last_event_id=last_event_id, retry_ms=retry_ms), id)

    def cut_off(self, channel: int, cause: Cause, id: str) -> None:
        upstream, number, _ = self.posts.pop(channel)
        if number in upstream.requests and upstream.is_open:
            method, tag, token, _ = upstream.requests[number]
            upstream.requests[number] = (method, tag, token, None)
            self.cut[id] = (upstream, number)
        self.ended.add(channel)
        self.carry_out(self.engine.receive_close(channel, cause, self.tick()))

    @rule(how=st.sampled_from([End.DONE, End.BROKEN]), retry_ms=st.sampled_from([None, 0, 2000]))
    def cut_listening(self, how: End, retry_ms: int | None) -> None:
        """A server's GET stream ends, and can be resumed."""
        found = self.pick(list(self.listens))
        if found is None:
            return
        if found not in self.begun:  # a reply with an event id has begun
            self.begin_reply(found)
        if found in self.ended:
            return
        self.count += 1
        upstream = self.listens.pop(found)
        upstream.listen_id = f"g{self.count}"
        self.ended.add(found)
        cause = Cause(how, last_event_id=upstream.listen_id, retry_ms=retry_ms)
        self.carry_out(self.engine.receive_close(found, cause, self.tick()))

    @rule()
    def die(self) -> None:
        found = self.pick(list(self.children))
        if found is None:
            return
        upstream = self.children.pop(found)
        upstream.is_open = False
        self.ended.add(found)
        self.carry_out(self.engine.receive_close(found, Cause(End.BROKEN, detail="exit 1"), self.tick()))

    @rule()
    def report_progress(self) -> None:
        found = self.pick([(u, n) for u, n in self.busy() if u.requests[n][2] is not None])
        if found is None:
            return
        upstream, number = found
        _, tag, token, post = upstream.requests[number]
        if post in self.ended or (post is None and upstream not in self.children.values()):
            return
        self.count += 1
        for owed in self.left():
            if owed.tag == tag and tag not in self.cancelled:
                owed.due.append(self.count)
        params = {"progressToken": token, "progress": self.count, "tag": tag}
        self.send(upstream, message(method="notifications/progress", params=params), post)

    @rule(kind=st.sampled_from(["question", "log", "change"]))
    def speak_up(self, kind: str) -> None:
        found = self.pick([u for u in self.current.values() if u.is_open])
        if found is None or not (found.is_greeted or found in self.children.values()):
            return  # the response to `initialize` opens its channel once, with the session
        owner = self.clients.index(found.client)
        posts = [post for _, _, _, post in found.requests.values() if post is not None and post not in self.ended]
        post = self.pick(posts)
        self.count += 1
        if kind == "question":
            number = f"q{self.count}"
            running = [u for c, u in self.children.items() if c not in self.engine._context.unopened]
            is_reachable = post is not None or found in [*running, *self.listens.values()]
            if not found.is_greeted or not is_reachable:
                return
            found.questions[number] = number
            params = {"for": owner, "tag": number}
            self.send(found, message(id=number, method="elicitation/create", params=params), post)
        elif kind == "log":
            self.send(found, message(method="notifications/message", params={"for": owner}), post)
        else:
            self.send(found, message(method="notifications/tools/list_changed"), post)

    @rule(noise=st.sampled_from([b"banner", b"{}", b'{"jsonrpc":"2.0","id":999999,"result":{}}', b"\xff", b"[]"]))
    def make_noise(self, noise: bytes) -> None:
        found = self.pick(list(self.children))
        if found is not None and found not in self.engine._context.unopened:  # before it runs, a process is silent
            self.carry_out(self.engine.receive_message(found, noise, self.tick()))

    @rule(seconds=st.sampled_from([0.5, 3.0, 40.0]))
    def wait(self, seconds: float) -> None:
        end = self.now + seconds
        while (deadline := self.engine.next_timeout()) is not None and deadline.at <= end:
            self.now = max(self.now, deadline.at)
            effects = self.engine.handle_timeout(self.now)
            following = self.engine.next_timeout()
            assert following is None or following.at > self.now, "a deadline that was handled is due again"
            self.carry_out(effects)
        self.now = max(self.now, end)

    # --- Always, and at the end -------------------------------------------------------------------------------------

    @invariant()
    def counts_agree(self) -> None:
        if not hasattr(self, "engine"):
            return
        assert self.engine.session_count <= len(self.clients)

    def left(self) -> list[Owed]:
        return [owed for requests in self.owed.values() for owed in requests]

    def teardown(self) -> None:
        """Every request is answered once faults stop, and at the very end nothing is left."""
        if not hasattr(self, "engine"):
            return
        for round in range(16):
            self.settle()
            for client in self.usable():
                self.speak(client, message(method="notifications/initialized"))
                for number, tag in list(client.open_questions.items()):
                    del client.open_questions[number]
                    self.speak(client, message(id=number, result={"tag": tag}))
            for line in [line for line in self.lines.values() if line.channel in self.ended and line.places]:
                if not line.client.is_over and (round == 0 or self.owed.get(line.channel)):
                    self.resume(line, list(line.places)[-1])
            while self.orders:
                self.store(False)
            for channel in [channel for channel, (upstream, _, _) in self.posts.items() if not upstream.is_open]:
                self.end_post(channel, Cause(End.BROKEN, detail="the server that had it is gone"))
            for upstream, number in self.busy():
                if number in upstream.requests:
                    self.reply_to(upstream, number, 1, False)
            self.wait(3.0)
        for line in self.lines.values():
            assert line.at == len(line.events) or line.client.is_over or line.channel in self.ended, (
                "something is missing"
            )
        assert not self.left(), f"not answered though everything works: {self.left()}"
        open_questions = [q for u in self.current.values() if u.is_open for q in u.questions]
        assert not open_questions, f"neither answered nor refused: {open_questions}"
        self.carry_out(self.engine.receive_stop(self.tick()))
        assert not self.left(), f"never answered: {self.left()}"
        assert self.engine.session_count == 0
        assert self.engine.exchange_count == 0
        while self.orders:
            self.store(False)
        assert not self.records, "records of ended sessions are kept"


TestWorld = World.TestCase
TestWorld.settings = settings(max_examples=120, stateful_step_count=60, deadline=None, report_multiple_bugs=False)


def test_cancel_of_a_request_whose_answer_is_being_replayed() -> None:
    """A cancellation that comes after the answer is ignored: the client that came back still gets the answer, once."""
    world = World()
    world.begin(seed=0, first=[("pipe", False)])
    for _ in range(3):
        world.report_progress()
    while world.orders:
        world.store(False)
    world.hang_up()
    (line,) = world.lines.values()
    world.resume(line, next(iter(line.places)))
    assert any(isinstance(order, Load) for order in world.orders)
    world.die()
    world.cancel()
    assert "1:0" not in world.answered
    while world.orders:
        world.store(False)
    assert "1:0" in world.answered
    world.teardown()
