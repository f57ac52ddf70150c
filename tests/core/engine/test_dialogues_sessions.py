"""Dialogues of one session: who is asked where, what is cancelled, what waits, what is idle, and how it ends."""

from __future__ import annotations

from typing import Any

import pytest
from dialogue import Dialogue
from dialogue_peers import Client, Request, Server
from expected_values import Containing
from isthmus.core import Cause, End, Kind, Limits, ServerPlan

DOWNS = pytest.mark.parametrize("down", ["pipe", "http"])
UPS = pytest.mark.parametrize("up", [Kind.PIPE, Kind.HTTP], ids=["pipe", "http"])
TOOL = {"name": "t"}


def meeting(
    down: str = "http", up: Kind = Kind.PIPE, *, limits: Limits | None = None, listens: bool = True, **plan: Any
) -> tuple[Dialogue, Server, Client]:
    """Returns a server and a client that have met. Over HTTP the server has an event stream."""
    play = Dialogue(ServerPlan(id="files", kind=up, **plan), limits=limits)
    (alice := play.client("alice", down)).meets(play.server, listens=listens)
    return play, play.server, alice


def call(alice: Client, files: Server, **params: Any) -> tuple[Request, Request]:
    """Returns a call as its client asked it, and as the server got it."""
    return alice.asks("tools/call", TOOL | params), files.is_asked("tools/call")


# --- Where messages go ------------------------------------------------------------------------------------------------


@UPS
def test_other_messages_go_on_the_stream_of_the_only_call_or_on_the_event_stream(up: Kind) -> None:
    """Changes go to the event stream even while a call is open."""
    _, files, alice = meeting(up=up)
    stream = alice.listens()
    for calls in range(3):
        request = call(alice, files)[0] if calls else stream
        files.notifies("message", {"level": "info", "data": calls})
        alice.is_notified("message", on=request if calls == 1 else stream)
        for method in ("tools/list_changed", "prompts/list_changed", "resources/list_changed", "resources/updated"):
            files.notifies(method)
            alice.is_notified(method, None, on=stream)


def test_without_an_event_stream_questions_go_on_the_stream_of_the_latest_call() -> None:
    _, files, alice = meeting()
    call(alice, files)
    latest, _ = call(alice, files)
    files.asks("elicitation/create", {})
    alice.is_asked("elicitation/create", on=latest)


@pytest.mark.parametrize("is_lost", [False, True])
def test_changes_wait_coalesced_until_the_event_stream_opens(is_lost: bool) -> None:
    _, files, alice = meeting()
    if is_lost:
        alice.hangs_up(alice.listens())
    else:
        call(alice, files)
    updates = [{"uri": f"file:///{name}"} for name in "ab"]
    for params in (None, updates[0], None, *reversed(updates), None):
        files.notifies("resources/updated" if params else "tools/list_changed", params)
    stream = alice.listens()
    alice.is_notified("tools/list_changed", None, on=stream)
    for params in updates:
        alice.is_notified("resources/updated", params, on=stream)


# --- Cancelling -------------------------------------------------------------------------------------------------------


@UPS
@pytest.mark.parametrize("late", ["result", "error", "progress"])
def test_late_answers_to_cancelled_requests_are_dropped(up: Kind, late: str) -> None:
    """The id is free again."""
    _, files, alice = meeting("pipe", up)
    request, asked = call(alice, files, _meta={"progressToken": 1})
    alice.cancels(request)
    files.is_cancelled(asked)
    if late == "progress":
        files.notifies("progress", {"progressToken": asked.id, "progress": 1}, on=asked)
    else:
        files.answers(asked, error=-32800 if late == "error" else None)
    again = alice.asks("tools/call", TOOL, id=request.id)
    files.answers(files.is_asked("tools/call"), {"again": 1})
    alice.is_answered(again, {"again": 1})


def test_only_an_open_request_of_the_session_can_be_cancelled() -> None:
    """A server is not told to cancel `initialize`, a request of another session, or one of two with the same id."""
    play, files, alice = meeting(up=Kind.HTTP, listens=False)
    bob = play.client("bob")
    greeting = bob.greets()
    begun = files.is_asked("initialize")
    bob.cancels(greeting)
    files.is_greeted(session="S2", greeting=begun)
    bob.is_answered(greeting, ...)
    calls = []
    for _ in range(2):
        calls.append((alice.asks("tools/call", TOOL, id="x"), files.is_asked("tools/call")))
    for client in (alice, bob):
        client.notifies("cancelled", {"requestId": "x"})
    for request, asked in calls:
        files.answers(asked)
        alice.is_answered(request)


