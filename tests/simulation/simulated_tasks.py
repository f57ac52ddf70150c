"""Clients that run calls as tasks, follow them, and ask for tasks of others; and the record of what clients saw of
tasks.

The record decides what each client may be shown. It shares nothing with the proxy: it is made from the messages to
clients alone.
"""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any, Final

from simulated_answers import accept
from simulated_network import Wrong
from simulated_works import EXTENSION, LATEST, OVER

if TYPE_CHECKING:
    from simulated_clients import Client, Owed

STATUSES: Final = OVER | {"working", "input_required"}
FOLLOWED_MAX: Final = 50
"""The bound on tasks that one client follows. It begins more, and leaves those alone."""


class KnownTask:
    """A task that a client has begun.

    Attributes:
        say: the argument of its call.
        place: its server.
        incarnation: the number of the client's session in which it was begun.
        over: its final status and when a client first saw it, or None.
        result: the first result that a client got, as text.
        is_wanted: True unless the client has cancelled it, or lost the session of it.
    """

    def __init__(self, client: Client, say: str) -> None:
        self.client, self.say, self.incarnation = client, say, client.incarnation
        self.place = say.partition("@")[2] or client.server
        self.over: tuple[str, int] | None = None
        self.result: str | None = None
        self.is_wanted = True


class TaskRecord:
    """All tasks that any client knows, by their ids."""

    def __init__(self) -> None:
        self.known: dict[str, KnownTask] = {}

    def give(self, client: Client, id: str, say: str) -> KnownTask:
        """Notes a call that was answered with a task."""
        if id in self.known:
            raise Wrong(f"{client.mark} was given the task {id}, which {self.known[id].client.mark} has")
        self.known[id] = KnownTask(client, say)
        return self.known[id]

    def may_see(self, client: Client, id: str) -> bool:
        """True if a client may see a task: one of its own principal, of the same server, and in its own era. Without
        principals, a client with sessions may see those of its own session, as long as that lives."""
        known = self.known.get(id)
        if known is None or known.client is client:
            return True
        owner = known.client
        if (owner.principal, owner.is_modern) != (client.principal, client.is_modern):
            return False
        if known.place not in client.places:
            return False
        is_live = owner.is_ready and owner.incarnation == known.incarnation
        return bool(owner.principal) or owner.is_modern or not is_live

    def see(self, client: Client, shape: dict[str, Any], asked_at: int) -> None:
        """Checks a task that was shown in the answer to the request with number `asked_at`."""
        id, status = shape["taskId"], shape["status"]
        if status not in STATUSES:
            raise Wrong(f"{client.mark} was told the status {status!r}")
        if not self.may_see(client, id):
            raise Wrong(f"{client.mark} was shown {id}, which is {self.known[id].client.mark}'s")
        known = self.known.get(id)
        if known is None:
            return
        if known.over is not None and asked_at > known.over[1] and status != known.over[0]:
            raise Wrong(f"{id} was {known.over[0]}, and is {status} now")
        if known.over is None and status in OVER:
            known.over = status, client.network.asked

    def take_result(self, client: Client, id: str, result: dict[str, Any]) -> None:
        """Checks the result of a task."""
        known = self.known[id]
        texts = [block.get("text") for block in result.get("content", ())]
        if texts != [known.say] and not result.get("isError"):
            raise Wrong(f"the task of {known.say!r} gave {result!r}")
        text = json.dumps(result)
        known.result = known.result or text
        if known.result != text:
            raise Wrong(f"the task of {known.say!r} gave {known.result}, and then {text}")


