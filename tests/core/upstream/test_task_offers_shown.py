"""Which tasks clients are shown: for each offer, each server and each client, by its tools and its capabilities."""

from __future__ import annotations

import json
from typing import Any

import pytest
from driving import Client, connect, driver
from isthmus.core.base.effects import PipeOpening
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
    """What a client sees of tasks: the capability, and what each tool says."""
    world = driver(ServerPlan(id="pipe", kind=Kind.PIPE, tasks=rules))
    capabilities = json.dumps({"tools": {}} | ({"tasks": TASKS} if has_tasks else {}))
    if is_own:
        client = Client(world, "pipe", world.engine.new_channel())
        assert client.pipe is not None
        world.open(client.pipe, PipeOpening("pipe", "", "http://here", (), is_own=True))
        client.initialize(f'{{"protocolVersion":"{revision}","capabilities":{{}}}}')
        world.shake_hands(capabilities=capabilities, revision=revision)
        greeting = json.loads(world.messages(client.pipe)[-1])
        client.notify("notifications/initialized")
        world.sent[client.pipe].clear()
    else:
        client = connect(world, "http", "pipe", capabilities=capabilities, revision=revision)
        greeting = next(
            json.loads(m) for c in world.sent for m in world.messages(c) if b"protocolVersion" in m and b'"result"' in m
        )
    channel = client.request("1", "tools/list")
    while world.hears("tools/list"):
        world.answer(world.hear("tools/list"), json.dumps({"tools": TOOLS}))
    tools = json.loads(world.messages(channel)[-1])["result"]["tools"]
    words = {tool["name"]: tool.get("execution", {}).get("taskSupport") for tool in tools}
    return greeting["result"]["capabilities"].get("tasks"), words


@pytest.mark.parametrize("of_b", [None, *Offer])
@pytest.mark.parametrize("offer", list(Offer))
@pytest.mark.parametrize("has_tasks", [True, False])
@pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25"])
def test_what_is_shown_of_tasks(revision: str, has_tasks: bool, offer: Offer, of_b: Offer | None) -> None:
    """A server's own as it declares them, unless they are not to be; calls that are made tasks here are so if it is
    wished; and to who knows no tasks, none. One rule may be another for one tool."""
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
def test_who_asks_for_the_proxy_itself_is_shown_what_the_server_says(offer: Offer, has_tasks: bool) -> None:
    """Whatever others are offered."""
    _, words = shown(TaskRules(offer=offer), has_tasks=has_tasks, revision="2025-11-25", is_own=True)
    assert words == DECLARED


def test_who_must_declare_tasks_is_told_how_and_is_served_once_it_does() -> None:
    """A tool that is called as a task only, where the plan is strict: what the refusal names is all that is missing."""
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
