"""Tests of the tasks that clients are shown, for each offer, server and client, by its tools and its capabilities."""

from __future__ import annotations

import json
from typing import Any

import pytest
from driving import Client, connect, driver
from isthmus.core.base.events import PipeOpening
from isthmus.core.base.plan import Kind, Offer, ServerPlan, TaskRules
from isthmus.core.base.revisions import Era
from task_clients import handle
from task_scenes import GRACE_S, scene

DECLARED = {"a": "required", "b": "optional", "c": "forbidden", "d": None}
TOOLS = [
    {"name": name, **({} if word is None else {"execution": {"taskSupport": word}})} for name, word in DECLARED.items()
]
TASKS = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
OURS = (Offer.AUTO, Offer.ALWAYS)


def shown(
    rules: TaskRules, *, has_tasks: bool, revision: str, is_own: bool = False
) -> tuple[Any, dict[str, str | None]]:
    """The tasks that a client sees: the capability, and the `taskSupport` of each tool."""
    world = driver(ServerPlan(id="pipe", kind=Kind.PIPE, tasks=rules))
    capabilities = json.dumps({"tools": {}} | ({"tasks": TASKS} if has_tasks else {}))
    if is_own:
        client = Client(world, "pipe", world.engine.new_channel())
        assert client.pipe is not None
        world.open(client.pipe, PipeOpening("pipe", "", "http://here", (), is_own=True))
        client.initialize(f'{{"protocolVersion":"{revision}","capabilities":{{}}}}')
        world.start_server(capabilities=capabilities, revision=revision)
        greeting = json.loads(world.messages(client.pipe)[-1])
        client.notify("notifications/initialized")
        world.sent[client.pipe].clear()
    else:
        client = connect(world, "http", "pipe", capabilities=capabilities, revision=revision)
        greeting = next(
            json.loads(m) for c in world.sent for m in world.messages(c) if b"protocolVersion" in m and b'"result"' in m
        )
    channel = client.request("1", "tools/list")
    while world.was_sent("tools/list"):
        world.answer(world.take_sent("tools/list"), json.dumps({"tools": TOOLS}))
    tools = json.loads(world.messages(channel)[-1])["result"]["tools"]
    words = {tool["name"]: tool.get("execution", {}).get("taskSupport") for tool in tools}
    return greeting["result"]["capabilities"].get("tasks"), words


@pytest.mark.parametrize("of_b", [None, *Offer])
@pytest.mark.parametrize("offer", list(Offer))
@pytest.mark.parametrize("has_tasks", [True, False])
@pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25"])
def test_the_tasks_that_are_shown(revision: str, has_tasks: bool, offer: Offer, of_b: Offer | None) -> None:
    """A server's own task support is shown as declared, unless the offer is "never". Calls that become tasks here are
    shown as optional. A client that knows no tasks is shown none. One tool may have a rule of its own."""
    rules = TaskRules(offer=offer, tools=() if of_b is None else (("b", of_b),))
    offers = {name: of_b if name == "b" and of_b is not None else offer for name in DECLARED}
    are_some = offer is not Offer.NEVER or of_b not in (None, Offer.NEVER)
    is_offered = are_some and (
        has_tasks or any(each in OURS for each in offers.values()) or of_b in OURS or offer in OURS
    )
    knows = revision == "2025-11-25"
    expected: dict[str, str | None]
    if not (knows and is_offered):
        expected = dict.fromkeys(DECLARED) if has_tasks else DECLARED
    elif has_tasks:
        expected = {name: None if offers[name] is Offer.NEVER else word for name, word in DECLARED.items()}
    else:
        expected = {name: "optional" if offers[name] in OURS else None for name in DECLARED}
    capability, words = shown(rules, has_tasks=has_tasks, revision=revision)
    assert words == expected
    assert (capability is not None) is (knows and is_offered)


@pytest.mark.parametrize("has_tasks", [True, False])
@pytest.mark.parametrize("offer", list(Offer))
def test_own_sessions_are_shown_the_declarations_of_the_server(offer: Offer, has_tasks: bool) -> None:
    """The proxy's own sessions see the server's declarations, whatever other clients are offered."""
    _, words = shown(TaskRules(offer=offer), has_tasks=has_tasks, revision="2025-11-25", is_own=True)
    assert words == DECLARED


def test_a_client_that_must_declare_tasks_is_told_how_and_then_served() -> None:
    """A strict plan refuses a plain call of a tool that is called as a task only. The refusal names all that is
    missing."""
    world = scene(Era.HANDSHAKE, has_tasks=True, strict=True)
    party = world.party(Era.STATELESS, is_plain=True)
    refused = world.ask(party.call("a", "must")).error
    assert refused == {
        "code": -32021,
        "message": "Tool must requires task augmentation: call it as a task",
        "data": {"requiredCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}},
    }
    assert party.modern is not None
    party.modern.capabilities = {**party.modern.capabilities, **refused["data"]["requiredCapabilities"]}
    served = world.ask(party.call("b", "must"))
    world.server.accept(world.server.work("b"))
    world.wait(GRACE_S)
    assert world.status(party, handle(served)) == "working"
