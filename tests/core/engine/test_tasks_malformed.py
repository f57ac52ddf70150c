"""Tests of tasks of servers that send malformed, late or no messages about them, and of the errors of their clients."""

from __future__ import annotations

import json
from typing import Any

import pytest
from driving import GONE, SentMessage, notification, request
from isthmus.core.base.errors import OUTCOME_UNKNOWN
from isthmus.core.base.events import Cause, End
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, Offer
from isthmus.core.base.revisions import Era
from stateless_driving import ACCEPT, FORM, tables
from task_clients import KNOWS_TASKS, ClientRequest, Party
from task_scenes import GRACE_S, Scene, scene
from task_servers import RELATED, DuplicateKey, Work, text

LEGACY, MODERN = Era.HANDSHAKE, Era.STATELESS
ERAS = [LEGACY, MODERN]


TWICE = {"content": [], DuplicateKey("content"): [], "resultType": "complete", DuplicateKey("resultType"): "complete"}
"""A result with a duplicate member, which is ambiguous."""


def hidden(world: Scene, down: str = "http") -> tuple[ClientRequest, Work]:
    """Returns a call of a client without tasks, which is a task at the server."""
    party = world.party(LEGACY, down=down, is_plain=True)
    asked = party.call("a", "must")
    world.run()
    return asked, world.server.accept(world.server.work("a"))


def silent(received: SentMessage, method: str, params: dict[str, Any]) -> None:
    """Answers nothing about tasks."""


# --- Messages of the server -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("up", ERAS)
def test_a_duplicate_task_id_of_a_server_is_refused(up: Era) -> None:
    """The second call is refused. The first goes on, and has its own answer."""
    world = scene(up, has_tasks=True, insists=True)
    first, work = hidden(world)
    party = world.parties[0]
    second = party.call("b", "must")
    world.run()
    other = world.server.work("b")
    world.server.count -= 1
    world.server.accept(other)
    assert other.id == work.id
    world.run()
    assert "under way" in second.error["message"]
    other.id = None
    world.server.finish(work, text("done"))
    world.wait(60.0)
    assert first.result["content"] == text("done")["content"]


@pytest.mark.parametrize("is_plain", [True, False], ids=["call", "task"])
@pytest.mark.parametrize("up", ERAS)
def test_an_outcome_that_cannot_be_read_is_an_error(up: Era, is_plain: bool) -> None:
    """A duplicate member is ambiguous, so the outcome is not passed on."""
    world = scene(up, has_tasks=True, insists=True)
    if is_plain:
        asked, work = hidden(world)
    else:
        party = world.party(LEGACY)
        id, work = world.begin(party, "a", "must")
        asked = party.result(id)
    world.server.finish(work, TWICE)
    world.wait(60.0)
    assert asked.code == -32603
    assert "could not be read" in asked.error["message"]


WAYS = {
    "refuses": (-32000, "out of order"),
    "is silent": (OUTCOME_UNKNOWN, "does not say how its task fares"),
    "speaks of another": (OUTCOME_UNKNOWN, "got another task than was asked for"),
}


def break_polls(world: Scene, way: str) -> None:
    """Makes the server answer polls with errors or with nothing, from now on."""
    server = world.server
    if way == "refuses":
        server._receive_task_request = lambda received, method, params: server.refuse(received, -32000, "out of order")  # type: ignore[method-assign]
    elif way == "is silent":
        server._receive_task_request = silent  # type: ignore[method-assign]
    else:
        server.shown = lambda work: {**server.task(work), "taskId": "another"}  # type: ignore[method-assign]


@pytest.mark.parametrize("way", WAYS)
def test_a_task_whose_polls_fail_is_given_up(way: str) -> None:
    """The number of failed polls is that of retries of a lost response. The outcome of the call is unknown."""
    world = scene(MODERN, Kind.HTTP, has_tasks=True, insists=True)
    asked, _ = hidden(world)
    break_polls(world, way)
    world.wait(15.0)
    assert asked.reply is None
    world.wait(3600.0)
    code, expected = WAYS[way]
    assert asked.code == code
    assert expected in asked.error["message"]


