"""Servers with tasks and without, in either era, which a test moves on step by step.

They answer by themselves what has one answer (handshakes, lists of tools, `tasks/get`, `tasks/cancel`), and what the
specification forbids their client; what becomes of a call is for the test to say. There are no timers here.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from driving import DONE, LATEST, NO_STREAM, UNIX_AT_ZERO, Driver, Heard, notification, request, result
from isthmus.core.base.effects import Cause, Connected, Delete, Dial, End, Join, Listen, Spawn
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.revisions import Era
from stateless_driving import QUESTIONS, K
from stateless_server import asking, discovery, failure, grant, refused

TASKS = K + "tasks"
RELATED = K + "related-task"
ABILITY = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
TERMINAL = {"completed", "failed", "cancelled"}
SUPPORT = {"work": "optional", "must": "required", "forbidden": "forbidden", "silent": None}
"""The tools of a server, and what a legacy one with tasks says of each."""

DIED = Cause(End.BROKEN, "exited with code 1")


class Twin(str):
    """A key that is written like another, and is another."""

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


@dataclass(eq=False)
class Work:
    """One call as its server knows it.

    Attributes:
        heard: the call itself, the last one if it was made again.
        id: the server's name for it, if it is a task there.
        outcome: the result or the error, whole: {"result": …} or {"error": …}.
        asked: the questions that wait, by key; `given` is what was answered to each, every time.
        stops: how it was told to stop: "tasks/cancel", "notifications/cancelled", or "closed" (modern, HTTP).
        fetching: requests for the result that wait.
        is_lost: the server has forgotten it, or is gone.
    """

    tag: str
    heard: Heard
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
    unsaid: list[str] = field(default_factory=list)
    stops: list[str] = field(default_factory=list)
    fetching: list[Heard] = field(default_factory=list)
    polls: int = 0
    fetches: int = 0
    is_answered: bool = False
    is_lost: bool = False

    @property
    def token(self) -> Any:
        return self.heard.frame["params"].get("_meta", {}).get("progressToken")

    @property
    def is_away(self) -> bool:
        """It has asked by answering, and knows nothing of the call until it is made again."""
        return self.is_answered and self.id is None and self.outcome is None

    @property
    def is_over(self) -> bool:
        return self.is_lost or bool(self.stops) or self.outcome is not None or self.status in TERMINAL


class TaskServer:
    """Every process and session of one server.

    Args:
        has_tasks: it declares tasks and makes them.
        insists: modern: refuses calls of the tool `must` by clients that do not declare tasks.
        listens: legacy over HTTP: it has a GET stream.

    Attributes:
        is_hasty: legacy: it lets nobody wait for a result, and answers with an error until there is one.
        clock_ahead_s: how far its clock is ahead of ours.
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
        self.is_hasty = False
        self.clock_ahead_s = 0.0
        self.support: dict[str, str | None] = dict(SUPPORT)
        self.works: dict[str, Work] = {}
        self.calls: list[dict[str, Any]] = []
        self.heard: list[str] = []
        self.streams: list[ChannelId] = []
        self.count = 0
        self._dials = 0
        self._by_call: dict[tuple[object, int], Work] = {}
        self._mine: set[ChannelId] = set()
        self._ended: set[ChannelId] = set()

    # --- What happens by itself -------------------------------------------------------------------------------------

    def attend(self) -> bool:
        """Do what does itself. False: there was nothing."""
        world = self.world
        mine = [dial for dial in world.dials[self._dials :] if dial.target.server == self.id]
        self._dials = len(world.dials)
        self._mine |= {dial.channel for dial in mine}
        for dial in mine:
            self._connect(dial)
        heard = [heard for heard in world.heard if heard.channel in self._mine]
        for one in heard:
            world.heard.remove(one)
            self._receive(one)
        closed = [channel for channel in world.closed if channel not in self._ended]
        for channel in closed:
            self._ended.add(channel)
            self._close(channel)
        return bool(mine or heard or closed)

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
        """The proxy has ended a channel: it was to a process, a response, or a client."""
        for work in self.works.values():
            work.fetching = [one for one in work.fetching if one.channel != channel]
            if work.heard.channel == channel and not work.is_answered and not work.is_over:
                if channel in self.world.children:
                    work.is_lost = True
                elif self.is_modern:
                    work.stops.append("closed")
        self.world.end(channel)

    def _receive(self, heard: Heard) -> None:
        frame = heard.frame
        method = frame.get("method")
        self.heard.append(method or "")
        if method is None:
            self._receive_answer(heard, frame)
        elif "id" not in frame:
            self._receive_notice(heard, frame)
        elif method == "initialize":
            assert not self.is_modern
            self.count += 1
            revision = frame["params"]["protocolVersion"]
            self.has_tasks = self.has_tasks and revision == LATEST
            shown = {"tools": {"listChanged": True}, "logging": {}} | ({"tasks": ABILITY} if self.has_tasks else {})
            said = {"protocolVersion": revision, "capabilities": shown, "serverInfo": {"name": "s", "version": "1"}}
            self.world.answer(heard, json.dumps(said), session=f"S{self.count}")
        elif method == "server/discover":
            extensions = {"extensions": {TASKS: {}}} if self.has_tasks else {}
            self.world.answer(heard, discovery(json.dumps({"tools": {"listChanged": True}, **extensions})))
        elif method == "subscriptions/listen":
            grant(self.world, heard)
        elif method == "tools/list":
            self.answer(heard, {"tools": [self._tool(name) for name in self.support], **self._cached()})
        elif method == "tools/call":
            self._receive_call(heard, frame["params"])
        elif method.startswith("tasks/"):
            self._receive_verb(heard, method, frame["params"])
        else:
            self.answer(heard, {})

    def _cached(self) -> dict[str, Any]:
        return {"ttlMs": 0, "cacheScope": "private"} if self.is_modern else {}

    def _tool(self, name: str) -> dict[str, Any]:
        tool: dict[str, Any] = {"name": name, "inputSchema": {"type": "object"}}
        if self.has_tasks and not self.is_modern and self.support[name] is not None:
            tool["execution"] = {"taskSupport": self.support[name]}
        return tool

    def _receive_notice(self, heard: Heard, frame: dict[str, Any]) -> None:
        self.world.acknowledge(heard)
        if frame["method"] == "notifications/cancelled":
            work = self._by_call.get((place_of(heard), frame["params"].get("requestId")))
            if work is not None:
                assert work.id is None, "a task is cancelled by tasks/cancel"
                work.stops.append("notifications/cancelled")

    def _receive_answer(self, heard: Heard, frame: dict[str, Any]) -> None:
        self.world.acknowledge(heard)
        for work in self.works.values():
            if frame["id"] in work.given:
                self._take(work, frame["id"], frame.get("result", {"error": frame.get("error")}))
                return
        raise AssertionError(f"nobody asked that: {frame}")

    def _take(self, work: Work, key: str, said: dict[str, Any]) -> None:
        work.given[key].append(said)
        work.asked.pop(key, None)
        if not work.asked and work.status == "input_required":
            work.status = "working"

    def _receive_call(self, heard: Heard, params: dict[str, Any]) -> None:
        self.calls.append(params)
        as_task, support = "task" in params, self.support.get(params["name"])
        if self.is_modern:
            assert "task" not in params
            as_task = self.has_tasks and declares(params)
            if self.insists and params["name"] == "must" and not as_task:
                self._lack(heard)
                return
        elif not self.has_tasks:
            assert "task" not in params, "it declares no tasks"
        elif support == "required" and not as_task:
            self.refuse(heard, -32601, "the tool is to be called as a task")
            return
        elif support not in ("required", "optional") and as_task:
            self.refuse(heard, -32601, "the tool is not to be called as a task")
            return
        tag = params.get("arguments", {}).get("tag", f"t{len(self.calls)}")
        if tag in self.works:  # it comes again with answers
            work = self.works[tag]
            assert work.is_answered or work.is_lost, "nothing is called twice"
            work.heard, work.is_answered = heard, False
            for key, said in params.get("inputResponses", {}).items():
                self._take(work, key, said)
        else:
            self.works[tag] = Work(tag, heard, as_task)
        self._by_call[place_of(heard), heard.id] = self.works[tag]

    def _lack(self, heard: Heard) -> None:
        needed = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
        self._reply(heard, failure(-32021, "Missing required client capability", data=needed, id=heard.id), 400)

    def _receive_verb(self, heard: Heard, method: str, params: dict[str, Any]) -> None:
        assert self.has_tasks, "it declares no tasks"
        if self.is_modern:
            assert method in ("tasks/get", "tasks/update", "tasks/cancel")
            assert declares(params)
            assert heard.post is None or ("mcp-name", params["taskId"]) in heard.post.mirrored
        else:
            assert method != "tasks/update"
        work = next((w for w in self.works.values() if w.id == params["taskId"] and not w.is_lost), None)
        if work is None:
            self.refuse(heard, -32602, "Task not found")
        elif method == "tasks/get":
            work.polls += 1
            self.answer(heard, self.shown(work))
        elif method == "tasks/result":
            work.fetches += 1
            if self.is_hasty and work.status not in TERMINAL:
                self.refuse(heard, -32603, "the task is not completed yet")
                return
            work.fetching.append(heard)
            self.deliver(work)
        elif method == "tasks/update":
            for key, said in params["inputResponses"].items():
                if key in work.given:
                    self._take(work, key, said)
            self.answer(heard, {})
        elif work.status in TERMINAL and not self.is_modern:
            self.refuse(heard, -32602, f"Cannot cancel task: already in terminal status {work.status!r}")
        else:
            work.stops.append("tasks/cancel")
            if work.status not in TERMINAL:
                work.status = "cancelled"
            self.answer(heard, {} if self.is_modern else self.shown(work))
            self.deliver(work)

    # --- What a test says -------------------------------------------------------------------------------------------

    def work(self, tag: str) -> Work:
        return self.works[tag]

    def accept(self, work: Work, *, ttl_ms: int | None = 3_600_000, poll_ms: int | None = 1000) -> Work:
        """The call is a task."""
        self.count += 1
        work.id, work.ttl_ms, work.poll_ms = f"up-{self.count}", ttl_ms, poll_ms
        work.began = self._time()
        shown = self.task(work)
        self._settle(work, {"resultType": "task", **shown} if self.is_modern else {"task": shown})
        return work

    def finish(self, work: Work, said: dict[str, Any]) -> None:
        """The call has a result, which says whether it is an error of the tool's."""
        assert work.outcome is None
        work.outcome = {"result": said}
        is_failed = bool(said.get("isError")) and not self.is_modern
        self._conclude(work, "failed" if is_failed else "completed")

    def fail(self, work: Work, code: int, message: str, data: object = None) -> None:
        assert work.outcome is None
        work.outcome = {"error": {"code": code, "message": message} | ({} if data is None else {"data": data})}
        self._conclude(work, "failed")

    def stop(self, work: Work) -> None:
        """The server cancels its own task."""
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
            self.answer(work.heard, json.loads(asking(questions, f"state-{key}")))
            return
        work.unsaid.append(key)
        self.deliver(work)

    def withdraw(self, work: Work, key: str) -> None:
        """The question is not asked any more."""
        del work.asked[key]
        if not work.asked and work.status == "input_required":
            work.status = "working"
        if key in work.unsaid:
            work.unsaid.remove(key)
        elif not self.is_modern:
            self._tell(work, notification("notifications/cancelled", json.dumps({"requestId": key})))

    def report(self, work: Work, progress: int) -> None:
        assert work.token is not None, "nobody wants to hear of its progress"
        said = {"progressToken": work.token, "progress": progress}
        if work.id is not None:
            said["_meta"] = {RELATED: {"taskId": work.id}}
        self._tell(work, notification("notifications/progress", json.dumps(said)))

    def announce(self, work: Work) -> None:
        """Legacy: a notification of the status."""
        self._tell(work, notification("notifications/tasks/status", json.dumps(self.task(work))))

    def lose(self, work: Work) -> None:
        """The server knows the task no longer."""
        work.is_lost = True

    def die(self, work: Work) -> None:
        """The process goes, and all that it ran; over HTTP, the response that the call waits for is cut off."""
        for other in self.works.values():
            if other.heard.channel == work.heard.channel and not other.is_away:
                other.is_lost = True
                other.fetching.clear()
        if work.heard.channel not in self.world.over:
            self._ended.add(work.heard.channel)
            self.world.end(work.heard.channel, DIED)

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
        """What `tasks/get` gives."""
        shown = self.task(work)
        if self.is_modern and work.status == "input_required":
            shown["inputRequests"] = work.asked
        elif self.is_modern and work.status in ("completed", "failed"):
            assert work.outcome is not None
            shown |= work.outcome
        return shown

    # --- Saying it --------------------------------------------------------------------------------------------------

    def answer(self, heard: Heard, said: dict[str, Any]) -> None:
        if self.is_modern:
            said = {"resultType": "complete", **said}
        self._reply(heard, result(str(heard.id), json.dumps(said)))

    def refuse(self, heard: Heard, code: int, message: str, data: object = None) -> None:
        self._reply(heard, failure(code, message, data=data, id=heard.id))

    def _reply(self, heard: Heard, message: bytes, status: int = 200) -> None:
        world = self.world
        if heard.channel in world.over:
            return
        if heard.post is not None and status != 200:
            world.end(heard.channel, refused(status, message))
            return
        self._open(heard)
        world.say(heard.channel, message)
        if heard.post is not None and heard.channel not in world.over:
            world.end(heard.channel, DONE)

    def _open(self, heard: Heard) -> None:
        if heard.post is not None and heard.channel not in self.world.opened:
            self.world.opened.add(heard.channel)
            self.world.open(heard.channel, Connected())

    def _settle(self, work: Work, said: dict[str, Any]) -> None:
        work.is_answered = True
        self.answer(work.heard, said)

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
            self.answer(work.heard, work.outcome["result"])
        else:
            self.refuse(work.heard, **work.outcome["error"])

    def deliver(self, work: Work) -> None:
        """Say to whoever waits for it what there is: questions, and the outcome."""
        if self.is_modern:
            return
        for key in list(work.unsaid):
            place = self._place(work)
            if place is None:
                break
            work.unsaid.remove(key)
            self._open(place)
            asked = work.asked[key]
            self.world.say(place.channel, request(json.dumps(key), asked["method"], json.dumps(asked["params"])))
        if work.id is None or work.status not in TERMINAL:
            return
        fetching, work.fetching = work.fetching, []
        for heard in fetching:
            if work.outcome is None:
                self.refuse(heard, -32603, "the task was cancelled")
            elif "error" in work.outcome:
                self.refuse(heard, **work.outcome["error"])
            else:
                meta = {**work.outcome["result"].get("_meta", {}), RELATED: {"taskId": work.id}}
                self.answer(heard, {**work.outcome["result"], "_meta": meta})

    def _place(self, work: Work) -> Heard | None:
        """Where it may ask: its process, the call's own response, or a request for the result that waits."""
        if work.heard.post is None or work.id is None:
            return work.heard
        return work.fetching[0] if work.fetching else None

    def _tell(self, work: Work, message: bytes) -> None:
        """Of a task over HTTP: on the GET stream; else with the call."""
        if work.heard.post is not None and work.id is not None:
            dials = {dial.channel: dial for dial in self.world.dials}
            for stream in self.streams:
                target = dials[stream].target
                assert isinstance(target, Listen)
                if stream not in self.world.over and target.session == work.heard.post.session:
                    self.world.say(stream, message)
            return
        self._open(work.heard)
        self.world.say(work.heard.channel, message)


def place_of(heard: Heard) -> object:
    """The session with the server in which something was said."""
    return heard.channel if heard.post is None else heard.post.session


def declares(params: dict[str, Any]) -> bool:
    """Whether a modern request's client knows tasks."""
    declared = params["_meta"][K + "clientCapabilities"]
    return TASKS in declared.get("extensions", {})


def text(words: str, **rest: Any) -> dict[str, Any]:
    """The result of a call."""
    return {"content": [{"type": "text", "text": words}], **rest}