class Tasks:
    """The tasks of one client."""

    def __init__(self, client: Client, task_record: TaskRecord) -> None:
        self.client, self.network, self.task_record = client, client.network, task_record
        self.mine: dict[str, KnownTask] = {}
        if client.is_modern:
            client.able = {**client.able, "extensions": {EXTENSION: {}}}

    @property
    def may_use(self) -> bool:
        return self.client.is_modern or (self.client.revision == LATEST and "tasks" in self.client.server_capabilities)

    def act(self, rng: random.Random) -> bool:
        """Does one action. Returns False if there is nothing to do."""
        if not self.may_use:
            return False
        kind, client = rng.random(), self.client
        if kind < 0.45 or not self.task_record.known:
            self._call(rng)
        elif kind < 0.6:
            self._snoop(rng)
        elif kind < 0.7 and not client.is_modern:
            client.request("tasks/list", settle=self._take_list)
        elif self.mine:
            id = rng.choice(list(self.mine))
            if kind < 0.8:
                self._cancel(id)
            elif client.is_modern or rng.random() < 0.5:
                self._get(id)
            else:
                self._fetch(id)
        return True

    def _call(self, rng: random.Random) -> None:
        client = self.client
        say = f"{client.mark}{client.last + 1}"
        params: dict[str, Any] = {"name": "echo", "arguments": {"say": say, "ask": rng.random() < 0.4}}
        if not client.is_modern:
            params["task"] = rng.choice(({}, {"ttl": 60_000}))
        say = client.address(params, rng)
        client.request("tools/call", params, say)

    def begin(self, owed: Owed, result: dict[str, Any]) -> None:
        """Follows a task with which a call was answered."""
        shape = result if self.client.is_modern else result["task"]
        assert owed.text is not None
        known = self.task_record.give(self.client, shape["taskId"], owed.text)
        self.task_record.see(self.client, shape, owed.asked_at)
        self.client.outcomes["task begun"] += 1
        if len(self.mine) < FOLLOWED_MAX:
            self.mine[shape["taskId"]] = known
            self._follow(shape["taskId"], shape)

    # --- Following a task -------------------------------------------------------------------------------------------

    def _follow(self, id: str, shape: dict[str, Any]) -> None:
        pause_ms = shape.get("pollIntervalMs") if self.client.is_modern else shape.get("pollInterval")
        self.network.later(max(0.5, (pause_ms or 1000) / 1000), self._look, id)

    def _look(self, id: str) -> None:
        client, known = self.client, self.mine.get(id)
        if known is None or client.is_done:
            return
        if not client.is_ready:
            self.network.later(2.0, self._look, id)
        elif client.is_modern or client.incarnation != known.incarnation or len(known.say) % 2:
            self._get(id, follows=True)
        else:
            self._fetch(id)

    def _get(self, id: str, *, follows: bool = False) -> None:
        def settle(owed: Owed, frame: dict[str, Any]) -> None:
            if "error" in frame:
                self._drop(id, frame)
                return
            shape = frame["result"]
            if shape["taskId"] != id:
                raise Wrong(f"{self.client.mark} asked for {id}, and was shown {shape['taskId']}")
            self.task_record.see(self.client, shape, owed.asked_at)
            if shape["status"] == "completed" and self.client.is_modern:
                self.task_record.take_result(self.client, id, shape["result"])
            elif shape["status"] == "completed" and id in self.mine:
                self._fetch(id)
            elif shape["status"] == "input_required" and self.client.is_modern:
                self._answer(id, shape["inputRequests"])
            elif shape["status"] == "input_required" and id in self.mine:
                self._fetch(id)
            if shape["status"] in OVER:
                self._end(id, shape["status"])
            elif follows:
                self._follow(id, shape)

        self.client.request("tasks/get", {"taskId": id}, settle=settle, lost=self._retry(id) if follows else None)

    def _fetch(self, id: str) -> None:
        """Waits for the result. Questions may come meanwhile."""

        def settle(owed: Owed, frame: dict[str, Any]) -> None:
            if "error" in frame:
                self._drop(id, frame)
            else:
                self.task_record.take_result(self.client, id, frame["result"])
                self._end(id, "completed")

        self.client.request("tasks/result", {"taskId": id}, settle=settle, lost=self._retry(id))

    def _retry(self, id: str) -> Any:
        return lambda: self.network.later(2.0, self._look, id)

    def _answer(self, id: str, asked: dict[str, Any]) -> None:
        answers = {}
        for key, question in asked.items():
            answers[key] = accept(question["params"])
            say = answers[key]["content"]["name"]
            # on a pipe, nothing tells which call a question belongs to
            if not say.startswith(self.task_record.known[id].client.mark):
                raise Wrong(f"the task of {self.task_record.known[id].say!r} asks {say!r}")
        if answers:
            self.client.request("tasks/update", {"taskId": id, "inputResponses": answers}, settle=lambda *_: None)

    def _cancel(self, id: str) -> None:
        self.mine[id].is_wanted = False

        def settle(owed: Owed, frame: dict[str, Any]) -> None:
            if "result" in frame and not self.client.is_modern:
                self.task_record.see(self.client, frame["result"], owed.asked_at)
                if frame["result"]["status"] != "cancelled":
                    raise Wrong(f"{id} was cancelled, and is {frame['result']['status']}")

        self.client.request("tasks/cancel", {"taskId": id}, settle=settle)

    def _drop(self, id: str, frame: dict[str, Any]) -> None:
        """Drops a task that, as the proxy reports, failed or is unknown."""
        self._end(id, f"error {frame['error'].get('code')}")

    def _end(self, id: str, how: str) -> None:
        known = self.mine.pop(id, None)
        if known is not None:
            self.client.outcomes["task " + how] += 1
            if how != "completed" and known.is_wanted:
                self.client.outcomes["task unfinished"] += 1

    def _take_list(self, owed: Owed, frame: dict[str, Any]) -> None:
        for shape in frame.get("result", {}).get("tasks", ()):
            self.task_record.see(self.client, shape, owed.asked_at)

    # --- Tasks of other clients -------------------------------------------------------------------------------------

    def _snoop(self, rng: random.Random) -> None:
        """Names a task of another client. If this client may not see it, the proxy must report that there is none."""
        task_record, client = self.task_record, self.client
        foreign = [
            id
            for id, known in task_record.known.items()
            if known.client is not client and not task_record.may_see(client, id)
        ]
        if not foreign:
            return
        id = rng.choice(foreign)
        method = rng.choice(("tasks/get", "tasks/cancel", "tasks/update" if client.is_modern else "tasks/result"))

        def settle(_: Owed, frame: dict[str, Any]) -> None:
            if "error" not in frame and not task_record.may_see(client, id):
                raise Wrong(f"{client.mark} asked for {id}, which is {task_record.known[id].client.mark}'s: {frame}")
            client.outcomes["task of others"] += 1

        params: dict[str, Any] = {"taskId": id}
        if method == "tasks/update":
            params["inputResponses"] = {"k": {"action": "decline"}}
        client.request(method, params, settle=settle)
