"""Where gateways for tasks were found wanting: each of these was true of one, and must not be of this."""

from __future__ import annotations

from datetime import datetime

import pytest
from driving import UNIX_AT_ZERO, Client, driver
from isthmus.core.base.effects import Cause, Connected, Delete, End, PipeOpening
from isthmus.core.base.errors import OVERLOADED
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, Offer, ServerPlan
from isthmus.core.base.revisions import Era
from stateless_driving import ACCEPT
from task_clients import handle
from task_scenes import GRACE_S, scene
from task_servers import RELATED, text

LEGACY, MODERN = Era.HANDSHAKE, Era.STATELESS
KINDS = [Kind.PIPE, Kind.HTTP]


def test_what_ends_a_task_has_the_codes_of_the_specification() -> None:
    """-32602 for the end of what has ended, and for what is not there; -32601 for the tool that is never a task."""
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
def test_a_cancelled_task_says_so_to_who_asks_for_its_result(up: Era) -> None:
    """Whether it waited for it already or comes later."""
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
def test_nothing_is_begun_upstream_that_has_no_place_here(up: Era, kind: Kind) -> None:
    world = scene(up, kind, has_tasks=True, limits=Limits(tasks_per_session_max=1))
    party = world.party(LEGACY)
    world.begin(party, "a", "must")
    asked = party.call("b", "must")
    world.wait(GRACE_S)
    assert asked.code == OVERLOADED
    assert "b" not in world.server.works or len(world.server.work("b").stops) == 1


@pytest.mark.parametrize("party", [LEGACY, MODERN])
def test_what_is_not_saved_is_not_promised(party: Era) -> None:
    """The storage fails: the client has an error, not a handle, and the server is told to stop, if it began."""
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


def test_who_goes_before_the_handle_was_saved_leaves_nothing() -> None:
    """Without a session nobody will ever name that task: its record is removed, whenever it comes to be written."""
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
def test_the_end_of_its_time_ends_the_work(party: Era, up: Era, kind: Kind, has_tasks: bool) -> None:
    """Its server hears of it, once; record and result are gone, and it is as unknown as any other."""
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
def test_a_task_that_its_server_has_lost_is_not_working_for_ever(up: Era, kind: Kind) -> None:
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


def test_looking_at_all_tasks_asks_the_server_for_none() -> None:
    """A list is made of what is known here; and a server is looked at no more often than it wants to be."""
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
def test_sessions_without_names_have_tasks_of_their_own(up: Era, down: str) -> None:
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
    """Of a task of the server's, and of one of ours; said to be of the task, and no more once that is over."""
    for has_tasks in (True, False):
        world = scene(has_tasks=has_tasks)
        party = world.party(LEGACY, down=down)
        id, work = world.begin(party, "a", token="tok")
        world.server.report(work, 1)
        world.run()
        (told,) = party.heard("notifications/progress")
        assert (told["params"]["progressToken"], told["params"]["progress"]) == ("tok", 1)
        assert told["params"]["_meta"][RELATED] == {"taskId": id}
        world.ask(party.cancel(id))
        world.server.report(work, 2)
        world.run()
        assert len(party.heard("notifications/progress")) == 1


@pytest.mark.parametrize("down", ["pipe", "http"])
def test_what_a_task_says_of_itself_is_progress_until_its_server_tells_of_some(down: str) -> None:
    """A client that knows no tasks is told of each new status as a step; of none that is no step further."""
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
    told = [frame["params"] for frame in party.heard("notifications/progress")]
    assert [(one["progress"], one.get("message")) for one in told] == [(1, "one"), (10, None), (11, None)]


def test_what_is_said_of_a_task_names_its_server() -> None:
    """2026-07-28 basic, "`_meta`": a result should. The task's own answers are made here; who they are for is known."""
    world = scene()
    party = world.party(MODERN)
    asked = party.call("a")
    world.wait(60.0)
    id = handle(asked)
    for said in (asked, party.get(id), party.update(id, {}), party.cancel(id)):
        named = world.ask(said).result["_meta"]["io.modelcontextprotocol/serverInfo"]
        assert named == {"name": "s", "version": "1"}


