"""Servers of either era, with tasks or without, that a test moves on step by step.

The servers answer on their own what has only one answer (handshakes, lists of tools, `tasks/get`, `tasks/cancel`), and
assert that the client does nothing forbidden. The test decides what becomes of a call. There are no timers here.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from driving import DONE, LATEST, NO_STREAM, UNIX_AT_ZERO, Driver, SentMessage, notification, request, result
from isthmus.core.base.effects import Delete, Dial, Join, Listen, Spawn
from isthmus.core.base.events import Cause, Connected, End
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.revisions import Era
from stateless_driving import QUESTIONS, K
from stateless_server import discovery, failure, grant, input_required_result, refused

TASKS = K + "tasks"
RELATED = K + "related-task"
ABILITY = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
TERMINAL = {"completed", "failed", "cancelled"}
SUPPORT = {"work": "optional", "must": "required", "forbidden": "forbidden", "silent": None}
"""The tools of a server, and the `taskSupport` of each at a legacy server with tasks."""

DIED = Cause(End.BROKEN, "exited with code 1")


class DuplicateKey(str):
    """A dict key that is equal only to itself, so that an object is written with a duplicate member."""

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


@dataclass(eq=False)
class Work:
    """One tool call as its server knows it.

    Attributes:
        received: the call itself; the last one if it was retried.
        id: the server's id of the task, if the call is one.
        outcome: the result or the error: {"result": …} or {"error": …}.
        asked: the open questions, by key.
        given: all answers to each question, by key.
        unsent: keys of questions that have not been sent yet.
        stops: how it was cancelled: "tasks/cancel", "notifications/cancelled", or "closed" (modern, HTTP).
        fetching: waiting `tasks/result` requests.
        is_lost: the server has forgotten the call, or is gone.
    """

    tag: str
    received: SentMessage
    as_task: bool
    id: str | None = None
    status: str = "working"
    message: str | None = None
    began: str = ""
    ttl_ms: int | None = 3_600_000
    poll_ms: int | None = 1000
    outcome: dict[str, Any] | None = None
    asked: dict[str, dict[str, Any]] = field(default_factory=dict)
    given: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    unsent: list[str] = field(default_factory=list)
    stops: list[str] = field(default_factory=list)
    fetching: list[SentMessage] = field(default_factory=list)
    polls: int = 0
    fetches: int = 0
    is_answered: bool = False
    is_lost: bool = False

    @property
    def token(self) -> Any:
        return self.received.frame["params"].get("_meta", {}).get("progressToken")

    @property
    def is_away(self) -> bool:
        """True if the call was answered with questions: the server knows nothing of it until it is retried."""
        return self.is_answered and self.id is None and self.outcome is None

    @property
    def is_over(self) -> bool:
        return self.is_lost or bool(self.stops) or self.outcome is not None or self.status in TERMINAL


class TaskServer:
    """Every process and session of one server.

    Args:
        has_tasks: the server declares tasks and makes them.
        insists: modern: the server refuses calls of the tool `must` by clients that do not declare tasks.
        listens: legacy over HTTP: the server has a GET stream.

    Attributes:
        refuses_early_results: legacy: `tasks/result` gets an error until there is a result.
        clock_ahead_s: seconds that the server's clock is ahead of the proxy's.
    """

    def __init__(
        self, world: Driver, id: str, era: Era, *, has_tasks: bool, insists: bool = False, listens: bool = True
    ) -> None:
        self.world = world
        self.id = id
        self.is_modern = era is Era.STATELESS
        self.has_tasks = has_tasks
        self.insists = insists
        self.listens = listens
        self.refuses_early_results = False
        self.clock_ahead_s = 0.0
        self.support: dict[str, str | None] = dict(SUPPORT)
        self.works: dict[str, Work] = {}
        self.calls: list[dict[str, Any]] = []
        self.received: list[str] = []
        self.streams: list[ChannelId] = []
        self.count = 0
        self._dials = 0
        self._by_call: dict[tuple[object, int], Work] = {}
        self._mine: set[ChannelId] = set()
        self._ended: set[ChannelId] = set()

    # --- Automatic answers ------------------------------------------------------------------------------------------

    def attend(self) -> bool:
        """Does everything that needs no decision. Returns False if there was nothing."""
        world = self.world
        mine = [dial for dial in world.dials[self._dials :] if dial.target.server == self.id]
        self._dials = len(world.dials)
        self._mine |= {dial.channel for dial in mine}
        for dial in mine:
            self._connect(dial)
        received = [received for received in world.unread if received.channel in self._mine]
        for one in received:
            world.unread.remove(one)
            self._receive(one)
        closed = [channel for channel in world.closed if channel not in self._ended]
        for channel in closed:
            self._ended.add(channel)
            self._close(channel)
        return bool(mine or received or closed)

    def _connect(self, dial: Dial) -> None:
        world, target = self.world, dial.target
        if dial.channel in world.over:
            return
        if isinstance(target, Spawn | Join):
            world.open(dial.channel, Connected())
        elif isinstance(target, Listen) and self.listens:
            world.open(dial.channel, Connected())
            self.streams.append(dial.channel)
        elif isinstance(target, Listen):
            world.end(dial.channel, NO_STREAM)
        elif isinstance(target, Delete):
            world.end(dial.channel)

    def _close(self, channel: ChannelId) -> None:
        """Handles the end of a channel by the proxy: a process, a response, or a client."""
        for work in self.works.values():
            work.fetching = [one for one in work.fetching if one.channel != channel]
            if work.received.channel == channel and not work.is_answered and not work.is_over:
                if channel in self.world.children:
                    work.is_lost = True
                elif self.is_modern:
                    work.stops.append("closed")
        self.world.end(channel)

    def _receive(self, received: SentMessage) -> None:
        frame = received.frame
        method = frame.get("method")
        self.received.append(method or "")
        if method is None:
            self._receive_answer(received, frame)
        elif "id" not in frame:
            self._receive_notification(received, frame)
        elif method == "initialize":
            assert not self.is_modern
            self.count += 1
            revision = frame["params"]["protocolVersion"]
            self.has_tasks = self.has_tasks and revision == LATEST
            shown = {"tools": {"listChanged": True}, "logging": {}} | ({"tasks": ABILITY} if self.has_tasks else {})
            info = {"name": "s", "version": "1"}
            greeting = {"protocolVersion": revision, "capabilities": shown, "serverInfo": info}
            self.world.answer(received, json.dumps(greeting), session=f"S{self.count}")
        elif method == "server/discover":
            extensions = {"extensions": {TASKS: {}}} if self.has_tasks else {}
            self.world.answer(received, discovery(json.dumps({"tools": {"listChanged": True}, **extensions})))
        elif method == "subscriptions/listen":
            grant(self.world, received)
        elif method == "tools/list":
            self.answer(received, {"tools": [self._tool(name) for name in self.support], **self._cached()})
        elif method == "tools/call":
            self._receive_call(received, frame["params"])
        elif method.startswith("tasks/"):
            self._receive_task_request(received, method, frame["params"])
        else:
            self.answer(received, {})

    def _cached(self) -> dict[str, Any]:
        return {"ttlMs": 0, "cacheScope": "private"} if self.is_modern else {}

    def _tool(self, name: str) -> dict[str, Any]:
        tool: dict[str, Any] = {"name": name, "inputSchema": {"type": "object"}}
        if self.has_tasks and not self.is_modern and self.support[name] is not None:
            tool["execution"] = {"taskSupport": self.support[name]}
        return tool

    def _receive_notification(self, received: SentMessage, frame: dict[str, Any]) -> None:
        self.world.acknowledge(received)
        if frame["method"] == "notifications/cancelled":
            work = self._by_call.get((place_of(received), frame["params"].get("requestId")))
            if work is not None:
                assert work.id is None, "a task is cancelled by tasks/cancel"
                work.stops.append("notifications/cancelled")

    def _receive_answer(self, received: SentMessage, frame: dict[str, Any]) -> None:
        self.world.acknowledge(received)
        for work in self.works.values():
            if frame["id"] in work.given:
                self._take(work, frame["id"], frame.get("result", {"error": frame.get("error")}))
                return
        raise AssertionError(f"an answer to no question: {frame}")

    def _take(self, work: Work, key: str, answer: dict[str, Any]) -> None:
        work.given[key].append(answer)
        work.asked.pop(key, None)
        if not work.asked and work.status == "input_required":
            work.status = "working"

    def _receive_call(self, received: SentMessage, params: dict[str, Any]) -> None:
        self.calls.append(params)
        as_task, support = "task" in params, self.support.get(params["name"])
        if self.is_modern:
            assert "task" not in params
            as_task = self.has_tasks and declares(params)
            if self.insists and params["name"] == "must" and not as_task:
                self._refuse_for_want_of_tasks(received)
                return
        elif not self.has_tasks:
            assert "task" not in params, "the server declares no tasks"
        elif support == "required" and not as_task:
            self.refuse(received, -32601, "the tool is to be called as a task")
            return
        elif support not in ("required", "optional") and as_task:
            self.refuse(received, -32601, "the tool is not to be called as a task")
            return
        tag = params.get("arguments", {}).get("tag", f"t{len(self.calls)}")
        if tag in self.works:  # a retry with answers
            work = self.works[tag]
            assert work.is_answered or work.is_lost, "no call is made twice"
            work.received, work.is_answered = received, False
            for key, answer in params.get("inputResponses", {}).items():
                self._take(work, key, answer)
        else:
            self.works[tag] = Work(tag, received, as_task)
        self._by_call[place_of(received), received.id] = self.works[tag]

    def _refuse_for_want_of_tasks(self, received: SentMessage) -> None:
        needed = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
        self._reply(received, failure(-32021, "Missing required client capability", data=needed, id=received.id), 400)

    def _receive_task_request(self, received: SentMessage, method: str, params: dict[str, Any]) -> None:
        assert self.has_tasks, "the server declares no tasks"
        if self.is_modern:
            assert method in ("tasks/get", "tasks/update", "tasks/cancel")
            assert declares(params)
            assert received.post is None or ("mcp-name", params["taskId"]) in received.post.mirrored
        else:
            assert method != "tasks/update"
        work = next((w for w in self.works.values() if w.id == params["taskId"] and not w.is_lost), None)
        if work is None:
            self.refuse(received, -32602, "Task not found")
        elif method == "tasks/get":
            work.polls += 1
            self.answer(received, self.shown(work))
        elif method == "tasks/result":
            work.fetches += 1
            if self.refuses_early_results and work.status not in TERMINAL:
                self.refuse(received, -32603, "the task is not completed yet")
                return
            work.fetching.append(received)
            self.deliver(work)
        elif method == "tasks/update":
            for key, answer in params["inputResponses"].items():
                if key in work.given:
                    self._take(work, key, answer)
            self.answer(received, {})
        elif work.status in TERMINAL and not self.is_modern:
            self.refuse(received, -32602, f"Cannot cancel task: already in terminal status {work.status!r}")
        else:
            work.stops.append("tasks/cancel")
            if work.status not in TERMINAL:
                work.status = "cancelled"
            self.answer(received, {} if self.is_modern else self.shown(work))
            self.deliver(work)

    # --- Decisions of a test ----------------------------------------------------------------------------------------

    def work(self, tag: str) -> Work:
        return self.works[tag]

    def accept(self, work: Work, *, ttl_ms: int | None = 3_600_000, poll_ms: int | None = 1000) -> Work:
        """Makes the call a task."""
        self.count += 1
        work.id, work.ttl_ms, work.poll_ms = f"up-{self.count}", ttl_ms, poll_ms
        work.began = self._time()
        shown = self.task(work)
        self._settle(work, {"resultType": "task", **shown} if self.is_modern else {"task": shown})
        return work

    def finish(self, work: Work, outcome: dict[str, Any]) -> None:
        """Ends the call with a result, which may be an error of the tool."""
        assert work.outcome is None
        work.outcome = {"result": outcome}
        is_failed = bool(outcome.get("isError")) and not self.is_modern
        self._conclude(work, "failed" if is_failed else "completed")

    def fail(self, work: Work, code: int, message: str, data: object = None) -> None:
        assert work.outcome is None
        work.outcome = {"error": {"code": code, "message": message} | ({} if data is None else {"data": data})}
        self._conclude(work, "failed")

    def stop(self, work: Work) -> None:
        """Cancels the task by the server itself."""
        assert work.id is not None
        work.status = "cancelled"
        self.deliver(work)

    def ask(self, work: Work, key: str, method: str = "elicitation/create") -> None:
        params = json.loads(QUESTIONS[method])
        if work.id is not None and not self.is_modern:
            params["_meta"] = {RELATED: {"taskId": work.id}}
        if method == "elicitation/create":
            params["message"] = key
        work.asked[key] = {"method": method, "params": params}
        work.given[key] = []
        if work.id is not None:
            work.status = "input_required"
        elif self.is_modern:
            work.is_answered = True
            questions = {key: (one["method"], one["params"]) for key, one in work.asked.items()}
            self.answer(work.received, json.loads(input_required_result(questions, f"state-{key}")))
            return
        work.unsent.append(key)
        self.deliver(work)

    def withdraw(self, work: Work, key: str) -> None:
        """Withdraws a question."""
        del work.asked[key]
        if not work.asked and work.status == "input_required":
            work.status = "working"
        if key in work.unsent:
            work.unsent.remove(key)
        elif not self.is_modern:
            self._tell(work, notification("notifications/cancelled", json.dumps({"requestId": key})))

    def report(self, work: Work, progress: int) -> None:
        assert work.token is not None, "the call has no progress token"
        params = {"progressToken": work.token, "progress": progress}
        if work.id is not None:
            params["_meta"] = {RELATED: {"taskId": work.id}}
        self._tell(work, notification("notifications/progress", json.dumps(params)))

    def announce(self, work: Work) -> None:
        """Sends a notification of the status (legacy)."""
        self._tell(work, notification("notifications/tasks/status", json.dumps(self.task(work))))

    def lose(self, work: Work) -> None:
        """Makes the server forget the task."""
        work.is_lost = True

    def die(self, work: Work) -> None:
        """Ends the process and all of its calls; over HTTP, cuts off the response of the call."""
        for other in self.works.values():
            if other.received.channel == work.received.channel and not other.is_away:
                other.is_lost = True
                other.fetching.clear()
        if work.received.channel not in self.world.over:
            self._ended.add(work.received.channel)
            self.world.end(work.received.channel, DIED)

    def task(self, work: Work) -> dict[str, Any]:
        assert work.id is not None
        ttl, poll = ("ttlMs", "pollIntervalMs") if self.is_modern else ("ttl", "pollInterval")
        times = {"createdAt": work.began, "lastUpdatedAt": self._time()}
        shown = {"taskId": work.id, "status": work.status, ttl: work.ttl_ms, **times}
        if work.poll_ms is not None:
            shown[poll] = work.poll_ms
        if work.message is not None:
            shown["statusMessage"] = work.message
        return shown

    def _time(self) -> str:
        at = datetime.fromtimestamp(UNIX_AT_ZERO + self.world.now + self.clock_ahead_s, UTC)
        return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def shown(self, work: Work) -> dict[str, Any]:
        """Returns the result of `tasks/get`."""
        shown = self.task(work)
        if self.is_modern and work.status == "input_required":
            shown["inputRequests"] = work.asked
        elif self.is_modern and work.status in ("completed", "failed"):
            assert work.outcome is not None
            shown |= work.outcome
        return shown

    # --- Messages ---------------------------------------------------------------------------------------------------

    def answer(self, received: SentMessage, members: dict[str, Any]) -> None:
        if self.is_modern:
            members = {"resultType": "complete", **members}
        self._reply(received, result(str(received.id), json.dumps(members)))

    def refuse(self, received: SentMessage, code: int, message: str, data: object = None) -> None:
        self._reply(received, failure(code, message, data=data, id=received.id))

    def _reply(self, received: SentMessage, message: bytes, status: int = 200) -> None:
        world = self.world
        if received.channel in world.over:
            return
        if received.post is not None and status != 200:
            world.end(received.channel, refused(status, message))
            return
        self._open(received)
        world.send(received.channel, message)
        if received.post is not None and received.channel not in world.over:
            world.end(received.channel, DONE)

    def _open(self, received: SentMessage) -> None:
        if received.post is not None and received.channel not in self.world.opened:
            self.world.opened.add(received.channel)
            self.world.open(received.channel, Connected())

    def _settle(self, work: Work, members: dict[str, Any]) -> None:
        work.is_answered = True
        self.answer(work.received, members)

    def _conclude(self, work: Work, status: str) -> None:
        if work.id is not None:
            work.status = status
            work.asked.clear()
            self.deliver(work)
            return
        work.asked.clear()
        work.is_answered = True
        assert work.outcome is not None
        if "result" in work.outcome:
            self.answer(work.received, work.outcome["result"])
        else:
            self.refuse(work.received, **work.outcome["error"])

    def deliver(self, work: Work) -> None:
        """Sends the waiting questions, and the outcome to waiting `tasks/result` requests."""
        if self.is_modern:
            return
        for key in list(work.unsent):
            place = self._place(work)
            if place is None:
                break
            work.unsent.remove(key)
            self._open(place)
            asked = work.asked[key]
            self.world.send(place.channel, request(json.dumps(key), asked["method"], json.dumps(asked["params"])))
        if work.id is None or work.status not in TERMINAL:
            return
        fetching, work.fetching = work.fetching, []
        for received in fetching:
            if work.outcome is None:
                self.refuse(received, -32603, "the task was cancelled")
            elif "error" in work.outcome:
                self.refuse(received, **work.outcome["error"])
            else:
                meta = {**work.outcome["result"].get("_meta", {}), RELATED: {"taskId": work.id}}
                self.answer(received, {**work.outcome["result"], "_meta": meta})

    def _place(self, work: Work) -> SentMessage | None:
        """Returns where questions may be sent: with the call, or with a waiting `tasks/result` request."""
        if work.received.post is None or work.id is None:
            return work.received
        return work.fetching[0] if work.fetching else None

    def _tell(self, work: Work, message: bytes) -> None:
        """Sends a notification: of a task over HTTP on the GET stream, otherwise with the call."""
        if work.received.post is not None and work.id is not None:
            dials = {dial.channel: dial for dial in self.world.dials}
            for stream in self.streams:
                target = dials[stream].target
                assert isinstance(target, Listen)
                if stream not in self.world.over and target.session == work.received.post.session:
                    self.world.send(stream, message)
            return
        self._open(work.received)
        self.world.send(work.received.channel, message)


def place_of(received: SentMessage) -> object:
    """Returns the server session that a message belongs to: a channel, or the session id over HTTP."""
    return received.channel if received.post is None else received.post.session


def declares(params: dict[str, Any]) -> bool:
    """True if the client of a modern request declares tasks."""
    declared = params["_meta"][K + "clientCapabilities"]
    return TASKS in declared.get("extensions", {})


def text(words: str, **rest: Any) -> dict[str, Any]:
    """Returns the result of a tool call."""
    return {"content": [{"type": "text", "text": words}], **rest}
