"""Clients of both eras, on pipes and over HTTP, each of which checks its answers.

Every text that a client sends carries its mark, and no message to it may carry another client's mark.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from isthmus.core.base.effects import Close, Send
from isthmus.core.base.events import (
    Cause,
    DeleteOpening,
    End,
    EventPipeOpening,
    GetOpening,
    MessageOpening,
    Opening,
    PipeOpening,
    PostOpening,
)
from isthmus.core.base.grants import NO_GRANTS, Grants
from isthmus.core.base.ids import ChannelId
from manners import TAKEN, log_line
from simulated_answers import accept, answers_to, texts_in
from simulated_network import Channel, Network, Wrong, filler_of
from simulated_servers import ABILITIES, BATCHING, GARBAGE, GARBAGE_TOKEN, HANDSHAKES, MODERN, VERSION
from simulated_subscriptions import Subscriptions
from simulated_tasks import Tasks

MARKS: Final = re.compile(rb"mk\d+:")
ABLE: Final = {"elicitation": {}}
GONE: Final = Cause(End.GONE)


class _Nowhere:
    name = "nowhere"

    def receive(self, channel: Channel, send: Send) -> None:
        raise Wrong(f"sent before anything was said: {send}")

    def receive_end(self, channel: Channel, close: Close | None) -> None:
        pass


NOWHERE: Final = Channel(ChannelId(-1), _Nowhere())


class Owed:
    """An open request: where its answer belongs, and the text of a good one (None: any text).

    Attributes:
        settle: called with the answer, whatever it is. None: the answer is judged by its text.
        lost: called if no answer can come any more.
        lasts: True if no answer needs to come.
        asked_at: its number among the requests of all clients.
        progress: the largest value that was reported. `progress_before`: that of earlier rounds of the call.
        reported: the values that were reported, by the channel that brought them. Two channels have no common order:
            progress that comes after an answer may overtake what is resumed.
    """

    settle: Callable[[Owed, dict[str, Any]], None] | None = None
    lost: Callable[[], None] | None = None
    lasts = False
    asked_at = progress = progress_before = 0

    def __init__(self, channel: Channel, text: str | None, params: dict[str, Any]) -> None:
        self.channel, self.text, self.params = channel, text, params
        self.reported: dict[Channel, list[float]] = {}

    @property
    def token(self) -> int | None:
        """The progress token. All rounds of a call have the same one."""
        token: int | None = self.params.get("_meta", {}).get("progressToken")
        return token

    @property
    def steps(self) -> int:
        """The number of progress notifications that the client asked for."""
        steps: int = self.params["arguments"]["steps"] if self.token is not None else 0
        return steps


class Client:
    """A client of one server. Subclasses add the transports.

    Attributes:
        owed: open requests, by their ids.
        unwanted: cancelled requests, whose answer may still arrive.
        settled: requests that were answered, or whose channel was lost.
        outcomes: the number of requests by the way they ended.
        able: the capabilities that it declares.
        server_capabilities: the capabilities that its server has declared in a handshake.
        spoken: the revision that was agreed on in the handshake.
        incarnation: the number of times that it has begun.
        tasks, subscriptions: its actions with tasks and subscriptions, or None.
        grants: those of its token; it may change at any time.
        members: the servers of its profile, if `server` is one.
        gets_updates: True if it has a stream for notifications of changes.
        manners: its manners.
        may_log: True if a message that is refused does not end its session.
    """

    is_modern = False
    may_log = True
    gets_updates = True

    def __init__(self, network: Network, number: int, server: str, principal: str) -> None:
        self.network, self.name = network, f"c{number}"
        self.rng = network.rng_of(self.name)
        self.seed = self.rng.getrandbits(64)
        self.mark, self.server, self.principal = f"mk{number}:", server, principal
        self.revision = MODERN if self.is_modern else self.rng.choice(HANDSHAKES)
        self.is_rude = self.rng.random() < 0.5 and "rude" in network.faults
        self.is_ready = self.is_done = False
        self.owed: dict[int, Owed] = {}
        self.unwanted: dict[int, Owed] = {}
        self.settled: set[int] = set()
        self.outcomes: Counter[str] = Counter()
        self.last = self.incarnation = 0
        self.spoken = ""
        self.able: dict[str, Any] = ABLE
        self.server_capabilities: dict[str, Any] = {}
        self.tasks: Tasks | None = None
        self.subscriptions: Subscriptions | None = None
        self.grants = NO_GRANTS
        self.members: tuple[str, ...] = ()
        self.manners = network.manners_of(self.name)
        self._whim = network.rng_of(f"whims of {self.name}")

    def __str__(self) -> str:
        kind = "".join((type(self).__name__, ", rude" * self.is_rude, *(f", {one}" for one in sorted(self.manners))))
        return f"{self.name}: {kind}, {self.revision}, of {self.principal or 'nobody'}, with {self.server}"

    @property
    def shown(self) -> Grants:
        """The grants that it shows with a request."""
        return self.grants

    # --- Actions ----------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Opens its channels and sends `initialize` if its era has one."""
        raise NotImplementedError

    def leave(self) -> None:
        """Leaves, whatever is under way."""
        raise NotImplementedError

    def send(self, message: bytes) -> Channel:
        """Sends the message. Returns the channel on which the answer belongs."""
        raise NotImplementedError

    def act(self, number: int) -> None:
        """Does one of the actions of clients. All random choices in it, and in what follows from it, are drawn by its
        number."""
        network, rng = self.network, self.rng
        if not network.is_stormy or self.is_done:
            return
        rng.seed(f"{self.seed} {number}")
        if network.strikes("leaves", 0.02, rng):
            if type(self) in HALVING and (rng.random() < 0.5 or "unended" in self.manners):
                self.end_half()
            else:
                self.leave()
                self.begin()
        elif not self.is_ready:
            return
        elif rng.random() < 0.2 and self.is_rude and network.strikes("rude", 1.0, rng):
            self.be_rude()
        elif network.strikes("cancels", 0.1, rng) and self.owed:
            self.cancel(rng.choice(list(self.owed)))
        elif self._is_busy_otherwise(rng):
            return
        elif self.spoken == BATCHING and rng.random() < 0.2:
            self.call_many()
        elif rng.random() < 0.7:
            self.call()
        else:
            self.request(rng.choice(("tools/list", "tools/list", "server/discover" if self.is_modern else "ping")))

    def _is_busy_otherwise(self, rng: random.Random) -> bool:
        """True if the client has done something with tasks or subscriptions."""
        if self.tasks is not None and rng.random() < 0.6 and self.tasks.act(rng):
            return True
        return self.subscriptions is not None and rng.random() < 0.3 and self.subscriptions.act(rng)

    def call(self) -> int:
        """Calls a tool that returns its argument."""
        return self.request(*self._a_call())

    @property
    def places(self) -> tuple[str, ...]:
        """The servers that it can reach."""
        return self.members or (self.server,)

    def address(self, params: dict[str, Any], rng: random.Random) -> str:
        """Chooses the server of a call, at a profile. Returns the text of the call, which names it."""
        if self.members:
            member = rng.choice(self.members)
            params["name"] = f"{member}__{params['name']}"
            params["arguments"]["say"] += f"@{member}"
        say: str = params["arguments"]["say"]
        return say

    def _a_call(self) -> tuple[str, dict[str, Any], str]:
        say = f"{self.mark}{self.last + 1}"
        params: dict[str, Any] = {"name": "echo", "arguments": {"say": say, "ask": self.rng.random() < 0.3}}
        say = self.address(params, self.rng)
        if self.rng.random() < 0.4:
            params["_meta"] = {"progressToken": self.last + 1}
            params["arguments"]["steps"] = self.rng.choice((1, 1, 10, 60))
        return "tools/call", params, say

    def request(
        self,
        method: str,
        params: dict[str, Any] | None = None,
        text: str | None = None,
        settle: Callable[[Owed, dict[str, Any]], None] | None = None,
        lost: Callable[[], None] | None = None,
    ) -> int:
        number, owed, message = self._compose(method, params, text)
        owed.settle, owed.lost = settle, lost
        if "noisy" in self.manners and self.may_log and method != "initialize" and self._whim.random() < 0.1:
            self.network.counts["manner noisy client"] += 1
            self.send(log_line(self._whim, number))
        owed.channel = self.send(json.dumps(message).encode())
        self.owed[number] = owed
        return number

    def _compose(
        self, method: str, params: dict[str, Any] | None, text: str | None
    ) -> tuple[int, Owed, dict[str, Any]]:
        self.last += 1
        self.network.asked += 1
        full = dict(params or {})
        if self.is_modern:
            full["_meta"] = {**full.get("_meta", {}), VERSION: MODERN, ABILITIES: self.able}
        owed = Owed(NOWHERE, text, full)
        owed.asked_at = self.network.asked
        return self.last, owed, {"jsonrpc": "2.0", "id": self.last, "method": method, "params": full}

    def call_many(self) -> None:
        """Sends a batch of calls (2025-03-26)."""
        composed = [self._compose(*self._a_call()) for _ in range(self.rng.randint(2, 4))]
        channel = self.send(json.dumps([message for _, _, message in composed]).encode())
        for number, owed, _ in composed:
            owed.channel = channel
            self.owed[number] = owed

    def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        rest = {} if params is None else {"params": params}
        self.send(json.dumps({"jsonrpc": "2.0", "method": method, **rest}).encode())

    def cancel(self, number: int) -> None:
        self.unwanted[number] = self.owed.pop(number)
        self.notify("notifications/cancelled", {"requestId": number})

    def be_rude(self) -> None:
        self.send(self.rng.choice(GARBAGE))

    def initialize(self) -> None:
        client = {"name": "c", "version": "1"}
        params = {"protocolVersion": self.revision, "capabilities": ABLE, "clientInfo": client}
        self.request("initialize", params, "initialize")

    # --- Messages to it ---------------------------------------------------------------------------------------------

    def receive(self, channel: Channel, send: Send) -> None:
        self._check_marks(send.message)
        if send.message:
            frame = json.loads(send.message)
            for one in frame if isinstance(frame, list) else [frame]:
                if "method" not in one:
                    self._take_answer(channel, one)
                elif "id" in one:
                    self._take_question(one)
                elif one["method"] == "notifications/progress":
                    self._take_progress(channel, one["params"])
                elif self.subscriptions is not None:
                    self.subscriptions.receive(channel, one)

    def _check_marks(self, message: bytes) -> None:
        for mark in MARKS.findall(message):
            if mark.decode() != self.mark:
                raise Wrong(f"{self.mark} was sent what belongs to another: {message!r}")

    def receive_end(self, channel: Channel, close: Close | None) -> None:
        """Takes the end of a channel. `close` is the engine's order, or None if the channel was lost."""
        raise NotImplementedError

    def _take_answer(self, channel: Channel, frame: dict[str, Any]) -> None:
        number = frame.get("id")
        if number is None or (self.is_rude and number not in self.owed):
            return  # the id belongs to a message that was no request
        if number in self.settled:
            raise Wrong(f"{self.mark} was answered again: {frame}")
        owed = self.owed.pop(number, None) or self.unwanted.pop(number, None)
        if owed is None:
            raise Wrong(f"{self.mark} has asked nothing under that id: {frame}")
        if owed.channel is not channel:
            raise Wrong(f"{self.mark} was answered on another channel: {frame}")
        self.settled.add(number)
        if TAKEN in str(frame.get("error")) and not self.network.faults & self.network.overlapping:
            raise Wrong(f"{self.mark} has to know that an earlier process was still ending: {frame}")
        if owed.settle is not None:
            owed.settle(owed, frame)
        elif self.members and "cannot be called as a task" in str(frame.get("error")):
            self.outcomes["task refused"] += 1  # a profile offers tasks if any of its servers may have them
        elif "error" in frame:
            self.outcomes["error"] += 1
            self.outcomes[f"error {frame['error'].get('code')}"] += 1
            if owed.text == "initialize":
                self.fail_to_begin()
        elif owed.text == "initialize":
            if frame["result"]["protocolVersion"] not in HANDSHAKES:
                raise Wrong(f"{self.mark} was offered a revision without a handshake: {frame}")
            self.is_ready = True
            self.incarnation += 1
            self.server_capabilities = frame["result"]["capabilities"]
            self.spoken = frame["result"]["protocolVersion"]
            self.notify("notifications/initialized")
        elif frame["result"].get("resultType") == "input_required":
            self._go_on(owed, frame["result"])
        elif self.tasks is not None and ("task" in frame["result"] or frame["result"].get("resultType") == "task"):
            self.tasks.begin(owed, frame["result"])
        else:
            self._judge(owed, frame["result"])

    def _take_progress(self, channel: Channel, params: dict[str, Any]) -> None:
        token = params["progressToken"]
        owed = next((owed for owed in (*self.owed.values(), *self.unwanted.values()) if owed.token == token), None)
        value, is_again = params["progress"], False
        if owed is not None:
            before = owed.reported.setdefault(channel, [])
            is_again = any(value in values for values in owed.reported.values()) or value <= max(before, default=0)
            before.append(value)
        if is_again and not any("untidy" in self.network.manners_of(server) for server in self.places):
            raise Wrong(f"{self.mark} was told of progress again: {params}")
        if owed is not None:
            owed.progress = max(owed.progress, value)
            self.outcomes["progress"] += 1
        elif token not in self.settled and token != GARBAGE_TOKEN:
            raise Wrong(f"{self.mark} wants to hear of no such progress: {params}")

    def _judge(self, owed: Owed, result: dict[str, Any]) -> None:
        self.outcomes["result"] += 1
        if owed.text is not None:
            if texts_in(result) != [owed.text] and not result.get("isError"):
                raise Wrong(f"{owed.text!r} was answered {result!r}")
            filler = result.get("_meta", {}).get("filler")
            if filler is not None and filler != filler_of(len(filler)):
                raise Wrong(f"{owed.text!r} was answered with {filler!r} in between")
            if not self.network.faults and max(owed.progress, owed.progress_before) != owed.steps:
                raise Wrong(f"nothing went wrong, and {owed.text!r} made {owed.progress} steps of {owed.steps}")

    def _go_on(self, owed: Owed, result: dict[str, Any]) -> None:
        """Answers the questions of a call, and repeats the call."""
        again = self.request("tools/call", {**owed.params, **answers_to(result)}, owed.text)
        self.owed[again].progress_before = max(owed.progress, owed.progress_before)

    def _take_question(self, frame: dict[str, Any]) -> None:
        if frame["method"] == "elicitation/create":
            result = accept(frame["params"])
            self.send(json.dumps({"jsonrpc": "2.0", "id": frame["id"], "result": result}).encode())
        elif frame["method"] == "ping":
            self.send(json.dumps({"jsonrpc": "2.0", "id": frame["id"], "result": {}}).encode())
        else:
            error = {"code": -32601, "message": "no"}
            self.send(json.dumps({"jsonrpc": "2.0", "id": frame["id"], "error": error}).encode())

    def fail_to_begin(self) -> None:
        self.leave()
        self.network.later(3.0, self.begin)

    def lose(self, channel: Channel | None = None) -> None:
        """Drops the requests whose answer belongs to that channel, or all if `channel` is None."""
        if channel is None and self.subscriptions is not None:
            self.subscriptions.lose()
        for number, owed in [*self.owed.items(), *self.unwanted.items()]:
            if channel is None or owed.channel is channel:
                self.owed.pop(number, None)
                self.unwanted.pop(number, None)
                self.settled.add(number)
                if not owed.lasts:
                    self.outcomes["lost"] += 1
                if owed.lost is not None:
                    owed.lost()

    def drop(self, number: int) -> None:
        """Drops a request to which no answer comes any more, also one that the client has just cancelled itself."""
        self.owed.pop(number, None)
        self.unwanted.pop(number, None)
        self.settled.add(number)


