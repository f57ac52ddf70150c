"""Tests of the behaviour that any gateway for tasks is expected to have.

The cases come from the tests of an earlier gateway. Where it did what the specification forbids, the specification is
followed.
"""

from __future__ import annotations

from typing import Any

import pytest
from driving import Driver
from isthmus.core.base.effects import Close, Dial, Effect, Post, Send
from isthmus.core.base.errors import OVERLOADED
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, Offer
from isthmus.core.base.revisions import Era
from isthmus.core.base.storage import Save
from stateless_driving import ACCEPT, tables
from task_clients import Party, handle
from task_scenes import GRACE_S, Scene, scene
from task_servers import ABILITY, RELATED, TASKS, Work, text

LEGACY, MODERN = Era.HANDSHAKE, Era.STATELESS
KINDS = [Kind.PIPE, Kind.HTTP]
DOWNS = ["pipe", "http"]


def text_of(result: dict[str, Any]) -> str:
    found = result["content"][0]["text"]
    assert isinstance(found, str)
    return found


def assert_released(world: Driver) -> None:
    """Checks that no request is open on either side."""
    state = tables(world.engine)
    assert not state["pending"]
    assert not state["queues"]
    assert not any(session.exchanges for session in state["sessions"].values())


def local(party: Era = LEGACY, kind: Kind = Kind.PIPE, **rest: Any) -> tuple[Scene, Party, str, Work]:
    """Returns a task of a call whose server has no tasks."""
    world = scene(LEGACY, kind, offer=Offer.ALWAYS, **rest)
    client = world.party(party)
    return world, client, *world.begin(client, "a")


def proxied(
    party: Era = LEGACY, up: Era = LEGACY, kind: Kind = Kind.PIPE, tool: str = "must", **rest: Any
) -> tuple[Scene, Party, str, Work]:
    """Returns a task of the server."""
    world = scene(up, kind, has_tasks=True, **rest)
    client = world.party(party)
    return world, client, *world.begin(client, "a", tool)


# --- Clients with sessions --------------------------------------------------------------------------------------------


def test_tools_declare_their_task_support() -> None:
    """A server's own declarations stay. Without tasks at the server all tools support local tasks."""
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
def test_an_upstream_task_runs_to_its_end(up: Era, kind: Kind, down: str) -> None:
    """The task has an id of the proxy, is listed, can be read, and has the tool's result under its id."""
    world = scene(up, kind, has_tasks=True)
    party = world.party(LEGACY, down=down)
    id, work = world.begin(party, "a", "must")
    assert len(id) >= 22
    assert id != work.id
    assert [task["taskId"] for task in world.ask(party.listing()).result["tasks"]] == [id]
    assert world.status(party, id) == "working"

    world.server.finish(work, text("done"))
    outcome = world.ask(party.result(id))
    world.wait(60.0)
    assert text_of(outcome.result) == "done"
    assert outcome.result["_meta"][RELATED] == {"taskId": id}
    assert "resultType" not in outcome.result
    shown = world.ask(party.get(id)).result
    assert shown["status"] == "completed"
    assert RELATED not in shown.get("_meta", {})


def test_a_tool_that_requires_a_task_gets_one_from_any_client() -> None:
    """A client that makes no task gets the plain result, or the error of the specification if the plan is strict."""
    world = scene(has_tasks=True)
    party = world.party(LEGACY)
    asked = party.call("a", "must", as_task=False)
    world.run()
    work = world.server.accept(world.server.work("a"))
    assert asked.reply is None
    world.server.finish(work, text("done"))
    world.wait(60.0)
    assert text_of(asked.result) == "done"
    assert RELATED not in asked.result.get("_meta", {}), "it knows of no task"
    assert world.engine.tasks() == ()

    world = scene(has_tasks=True, strict=True)
    party = world.party(LEGACY)
    asked = world.ask(party.call("a", "must", as_task=False))
    assert asked.code == -32601
    assert not world.server.calls


@pytest.mark.parametrize("up", [LEGACY, MODERN])
@pytest.mark.parametrize("down", DOWNS)
def test_status_notifications_have_our_id(up: Era, down: str) -> None:
    world = scene(up, has_tasks=True)
    party = world.party(LEGACY, down=down)
    id, work = world.begin(party, "a", "must")
    world.server.finish(work, text("done"))
    world.wait(60.0)
    statuses = [frame["params"] for frame in party.received("notifications/tasks/status")]
    assert {one["taskId"] for one in statuses} == {id}
    assert [one["status"] for one in statuses].count("completed") == 1
    assert not any("_meta" in one for one in statuses), "the params have the id"