@UPS
def test_a_request_cancelled_before_it_was_written_never_is(up: Kind) -> None:
    play = Dialogue(ServerPlan(id="files", kind=up))
    files, alice = play.server, play.client("alice")
    greeting = alice.greets()
    begun = None
    if files.is_url:
        begun = files.is_asked("initialize")
    else:
        files.is_started()
    dropped = alice.asks("tools/call", {"n": 1})
    alice.asks("tools/call", {"n": 2})
    alice.cancels(dropped)
    if not files.is_url:
        files.connects()
    files.is_greeted(greeting=begun)
    alice.is_answered(greeting, ...)
    files.is_asked("tools/call", {"n": 2})


@pytest.mark.parametrize("ends", [True, False])
def test_a_cancelled_requests_stream_is_closed_after_a_grace(ends: bool) -> None:
    """SDK servers do not end the stream themselves. Until the grace is over they may still send on it."""
    play, files, alice = meeting(up=Kind.HTTP)
    request, asked = call(alice, files)
    alice.cancels(request)
    files.is_cancelled(asked)
    alice.is_closed(request)
    play.waits(1.9)
    if ends:
        files.breaks_off(asked, Cause(End.DONE))
    play.waits(0.2)
    if not ends:
        files.is_closed(asked)
    play.waits(10)


# --- Questions --------------------------------------------------------------------------------------------------------


@UPS
@DOWNS
def test_a_question_is_answered_once_under_the_servers_id(up: Kind, down: str) -> None:
    """An id that the server uses twice at once is refused. A withdrawn question is not answered."""
    _, files, alice = meeting(down, up)
    if down == "http":
        alice.listens()
    question = files.asks("roots/list", id=1)
    asking = alice.is_asked("roots/list")
    files.is_answered(files.asks("sampling/createMessage", {}, id=1), error=-32600)
    alice.answers(asking, {"n": 1})
    files.is_answered(question, {"n": 1})
    alice.answers(asking, {"n": 2})
    refused = files.asks("elicitation/create", {}, id="q")
    alice.answers(alice.is_asked("elicitation/create"), error=-1)
    files.is_answered(refused, error={"code": -1, "message": "no"})
    withdrawn = files.asks("elicitation/create", {}, id="w")
    asking = alice.is_asked("elicitation/create")
    files.cancels(withdrawn)
    alice.is_cancelled(asking)
    alice.answers(asking)


def test_a_question_that_is_withdrawn_while_it_waits_is_never_asked() -> None:
    _, files, alice = meeting()
    files.cancels(files.asks("elicitation/create", {}))
    alice.listens()


def test_questions_of_a_lost_server_are_cancelled_and_not_answered_to_its_successor() -> None:
    _, files, alice = meeting()
    alice.listens()
    files.asks("elicitation/create", {})
    asking = alice.is_asked("elicitation/create")
    files.dies()
    alice.is_cancelled(asking)
    alice.asks("tools/list")
    files.starts()
    files.is_asked("tools/list")
    alice.answers(asking)


@UPS
def test_questions_are_bounded_and_each_that_waits_has_its_own_time(up: Kind) -> None:
    """A question that was asked does not wait any more."""
    limits = Limits(questions_per_session_max=2, held_timeout_s=30.0)
    play, files, alice = meeting(up=up, limits=limits)
    first = files.asks("roots/list")
    play.waits(20.0)
    second = files.asks("roots/list")
    files.is_answered(files.asks("roots/list"), error=-32603)
    play.waits(9.9)
    play.waits(0.2)
    files.is_answered(first, error=-32603)
    play.waits(19.0)
    alice.listens()
    asking = alice.is_asked("roots/list")
    play.waits(100.0)
    alice.answers(asking)
    files.is_answered(second)
    files.asks("roots/list")
    alice.is_asked("roots/list")


# --- Bounds -----------------------------------------------------------------------------------------------------------