AWAY: Final = 1001
"""The WebSocket close code of a proxy that stops. Messages in flight are not answered."""


class PipeClient(Client):
    """A client of the handshake era with one two-way stream.

    Attributes:
        is_halved: True if it sends no more, and waits for the answers in `due`.
    """

    pipe: Channel | None = None
    is_halved = False
    due: frozenset[int] | set[int] = frozenset()
    opened_with = NO_GRANTS

    @property
    def shown(self) -> Grants:
        """The grants that its stream was opened with."""
        return self.opened_with

    def begin(self) -> None:
        if not self.is_done and not self.is_connected:
            self.is_halved = False
            self.pipe = self.network.open(self, self.opening())
            self.greet()

    @property
    def is_connected(self) -> bool:
        return self.pipe is not None and self.pipe.is_open

    def opening(self) -> Opening:
        self.opened_with = self.grants
        return PipeOpening(self.server, self.principal, "http://here", grants=self.grants)

    def greet(self) -> None:
        self.initialize()

    def send(self, message: bytes) -> Channel:
        assert self.pipe is not None
        if self.is_connected and not self.is_halved:
            self.network.say(self.pipe, message)
        return self.pipe

    def end_half(self) -> None:
        """Ends its sending side. Open requests are still answered."""
        if self.pipe is not None and self.is_connected and not self.is_halved:
            if self.subscriptions is not None:
                self.subscriptions.stop()
            self.is_halved, self.is_ready = True, False
            if "unended" in self.manners:
                self.pipe.drops_line_end, self.is_halved = True, False
                self.may_log = False  # the call is the last line
                self.call()
                self.may_log, self.is_halved = True, True
            self.due = {number for number, owed in self.owed.items() if not owed.lasts}
            self.network.end_half(self.pipe)

    def leave(self) -> None:
        self.is_ready = False
        self.lose()
        if self.pipe is not None and self.is_connected:
            self.network.end(self.pipe, GONE)

    def receive_end(self, channel: Channel, close: Close | None) -> None:
        if channel is self.pipe:
            self.is_ready = False
            owed = sorted(self.due & self.owed.keys())
            if self.is_halved and close is not None and close.code != AWAY and owed:
                raise Wrong(f"{self.mark} has ended its side, and was left without answers to {owed}: {close}")
            self.lose()
            self.network.later(1.0, self.begin)
        else:
            self.lose(channel)  # of a stream that a newer one has replaced