def test_a_task_that_ends_at_once_is_notified_once() -> None:
    """The task ends before anything could be read: the handle says `working`, and one notification the end."""
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
    statuses = [frame["params"]["status"] for frame in party.received("notifications/tasks/status")]
    assert statuses.count("completed") == 1
    assert text_of(world.ask(party.result(id)).result) == "done"
    assert work.fetches == 1


def test_a_failure_to_fetch_the_result_reaches_the_client() -> None:
    """The server says `completed` and then has only an error. The client gets its message, however late."""
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
def test_a_cancelled_local_task_stays_cancelled(kind: Kind) -> None:
    """The server gets one cancellation."""
    world, party, id, work = local(kind=kind)
    shown = world.ask(party.cancel(id)).result
    assert (shown["taskId"], shown["status"]) == (id, "cancelled")
    assert work.stops == ["notifications/cancelled"]
    world.wait(5.0)
    assert world.status(party, id) == "cancelled"
    assert world.ask(party.cancel(id)).code == -32602
    assert len(work.stops) == 1


@pytest.mark.parametrize("down", DOWNS)
def test_a_request_for_the_result_waits_for_it(down: str) -> None:
    world = scene()
    party = world.party(LEGACY, down=down)
    id, work = world.begin(party, "a")
    asked = world.ask(party.result(id))
    world.wait(100.0)
    assert asked.reply is None
    world.server.finish(work, text("done"))
    world.run()
    assert text_of(asked.result) == "done"
    assert asked.result["_meta"][RELATED] == {"taskId": id}
    assert world.status(party, id) == "completed"


def test_a_tool_that_fails_fails_its_task() -> None:
    """2025-11-25: `failed` includes results with `isError`. The result itself is unchanged."""
    world, party, id, work = local()
    world.server.finish(work, text("it broke", isError=True))
    world.run()
    assert world.status(party, id) == "failed"
    outcome = world.ask(party.result(id)).result
    assert outcome["isError"] is True
    assert text_of(outcome) == "it broke"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("up", [LEGACY, MODERN])
def test_an_upstream_task_is_cancelled_at_its_server(up: Era, kind: Kind) -> None:
    """The server gets one cancellation. The status stays, whatever the server sends later."""
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
def test_a_finished_task_holds_nothing_upstream(kind: Kind) -> None:
    """The result is read from the storage as often as a client asks."""
    world, party, id, work = proxied(kind=kind)
    world.server.finish(work, text("done"))
    world.wait(60.0)
    assert_released(world.world)
    polls, fetches = work.polls, work.fetches
    first, second = world.ask(party.result(id)).body, world.ask(party.result(id)).body
    assert first == second
    assert (work.polls, work.fetches) == (polls, fetches), "no further request is sent"


@pytest.mark.parametrize("kind", KINDS)
def test_a_cancelled_task_holds_nothing_upstream(kind: Kind) -> None:
    world, party, id, _ = local(kind=kind)
    world.ask(party.cancel(id))
    world.wait(5.0)
    assert_released(world.world)
    assert world.status(party, id) == "cancelled"


def is_cancel(effect: Effect) -> bool:
    """True if the message stops the work of a server."""
    if isinstance(effect, Dial):
        return isinstance(effect.target, Post) and is_cancel(Send(effect.channel, effect.target.message))
    return isinstance(effect, Send) and (b'"tasks/cancel"' in effect.message or b"/cancelled" in effect.message)


