"""Tests of calls that were lost in a restart of the proxy: which are made again, and with which answers."""

from __future__ import annotations

from typing import Any

import pytest
from driving import Driver
from stateless_driving import ACCEPT, FORM, Modern, ask, respond, rounds, served, suspended
from stateless_driving import collect as wait_for_more

KEY = b"0123456789abcdef"
READ_ONLY = '{"tools":[{"name":"ask","inputSchema":{"type":"object"},"annotations":{"%s":true}}]}'


def restarted(method: str = "tools/call", tools: str | None = None, **rest: Any) -> tuple[Driver, Modern, str]:
    """Returns a client whose call was suspended before a restart of the proxy, and the `requestState` of the call."""
    first, client, _ = served(state_keys=(KEY,))
    if method == "tools/call":
        _, _, state = suspended(first, client, **rest)
    else:
        channel = client.request(method, **rest)
        ask(first, first.take_sent(method))
        wait_for_more(first)
        _, state = rounds(client, channel, client.last_id)
    second, other, _ = served(seed=2, state_keys=(KEY,))
    if tools is not None:
        channel = other.request("tools/list")
        respond(second, second.take_sent("tools/list"), tools)
    return second, other, state


@pytest.mark.parametrize("mark", ["readOnlyHint", "idempotentHint"])
def test_a_tool_that_may_run_twice_is_called_again(mark: str) -> None:
    """A repeated question of the server gets the answer that the client brought; the client is not asked again."""
    world, client, state = restarted(tools=READ_ONLY % mark)
    channel = client.call(requestState=state, inputResponses={"r1": ACCEPT})
    received = world.take_sent("tools/call")
    assert not {"requestState", "inputResponses"} & received.frame["params"].keys()
    ask(world, received)
    (answer,) = world.unread
    assert answer.frame["result"] == ACCEPT
    world.unread.clear()
    respond(world, received, '{"content":[],"n":1}')
    assert client.answered(channel, client.last_id)["result"]["n"] == 1


def test_another_question_than_before_goes_to_the_client() -> None:
    """An answer belongs to the question with the same text, and is used once."""
    world, client, state = restarted(tools=READ_ONLY % "readOnlyHint")
    channel = client.call(requestState=state, inputResponses={"r1": ACCEPT})
    received = world.take_sent("tools/call")
    ask(world, received, params=FORM.replace("Who", "Where"))
    wait_for_more(world)
    questions, _ = rounds(client, channel, client.last_id)
    assert [question["params"]["message"] for question in questions.values()] == ["Where?"]


@pytest.mark.parametrize(
    "tools", [None, READ_ONLY % "destructiveHint", READ_ONLY.replace('"ask"', '"other"') % "readOnlyHint"]
)
def test_another_tool_is_not_called_again(tools: str | None) -> None:
    world, client, state = restarted(tools=tools)
    channel = client.call(requestState=state, inputResponses={"r1": ACCEPT})
    assert client.answered(channel, client.last_id)["result"]["isError"]
    assert not world.was_sent("tools/call")


@pytest.mark.parametrize("method, target", [("prompts/get", {"name": "p"}), ("resources/read", {"uri": "file:///x"})])
def test_a_request_that_only_reads_is_made_again(method: str, target: dict[str, str]) -> None:
    world, client, state = restarted(method, **target)
    client.request(method, requestState=state, inputResponses={"r1": ACCEPT}, **target)
    world.take_sent(method)
