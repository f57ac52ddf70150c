"""Tests against the defects of other gateways for tasks. Each was found in one of them."""

from __future__ import annotations

from datetime import datetime

import pytest
from driving import UNIX_AT_ZERO, Client, driver
from inside import Inside
from isthmus.core.base.effects import Delete, Post
from isthmus.core.base.errors import OVERLOADED
from isthmus.core.base.events import Cause, Connected, End, PipeOpening
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, Offer, ServerPlan
from isthmus.core.base.revisions import Era
from stateless_driving import ACCEPT
from task_clients import handle
from task_scenes import GRACE_S, scene
from task_servers import RELATED, text

LEGACY, MODERN = Era.HANDSHAKE, Era.STATELESS
KINDS = [Kind.PIPE, Kind.HTTP]


def test_errors_of_tasks_have_the_codes_of_the_specification() -> None:
    """Cancelling an ended or unknown task gets -32602, a task of a tool without task support -32601."""
    world = scene(has_tasks=True)
    party = world.party(LEGACY)
    id, work = world.begin(party, "a", "must")
    world.server.finish(work, text("done"))
    world.wait(60.0)
    assert world.ask(party.cancel(id)).code == -32602
    for verb in ("tasks/get", "tasks/result", "tasks/cancel"):
        for params in ({"taskId": "nosuch"}, {"taskId": 7}, {}):
            assert world.ask(party.ask(verb, **params)).code == -32602, (verb, params)
    assert world.ask(party.call("b", "forbidden")).code == -32601


