"""Tests of tables whose bound is a constant and not in `Limits`: what is left out, and that everything else goes on."""

from __future__ import annotations

import json
from typing import Any

import pytest
from driving import Client, Driver, driver, error, new_client, notification, request
from inside import Inside
from isthmus.core.base.effects import Spawn
from isthmus.core.base.events import Connected
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, ServerPlan, Sharing
from isthmus.core.base.revisions import Era
from stateless_driving import (
    ACCEPT,
    ANSWERS,
    Modern,
    assert_idle,
    bridge,
    collect,
    modern,
    respond,
    rounds,
    served,
    start_legacy_server,
)
from task_scenes import GRACE_S, scene
from task_servers import text

TOOLS = '{"tools":{}}'
HANDSHAKE = '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}}}'
ABLE = '{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}}}'


# --- Shared processes -------------------------------------------------------------------------------------------------


def join(world: Driver) -> Client:
    """A client of the shared process."""
    client = new_client(world, "pipe", "s")
    client.initialize(ABLE)
    child = world.last_dial(Spawn).channel
    if child not in world.opened:
        world.opened.add(child)
        world.open(child, Connected())
        world.answer(world.take_sent("initialize"), HANDSHAKE)
        world.take_sent("notifications/initialized")
    client.notify("notifications/initialized")
    assert client.pipe is not None
    world.sent[client.pipe].clear()
    return client


