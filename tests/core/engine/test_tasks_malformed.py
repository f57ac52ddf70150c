"""Tasks of which a server says what is crooked, or nothing, or too late, and what their clients come to hear then."""

from __future__ import annotations

import json
from typing import Any

import pytest
from driving import GONE, Heard, notification, request
from isthmus.core.base.effects import Cause, End
from isthmus.core.base.errors import OUTCOME_UNKNOWN
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, Offer
from isthmus.core.base.revisions import Era
from stateless_driving import ACCEPT, FORM
from task_clients import KNOWS_TASKS, Asked, Party
from task_scenes import GRACE_S, Scene, scene
from task_servers import RELATED, Twin, Work, text

LEGACY, MODERN = Era.HANDSHAKE, Era.STATELESS
ERAS = [LEGACY, MODERN]


TWICE = {"content": [], Twin("content"): [], "resultType": "complete", Twin("resultType"): "complete"}
"""A result of which nobody can tell what it says."""


def hidden(world: Scene, down: str = "http") -> tuple[Asked, Work]:
    """A call of a client that knows no tasks, of which its server has made one."""
    party = world.party(LEGACY, down=down, is_plain=True)
    asked = party.call("a", "must")
    world.run()
    return asked, world.server.accept(world.server.work("a"))


def silent(heard: Heard, method: str, params: dict[str, Any]) -> None:
    """What a server does that answers nothing about tasks."""


# --- What the server says ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("up", ERAS)
def test_each_task_of_a_server_needs_an_id_of_its_own(up: Era) -> None:
    """The second call is refused; the first goes on, and has its own answer."""
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
    """Of two members with one name either may be meant: neither is given on."""
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


def go_wrong(world: Scene, way: str) -> None:
    """From now on the server says nothing of use about tasks."""
    server = world.server
    if way == "refuses":
        server._receive_verb = lambda heard, method, params: server.refuse(heard, -32000, "out of order")  # type: ignore[method-assign]
    elif way == "is silent":
        server._receive_verb = silent  # type: ignore[method-assign]
    else:
        server.shown = lambda work: {**server.task(work), "taskId": "another"}  # type: ignore[method-assign]


@pytest.mark.parametrize("way", WAYS)
def test_a_server_that_does_not_say_how_its_task_fares_is_given_up(way: str) -> None:
    """After as many looks in vain as a lost answer is asked for. The call may have run."""
    world = scene(MODERN, Kind.HTTP, has_tasks=True, insists=True)
    asked, _ = hidden(world)
    go_wrong(world, way)
    world.wait(15.0)
    assert asked.reply is None
    world.wait(3600.0)
    code, words = WAYS[way]
    assert asked.code == code
    assert words in asked.error["message"]


@pytest.mark.parametrize("way", WAYS)
def test_a_server_may_be_out_of_order_for_a_while(way: str) -> None:
    world = scene(MODERN, Kind.HTTP, has_tasks=True, insists=True)
    asked, work = hidden(world)
    server = world.server
    go_wrong(world, way)
    world.wait(15.0)
    server.__dict__.pop("_receive_verb", None)
    server.__dict__.pop("shown", None)
    server.finish(work, text("done"))
    world.wait(120.0)
    assert asked.result["content"] == text("done")["content"]


def test_an_immediate_response_reaches_the_client() -> None:
    """What a model can be told while the task runs (2025-11-25): it stands beside the task, whose id is ours."""
    world = scene(LEGACY, has_tasks=True)
    party = world.party(LEGACY)
    asked = party.call("a", "must")
    world.run()
    work = world.server.work("a")
    work.id, work.is_answered = "up-7", True
    said = {"io.modelcontextprotocol/model-immediate-response": "On it.", RELATED: {"taskId": "up-7"}}
    world.server.answer(work.heard, {"task": world.server.task(work), "_meta": said})
    world.wait(GRACE_S)
    assert asked.result["_meta"] == {"io.modelcontextprotocol/model-immediate-response": "On it."}
    assert world.status(party, asked.result["task"]["taskId"]) == "working"


