"""Tests of what one owner may use of the proxy with all its sessions: another owner is not touched by it."""

from __future__ import annotations

from typing import Any

import pytest
from dialogue import Dialogue
from dialogue_peers import Client, Request
from isthmus.core import Era, Kind, Limits, ServerPlan

OVERLOADED = -31007
PLAN = ServerPlan(id="files", kind=Kind.PIPE, era=Era.HANDSHAKE)
CHANGES = {"toolsListChanged": True}
FULL = "yours are open, the most that one client or address may have"


def met(play: Dialogue, name: str, principal: str, era: Era = Era.HANDSHAKE, down: str = "http") -> Client:
    client = play.client(name, down, era=era, principal=principal)
    client.meets(play.server, able={"tools": {"listChanged": True}})
    return client


def refused(play: Dialogue, request: Request, what: str) -> None:
    """A request is refused with an error that names the limit, and reaches no server."""
    [came] = [each for each in play.unexpected if each.channel == request.channel]
    play.unexpected.remove(came)
    error: dict[str, Any] = came.what["error"]
    assert error["code"] == OVERLOADED
    assert FULL in error["message"]
    assert what in error["message"]
    play.finish()


def answered(play: Dialogue, client: Client, call: Request) -> None:
    received = play.server.is_asked("tools/call", ...)
    play.server.answers(received, {"content": []})
    client.is_answered(call, ...)


@pytest.mark.parametrize("era", list(Era))
@pytest.mark.parametrize("down", ["http", "pipe"])
def test_calls_of_all_sessions_of_an_owner_are_bounded(era: Era, down: str) -> None:
    """A call that is answered makes room for another."""
    play = Dialogue(PLAN, limits=Limits(calls_per_owner_max=2))
    one = met(play, "one", "ann")
    other = met(play, "other", "ann", era, down)
    bob = met(play, "bob", "bob")
    call = {"name": "work"}
    first = one.asks("tools/call", call)
    received = play.server.is_asked("tools/call", ...)
    second = other.asks("tools/call", call)
    also = play.server.is_asked("tools/call", ...)
    refused(play, other.asks("tools/call", call), "2 requests of yours are open")
    refused(play, one.asks("tools/call", call), "(calls_per_owner_max)")
    answered(play, bob, bob.asks("tools/call", call))
    play.server.answers(received, {"content": []})
    one.is_answered(first, ...)
    answered(play, other, other.asks("tools/call", call))
    play.server.answers(also, {"content": []})
    other.is_answered(second, ...)


def test_a_call_that_is_cancelled_or_lost_makes_room() -> None:
    play = Dialogue(PLAN, limits=Limits(calls_per_owner_max=1))
    ann = met(play, "ann", "ann", down="pipe")
    for end in ("cancel", "die"):
        call = ann.asks("tools/call", {"name": "work"})
        received = play.server.is_asked("tools/call", ...)
        refused(play, ann.asks("tools/call", {"name": "work"}), "1 requests of yours are open")
        if end == "cancel":
            ann.cancels(call)
            play.server.is_cancelled(received)
        else:
            play.server.dies()
            ann.is_answered(call, error={"data": {"outcome": "unknown"}})


def test_streams_of_all_sessions_of_an_owner_are_bounded() -> None:
    """A GET is refused with 503. A stream that ends makes room for another."""
    play = Dialogue(PLAN, limits=Limits(streams_per_owner_max=2))
    one, other, bob = met(play, "one", "ann"), met(play, "other", "ann"), met(play, "bob", "bob")
    first = one.listens()
    second = other.listens()
    again = one.listens()
    refused(play, again, "2 streams of yours are open")
    assert play.statuses[again.channel] == 503
    bob.listens()
    one.hangs_up(first)
    one.listens()
    other.leaves()
    other.is_closed(second)
    play.server.is_closed()
    one.listens()
    refused(play, one.listens(), "(streams_per_owner_max)")


@pytest.mark.parametrize("up", list(Era))
def test_subscriptions_count_as_streams(up: Era) -> None:
    play = Dialogue(ServerPlan(id="files", kind=Kind.PIPE, era=up), limits=Limits(streams_per_owner_max=1))
    ann, bob = (met(play, name, name, Era.STATELESS) for name in ("ann", "bob"))
    for client in (ann, bob, ann):
        listen = client.asks("subscriptions/listen", {"notifications": CHANGES})
        if up is Era.STATELESS:
            asked = play.server.is_asked("subscriptions/listen")
            play.server.grants(asked)
        client.is_granted(listen, CHANGES)
        if client is ann:
            refused(play, ann.asks("subscriptions/listen", {"notifications": CHANGES}), "1 streams of yours are open")
            ann.cancels(listen)
            if up is Era.STATELESS:
                play.server.is_cancelled(asked)
