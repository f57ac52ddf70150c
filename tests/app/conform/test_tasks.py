"""Tests of the tasks of the servers that `isthmus conform --client` plays: by the rules, and only for clients that
request them."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from conforming import Run
from isthmus.app.conform.generate.deeds import KINDS, kinds_for
from isthmus.app.conform.script.behaviour import Behaviour, Deed, Script
from isthmus.app.conform.script.client_survey import ClientSurvey
from isthmus.app.conform.script.simulated_tasks import POLL_MS, Fate
from isthmus.app.conform.script.steps import META, REVISIONS, decoded, encode
from isthmus.app.conform.script.survey import Played
from isthmus.app.conform.verdict.clients import chances_of_client, judge_client
from isthmus.app.conform.verdict.report import Recorded
from isthmus.app.conform.verdict.servers import violations_of
from isthmus.core.oracle.methods import TASKS_EXTENSION, V4, V5
from isthmus.core.oracle.observations import AnyObservation, Role, Said, Transport

Json = dict[str, Any]
CLIENT = (sys.executable, "-S", str(Path(__file__).parents[1] / "faulty_client.py"))
OVER = ("completed", "failed", "cancelled")


class Dialogue:
    """A client and its server on a pipe, with a clock of their own. Args: `declared`: the client's capabilities."""

    def __init__(self, behaviour: Behaviour, declared: Json) -> None:
        self.seen: list[tuple[int, AnyObservation]] = []
        self._behaviour = behaviour
        self._declared = declared
        self._script = Script(behaviour)
        self._now = 0.0
        self._ids = itertools.count(1)
        if not behaviour.is_stateless:
            info = {"name": "c", "version": "1"}
            hello = {"protocolVersion": behaviour.revision, "capabilities": declared, "clientInfo": info}
            self.request("initialize", hello)
            self._record(Role.CLIENT, encode({"jsonrpc": "2.0", "method": "notifications/initialized"}))

    def request(self, method: str, params: Json | None = None) -> Json:
        """The server's answer, after the poll interval."""
        self._now += POLL_MS / 1000 + 0.001
        params = dict(params or {})
        if self._behaviour.is_stateless:
            params["_meta"] = {
                META + "protocolVersion": V5,
                META + "clientInfo": {"name": "c", "version": "1"},
                META + "clientCapabilities": self._declared,
            }
        message: Json = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}
        self._record(Role.CLIENT, encode(message))
        deed = self._script.deed_for(message)
        texts = [text for line in deed.lines if (text := self._script.fill(line.body, message)) is not None]
        for text in texts:
            self._record(Role.SERVER, text)
        (answer,) = decoded(texts[-1])
        return answer

    def _record(self, who: Role, text: str) -> None:
        self.seen.append((0, Said(0, who, text.encode(), at=self._now)))

    def broken_by(self, who: Role) -> list[str]:
        return [each.rule for each in violations_of(Played(self.seen), None, Transport.PIPE, who, REVISIONS)]


def polled(dialogue: Dialogue, task: str) -> Iterator[Json]:
    while True:
        task_state = dialogue.request("tasks/get", {"taskId": task})["result"]
        yield task_state
        if task_state["status"] in OVER:
            return


@pytest.mark.parametrize("fate", Fate)
@pytest.mark.parametrize("polls", [0, 1, 3])
def test_a_task_follows_the_rules_from_its_beginning_to_its_end(fate: Fate, polls: int) -> None:
    """The outcome is fetched by `tasks/result` in 2025-11-25."""
    dialogue = Dialogue(Behaviour(V4, (Deed("tools/call", fate=fate),), ("t",), tasks=polls), {})
    begun = dialogue.request("tools/call", {"name": "t", "arguments": {}, "task": {"ttl": 1000}})["result"]["task"]
    assert begun["status"] == "working"
    assert [task_state["status"] for task_state in polled(dialogue, begun["taskId"])] == ["working"] * polls + [
        fate.value
    ]
    outcome = dialogue.request("tasks/result", {"taskId": begun["taskId"]})
    assert ("result" in outcome) is (fate is Fate.COMPLETED)
    assert [each["taskId"] for each in dialogue.request("tasks/list")["result"]["tasks"]] == [begun["taskId"]]
    assert dialogue.request("tasks/cancel", {"taskId": begun["taskId"]})["error"]["code"] == -32602, "it is over"
    assert dialogue.broken_by(Role.SERVER) == []
    assert dialogue.broken_by(Role.CLIENT) == []