@pytest.mark.parametrize("up", [LEGACY, MODERN])
def test_the_result_of_a_cancelled_task_is_an_error(up: Era) -> None:
    """Waiting and later requests for the result get the error."""
    world = scene(up, has_tasks=True)
    party = world.party(LEGACY)
    id, _ = world.begin(party, "a", "must")
    waiting = world.ask(party.result(id))
    world.ask(party.cancel(id))
    later = world.ask(party.result(id))
    assert waiting.code == later.code == -32603
    assert "cancelled" in waiting.error["message"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("up", [LEGACY, MODERN])
def test_no_call_begins_upstream_over_the_limit(up: Era, kind: Kind) -> None:
    world = scene(up, kind, has_tasks=True, limits=Limits(tasks_per_session_max=1))
    party = world.party(LEGACY)
    world.begin(party, "a", "must")
    asked = party.call("b", "must")
    world.wait(GRACE_S)
    assert asked.code == OVERLOADED
    assert "b" not in world.server.works or len(world.server.work("b").stops) == 1


@pytest.mark.parametrize("party", [LEGACY, MODERN])
def test_a_task_that_cannot_be_saved_is_an_error(party: Era) -> None:
    """The storage fails: the client gets an error instead of a handle, and the call is cancelled if it began."""
    for up, has_tasks in ((LEGACY, True), (LEGACY, False), (MODERN, True)):
        world = scene(up, has_tasks=has_tasks, offer=Offer.ALWAYS)
        client = world.party(party)
        world.store.is_failing = True
        asked = client.call("a")
        world.run()
        work = world.server.works.get("a")
        if work is not None and work.as_task and not work.stops:
            world.server.accept(work)
        world.wait(10.0)
        assert asked.code is not None
        assert work is None or len(work.stops) == 1
        assert world.engine.tasks() == ()
        assert not world.store.tasks


def test_a_client_that_leaves_before_the_record_is_saved_leaves_nothing() -> None:
    """The record of a task that no client can name is removed whenever it is written."""
    world = scene(offer=Offer.ALWAYS)
    party = world.party(MODERN)
    world.store.is_slow = True
    asked = party.call("a")
    world.wait(GRACE_S)
    assert world.store.held
    assert asked.reply is None
    party.hang_up(asked)
    world.run()
    while world.store.held:
        world.store.deliver(world.world)
        world.run()
    assert world.engine.tasks() == ()
    assert not world.store.tasks
    assert world.server.work("a").stops == ["notifications/cancelled"]


@pytest.mark.parametrize("has_tasks", [True, False])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("up", [LEGACY, MODERN])
@pytest.mark.parametrize("party", [LEGACY, MODERN])
def test_the_end_of_the_ttl_ends_the_work(party: Era, up: Era, kind: Kind, has_tasks: bool) -> None:
    """The server gets one cancellation. Record and result are removed, and the id is unknown."""
    world = scene(
        up, kind, has_tasks=has_tasks, offer=Offer.ALWAYS, limits=Limits(task_ttl_s=30.0, task_ttl_max_s=30.0)
    )
    client = world.party(party)
    id, work = world.begin(client, "a")
    world.wait(31.0)
    assert len(work.stops) == 1
    assert world.ask(client.get(id)).error == world.ask(client.get("0" * len(id))).error
    assert world.engine.tasks() == ()
    assert not world.store.tasks
    world.wait(30.0)
    assert len(work.stops) == 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("up", [LEGACY, MODERN])
def test_a_task_that_its_server_has_lost_fails(up: Era, kind: Kind) -> None:
    world = scene(up, kind, has_tasks=True)
    party = world.party(LEGACY)
    id, work = world.begin(party, "a", "must")
    asked = world.ask(party.result(id))
    world.server.lose(work)
    for held in work.fetching:
        world.server.refuse(held, -32602, "Task not found")
    world.wait(60.0)
    assert world.status(party, id) == "failed"
    assert asked.code is not None


def test_listing_tasks_sends_no_request_upstream() -> None:
    """A list is made of stored statuses, and a server is polled no more often than it allows."""
    world = scene(MODERN, has_tasks=True)
    party = world.party(LEGACY)
    works = [world.begin(party, f"t{number}", "must")[1] for number in range(10)]
    before = sum(work.polls for work in works)
    for _ in range(10):
        assert len(world.ask(party.listing()).result["tasks"]) == 10
    assert sum(work.polls for work in works) == before
    for _ in range(100):
        world.status(party, world.engine.tasks()[0].id)
    assert works[0].polls <= 3


@pytest.mark.parametrize("down", ["pipe", "http"])
@pytest.mark.parametrize("up", [LEGACY, MODERN])
def test_sessions_without_principals_have_tasks_of_their_own(up: Era, down: str) -> None:
    world = scene(up, has_tasks=True)
    one, other = world.party(LEGACY, down=down), world.party(LEGACY, down=down)
    id, _ = world.begin(one, "a", "must")
    assert world.ask(other.listing()).result["tasks"] == []
    for verb in ("tasks/get", "tasks/result", "tasks/cancel"):
        unknown = world.ask(other.ask(verb, taskId="0" * len(id))).error
        assert world.ask(other.ask(verb, taskId=id)).error == unknown
    assert world.status(one, id) == "working"


@pytest.mark.parametrize("down", ["pipe", "http"])
def test_progress_goes_on_under_the_clients_token(down: str) -> None:
    """Progress of upstream and local tasks names the task, and stops with it."""
    for has_tasks in (True, False):
        world = scene(has_tasks=has_tasks)
        party = world.party(LEGACY, down=down)
        id, work = world.begin(party, "a", token="tok")
        world.server.report(work, 1)
        world.run()
        (progress,) = party.received("notifications/progress")
        assert (progress["params"]["progressToken"], progress["params"]["progress"]) == ("tok", 1)
        assert progress["params"]["_meta"][RELATED] == {"taskId": id}
        world.ask(party.cancel(id))
        world.server.report(work, 2)
        world.run()
        assert len(party.received("notifications/progress")) == 1


@pytest.mark.parametrize("down", ["pipe", "http"])
def test_status_messages_are_progress_until_the_server_sends_progress(down: str) -> None:
    """A client without tasks gets each new status message as progress, as long as the number grows."""
    world = scene(has_tasks=True)
    party = world.party(LEGACY, down=down, is_plain=True)
    party.call("a", "must", token="tok")
    world.run()
    work = world.server.accept(world.server.work("a"))
    world.run()
    work.message = "one"
    world.server.announce(work)
    world.server.report(work, 10)
    work.message = "two"
    world.server.announce(work)
    world.server.report(work, 11)
    world.run()
    progress = [frame["params"] for frame in party.received("notifications/progress")]
    assert [(one["progress"], one.get("message")) for one in progress] == [(1, "one"), (10, None), (11, None)]


def test_results_about_a_task_name_its_server() -> None:
    """2026-07-28 basic, "`_meta`": a result should name the server. The proxy makes these results itself."""
    world = scene()
    party = world.party(MODERN)
    asked = party.call("a")
    world.wait(60.0)
    id = handle(asked)
    for each in (asked, party.get(id), party.update(id, {}), party.cancel(id)):
        named = world.ask(each).result["_meta"]["io.modelcontextprotocol/serverInfo"]
        assert named == {"name": "s", "version": "1"}


def test_a_short_call_is_no_task() -> None:
    """A stateless client with tasks gets the plain result, unless the call takes long or has a progress token."""
    world = scene()
    party = world.party(MODERN)
    asked = party.call("a")
    world.run()
    world.server.finish(world.server.work("a"), text("done"))
    world.run()
    assert asked.result["resultType"] == "complete"
    assert world.engine.tasks() == ()

    asked = party.call("b", token="tok")
    world.wait(600.0)
    assert asked.reply is None
    world.server.finish(world.server.work("b"), text("done"))
    world.run()
    assert asked.result["resultType"] == "complete"

    asked = party.call("c")
    world.wait(4.9)
    assert asked.reply is None
    world.wait(0.2)
    handle(asked)


@pytest.mark.parametrize("up", [LEGACY, MODERN])
def test_questions_of_the_server_do_not_fail_the_task(up: Era) -> None:
    """Clients of both eras get the questions, and keys are never used again."""
    world = scene(up, has_tasks=True)
    party = world.party(MODERN)
    id, work = world.begin(party, "a", "must")
    seen: set[str] = set()
    for number in range(3):
        world.server.ask(work, f"q{number}")
        world.wait(60.0)
        questions = world.ask(party.get(id)).result["inputRequests"]
        (key,) = questions
        assert key not in seen
        seen.add(key)
        assert world.ask(party.get(id)).result["inputRequests"] == questions, "asked again, it is the same"
        for answers in ({"nosuch": ACCEPT}, {key: ACCEPT}, {key: {"action": "decline"}}):
            assert world.ask(party.update(id, answers)).result["resultType"] == "complete"
        world.wait(60.0)
        assert [answer["action"] for answer in work.given[f"q{number}"]] == ["accept"]
        assert world.status(party, id) == "working"
    assert world.ask(party.update("0" * 32, {})).code == -32602


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("up", [LEGACY, MODERN])
@pytest.mark.parametrize("era", [LEGACY, MODERN])
def test_a_task_that_ends_during_a_question_leaves_none(era: Era, up: Era, kind: Kind) -> None:
    """The server has its result without the answer, so no later answer is sent to it."""
    world = scene(up, kind, has_tasks=True)
    party = world.party(era)
    id, work = world.begin(party, "a", "must")
    waiting = None if party.is_modern else world.ask(party.result(id))
    world.server.ask(work, "q1")
    world.wait(5.0)
    assert world.status(party, id) == "input_required"
    world.server.finish(work, text("done"))
    world.wait(60.0)
    shown = world.ask(party.get(id)).result
    assert shown["status"] == "completed"
    assert "inputRequests" not in shown
    if waiting is not None:
        assert waiting.result["content"] == text("done")["content"]
        (asked,) = party.received("elicitation/create")
        party.reply(asked["id"], ACCEPT)
    else:
        world.ask(party.update(id, {"q1": ACCEPT}))
    world.wait(60.0)
    assert not [answer for answer in work.given["q1"] if answer["action"] == "accept"], "a late answer is dropped"


@pytest.mark.parametrize("era", [LEGACY, MODERN])
def test_a_server_may_restart_between_rounds_of_a_task(era: Era) -> None:
    """A stateless server knows nothing of the call between rounds: the answers go to the next process."""
    world = scene(MODERN, Kind.PIPE, offer=Offer.ALWAYS)
    party = world.party(era)
    id, work = world.begin(party, "a")
    world.server.ask(work, "q1")
    world.wait(5.0)
    world.server.die(work)
    world.wait(5.0)
    assert world.status(party, id) == "input_required"
    if party.is_modern:
        (key,) = world.ask(party.get(id)).result["inputRequests"]
        world.ask(party.update(id, {key: ACCEPT}))
    else:
        world.ask(party.result(id))
        (asked,) = party.received("elicitation/create")
        party.reply(asked["id"], ACCEPT)
    world.wait(5.0)
    assert len(world.server.calls) == 2
    assert [answer["action"] for answer in work.given["q1"]] == ["accept"]
    world.server.finish(work, text("done"))
    world.wait(5.0)
    assert world.status(party, id) == "completed"


def test_a_subscription_gets_the_whole_task() -> None:
    """The owner that subscribed to the id gets `notifications/tasks`. A subscription of any other client is not
    granted."""
    world = scene(offer=Offer.ALWAYS)
    ann, bob = world.party(MODERN, principal="ann"), world.party(MODERN, principal="bob")
    id, work = world.begin(ann, "a")
    for party in (ann, bob):
        world.ask(party.ask("subscriptions/listen", notifications={"taskIds": [id, "0" * 32]}))
    (granted,) = ann.received("notifications/subscriptions/acknowledged")
    assert granted["params"]["notifications"]["taskIds"] == [id]
    (granted,) = bob.received("notifications/subscriptions/acknowledged")
    assert not granted["params"]["notifications"].get("taskIds")
    world.server.finish(work, text("done"))
    world.run()
    statuses = [frame["params"] for frame in ann.received("notifications/tasks")]
    assert {one["taskId"] for one in statuses} == {id}
    assert [one["status"] for one in statuses].count("completed") == 1
    assert statuses[-1]["result"]["content"] == text("done")["content"]
    assert not bob.received("notifications/tasks")

    plain = world.party(MODERN, principal="eve", is_plain=True)
    asked = world.ask(plain.ask("subscriptions/listen", notifications={"taskIds": [id]}))
    assert asked.code == -32021
    for verb in ("tasks/get", "tasks/update", "tasks/cancel"):
        needed = world.ask(plain.ask(verb, taskId=id, inputResponses={})).error
        assert needed["code"] == -32021
        assert needed["data"]["requiredCapabilities"]["extensions"] == {"io.modelcontextprotocol/tasks": {}}


@pytest.mark.parametrize("kind", KINDS)
def test_a_disconnect_from_the_result_does_not_end_the_task(kind: Kind) -> None:
    world = scene(kind=kind, has_tasks=True)
    party = world.party(LEGACY)
    id, work = world.begin(party, "a", "must")
    asked = world.ask(party.result(id))
    world.world.end(asked.channel, Cause(End.GONE))
    world.wait(60.0)
    assert not work.stops
    assert world.status(party, id) == "working"
    world.server.finish(work, text("done"))
    world.wait(60.0)
    assert world.ask(party.result(id)).result["content"] == text("done")["content"]


def test_where_tasks_are_not_offered_there_are_none() -> None:
    """No capability, no tool and no method mention tasks, and a request for a task is a plain call."""
    world = scene(has_tasks=True, offer=Offer.NEVER)
    party = world.party(LEGACY)
    assert "tasks" not in party.greeting["result"]["capabilities"]
    listed = world.ask(party.ask("tools/list")).result["tools"]
    assert not any("execution" in tool for tool in listed)
    for verb in ("tasks/get", "tasks/result", "tasks/cancel", "tasks/list"):
        assert world.ask(party.ask(verb, taskId="x")).code == -32601
    asked = world.ask(party.call("a"))
    world.server.finish(world.server.work("a"), text("done"))
    world.run()
    assert asked.result["content"] == text("done")["content"]

    other = world.party(MODERN)
    for verb in ("tasks/get", "tasks/update", "tasks/cancel"):
        assert world.ask(other.ask(verb, taskId="x")).code == -32601


def test_older_clients_get_no_tasks() -> None:
    world = scene(has_tasks=True)
    party = world.party(LEGACY, revision="2025-06-18")
    assert "tasks" not in party.greeting["result"]["capabilities"]
    assert not any("execution" in tool for tool in world.ask(party.ask("tools/list")).result["tools"])
    assert world.ask(party.get("x")).code == -32601
    asked = world.ask(party.call("a", "must"))
    world.server.finish(world.server.work("a"), text("done"))
    world.run()
    assert asked.result["content"] == text("done")["content"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("up", [LEGACY, MODERN])
def test_a_cancelled_request_ends_its_hidden_task(up: Era, kind: Kind) -> None:
    """The client knows no task, and cancels its request as any other."""
    world = scene(up, kind, has_tasks=True, insists=True)
    party = world.party(LEGACY, down="pipe")
    asked = party.call("a", "must", as_task=False)
    world.run()
    work = world.server.accept(world.server.work("a"))
    world.run()
    party.hang_up(asked)
    world.wait(5.0)
    assert work.stops == ["tasks/cancel"]
    assert world.engine.tasks() == ()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("up", [LEGACY, MODERN])
def test_a_task_made_after_a_cancellation_is_cancelled(up: Era, kind: Kind) -> None:
    """The client has cancelled the call before the server answers with a task."""
    world = scene(up, kind, has_tasks=True)
    party = world.party(LEGACY)
    asked = party.call("a", "must")
    world.run()
    world.wait(GRACE_S)
    world.ask(party.cancel(handle(asked)))
    work = world.server.work("a")
    if work.received.channel in world.world.over:
        assert work.stops == ["closed"], "its response is closed"
        return
    work.stops.clear()  # it crossed the cancellation
    world.server.accept(work)
    world.wait(60.0)
    assert work.stops == ["tasks/cancel"]


@pytest.mark.parametrize("kind", KINDS)
def test_an_early_error_for_the_result_is_not_the_outcome(kind: Kind) -> None:
    """An error for `tasks/result` while the task works is not its outcome."""
    world = scene(kind=kind, has_tasks=True)
    world.server.refuses_early_results = True
    party = world.party(LEGACY)
    id, work = world.begin(party, "a", "must")
    asked = world.ask(party.result(id))
    world.wait(60.0)
    assert world.status(party, id) == "working"
    world.server.finish(work, text("done"))
    world.wait(60.0)
    assert world.status(party, id) == "completed"
    assert asked.result["content"] == text("done")["content"]


@pytest.mark.parametrize("ahead_s", [-7200.0, 7200.0])
@pytest.mark.parametrize("up", [LEGACY, MODERN])
def test_times_are_of_the_proxy_s_clock(up: Era, ahead_s: float) -> None:
    """The server's clock is hours off. The lifetime ends when creation and `ttl` say so, and no update is before the
    creation."""
    world = scene(up, has_tasks=True)
    world.server.clock_ahead_s = ahead_s
    party = world.party(LEGACY)
    id, work = world.begin(party, "a", "must")
    work.message = "half way"
    world.wait(10.0)
    world.server.finish(work, text("done"))
    world.wait(10.0)
    shown = world.ask(party.get(id)).result
    created = datetime.fromisoformat(shown["createdAt"]).timestamp() - UNIX_AT_ZERO
    updated = datetime.fromisoformat(shown["lastUpdatedAt"]).timestamp() - UNIX_AT_ZERO
    assert created <= updated <= world.world.now
    over = created + shown["ttl"] / 1000
    world.wait(over - 0.1 - world.world.now)
    assert world.ask(party.get(id)).code is None
    world.wait(0.2)
    assert world.ask(party.get(id)).code == -32602


@pytest.mark.parametrize(("late_s", "kept_s"), [(5.0, 55.0), (20.0, 60.0)])
def test_the_ttl_of_a_task_made_late_runs_from_its_handle(late_s: float, kept_s: float) -> None:
    """The client has a local handle before the server makes its task: the time runs from the handle, within the limit.
    If the server's own time is longer, its task is cancelled."""
    world = scene(has_tasks=True, limits=Limits(task_ttl_s=60.0, task_ttl_max_s=60.0))
    party = world.party(LEGACY)
    id, work = world.begin(party, "a", accepts=False, ttl=10**9)
    shown = world.ask(party.get(id)).result
    assert shown["ttl"] == 60_000
    begun = datetime.fromisoformat(shown["createdAt"]).timestamp() - UNIX_AT_ZERO
    world.wait(begun + late_s - world.world.now)
    world.server.accept(work, ttl_ms=50_000)
    world.run()
    assert abs(world.ask(party.get(id)).result["ttl"] - kept_s * 1000) <= 1
    world.wait(begun + kept_s - 0.1 - world.world.now)
    assert world.status(party, id) == "working"
    world.wait(0.2)
    assert world.ask(party.get(id)).code == -32602
    assert len(work.stops) == 1


@pytest.mark.parametrize("limit", ["tasks_max", "tasks_per_principal_max", "tasks_per_session_max"])
def test_an_expired_task_counts_for_no_limit(limit: str) -> None:
    """The task does not count even if its timer has not fired."""
    world = scene(limits=Limits(task_ttl_s=20.0, **{limit: 1}))
    party = world.party(LEGACY)
    id, _ = world.begin(party, "a")
    world.world.now += 20.0
    asked = party.call("b")
    world.wait(GRACE_S)
    assert handle(asked) != id


@pytest.mark.parametrize("kind", KINDS)
def test_tasks_after_a_restart(kind: Kind) -> None:
    """A task of a server over HTTP is found by the next request of its owner, and its end is notified. A task of a
    process has failed, with a reason. The list is in order of creation."""
    world = scene(kind=kind, has_tasks=True)
    party = world.party(LEGACY, principal="ann")
    ids = []
    for number in range(5):
        id, work = world.begin(party, f"t{number}", "must")
        ids.append(id)
        world.wait(1.0)
        if number % 2:
            world.server.finish(work, text(f"done {number}"))
            world.wait(60.0)
    works = dict(world.server.works)
    world.restart()
    party = world.party(LEGACY, principal="ann")
    assert [task["taskId"] for task in world.ask(party.listing()).result["tasks"]] == ids
    assert world.ask(party.result(ids[1])).result["content"] == text("done 1")["content"]
    if kind is Kind.PIPE:
        assert world.status(party, ids[0]) == "failed"
        assert world.ask(party.result(ids[0])).error["message"]
        return
    waiting = world.ask(party.result(ids[0]))
    assert world.status(party, ids[0]) == "working"
    world.server.finish(works["t0"], text("done 0"))
    world.wait(60.0)
    assert waiting.result["content"] == text("done 0")["content"]
    assert world.ask(party.cancel(ids[2])).result["status"] == "cancelled"
    world.wait(5.0)
    assert works["t2"].stops == ["tasks/cancel"]
    assert not works["t4"].stops, "its owner has not asked for it"


def test_a_task_is_asked_about_at_its_address_after_a_restart() -> None:
    """The session of its client goes elsewhere then."""
    world = scene(kind=Kind.HTTP, has_tasks=True, addresses=("https://a", "https://b"))
    world.party(LEGACY, principal="ann")
    party = world.party(LEGACY, principal="ann")
    id, _ = world.begin(party, "t", "must")
    world.restart()
    party = world.party(LEGACY, principal="ann")
    begun = [order.target for order in world.world.dials if isinstance(order.target, Post)]
    assert {target.address for target in begun} == {0}
    assert world.status(party, id) == "working"
    world.wait(60.0)
    asked = [order.target for order in world.world.dials if isinstance(order.target, Post)][len(begun) :]
    assert asked
    assert {target.address for target in asked} == {1}


@pytest.mark.parametrize("revision", ['{"type":"text"}', "null", "7", '"no date, and too odd for a header"'])
def test_tools_are_learned_from_a_server_of_an_unknown_revision(revision: str) -> None:
    """The list of tools is read before the first call that is to be a task."""
    world = driver(ServerPlan(id="a", kind=Kind.PIPE))
    client = Client(world, "a", pipe=world.engine.new_channel())
    world.open(client.pipe, PipeOpening("a"))
    client.request("1", "initialize", '{"protocolVersion":"2025-11-25","capabilities":{}}')
    world.open(world.dials[-1].channel, Connected())
    serves = '{"tools":{},"tasks":{"requests":{"tools":{"call":{}}}}}'
    world.answer(world.take_sent("initialize"), f'{{"protocolVersion":{revision},"capabilities":{serves}}}')
    client.request("2", "tools/call", '{"name":"dig","task":{"ttl":5000}}')
    world.answer(world.take_sent("tools/list"), '{"tools":[{"name":"dig","execution":{"taskSupport":"optional"}}]}')
    assert world.take_sent("tools/call").frame["params"]["name"] == "dig"


def test_each_subscription_to_a_task_gets_its_notifications() -> None:
    """The end of one subscription does not affect the others. After the last nothing is sent."""
    world = scene(offer=Offer.ALWAYS)
    party = world.party(MODERN)
    id, work = world.begin(party, "a")
    first, second = (party.ask("subscriptions/listen", notifications={"taskIds": [id]}) for _ in range(2))
    world.run()
    party.hang_up(first)
    assert Inside(world.engine).client_listens.is_watched(id)
    before = len(world.world.messages(first.channel))
    world.server.finish(work, text("done"))
    world.run()
    statuses = [
        f["params"]["status"] for f in world.world.frames(second.channel) if f.get("method") == "notifications/tasks"
    ]
    assert statuses[-1] == "completed"
    assert len(world.world.messages(first.channel)) == before
    party.hang_up(second)
    assert not Inside(world.engine).client_listens.is_watched(id)


GARBAGE = [
    b"garbage",
    b'{"jsonrpc":"2.0","method":"notifications/x"}',
    b'{"jsonrpc":"2.0","id":"x","result":{}}',
    b'{"jsonrpc":"2.0","id":999,"result":{}}',
]


def test_a_pipe_is_closed_after_tasks_cancel_is_answered() -> None:
    """The server may send anything until then."""
    world = scene(kind=Kind.PIPE, has_tasks=True)
    party = world.party(LEGACY)
    _, work = world.begin(party, "a", "must")
    (child,) = world.world.children
    party.leave()
    for message in GARBAGE:
        world.world.send(child, message)
        assert child not in world.world.closed
    assert not work.stops
    world.run()
    assert work.stops
    assert child in world.world.closed


def test_a_session_is_deleted_after_tasks_cancel_is_answered() -> None:
    """Over HTTP a cancellation after the DELETE would not be understood."""
    world = scene(kind=Kind.HTTP, has_tasks=True)
    party = world.party(LEGACY)
    _, work = world.begin(party, "a", "must")
    party.leave()
    assert not [dial for dial in world.world.dials if isinstance(dial.target, Delete)]
    world.run()
    assert work.stops
    assert len([dial for dial in world.world.dials if isinstance(dial.target, Delete)]) == 1
