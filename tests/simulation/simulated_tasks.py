"""Clients that have calls run as tasks, follow them, and ask for those of others; and the book on all that
clients were told of tasks, which says what may be told of each.

The book shares nothing with the proxy: it is kept from what clients have seen alone.
"""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any, Final

from simulated_network import Wrong
from simulated_works import EXTENSION, LATEST, OVER

if TYPE_CHECKING:
    from simulated_clients import Client, Owed

STATUSES: Final = OVER | {"working", "input_required"}
FOLLOWED_MAX: Final = 50
"""Of one client: more are begun, and left alone."""


class Told:
    """A task that a client was given.

    Attributes:
        say: what its call said.
        incarnation: which of its client's sessions that was.
        over: its final status and when that was seen first; None: it is not over, as far as was seen.
        result: the first that was given, as text.
        is_wanted: its client has not cancelled it, nor lost what it was made in.
    """

    def __init__(self, client: Client, say: str) -> None:
        self.client, self.say, self.incarnation = client, say, client.incarnation
        self.over: tuple[str, int] | None = None
        self.result: str | None = None
        self.is_wanted = True


class Book:
    """All tasks that anybody was told of, by their ids."""

    def __init__(self) -> None:
        self.told: dict[str, Told] = {}

    def give(self, client: Client, id: str, say: str) -> Told:
        """A call was answered with a task."""
        if id in self.told:
            raise Wrong(f"{client.mark} was given the task {id}, which {self.told[id].client.mark} has")
        self.told[id] = Told(client, say)
        return self.told[id]

    def may_see(self, client: Client, id: str) -> bool:
        """Whether a client may be told of a task: of its own principal's, of the same server, in its own era. Where
        nobody says who they are, one with sessions sees those of its own, as long as that session lives."""
        told = self.told.get(id)
        if told is None or told.client is client:
            return True
        owner = told.client
        if (owner.server, owner.principal, owner.is_modern) != (client.server, client.principal, client.is_modern):
            return False
        is_live = owner.is_ready and owner.incarnation == told.incarnation
        return bool(owner.principal) or owner.is_modern or not is_live

    def see(self, client: Client, shape: dict[str, Any], asked_at: int) -> None:
        """A task was shown in the answer to a request that was the so manieth that was made."""
        id, status = shape["taskId"], shape["status"]
        if status not in STATUSES:
            raise Wrong(f"{client.mark} was told the status {status!r}")
        if not self.may_see(client, id):
            raise Wrong(f"{client.mark} was shown {id}, which is {self.told[id].client.mark}'s")
        told = self.told.get(id)
        if told is None:
            return
        if told.over is not None and asked_at > told.over[1] and status != told.over[0]:
            raise Wrong(f"{id} was {told.over[0]}, and is {status} now")
        if told.over is None and status in OVER:
            told.over = status, client.network.asked

    def take_result(self, client: Client, id: str, result: dict[str, Any]) -> None:
        """What a task gave."""
        told = self.told[id]
        said = [block.get("text") for block in result.get("content", ())]
        if said != [told.say] and not result.get("isError"):
            raise Wrong(f"the task of {told.say!r} gave {result!r}")
        text = json.dumps(result)
        told.result = told.result or text
        if told.result != text:
            raise Wrong(f"the task of {told.say!r} gave {told.result}, and then {text}")