@pytest.mark.parametrize("way", WAYS)
def test_polls_may_fail_for_a_while(way: str) -> None:
    world = scene(MODERN, Kind.HTTP, has_tasks=True, insists=True)
    asked, work = hidden(world)
    server = world.server
    break_polls(world, way)
    world.wait(15.0)
    server.__dict__.pop("_receive_task_request", None)
    server.__dict__.pop("shown", None)
    server.finish(work, text("done"))
    world.wait(120.0)
    assert asked.result["content"] == text("done")["content"]


def test_an_immediate_response_reaches_the_client() -> None:
    """2025-11-25: the text for the model stands beside the task, whose id is ours."""
    world = scene(LEGACY, has_tasks=True)
    party = world.party(LEGACY)
    asked = party.call("a", "must")
    world.run()
    work = world.server.work("a")
    work.id, work.is_answered = "up-7", True
    meta = {"io.modelcontextprotocol/model-immediate-response": "On it.", RELATED: {"taskId": "up-7"}}
    world.server.answer(work.received, {"task": world.server.task(work), "_meta": meta})
    world.wait(GRACE_S)
    assert asked.result["_meta"] == {"io.modelcontextprotocol/model-immediate-response": "On it."}
    assert world.status(party, asked.result["task"]["taskId"]) == "working"


@pytest.mark.parametrize("is_error", [True, False], ids=["error", "result"])
def test_an_unreadable_outcome_ends_the_task(is_error: bool) -> None:
    """The client learns that the task has ended, whatever the outcome is."""
    world = scene(LEGACY, offer=Offer.ALWAYS)
    party = world.party(LEGACY)
    id, work = world.begin(party, "a")
    if is_error:
        message = b'{"jsonrpc":"2.0","id":%d,"error":{"code":-1,"message":"a","message":"b"}}' % work.received.id
        world.world.send(work.received.channel, message)
    else:
        world.server.finish(work, {"content": [], "isError": True, DuplicateKey("isError"): False})
    world.wait(1.0)
    assert world.status(party, id) in ("completed", "failed")
    assert world.ask(party.result(id)).reply is not None


def test_an_invalid_task_for_a_cancelled_call_is_ignored() -> None:
    """No `tasks/cancel` is sent, and other calls go on."""
    world = scene(LEGACY, has_tasks=True)
    party = world.party(LEGACY, down="pipe", is_plain=True)
    asked = party.call("a", "must")
    world.run()
    work = world.server.work("a")
    party.hang_up(asked)
    world.run()
    assert work.stops
    world.server.answer(work.received, {"task": {"taskId": 7}})
    world.wait(10.0)
    assert work.stops == ["notifications/cancelled"]
    again = party.call("b")
    world.run()
    world.server.finish(world.server.work("b"), text("done"))
    assert world.ask(again).result


# --- Requests of clients ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ERAS)
def test_tasks_get_is_answered_though_the_server_is_silent(era: Era) -> None:
    """The answer has the known status, after `task_look_s`."""
    world = scene(MODERN, Kind.HTTP, has_tasks=True)
    party = world.party(era)
    id, _ = world.begin(party, "a", "must")
    world.wait(30.0)
    world.server._receive_task_request = silent  # type: ignore[method-assign]
    world.wait(30.0)
    asked = world.ask(party.get(id))
    assert asked.reply is None
    world.wait(world.limits.task_look_s)
    assert asked.result["status"] == "working"


def test_a_request_for_the_result_ends_with_the_ttl() -> None:
    world = scene(LEGACY, has_tasks=True, limits=Limits(task_ttl_s=30.0, task_ttl_max_s=30.0))
    party = world.party(LEGACY)
    id, _ = world.begin(party, "a", "must")
    waiting = party.result(id)
    world.wait(31.0)
    assert waiting.code is not None
    assert world.ask(party.get(id)).code == -32602


@pytest.mark.parametrize("era", ERAS)
def test_a_cancelled_request_for_a_stored_outcome_gets_nothing(era: Era) -> None:
    """The request is cancelled while its outcome is being read, and the outcome is dropped."""
    world = scene(offer=Offer.ALWAYS, limits=Limits(task_inline_max_bytes=10))
    party = world.party(era)
    id, work = world.begin(party, "a")
    world.server.finish(work, text("a long outcome"))
    world.wait(1.0)
    world.store.is_slow = True
    asked = party.get(id) if party.is_modern else party.result(id)
    world.run()
    assert world.store.held
    party.hang_up(asked)
    world.store.deliver(world.world)
    world.run()
    assert asked.reply is None
    world.store.is_slow = False
    again = world.ask(party.get(id) if party.is_modern else party.result(id))
    assert again.result


