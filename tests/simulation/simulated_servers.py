"""Servers of both eras, on pipes and over HTTP, that answer calls with their argument.

Depending on the world they answer late, twice or never, and send progress and questions.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any, Final

from isthmus.core.base.effects import Close, Delete, Dial, Listen, Post, Send, Spawn, Target
from isthmus.core.base.events import Cause, Connected, End
from isthmus.core.base.plan import Kind, ServerPlan, Sharing
from manners import CURT, LATE_S, LINGER_MAX_S, NOT_NOW, NOT_NOW_MAX, REFUSALS, SURELY_TRIED_S, TAKEN, log_line, untidy
from simulated_grants import NAMES, GrantRecord
from simulated_network import Channel, Network, Wrong
from simulated_streams import OWN, EventStream, Streams
from simulated_subscriptions import Resources
from simulated_works import Work, Works

VERSION: Final = "io.modelcontextprotocol/protocolVersion"
ABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"
MODERN: Final = "2026-07-28"
BATCHING: Final = "2025-03-26"
"""The revision in which messages may come in arrays."""
HANDSHAKES: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
DECLARED: Final = {"tools": {"listChanged": True}, "logging": {}}
LASTING: Final = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
INTEGER: Final = {"type": "integer"}
SCHEMA: Final = {
    "type": "object",
    "properties": {"say": {"type": "string"}, "ask": {"type": "boolean"}, "steps": INTEGER},
}
TOOLS: Final = [{"name": "echo", "inputSchema": SCHEMA}]
WORKING_TOOLS: Final = [{**TOOLS[0], "execution": {"taskSupport": "optional"}}]
LOSING: Final = frozenset({"cuts", "crashes", "forgets", "halves", "sleeps", "restarts", "stops"})
PAUSE_S: Final = 2.0
"""The time between messages on two streams that have to arrive in their order."""
AWAY_MAX_S: Final = 150.0
"""The longest time for which an address of a server cannot be reached."""
GARBAGE_TOKEN: Final = "z"
"""The progress token of no request: between peers of one era the client decides."""

GARBAGE: Final = (
    *(b"{", b"[]", b"null", b'"x"', b"\xff\xfe", b"[" * 400, b'{"jsonrpc":"2.0"}', b'{"jsonrpc":"1.0","id":"odd"}'),
    *(b'{"jsonrpc":"2.0","id":99999,"result":{}}', b'{"jsonrpc":"2.0","id":null,"result":{}}'),
    b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"%b","progress":1}}'
    % GARBAGE_TOKEN.encode(),
    *(b'{"jsonrpc":"2.0","method":"notifications/vendor"}', b'{"jsonrpc":"2.0","method":7}'),
)
"""Messages that rude peers of either side send. They concern no client."""


class Session:
    """The state of a process, or of a session over HTTP.

    Attributes:
        asks: True if it may ask its client for input.
        questions: the callbacks for the answers to its questions, by id.
        cancelled: the ids of cancelled requests.
        works: the tasks that were begun in it; `has_tasks`: its client knows that there may be tasks.
        subscribed: the resources of which it reports changes.
        streams: its event streams over HTTP, by name.
        refusals: the number of times that its own stream is still refused.
        refused_at: the time of the last such refusal; None if the stream was asked for since.
        address: the place of the server's address at which it was begun.
    """

    def __init__(self, address: int = 0) -> None:
        self.address = address
        self.asks = False
        self.questions: dict[str, Callable[[dict[str, Any]], None]] = {}
        self.cancelled: set[Any] = set()
        self.works: dict[str, Work] = {}
        self.has_tasks = False
        self.revision = ""
        self.subscribed: set[str] = set()
        self.streams: dict[str, EventStream] = {}
        self.refusals = 0
        self.refused_at: float | None = None


class Server:
    """One server of the plan, as the peer of all its channels.

    Attributes:
        processes, posts: by the channels themselves, as the numbers begin anew with each process of the proxy.
        works: its tasks, or None.
        resources: its resources, or None.
        grant_record: what callers may use of it, or None.
        manners: its manners. Its random choices for them come from a generator of their own.
        asked: the ids of all its questions.
        may_run_once: it may be exclusive.
        away_until: the time until which it cannot be reached at an address, by its place.
    """

    may_run_once = True

    def __init__(self, network: Network, plan: ServerPlan, *, is_modern: bool) -> None:
        self.network, self.plan, self.is_modern = network, plan, is_modern
        self.name = plan.id
        self.rng = network.rng_of(plan.id)
        self.revision = self.rng.choice(HANDSHAKES)
        self.processes: dict[Channel, Session] = {}
        self._unlucky = b""
        self.sessions: dict[str, Session] = {}
        self.posts: dict[Channel, None] = {}  # in the order of their arrival
        self.last = 0
        self.works: Works | None = None
        self.resources: Resources | None = None
        self.grant_record: GrantRecord | None = None
        self.streams = Streams(self)
        self.manners = network.manners_of(plan.id)
        self._whim = network.rng_of(f"whims of {plan.id}")
        self._refusal = self._whim.choice(REFUSALS if "forgetful" in self.manners else REFUSALS[:1])
        self.asked: set[str] = set()
        self.away_until: dict[int, float] = {}

    def __str__(self) -> str:
        plan = self.plan
        era = MODERN if self.is_modern else self.revision
        manners = "".join(f", {manner}" for manner in sorted(self.manners))
        kind = f"{plan.kind.value}{f' at {len(plan.addresses)} addresses' if plan.addresses else ''}"
        return f"{self.name}: {era}, {kind}, sharing {plan.sharing.value}, {plan.spares} spares{manners}"

    # --- Channels ---------------------------------------------------------------------------------------------------

    def dialled(self, channel: Channel, dial: Dial) -> None:
        network, target = self.network, dial.target
        channel.peer = self
        self._check_address(target)
        is_away = self.away_until.get(getattr(target, "address", 0), 0.0) > network.now
        is_unlucky = network.strikes("crashes", 1.0 if is_away else 0.05, channel.rng)
        if is_unlucky and not (isinstance(target, Post) and self._is_tried(target.message)):
            network.end(channel, Cause(End.UNREACHABLE, "no luck"))
        elif isinstance(target, Post):
            self._take_post(channel, target)
        elif isinstance(target, Listen):
            self._take_listen(channel, target)
        elif isinstance(target, Delete):
            session = self.sessions.pop(target.session, None)
            if session is not None:
                self.streams.part(session)
            network.end(channel, Cause(End.DONE))
        elif self.plan.kind is Kind.HTTP:
            network.end(channel, Cause(End.UNREACHABLE, "no event pipe"))
        elif self._is_exclusive and isinstance(target, Spawn) and self._is_running():
            network.counts["manner exclusive"] += 1
            network.connect(channel, Connected())
            network.later(0.05, network.end, channel, Cause(End.BROKEN, f"exit code 1: {TAKEN}"))
        else:
            self.processes[channel] = Session()
            if self._is_exclusive:
                channel.linger_s = self._whim.uniform(0.0, LINGER_MAX_S)
            network.connect(channel, Connected())

    def _check_address(self, target: Target) -> None:
        """Checks that a session is used at the address at which it was begun."""
        session = None if not isinstance(target, Post | Listen | Delete) else self.sessions.get(target.session or "")
        if session is not None and session.address != getattr(target, "address", 0):
            raise Wrong(f"{self.name}: a session of address {session.address} is used at {target.address}: {target}")

    @property
    def _is_exclusive(self) -> bool:
        """True if a second process cannot run."""
        plan = self.plan
        has_one = plan.sharing is Sharing.NONE or plan.shares_with_everyone
        return (
            "exclusive" in self.manners
            and plan.kind is Kind.PIPE
            and (not plan.spares or plan.spares_on_trial)
            and self.may_run_once
            and has_one
        )

    @property
    def is_for_one(self) -> bool:
        """True if a second session at once cannot be served."""
        return self._is_exclusive and self.plan.sharing is Sharing.NONE

    def _is_running(self) -> bool:
        return any(channel.is_open for channel in self.processes)

    def _is_tried(self, message: bytes) -> bool:
        """True if it is an answer that failed to arrive once before. A second failure would lose it altogether."""
        was, self._unlucky = self._unlucky, message
        return was == message and b'"method"' not in message

    def receive(self, channel: Channel, send: Send) -> None:
        session = self.processes.get(channel)
        if session is not None:
            self._take_frame(channel, json.loads(send.message), session, None)

    def receive_end(self, channel: Channel, close: Close | None) -> None:
        self.processes.pop(channel, None)
        self.posts.pop(channel, None)
        self.streams.receive_end(channel)
        if self.resources is not None:
            self.resources.receive_end(channel)

    def _take_listen(self, channel: Channel, listen: Listen) -> None:
        session = self.sessions.get(listen.session or "")
        if session is not None and session.refusals and not listen.last_event_id and self.streams.has_own:
            session.refusals -= 1
            session.refused_at = self.network.now
            self.network.counts["manner shy"] += 1
            self.network.end(channel, Cause(End.REFUSED, status=self._whim.choice(NOT_NOW)))
        elif session is not None:
            session.refused_at = None
            self.streams.listen(channel, session, listen)
        elif listen.session is None:
            self.network.end(channel, Cause(End.REFUSED, status=405))
        else:
            self._deny_session(channel, None)

    def _deny_session(self, channel: Channel, id: Any) -> None:
        """Refuses a request in a session that it does not know."""
        refusal, network = self._refusal, self.network
        network.counts["manner forgetful"] += "forgetful" in self.manners
        if refusal.status == 200 and id is not None:
            network.connect(channel, Connected())
            if refusal.is_event:
                network.prime(channel, "denied-0")
            network.say(channel, refusal.body(id))
            self._end(channel, Cause(End.DONE))
        else:
            status = 400 if refusal.status == 200 else refusal.status
            self._end(channel, Cause(End.REFUSED, status=status, body=refusal.body(id)))

    def crash(self) -> None:
        """Ends the process. Over HTTP, breaks all replies."""
        network = self.network
        doomed = list(self.posts) if self.plan.kind is Kind.HTTP else []
        if self.processes:
            channel = self.rng.choice(list(self.processes))
            doomed = [] if channel.is_over else [channel]
        for channel in doomed:
            self.receive_end(channel, None)
            network.end(channel, Cause(End.BROKEN, "died"))
        if self.plan.addresses:
            place = self._whim.randrange(len(self.plan.addresses))
            self.away_until[place] = network.now + self._whim.uniform(0.0, AWAY_MAX_S)

    def forget(self) -> None:
        self.sessions.clear()

    def _take_post(self, channel: Channel, post: Post) -> None:
        frame = json.loads(post.message)
        self.posts[channel] = None
        if self.is_modern:
            session = Session()
        elif frame.get("method") == "initialize":
            self.last += 1
            session = self.sessions[f"s{self.last}"] = Session(post.address)
            session.streams[OWN] = EventStream(OWN, has_ids=self.streams.has_ids)
            session.refusals = self._whim.randint(0, NOT_NOW_MAX) if "shy" in self.manners else 0
            self.network.connect(channel, Connected(session=f"s{self.last}"))
            self._take_frame(channel, frame, session, post)
            return
        elif post.session in self.sessions:
            session = self.sessions[post.session or ""]
        elif post.session is None:
            self._end(channel, Cause(End.REFUSED, status=400))
            return
        else:
            self._deny_session(channel, frame.get("id") if "method" in frame else None)
            return
        self._check_stream(session)
        if "id" not in frame or "method" not in frame:
            self._take_frame(channel, frame, session, post)
            if "wordy" in self.manners and self._whim.random() < 0.5:
                self.network.connect(channel, Connected())
            self._end(channel, Cause(End.DONE))
        else:
            self.network.connect(channel, Connected())
            if not self.is_modern:
                self.streams.begin(channel, session)
            self._take_frame(channel, frame, session, post)

    def _check_stream(self, session: Session) -> None:
        """Checks that a stream that was refused for a while is asked for again. Faults may keep that from arriving."""
        at = session.refused_at
        if at is not None and self.network.now > at + SURELY_TRIED_S and not self.network.faults & LOSING:
            raise Wrong(f"{self.name} has refused a stream {self.network.now - at:.0f} s ago, and was not asked again")

    def _end(self, channel: Channel, cause: Cause) -> None:
        self.posts.pop(channel, None)
        self.network.end(channel, cause)

    # --- Messages ---------------------------------------------------------------------------------------------------

    def _take_frame(self, channel: Channel, frame: dict[str, Any], session: Session, post: Post | None) -> None:
        params = frame.get("params") or {}
        method, id = frame.get("method"), frame.get("id")
        if method is None:
            if id is not None and str(id) not in self.asked:
                raise Wrong(f"{self.name} has asked nothing under that id: {frame}")
            question = session.questions.pop(str(id), None)
            if question is not None:
                question(frame)
        elif id is None:
            if method == "notifications/cancelled":
                session.cancelled.add(params.get("requestId"))
                if self.resources is not None:
                    self.resources.cancel(channel, params.get("requestId"))
        else:
            self._answer(channel, session, id, method, params)

    def _answer(self, channel: Channel, session: Session, id: Any, method: str, params: dict[str, Any]) -> None:
        if method == "initialize":
            if self.is_modern:
                self._refuse_handshake(channel, session, id)
                return
            wanted = params["protocolVersion"]
            revision = wanted if wanted in HANDSHAKES and wanted <= self.revision else self.revision
            session.asks = "elicitation" in params["capabilities"] and revision >= "2025-06-18"
            able = self._declared(revision)
            session.has_tasks, session.revision = "tasks" in able, revision
            result = {"protocolVersion": revision, "capabilities": able, "serverInfo": {"name": "s", "version": "1"}}
            self.reply(channel, session, id, result)
        elif method == "server/discover" and self.is_modern:
            found = {"supportedVersions": [MODERN], "capabilities": self._declared(MODERN), **LASTING}
            self.reply(channel, session, id, found)
        elif method == "tools/list":
            tools = WORKING_TOOLS if session.has_tasks else TOOLS
            if self.grant_record is not None:
                tools = [*tools, *({**tools[0], "name": name} for name in NAMES)]
            self.reply(channel, session, id, {"tools": tools, **(LASTING if self.is_modern else {})})
        elif method == "ping" and not self.is_modern:
            self.reply(channel, session, id, {})
        elif method == "tools/call":
            if self.grant_record is not None:
                self.grant_record.receive_call(self.name, params)
            self._call(channel, session, id, params)
        elif method.startswith("tasks/") and self.works is not None:
            self.works.answer(channel, session, id, method, params)
        elif method.startswith(("resources/", "subscriptions/")) and self.resources is not None:
            self.resources.answer(channel, session, id, method, params)
        else:
            self.reply(channel, session, id, error=-32601)

    def _refuse_handshake(self, channel: Channel, session: Session, id: Any) -> None:
        if "future" in self.manners:
            self.network.counts["manner future"] += 1
            name = {"name": "s", "version": "1"}
            shown = {"protocolVersion": MODERN, "capabilities": self._declared(MODERN), "serverInfo": name}
            self.reply(channel, session, id, shown)
        elif "curt" in self.manners:
            self.network.counts["manner curt"] += 1
            self.reply(channel, session, id, error=CURT["code"], message=CURT["message"])
        else:
            self.reply(channel, session, id, error=-32601)

    def _call(self, channel: Channel, session: Session, id: Any, params: dict[str, Any]) -> None:
        network, meta, given = self.network, params.get("_meta", {}), params["arguments"]
        rng = network.rng_of(f"{self.name} {given['say']} {'requestState' in params}")
        if given["say"].partition("@")[2] not in ("", self.plan.id):
            raise Wrong(f"{self.name} was sent a call for another server: {params}")
        if network.strikes("garbage", 0.05, rng):
            network.say(channel, rng.choice(GARBAGE))
        if "progressToken" in meta:
            self._report_progress(channel, session, meta["progressToken"], given, rng)
        able = meta.get(ABILITIES, {})
        if self.works is not None and "inputResponses" not in params and self.works.takes(session, params, able, rng):
            self.works.begin(channel, session, id, params, rng)
        elif given.get("ask") and self.is_modern and "elicitation" in able:
            self._ask_in_rounds(channel, session, id, params, rng)
        elif given.get("ask") and self.may_ask(session):
            self._ask(channel, session, id, given["say"], rng)
        else:
            self._echo(channel, session, id, given["say"], rng)

    def _report_progress(
        self, channel: Channel, session: Session, token: Any, given: dict[str, Any], rng: random.Random
    ) -> None:
        """Sends the progress notifications that the client asked for, some at once, in each round of a call anew."""
        begin = f'{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{json.dumps(token)}'
        steps: list[bytes] = []
        last = given.get("steps", 1)
        self.network.counts["manner untidy"] += "untidy" in self.manners
        for step in untidy(last, self._whim) if "untidy" in self.manners else range(1, last + 1):
            steps.append(f'{begin},"progress":{step},"message":"{given["say"]}"}}}}'.encode())
            if rng.random() < 0.2 or step == last:
                if session.revision == BATCHING and rng.random() < 0.5:
                    steps = [b"[" + b",".join(steps) + b"]"]
                self._put_many(channel, steps)
                if step == last and "untidy" in self.manners and not self.is_http:
                    self.network.later(LATE_S, self._put_many, channel, steps[-1:])
                steps = []

    def may_ask(self, session: Session) -> bool:
        return session.asks and self.plan.sharing is Sharing.NONE

    @property
    def is_http(self) -> bool:
        return self.plan.kind is Kind.HTTP

    @property
    def has_way(self) -> bool:
        """True if it can send notifications that belong to no request."""
        return self.is_modern or not self.is_http or self.streams.has_own

    def _declared(self, revision: str) -> dict[str, Any]:
        resources = {"resources": {"subscribe": True}} if self.resources is not None and self.has_way else {}
        return {**DECLARED, **resources, **(self.works.capability(revision) if self.works is not None else {})}

    def _echo(self, channel: Channel, session: Session, id: Any, say: str, rng: random.Random) -> None:
        pause = rng.expovariate(4.0)
        if self.network.strikes("never", 0.05, rng):
            return
        if self.network.strikes("late", 0.1, rng):
            pause = rng.uniform(5.0, 60.0)
        self.network.later(pause, self._finish, channel, session, id, say, rng)

    def _finish(self, channel: Channel, session: Session, id: Any, say: str, rng: random.Random) -> None:
        network = self.network
        if id in session.cancelled and rng.random() < 0.8:
            return
        if network.strikes("errors", 0.1, rng):
            self.reply(channel, session, id, error=-32602)
            return
        result: dict[str, Any] = {"content": [{"type": "text", "text": say}]}
        result |= {"resultType": "complete"} if self.is_modern else {}
        if filler := network.filler(rng):
            result["_meta"] = {"filler": filler}
        if network.strikes("twice", 0.1, rng) and self.plan.kind is not Kind.HTTP:
            self.reply(channel, session, id, result)
        self.reply(channel, session, id, result)

    def _ask(self, channel: Channel, session: Session, id: Any, say: str, rng: random.Random) -> None:
        self.last += 1
        number = f"q{self.last}"

        def settle(frame: dict[str, Any] | None = None) -> None:
            session.questions.pop(number, None)
            if frame is not None and "result" in frame:
                _check(say, frame["result"])
            self._echo(channel, session, id, say, rng)

        session.questions[number] = settle
        self.say(channel, id=number, method="elicitation/create", params=_form(say))
        self.network.later(15.0, lambda: settle() if number in session.questions else None)

    def _ask_in_rounds(
        self, channel: Channel, session: Session, id: Any, params: dict[str, Any], rng: random.Random
    ) -> None:
        say = params["arguments"]["say"]
        if "requestState" in params:
            if params["requestState"] != "of " + say:
                raise Wrong(f"the state of {say!r} came back as {params['requestState']!r}")
            if "k" in params.get("inputResponses", {}):
                _check(say, params["inputResponses"]["k"])
                self._echo(channel, session, id, say, rng)
                return
        asked = {"k": {"method": "elicitation/create", "params": {"mode": "form", **_form(say)}}}
        result = {"resultType": "input_required", "inputRequests": asked, "requestState": "of " + say}
        self.reply(channel, session, id, result)

    def reply(
        self,
        channel: Channel,
        session: Session,
        id: Any,
        result: dict[str, Any] | None = None,
        error: int = 0,
        message: str = "no",
    ) -> None:
        stream = self.streams.of(channel)
        if stream is None and (not channel.is_open or (self.is_http and channel not in self.posts)):
            return
        members = {"result": result} if result is not None else {"error": {"code": error, "message": message}}
        if "noisy" in self.manners and self._whim.random() < 0.3:
            self._log(channel, id)
        own = session.streams.get(OWN)
        is_all_sent = stream is None or stream.is_read  # else progress would come after the answer
        if own is not None and own.is_read and is_all_sent and self._is_elsewhere():
            self.network.later(PAUSE_S, self._reply_elsewhere, channel, own, id, members)
        else:
            self.say(channel, id=id, **members)
            self._end_reply(channel, stream)

    def _is_elsewhere(self) -> bool:
        return "elsewhere" in self.manners and self._whim.random() < 0.5

    def _reply_elsewhere(self, channel: Channel, own: EventStream, id: Any, members: dict[str, Any]) -> None:
        """Answers on the session's own stream. The response that the answer belongs to ends some time later."""
        stream = self.streams.of(channel)
        if own.is_read:
            self.network.counts["manner elsewhere"] += 1
            self.put(own, id=id, **members)
            self.network.later(PAUSE_S, self._end_reply, channel, stream)
        else:
            self.say(channel, id=id, **members)
            self._end_reply(channel, stream)

    def _end_reply(self, channel: Channel, stream: EventStream | None) -> None:
        """Ends the response that has, or would have had, the answer."""
        if stream is not None:
            self.streams.finish(stream)
        elif channel in self.posts:
            self._end(channel, Cause(End.DONE))

    def _log(self, channel: Channel, id: Any) -> None:
        """Writes some lines of a log where messages are expected."""
        self.network.counts["manner noisy"] += 1
        self._put_many(channel, [log_line(self._whim, id) for _ in range(self._whim.choice((1, 1, 3)))])

    def _put_many(self, channel: Channel, messages: list[bytes]) -> None:
        stream = self.streams.of(channel)
        if stream is not None:
            self.streams.put(stream, messages)
        elif channel.is_open:
            self.network.send_many(channel, messages)

    def answer_post(self, channel: Channel, **members: Any) -> None:
        """Sends a response, if there is one, and ends the reply of a POST with it."""
        if members:
            self.say(channel, **members)
        if channel in self.posts:
            self._end(channel, Cause(End.DONE))

    def say(self, channel: Channel, **members: Any) -> None:
        if "method" in members and "id" in members:
            self.asked.add(members["id"])
        stream = self.streams.of(channel)
        if stream is not None:
            self.put(stream, **members)
        elif channel.is_open:
            self.network.say(channel, json.dumps({"jsonrpc": "2.0", **members}).encode())

    def put(self, stream: EventStream, **members: Any) -> None:
        self.streams.put(stream, [json.dumps({"jsonrpc": "2.0", **members}).encode()])


def _form(say: str) -> dict[str, Any]:
    return {"message": say, "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}


def _check(say: str, result: dict[str, Any]) -> None:
    """Checks that the answer to a question comes from the client whose call asked it."""
    name = result.get("content", {}).get("name")
    if result.get("action") == "accept" and name != say:
        raise Wrong(f"asked for {say!r}, a server was answered {name!r}")
