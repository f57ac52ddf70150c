"""Calls that were lost with the run of the proxy that had them: which are made again, and with what answers."""

from __future__ import annotations

from typing import Any

import pytest
from driving import Driver
from stateless_driving import ACCEPT, FORM, Modern, ask, give, parked, rounds, served
from stateless_driving import collect as wait_for_more

KEY = b"0123456789abcdef"
READ_ONLY = '{"tools":[{"name":"ask","inputSchema":{"type":"object"},"annotations":{"%s":true}}]}'


def restarted(method: str = "tools/call", tools: str | None = None, **said: Any) -> tuple[Driver, Modern, str]:
    """A client whose call was parked, before the proxy was started anew; and the state that it has for it."""
    first, client, _ = served(state_keys=(KEY,))
    if method == "tools/call":
        _, _, state = parked(first, client, **said)
    else:
        channel = client.request(method, **said)
        ask(first, first.hear(method))
        wait_for_more(first)
        _, state = rounds(client, channel, client.last_id)
    second, other, _ = served(seed=2, state_keys=(KEY,))
    if tools is not None:
        channel = other.request("tools/list")
        give(second, second.hear("tools/list"), tools)
    return second, other, state


@pytest.mark.parametrize("mark", ["readOnlyHint", "idempotentHint"])
def test_a_tool_that_may_run_twice_is_called_again(mark: str) -> None:
    """What its server asks once more is answered with what the client brought, and the client is not asked again."""
    world, client, state = restarted(tools=READ_ONLY % mark)
    channel = client.call(requestState=state, inputResponses={"r1": ACCEPT})
    heard = world.hear("tools/call")
    assert not {"requestState", "inputResponses"} & heard.frame["params"].keys()
    ask(world, heard)
    (told,) = world.heard
    assert told.frame["result"] == ACCEPT
    world.heard.clear()
    give(world, heard, '{"content":[],"n":1}')
    assert client.answered(channel, client.last_id)["result"]["n"] == 1


def test_another_question_than_before_is_for_the_client() -> None:
    """An answer is for the question that was asked, by its words; each once."""
    world, client, state = restarted(tools=READ_ONLY % "readOnlyHint")
    channel = client.call(requestState=state, inputResponses={"r1": ACCEPT})
    heard = world.hear("tools/call")
    ask(world, heard, params=FORM.replace("Who", "Where"))
    wait_for_more(world)
    questions, _ = rounds(client, channel, client.last_id)
    assert [question["params"]["message"] for question in questions.values()] == ["Where?"]


@pytest.mark.parametrize(
    "tools", [None, READ_ONLY % "destructiveHint", READ_ONLY.replace('"ask"', '"other"') % "readOnlyHint"]
)
def test_a_tool_of_which_that_is_not_known_is_not(tools: str | None) -> None:
    world, client, state = restarted(tools=tools)
    channel = client.call(requestState=state, inputResponses={"r1": ACCEPT})
    assert client.answered(channel, client.last_id)["result"]["isError"]
    assert not world.hears("tools/call")


@pytest.mark.parametrize("method, target", [("prompts/get", {"name": "p"}), ("resources/read", {"uri": "file:///x"})])
def test_what_only_reads_is_asked_for_again(method: str, target: dict[str, str]) -> None:
    world, client, state = restarted(method, **target)
    client.request(method, requestState=state, inputResponses={"r1": ACCEPT}, **target)
    world.hear(method)