@pytest.mark.parametrize("is_error", [True, False], ids=["error", "result"])
def test_a_task_ends_with_what_cannot_be_read(is_error: bool) -> None:
    """Its client learns that it is over, whatever the outcome says of itself."""
    world = scene(LEGACY, offer=Offer.ALWAYS)
    party = world.party(LEGACY)
    id, work = world.begin(party, "a")
    if is_error:
        message = b'{"jsonrpc":"2.0","id":%d,"error":{"code":-1,"message":"a","message":"b"}}' % work.heard.id
        world.world.say(work.heard.channel, message)
    else:
        world.server.finish(work, {"content": [], "isError": True, Twin("isError"): False})
    world.wait(1.0)
    assert world.status(party, id) in ("completed", "failed")
    assert world.ask(party.result(id)).reply is not None


def test_a_server_answers_a_cancelled_call_with_what_cannot_be_a_task() -> None:
    """It is not cancelled as one, and nobody else notices."""
    world = scene(LEGACY, has_tasks=True)
    party = world.party(LEGACY, down="pipe", is_plain=True)
    asked = party.call("a", "must")
    world.run()
    work = world.server.work("a")
    party.hang_up(asked)
    world.run()
    assert work.stops
    world.server.answer(work.heard, {"task": {"taskId": 7}})
    world.wait(10.0)
    assert work.stops == ["notifications/cancelled"]
    again = party.call("b")
    world.run()
    world.server.finish(world.server.work("b"), text("done"))
    assert world.ask(again).result


# --- What clients ask -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ERAS)
def test_a_client_that_looks_is_answered_though_the_server_is_silent(era: Era) -> None:
    """With what is known, after `task_look_s`."""
    world = scene(MODERN, Kind.HTTP, has_tasks=True)
    party = world.party(era)
    id, _ = world.begin(party, "a", "must")
    world.wait(30.0)
    world.server._receive_verb = silent  # type: ignore[method-assign]
    world.wait(30.0)
    asked = world.ask(party.get(id))
    assert asked.reply is None
    world.wait(world.limits.task_look_s)
    assert asked.result["status"] == "working"


def test_who_waits_for_a_task_hears_that_its_time_was_over() -> None:
    world = scene(LEGACY, has_tasks=True, limits=Limits(task_ttl_s=30.0, task_ttl_max_s=30.0))
    party = world.party(LEGACY)
    id, _ = world.begin(party, "a", "must")
    waiting = party.result(id)
    world.wait(31.0)
    assert waiting.code is not None
    assert world.ask(party.get(id)).code == -32602


@pytest.mark.parametrize("era", ERAS)
def test_who_does_not_wait_for_the_storage_hears_nothing(era: Era) -> None:
    """A request for an outcome that is being read is cancelled: whatever comes of that is for nobody."""
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
    """All of them, each once, in their order; a cursor that says two things is refused."""
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
    assert world.ask(party.ask("tasks/list", **{"cursor": "after-1", Twin("cursor"): "after-2"})).code is not None


@pytest.mark.parametrize("up", ERAS)
def test_a_call_for_which_there_is_no_place_goes_on_as_a_call(up: Era) -> None:
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
    return party.heard("elicitation/create")


def waiting(kind: Kind = Kind.PIPE, **limits: Any) -> tuple[Scene, Party, str, Work, Asked]:
    """A legacy client that waits for the outcome of a task of a server without sessions."""
    world = scene(MODERN, kind, has_tasks=True, limits=Limits(**limits))
    party = world.party(LEGACY)
    id, work = world.begin(party, "a", "must")
    return world, party, id, work, party.result(id)


def test_a_question_that_is_not_asked_any_more_is_withdrawn() -> None:
    """Its client is told, and an answer that comes all the same is given to nobody."""
    world, party, _, work, asked = waiting()
    world.server.ask(work, "q")
    world.wait(5.0)
    (question,) = questions(party)
    world.server.withdraw(work, "q")
    world.wait(5.0)
    (told,) = party.heard("notifications/cancelled")
    assert told["params"]["requestId"] == question["id"]
    party.reply(question["id"], ACCEPT)
    world.wait(5.0)
    assert work.given["q"] == []
    world.server.finish(work, text("done"))
    world.wait(60.0)
    assert asked.result


