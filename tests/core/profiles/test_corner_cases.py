"""Dialogues with a profile whose servers fail, leave, repeat themselves, or have names and URIs of any kind."""

from __future__ import annotations

from typing import Any

import pytest
from dialogue import Dialogue
from dialogue_peers import Client, Server
from isthmus.core import Cause, End, Era, Kind, Profile, ProfileServer, ServerPlan

ERAS = pytest.mark.parametrize("era", [Era.HANDSHAKE, Era.STATELESS], ids=["handshake", "stateless"])
CAN = {"tools": {}, "prompts": {}, "resources": {"subscribe": True}, "logging": {}, "completions": {}}
FAILURES_IN_A_ROW = 5


def meeting(
    *servers: ProfileServer, down: str = "http", era: Era = Era.HANDSHAKE, server_era: Era = Era.HANDSHAKE
) -> tuple[Dialogue, Client, list[Server]]:
    """Returns a client that has met a profile, and the servers of that, of which none is started yet."""
    shown = servers or (ProfileServer("alpha"), ProfileServer("beta"))
    plans = [ServerPlan(id=server.id, kind=Kind.PIPE, era=server_era) for server in shown]
    play = Dialogue(*plans, profiles=(Profile("all", tuple(shown)),))
    return play, greeted(play, "alice", down=down, era=era), play.servers


def greeted(play: Dialogue, name: str, *, down: str = "http", era: Era = Era.HANDSHAKE) -> Client:
    client = play.client(name, down, server="all", era=era)
    if era is Era.HANDSHAKE:
        client.is_answered(client.greets(), ...)
        client.notifies("initialized")
    return client


def fail_to_start(server: Server) -> None:
    server.is_started()
    server.breaks_off(server.channel, Cause(End.UNREACHABLE, detail="no such program", unsent=True))


def result_of(play: Dialogue, client: Client) -> dict[str, Any]:
    """Takes the one message that has come, which is a result for a client, and returns that."""
    (came,) = [each for each in play.unexpected if each.peer is client]
    play.unexpected.remove(came)
    found: dict[str, Any] = came.what["result"]
    return found


# --- Failures -------------------------------------------------------------------------------------------------------


@ERAS
def test_requests_do_not_wait_for_a_server_that_is_left_alone(era: Era) -> None:
    """A server that failed to start is not started for a while: calls say so at once, and lists leave it out."""
    play, alice, (alpha, beta) = meeting(down="pipe", era=era)
    for _ in range(FAILURES_IN_A_ROW if era is Era.HANDSHAKE else 1):
        call = alice.asks("tools/call", {"name": "alpha__t"})
        fail_to_start(alpha)
        alice.is_answered(call, error=-31004)
    call = alice.asks("tools/call", {"name": "alpha__t"})
    alice.is_answered(call, error=-31004)
    alice.asks("tools/list")
    beta.starts(able=CAN)
    beta.answers(beta.is_asked("tools/list"), {"tools": []})
    (why,) = result_of(play, alice)["_meta"]["dev.isthmus/servers"].values()
    assert ("left alone" if era is Era.HANDSHAKE else "it is tried again") in why
    play.finish()


@ERAS
@pytest.mark.parametrize("is_started", [False, True], ids=["starting", "started"])
def test_a_client_that_leaves_takes_no_list_of_others_with_it(era: Era, is_started: bool) -> None:
    """What a client that left was waiting for is read for the next one."""
    play, alice, (alpha,) = meeting(ProfileServer("alpha"), down="pipe", era=era)
    alice.asks("tools/list")
    if is_started:
        alpha.starts(able=CAN)
        alpha.is_asked("tools/list")
    else:
        alpha.is_started()
    alice.leaves()
    play.unexpected.clear()
    bob = greeted(play, "bob", down="pipe", era=era)
    bob.asks("tools/list")
    alpha.starts(able=CAN)
    alpha.answers(alpha.is_asked("tools/list"), {"tools": [{"name": "t"}]})
    assert [tool["name"] for tool in result_of(play, bob)["tools"]] == ["alpha__t"]
