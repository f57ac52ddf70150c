"""What any gateway for tasks is expected to do, T01 to T34: the behaviours that an earlier gateway was tested for.

Where that one did what the specification forbids, the intent is kept and the specification followed.
"""

from __future__ import annotations

from typing import Any

import pytest
from driving import Driver
from isthmus.core.base.effects import Close, Dial, Effect, Post, Save, Send
from isthmus.core.base.errors import OVERLOADED
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, Offer
from isthmus.core.base.revisions import Era
from stateless_driving import ACCEPT, tables
from task_clients import Party, handle
from task_scenes import GRACE_S, Scene, scene
from task_servers import ABILITY, RELATED, TASKS, Work, text

LEGACY, MODERN = Era.HANDSHAKE, Era.STATELESS
KINDS = [Kind.PIPE, Kind.HTTP]
DOWNS = ["pipe", "http"]


def words(said: dict[str, Any]) -> str:
    found = said["content"][0]["text"]
    assert isinstance(found, str)
    return found


def assert_released(world: Driver) -> None:
    """No request is under way for anybody."""
    state = tables(world.engine)
    assert not state["pending"]
    assert not state["queues"]
    assert not any(session.exchanges for session in state["sessions"].values())


def local(party: Era = LEGACY, kind: Kind = Kind.PIPE, **rest: Any) -> tuple[Scene, Party, str, Work]:
    """A call of a server that knows no tasks, which is one here."""
    world = scene(LEGACY, kind, offer=Offer.ALWAYS, **rest)
    client = world.party(party)
    return world, client, *world.begin(client, "a")


def proxied(
    party: Era = LEGACY, up: Era = LEGACY, kind: Kind = Kind.PIPE, tool: str = "must", **rest: Any
) -> tuple[Scene, Party, str, Work]:
    """A call that is a task of the server's."""
    world = scene(up, kind, has_tasks=True, **rest)
    client = world.party(party)
    return world, client, *world.begin(client, "a", tool)


# --- Clients with sessions --------------------------------------------------------------------------------------------


def test_t01_tools_say_how_they_can_be_called() -> None:
    """A server's own declarations stay; where it knows no tasks they can all be had here; and the client is told."""
    world = scene(has_tasks=True)
    party = world.party(LEGACY)
    listed = world.ask(party.ask("tools/list")).result["tools"]
    support = {tool["name"]: tool.get("execution", {}).get("taskSupport", "forbidden") for tool in listed}
    assert support == {"work": "optional", "must": "required", "forbidden": "forbidden", "silent": "forbidden"}
    assert party.greeting["result"]["capabilities"]["tasks"] == ABILITY

    world = scene(has_tasks=False)
    party = world.party(LEGACY)
    listed = world.ask(party.ask("tools/list")).result["tools"]
    assert [tool["execution"]["taskSupport"] for tool in listed] == ["optional"] * 4
    assert party.greeting["result"]["capabilities"]["tasks"] == ABILITY


