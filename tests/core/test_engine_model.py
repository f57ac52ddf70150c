"""The engine against a plain model: a dict of what each client is owed.

Clients on pipes and HTTP, servers on pipes and HTTP, in any order of asking, answering, hanging up, dying and waiting.
The model knows nothing of the engine's insides: it reads the effects as a peer would. It holds that

- every accepted request gets exactly one answer, on its own channel, under its own id, made of its own payload;
- nothing of one session reaches another: answers, progress, questions, logs;
- no tool call is written upstream twice unless it provably did not run;
- nothing is said on a channel after its end.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from isthmus.core.effects import (
    Cause,
    Close,
    Connected,
    Delete,
    DeleteOpening,
    Dial,
    Effect,
    End,
    GetOpening,
    Listen,
    Note,
    Pause,
    PipeOpening,
    Post,
    PostOpening,
    Resume,
    Send,
    Spawn,
)
from isthmus.core.engine import Engine
from isthmus.core.limits import Limits
from isthmus.core.plan import Kind, Plan, ServerPlan

SAFE = "prompts/get"
UNSAFE = "tools/call"
TWICE_ALLOWED = {SAFE}


def message(**members: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **members}).encode()


@dataclass(eq=False)
class Owed:
    """One request of a client that waits for its answer."""

    client: Client
    id: Any
    tag: str
    token: str | None


@dataclass(eq=False)
class Client:
    server: str
    pipe: int | None = None
    session: str | None = None
    stream: int | None = None
    is_over: bool = False
    asked: dict[int, str] = field(default_factory=dict)
    """Questions of the server this client has not answered: id → tag."""


@dataclass(eq=False)
class Upstream:
    """One incarnation of a server's session, as the server sees it: its open requests by their id."""

    client: Client
    is_open: bool = True
    requests: dict[int, tuple[str, str, str | None, int | None]] = field(default_factory=dict)
    """id → (method, tag, token, POST channel)."""
    questions: dict[str, str] = field(default_factory=dict)


