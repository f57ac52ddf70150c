"""Tests of the output schemas that are learnt from the pages of a tool list, for the answers of these tools."""

from __future__ import annotations

import json
from typing import Any

import pytest
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind
from stateless_server import Pair, pair

LIST = {"type": "array", "items": {"type": "string"}}
OBJECT = {"type": "object"}


def learn(both: Pair, tools: dict[str, Any], cursor: str | None = None, following: str | None = None) -> None:
    """Lists one page of the server's tools, each with the schema of its output."""
    params = "{}" if cursor is None else json.dumps({"cursor": cursor})
    both.client.request("1", "tools/list", params)
    page: dict[str, Any] = {
        "resultType": "complete",
        "tools": [{"name": name, "inputSchema": OBJECT, "outputSchema": schema} for name, schema in tools.items()],
        "ttlMs": 0,
        "cacheScope": "private",
    } | ({} if following is None else {"nextCursor": following})
    both.world.answer(both.world.take_sent("tools/list"), json.dumps(page))


def is_wrapped(both: Pair, tool: str) -> bool:
    """True if an object that a tool answers with is put into one, as its schema was."""
    channel, received = both.call("2", json.dumps({"name": tool}))
    output = {"resultType": "complete", "content": [], "structuredContent": {"a": 1}}
    both.world.answer(received, json.dumps(output))
    answer = both.answer(channel)
    assert answer is not None
    found = answer["result"]["structuredContent"]
    assert found in ({"a": 1}, {"result": {"a": 1}})
    return bool(found != {"a": 1})


@pytest.mark.parametrize("up", [Kind.PIPE, Kind.SOCKET])
def test_each_page_adds_to_what_is_known_and_the_first_begins_anew(up: Kind) -> None:
    """The tools to remember are those whose output may be more than an object."""
    both = pair(up=up)
    assert not is_wrapped(both, "a"), "nothing is known of it"
    learn(both, {"a": LIST, "b": OBJECT}, following="2")
    assert [is_wrapped(both, tool) for tool in "abcd"] == [True, False, False, False]
    learn(both, {"c": LIST, "d": OBJECT}, "2")
    assert [is_wrapped(both, tool) for tool in "abcd"] == [True, False, True, False]
    learn(both, {"d": LIST})
    assert [is_wrapped(both, tool) for tool in "abcd"] == [False, False, False, True]


@pytest.mark.parametrize(("limit", "known"), [(2, [True, True]), (1, [False, True])])
def test_no_more_tools_are_known_than_the_limit(limit: int, known: list[bool]) -> None:
    """The bound itself is within. A page beyond it replaces what was known."""
    both = pair(up=Kind.PIPE, limits=Limits(tools_known_max=limit))
    learn(both, {"a": LIST}, following="2")
    learn(both, {"b": LIST}, "2")
    assert [is_wrapped(both, tool) for tool in "ab"] == known
