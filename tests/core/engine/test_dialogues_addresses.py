"""Dialogues with a server at several addresses: where sessions go, when a handshake goes on at another, and
what stays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from dialogue import Dialogue
from isthmus.core import Cause, End, Era, Kind, Limits, ServerPlan
from isthmus.core.base.events import Connected
from isthmus.core.status import Command

TOOL = {"name": "t"}
NO_ROUTE = Cause(End.UNREACHABLE, "refused", unsent=True)
PAUSE_S = Limits().crash_loop_pause_s


def playing(count: int = 2, kind: Kind = Kind.HTTP, **rest: Any) -> Dialogue:
    names = tuple(f"https://{name}/mcp" for name in "abc"[:count])
    return Dialogue(ServerPlan(id="files", kind=kind, addresses=names, **rest))


def went(play: Dialogue) -> list[int]:
    """Returns the addresses of all that was dialled since the last call."""
    found = [target.address for target in play.dialled]
    play.dialled.clear()
    return found


def shown(play: Dialogue) -> list[tuple[bool, int, int]]:
    (status,) = play.engine.report()
    return [(address.state != "ill", address.sessions, address.failures) for address in status.addresses]


def waits_for_news(play: Dialogue) -> None:
    """Lets time go by until something comes."""
    for _ in range(100):
        if not play.unexpected:
            play.waits(1.0)


def test_each_session_stays_at_its_address_with_all_that_belongs_to_it() -> None:
    """Calls, answers, the event stream and DELETE."""
    play = playing()
    files, clients = play.server, [play.client(name, "http") for name in ("alice", "bob", "carol")]
    for place, client in zip([0, 1, 0], clients, strict=True):
        client.meets(files, session=f"S-{client.name}", listens=True)
        assert set(went(play)) == {place}
    assert shown(play) == [(True, 2, 0), (True, 1, 0)]
    _, bob, _ = clients
    call = bob.asks("tools/call", TOOL)
    files.answers(files.is_asked("tools/call"))
    bob.is_answered(call)
    call = bob.asks("tools/call", TOOL)
    files.breaks_off(asked := files.is_asked("tools/call"), Cause(End.DONE, last_event_id="e1"))
    waits_for_news(play)
    files.is_listened_to()
    files.answers(replace(asked, channel=files.stream))
    bob.is_answered(call)
    files.session = "S-bob"
    bob.leaves()
    files.is_left()
    assert set(went(play)) == {1}
    assert shown(play) == [(True, 2, 0), (True, 0, 0)]
    clients[0].leaves()
    files.session = "S-alice"
    files.is_left()
    assert shown(play) == [(True, 1, 0), (True, 0, 0)]


@pytest.mark.parametrize("cause", [NO_ROUTE, Cause(End.BROKEN), Cause(End.REFUSED, status=503)])
def test_a_handshake_that_an_address_fails_goes_on_at_the_next_in_the_same_attempt(cause: Cause) -> None:
    """Later sessions leave that address alone for a pause, and then one of them tries it."""
    play = playing()
    files, alice, bob, carol = play.server, *(play.client(name) for name in ("alice", "bob", "carol"))
    greeting = alice.greets()
    files.breaks_off(files.is_asked("initialize"), cause)
    files.is_greeted()
    alice.is_answered(greeting, ...)
    assert went(play) == [0, 1, 1, 1]
    assert shown(play) == [(False, 0, 1), (True, 1, 0)]
    bob.meets(files)
    assert set(went(play)) == {1}
    play.waits(PAUSE_S)
    carol.meets(files)
    assert set(went(play)) == {0}
    assert shown(play) == [(True, 1, 0), (True, 2, 0)]


@pytest.mark.parametrize("status", [400, 401, 500])
def test_a_refusal_by_the_server_itself_goes_nowhere_else(status: int) -> None:
    play = playing(era=Era.HANDSHAKE)
    greeting = play.client("alice").greets()
    play.server.refuses(play.server.is_asked("initialize"), status)
    play.expects(play.owners[greeting.channel], "is answered", ...)
    assert went(play) == [0]
    assert shown(play) == [(True, 0, 0), (True, 0, 0)]


def test_an_error_names_each_address_that_was_tried_and_the_next_attempt_tries_them_again() -> None:
    play = playing(3)
    files, alice = play.server, play.client("alice")
    greeting = alice.greets()
    for cause in (NO_ROUTE, Cause(End.REFUSED, status=502), Cause(End.UNREACHABLE, "no such host")):
        files.breaks_off(files.is_asked("initialize"), cause)
    text = (
        "the server could not be connected to: https://a/mcp: refused; "
        "https://b/mcp: it answered with HTTP status 502; https://c/mcp: no such host"
    )
    alice.is_answered(greeting, error={"code": -31004, "message": text})
    assert went(play) == [0, 1, 2]
    bob = play.client("bob")
    greeting = bob.greets()
    files.breaks_off(files.is_asked("initialize"), NO_ROUTE)
    files.is_greeted()
    bob.is_answered(greeting, ...)
    assert went(play) == [0, 1, 1, 1]
    assert shown(play) == [(False, 0, 1), (True, 1, 0), (False, 0, 1)]


def test_nothing_of_an_address_that_failed_reaches_the_next() -> None:
    """A cookie of the first address is not sent to the second, not even one that comes late."""
    play = playing()
    files, alice = play.server, play.client("alice")
    greeting = alice.greets()
    begun = files.is_asked("initialize")
    cookies = (("at", "a"),)
    play.happens(play.engine.receive_open, begun.channel, Connected(session="S-a", cookies=cookies))
    files.breaks_off(begun)
    files.is_greeted(session="S-b")
    alice.is_answered(greeting, ...)
    call = alice.asks("tools/call", TOOL)
    files.answers(files.is_asked("tools/call"))
    alice.is_answered(call)
    assert all(not target.cookies and target.session != "S-a" for target in play.dialled)


def test_a_cookie_that_comes_late_is_not_sent_to_another_address() -> None:
    """The server is asked in one era, does not answer in time, is asked in the other, and fails."""
    play = playing()
    files, alice = play.server, play.client("alice", "http", era=Era.STATELESS)
    call = alice.asks("prompts/get", TOOL)
    late = files.is_asked("server/discover")
    play.slow.add(late.channel)
    play.waits(Limits().probe_timeout_s)
    files.is_closed(late)
    files.refuses(files.is_asked("initialize"), 503)
    play.carry_out(play.ends(late.channel, Cause(End.DONE, cookies=(("at", "a"),))))
    files.era = Era.STATELESS
    files.is_greeted()
    files.answers(files.is_asked("prompts/get"))
    alice.is_answered(call)
    assert all(not target.cookies for target in play.dialled)
    assert went(play) == [0, 0, 1, 1]


def test_a_server_that_has_answered_initialize_is_not_left_over_a_question() -> None:
    """A server without an `Mcp-Session-Id` is asked whether it knows the other era. It need not."""
    play = playing()
    files, alice = play.server, play.client("alice")
    greeting = alice.greets()
    files.session = None
    result = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "files", "version": "1"}}
    files.answers(files.is_asked("initialize"), result)
    files.refuses(files.is_asked("server/discover"), 503)
    files.is_notified("initialized")
    files.is_listened_to()
    alice.is_answered(greeting, ...)
    assert set(went(play)) == {0}


def test_a_session_whose_event_stream_cannot_be_opened_is_begun_anew_elsewhere() -> None:
    """The client waits for updates, and sends no request."""
    play = playing()
    files, alice = play.server, play.client("alice")
    alice.meets(files, listens=True, able={"resources": {"subscribe": True}})
    subscription = alice.asks("resources/subscribe", {"uri": "a:b"})
    files.answers(files.is_asked("resources/subscribe"))
    alice.is_answered(subscription)
    went(play)
    files.breaks_off(files.stream)
    for _ in range(20):
        waits_for_news(play)
        if play.unexpected[0].verb == "is asked":
            break
        files.is_listened_to()
        files.breaks_off(files.stream, NO_ROUTE)
    files.is_greeted(session="S2")
    files.answers(files.is_asked("resources/subscribe", {"uri": "a:b"}))
    assert went(play)[-4:] == [1, 1, 1, 1]
    assert shown(play) == [(False, 0, 2), (True, 1, 0)]


def test_a_request_is_never_sent_to_another_address_once_it_may_have_run() -> None:
    play = playing()
    files, alice = play.server, play.client("alice")
    alice.meets(files)
    went(play)
    for cause in (Cause(End.BROKEN), Cause(End.REFUSED, status=502), Cause(End.REFUSED, status=503)):
        call = alice.asks("tools/call", TOOL)
        files.breaks_off(files.is_asked("tools/call"), cause)
        alice.is_answered(call, error={})
    assert went(play) == [0, 0, 0]


def test_a_session_whose_address_is_gone_for_a_whole_pause_is_begun_anew_elsewhere() -> None:
    """Before that its requests fail as they do with one address. Whatever the pause, the server that forgets a session
    is asked for another one at the best address."""
    play = playing()
    files, alice, bob = play.server, play.client("alice"), play.client("bob")
    alice.meets(files)
    bob.meets(files)
    went(play)
    call = alice.asks("tools/call", TOOL)
    for _ in range(2):
        files.breaks_off(files.is_asked("tools/call"), NO_ROUTE)
    alice.is_answered(call, error={"code": -31004})
    assert went(play) == [0, 0]
    play.waits(PAUSE_S)
    call = alice.asks("tools/call", TOOL)
    files.breaks_off(files.is_asked("tools/call"), NO_ROUTE)
    files.is_greeted(session="S2")
    files.answers(files.is_asked("tools/call"))
    alice.is_answered(call)
    assert went(play) == [0, 1, 1, 1, 1]
    assert shown(play) == [(False, 0, 2), (True, 2, 0)]
    play.waits(2 * PAUSE_S)
    call = bob.asks("tools/call", TOOL)
    files.refuses(files.is_asked("tools/call"), 404)
    files.is_greeted(session="S3")
    files.answers(files.is_asked("tools/call"))
    bob.is_answered(call)
    assert went(play) == [1, 0, 0, 0, 0]


def test_a_server_without_sessions_is_left_at_once_for_an_address_that_is_well() -> None:
    play = playing(era=Era.STATELESS)
    files, alice = play.server, play.client("alice", "http", era=Era.STATELESS)
    alice.meets(files)
    went(play)
    call = alice.asks("prompts/get", TOOL)
    files.breaks_off(files.is_asked("prompts/get"), NO_ROUTE)
    files.is_greeted()
    files.answers(files.is_asked("prompts/get"))
    alice.is_answered(call)
    assert set(went(play)[1:]) == {1}


def test_a_two_way_stream_that_cannot_be_opened_is_opened_at_the_next_address() -> None:
    """A stream that ends later is lost, and the next one opened at the best address."""
    play = playing(kind=Kind.SOCKET)
    files, alice = play.server, play.client("alice")
    greeting = alice.greets()
    files.is_started()
    files.breaks_off(files.channel, NO_ROUTE)
    files.starts()
    alice.is_answered(greeting, ...)
    assert went(play) == [0, 1]
    call = alice.asks("tools/call", TOOL)
    files.is_asked("tools/call")
    files.dies("it hung up", end=End.GONE)
    text = "the server was lost before it answered: it hung up. tools/call may have run; it is not repeated"
    alice.is_answered(call, error={"message": text})
    assert shown(play) == [(False, 0, 1), (True, 0, 0)]
    call = alice.asks("tools/call", TOOL)
    files.starts()
    files.answers(files.is_asked("tools/call"))
    alice.is_answered(call)
    assert went(play) == [1]


def test_an_address_that_does_not_answer_in_time_is_left_alone() -> None:
    play = playing(era=Era.HANDSHAKE, start_timeout_s=5.0)
    files, alice = play.server, play.client("alice")
    greeting = alice.greets()
    files.is_asked("initialize")
    play.silent.update(play.owners)
    play.waits(5.0)
    alice.is_answered(greeting, error={"code": -31004})
    play.client("bob").meets(files)
    assert shown(play) == [(False, 0, 1), (True, 1, 0)]


def test_a_server_known_to_be_without_sessions_that_is_silent_is_asked_at_the_next_address() -> None:
    """Silence says nothing about the era then."""
    play = playing(era=Era.STATELESS)
    files = play.server
    alice, bob = (play.client(name, "http", era=Era.STATELESS, principal=name) for name in ("alice", "bob"))
    alice.meets(files)
    went(play)
    call = bob.asks("prompts/get", TOOL)
    silent = files.is_asked("server/discover")
    play.waits(Limits().probe_timeout_s)
    files.is_closed(silent)
    files.is_greeted()
    files.answers(files.is_asked("prompts/get"))
    bob.is_answered(call)
    assert went(play)[:2] == [1, 0]
    assert shown(play)[1] == (False, 0, 1)


def test_an_operator_who_starts_the_server_makes_all_addresses_well() -> None:
    play = playing()
    files, alice = play.server, play.client("alice")
    greeting = alice.greets()
    for _ in range(2):
        files.breaks_off(files.is_asked("initialize"), NO_ROUTE)
    alice.is_answered(greeting, error={})
    assert shown(play) == [(False, 0, 1), (False, 0, 1)]
    play.happens(play.engine.receive_command, "files", Command.START)
    assert shown(play) == [(True, 0, 0), (True, 0, 0)]