class World(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 2**32))
    def begin(self, seed: int) -> None:
        self.random = random.Random(seed)
        plan = Plan(
            servers=(ServerPlan(id="pipe", kind=Kind.PIPE), ServerPlan(id="http", kind=Kind.HTTP)),
            link_key=b"0123456789abcdef",
        )
        self.engine = Engine(
            plan, entropy=self.random.randbytes, unix_at_zero=1e9, limits=Limits(exchanges_per_session_max=16)
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
        self.orphaned: set[tuple[int, Any]] = set()
        self.acting: Client | None = None
        self.posters: dict[int, Client] = {}
        self.by_workspace: dict[str, Client | None] = {}
        self.by_session: dict[str, Upstream] = {}
        self.later: list[tuple[str, int]] = []
        """What takes a moment: processes and streams that are on their way."""

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
                case Pause() | Resume() | Note():
                    pass
                case _:
                    raise AssertionError(f"no such order is expected here: {effect}")

    def client_of(self, channel: int) -> Client | None:
        for client in self.clients:
            if channel in (client.pipe, client.stream):
                return client
        return self.owed[channel][0].client if self.owed.get(channel) else self.posters.get(channel)

    def check_send(self, effect: Send) -> None:
        if not effect.message:
            assert effect.event_id is not None, "what is empty primes"
            self.streamed.add(effect.channel)
            return
        channel = effect.channel
        if effect.event_id is not None:
            self.streamed.add(channel)
        assert channel not in self.ended, "something was said on a channel after its end"
        frame = json.loads(effect.message)
        if channel in self.children:
            self.hear(self.children[channel], frame, None)
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
        assert mine, f"an answer nobody on channel {channel} waits for: {frame}"
        payload = frame["result"] if "result" in frame else frame["error"].get("data") or {}
        if payload.get("tag"):
            mine = [owed for owed in mine if owed.tag == payload["tag"]]
            assert mine, f"an answer made of another request's payload: {frame}"
        is_cancelled = frame.get("error", {}).get("code") == -32800
        mine = [owed for owed in mine if (owed.tag in self.cancelled) == is_cancelled]
        assert mine, f"an answer to a request that was cancelled: {frame}"
        mine.reverse()  # of two with one id on one pipe, it is the newer that is refused
        open_requests.remove(mine[0])
        assert mine[0].tag not in self.answered, "a second answer"
        self.answered.add(mine[0].tag)
        if effect.session is not None:
            mine[0].client.session = effect.session
        if "error" in frame and mine[0].tag.startswith("initialize"):
            mine[0].client.is_over = mine[0].client.pipe is None or mine[0].client.is_over

    def check_server_message(self, client: Client, channel: int, frame: dict[str, Any]) -> None:
        params = frame.get("params", {})
        if frame["method"] == "notifications/progress":
            tokens = {owed.token: owed.tag for owed in self.owed.get(channel, [])}
            assert params["progressToken"] in tokens, "progress for nothing open on this channel"
            assert tokens[params["progressToken"]] == params["tag"], "progress of another request"
        elif frame["method"] == "elicitation/create":
            assert params["for"] == self.clients.index(client), "a question for another client"
            assert frame["id"] not in client.asked
            client.asked[frame["id"]] = params["tag"]
        elif frame["method"] == "notifications/cancelled":
            client.asked.pop(params["requestId"], None)
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
                self.hear(upstream, frame, channel)
            case Listen():
                assert target.session is not None
                self.listens[channel] = self.by_session[target.session]
                self.later.append(("listening", channel))
            case Delete():
                self.by_session[target.session].is_open = False
                self.deletes.append(channel)

    # --- The servers ------------------------------------------------------------------------------------------------

    def hear(self, upstream: Upstream, frame: dict[str, Any], post: int | None) -> None:
        """What a server does at once: note requests, and check that nothing is foreign or repeated."""
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
        elif "method" not in frame:
            tag = upstream.questions.pop(frame["id"], None)
            if tag is not None and "result" in frame:
                assert frame["result"]["tag"] == tag, "the answer to another question"

    def say(self, upstream: Upstream, frame: bytes, post: int | None) -> None:
        channel = post if post is not None else next((c for c, u in self.children.items() if u is upstream), None)
        if channel is None:
            channel = next((c for c, u in self.listens.items() if u is upstream), None)
        if channel is not None and channel not in self.ended:
            self.carry_out(self.engine.receive_message(channel, frame, self.tick()))

    def pick(self, options: list[Any]) -> Any:
        return options[self.random.randrange(len(options))] if options else None

    # --- What clients do --------------------------------------------------------------------------------------------

    @rule(server=st.sampled_from(["pipe", "http"]), is_pipe=st.booleans(), settles=st.booleans())
    @precondition(lambda self: len(self.clients) < 4)
    def connect(self, server: str, is_pipe: bool, settles: bool) -> None:
        client = self.acting = Client(server)
        self.clients.append(client)
        channel = self.engine.new_channel()
        opening = PipeOpening(server=server) if is_pipe else PostOpening(server=server)
        if is_pipe:
            client.pipe = channel
        self.expect(client, channel, "x", f"initialize:{len(self.clients) - 1}", None)
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "who": len(self.clients) - 1}
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
        """Say something as a client: on its pipe, or on a POST of its own."""
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
        """Cancel a request whose id is open once in its session: it is not owed an answer any more."""
        client = self.pick(self.usable())
        if client is None:
            return
        mine = [(c, o) for c, owed in self.owed.items() for o in owed if o.client is client and o.id != "x"]
        found = self.pick(mine)
        if found is None:
            return
        channel, victim = found
        if (self.clients.index(client), victim.id) in self.orphaned:
            return  # a request nobody waits for has that id too: which of them is meant is the engine's guess
        same = [o for _, o in mine if o.id == victim.id and type(o.id) is type(victim.id)]
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
        self.carry_out(self.engine.receive_close(channel, Cause(End.GONE), self.tick()))

    @rule()
    def hang_up(self) -> None:
        """A client drops a POST: nothing is owed on it any more, and nothing else changes."""
        found = self.pick([c for c, owed in self.owed.items() if owed and owed[0].client.pipe is None])
        if found is None:
            return
        if any(owed.tag.startswith("initialize") for owed in self.owed[found]):
            self.owed[found][0].client.is_over = True
        self.orphaned |= {(self.clients.index(owed.client), owed.id) for owed in self.owed[found]}
        self.owed[found].clear()
        self.ended.add(found)
        self.carry_out(self.engine.receive_close(found, Cause(End.GONE), self.tick()))

    @rule()
    def leave(self) -> None:
        client = self.pick(self.usable())
        if client is None:
            return
        client.is_over = True
        self.acting = client
        if client.pipe is not None:
            self.owed.pop(client.pipe, None)
            self.ended.add(client.pipe)
            self.carry_out(self.engine.receive_close(client.pipe, Cause(End.GONE), self.tick()))
            return
        channel = self.engine.new_channel()
        opening = DeleteOpening(server=client.server, session=client.session)
        self.carry_out(self.engine.receive_open(channel, opening, self.tick()))
        assert not [o for owed in self.owed.values() for o in owed if o.client is client and o.id != "x"]

    @rule(refuses=st.booleans())
    def answer_question(self, refuses: bool) -> None:
        client = self.pick([c for c in self.usable() if c.asked])
        if client is None:
            return
        number = self.pick(list(client.asked))
        tag = client.asked.pop(number)
        outcome: dict[str, Any] = {"error": {"code": -1, "message": "no"}} if refuses else {"result": {"tag": tag}}
        self.speak(client, message(id=number, **outcome))

    # --- What servers do --------------------------------------------------------------------------------------------

    @rule()
    def progress_of_time(self) -> None:
        """What takes a moment: processes come up, streams open or are refused."""
        pending, self.later = self.later, []
        for kind, channel in pending:
            if channel in self.ended:
                continue
            if kind == "listening" and self.random.random() < 0.5:
                self.listens.pop(channel, None)
                self.ended.add(channel)
                cause = Cause(End.REFUSED, status=405)
                self.carry_out(self.engine.receive_close(channel, cause, self.tick()))
            else:
                self.carry_out(self.engine.receive_open(channel, Connected(), self.tick()))

    @rule()
    def settle(self) -> None:
        """Let every handshake that is under way succeed: most of what matters happens after it."""
        for _ in range(6):
            self.progress_of_time()
            for upstream, number in self.busy():
                if upstream.requests.get(number, ("",))[0] == "initialize":
                    self.reply_to(upstream, number, 1, False)
            self.acknowledge()

    def busy(self) -> list[tuple[Upstream, int]]:
        live = [u for u in self.current.values() if u.is_open]
        return [(u, number) for u in live for number in u.requests]

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
            outcome: dict[str, Any] = {"result": {"protocolVersion": "2025-11-25", "capabilities": {}}}
        else:
            outcome = {"result": {"tag": tag}}
        if fails == 0:
            outcome = {"error": {"code": -32050, "message": "no", "data": {"tag": tag}}}
        self.say(upstream, message(id=str(number) if as_text else number, **outcome), post)
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

    @rule(how=st.sampled_from(["broken", "forgotten", "unreachable", "refused", "empty"]))
    def lose_post(self, how: str) -> None:
        found = self.pick([c for c, (_, number, _) in self.posts.items() if number is not None])
        if found is None:
            return
        upstream, number, method = self.posts[found]
        tag = upstream.requests[number][1] if number in upstream.requests else ""
        causes = {
            "broken": Cause(End.BROKEN, detail="reset"),
            "forgotten": Cause(End.REFUSED, status=404),
            "unreachable": Cause(End.UNREACHABLE, detail="refused", unsent=True),
            "refused": Cause(End.REFUSED, status=500, body=b"<html>"),
            "empty": Cause(End.DONE),
        }
        if how in ("forgotten", "unreachable"):
            self.may_repeat[tag] = self.may_repeat.get(tag, 0) + 1
        if how == "forgotten" and method != "initialize":
            upstream.is_open = False
        self.end_post(found, causes[how])

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
        params = {"progressToken": token, "progress": 1, "tag": tag}
        self.say(upstream, message(method="notifications/progress", params=params), post)

    @rule(kind=st.sampled_from(["question", "log", "change"]))
    def speak_up(self, kind: str) -> None:
        found = self.pick([u for u in self.current.values() if u.is_open])
        if found is None:
            return
        owner = self.clients.index(found.client)
        posts = [post for _, _, _, post in found.requests.values() if post is not None and post not in self.ended]
        post = self.pick(posts)
        self.count += 1
        if kind == "question":
            number = f"q{self.count}"
            found.questions[number] = number
            params = {"for": owner, "tag": number}
            self.say(found, message(id=number, method="elicitation/create", params=params), post)
        elif kind == "log":
            self.say(found, message(method="notifications/message", params={"for": owner}), post)
        else:
            self.say(found, message(method="notifications/tools/list_changed"), post)

    @rule(noise=st.sampled_from([b"banner", b"{}", b'{"jsonrpc":"2.0","id":999999,"result":{}}', b"\xff", b"[]"]))
    def make_noise(self, noise: bytes) -> None:
        found = self.pick(list(self.children))
        if found is not None:
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
        """Once faults stop, everything is answered; and at the very end nothing is left."""
        if not hasattr(self, "engine"):
            return
        for _ in range(12):
            self.settle()
            for channel in [channel for channel, (upstream, _, _) in self.posts.items() if not upstream.is_open]:
                self.end_post(channel, Cause(End.BROKEN, detail="the server that had it is gone"))
            for upstream, number in self.busy():
                if number in upstream.requests:
                    self.reply_to(upstream, number, 1, False)
            self.wait(3.0)
        assert not self.left(), f"not answered though everything works: {self.left()}"
        self.carry_out(self.engine.receive_stop(self.tick()))
        assert not self.left(), f"never answered: {self.left()}"
        assert self.engine.session_count == 0
        assert self.engine.exchange_count == 0


TestWorld = World.TestCase
TestWorld.settings = settings(max_examples=60, stateful_step_count=60, deadline=None, report_multiple_bugs=False)
