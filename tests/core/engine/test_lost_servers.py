"""Tests of requests and questions that are open when a server is lost: all are settled, and none is kept."""

from __future__ import annotations

import json

import pytest
from driving import connect, driver, result
from isthmus.core.base.events import Cause, End
from isthmus.core.base.plan import Kind
from isthmus.core.base.revisions import Era
from isthmus.core.jsonrpc import envelope
from task_clients import handle
from task_scenes import scene
from task_servers import text

# --- Requests ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("has_run", [True, False])
def test_a_request_that_may_have_run_has_an_unknown_outcome(has_run: bool) -> None:
    """The second attempt at a list was never sent; the first may have been."""
    world = driver()
    client = connect(world, "http", "http")
    channel = client.request("1", "tools/list")
    unreachable = Cause(End.UNREACHABLE, "refused", unsent=True)
    world.end(world.take_sent("tools/list").channel, Cause(End.BROKEN, "reset") if has_run else unreachable)
    world.end(world.take_sent("tools/list").channel, unreachable)
    failure = json.loads(world.messages(channel)[-1])["error"]
    assert failure["data"]["outcome"] == ("unknown" if has_run else "not_executed")
    assert ("may have run" in failure["message"]) == has_run


@pytest.mark.parametrize("cut", range(1, 6))
@pytest.mark.parametrize("is_marked", [True, False])
def test_a_byte_order_mark_may_be_cut(cut: int, is_marked: bool) -> None:
    """A large answer comes in pieces; where they are cut does not show."""
    world = driver()
    client = connect(world, "pipe", "pipe")
    client.request("1", "tools/list")
    received = world.take_sent("tools/list")
    whole = (envelope.MARK if is_marked else b"") + result(str(received.id), '{"tools":[]}')
    world.send_pieces(received.channel, *(whole[at : at + 1] for at in range(cut)), whole[cut:])
    assert client.pipe is not None
    assert world.only_message(client.pipe) == {"jsonrpc": "2.0", "id": 1, "result": {"tools": []}}


# --- Questions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Kind.PIPE, Kind.HTTP])
@pytest.mark.parametrize("is_plain", [True, False])
def test_a_question_of_a_task_is_withdrawn_when_the_task_is_over(kind: Kind, is_plain: bool) -> None:
    """A client that knows no tasks, and waits for its call, gets the withdrawal too."""
    world = scene(Era.STATELESS, kind, has_tasks=True, insists=True)
    party = world.party(Era.HANDSHAKE, is_plain=is_plain)
    asked = party.call("a", "must")
    world.run()
    work = world.server.accept(world.server.work("a"))
    world.server.ask(work, "q")
    world.wait(3.0)
    if not is_plain:
        party.result(handle(asked))
        world.run()
    (question,) = party.received("elicitation/create")
    assert party.received("notifications/cancelled") == []
    world.server.finish(work, text("done"))
    world.wait(3.0)
    assert [cancelled["params"]["requestId"] for cancelled in party.received("notifications/cancelled")] == [
        question["id"]
    ]
    assert not is_plain or asked.result["content"][0]["text"] == "done"