@pytest.mark.parametrize("down", DOWNS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("has_tasks", [True, False])
def test_the_end_of_a_session_cancels_its_tasks_at_once(has_tasks: bool, kind: Kind, down: str) -> None:
    """The work is stopped once, before the connection is closed."""
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
    assert all(index > stopping for index in closing), "the work is stopped before the connection is closed"
    world.wait(60.0)
    assert work.stops == ["tasks/cancel" if has_tasks else "notifications/cancelled"]
    assert [(task.id, task.status) for task in world.engine.tasks()] == [(id, "cancelled")]


def test_a_lost_result_is_an_error() -> None:
    """The error comes at once and names the task."""
    world, party, id, work = local()
    world.server.finish(work, text("x" * 10_000))
    world.run()
    assert world.status(party, id) == "completed"
    assert world.store.blobs
    world.store.blobs.clear()
    asked = world.ask(party.result(id))
    assert asked.code is not None
    assert id in asked.error["message"]


def test_the_number_of_tasks_is_limited_over_all_sessions() -> None:
    """A task of another session is refused before its server gets anything."""
    world, _, _, _ = local(limits=Limits(tasks_max=1))
    other = world.party(LEGACY, down="pipe")
    asked = other.call("b")
    world.wait(GRACE_S)
    assert asked.code == OVERLOADED
    assert "tasks_max" in asked.error["message"]
    assert "1" in asked.error["message"]
    assert list(world.server.works) == ["a"]


def test_an_impossible_lifetime_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="task_ttl_s is above task_ttl_max_s"):
        Limits(task_ttl_s=10.0, task_ttl_max_s=5.0)
    Limits(task_ttl_s=5.0, task_ttl_max_s=5.0)


def test_each_tool_has_its_own_task_support() -> None:
    """Names are compared exactly. A tool that a server with tasks does not list is not called as a task; other servers
    refuse on their own."""
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
def test_a_server_without_tasks_gets_no_task_requests(up: Era) -> None:
    """The proxy answers every task request."""
    world = scene(up, has_tasks=False)
    party = world.party(LEGACY)
    id, work = world.begin(party, "a")
    assert world.status(party, id) == "working"
    assert len(world.ask(party.listing()).result["tasks"]) == 1
    waiting = world.ask(party.result(id))
    world.server.finish(work, text("done"))
    world.run()
    assert text_of(waiting.result) == "done"
    assert world.ask(party.cancel(id)).code == -32602
    assert not [method for method in world.server.received if "tasks/" in method]
    assert "task" not in world.server.calls[0]


def test_a_server_with_tasks_gets_all_requests_of_a_task() -> None:
    """The server gets the call, and gives status, notifications, result and end."""
    world, party, id, work = proxied()
    assert "task" in world.server.calls[0]
    world.wait(60.0)
    assert work.polls > 0
    work.message = "half way"
    world.server.announce(work)
    world.wait(1.0)
    statuses = [frame["params"] for frame in party.received("notifications/tasks/status")]
    assert {"taskId": id, "statusMessage": "half way"}.items() <= statuses[-1].items()
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
def test_the_extension_is_declared(up: Era, has_tasks: bool) -> None:
    """Clients that may have tasks get the extension. Tools declare no support in this revision."""
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
def test_a_task_is_stored_before_its_client_gets_it(party: Era) -> None:
    """The record is in the given storage, under its own key."""
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
def test_a_tool_that_requires_a_task_answers_clients_without_tasks(era: Era, kind: Kind) -> None:
    """The tool is called again as a task, which is polled until it is done."""
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
    assert text_of(asked.result) == "done"
    assert asked.result.get("resultType") == ("complete" if party.is_modern else None)
    assert work.polls > 1


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_tool_is_a_task_for_clients_with_tasks(kind: Kind) -> None:
    """No plain call is tried first."""
    world, party, id, work = proxied(MODERN, MODERN, kind, insists=True)
    assert len(world.server.calls) == 1
    world.server.finish(work, text("done"))
    world.wait(60.0)
    shown = world.ask(party.get(id)).result
    assert shown["resultType"] == "complete"
    assert (shown["taskId"], shown["status"]) == (id, "completed")
    assert text_of(shown["result"]) == "done"
    assert "resultType" not in shown["result"]
    assert RELATED not in shown["result"].get("_meta", {})


def test_a_local_task_is_polled_until_it_is_done() -> None:
    world, party, id, work = local(MODERN)
    for _ in range(3):
        assert world.status(party, id) == "working"
        world.wait(1.0)
    world.server.finish(work, text("done"))
    world.run()
    shown = world.ask(party.get(id)).result
    assert shown["status"] == "completed"
    assert text_of(shown["result"]) == "done"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("up", [LEGACY, MODERN])