class Tasks:
    """What one client does with tasks."""

    def __init__(self, client: Client, book: Book) -> None:
        self.client, self.network, self.book = client, client.network, book
        self.mine: dict[str, Told] = {}
        if client.is_modern:
            client.able = {**client.able, "extensions": {EXTENSION: {}}}

    @property
    def may_use(self) -> bool:
        return self.client.is_modern or (self.client.revision == LATEST and "tasks" in self.client.greeting)

    def act(self, rng: random.Random) -> bool:
        """Do one thing; False: there is nothing to do."""
        if not self.may_use:
            return False
        kind, client = rng.random(), self.client
        if kind < 0.45 or not self.book.told:
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
        client.request("tools/call", params, say)

    def begin(self, owed: Owed, result: dict[str, Any]) -> None:
        """A call was answered with a task: follow it."""
        shape = result if self.client.is_modern else result["task"]
        assert owed.text is not None
        told = self.book.give(self.client, shape["taskId"], owed.text)
        self.book.see(self.client, shape, owed.asked_at)
        self.client.outcomes["task begun"] += 1
        if len(self.mine) < FOLLOWED_MAX:
            self.mine[shape["taskId"]] = told
            self._follow(shape["taskId"], shape)

    # --- Following it -----------------------------------------------------------------------------------------------

    def _follow(self, id: str, shape: dict[str, Any]) -> None:
        pause_ms = shape.get("pollIntervalMs") if self.client.is_modern else shape.get("pollInterval")
        self.network.later(max(0.5, (pause_ms or 1000) / 1000), self._look, id)

    def _look(self, id: str) -> None:
        client, told = self.client, self.mine.get(id)
        if told is None or client.is_done:
            return
        if not client.is_ready:
            self.network.later(2.0, self._look, id)
        elif client.is_modern or client.incarnation != told.incarnation or len(told.say) % 2:
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
            self.book.see(self.client, shape, owed.asked_at)
            if shape["status"] == "completed" and self.client.is_modern:
                self.book.take_result(self.client, id, shape["result"])
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
        """Wait for the result; questions come meanwhile."""

        def settle(owed: Owed, frame: dict[str, Any]) -> None:
            if "error" in frame:
                self._drop(id, frame)
            else:
                self.book.take_result(self.client, id, frame["result"])
                self._end(id, "completed")

        self.client.request("tasks/result", {"taskId": id}, settle=settle, lost=self._retry(id))

    def _retry(self, id: str) -> Any:
        return lambda: self.network.later(2.0, self._look, id)

    def _answer(self, id: str, asked: dict[str, Any]) -> None:
        answers = {}
        for key, question in asked.items():
            say = question["params"]["message"]
            if not say.startswith(self.book.told[id].client.mark):  # a pipe does not tell of which call a question is
                raise Wrong(f"the task of {self.book.told[id].say!r} asks {say!r}")
            answers[key] = {"action": "accept", "content": {"name": say}}
        if answers:
            self.client.request("tasks/update", {"taskId": id, "inputResponses": answers}, settle=lambda *_: None)

    def _cancel(self, id: str) -> None:
        self.mine[id].is_wanted = False

        def settle(owed: Owed, frame: dict[str, Any]) -> None:
            if "result" in frame and not self.client.is_modern:
                self.book.see(self.client, frame["result"], owed.asked_at)
                if frame["result"]["status"] != "cancelled":
                    raise Wrong(f"{id} was cancelled, and is {frame['result']['status']}")

        self.client.request("tasks/cancel", {"taskId": id}, settle=settle)

    def _drop(self, id: str, frame: dict[str, Any]) -> None:
        """The proxy says that it failed, or is unknown."""
        self._end(id, f"error {frame['error'].get('code')}")

    def _end(self, id: str, how: str) -> None:
        told = self.mine.pop(id, None)
        if told is not None:
            self.client.outcomes["task " + how] += 1
            if how != "completed" and told.is_wanted:
                self.client.outcomes["task unfinished"] += 1

    def _take_list(self, owed: Owed, frame: dict[str, Any]) -> None:
        for shape in frame.get("result", {}).get("tasks", ()):
            self.book.see(self.client, shape, owed.asked_at)

    # --- Those of others --------------------------------------------------------------------------------------------

    def _snoop(self, rng: random.Random) -> None:
        """Name a task of somebody else. Whoever may not see it is told that there is none."""
        book, client = self.book, self.client
        foreign = [id for id, told in book.told.items() if told.client is not client and not book.may_see(client, id)]
        if not foreign:
            return
        id = rng.choice(foreign)
        method = rng.choice(("tasks/get", "tasks/cancel", "tasks/update" if client.is_modern else "tasks/result"))

        def settle(_: Owed, frame: dict[str, Any]) -> None:
            if "error" not in frame and not book.may_see(client, id):
                raise Wrong(f"{client.mark} asked for {id}, which is {book.told[id].client.mark}'s: {frame}")
            client.outcomes["task of others"] += 1

        params: dict[str, Any] = {"taskId": id}
        if method == "tasks/update":
            params["inputResponses"] = {"k": {"action": "decline"}}
        client.request(method, params, settle=settle)