def test_a_call_that_is_soon_over_is_no_task() -> None:
    """A client without sessions that knows them has the plain result, unless it takes long, or wants progress."""
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
    """They are shown to the client, whichever era it is of, and the keys are never used again."""
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
        assert [said["action"] for said in work.given[f"q{number}"]] == ["accept"]
        assert world.status(party, id) == "working"
    assert world.ask(party.update("0" * 32, {})).code == -32602


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("up", [LEGACY, MODERN])
@pytest.mark.parametrize("era", [LEGACY, MODERN])
def test_a_task_that_ends_while_it_asks_leaves_no_question(era: Era, up: Era, kind: Kind) -> None:
    """The server has its result without the answer: nobody tells it what it does not ask any more, in a message that it
    never made a request for."""
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
        (asked,) = party.heard("elicitation/create")
        party.reply(asked["id"], ACCEPT)
    else:
        world.ask(party.update(id, {"q1": ACCEPT}))
    world.wait(60.0)
    assert not [said for said in work.given["q1"] if said["action"] == "accept"], "that is too late"


@pytest.mark.parametrize("era", [LEGACY, MODERN])
def test_a_server_that_asked_by_answering_may_go(era: Era) -> None:
    """It knows nothing of the call any more: the answers go to the one that is started next."""
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
        (asked,) = party.heard("elicitation/create")
        party.reply(asked["id"], ACCEPT)
    world.wait(5.0)
    assert len(world.server.calls) == 2
    assert [said["action"] for said in work.given["q1"]] == ["accept"]
    world.server.finish(work, text("done"))
    world.wait(5.0)
    assert world.status(party, id) == "completed"


def test_who_listens_hears_the_whole_task() -> None:
    """`notifications/tasks` to who asked for the id and may have it; nobody else is even granted it."""
    world = scene(offer=Offer.ALWAYS)
    ann, bob = world.party(MODERN, principal="ann"), world.party(MODERN, principal="bob")
    id, work = world.begin(ann, "a")
    for party in (ann, bob):
        world.ask(party.ask("subscriptions/listen", notifications={"taskIds": [id, "0" * 32]}))
    (granted,) = ann.heard("notifications/subscriptions/acknowledged")
    assert granted["params"]["notifications"]["taskIds"] == [id]
    (granted,) = bob.heard("notifications/subscriptions/acknowledged")
    assert not granted["params"]["notifications"].get("taskIds")
    world.server.finish(work, text("done"))
    world.run()
    told = [frame["params"] for frame in ann.heard("notifications/tasks")]
    assert {one["taskId"] for one in told} == {id}
    assert [one["status"] for one in told].count("completed") == 1
    assert told[-1]["result"]["content"] == text("done")["content"]
    assert not bob.heard("notifications/tasks")

    plain = world.party(MODERN, principal="eve", is_plain=True)
    asked = world.ask(plain.ask("subscriptions/listen", notifications={"taskIds": [id]}))
    assert asked.code == -32021
    for verb in ("tasks/get", "tasks/update", "tasks/cancel"):
        needed = world.ask(plain.ask(verb, taskId=id, inputResponses={})).error
        assert needed["code"] == -32021
        assert needed["data"]["requiredCapabilities"]["extensions"] == {"io.modelcontextprotocol/tasks": {}}


@pytest.mark.parametrize("kind", KINDS)
def test_who_hangs_up_on_the_result_does_not_end_the_task(kind: Kind) -> None:
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
    """No capability, no word in the list of tools, no verb; and what asks for a task is a plain call."""
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


