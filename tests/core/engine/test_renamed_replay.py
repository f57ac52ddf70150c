"""Tests of renamed tools whose calls were lost in a restart of the proxy."""

from __future__ import annotations

import pytest
from driving import Driver
from isthmus.core import Kind, ServerPlan
from isthmus.core.base.governance import Override, Shown
from stateless_driving import ACCEPT, Modern, ask, bridge, collect, modern, respond, rounds, start_legacy_server

KEY = b"0123456789abcdef"
LISTED = (
    '{"tools":[{"name":"look","inputSchema":{},"annotations":{"readOnlyHint":true}},{"name":"wipe","inputSchema":{}}]}'
)
SWAPPED = Shown(overrides=(Override(tool="look", rename="wipe"), Override(tool="wipe", rename="look")))


def served(seed: int = 1) -> tuple[Driver, Modern]:
    """Returns a client of a server whose two tools have swapped their names."""
    world = bridge(ServerPlan(id="pipe", kind=Kind.PIPE, shown=SWAPPED), seed=seed, state_keys=(KEY,))
    client = modern(world, "pipe", "http")
    channel = client.request("server/discover")
    start_legacy_server(world)
    client.answered(channel)
    world.sent[channel].clear()
    client.last_id = 0
    return world, client


@pytest.mark.parametrize(("name", "runs"), [("wipe", True), ("look", False)])
def test_a_lost_call_is_made_again_by_the_name_that_the_server_knows(name: str, runs: bool) -> None:
    """The server's `look` may run twice, and its clients know it as `wipe`."""
    first, client = served()
    channel = client.call(name)
    ask(first, first.take_sent("tools/call"))
    collect(first)
    _, state = rounds(client, channel, client.last_id)
    second, other = served(seed=2)
    other.request("tools/list")
    respond(second, second.take_sent("tools/list"), LISTED)
    channel = other.call(name, requestState=state, inputResponses={"r1": ACCEPT})
    assert second.was_sent("tools/call") == runs
    if not runs:
        assert other.answered(channel, other.last_id)["result"]["isError"]