def test_a_list_of_tasks_comes_in_pages() -> None:
    """The pages have every task once, in order. An ambiguous cursor is refused."""
    world = scene(offer=Offer.ALWAYS, limits=Limits(task_page_max=2))
    party = world.party(LEGACY)
    ids = [world.begin(party, tag)[0] for tag in "abcde"]
    seen, cursor, pages = [], None, 0
    while pages == 0 or cursor is not None:
        page = world.ask(party.listing(cursor)).result
        assert len(page["tasks"]) <= 2
        seen += [task["taskId"] for task in page["tasks"]]
        cursor, pages = page.get("nextCursor"), pages + 1
    assert seen == ids
    assert pages == 3
    assert (
        world.ask(party.ask("tasks/list", **{"cursor": "after-1", DuplicateKey("cursor"): "after-2"})).code is not None
    )


@pytest.mark.parametrize("up", ERAS)
def test_a_call_over_the_limit_of_tasks_goes_on_as_a_call(up: Era) -> None:
    world = scene(up, offer=Offer.ALWAYS, limits=Limits(tasks_max=1))
    party = world.party(MODERN)
    world.begin(party, "a")
    asked = party.call("b")
    world.wait(60.0)
    assert asked.reply is None
    world.server.finish(world.server.work("b"), text("done"))
    assert world.ask(asked).result["content"] == text("done")["content"]
    assert len(world.engine.tasks()) == 1


# --- Questions --------------------------------------------------------------------------------------------------------


def questions(party: Party) -> list[dict[str, Any]]:
    return party.received("elicitation/create")


def waiting(kind: Kind = Kind.PIPE, **limits: Any) -> tuple[Scene, Party, str, Work, ClientRequest]:
    """Returns a legacy client that waits for the outcome of a task of a stateless server."""
    world = scene(MODERN, kind, has_tasks=True, limits=Limits(**limits))
    party = world.party(LEGACY)
    id, work = world.begin(party, "a", "must")
    return world, party, id, work, party.result(id)


def test_a_question_that_the_server_drops_is_withdrawn() -> None:
    """The client gets a cancellation, and a late answer is dropped."""
    world, party, _, work, asked = waiting()
    world.server.ask(work, "q")
    world.wait(5.0)
    (question,) = questions(party)
    world.server.withdraw(work, "q")
    world.wait(5.0)
    (cancelled,) = party.received("notifications/cancelled")
    assert cancelled["params"]["requestId"] == question["id"]
    party.reply(question["id"], ACCEPT)
    world.wait(5.0)
    assert work.given["q"] == []
    world.server.finish(work, text("done"))
    world.wait(60.0)
    assert asked.result


def test_an_answer_that_its_server_did_not_get_is_sent_again() -> None:
    """The connection breaks during `tasks/update`: the same answer follows the next poll."""
    world, party, _, work, _ = waiting(Kind.HTTP)
    server, lost = world.server, []

    def lose_one(received: SentMessage, method: str, params: dict[str, Any]) -> None:
        if method == "tasks/update" and not lost:
            lost.append(params)
            world.world.end(received.channel, Cause(End.BROKEN))
        else:
            type(server)._receive_task_request(server, received, method, params)

    server._receive_task_request = lose_one  # type: ignore[method-assign]
    server.ask(work, "q")
    world.wait(5.0)
    (question,) = questions(party)
    party.reply(question["id"], ACCEPT)
    world.wait(60.0)
    assert lost
    assert work.given["q"] == [ACCEPT]


def test_open_questions_of_a_task_are_bounded() -> None:
    """Questions up to the limit reach the client, and the log has a warning."""
    world, party, _, work, _ = waiting(task_questions_max=2)
    for key in ("q1", "q2", "q3"):
        world.server.ask(work, key)
    world.wait(5.0)
    assert [question["params"]["message"] for question in questions(party)] == ["q1", "q2"]
    assert any("asks more than can be asked" in note for note in world.world.notes("warning"))


