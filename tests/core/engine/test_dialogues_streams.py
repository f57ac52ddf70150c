"""Dialogues on event streams of clients that outlive their connections: a client that was cut off gets the rest."""

from __future__ import annotations

import pytest
from dialogue import Dialogue
from dialogue_peers import HANDSHAKE, Client, Request, Server
from isthmus.core import Kind, Limits, ServerPlan

CHANGED = "tools/list_changed"
UPS = pytest.mark.parametrize("up", [Kind.PIPE, Kind.HTTP], ids=["pipe", "http"])
OLD = ["2024-11-05", "2025-03-26", "2025-06-18"]


def meeting(up: Kind = Kind.PIPE, *, limits: Limits | None = None, **alice: str) -> tuple[Dialogue, Server, Client]:
    play = Dialogue(ServerPlan(id="files", kind=up), limits=limits)
    (client := play.client("alice", "http", **alice)).meets(play.server)
    return play, play.server, client


def call(alice: Client, files: Server) -> tuple[Request, Request]:
    """Returns a call as its client asked it, and as the server got it."""
    return alice.asks("tools/call"), files.is_asked("tools/call")


def logs(files: Server, asked: Request | None, *numbers: int) -> None:
    for each in numbers:
        files.notifies("message", {"data": each}, on=asked)


def sees(alice: Client, on: Request, *numbers: int) -> None:
    for each in numbers:
        alice.is_notified("message", {"data": each}, on=on)


def cut_off(alice: Client, files: Server) -> tuple[Request, Request]:
    """Returns a call whose connection is lost after one message."""
    request, asked = call(alice, files)
    logs(files, asked, 0)
    sees(alice, request, 0)
    alice.hangs_up(request)
    return request, asked


# --- Resuming ---------------------------------------------------------------------------------------------------------


def test_the_newest_connection_of_a_stream_has_it() -> None:
    """An older one is closed, also if it looks alive. Each gets what came after the event that it names."""
    _, files, alice = meeting()
    request, asked = cut_off(alice, files)
    logs(files, asked, 1)
    first = alice.resumes(request)
    sees(alice, first, 1)
    second = alice.resumes(request)
    sees(alice, second, 1)
    alice.is_closed(first)
    logs(files, asked, 2)
    sees(alice, second, 2)
    third = alice.resumes(second)
    alice.is_closed(second)
    logs(files, asked, 3)
    sees(alice, third, 3)
    files.answers(asked)
    alice.is_answered(third)


def test_an_answer_that_was_missed_can_be_had_until_it_is_too_old() -> None:
    """A client that has seen it gets an empty stream. A call without a connection keeps its session."""
    play, files, alice = meeting(limits=Limits(stream_ttl_s=300.0, session_idle_ttl_s=400.0))
    request, asked = cut_off(alice, files)
    play.waits(1000.0)
    files.answers(asked)
    play.waits(299.9)
    for _ in range(2):
        resumed = alice.resumes(request)
        alice.is_answered(resumed)
    alice.is_closed(alice.resumes(resumed))
    play.waits(0.2)
    for each in (request, resumed):
        alice.is_refused(alice.resumes(each))
    play.waits(399.0)
    assert play.engine.session_count == 1, "a client that resumes is active"
    play.waits(1.1)
    assert play.engine.session_count == 0
    files.is_closed()


@pytest.mark.parametrize("revision", [HANDSHAKE, *OLD[1:]])
def test_all_revisions_with_event_ids_can_resume(revision: str) -> None:
    _, files, alice = meeting(revision=revision)
    request, asked = cut_off(alice, files)
    logs(files, asked, 1)
    files.answers(asked)
    resumed = alice.resumes(request)
    sees(alice, resumed, 1)
    alice.is_answered(resumed)


def test_a_reply_cut_off_before_it_named_an_id_is_lost() -> None:
    play, files, alice = meeting()
    request, asked = call(alice, files)
    alice.hangs_up(request)
    logs(files, asked, 1)
    files.answers(asked)
    assert (request.channel in alice.seen, play.engine.exchange_count) == (False, 0)


# --- The session's own streams ----------------------------------------------------------------------------------------


def test_a_get_stream_that_is_resumed_goes_on_after_what_was_missed_and_what_waited() -> None:
    _, files, alice = meeting()
    stream = alice.listens()
    logs(files, None, 1)
    sees(alice, stream, 1)
    alice.hangs_up(stream)
    for number in (2, 3):
        logs(files, None, number)
        files.notifies(CHANGED)
    files.asks("roots/list")
    resumed = alice.resumes(stream, 0)
    sees(alice, resumed, 1, 2)
    alice.is_notified(CHANGED, on=resumed)
    sees(alice, resumed, 3)
    alice.is_asked("roots/list", on=resumed)
    logs(files, None, 4)
    sees(alice, resumed, 4)


def test_a_get_stream_that_is_resumed_is_the_newest_and_counts_among_them() -> None:
    _, files, alice = meeting(limits=Limits(streams_per_session_max=2))
    streams = [alice.listens() for _ in range(2)]
    again = alice.resumes(streams[0])
    alice.is_closed(streams[0])
    files.notifies(CHANGED)
    alice.is_notified(CHANGED, on=again)
    alice.listens()
    alice.is_closed(streams[1])