def test_an_answer_that_its_server_did_not_take_is_given_again() -> None:
    """The connection breaks while it is told: it hears the same answer at the next look."""
    world, party, _, work, _ = waiting(Kind.HTTP)
    server, lost = world.server, []

    def lose_one(heard: Heard, method: str, params: dict[str, Any]) -> None:
        if method == "tasks/update" and not lost:
            lost.append(params)
            world.world.end(heard.channel, Cause(End.BROKEN))
        else:
            type(server)._receive_verb(server, heard, method, params)

    server._receive_verb = lose_one  # type: ignore[method-assign]
    server.ask(work, "q")
    world.wait(5.0)
    (question,) = questions(party)
    party.reply(question["id"], ACCEPT)
    world.wait(60.0)
    assert lost
    assert work.given["q"] == [ACCEPT]


def test_more_questions_than_may_be_open_wait_for_no_answer() -> None:
    """As many as the limit reach the client, and the log says that there were more."""
    world, party, _, work, _ = waiting(task_questions_max=2)
    for key in ("q1", "q2", "q3"):
        world.server.ask(work, key)
    world.wait(5.0)
    assert [question["params"]["message"] for question in questions(party)] == ["q1", "q2"]
    assert any("asks more than can be asked" in note for note in world.world.notes("warning"))


def test_an_answer_that_is_none_is_no_answer() -> None:
    """The form is closed instead, which is what can be said in its place."""
    world, party, _, work, _ = waiting()
    world.server.ask(work, "q")
    world.wait(5.0)
    (question,) = questions(party)
    party.reply(question["id"], {"action": "dance"})
    world.wait(5.0)
    assert work.given["q"] == [{"action": "cancel"}]
    assert any("cannot be given on" in note for note in world.world.notes("info"))


def test_a_client_is_not_asked_what_it_did_not_declare() -> None:
    """The task goes on without an answer, as it would with a client that says nothing."""
    world = scene(MODERN, has_tasks=True)
    party = world.party(MODERN)
    assert party.modern is not None
    party.modern.capabilities = {name: told for name, told in KNOWS_TASKS.items() if name != "sampling"}
    id, work = world.begin(party, "a", "must")
    world.server.ask(work, "s", "sampling/createMessage")
    world.wait(5.0)
    assert world.status(party, id) == "working"
    assert any("which its client does not offer" in note for note in world.world.notes("info"))
    world.server.ask(work, "q")
    world.wait(5.0)
    assert list(world.ask(party.get(id)).result["inputRequests"]) != []
    assert work.given == {"s": [], "q": []}


def test_a_server_with_sessions_is_refused_what_is_too_much() -> None:
    """Questions beyond `task_questions_max`, and those whose params say two things, are answered with an error."""
    world = scene(LEGACY, has_tasks=True, limits=Limits(task_questions_max=1))
    party = world.party(LEGACY)
    id, work = world.begin(party, "a", "must")
    party.result(id)
    world.server.ask(work, "q1")
    world.server.ask(work, "q2")
    world.wait(1.0)
    assert [question["params"]["message"] for question in questions(party)] == ["q1"]
    assert [said["error"]["code"] for said in work.given["q2"]] == [-32603]
    party.reply(questions(party)[0]["id"], ACCEPT)
    world.run()
    assert [said["action"] for said in work.given["q1"]] == ["accept"]


def test_a_client_without_sessions_is_asked_only_what_it_can_be_shown() -> None:
    """Of methods that no question may have its server is told so at once."""
    world = scene(LEGACY, has_tasks=True)
    party = world.party(MODERN)
    _, work = world.begin(party, "a", "must")
    work.given["odd"] = []
    about = json.dumps({"_meta": {RELATED: {"taskId": work.id}}})
    world.world.say(work.heard.channel, request('"odd"', "custom/ask", about))
    world.run()
    (said,) = work.given["odd"]
    assert "error" in said


def test_a_server_hears_signs_of_life_while_its_question_waits() -> None:
    """It gave a token with the question, and may give up on it without them. They end with the answer."""
    world = scene(LEGACY, has_tasks=True)
    party = world.party(MODERN)
    id, work = world.begin(party, "a", "must")
    params = {**json.loads(FORM), "_meta": {RELATED: {"taskId": work.id}, "progressToken": "t"}}
    work.given["q"] = []
    signs: list[dict[str, Any]] = []

    def note(heard: Heard, frame: dict[str, Any]) -> None:
        if frame["method"] == "notifications/progress":
            signs.append(frame["params"])
        world.world.acknowledge(heard)

    world.server._receive_notice = note  # type: ignore[method-assign]
    world.world.say(work.heard.channel, request('"q"', "elicitation/create", json.dumps(params)))
    world.wait(3.5 * world.limits.park_tick_s)
    assert [sign["progressToken"] for sign in signs] == ["t"] * 3
    assert [sign["progress"] for sign in signs] == [1, 2, 3]
    shown = world.ask(party.get(id)).result["inputRequests"]
    world.ask(party.update(id, dict.fromkeys(shown, ACCEPT)))
    assert [said["action"] for said in work.given["q"]] == ["accept"]
    world.wait(3 * world.limits.park_tick_s)
    assert len(signs) == 3