def test_an_invalid_answer_counts_as_cancelled() -> None:
    """The server gets `cancel` for the form."""
    world, party, _, work, _ = waiting()
    world.server.ask(work, "q")
    world.wait(5.0)
    (question,) = questions(party)
    party.reply(question["id"], {"action": "dance"})
    world.wait(5.0)
    assert work.given["q"] == [{"action": "cancel"}]
    assert any("cannot be given on" in note for note in world.world.notes("info"))


def test_an_undeclared_question_of_a_task_is_not_asked() -> None:
    """The task goes on without an answer, as with a silent client."""
    world = scene(MODERN, has_tasks=True)
    party = world.party(MODERN)
    assert party.modern is not None
    party.modern.capabilities = {name: value for name, value in KNOWS_TASKS.items() if name != "sampling"}
    id, work = world.begin(party, "a", "must")
    world.server.ask(work, "s", "sampling/createMessage")
    world.wait(5.0)
    assert world.status(party, id) == "working"
    assert any("which its client does not offer" in note for note in world.world.notes("info"))
    world.server.ask(work, "q")
    world.wait(5.0)
    assert list(world.ask(party.get(id)).result["inputRequests"]) != []
    assert work.given == {"s": [], "q": []}


def test_questions_over_the_limit_are_refused() -> None:
    """Questions over `task_questions_max`, and those with ambiguous params, get an error."""
    world = scene(LEGACY, has_tasks=True, limits=Limits(task_questions_max=1))
    party = world.party(LEGACY)
    id, work = world.begin(party, "a", "must")
    party.result(id)
    world.server.ask(work, "q1")
    world.server.ask(work, "q2")
    world.wait(1.0)
    assert [question["params"]["message"] for question in questions(party)] == ["q1"]
    assert [answer["error"]["code"] for answer in work.given["q2"]] == [-32603]
    party.reply(questions(party)[0]["id"], ACCEPT)
    world.run()
    assert [answer["action"] for answer in work.given["q1"]] == ["accept"]


def test_requests_that_cannot_be_questions_are_refused() -> None:
    """The server gets an error at once for methods that no client can be asked."""
    world = scene(LEGACY, has_tasks=True)
    party = world.party(MODERN)
    _, work = world.begin(party, "a", "must")
    work.given["odd"] = []
    about = json.dumps({"_meta": {RELATED: {"taskId": work.id}}})
    world.world.send(work.received.channel, request('"odd"', "custom/ask", about))
    world.run()
    (answer,) = work.given["odd"]
    assert "error" in answer


def test_a_waiting_question_gets_progress() -> None:
    """A server that gave a progress token may give up on a question without progress. Progress ends with the answer."""
    world = scene(LEGACY, has_tasks=True)
    party = world.party(MODERN)
    id, work = world.begin(party, "a", "must")
    params = {**json.loads(FORM), "_meta": {RELATED: {"taskId": work.id}, "progressToken": "t"}}
    work.given["q"] = []
    signs: list[dict[str, Any]] = []

    def note(received: SentMessage, frame: dict[str, Any]) -> None:
        if frame["method"] == "notifications/progress":
            signs.append(frame["params"])
        world.world.acknowledge(received)

    world.server._receive_notification = note  # type: ignore[method-assign]
    world.world.send(work.received.channel, request('"q"', "elicitation/create", json.dumps(params)))
    world.wait(3.5 * world.limits.suspended_call_tick_s)
    assert [sign["progressToken"] for sign in signs] == ["t"] * 3
    assert [sign["progress"] for sign in signs] == [1, 2, 3]
    shown = world.ask(party.get(id)).result["inputRequests"]
    world.ask(party.update(id, dict.fromkeys(shown, ACCEPT)))
    assert [answer["action"] for answer in work.given["q"]] == ["accept"]
    world.wait(3 * world.limits.suspended_call_tick_s)
    assert len(signs) == 3


