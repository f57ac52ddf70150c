"""Tests of successive processes of a server that needs something which only one process can have: one that dies because
an earlier one is ending is started anew, and one that dies beside another that works is explained."""

from __future__ import annotations

import itertools

import pytest
from dialogue import Dialogue, Request
from dialogue_peers import Client, Server
from expected_values import Containing
from isthmus.core import Cause, End, Kind, Limits, ServerPlan
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.setting_names import KEYS, OPTIONS
from isthmus.core.upstream.processes import Restart, explain, restart_after

TAKEN = "exited with code 1; last stderr: EADDRINUSE; hint: its port is taken already"
RESTARTS = [Restart.LATER] * 4 + [Restart.NOW] * 2 + [Restart.CONFLICT, Restart.NEVER]


def meeting(**plan: object) -> tuple[Dialogue, Server, Client, ChannelId]:
    play = Dialogue(ServerPlan(id="files", kind=Kind.PIPE, **plan), limits=Limits(start_timeout_s=60.0))  # type: ignore[arg-type]
    alice = play.client("alice", "http")
    alice.meets(play.server)
    return play, play.server, alice, play.server.channel


def meeting_a_successor() -> tuple[Dialogue, Server, ChannelId, Client, Request]:
    """Has a session end whose process takes its time to end, and another one begin. Returns the channel of that
    process, and the other session's client with its `initialize`."""
    play, files, alice, first = meeting()
    play.slow.add(first)
    alice.leaves()
    files.is_closed()
    bob = play.client("bob", "http")
    greeting = bob.greets()
    files.is_started()
    return play, files, first, bob, greeting


@pytest.mark.parametrize(
    ("case", "restart"), list(zip(itertools.product((True, False), repeat=3), RESTARTS, strict=True)), ids=str
)
def test_when_a_process_is_started_again_follows_from_the_others(
    case: tuple[bool, bool, bool], restart: Restart
) -> None:
    ending, overlapped, working = case
    assert restart_after(ending=ending, overlapped=overlapped, working=working) is restart


def test_one_hint_is_given_in_place_of_another() -> None:
    expected = "exited; hint: this server runs for another session already; if it can run only once, set X"
    assert explain("exited; hint: its port is taken", "X") == explain("exited", "X") == expected


@pytest.mark.parametrize("is_gone_first", [False, True], ids=["dies first", "dies later"])
def test_a_process_that_dies_because_an_earlier_one_is_ending_is_started_anew(is_gone_first: bool) -> None:
    """The client notices nothing, whether the process died before or after the end of the earlier one."""
    play, files, first, bob, greeting = meeting_a_successor()
    if is_gone_first:
        files.breaks_off(first, Cause(End.DONE))
        files.dies(TAKEN)
    else:
        files.dies(TAKEN)
        files.breaks_off(first, Cause(End.DONE))
    files.starts()
    bob.is_answered(greeting, ...)
    assert [server.failures for server in play.engine.report()] == [0]
    play.finish()


def test_a_process_that_dies_although_the_earlier_ones_are_gone_is_not_started_again() -> None:
    play, files, first, bob, greeting = meeting_a_successor()
    files.dies(TAKEN)
    files.breaks_off(first, Cause(End.DONE))
    files.is_started()
    files.dies(TAKEN)
    bob.is_answered(greeting, error={"code": -31004, "message": f"the server could not be started: {TAKEN}"})
    play.finish()


def test_a_start_that_waits_for_an_earlier_process_ends_at_its_time_limit() -> None:
    play, files, first, bob, greeting = meeting_a_successor()
    files.dies(TAKEN)
    play.waits(60.0)
    bob.is_answered(greeting, error={"code": -31004, "message": Containing("did not answer within 60 s")})
    files.breaks_off(first, Cause(End.DONE))  # nothing is started for a session that has failed
    play.finish()


@pytest.mark.parametrize("plan", [{}, {"names": OPTIONS}], ids=["configuration", "wrap"])
def test_the_second_of_two_sessions_is_told_what_helps_in_the_words_of_its_command(plan: dict[str, object]) -> None:
    play, files, _, _ = meeting(**plan)
    bob = play.client("bob", "http")
    greeting = bob.greets()
    files.is_started()
    files.dies(TAKEN)
    share = (OPTIONS if plan else KEYS).share
    text = f"the server could not be started: {explain(TAKEN, share)}"
    bob.is_answered(greeting, error={"code": -31004, "message": text})
    play.finish()
