"""Dialogues with servers that forget sessions and say so in ways of their own: the session is asked with one `ping`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from dialogue import Dialogue
from dialogue_peers import Client, Request, Server
from isthmus.core import Cause, End, Era, Kind, Limits, ServerPlan

TOOL = {"name": "t"}
Refuse = Callable[[Server, Any], None]


def by_status(status: int, body: bytes = b"") -> Refuse:
    def refuse(files: Server, asked: Any) -> None:
        files.refuses(asked, status, body)

    return refuse


def by_error(code: int, message: str) -> Refuse:
    def refuse(files: Server, asked: Any) -> None:
        files.answers(asked, error={"code": code, "message": message})

    return refuse


def by_text(code: int, message: str, id: Any = None) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}}).encode()


WAYS: dict[str, Refuse] = {
    "400": by_status(400),
    "400 in words": by_status(400, b"Invalid session ID"),
    "400 with an error": by_status(400, by_text(-32000, "Bad Request: No valid session ID provided")),
    "400 with the id of the request": by_status(400, by_text(-32000, "no session", 7)),
    "401 without a challenge": by_status(401, b'{"error":"invalid_session"}'),
    "404 for the request": by_status(404, by_text(-32005, "what is that?", 7)),
    "410": by_status(410),
    "500 in words": by_status(500, b"session not found"),
    "an error": by_error(-32600, "Unknown session id 's1'; client should reinitialize"),
    "another error": by_error(-32002, "Server not initialized"),
}
ALL = pytest.mark.parametrize("refuse", WAYS.values(), ids=WAYS)


def meeting(*, limits: Limits | None = None, **plan: Any) -> tuple[Dialogue, Server, Client]:
    play = Dialogue(ServerPlan(id="files", kind=Kind.HTTP, **plan), limits=limits)
    alice = play.client("alice", "http")
    alice.meets(play.server)
    return play, play.server, alice


def denies(files: Server, ping: Request, refuse: Refuse) -> None:
    """Refuses a ping. The session is given up with the error in a response, before that has ended."""
    refuse(files, ping)
    if refuse in (WAYS["an error"], WAYS["another error"]):
        files.is_closed(ping)


def two_calls(files: Server, alice: Client) -> tuple[list[Request], list[Request]]:
    """Returns two calls, as the client and as the server know them."""
    pairs = [(alice.asks("tools/call", TOOL), files.is_asked("tools/call", TOOL)) for _ in range(2)]
    return [call for call, _ in pairs], [asked for _, asked in pairs]


@ALL
def test_a_session_that_also_refuses_a_ping_is_begun_anew_for_all_that_wait(refuse: Refuse) -> None:
    """One ping for both calls, one handshake, and each call is sent once more."""
    _, files, alice = meeting()
    calls, (first, second) = two_calls(files, alice)
    refuse(files, first)
    ping = files.is_asked("ping")
    refuse(files, second)
    denies(files, ping, refuse)
    files.starts(session="S2")
    for again, call in [(files.is_asked("tools/call", TOOL), call) for call in calls]:
        assert again.post is not None
        assert again.post.session == "S2"
        files.answers(again)
        alice.is_answered(call)


@ALL
def test_a_refusal_that_comes_after_the_session_was_found_forgotten(refuse: Refuse) -> None:
    _, files, alice = meeting()
    calls, (first, late) = two_calls(files, alice)
    refuse(files, first)
    denies(files, files.is_asked("ping"), refuse)
    files.starts(session="S2")
    files.answers(files.is_asked("tools/call", TOOL))
    alice.is_answered(calls[0])
    refuse(files, late)
    files.answers(files.is_asked("tools/call", TOOL))
    alice.is_answered(calls[1])


def test_a_refusal_that_comes_while_the_era_of_the_server_is_asked_anew() -> None:
    """The refusal is of the last session, and is not taken for an error of a server without sessions."""
    limits = Limits(server_era_ttl_s=10.0)
    play = Dialogue(ServerPlan(id="files", kind=Kind.HTTP), limits=limits)
    files, alice = play.server, play.client("alice", "http", era=Era.STATELESS)
    discovery = alice.asks("server/discover")
    files.refuses(files.is_asked("server/discover"), 400)
    files.starts()
    alice.is_answered(discovery, ...)
    refuse = by_error(-32002, "Server not initialized")
    calls, (first, late) = two_calls(files, alice)
    play.waits(limits.server_era_ttl_s)
    refuse(files, first)
    ping = files.is_asked("ping")
    refuse(files, ping)
    files.is_closed(ping)
    probe = files.is_asked("server/discover")
    refuse(files, late)
    files.refuses(probe, 400)
    files.starts(session="S2")
    for again, call in [(files.is_asked("tools/call", TOOL), call) for call in calls]:
        files.answers(again)
        alice.is_answered(call, ...)


@ALL
@pytest.mark.parametrize("answer", ["a result", "another error", "nothing", "an end"])
def test_a_session_that_answers_goes_on_and_the_refusal_is_passed(refuse: Refuse, answer: str) -> None:
    play, files, alice = meeting()
    call = alice.asks("tools/call", TOOL)
    refuse(files, files.is_asked("tools/call", TOOL))
    ping = files.is_asked("ping")
    if answer == "a result":
        files.answers(ping)
    elif answer == "another error":
        files.answers(ping, error={"code": -32601, "message": "no such method"})
    elif answer == "an end":
        files.breaks_off(ping, Cause(End.BROKEN, detail="connection reset"))
    else:
        play.waits(Limits().session_check_timeout_s)
        files.is_closed(ping)
    alice.is_answered(call, error={"message": ...})
    call = alice.asks("tools/call", TOOL)
    files.answers(files.is_asked("tools/call", TOOL))
    alice.is_answered(call)


@ALL
def test_a_client_whose_request_is_refused_in_a_new_session_too_is_told_404(refuse: Refuse) -> None:
    """The client can begin another session."""
    play, files, alice = meeting()
    call = alice.asks("tools/call", TOOL)
    refuse(files, files.is_asked("tools/call", TOOL))
    denies(files, files.is_asked("ping"), refuse)
    files.starts(session="S2")
    refuse(files, files.is_asked("tools/call", TOOL))
    denies(files, files.is_asked("ping"), refuse)
    alice.is_answered(call, error={"message": ...})
    assert play.statuses[call.channel] == 404


def test_a_client_that_cancels_while_the_session_is_asked_is_not_answered() -> None:
    _, files, alice = meeting()
    call = alice.asks("tools/call", TOOL)
    files.refuses(files.is_asked("tools/call", TOOL), 400)
    ping = files.is_asked("ping")
    alice.cancels(call)
    alice.is_closed(call)
    files.refuses(ping, 400)


def test_a_client_whose_server_begins_no_other_session_is_told_404() -> None:
    play, files, alice = meeting()
    call = alice.asks("tools/call", TOOL)
    files.refuses(files.is_asked("tools/call", TOOL), 400)
    files.refuses(files.is_asked("ping"), 400)
    files.refuses(files.is_asked("initialize"), 409, by_text(-32603, "no more sessions"))
    files.refuses(files.is_asked("server/discover"), 409, by_text(-32603, "no more sessions"))
    alice.is_answered(call, error=-32603)
    assert play.statuses[call.channel] == 404


def test_a_client_whose_server_is_down_keeps_its_session() -> None:
    play, files, alice = meeting()
    call = alice.asks("tools/call", TOOL)
    files.refuses(files.is_asked("tools/call", TOOL), 404)
    files.breaks_off(files.is_asked("initialize"), Cause(End.UNREACHABLE, detail="connection refused", unsent=True))
    alice.is_answered(call, error=-31004)
    assert play.statuses[call.channel] == 200
    play.waits(Limits().restart_backoff_s)
    call = alice.asks("tools/call", TOOL)
    files.starts(session="S2")
    files.answers(files.is_asked("tools/call", TOOL))
    alice.is_answered(call)