def test_older_clients_hear_of_no_tasks() -> None:
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
def test_who_gives_up_on_a_hidden_task_ends_it(up: Era, kind: Kind) -> None:
    """Its client knows of no task, and cancels its request as any other."""
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
def test_a_handle_that_comes_too_late_is_cancelled(up: Era, kind: Kind) -> None:
    """Its client wants the call no more before the server has said that it is a task: that task is nobody's."""
    world = scene(up, kind, has_tasks=True)
    party = world.party(LEGACY)
    asked = party.call("a", "must")
    world.run()
    world.wait(GRACE_S)
    world.ask(party.cancel(handle(asked)))
    work = world.server.work("a")
    if work.heard.channel in world.world.over:
        assert work.stops == ["closed"], "it can answer nobody"
        return
    work.stops.clear()  # that crossed
    world.server.accept(work)
    world.wait(60.0)
    assert work.stops == ["tasks/cancel"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_that_lets_nobody_wait_is_asked_again(kind: Kind) -> None:
    """An error in place of the result, before there is one, is not what the call came to."""
    world = scene(kind=kind, has_tasks=True)
    world.server.is_hasty = True
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
def test_times_are_of_one_clock(up: Era, ahead_s: float) -> None:
    """What is shown is what is kept, though the server's clock is hours off: its lifetime is over when creation and
    lifetime say so, and nothing was updated before it was created."""
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
def test_a_server_that_makes_a_task_late_keeps_it_from_then_on(late_s: float, kept_s: float) -> None:
    """Its client has been told of the task before: for it the time runs from there, and never for longer than anything
    is kept. The server's own time may then be longer: it is told that nobody wants the task."""
    world = scene(has_tasks=True, limits=Limits(task_ttl_s=60.0, task_ttl_max_s=60.0))
    party = world.party(LEGACY)
    id, work = world.begin(party, "a", accepts=False, ttl=10**9)
    told = world.ask(party.get(id)).result
    assert told["ttl"] == 60_000
    begun = datetime.fromisoformat(told["createdAt"]).timestamp() - UNIX_AT_ZERO
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
def test_what_has_expired_counts_for_no_limit(limit: str) -> None:
    """Even before anybody has said that its time is over."""
    world = scene(limits=Limits(task_ttl_s=20.0, **{limit: 1}))
    party = world.party(LEGACY)
    id, _ = world.begin(party, "a")
    world.world.now += 20.0
    asked = party.call("b")
    world.wait(GRACE_S)
    assert handle(asked) != id


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_known_any_more_goes_on_where_it_was(kind: Kind) -> None:
    """The proxy is started again: what a server over HTTP works on is found by who asks for it, and its end is told;
    what ran in a process has failed, and says why; and the list is in the order in which it was begun."""
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
    assert not works["t4"].stops, "nobody has asked for it"


@pytest.mark.parametrize("revision", ['{"type":"text"}', "null", "7", '"no date, and too odd for a header"'])
def test_a_server_may_name_a_revision_that_is_none(revision: str) -> None:
    """What its list of tools says is learnt all the same, before a call that is to be a task goes up."""
    world = driver(ServerPlan(id="a", kind=Kind.PIPE))
    client = Client(world, "a", pipe=world.engine.new_channel())
    world.open(client.pipe, PipeOpening("a"))
    client.request("1", "initialize", '{"protocolVersion":"2025-11-25","capabilities":{}}')
    world.open(world.dials[-1].channel, Connected())
    serves = '{"tools":{},"tasks":{"requests":{"tools":{"call":{}}}}}'
    world.answer(world.hear("initialize"), f'{{"protocolVersion":{revision},"capabilities":{serves}}}')
    client.request("2", "tools/call", '{"name":"dig","task":{"ttl":5000}}')
    world.answer(world.hear("tools/list"), '{"tools":[{"name":"dig","execution":{"taskSupport":"optional"}}]}')
    assert world.hear("tools/call").frame["params"]["name"] == "dig"


def test_each_of_several_subscriptions_to_a_task_is_told_as_long_as_it_lasts() -> None:
    """One that ends takes nothing from the others; with the last nobody is told."""
    world = scene(offer=Offer.ALWAYS)
    party = world.party(MODERN)
    id, work = world.begin(party, "a")
    first, second = (party.ask("subscriptions/listen", notifications={"taskIds": [id]}) for _ in range(2))
    world.run()
    party.hang_up(first)
    assert world.engine._servers.listens.is_watched(id)
    before = len(world.world.messages(first.channel))
    world.server.finish(work, text("done"))
    world.run()
    statuses = [
        f["params"]["status"] for f in world.world.frames(second.channel) if f.get("method") == "notifications/tasks"
    ]
    assert statuses[-1] == "completed"
    assert len(world.world.messages(first.channel)) == before
    party.hang_up(second)
    assert not world.engine._servers.listens.is_watched(id)


GARBAGE = [
    b"garbage",
    b'{"jsonrpc":"2.0","method":"notifications/x"}',
    b'{"jsonrpc":"2.0","id":"x","result":{}}',
    b'{"jsonrpc":"2.0","id":999,"result":{}}',
]


def test_a_server_that_is_left_may_say_anything_until_it_has_taken_what_is_not_wanted_any_more() -> None:
    """Its pipe is closed when the cancellation of its task is answered, and not before."""
    world = scene(kind=Kind.PIPE, has_tasks=True)
    party = world.party(LEGACY)
    _, work = world.begin(party, "a", "must")
    (child,) = world.world.children
    party.leave()
    for message in GARBAGE:
        world.world.say(child, message)
        assert child not in world.world.closed
    assert not work.stops
    world.run()
    assert work.stops
    assert child in world.world.closed


def test_the_session_with_a_server_ends_after_it_has_taken_what_is_not_wanted_any_more() -> None:
    """Over HTTP: the cancellation of its task would otherwise come too late to be understood."""
    world = scene(kind=Kind.HTTP, has_tasks=True)
    party = world.party(LEGACY)
    _, work = world.begin(party, "a", "must")
    party.leave()
    assert not [dial for dial in world.world.dials if isinstance(dial.target, Delete)]
    world.run()
    assert work.stops
    assert len([dial for dial in world.world.dials if isinstance(dial.target, Delete)]) == 1