@pytest.mark.parametrize("count", [2, 3])
def test_only_so_many_cancelled_calls_may_own_a_question(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest cancelled call is forgotten: a question can then only belong to the later ones."""
    monkeypatch.setattr("isthmus.core.state.shared_process.CANCELLED_MAX", 3)
    world = driver(ServerPlan(id="s", kind=Kind.PIPE, sharing=Sharing.CONCURRENT))
    first, second = join(world), join(world)
    for client, id_raw in [(first, "0"), *((second, str(number)) for number in range(count))]:
        client.request(id_raw, "tools/call", '{"name":"ask"}')
        world.take_sent("tools/call")
        client.notify("notifications/cancelled", f'{{"requestId":{id_raw}}}')
        world.take_sent("notifications/cancelled")
    world.send(world.last_dial(Spawn).channel, request('"q"', "elicitation/create", "{}"))
    assert second.pipe is not None
    asked = [frame["method"] for frame in world.frames(second.pipe) if "method" in frame]
    assert asked == (["elicitation/create"] if count == 3 else [])
    assert world.was_sent("") is (count == 2), "the first client may be meant: no client is asked"


# --- Tasks ------------------------------------------------------------------------------------------------------------


def test_late_tasks_of_only_so_many_cancelled_calls_are_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The task of an older call ends by itself, or at its time."""
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
    """The other tasks are polled, and all of them end."""
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


# --- URL elicitation --------------------------------------------------------------------------------------------------


def page(name: str) -> dict[str, str]:
    return {"mode": "url", "elicitationId": name, "url": "http://x", "message": "m"}


def visit(world: Driver, client: Modern, *names: str, **params: Any) -> dict[str, Any]:
    """A call that its server refuses until pages are visited. Returns the response, if any."""
    channel = client.call(**params)
    refuse(world, *names)
    frames = [frame for frame in world.frames(channel) if frame.get("id") == client.last_id]
    return frames[0] if frames else {}


def refuse(world: Driver, *names: str) -> None:
    received = world.take_sent("tools/call")
    data = {"elicitations": [page(name) for name in names]}
    world.reply(received, error(str(received.id), json.dumps({"code": -32042, "message": "visit", "data": data})))


@pytest.mark.parametrize(("count", "is_asked"), [(2, True), (3, False)])
def test_a_refusal_that_names_too_many_pages_is_an_error(
    count: int, is_asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("isthmus.core.input_required.url_elicitation.PAGES_MAX", 2)
    world, client, _ = served()
    response = visit(world, client, *(f"e{number}" for number in range(count)))
    assert ("result" in response) is is_asked
    assert ("error" in response) is not is_asked
    if is_asked:
        assert len(response["result"]["inputRequests"]) == count


@pytest.mark.parametrize(("others", "is_known"), [(1, True), (2, False)])
def test_only_so_many_visits_that_are_over_are_remembered(
    others: int, is_known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A forgotten visit is waited for, as one that is not over. Equal notifications count once."""
    monkeypatch.setattr("isthmus.core.input_required.url_elicitation.DONE_MAX", 2)
    world, client, _ = served()
    state = visit(world, client, "e")["result"]["requestState"]
    for name in ("e", "e", *(f"o{number}" for number in range(others)), f"o{others - 1}"):
        complete = notification("notifications/elicitation/complete", json.dumps({"elicitationId": name}))
        world.send(world.last_dial(Spawn).channel, complete)
    channel = client.call(requestState=state, inputResponses={"r1": ACCEPT})
    refuse(world, "e")
    assert world.was_sent("tools/call") is is_known
    world.wait(Limits().url_elicitation_wait_s)
    respond(world, world.take_sent("tools/call"))
    assert "result" in client.answered(channel, client.last_id)
    assert_idle(world)


@pytest.mark.parametrize("name", ["é", "x" * 65, "x" * 64], ids=["no ASCII", "long", "as long as may be"])
def test_a_visit_is_known_by_any_name(name: str) -> None:
    """A name that does not fit into the token is distinguished from others all the same."""
    world, client, _ = served()
    state = visit(world, client, name)["result"]["requestState"]
    for completed in (name + "y", name):
        channel = client.call(requestState=state, inputResponses={"r1": ACCEPT})
        refuse(world, name)
        assert not world.was_sent("tools/call")
        complete = notification("notifications/elicitation/complete", json.dumps({"elicitationId": completed}))
        world.send(world.last_dial(Spawn).channel, complete)
        assert world.was_sent("tools/call") is (completed == name)
        if completed != name:
            client.cancel(channel)
    respond(world, world.take_sent("tools/call"))
    assert "result" in client.answered(channel, client.last_id)
    assert_idle(world)


# --- Known clients ----------------------------------------------------------------------------------------------------


def call(world: Driver, client: Modern, **params: Any) -> None:
    """A call and its response."""
    channel = client.call(**params)
    if world.was_sent("logging/setLevel"):
        world.answer(world.take_sent("logging/setLevel"))
    respond(world, world.take_sent("tools/call"))
    assert "result" in client.answered(channel, client.last_id)


def known(world: Driver) -> list[str]:
    """The principals of the clients that are recognized by their metadata."""
    return [principal for _, principal, _, _ in Inside(world.engine).known_clients._known]


def newly(world: Driver, server: str, principal: str) -> Modern:
    """A client whose session has begun with a request that was no call."""
    client = modern(world, server, principal=principal)
    channel = client.request("tools/list", level="debug")
    start_legacy_server(world, capabilities=TOOLS, session=f"S{principal}")
    respond(world, world.take_sent("tools/list"), '{"tools":[]}')
    assert "result" in client.answered(channel, client.last_id)
    return client


def test_only_so_many_clients_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest known client is checked anew, and is served as ever."""
    monkeypatch.setattr("isthmus.core.endpoints.known_clients.KNOWN_CLIENTS_MAX", 2)
    world = bridge()
    clients = [newly(world, "http", principal) for principal in "abc"]
    for client in clients:
        call(world, client)
        call(world, client)
    assert known(world) == ["b", "c"]
    call(world, clients[0])
    assert known(world) == ["c", "a"]


@pytest.mark.parametrize(
    ("metadata", "is_known"),
    [
        ({}, True),
        ({"level": "info"}, False),
        ({"capabilities": {"experimental": {"text": "x" * 5000}}}, False),
        ({"capabilities": {"experimental": {"text": "x" * 500}}}, True),
        ({"capabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}}, False),
    ],
    ids=["plain", "log", "long", "longer", "tasks"],
)
def test_a_client_with_more_or_larger_metadata_is_not_known(metadata: dict[str, Any], is_known: bool) -> None:
    """A client that is not recognized is served as others are, each time."""
    world = bridge()
    client = modern(world, "pipe")
    client.capabilities = metadata.get("capabilities", client.capabilities)
    level = {"level": metadata["level"]} if "level" in metadata else {}
    channel = client.call(**level)
    start_legacy_server(world, capabilities=TOOLS)
    respond(world, world.take_sent("tools/call"))
    assert "result" in client.answered(channel, client.last_id)
    assert bool(known(world)) is is_known
    call(world, client, **level)
    assert bool(known(world)) is is_known


def test_a_known_client_gets_another_session_when_its_own_is_over() -> None:
    """A known client is forgotten with its session."""
    world = bridge()
    client = modern(world, "pipe")
    found: list[str] = []
    for _ in range(2):
        body = json.dumps(json.loads(client.body("tools/call", name="t")), separators=(",", ":")).encode()
        channel = client.send(body)
        if not world.unread:
            start_legacy_server(world, capabilities=TOOLS)
        respond(world, world.take_sent("tools/call"))
        assert "result" in client.answered(channel, client.last_id)
        (known_client,) = Inside(world.engine).known_clients._known.values()
        found.append(known_client.session.sid)
        assert [session.sid for session in Inside(world.engine).sessions.sessions.values()] == found[-1:]
        world.wait(Limits().session_idle_ttl_s + 60.0)
        assert world.engine.session_count == 0
    assert found[0] != found[1]


# --- Questions that wait for a call -----------------------------------------------------------------------------------


def test_a_question_that_was_not_answered_waits_on() -> None:
    """The client answers one question of two: the other is asked with the call that goes up."""
    world, client, _ = served()
    child = world.last_dial(Spawn).channel
    for id_raw in ('"p"', '"q"'):
        world.send(child, request(id_raw, "roots/list"))
    asked, state = rounds(client, client.call())
    first, _ = asked
    channel = client.call(requestState=state, inputResponses={first: ANSWERS["roots/list"]})
    assert world.take_sent("").frame == {"jsonrpc": "2.0", "id": "p", "result": ANSWERS["roots/list"]}
    received = world.take_sent("tools/call")
    collect(world)
    (again,), state = rounds(client, channel, client.last_id)
    channel = client.call(requestState=state, inputResponses={again: ANSWERS["roots/list"]})
    assert world.take_sent("").frame["id"] == "q"
    respond(world, received)
    assert "result" in client.answered(channel, client.last_id)
    assert_idle(world)


def test_an_answer_that_is_none_leaves_the_question_waiting() -> None:
    """The client gets an error; its next answer is accepted."""
    world, client, _ = served()
    world.send(world.last_dial(Spawn).channel, request('"q"', "roots/list"))
    (key,), state = rounds(client, client.call())
    channel = client.call(requestState=state, inputResponses={key: {"roots": 7}})
    assert "error" in client.answered(channel, client.last_id)
    assert not world.unread
    channel = client.call(requestState=state, inputResponses={key: ANSWERS["roots/list"]})
    assert world.take_sent("").frame["result"] == ANSWERS["roots/list"]
    respond(world, world.take_sent("tools/call"))
    assert "result" in client.answered(channel, client.last_id)