class ModernPipeClient(PipeClient):
    """A client of the stateless era on a pipe."""

    is_modern = True

    def greet(self) -> None:
        self.is_ready = True


class EventPipeClient(PipeClient):
    """A client of HTTP+SSE, which sends each message in a POST of its own."""

    token: str | None = None
    may_log = False

    def opening(self) -> Opening:
        self.token = None
        return EventPipeOpening(self.server, self.principal, "http://here", "/messages", grants=self.grants)

    @property
    def shown(self) -> Grants:
        """The grants of the POST that brings the request."""
        return self.grants

    def greet(self) -> None:
        pass

    def receive(self, channel: Channel, send: Send) -> None:
        if channel is self.pipe and send.event == "endpoint":
            self.token = send.message.decode().partition("sessionId=")[2]
            self.initialize()
        elif channel is self.pipe:
            super().receive(channel, send)

    def send(self, message: bytes) -> Channel:
        assert self.pipe is not None
        if self.token is not None and self.is_connected:
            opening = MessageOpening(self.server, self.token, self.principal, grants=self.grants)
            self.network.open(self, opening, message)
        return self.pipe

    def receive_end(self, channel: Channel, close: Close | None) -> None:
        """Takes the end of a channel. A message whose POST failed is not answered."""
        if channel is not self.pipe and (close is None or close.status >= 400):
            self.leave()
            self.network.later(1.0, self.begin)
        else:
            super().receive_end(channel, close)

    def leave(self) -> None:
        self.token = None
        super().leave()