def test_progress_of_a_task_is_not_for_clients_that_look() -> None:
    """One without sessions asks how its task fares; there is no stream to tell it on."""
    world = scene(LEGACY, has_tasks=True)
    party = world.party(MODERN)
    id, work = world.begin(party, "a", "must", token="t")
    if work.token is not None:
        world.server.report(work, 1)
    world.wait(1.0)
    assert party.heard("notifications/progress") == []
    assert world.status(party, id) == "working"


def test_a_status_that_cannot_be_read_changes_nothing() -> None:
    world = scene(LEGACY, has_tasks=True)
    party = world.party(LEGACY)
    id, work = world.begin(party, "a", "must")
    for params in ('{"taskId":7}', f'{{"taskId":"{work.id}","status":"dancing"}}', f'{{"taskId":"{work.id}"}}'):
        world.world.say(work.heard.channel, notification("notifications/tasks/status", params))
    world.run()
    assert world.status(party, id) == "working"
    world.server.finish(work, text("done"))
    world.wait(10.0)
    assert world.status(party, id) == "completed"


# --- Asked where nobody listens any more ------------------------------------------------------------------------------


def asked_in_vain(**limits: Any) -> tuple[Scene, Party, str, Work, int]:
    """A client was asked on a stream that is gone for good, and has no other: it asks for the outcome in a way that
    leaves no room for questions, so that the question is held. Returns its number too."""
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
    party.legacy.say(request(id_raw, "tasks/result", json.dumps({"taskId": id})), takes_events=False)
    world.run()


def listen(world: Scene, party: Party) -> list[dict[str, Any]]:
    """What the client hears once it listens again."""
    assert party.legacy is not None
    channel = party.legacy.listen()
    world.run()
    return list(world.world.frames(channel))


@pytest.mark.parametrize("how", ["withdrawn", "over", "answered"])
def test_a_question_that_is_settled_while_it_is_held_is_not_asked(how: str) -> None:
    world, party, _, work, number = asked_in_vain()
    if how == "withdrawn":
        world.server.withdraw(work, "q")
    elif how == "over":
        world.server.finish(work, text("done"))
    else:
        party.reply(number, ACCEPT)  # it had heard the question before its stream was lost
    world.wait(5.0)
    assert [frame for frame in listen(world, party) if frame["method"] == "elicitation/create"] == []
    assert work.given["q"] == ([ACCEPT] if how == "answered" else [])


def test_a_question_that_is_held_is_asked_once_however_often_its_outcome_is_waited_for() -> None:
    world, party, id, work, number = asked_in_vain()
    for id_raw in ("91", "92"):
        wait_in_silence(world, party, id, id_raw)
    asked = [frame for frame in listen(world, party) if frame.get("method") == "elicitation/create"]
    assert [frame["id"] for frame in asked] == [number]
    party.reply(number, ACCEPT)
    world.wait(5.0)
    assert work.given["q"] == [ACCEPT]


def test_a_question_that_is_held_and_then_asked_on_another_request_is_not_asked_again() -> None:
    world, party, id, _, number = asked_in_vain()
    again = party.result(id)
    world.run()
    asked = [frame["id"] for frame in world.world.frames(again.channel) if frame.get("method") == "elicitation/create"]
    assert asked == [number]
    assert [frame for frame in listen(world, party) if frame.get("method") == "elicitation/create"] == []


def test_a_question_that_is_held_gives_way_where_too_much_is() -> None:
    """It is refused then, as any other."""
    world, _, _, work, _ = asked_in_vain(held_per_session_max=1)
    world.server.ask(work, "r")
    world.wait(5.0)
    (session,) = world.engine._clients.sessions.values()
    assert not session.asks
    assert [held.ask for held in session.held] == [None], "what is kept is no question"
    assert work.given["q"] == work.given["r"] == [{"action": "cancel"}]