@pytest.mark.parametrize("down", DOWNS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("up", [LEGACY, MODERN])
def test_t02_a_task_of_the_servers_runs_its_course(up: Era, kind: Kind, down: str) -> None:
    """It has an id of ours, is listed, can be looked at, and its result is the tool's, under its id."""
    world = scene(up, kind, has_tasks=True)
    party = world.party(LEGACY, down=down)
    id, work = world.begin(party, "a", "must")
    assert len(id) >= 22
    assert id != work.id
    assert [task["taskId"] for task in world.ask(party.listing()).result["tasks"]] == [id]
    assert world.status(party, id) == "working"

    world.server.finish(work, text("done"))
    said = world.ask(party.result(id))
    world.wait(60.0)
    assert words(said.result) == "done"
    assert said.result["_meta"][RELATED] == {"taskId": id}
    assert "resultType" not in said.result
    shown = world.ask(party.get(id)).result
    assert shown["status"] == "completed"
    assert RELATED not in shown.get("_meta", {})


def test_t03_a_tool_that_wants_a_task_gets_one_whoever_calls() -> None:
    """A client that makes no task of it has the plain result; or, where that is wanted, the error of the clause."""
    world = scene(has_tasks=True)
    party = world.party(LEGACY)
    asked = party.call("a", "must", as_task=False)
    world.run()
    work = world.server.accept(world.server.work("a"))
    assert asked.reply is None
    world.server.finish(work, text("done"))
    world.wait(60.0)
    assert words(asked.result) == "done"
    assert RELATED not in asked.result.get("_meta", {}), "it knows of no task"
    assert world.engine.tasks() == ()

    world = scene(has_tasks=True, strict=True)
    party = world.party(LEGACY)
    asked = world.ask(party.call("a", "must", as_task=False))
    assert asked.code == -32601
    assert not world.server.calls


@pytest.mark.parametrize("up", [LEGACY, MODERN])
@pytest.mark.parametrize("down", DOWNS)
def test_t04_the_end_of_a_task_is_told_under_our_id(up: Era, down: str) -> None:
    world = scene(up, has_tasks=True)
    party = world.party(LEGACY, down=down)
    id, work = world.begin(party, "a", "must")
    world.server.finish(work, text("done"))
    world.wait(60.0)
    told = [frame["params"] for frame in party.heard("notifications/tasks/status")]
    assert {one["taskId"] for one in told} == {id}
    assert [one["status"] for one in told].count("completed") == 1
    assert not any("_meta" in one for one in told), "the id is there already"


def test_t05_what_ends_at_once_is_told_as_well() -> None:
    """The server is done before anybody could look: the handle says `working`, and the end is told once."""
    world = scene(has_tasks=True)
    party = world.party(LEGACY)
    asked = party.call("a", "must")
    world.run()
    work = world.server.work("a")
    world.server.accept(work)
    world.server.finish(work, text("done"))
    world.server.announce(work)
    world.wait(60.0)
    id = handle(asked)
    told = [frame["params"]["status"] for frame in party.heard("notifications/tasks/status")]
    assert told.count("completed") == 1
    assert words(world.ask(party.result(id)).result) == "done"
    assert work.fetches == 1


def test_t06_a_failure_to_fetch_the_result_reaches_who_asks_for_it() -> None:
    """With its message, however late: the server says completed, and then has nothing but an error."""
    world, party, id, work = proxied()
    asked = world.ask(party.result(id))
    assert asked.reply is None
    work.outcome, work.status = {"error": {"code": 4242, "message": "the result is on fire"}}, "completed"
    world.server.deliver(work)
    world.wait(60.0)
    assert asked.code == 4242
    assert asked.error["message"] == "the result is on fire"
    assert world.status(party, id) == "failed"


@pytest.mark.parametrize("kind", KINDS)
def test_t07_a_task_of_ours_is_cancelled_for_good(kind: Kind) -> None:
    """Its server hears of it once."""
    world, party, id, work = local(kind=kind)
    shown = world.ask(party.cancel(id)).result
    assert (shown["taskId"], shown["status"]) == (id, "cancelled")
    assert work.stops == ["notifications/cancelled"]
    world.wait(5.0)
    assert world.status(party, id) == "cancelled"
    assert world.ask(party.cancel(id)).code == -32602
    assert len(work.stops) == 1


@pytest.mark.parametrize("down", DOWNS)
def test_t08_who_asks_for_the_result_waits_for_it(down: str) -> None:
    world = scene()
    party = world.party(LEGACY, down=down)
    id, work = world.begin(party, "a")
    asked = world.ask(party.result(id))
    world.wait(100.0)
    assert asked.reply is None
    world.server.finish(work, text("done"))
    world.run()
    assert words(asked.result) == "done"
    assert asked.result["_meta"][RELATED] == {"taskId": id}
    assert world.status(party, id) == "completed"


def test_t09_a_tool_that_fails_fails_its_task() -> None:
    """2025-11-25: `failed` includes results with `isError`; the result itself is given as it is."""
    world, party, id, work = local()
    world.server.finish(work, text("it broke", isError=True))
    world.run()
    assert world.status(party, id) == "failed"
    said = world.ask(party.result(id)).result
    assert said["isError"] is True
    assert words(said) == "it broke"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("up", [LEGACY, MODERN])
def test_t10_a_task_of_the_servers_is_cancelled_there(up: Era, kind: Kind) -> None:
    """Once, and it stays so here whatever the server says later."""
    world, party, id, work = proxied(up=up, kind=kind)
    shown = world.ask(party.cancel(id)).result
    assert (shown["taskId"], shown["status"]) == (id, "cancelled")
    assert work.stops == ["tasks/cancel"]
    work.status, work.outcome = "completed", {"result": text("too late")}
    world.wait(60.0)
    assert world.status(party, id) == "cancelled"
    assert world.ask(party.result(id)).code == -32603
    assert work.stops == ["tasks/cancel"]


@pytest.mark.parametrize("kind", KINDS)
def test_t11_a_finished_task_holds_nothing_upstream(kind: Kind) -> None:
    """Its result is read from here as often as it is asked for."""
    world, party, id, work = proxied(kind=kind)
    world.server.finish(work, text("done"))
    world.wait(60.0)
    assert_released(world.world)
    polls, fetches = work.polls, work.fetches
    first, second = world.ask(party.result(id)).body, world.ask(party.result(id)).body
    assert first == second
    assert (work.polls, work.fetches) == (polls, fetches), "nobody is asked again"


@pytest.mark.parametrize("kind", KINDS)
def test_t12_a_cancelled_task_holds_nothing_upstream(kind: Kind) -> None:
    world, party, id, _ = local(kind=kind)
    world.ask(party.cancel(id))
    world.wait(5.0)
    assert_released(world.world)
    assert world.status(party, id) == "cancelled"


def is_cancel(effect: Effect) -> bool:
    """Whether it stops the work of a server."""
    if isinstance(effect, Dial):
        return isinstance(effect.target, Post) and is_cancel(Send(effect.channel, effect.target.message))
    return isinstance(effect, Send) and (b'"tasks/cancel"' in effect.message or b"/cancelled" in effect.message)


@pytest.mark.parametrize("down", DOWNS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("has_tasks", [True, False])
def test_t13_the_end_of_a_session_stops_its_tasks_at_once(has_tasks: bool, kind: Kind, down: str) -> None:
    """What ends the session stops the work, before anything is waited for; and once."""
    world = scene(LEGACY, kind, has_tasks=has_tasks)
    party = world.party(LEGACY, down=down)
    id, work = world.begin(party, "a")
    before = len(world.world.log)
    party.leave()
    effects = world.world.log[before:]
    assert [is_cancel(effect) for effect in effects].count(True) == 1
    stopping = next(index for index, effect in enumerate(effects) if is_cancel(effect))
    up = {dial.channel for dial in world.world.dials}
    closing = [index for index, effect in enumerate(effects) if isinstance(effect, Close) and effect.channel in up]
    assert all(index > stopping for index in closing), "it is told before it is left"
    world.wait(60.0)
    assert work.stops == ["tasks/cancel" if has_tasks else "notifications/cancelled"]
    assert [(task.id, task.status) for task in world.engine.tasks()] == [(id, "cancelled")]


def test_t14_a_result_that_was_lost_is_said_to_be() -> None:
    """At once, with the name of the task: nobody waits for what does not come."""
    world, party, id, work = local()
    world.server.finish(work, text("x" * 10_000))
    world.run()
    assert world.status(party, id) == "completed"
    assert world.store.blobs
    world.store.blobs.clear()
    asked = world.ask(party.result(id))
    assert asked.code is not None
    assert id in asked.error["message"]


def test_t15_the_number_of_tasks_is_limited_for_all_together() -> None:
    """Another session's is refused, before its server is asked for anything."""
    world, _, _, _ = local(limits=Limits(tasks_max=1))
    other = world.party(LEGACY, down="pipe")
    asked = other.call("b")
    world.wait(GRACE_S)
    assert asked.code == OVERLOADED
    assert "tasks_max" in asked.error["message"]
    assert "1" in asked.error["message"]
    assert list(world.server.works) == ["a"]


def test_t16_an_impossible_lifetime_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="task_ttl_s is above task_ttl_max_s"):
        Limits(task_ttl_s=10.0, task_ttl_max_s=5.0)
    Limits(task_ttl_s=5.0, task_ttl_max_s=5.0)


def test_t17_each_tool_has_its_own_support() -> None:
    """Names are compared to the letter; what a server with tasks does not name is not called as one, what any other
    does not name is its own to refuse."""
    world = scene(has_tasks=True)
    party = world.party(LEGACY)
    for number, tool in enumerate(("WORK", "nosuch", "forbidden", "silent")):
        asked = world.ask(party.call(f"t{number}", tool))
        assert asked.code == -32601, tool
    assert not world.server.calls

    world = scene(has_tasks=False)
    party = world.party(LEGACY)
    asked = world.ask(party.call("a", "nosuch"))
    world.server.fail(world.server.work("a"), -32602, "Unknown tool: nosuch")
    world.run()
    assert asked.code == -32602
    assert asked.error["message"] == "Unknown tool: nosuch"
    assert world.engine.tasks() == ()
    assert not world.store.tasks


@pytest.mark.parametrize("up", [LEGACY, MODERN])
def test_t18_a_server_without_tasks_never_hears_of_any(up: Era) -> None:
    """Every verb is answered here."""
    world = scene(up, has_tasks=False)
    party = world.party(LEGACY)
    id, work = world.begin(party, "a")
    assert world.status(party, id) == "working"
    assert len(world.ask(party.listing()).result["tasks"]) == 1
    waiting = world.ask(party.result(id))
    world.server.finish(work, text("done"))
    world.run()
    assert words(waiting.result) == "done"
    assert world.ask(party.cancel(id)).code == -32602
    assert not [method for method in world.server.heard if "tasks/" in method]
    assert "task" not in world.server.calls[0]


def test_t19_a_server_with_tasks_is_asked_for_all_it_knows() -> None:
    """The call as a task, its state, its news, its result, and its end."""
    world, party, id, work = proxied()
    assert "task" in world.server.calls[0]
    world.wait(60.0)
    assert work.polls > 0
    work.message = "half way"
    world.server.announce(work)
    world.wait(1.0)
    told = [frame["params"] for frame in party.heard("notifications/tasks/status")]
    assert {"taskId": id, "statusMessage": "half way"}.items() <= told[-1].items()
    assert world.ask(party.get(id)).result["statusMessage"] == "half way"
    world.server.finish(work, text("done"))
    world.wait(60.0)
    assert work.fetches == 1
    _, other = world.begin(party, "b", "must")
    world.ask(party.cancel(world.ask(party.listing()).result["tasks"][-1]["taskId"]))
    assert other.stops == ["tasks/cancel"]


# --- Clients without sessions -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("has_tasks", [True, False])
@pytest.mark.parametrize("up", [LEGACY, MODERN])
def test_t20_the_extension_is_declared(up: Era, has_tasks: bool) -> None:
    """To who may have tasks; tools say nothing of them in this revision."""
    world = scene(up, has_tasks=has_tasks)
    party = world.party(MODERN)
    shown = world.ask(party.ask("server/discover")).result["capabilities"]
    assert shown["extensions"][TASKS] == {}
    assert "tasks" not in shown
    listed = world.ask(party.ask("tools/list")).result["tools"]
    assert [tool["name"] for tool in listed] == ["work", "must", "forbidden", "silent"]
    assert not any("execution" in tool for tool in listed)

    world = scene(up, has_tasks=has_tasks, offer=Offer.NEVER)
    party = world.party(MODERN)
    shown = world.ask(party.ask("server/discover")).result["capabilities"]
    assert TASKS not in shown.get("extensions", {})


@pytest.mark.parametrize("party", [LEGACY, MODERN])
def test_t21_a_task_is_in_the_storage_before_its_client_knows_it(party: Era) -> None:
    """In the storage that was given, under its own name."""
    world = scene(offer=Offer.ALWAYS)
    client = world.party(party)
    world.store.is_slow = True
    asked = client.call("a")
    world.wait(GRACE_S)
    assert asked.reply is None, "it is not saved yet"
    (save,) = (order for order in world.store.orders if isinstance(order, Save))
    world.store.deliver(world.world)
    world.run()
    assert save.key == f"task/{handle(asked)}"
    assert list(world.store.tasks) == [handle(asked)]
    assert save.expires_at_unix is not None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("era", [LEGACY, MODERN])
def test_t22_a_tool_that_wants_a_task_answers_clients_without(era: Era, kind: Kind) -> None:
    """It is called again as its server wants it, and looked at until it is done."""
    world = scene(MODERN, kind, has_tasks=True, insists=True)
    party = world.party(era, is_plain=True)
    asked = party.call("a", "must")
    world.run()
    assert len(world.server.calls) == 2
    work = world.server.accept(world.server.work("a"))
    world.wait(5.0)
    assert asked.reply is None
    world.server.finish(work, text("done"))
    world.wait(60.0)
    assert words(asked.result) == "done"
    assert asked.result.get("resultType") == ("complete" if party.is_modern else None)
    assert work.polls > 1


@pytest.mark.parametrize("kind", KINDS)
def test_t23_the_same_tool_is_a_task_for_who_knows_them(kind: Kind) -> None:
    """Without a call in vain before."""
    world, party, id, work = proxied(MODERN, MODERN, kind, insists=True)
    assert len(world.server.calls) == 1
    world.server.finish(work, text("done"))
    world.wait(60.0)
    shown = world.ask(party.get(id)).result
    assert shown["resultType"] == "complete"
    assert (shown["taskId"], shown["status"]) == (id, "completed")
    assert words(shown["result"]) == "done"
    assert "resultType" not in shown["result"]
    assert RELATED not in shown["result"].get("_meta", {})


def test_t24_a_task_of_ours_is_looked_at_until_it_is_done() -> None:
    world, party, id, work = local(MODERN)
    for _ in range(3):
        assert world.status(party, id) == "working"
        world.wait(1.0)
    world.server.finish(work, text("done"))
    world.run()
    shown = world.ask(party.get(id)).result
    assert shown["status"] == "completed"
    assert words(shown["result"]) == "done"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("up", [LEGACY, MODERN])
def test_t25_a_task_of_ours_is_cancelled(up: Era, kind: Kind) -> None:
    """With an empty answer; the server hears of it in the way that it knows, once."""
    world = scene(up, kind, offer=Offer.ALWAYS)
    party = world.party(MODERN)
    id, work = world.begin(party, "a")
    said = world.ask(party.cancel(id)).result
    assert said.keys() - {"_meta"} == {"resultType"}
    assert said["resultType"] == "complete"
    assert world.status(party, id) == "cancelled"
    assert len(work.stops) == 1
    assert world.ask(party.cancel(id)).result["resultType"] == "complete"
    assert len(work.stops) == 1


def test_t26_a_tool_that_fails_completes_its_task() -> None:
    """The extension: `failed` is for errors of the protocol alone."""
    world, party, id, work = local(MODERN)
    world.server.finish(work, text("it broke", isError=True))
    world.run()
    shown = world.ask(party.get(id)).result
    assert shown["status"] == "completed"
    assert shown["result"]["isError"] is True
    assert words(shown["result"]) == "it broke"

    world, party, id, work = local(MODERN)
    world.server.fail(work, 4242, "it broke")
    world.run()
    shown = world.ask(party.get(id)).result
    assert shown["status"] == "failed"
    assert shown["error"] == {"code": 4242, "message": "it broke"}
    assert "result" not in shown


@pytest.mark.parametrize("up", [LEGACY, MODERN])
def test_t27_a_finished_task_is_let_go_and_can_be_looked_at_again(up: Era) -> None:
    world, party, id, work = proxied(MODERN, up)
    world.server.finish(work, text("done"))
    world.wait(60.0)
    assert_released(world.world)
    assert world.ask(party.get(id)).body == world.ask(party.get(id)).body
    assert words(world.ask(party.get(id)).result["result"]) == "done"


@pytest.mark.parametrize("up", [LEGACY, MODERN])
def test_t28_a_cancelled_task_is_let_go_and_stays_so(up: Era) -> None:
    world, party, id, work = proxied(MODERN, up)
    world.ask(party.cancel(id))
    work.status, work.outcome = "completed", {"result": text("too late")}
    world.wait(60.0)
    assert_released(world.world)
    shown = world.ask(party.get(id)).result
    assert shown["status"] == "cancelled"
    assert "result" not in shown
    assert work.stops == ["tasks/cancel"]


@pytest.mark.parametrize("party", [LEGACY, MODERN])
def test_t29_lifetime_and_pauses_are_as_configured(party: Era) -> None:
    """What is shown is what is kept, for a client that asks for nothing else."""
    limits = Limits(task_ttl_s=70.0, task_ttl_max_s=90.0, task_poll_s=2.0)
    world, client, id, _ = local(party, limits=limits)
    shown = world.ask(client.get(id)).result
    ttl, poll = ("ttlMs", "pollIntervalMs") if client.is_modern else ("ttl", "pollInterval")
    assert (shown[ttl], shown[poll]) == (70_000, 2000)
    (task,) = world.engine.tasks()
    assert task.id == id
    assert task.expires_at_unix - task.created_at_unix == pytest.approx(70.0)
    if not client.is_modern:
        other, _ = world.begin(client, "b", ttl=10**9)
        assert world.ask(client.get(other)).result["ttl"] == 90_000
        other, _ = world.begin(client, "c", ttl=5000)
        assert world.ask(client.get(other)).result["ttl"] == 5000


@pytest.mark.parametrize("limit", ["tasks_max", "tasks_per_principal_max", "tasks_per_session_max"])
def test_t30_each_limit_is_kept_and_named(limit: str) -> None:
    """Who asked for a task has an error that says which limit it was, and its number, and nothing was begun. Who did
    not has a plain call, and the operator hears of it."""
    world, client, _, _ = local(LEGACY, limits=Limits(**{limit: 1}))
    asked = world.ask(client.call("b"))
    assert asked.code == OVERLOADED
    assert f"{limit}" in asked.error["message"]
    assert "1" in asked.error["message"]
    assert "b" not in world.server.works
    assert len(world.engine.tasks()) == 1
    assert len(world.store.tasks) == 1

    world, client, _, _ = local(MODERN, limits=Limits(**{limit: 1}))
    asked = client.call("b")
    world.wait(60.0)
    assert asked.reply is None
    assert len(world.engine.tasks()) == 1
    assert any(f"1 tasks, the most allowed ({limit})" in note for note in world.world.notes("warning"))
    world.server.finish(world.server.work("b"), text("done"))
    world.run()
    assert words(asked.result) == "done"


TYPED = {
    "content": [],
    "structuredContent": {"number": 72, "half": 0.5, "one": 1.0, "big": 10**30, "no": None, "yes": True, "é": [[], {}]},
}


@pytest.mark.parametrize("size", [0, 10_000])
@pytest.mark.parametrize("party", [LEGACY, MODERN])
def test_t31_a_result_survives_storing_to_the_byte(party: Era, size: int) -> None:
    """In its record or, if it is large, beside it; and for another run, which may not have met its server yet."""
    world = scene(offer=Offer.ALWAYS)
    client = world.party(party, principal="ann")
    id, work = world.begin(client, "a")
    world.server.finish(work, {**TYPED, "padding": "x" * size})
    world.run()
    read = Party.get if client.is_modern else Party.result
    before = world.ask(read(client, id))
    said = before.result["result"] if client.is_modern else before.result
    assert said["structuredContent"] == TYPED["structuredContent"]
    assert type(said["structuredContent"]["one"]) is float
    assert bool(world.store.blobs) is bool(size)
    world.restart()
    client = world.party(party, principal="ann")
    after = world.ask(read(client, id)).body
    info = b'{"name": "s", "version": "1"}'
    named = b',"_meta":{"io.modelcontextprotocol/serverInfo":%b}' % info if client.is_modern else b""
    assert before.body == after.removesuffix(b"}") + named + b"}"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("up", [LEGACY, MODERN])
@pytest.mark.parametrize("party", [LEGACY, MODERN])
def test_t32_an_answered_question_lets_the_task_go_on(party: Era, up: Era, kind: Kind) -> None:
    """It is asked under the task's id, answered once upstream, and the task works again."""
    world, client, id, work = proxied(party, up, kind)
    world.server.ask(work, "q1")
    world.wait(60.0)
    assert world.status(client, id) == "input_required"
    if client.is_modern:
        questions = world.ask(client.get(id)).result["inputRequests"]
        (key,) = questions
        assert questions[key]["method"] == "elicitation/create"
        assert questions[key]["params"]["message"] == "q1"
        assert world.ask(client.update(id, {key: ACCEPT})).result["resultType"] == "complete"
    else:
        assert not client.heard("elicitation/create"), "nobody waits for it"
        waiting = world.ask(client.result(id))
        (asked,) = client.heard("elicitation/create")
        assert asked["params"]["_meta"][RELATED] == {"taskId": id}
        assert asked["params"]["message"] == "q1"
        client.reply(asked["id"], ACCEPT)
    world.wait(60.0)
    assert [one["content"] for one in work.given["q1"]] == [ACCEPT["content"]]
    assert world.status(client, id) == "working"
    world.server.finish(work, text("done"))
    world.wait(60.0)
    assert world.status(client, id) == "completed"
    if not client.is_modern:
        assert words(waiting.result) == "done"


@pytest.mark.parametrize("party", [LEGACY, MODERN])
def test_t33_what_has_expired_takes_no_place(party: Era) -> None:
    """It is gone before a limit is applied, even if nobody has said yet that its time is over."""
    limits = Limits(tasks_max=1, task_ttl_s=20.0)
    world, client, id, work = local(party, limits=limits)
    world.world.now += 20.0
    asked = client.call("b")
    world.wait(6.0)
    assert handle(asked) != id
    assert world.ask(client.get(id)).code == -32602
    assert len(work.stops) == 1, "nobody waits for its work any more"


@pytest.mark.parametrize("value", [0, -1])
@pytest.mark.parametrize(
    "name", [name for name in Limits.__struct_fields__ if name.startswith(("task_", "tasks_per_", "tasks_max"))]
)
def test_t34_a_limit_is_a_positive_number(name: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"limit {name} is {value}, expected a positive number"):
        Limits(**{name: value})