@DOWNS
def test_requests_of_a_session_are_bounded_until_one_is_answered(down: str) -> None:
    """Other sessions are not affected."""
    play, files, alice = meeting(down, Kind.HTTP, limits=Limits(exchanges_per_session_max=3), listens=False)
    (bob := play.client("bob")).meets(files, session="S2")
    request, asked = call(alice, files)
    for _ in range(2):
        call(alice, files)
    alice.is_answered(alice.asks("tools/call", TOOL), error=-31007)
    bob.asks("prompts/list")
    files.is_asked("prompts/list")
    files.answers(asked)
    alice.is_answered(request)
    call(alice, files)


@UPS
@pytest.mark.parametrize("has_progress", [False, True])
def test_a_request_whose_server_says_nothing_ends_at_its_limit(up: Kind, has_progress: bool) -> None:
    """Progress starts the time anew."""
    play, files, alice = meeting(up=up, limits=Limits(reply_timeout_s=50.0, cancel_grace_s=2.0))
    request, asked = call(alice, files, _meta={"progressToken": "t"})
    for number in range(4 if has_progress else 0):
        play.waits(49.0)
        token = asked.params["_meta"]["progressToken"]
        files.notifies("progress", {"progressToken": token, "progress": number}, on=asked)
        alice.is_notified("progress", {"progressToken": "t", "progress": number}, on=request)
    play.waits(49.9)
    play.waits(0.2)
    alice.is_answered(request, error={"code": -31008, "data": {"outcome": "unknown"}})
    files.is_cancelled(asked)
    play.waits(2.1)
    if files.is_url:
        files.is_closed(asked)


@pytest.mark.parametrize("busy", ["", "call", "stream"])
def test_a_session_ends_when_it_is_idle(busy: str) -> None:
    """A request, or an open event stream, keeps it."""
    play, files, alice = meeting(limits=Limits(session_idle_ttl_s=60.0))
    play.waits(59.0)
    if busy == "call":
        request, asked = call(alice, files)
        play.waits(1000.0)
        files.answers(asked)
        alice.is_answered(request)
    elif busy == "stream":
        stream = alice.listens()
        play.waits(1000.0)
        alice.hangs_up(stream)
    else:
        alice.is_answered(alice.asks("ping"))
    play.waits(59.0)
    assert play.engine.session_count == 1
    play.waits(1.1)
    files.is_closed()
    assert play.engine.session_count == 0
    alice.is_refused(alice.asks("tools/list"))


# --- Ends -------------------------------------------------------------------------------------------------------------


def test_a_draining_proxy_takes_nothing_new_and_finishes_what_runs() -> None:
    play, files, alice = meeting(up=Kind.HTTP)
    request, asked = call(alice, files)
    play.happens(play.engine.receive_drain)
    alice.is_answered(alice.asks("tools/call", TOOL), error=-31007)
    for down in ("pipe", "http"):
        late = play.client("bob", down)
        late.is_answered(late.greets(), error=-31007)
    alice.is_answered(alice.asks("ping"))
    alice.notifies("cancelled", {"requestId": 99})
    files.answers(asked, {"n": 1})
    alice.is_answered(request, {"n": 1})


@UPS
def test_stop_answers_every_request_and_closes_everything(up: Kind) -> None:
    """The error of a call says whether it may have run."""
    play, files, alice = meeting(up=up)
    stream = alice.listens()
    request, asked = call(alice, files)
    bob = play.client("bob")
    greeting = bob.greets()
    if files.is_url:
        files.is_asked("initialize")
    else:
        files.is_started()
    waiting = bob.asks("tools/call", TOOL)
    play.stops()
    told = {"code": -31001, "message": Containing("the proxy is shutting down: "), "data": {"outcome": "unknown"}}
    alice.is_answered(request, error=told)
    not_run = {"message": "the proxy is shutting down: tools/call did not run", "data": {"outcome": "not_executed"}}
    alice.is_closed(stream)
    bob.is_answered(greeting, error=-31007)
    bob.is_answered(waiting, error=not_run)
    bob.is_closed()
    files.is_cancelled(asked)
    if files.is_url:
        files.is_left()
    for _ in range(3 if files.is_url else 2):
        files.is_closed()
    play.waits(10.0)
    assert (play.engine.session_count, play.engine.exchange_count, play.engine.next_timeout()) == (0, 0, None)
    play.stops()
