"""The tasks of a simulated server, in either era: calls that continue without an open request.

Source: 2025-11-25 basic/utilities/tasks; the tasks extension of 2026-07-28.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

from simulated_network import Channel, Wrong

if TYPE_CHECKING:
    from simulated_servers import Server, Session

EXTENSION: Final = "io.modelcontextprotocol/tasks"
RELATED: Final = "io.modelcontextprotocol/related-task"
LATEST: Final = "2025-11-25"
ABILITY: Final = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
OVER: Final = frozenset({"completed", "failed", "cancelled"})
ASKING_S: Final = 15.0
"""The time that a server waits for the answer to a question before it goes on without."""


class Work:
    """One task.

    Attributes:
        say: the argument of its call, and the text of its result.
        waiting: requests for its result, by channel and id.
        question: the id of its question until it is answered; `is_sent`: the question has been sent.
    """

    def __init__(self, id: str, say: str, session: Session, ttl_ms: int | None) -> None:
        self.id, self.say, self.session, self.ttl_ms = id, say, session, ttl_ms
        self.status = "working"
        self.waiting: list[tuple[Channel, Any]] = []
        self.question: str | None = None
        self.is_sent = False


class Works:
    """The tasks of one server. Those of a process or a session end with it. Without sessions they stay."""

    def __init__(self, server: Server) -> None:
        self.server, self.network = server, server.network
        self.last = 0
        self.lasting: dict[str, Work] = {}

    def capability(self, revision: str) -> dict[str, Any]:
        if self.server.is_modern:
            return {"extensions": {EXTENSION: {}}}
        return {"tasks": ABILITY} if revision == LATEST else {}

    def takes(self, session: Session, params: dict[str, Any], able: dict[str, Any], rng: random.Random) -> bool:
        """True if a call becomes a task."""
        if self.server.is_modern:
            return EXTENSION in able.get("extensions", {}) and rng.random() < 0.5
        return "task" in params and session.has_tasks

    def begin(self, channel: Channel, session: Session, id: Any, params: dict[str, Any], rng: random.Random) -> None:
        say, asks = params["arguments"]["say"], params["arguments"].get("ask", False)
        self.last += 1
        work = Work(f"up-{self.server.name}-{self.last}", say, session, params.get("task", {}).get("ttl"))
        self._place(session)[work.id] = work
        shown = self.shown(work)
        reply = {"resultType": "task", **shown} if self.server.is_modern else {"task": shown}
        self.server.reply(channel, session, id, reply)
        pause = rng.expovariate(0.5)
        if self.network.strikes("late", 0.1, rng):
            pause = rng.uniform(5.0, 60.0)
        if asks and (self.server.is_modern or self.server.may_ask(session)):
            self.network.later(pause, self._ask, work, channel, rng)
        elif not self.network.strikes("never", 0.05, rng):
            self.network.later(pause, self._finish, work, channel, rng)

    def answer(self, channel: Channel, session: Session, id: Any, method: str, params: dict[str, Any]) -> None:
        server, work = self.server, self._place(session).get(params.get("taskId", ""))
        if method == "tasks/list" and not server.is_modern:
            server.reply(channel, session, id, {"tasks": [self.shown(one) for one in self._place(session).values()]})
        elif work is None:
            server.reply(channel, session, id, error=-32602)
        elif method == "tasks/get":
            server.reply(channel, session, id, {**self.detailed(work), **self._complete})
        elif method == "tasks/result" and not server.is_modern:
            work.waiting.append((channel, id))
            self._put(work)
            self._deliver(work)
        elif method == "tasks/update" and server.is_modern:
            self._take(work, params["inputResponses"])
            server.reply(channel, session, id, self._complete)
        elif method != "tasks/cancel" or (work.status in OVER and not server.is_modern):
            server.reply(channel, session, id, error=-32602)
        else:
            if work.status not in OVER:
                work.status = "cancelled"
            server.reply(channel, session, id, self._complete if server.is_modern else self.shown(work))
            self._deliver(work)

    def shown(self, work: Work) -> dict[str, Any]:
        ttl, poll = ("ttlMs", "pollIntervalMs") if self.server.is_modern else ("ttl", "pollInterval")
        at = "2026-07-28T00:00:00Z"
        return {
            "taskId": work.id,
            "status": work.status,
            "createdAt": at,
            "lastUpdatedAt": at,
            ttl: work.ttl_ms,
            poll: 500,
        }

    def detailed(self, work: Work) -> dict[str, Any]:
        shown = self.shown(work)
        if self.server.is_modern and work.status == "input_required":
            shown["inputRequests"] = {
                "k": {"method": "elicitation/create", "params": {"mode": "form", **_form(work.say)}}
            }
        elif self.server.is_modern and work.status == "completed":
            shown["result"] = self._result(work)
        elif self.server.is_modern and work.status == "failed":
            shown["error"] = {"code": -32050, "message": work.say}
        return shown

    @property
    def _complete(self) -> dict[str, Any]:
        return {"resultType": "complete"} if self.server.is_modern else {}

    def _place(self, session: Session) -> dict[str, Work]:
        return self.lasting if self.server.is_modern and self.server.is_http else session.works

    def _result(self, work: Work) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": work.say}], **self._complete}

    # --- The course of a task ---------------------------------------------------------------------------------------

    def _ask(self, work: Work, channel: Channel, rng: random.Random) -> None:
        if work.status in OVER:
            return
        self.last += 1
        work.status, work.question = "input_required", f"t{self.last}"
        if not self.server.is_http:
            # the channel of the process itself, on which the server may ask at any time
            work.waiting = [(channel, None), *work.waiting]
        work.session.questions[work.question] = lambda frame: self._take(work, {"k": frame.get("result", {})})
        self._put(work)
        self.network.later(ASKING_S, self._take, work, {"k": {}})
        self._notify(work, channel)

    def _put(self, work: Work) -> None:
        """Sends the question to the client that waits for the result (2025-11-25)."""
        if self.server.is_modern or work.question is None or work.is_sent or not work.waiting:
            return
        work.is_sent = True
        params = {**_form(work.say), "_meta": {RELATED: {"taskId": work.id}}}
        self.server.say(work.waiting[0][0], id=work.question, method="elicitation/create", params=params)

    def _take(self, work: Work, answers: dict[str, Any]) -> None:
        if work.question is None or work.status in OVER or "k" not in answers:
            return
        name = answers["k"].get("content", {}).get("name")
        if answers["k"].get("action") == "accept" and name != work.say:
            raise Wrong(f"a task asked for {work.say!r}, and was answered {name!r}")
        work.session.questions.pop(work.question, None)
        work.status, work.question = "working", None
        self.network.later(1.0, self._finish, work, None, self.network.rng_of(f"{self.server.name} end {work.say}"))

    def _finish(self, work: Work, channel: Channel | None, rng: random.Random) -> None:
        if work.status not in OVER:
            work.status = "failed" if self.network.strikes("errors", 0.1, rng) else "completed"
            self._deliver(work)
            self._notify(work, channel)

    def _notify(self, work: Work, channel: Channel | None) -> None:
        """Sends a status notification if the server is on a pipe (2025-11-25)."""
        if channel is not None and not self.server.is_modern and not self.server.is_http:
            self.server.say(channel, method="notifications/tasks/status", params=self.shown(work))

    def _deliver(self, work: Work) -> None:
        if work.status not in OVER:
            return
        waiting, work.waiting = work.waiting, []
        for channel, id in waiting:
            if id is None:
                continue
            if work.status == "completed":
                meta = {"_meta": {RELATED: {"taskId": work.id}}}
                self.server.reply(channel, work.session, id, {**self._result(work), **meta})
            else:
                self.server.reply(channel, work.session, id, error=-32050)


def _form(say: str) -> dict[str, Any]:
    return {"message": say, "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}