def test_a_local_task_is_cancelled(up: Era, kind: Kind) -> None:
    """The answer is empty. The server gets one cancellation, in its own form."""
    world = scene(up, kind, offer=Offer.ALWAYS)
    party = world.party(MODERN)
    id, work = world.begin(party, "a")
    answer = world.ask(party.cancel(id)).result
    assert answer.keys() - {"_meta"} == {"resultType"}
    assert answer["resultType"] == "complete"
    assert world.status(party, id) == "cancelled"
    assert len(work.stops) == 1
    assert world.ask(party.cancel(id)).result["resultType"] == "complete"
    assert len(work.stops) == 1


def test_a_tool_that_fails_completes_its_task() -> None:
    """The extension has `failed` for protocol errors alone."""
    world, party, id, work = local(MODERN)
    world.server.finish(work, text("it broke", isError=True))
    world.run()
    shown = world.ask(party.get(id)).result
    assert shown["status"] == "completed"
    assert shown["result"]["isError"] is True
    assert text_of(shown["result"]) == "it broke"

    world, party, id, work = local(MODERN)
    world.server.fail(work, 4242, "it broke")
    world.run()
    shown = world.ask(party.get(id)).result
    assert shown["status"] == "failed"
    assert shown["error"] == {"code": 4242, "message": "it broke"}
    assert "result" not in shown


@pytest.mark.parametrize("up", [LEGACY, MODERN])
def test_a_finished_task_is_released_and_can_be_read_again(up: Era) -> None:
    world, party, id, work = proxied(MODERN, up)
    world.server.finish(work, text("done"))
    world.wait(60.0)
    assert_released(world.world)
    assert world.ask(party.get(id)).body == world.ask(party.get(id)).body
    assert text_of(world.ask(party.get(id)).result["result"]) == "done"


@pytest.mark.parametrize("up", [LEGACY, MODERN])
def test_a_cancelled_task_is_released_and_stays_cancelled(up: Era) -> None:
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
def test_ttl_and_poll_interval_are_as_configured(party: Era) -> None:
    """A client without its own options sees the configured values, and they apply."""
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
def test_each_limit_is_enforced_and_named(limit: str) -> None:
    """A client that asked for a task gets an error with the limit and its number, and no call begins. Another client
    gets a plain call, and the log has a warning."""
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
    assert text_of(asked.result) == "done"


TYPED = {
    "content": [],
    "structuredContent": {"number": 72, "half": 0.5, "one": 1.0, "big": 10**30, "no": None, "yes": True, "é": [[], {}]},
}


@pytest.mark.parametrize("size", [0, 10_000])
@pytest.mark.parametrize("party", [LEGACY, MODERN])
def test_a_stored_result_is_the_same_to_the_byte(party: Era, size: int) -> None:
    """The result is in the record or, if large, in a blob. Another run reads it before its server is known."""
    world = scene(offer=Offer.ALWAYS)
    client = world.party(party, principal="ann")
    id, work = world.begin(client, "a")
    world.server.finish(work, {**TYPED, "padding": "x" * size})
    world.run()
    read = Party.get if client.is_modern else Party.result
    before = world.ask(read(client, id))
    outcome = before.result["result"] if client.is_modern else before.result
    assert outcome["structuredContent"] == TYPED["structuredContent"]
    assert type(outcome["structuredContent"]["one"]) is float
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
def test_an_answered_question_lets_the_task_go_on(party: Era, up: Era, kind: Kind) -> None:
    """The client gets the question under the task's id. The server gets one answer, and the task works again."""
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
        assert not client.received("elicitation/create"), "no request waits for it"
        waiting = world.ask(client.result(id))
        (asked,) = client.received("elicitation/create")
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
        assert text_of(waiting.result) == "done"


@pytest.mark.parametrize("party", [LEGACY, MODERN])
def test_expired_tasks_do_not_count_for_limits(party: Era) -> None:
    """A task is removed before a limit applies, even if its timer has not fired."""
    limits = Limits(tasks_max=1, task_ttl_s=20.0)
    world, client, id, work = local(party, limits=limits)
    world.world.now += 20.0
    asked = client.call("b")
    world.wait(6.0)
    assert handle(asked) != id
    assert world.ask(client.get(id)).code == -32602
    assert len(work.stops) == 1, "its work is cancelled once"


@pytest.mark.parametrize("value", [0, -1])
@pytest.mark.parametrize(
    "name", [name for name in Limits.__struct_fields__ if name.startswith(("task_", "tasks_per_", "tasks_max"))]
)
def test_a_limit_is_a_positive_number(name: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"limit {name} is {value}, expected a positive number"):
        Limits(**{name: value})
