"""Tables whose size no `Limits` names are bounded too: what is left out then, and that everything else goes on."""

from __future__ import annotations

import json
from typing import Any

import pytest
from driving import Client, Driver, driver, error, newcomer, notification, request
from isthmus.core.base.effects import Connected, Spawn
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, ServerPlan, Sharing
from isthmus.core.base.revisions import Era
from stateless_driving import ACCEPT, ANSWERS, Modern, assert_idle, bridge, collect, give, modern, rise, rounds, served
from task_scenes import GRACE_S, scene
from task_servers import text

TOOLS = '{"tools":{}}'
HANDSHAKE = '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}}}'
ABLE = '{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}}}'


# --- Of servers that several share ------------------------------------------------------------------------------------


def join(world: Driver) -> Client:
    """A client of the process that all share."""
    client = newcomer(world, "pipe", "s")
    client.initialize(ABLE)
    child = world.last_dial(Spawn).channel
    if child not in world.opened:
        world.opened.add(child)
        world.open(child, Connected())
        world.answer(world.hear("initialize"), HANDSHAKE)
        world.hear("notifications/initialized")
    client.notify("notifications/initialized")
    assert client.pipe is not None
    world.sent[client.pipe].clear()
    return client


@pytest.mark.parametrize("count", [2, 3])
def test_only_so_many_cancelled_calls_are_remembered_as_askers(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest is forgotten: then a question can only be one of those who came after it."""
    monkeypatch.setattr("isthmus.core.upstream.shared_process.GHOSTS_MAX", 3)
    world = driver(ServerPlan(id="s", kind=Kind.PIPE, sharing=Sharing.CONCURRENT))
    first, second = join(world), join(world)
    for client, id_raw in [(first, "0"), *((second, str(number)) for number in range(count))]:
        client.request(id_raw, "tools/call", '{"name":"ask"}')
        world.hear("tools/call")
        client.notify("notifications/cancelled", f'{{"requestId":{id_raw}}}')
        world.hear("notifications/cancelled")
    world.say(world.last_dial(Spawn).channel, request('"q"', "elicitation/create", "{}"))
    assert second.pipe is not None
    asked = [frame["method"] for frame in world.frames(second.pipe) if "method" in frame]
    assert asked == (["elicitation/create"] if count == 3 else [])
    assert world.hears("") is (count == 2), "the other may be meant: nobody is asked"


# --- Of tasks ---------------------------------------------------------------------------------------------------------


def test_of_so_many_cancelled_calls_a_task_is_cancelled_that_comes_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an older one nobody is left to say so: it ends by itself, or with its time."""
    monkeypatch.setattr("isthmus.core.tasks.upstream_tasks.ORPHANS_MAX", 2)
    world = scene(Era.HANDSHAKE, has_tasks=True)
    party = world.party(Era.HANDSHAKE, down="pipe", is_plain=True)
    works = []
    for tag in "abc":
        asked = party.call(tag, "must")
        world.run()
        party.hang_up(asked)
        world.run()
        works.append(world.server.work(tag))
        works[-1].stops.clear()
    for work in works:
        world.server.accept(work)
    world.wait(60.0)
    assert [work.stops for work in works] == [[], ["tasks/cancel"], ["tasks/cancel"]]


def test_the_results_of_so_many_tasks_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """How the others fare is asked for from time to time: all come to their ends."""
    monkeypatch.setattr("isthmus.core.tasks.upstream_tasks.FETCHES_MAX", 1)
    world = scene(Era.HANDSHAKE, has_tasks=True)
    party = world.party(Era.HANDSHAKE)
    begun = [world.begin(party, tag, "must") for tag in "ab"]
    world.wait(GRACE_S)
    assert [work.fetches for _, work in begun] == [1, 0]
    for tag, (_, work) in zip("ab", begun, strict=True):
        world.server.finish(work, text(tag))
    world.wait(120.0)
    assert [world.ask(party.result(id)).result["content"] for id, _ in begun] == [text(tag)["content"] for tag in "ab"]


# --- Of pages to visit ------------------------------------------------------------------------------------------------


def page(name: str) -> dict[str, str]:
    return {"mode": "url", "elicitationId": name, "url": "http://x", "message": "m"}


def visit(world: Driver, client: Modern, *names: str, **said: Any) -> dict[str, Any]:
    """A call that its server refuses until pages are visited. Returns what its client is answered, if anything."""
    channel = client.call(**said)
    refuse(world, *names)
    frames = [frame for frame in world.frames(channel) if frame.get("id") == client.last_id]
    return frames[0] if frames else {}


def refuse(world: Driver, *names: str) -> None:
    heard = world.hear("tools/call")
    data = {"elicitations": [page(name) for name in names]}
    world.reply(heard, error(str(heard.id), json.dumps({"code": -32042, "message": "visit", "data": data})))


@pytest.mark.parametrize(("count", "is_asked"), [(2, True), (3, False)])
def test_a_refusal_that_names_too_many_pages_is_one(
    count: int, is_asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("isthmus.core.input_required.url_elicitation.PAGES_MAX", 2)
    world, client, _ = served()
    said = visit(world, client, *(f"e{number}" for number in range(count)))
    assert ("result" in said) is is_asked
    assert ("error" in said) is not is_asked
    if is_asked:
        assert len(said["result"]["inputRequests"]) == count


@pytest.mark.parametrize(("others", "is_known"), [(1, True), (2, False)])
def test_only_so_many_visits_that_are_over_are_remembered(
    others: int, is_known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is forgotten is waited for, as one that is not over. What is said twice counts once."""
    monkeypatch.setattr("isthmus.core.input_required.url_elicitation.DONE_MAX", 2)
    world, client, _ = served()
    state = visit(world, client, "e")["result"]["requestState"]
    for name in ("e", "e", *(f"o{number}" for number in range(others)), f"o{others - 1}"):
        told = notification("notifications/elicitation/complete", json.dumps({"elicitationId": name}))
        world.say(world.last_dial(Spawn).channel, told)
    channel = client.call(requestState=state, inputResponses={"r1": ACCEPT})
    refuse(world, "e")
    assert world.hears("tools/call") is is_known
    world.wait(Limits().visit_wait_s)
    give(world, world.hear("tools/call"))
    assert "result" in client.answered(channel, client.last_id)
    assert_idle(world)


@pytest.mark.parametrize("name", ["é", "x" * 65, "x" * 64], ids=["no ASCII", "long", "as long as may be"])
def test_a_visit_is_known_by_any_name(name: str) -> None:
    """What does not fit into the token is told from others all the same."""
    world, client, _ = served()
    state = visit(world, client, name)["result"]["requestState"]
    for said in (name + "y", name):
        channel = client.call(requestState=state, inputResponses={"r1": ACCEPT})
        refuse(world, name)
        assert not world.hears("tools/call")
        told = notification("notifications/elicitation/complete", json.dumps({"elicitationId": said}))
        world.say(world.last_dial(Spawn).channel, told)
        assert world.hears("tools/call") is (said == name)
        if said != name:
            client.cancel(channel)
    give(world, world.hear("tools/call"))
    assert "result" in client.answered(channel, client.last_id)
    assert_idle(world)


# --- Of clients that are known ----------------------------------------------------------------------------------------


def call(world: Driver, client: Modern, **said: Any) -> None:
    """A call and its answer."""
    channel = client.call(**said)
    if world.hears("logging/setLevel"):
        world.answer(world.hear("logging/setLevel"))
    give(world, world.hear("tools/call"))
    assert "result" in client.answered(channel, client.last_id)


def known(world: Driver) -> list[str]:
    """The clients that are known by what they say of themselves."""
    return [principal for _, principal, _, _ in world.engine._stateless.known._known]


def newly(world: Driver, server: str, principal: str) -> Modern:
    """A client whose session has begun: its first request was another than a call."""
    client = modern(world, server, principal=principal)
    channel = client.request("tools/list", level="debug")
    rise(world, capabilities=TOOLS, session=f"S{principal}")
    give(world, world.hear("tools/list"), '{"tools":[]}')
    assert "result" in client.answered(channel, client.last_id)
    return client


def test_only_so_many_clients_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has been for longest is looked at anew, and served as ever."""
    monkeypatch.setattr("isthmus.core.endpoints.known_clients.ACQUAINTANCES_MAX", 2)
    world = bridge()
    clients = [newly(world, "http", principal) for principal in "abc"]
    for client in clients:
        call(world, client)
        call(world, client)
    assert known(world) == ["b", "c"]
    call(world, clients[0])
    assert known(world) == ["c", "a"]


@pytest.mark.parametrize(
    ("said", "is_known"),
    [
        ({}, True),
        ({"level": "info"}, False),
        ({"capabilities": {"experimental": {"text": "x" * 5000}}}, False),
        ({"capabilities": {"experimental": {"text": "x" * 500}}}, True),
        ({"capabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}}, False),
    ],
    ids=["plain", "log", "long", "longer", "tasks"],
)
def test_who_wants_more_or_says_too_much_is_not_known(said: dict[str, Any], is_known: bool) -> None:
    """And is served as others are, each time."""
    world = bridge()
    client = modern(world, "pipe")
    client.capabilities = said.get("capabilities", client.capabilities)
    level = {"level": said["level"]} if "level" in said else {}
    channel = client.call(**level)
    rise(world, capabilities=TOOLS)
    give(world, world.hear("tools/call"))
    assert "result" in client.answered(channel, client.last_id)
    assert bool(known(world)) is is_known
    call(world, client, **level)
    assert bool(known(world)) is is_known


def test_who_comes_back_when_its_session_is_over_has_another() -> None:
    """What was known of it is of the old one, and forgotten."""
    world = bridge()
    client = modern(world, "pipe")
    found: list[str] = []
    for _ in range(2):
        body = json.dumps(json.loads(client.body("tools/call", name="t")), separators=(",", ":")).encode()
        channel = client.send(body)
        if not world.heard:
            rise(world, capabilities=TOOLS)
        give(world, world.hear("tools/call"))
        assert "result" in client.answered(channel, client.last_id)
        (acquaintance,) = world.engine._stateless.known._known.values()
        found.append(acquaintance.session.sid)
        assert [session.sid for session in world.engine._clients.sessions.values()] == found[-1:]
        world.wait(Limits().session_idle_ttl_s + 60.0)
        assert not world.engine._clients.sessions
    assert found[0] != found[1]


# --- Of questions that wait for a call --------------------------------------------------------------------------------


def test_a_question_that_was_not_answered_waits_on() -> None:
    """The client brings back one answer of two: the other is asked with the call that goes up."""
    world, client, _ = served()
    child = world.last_dial(Spawn).channel
    for id_raw in ('"p"', '"q"'):
        world.say(child, request(id_raw, "roots/list"))
    asked, state = rounds(client, client.call())
    first, _ = asked
    channel = client.call(requestState=state, inputResponses={first: ANSWERS["roots/list"]})
    assert world.hear("").frame == {"jsonrpc": "2.0", "id": "p", "result": ANSWERS["roots/list"]}
    heard = world.hear("tools/call")
    collect(world)
    (again,), state = rounds(client, channel, client.last_id)
    channel = client.call(requestState=state, inputResponses={again: ANSWERS["roots/list"]})
    assert world.hear("").frame["id"] == "q"
    give(world, heard)
    assert "result" in client.answered(channel, client.last_id)
    assert_idle(world)


def test_an_answer_that_is_none_leaves_the_question_waiting() -> None:
    """Its client is told; what it says next is taken."""
    world, client, _ = served()
    world.say(world.last_dial(Spawn).channel, request('"q"', "roots/list"))
    (key,), state = rounds(client, client.call())
    channel = client.call(requestState=state, inputResponses={key: {"roots": 7}})
    assert "error" in client.answered(channel, client.last_id)
    assert not world.heard
    channel = client.call(requestState=state, inputResponses={key: ANSWERS["roots/list"]})
    assert world.hear("").frame["result"] == ANSWERS["roots/list"]
    give(world, world.hear("tools/call"))
    assert "result" in client.answered(channel, client.last_id)
