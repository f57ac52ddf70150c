"""Tests of access rules for tasks: who has lost the group or the scope of a tool has lost its tasks until then."""

from __future__ import annotations

from typing import Any

import pytest
from isthmus.core.base.plan import AccessRule, AccessRules, Kind
from isthmus.core.base.revisions import Era
from task_clients import ClientRequest, Party
from task_scenes import Scene, scene
from task_servers import text

LEGACY, MODERN = Era.HANDSHAKE, Era.STATELESS
ERAS = [LEGACY, MODERN]
RULES = AccessRules(
    tools=(("work", AccessRule(groups=("staff",))), ("must", AccessRule(groups=("staff",), scopes=("run",))))
)
NEVER = "T" * 22


def begun(down: Era, *, is_remote: bool, tool: str = "must") -> tuple[Scene, Party, str]:
    """A caller who may use a tool, and has a task of it: the proxy's own, or the server's too."""
    world = scene(LEGACY, Kind.HTTP, has_tasks=is_remote, access=RULES)
    party = world.party(down, principal="token:ann")
    party.show(groups="staff", scopes="run")
    id, _ = world.begin(party, "a", tool if is_remote else "work")
    return world, party, id


def requests_about(party: Party, id: str) -> list[ClientRequest]:
    verbs = [party.get(id), party.cancel(id)]
    return [*verbs, party.update(id, {}) if party.is_modern else party.result(id)]


@pytest.mark.parametrize("is_remote", [False, True])
@pytest.mark.parametrize("down", ERAS)
def test_who_has_left_the_group_of_a_tool_does_not_know_its_tasks(down: Era, *, is_remote: bool) -> None:
    """The errors are those for a task that never was, byte for byte, and nothing reaches the server."""
    world, party, id = begun(down, is_remote=is_remote)
    received = len(world.server.works), world.status(party, id)
    party.show(scopes="run")
    hidden, unknown = requests_about(party, id), requests_about(party, NEVER)
    world.run()
    assert [one.body for one in hidden] == [one.body for one in unknown]
    party.show(groups="staff", scopes="run")
    assert (len(world.server.works), world.status(party, id)) == received


@pytest.mark.parametrize("down", ERAS)
def test_who_has_lost_the_scope_of_a_tool_is_told_all_that_its_tasks_need(down: Era) -> None:
    world, party, id = begun(down, is_remote=True)
    party.show(groups="staff")
    refused = requests_about(party, id)
    world.run()
    for one in refused:
        assert one.code == -31009
        assert one.error["data"] == {"httpStatus": 403, "scope": "run", "outcome": "not_executed"}
        sent = world.world.sent[one.channel][-1]
        assert (sent.status, "insufficient_scope" in (sent.challenge or "")) == (403, True)
    party.show(groups="staff", scopes="run")
    assert world.status(party, id) == "working"


def test_a_list_of_tasks_leaves_out_those_of_hidden_tools() -> None:
    """Tasks of a tool whose scope the caller lacks stay in it: what it can ask for is shown."""
    world, party, id = begun(LEGACY, is_remote=True)

    def listed() -> list[Any]:
        return [task["taskId"] for task in world.ask(party.listing()).result["tasks"]]

    assert listed() == [id]
    party.show(scopes="run")
    assert listed() == []
    party.show(groups="staff")
    assert listed() == [id]


@pytest.mark.parametrize(("groups", "scopes"), [("", "run"), ("staff", "")])
def test_a_subscription_grants_no_task_of_a_tool_that_its_caller_may_not_use(groups: str, scopes: str) -> None:
    world, party, id = begun(MODERN, is_remote=True)
    party.show(groups=groups, scopes=scopes)
    party.ask("subscriptions/listen", notifications={"taskIds": [id]})
    world.run()
    party.show(groups="staff", scopes="run")
    party.ask("subscriptions/listen", notifications={"taskIds": [id]})
    world.run()
    granted = party.received("notifications/subscriptions/acknowledged")
    assert [each["params"]["notifications"].get("taskIds") for each in granted] == [None, [id]]


@pytest.mark.parametrize("down", ERAS)
def test_the_tasks_of_an_earlier_run_are_judged_by_the_rules_too(down: Era) -> None:
    """A task that a caller may not see is not even looked at where its server has it."""
    world, party, id = begun(down, is_remote=True)
    world.restart()
    party = world.party(down, principal="token:ann")
    party.show(scopes="run")
    assert world.ask(party.get(id)).code == -32602
    party.show(groups="staff", scopes="run")
    assert world.status(party, id) == "working"


def test_a_request_that_was_judged_gets_what_it_waits_for() -> None:
    """Grants are judged when a request comes: another token afterwards takes nothing away from it."""
    world, party, id = begun(LEGACY, is_remote=False)
    waiting = party.result(id)
    world.run()
    party.show()
    world.server.finish(world.server.work("a"), text("done"))
    world.run()
    assert waiting.result["content"] == [{"type": "text", "text": "done"}]