class HttpClient(Client):
    """A client of Streamable HTTP with a session, which resumes streams that were lost.

    Attributes:
        streams: its open streams, each a reply or the session's own stream.
        copies: channels of requests that it repeated. Their answers are ignored.
    """

    def __init__(self, network: Network, number: int, server: str, principal: str) -> None:
        super().__init__(network, number, server, principal)
        self.session: str | None = None
        self.streams: list[Channel] = []
        self.copies: list[Channel] = []

    def begin(self) -> None:
        if not self.is_done and not self.is_ready and not self.owed:
            self.initialize()

    def send(self, message: bytes) -> Channel:
        revision, base = self.revision_header(), "http://here"
        opening = PostOpening(self.server, self.principal, self.session, revision, base_url=base, grants=self.grants)
        channel = self.network.open(self, opening, message)
        self.streams.append(channel)
        if self.network.strikes("doubles", 0.1, self.rng):
            self.network.later(self.rng.expovariate(2.0), self._repeat, opening, message)
        return channel

    def _repeat(self, opening: PostOpening, message: bytes) -> None:
        """Repeats a request, or opens the session's own stream again, though nothing was lost."""
        if self.session is not None and self.rng.random() < 0.3:
            self._listen(None)
        elif not self.is_done and b'"initialize"' not in message:
            self.copies.append(self.network.open(self, opening, message))

    def revision_header(self) -> str | None:
        return self.revision if self.session is not None and self.revision >= "2025-06-18" else None

    def receive(self, channel: Channel, send: Send) -> None:
        if channel in self.copies:
            self._check_marks(send.message)
        if channel not in self.streams:
            return
        if send.session is not None:
            self.session = send.session
        self.revision = _negotiated(send.message, self.revision)
        was_ready = self.is_ready
        super().receive(channel, send)
        if self.is_ready and not was_ready and (self.subscriptions is not None or self.rng.random() < 0.7):
            self._listen(None)

    def _listen(self, event_id: str | None) -> Channel:
        opening = GetOpening(self.server, self.principal, self.session, self.revision_header(), event_id)
        channel = self.network.open(self, opening)
        self.streams.append(channel)
        return channel

    def be_rude(self) -> None:
        if self.rng.random() < 0.5:
            super().be_rude()
        else:
            session, self.session = self.session, self.rng.choice(("nobody's", None))
            self.send(b'{"jsonrpc":"2.0","id":"rude","method":"tools/list"}')
            self.session = session

    def leave(self) -> None:
        """Ends the session with a DELETE, or leaves without one."""
        streams, self.streams = self.streams, []
        for channel in streams:
            if channel.is_open:
                self.network.end(channel, GONE)
        if self.session is not None and self.rng.random() < 0.7:
            opening = DeleteOpening(self.server, self.principal, self.session, self.revision_header())
            self.network.open(self, opening)
        self.session, self.is_ready = None, False
        self.lose()

    def receive_end(self, channel: Channel, close: Close | None) -> None:
        if channel not in self.streams:
            return
        self.streams.remove(channel)
        waiting = [number for number, owed in self.owed.items() if owed.channel is channel]
        if close is not None and close.status == 404:
            self.fail_to_begin()
        elif close is not None and close.status >= 400:
            self.lose(channel)
        elif channel.event_id is not None and self.session is not None and (waiting or close is None):
            self.network.later(0.5, self._resume, channel, self.session)
        elif close is not None and waiting:
            raise Wrong(f"{self.mark} was not answered: {waiting}, {close}")
        else:
            is_greeting = any(self.owed[number].text == "initialize" for number in waiting)
            self.lose(channel)
            if is_greeting:
                self.fail_to_begin()

    def _resume(self, channel: Channel, session: str) -> None:
        if self.session == session:
            resumed = self._listen(channel.event_id)
            resumed.event_id = channel.event_id
            self.outcomes["resumed"] += 1
            for owed in [*self.owed.values(), *self.unwanted.values()]:
                if owed.channel is channel:
                    owed.channel = resumed

    def _take_answer(self, channel: Channel, frame: dict[str, Any]) -> None:
        super()._take_answer(channel, frame)
        if "error" in frame and frame["error"].get("code") == -32001 and frame.get("id") is None:
            self.fail_to_begin()