@pytest.mark.parametrize("is_resumed", [True, False])
def test_messages_of_a_call_and_of_the_session_keep_their_streams(is_resumed: bool) -> None:
    """Messages of a call wait on its stream while that is cut off, and changes for a stream of the session."""
    _, files, alice = meeting()
    request, asked = cut_off(alice, files)
    if is_resumed:
        request = alice.resumes(request)
    logs(files, asked, 1)
    if is_resumed:
        sees(alice, request, 1)
    files.notifies(CHANGED)
    files.asks("elicitation/create", {})
    if is_resumed:
        alice.is_asked("elicitation/create", on=request)
    alice.is_notified(CHANGED, on=alice.listens())
    if not is_resumed:
        resumed = alice.resumes(request)
        sees(alice, resumed, 1)
        alice.is_asked("elicitation/create", on=resumed)


def test_messages_of_one_of_several_calls_come_on_its_own_stream() -> None:
    """A message of a call comes neither on the session's own stream nor on that of another call."""
    _, files, alice = meeting(Kind.HTTP)
    alice.listens()
    calls = [call(alice, files) for _ in range(2)]
    for number, (request, asked) in enumerate(calls):
        logs(files, asked, number)
        sees(alice, request, number)
        files.asks("elicitation/create", {}, on=asked)
        alice.is_asked("elicitation/create", on=request)


# --- Questions --------------------------------------------------------------------------------------------------------


@UPS
def test_a_question_on_a_stream_without_connection_is_asked_when_it_is_resumed(up: Kind) -> None:
    """A form takes its time. Its second answer is dropped, and a client that resumes gets the question again."""
    play, files, alice = meeting(up, limits=Limits(held_timeout_s=30.0))
    request, asked = cut_off(alice, files)
    question = files.asks("elicitation/create", {}, on=asked)
    play.waits(29.0)
    asking = alice.is_asked("elicitation/create", on=alice.resumes(request))
    play.waits(1000.0)
    alice.answers(asking, {"action": "accept"})
    files.is_answered(question, {"action": "accept"})
    alice.answers(asking, {"action": "accept"})
    again = alice.resumes(request)
    assert alice.is_asked("elicitation/create", on=again).id == asking.id
    alice.is_closed(asking)
    alice.answers(asking)


@pytest.mark.parametrize("how", ["late", "withdrawn"])
def test_a_question_that_is_over_comes_with_its_withdrawal(how: str) -> None:
    """The question is refused when its client does not come back. A late answer is dropped."""
    play, files, alice = meeting(limits=Limits(held_timeout_s=30.0))
    request, asked = cut_off(alice, files)
    question = files.asks("elicitation/create", {}, on=asked)
    if how == "withdrawn":
        files.cancels(question)
    else:
        play.waits(29.9)
        play.waits(0.2)
        files.is_answered(question, error=-32603)
    resumed = alice.resumes(request)
    asking = alice.is_asked("elicitation/create", on=resumed)
    alice.is_cancelled(asking)
    alice.answers(asking)
    play.waits(1000.0)


@pytest.mark.parametrize("is_seen", [True, False])
def test_a_question_has_its_time_from_when_its_client_could_see_it(is_seen: bool) -> None:
    """The loss of the connection does not matter. A resumption gives the time anew."""
    play, files, alice = meeting(limits=Limits(held_timeout_s=30.0, question_timeout_s=100.0))
    if is_seen:
        request, asked = call(alice, files)
        question = files.asks("elicitation/create", {}, on=asked)
        asking = alice.is_asked("elicitation/create", on=request)
        alice.hangs_up(request)
        play.waits(99.0)
        alice.answers(asking)
        return files.is_answered(question)
    request, asked = cut_off(alice, files)
    question = files.asks("elicitation/create", {}, on=asked)
    play.waits(20.0)
    resumed = alice.resumes(request)
    asking = alice.is_asked("elicitation/create", on=resumed)
    play.waits(99.0)
    play.waits(1.1)
    files.is_answered(question, error=-31008)
    return alice.is_cancelled(asking)


@pytest.mark.parametrize("was_back", [False, True])
def test_a_question_that_its_client_has_not_seen_is_not_withdrawn_elsewhere(was_back: bool) -> None:
    """After the answer there is no place for the withdrawal but the session's own stream."""
    play, files, alice = meeting(limits=Limits(held_timeout_s=30.0, question_timeout_s=30.0))
    request, asked = cut_off(alice, files)
    question = files.asks("elicitation/create", {}, on=asked)
    if was_back:
        resumed = alice.resumes(request)
        asking = alice.is_asked("elicitation/create", on=resumed)
        alice.hangs_up(resumed)
    files.answers(asked)
    alice.listens()
    play.waits(31.0)
    files.is_answered(question, error={})
    if was_back:
        alice.is_cancelled(asking)


# --- Cancelling -------------------------------------------------------------------------------------------------------


@UPS
@pytest.mark.parametrize("when", ["connected", "away"])
@pytest.mark.parametrize("revision", [HANDSHAKE, *OLD[1:]])
def test_a_cancelled_call_whose_stream_has_named_an_id_ends_with_an_answer(up: Kind, when: str, revision: str) -> None:
    """The client of a stream that just ended would resume it."""
    _, files, alice = meeting(up, revision=revision)
    request, asked = cut_off(alice, files) if when == "away" else call(alice, files)
    if when == "connected":
        logs(files, asked, 0)
        sees(alice, request, 0)
    alice.cancels(request)
    if when == "connected":
        alice.is_answered(request, error=-32800)
    files.is_cancelled(asked)
    files.answers(asked)
    resumed = alice.resumes(request, 0)
    alice.is_answered(resumed, error=-32800)
