"""Clients of either era that use tasks. A `ClientRequest` reads what came for one request."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
from driving import DONE, GONE, LATEST, Client, Driver, new_client, notification, result
from isthmus.core.base.grants import Grants
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.revisions import Era
from stateless_driving import ABLE, Modern, modern
from task_servers import TASKS

KNOWS_TASKS: dict[str, Any] = {**ABLE, "extensions": {TASKS: {}}}


@dataclass(frozen=True)
class ClientRequest:
    """One request of a client, and what came for it."""

    world: Driver
    channel: ChannelId
    id: Any

    @property
    def reply(self) -> dict[str, Any] | None:
        """The whole response, if there is one."""
        raw = self.raw
        return None if raw is None else json.loads(raw)

    @property
    def raw(self) -> bytes | None:
        found = [
            message
            for message in self.world.messages(self.channel)
            if (frame := json.loads(message)).get("id") == self.id and "method" not in frame
        ]
        assert len(found) <= 1, found
        return found[0] if found else None

    @property
    def result(self) -> dict[str, Any]:
        reply = self.reply
        assert reply is not None, "there is no answer"
        assert "result" in reply, reply
        return dict(reply["result"])

    @property
    def error(self) -> dict[str, Any]:
        reply = self.reply
        assert reply is not None, "there is no answer"
        assert "error" in reply, reply
        return dict(reply["error"])

    @property
    def code(self) -> int | None:
        """The code of the error; None for a result."""
        reply = self.reply
        assert reply is not None, "there is no answer"
        code = reply.get("error", {}).get("code")
        assert code is None or isinstance(code, int)
        return code

    @property
    def body(self) -> bytes:
        """The result or the error as it was written, without the id."""
        raw = self.raw
        assert raw is not None
        parts = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
        return bytes(parts["result"] if "result" in parts else parts["error"])


class Party:
    """A client of either era that knows tasks, unless `is_plain`."""

    def __init__(
        self, world: Driver, era: Era, *, down: str = "http", principal: str = "", is_plain: bool = False
    ) -> None:
        self.world = world
        self.is_modern = era is Era.STATELESS
        self.is_plain = is_plain
        self.principal = principal
        self.places: list[ChannelId] = []
        self.greeting: dict[str, Any] = {}
        self.legacy: Client | None = None
        self.modern: Modern | None = None
        self._ids = 0
        self._made = (era, down)

    def begin(self, run: Callable[[], None], *, revision: str = LATEST) -> Party:
        """Does the handshake, if the client is of that era."""
        era, down = self._made
        if era is Era.STATELESS:
            known = ABLE if self.is_plain else KNOWS_TASKS
            self.modern = modern(self.world, "s", down, principal=self.principal, capabilities=known)
            return self
        self.legacy = new_client(self.world, down, "s", self.principal)
        declared = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
        channel = self.legacy.initialize(json.dumps({"protocolVersion": revision, "capabilities": declared}))
        run()
        self.greeting = json.loads(self.world.messages(channel)[-1])
        self.legacy.session = self.world.sent[channel][-1].session
        self.legacy.notify("notifications/initialized")
        run()
        if down == "http":
            self.places.append(self.legacy.listen())
        return self

    def show(self, *, groups: str = "", scopes: str = "") -> None:
        """Shows another token from now on, with these groups and scopes, separated by spaces."""
        client = self.legacy or self.modern
        assert client is not None
        client.grants = Grants(frozenset(scopes.split()), frozenset(groups.split()))

    def ask(self, method: str, **params: Any) -> ClientRequest:
        if self.modern is not None:
            channel = self.modern.request(method, **params)
            self.places.append(channel)
            return ClientRequest(self.world, channel, self.modern.last_id)
        assert self.legacy is not None
        self._ids += 1
        channel = self.legacy.request(str(self._ids), method, json.dumps(params))
        self.places.append(channel)
        return ClientRequest(self.world, channel, self._ids)

    def call(
        self,
        tag: str,
        tool: str = "work",
        *,
        ttl: int | None = None,
        as_task: bool = True,
        token: str | None = None,
        **rest: Any,
    ) -> ClientRequest:
        """Calls a tool. A legacy client that knows tasks asks for a task, unless `as_task` is false."""
        params: dict[str, Any] = {"name": tool, "arguments": {"tag": tag}, **rest}
        if self.modern is not None:
            return self.ask("tools/call", token=token, **params)
        if token is not None:
            params["_meta"] = {"progressToken": token}
        if as_task and not self.is_plain:
            params["task"] = {} if ttl is None else {"ttl": ttl}
        return self.ask("tools/call", **params)

    def get(self, id: str) -> ClientRequest:
        return self.ask("tasks/get", taskId=id)

    def result(self, id: str) -> ClientRequest:
        return self.ask("tasks/result", taskId=id)

    def cancel(self, id: str) -> ClientRequest:
        return self.ask("tasks/cancel", taskId=id)

    def update(self, id: str, answers: dict[str, Any]) -> ClientRequest:
        return self.ask("tasks/update", taskId=id, inputResponses=answers)

    def listing(self, cursor: str | None = None) -> ClientRequest:
        return self.ask("tasks/list", **({} if cursor is None else {"cursor": cursor}))

    def reply(self, id: Any, answer: dict[str, Any]) -> None:
        """Answers a question (legacy)."""
        assert self.legacy is not None
        self.legacy.send(result(json.dumps(id), json.dumps(answer)))

    def hang_up(self, asked: ClientRequest) -> None:
        """Gives up on a request: closes the response over HTTP, sends a notification on a pipe."""
        if self.pipe is None:
            self.world.end(asked.channel, GONE)
        else:
            self.world.send(self.pipe, notification("notifications/cancelled", json.dumps({"requestId": asked.id})))

    def leave(self) -> None:
        """Ends the session."""
        assert self.legacy is not None
        if self.legacy.pipe is not None:
            self.world.end(self.legacy.pipe, DONE)
        else:
            self.legacy.delete()

    def received(self, method: str) -> list[dict[str, Any]]:
        """Returns every request and notification of that method that the client was sent, on any channel."""
        pipe = self.pipe
        places = self.places if pipe is None else [pipe]
        return [frame for place in places for frame in self.world.frames(place) if frame.get("method") == method]

    @property
    def pipe(self) -> ChannelId | None:
        party = self.legacy or self.modern
        assert party is not None
        return party.pipe


def handle(asked: ClientRequest) -> str:
    """Returns the id of the task that a call was answered with. Its status is `working`."""
    answer = asked.result
    if "task" not in answer:
        assert answer["resultType"] == "task", answer
        assert "ttlMs" in answer
        shown = answer
    else:
        assert "resultType" not in answer
        shown = answer["task"]
        assert "ttl" in shown
    assert shown["status"] == "working"
    assert isinstance(shown["taskId"], str)
    return shown["taskId"]