class ModernHttpClient(Client):
    """A client of the stateless era over HTTP."""

    is_modern = True

    def begin(self) -> None:
        self.is_ready = True

    def send(self, message: bytes) -> Channel:
        try:
            frame = json.loads(message)
            mirrored = [("mcp-method", frame["method"])]
            name = next((frame["params"][key] for key in ("taskId", "name", "uri") if key in frame["params"]), None)
            if name is not None:
                mirrored.append(("mcp-name", name))
        except (ValueError, KeyError, TypeError, RecursionError):
            mirrored = []
        opening = PostOpening(
            self.server,
            self.principal,
            None,
            MODERN,
            base_url="http://here",
            mirrored=tuple(mirrored),
            grants=self.grants,
        )
        return self.network.open(self, opening, message)

    def cancel(self, number: int) -> None:
        channel = self.owed[number].channel
        self.lose(channel)
        if channel.is_open:
            self.network.end(channel, GONE)

    def leave(self) -> None:
        for number in list(self.owed):
            self.cancel(number)

    def receive_end(self, channel: Channel, close: Close | None) -> None:
        waiting = [number for number, owed in self.owed.items() if owed.channel is channel]
        if close is not None and close.status < 400 and not all(map(self._may_end, waiting)):
            raise Wrong(f"{self.mark} was not answered: {waiting}, {close}")
        self.lose(channel)

    def _may_end(self, number: int) -> bool:
        return self.subscriptions is not None and self.subscriptions.is_live(number)


def _negotiated(message: bytes, otherwise: str) -> str:
    """Returns the revision in a response to `initialize`."""
    if b'"protocolVersion"' not in message:
        return otherwise
    frame = json.loads(message)
    found = frame.get("result", {}).get("protocolVersion", otherwise) if isinstance(frame, dict) else otherwise
    return found if isinstance(found, str) else otherwise


HALVING: Final = (PipeClient, ModernPipeClient)
KINDS: Final = (PipeClient, ModernPipeClient, EventPipeClient, HttpClient, HttpClient, ModernHttpClient)