def test_progress_of_a_task_is_not_sent_to_stateless_clients() -> None:
    """A stateless client polls its task and has no stream for progress."""
    world = scene(LEGACY, has_tasks=True)
    party = world.party(MODERN)
    id, work = world.begin(party, "a", "must", token="t")
    if work.token is not None:
        world.server.report(work, 1)
    world.wait(1.0)
    assert party.received("notifications/progress") == []
    assert world.status(party, id) == "working"


def test_a_status_that_cannot_be_read_changes_nothing() -> None:
    world = scene(LEGACY, has_tasks=True)
    party = world.party(LEGACY)
    id, work = world.begin(party, "a", "must")
    for params in ('{"taskId":7}', f'{{"taskId":"{work.id}","status":"dancing"}}', f'{{"taskId":"{work.id}"}}'):
        world.world.send(work.received.channel, notification("notifications/tasks/status", params))
    world.run()
    assert world.status(party, id) == "working"
    world.server.finish(work, text("done"))
    world.wait(10.0)
    assert world.status(party, id) == "completed"


# --- Held questions ---------------------------------------------------------------------------------------------------


def held_question(**limits: Any) -> tuple[Scene, Party, str, Work, int]:
    """Returns a client whose stream was lost and that asks for the outcome in a way that leaves no room for questions,
    so that the question is held, and the number of the question."""
    world, party, id, work, asked = waiting(stream_ttl_s=5.0, **limits)
    world.world.end(party.places[0], GONE)
    world.server.ask(work, "q")
    world.wait(5.0)
    (question,) = questions(party)
    assert party.legacy is not None
    world.world.end(asked.channel, GONE)
    party.legacy.notify("notifications/cancelled", json.dumps({"requestId": asked.id}))
    world.wait(6.0)
    wait_in_silence(world, party, id, "90")
    return world, party, id, work, question["id"]


def wait_in_silence(world: Scene, party: Party, id: str, id_raw: str) -> None:
    assert party.legacy is not None
    party.legacy.send(request(id_raw, "tasks/result", json.dumps({"taskId": id})), takes_events=False)
    world.run()


def questions_after_listen(world: Scene, party: Party) -> list[dict[str, Any]]:
    """Opens a GET stream. Returns the messages on it."""
    assert party.legacy is not None
    channel = party.legacy.listen()
    world.run()
    return list(world.world.frames(channel))


@pytest.mark.parametrize("how", ["withdrawn", "over", "answered"])
def test_a_held_question_that_is_settled_is_not_asked(how: str) -> None:
    world, party, _, work, number = held_question()
    if how == "withdrawn":
        world.server.withdraw(work, "q")
    elif how == "over":
        world.server.finish(work, text("done"))
    else:
        party.reply(number, ACCEPT)  # it got the question before its stream was lost
    world.wait(5.0)
    assert [frame for frame in questions_after_listen(world, party) if frame["method"] == "elicitation/create"] == []
    assert work.given["q"] == ([ACCEPT] if how == "answered" else [])


def test_a_held_question_is_asked_once() -> None:
    world, party, id, work, number = held_question()
    for id_raw in ("91", "92"):
        wait_in_silence(world, party, id, id_raw)
    asked = [frame for frame in questions_after_listen(world, party) if frame.get("method") == "elicitation/create"]
    assert [frame["id"] for frame in asked] == [number]
    party.reply(number, ACCEPT)
    world.wait(5.0)
    assert work.given["q"] == [ACCEPT]


def test_a_held_question_asked_on_another_request_is_not_asked_again() -> None:
    world, party, id, _, number = held_question()
    again = party.result(id)
    world.run()
    asked = [frame["id"] for frame in world.world.frames(again.channel) if frame.get("method") == "elicitation/create"]
    assert asked == [number]
    assert [
        frame for frame in questions_after_listen(world, party) if frame.get("method") == "elicitation/create"
    ] == []


def test_a_held_question_is_refused_over_the_limit() -> None:
    """The server gets an error, as for any other question."""
    world, _, _, work, _ = held_question(held_per_session_max=1)
    world.server.ask(work, "r")
    world.wait(5.0)
    (session,) = tables(world.engine)["sessions"].values()
    assert not session.questions
    assert [held.question for held in session.held] == [None], "what is kept is no question"
    assert work.given["q"] == work.given["r"] == [{"action": "cancel"}]