@pytest.mark.parametrize("fate", Fate)
def test_a_task_of_the_extension_has_its_outcome_in_it(fate: Fate) -> None:
    declared = {"extensions": {TASKS_EXTENSION: {}}, "elicitation": {"form": {}}}
    question = {"method": "elicitation/create", "params": {"message": "?", "requestedSchema": {"type": "object"}}}
    deed = Deed("tools/call", fate=fate, questions={"a": question})
    dialogue = Dialogue(Behaviour(V5, (deed,), ("t",), tasks=1), declared)
    begun = dialogue.request("tools/call", {"name": "t", "arguments": {}})["result"]
    assert (begun["resultType"], begun["status"]) == ("task", "working")
    about = {"taskId": begun["taskId"]}
    assert dialogue.request("tasks/get", about)["result"]["status"] == "working"
    waiting = dialogue.request("tasks/get", about)["result"]
    assert (waiting["status"], waiting["inputRequests"]) == ("input_required", {"a": question})
    dialogue.request("tasks/update", {**about, "inputResponses": {"a": {"action": "decline"}}})
    over = dialogue.request("tasks/get", about)["result"]
    assert (over["status"], "result" in over, "error" in over) == (
        fate.value,
        fate is Fate.COMPLETED,
        fate is Fate.FAILED,
    )
    assert dialogue.broken_by(Role.SERVER) == []
    assert dialogue.broken_by(Role.CLIENT) == []


@pytest.mark.parametrize("revision", [V4, V5])
def test_a_task_is_cancelled_as_its_client_wants(revision: str) -> None:
    dialogue = Dialogue(Behaviour(revision, (), ("t",), tasks=3), {"extensions": {TASKS_EXTENSION: {}}})
    begun = dialogue.request("tools/call", {"name": "t", "arguments": {}, **({"task": {}} if revision == V4 else {})})
    id = (begun["result"]["task"] if revision == V4 else begun["result"])["taskId"]
    dialogue.request("tasks/cancel", {"taskId": id})
    assert dialogue.request("tasks/get", {"taskId": id})["result"]["status"] == "cancelled"
    assert dialogue.broken_by(Role.SERVER) == []
    assert dialogue.request("tasks/get", {"taskId": "another"})["error"]["code"] == -32602


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("tasks", [None, 0, 2])
def test_a_call_without_a_task_request_gets_no_task(revision: str, tasks: int | None) -> None:
    """The server may offer tasks or not. A request that may not become a task does not."""
    dialogue = Dialogue(Behaviour(revision, (Deed("tools/call", fate=Fate.FAILED),), ("t",), tasks=tasks), {})
    assert "content" in dialogue.request("tools/call", {"name": "t", "arguments": {}})["result"]
    dialogue.request("tools/list")
    assert dialogue.broken_by(Role.SERVER) == []
    if revision != V4 or tasks is None:
        assert "content" in dialogue.request("tools/call", {"name": "t", "arguments": {}, "task": {}})["result"]


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("transport", Transport)
def test_a_client_without_tasks_meets_none(revision: str, transport: Transport) -> None:
    requests = ("tools/list", "tools/call")
    survey = ClientSurvey(revision, transport, requests, requests)
    of_tasks = {name for name, kind in KINDS.items() if kind in kinds_for(survey) and kind.is_of_tasks}
    assert of_tasks == set()


def test_a_client_that_requests_an_unoffered_task_is_reported() -> None:
    dialogue = Dialogue(Behaviour(V4, (), ("t",)), {})
    dialogue.request("tools/call", {"name": "t", "arguments": {}, "task": {}})
    assert dialogue.broken_by(Role.CLIENT) == ["capability-undeclared"]


def test_the_answer_to_a_server_request_as_a_task_is_judged() -> None:
    """The client has declared that it can create tasks, and answers at once."""
    declared: Json = {"sampling": {}, "tasks": {"requests": {"sampling": {"createMessage": {}}}}}
    dialogue = Dialogue(behaviour := Behaviour(V4), declared)
    asked = {"messages": [], "maxTokens": 1, "task": {"ttl": 1}}
    dialogue._record(
        Role.SERVER, encode({"jsonrpc": "2.0", "id": 1, "method": "sampling/createMessage", "params": asked})
    )
    given = {"role": "assistant", "content": {"type": "text", "text": "a"}, "model": "m"}
    dialogue._record(Role.CLIENT, encode({"jsonrpc": "2.0", "id": 1, "result": given}))
    played = Played(dialogue.seen)
    assert [each.rule for each in judge_client(behaviour, played, Transport.PIPE)] == ["task-uncreated"]
    assert {"task-uncreated", "task-shape", "task-begins"} <= chances_of_client(behaviour, played, Transport.PIPE)


@pytest.mark.parametrize("end", ["{server}", "{url}"])
def test_a_client_of_tasks_is_judged_by_their_rules(end: str, conform: Run) -> None:
    behaviour = Behaviour(V4, tools=("write",), tasks=2)
    Path("found.jsonl").write_bytes(msgspec.json.encode(Recorded("task-polled-early", "", "", behaviour)) + b"\n")
    arguments = ("--client", "--replay", "found.jsonl", "--strict", "--log-level", "error", "--timeout", "5", "--")
    code, out, _ = conform(*arguments, *CLIENT, "tasks-hasty", end)
    assert (code, "before the poll interval is over" in out) == (1, True), out
    code, out, _ = conform(*arguments, *CLIENT, "tasks", end)
    assert (code, "task-polled-early: not broken any more" in out) == (0, True), out
