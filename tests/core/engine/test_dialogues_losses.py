"""Dialogues with servers that forget sessions, die, refuse requests or do not start: a tool call is written once,
unless it is certain that it did not run."""

from __future__ import annotations

from typing import Any

import pytest
from dialogue import Dialogue
from dialogue_peers import HANDSHAKE, Client, Server
from expected_values import Containing, Minted
from isthmus.core import Cause, End, Kind, Limits, ServerPlan
from isthmus.core.base.methods import SAFE_TO_REPEAT

RESET = Cause(End.BROKEN, detail="connection reset")
UNREACHABLE = Cause(End.UNREACHABLE, detail="connection refused", unsent=True)
UPS = pytest.mark.parametrize("up", [Kind.PIPE, Kind.HTTP], ids=["pipe", "http"])
DOWNS = pytest.mark.parametrize("down", ["pipe", "http"])
TOOL = {"name": "t"}
A, B, C = {"uri": "file:///a"}, {"uri": "file:///b"}, {"uri": "file:///c"}
GREETED = {"protocolVersion": HANDSHAKE, "capabilities": {}}


def meeting(
    down: str = "http", up: Kind = Kind.HTTP, *, limits: Limits | None = None, listens: bool = False, **plan: Any
) -> tuple[Dialogue, Server, Client]:
    play = Dialogue(ServerPlan(id="files", kind=up, **plan), limits=limits)
    alice = play.client("alice", down)
    alice.meets(play.server, listens=listens)
    return play, play.server, alice


def settled(client: Client, files: Server, method: str, params: Any, error: int | None = None) -> None:
    request = client.asks(method, params)
    files.answers(files.is_asked(method, params), error=error)
    client.is_answered(request, error=error)


def lose(play: Dialogue) -> None:
    """Ends the upstream session with nothing open on it: the process dies, or the GET stream gets 404."""
    files = play.server
    if not files.is_url:
        return files.dies("exit 1: out of memory")
    files.breaks_off(files.stream, RESET)
    play.waits(1.0)
    files.is_listened_to()
    return files.refuses(files.stream, 404)


def is_begun(files: Server) -> None:
    """Expects a start, which comes no further than the first thing that is sent."""
    if files.is_url:
        files.is_asked("initialize")
    else:
        files.is_started()


def fails_to_start(files: Server, cause: Cause = UNREACHABLE) -> None:
    files.breaks_off(files.is_asked("initialize") if files.is_url else files.channel, cause)


# --- The server forgot the session ------------------------------------------------------------------------------------


def test_many_refusals_at_once_make_one_new_session_and_each_request_is_sent_again_once() -> None:
    _, files, alice = meeting()
    calls, first_time = [], []
    for number in range(3):
        calls.append(alice.asks("tools/call", {"n": number}))
        first_time.append(files.is_asked("tools/call", {"n": number}))
    first, second, third = first_time
    files.refuses(first, 404)
    greeting = files.is_asked("initialize")
    files.refuses(second, 404)
    files.session = "S2"
    files.answers(greeting, GREETED)
    files.is_notified("initialized")
    files.is_listened_to()
    files.refuses(files.stream, 405)
    again = [files.is_asked("tools/call", {"n": n}) for n in (0, 1)]
    assert {each.post.session for each in again if each.post} == {"S2"}
    assert first.id not in {each.id for each in again}
    files.refuses(third, 404)
    again.append(files.is_asked("tools/call", {"n": 2}))
    for request, asked in zip(calls, again, strict=True):
        files.answers(asked, {"of": request.params})
        alice.is_answered(request, {"of": request.params})


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_the_plan_sets_how_often_a_refused_request_is_sent_again(retries: int) -> None:
    _, files, alice = meeting(session_retries=retries)
    call = alice.asks("tools/call", TOOL)
    for number in range(retries):
        files.refuses(files.is_asked("tools/call"), 404)
        files.starts(session=f"T{number}")
    files.refuses(files.is_asked("tools/call"), 404)
    alice.is_answered(call, error={"code": -31004, "data": {"httpStatus": 404, "body": ""}})


@pytest.mark.parametrize("asks", [False, True])
def test_calls_on_their_own_streams_outlive_a_forgotten_session(asks: bool) -> None:
    """A question of the forgotten session is not asked: its answer could not be delivered."""
    _, files, alice = meeting()
    call = alice.asks("tools/call", TOOL)
    long = files.is_asked("tools/call", TOOL)
    listing = alice.asks("tools/list")
    files.refuses(files.is_asked("tools/list"), 404)
    files.starts(session="S2")
    files.answers(files.is_asked("tools/list"))
    alice.is_answered(listing)
    if asks:
        files.asks("elicitation/create", {}, on=long)
    files.answers(long, {"n": 1})
    alice.is_answered(call, {"n": 1})


# --- Restored state ---------------------------------------------------------------------------------------------------


@UPS
def test_log_level_and_subscriptions_are_set_again_before_the_first_request(up: Kind) -> None:
    """Subscriptions restart a lost server without a request. What cannot be restored holds up no request."""
    play, files, alice = meeting(up=up, listens=True)
    for level in ("info", "debug"):
        settled(alice, files, "logging/setLevel", {"level": level})
    for resource in (A, B, C):
        settled(alice, files, "resources/subscribe", resource)
    settled(alice, files, "resources/unsubscribe", B)
    settled(alice, files, "resources/subscribe", {"uri": "file:///refused"}, error=-1)
    lose(play)
    files.starts(session="S2")
    level = files.is_asked("logging/setLevel", {"level": "debug"})
    first, last = files.is_asked("resources/subscribe", A), files.is_asked("resources/subscribe", C)
    listing = alice.asks("tools/list")
    files.answers(level)
    files.answers(first)
    files.answers(last, error=-32002)
    files.answers(files.is_asked("tools/list"))
    alice.is_answered(listing)


def test_a_session_forgotten_while_it_is_set_up_again_is_not_used() -> None:
    """Restoring a subscription gets 404. Waiting clients get errors, and the next request makes another session."""
    play, files, alice = meeting()
    settled(alice, files, "resources/subscribe", A)
    listing = alice.asks("tools/list")
    files.refuses(files.is_asked("tools/list"), 404)
    files.starts(session="S2")
    files.refuses(files.is_asked("resources/subscribe", A), 404)
    alice.is_answered(listing, error=-31004)
    play.waits(Limits().restart_backoff_s)
    files.starts(session="S3")
    again = files.is_asked("resources/subscribe", A)
    alice.asks("tools/list")
    files.answers(again)
    asked = files.is_asked("tools/list")
    assert again.post is not None
    assert asked.post is not None
    assert again.post.session == asked.post.session == "S3"


@UPS
def test_without_subscriptions_a_lost_server_is_restarted_by_the_next_request(up: Kind) -> None:
    play, files, alice = meeting(up=up, listens=True)
    lose(play)
    play.waits(600)
    for number, method in enumerate(("tools/call", "tools/list", "prompts/list")):
        alice.asks(method)
        if not number:
            is_begun(files)


def test_subscriptions_restart_it_even_when_the_first_starts_fail() -> None:
    play, files, alice = meeting(up=Kind.PIPE, limits=Limits(restart_backoff_s=1.0, restart_backoff_max_s=4.0))
    settled(alice, files, "resources/subscribe", A)
    lose(play)
    for pause in (1.0, 2.0, 4.0, 4.0):
        files.is_started()
        files.breaks_off(files.channel, UNREACHABLE)
        play.waits(pause - 0.01)
        play.waits(0.01)
    files.starts()
    files.is_asked("resources/subscribe", A)


# --- Requests that are lost -------------------------------------------------------------------------------------------


@DOWNS
@pytest.mark.parametrize("method", [*sorted(SAFE_TO_REPEAT), "tools/call", "vendor/unheard"])
def test_only_requests_that_only_read_are_repeated_once_when_the_process_dies(down: str, method: str) -> None:
    """A repeated request keeps its progress token."""
    play, files, alice = meeting(down, Kind.PIPE)
    token = Minted()
    request = alice.asks(method, {"uri": "a", "_meta": {"progressToken": "t"}})
    files.is_asked(method, {"uri": "a", "_meta": {"progressToken": ...}})
    files.dies("exit 1: out of memory")
    if method in SAFE_TO_REPEAT:
        files.starts()
        files.is_asked(method, {"uri": "a", "_meta": {"progressToken": token}})
        files.notifies("progress", {"progressToken": token.value, "progress": 1})
        alice.is_notified("progress", {"progressToken": "t", "progress": 1})
        files.dies("exit 1: out of memory")
    unknown = {"code": -31001, "message": Containing("out of memory"), "data": {"outcome": "unknown"}}
    alice.is_answered(request, error=unknown)
    if method in SAFE_TO_REPEAT:
        play.waits(1.0)
    listing = alice.asks("tools/list")
    files.starts()
    files.answers(files.is_asked("tools/list"))
    alice.is_answered(listing)


@pytest.mark.parametrize("cause", [RESET, *(Cause(end) for end in (End.DONE, End.GONE, End.TIMED_OUT))])
@pytest.mark.parametrize("method", ["tools/call", "tools/list"])
def test_a_post_that_ends_without_its_answer_leaves_the_outcome_unknown(cause: Cause, method: str) -> None:
    """The session is not in doubt. A request that only reads is sent once more."""
    _, files, alice = meeting()
    request = alice.asks(method)
    for _ in range(2 if method == "tools/list" else 1):
        asked = files.is_asked(method)
        files.connects(asked.channel)
        files.breaks_off(asked, cause)
    alice.is_answered(request, error={"code": -31001, "data": {"outcome": "unknown"}})


def test_a_request_that_never_left_is_sent_again_once_even_a_tool_call() -> None:
    _, files, alice = meeting()
    call = alice.asks("tools/call", TOOL)
    for _ in range(2):
        files.breaks_off(files.is_asked("tools/call", TOOL), UNREACHABLE)
    told = {"code": -31004, "message": Containing("connection refused"), "data": {"outcome": "not_executed"}}
    alice.is_answered(call, error=told)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (501, b"Not Implemented"),
        (503, b"try later"),
        (422, b"<!doctype html><title>Nothing here</title>"),
        (410, b"\xff\xfe<html>"),
        (400, b'{"error":"invalid_token"}'),
        (429, b'{"detail":"slow down"}'),
        (413, b'{"error":[]}'),
        *((status, b"oops") for status in (500, 502, 504, 599)),
    ],
)
@pytest.mark.parametrize("method", ["tools/call", "vendor/unheard"])
def test_a_refusal_says_its_status_and_is_not_repeated(status: int, body: bytes, method: str) -> None:
    """The outcome of a server error is unknown. The session goes on."""
    _, files, alice = meeting()
    request = alice.asks(method, TOOL)
    files.refuses(files.is_asked(method, TOOL), status, body)
    told = {"httpStatus": status, "body": body.decode(errors="replace")}
    is_unknown = body == b"oops"
    if status in (400, 410):  # which could mean that the session is unknown
        files.answers(files.is_asked("ping"))
    error = {"code": -31001 if is_unknown else -31004, "message": Containing(str(status))}
    alice.is_answered(request, error=error | {"data": told | ({"outcome": "unknown"} if is_unknown else {})})
    settled(alice, files, "tools/call", TOOL)


# --- Starting ---------------------------------------------------------------------------------------------------------


@DOWNS
@UPS
@pytest.mark.parametrize(
    ("cause", "reason"),
    [
        (UNREACHABLE, "connection refused"),
        (RESET, "connection reset"),
        (Cause(End.REFUSED, status=401), "401"),
        (Cause(End.REFUSED, status=500, body=b"<html>"), "500"),
        (Cause(End.UNREACHABLE), "cannot be reached"),
    ],
)
def test_a_client_whose_server_does_not_start_gets_the_reason_and_may_try_again(
    down: str, up: Kind, cause: Cause, reason: str
) -> None:
    play = Dialogue(ServerPlan(id="files", kind=up))
    files, alice = play.server, play.client("alice", down)
    greeting = alice.greets()
    if files.is_url:
        files.breaks_off(files.is_asked("initialize"), cause)
    else:
        files.is_started()
        files.breaks_off(files.channel, cause)
    told = Containing(reason) if cause.detail or files.is_url else ...  # processes have no HTTP status
    alice.is_answered(greeting, error={"code": -31004, "message": told})
    assert (alice.session, play.engine.session_count, play.engine.next_timeout()) == (None, 0, None)
    alice.meets(files)


@DOWNS
@UPS
def test_initialize_refused_by_the_server_gives_the_client_that_error_and_no_session(down: str, up: Kind) -> None:
    play = Dialogue(ServerPlan(id="files", kind=up))
    files, alice = play.server, play.client("alice", down)
    greeting = alice.greets()
    if not files.is_url:
        files.is_started()
        files.connects()
    files.answers(files.is_asked("initialize"), error=-32602)
    if not files.is_url:
        files.is_closed()
        files.is_started()
        files.connects()
    files.answers(files.is_asked("server/discover"), error=-32602)
    alice.is_answered(greeting, error={"code": -32602, "message": "no"})
    files.is_closed()
    assert (alice.session, play.engine.session_count) == (None, 0)


@UPS
def test_the_pauses_between_failed_starts_grow_until_one_succeeds(up: Kind) -> None:
    """A request during a pause is refused without a start."""
    limits = Limits(restart_backoff_s=2.0, restart_backoff_max_s=10.0, crash_loop_failures=100)
    play, files, alice = meeting(up=up, listens=True, limits=limits)
    told = {"code": -31004, "message": Containing("connection refused")}
    for pauses in ([2.0, 4.0, 8.0, 10.0, 10.0], [2.0]):
        lose(play)
        for pause in pauses:
            call = alice.asks("tools/call", TOOL)
            if not files.is_url:
                files.is_started()
            fails_to_start(files)
            alice.is_answered(call, error=told)
            play.waits(pause - 0.1)
            early = alice.asks("tools/call", TOOL)
            alice.is_answered(early, error=told | {"data": {"outcome": "not_executed"}})
            play.waits(0.1)
        call = alice.asks("tools/call", TOOL)
        files.starts(session="S2", listens=True)
        files.answers(files.is_asked("tools/call", TOOL))
        alice.is_answered(call)


@pytest.mark.parametrize("dies", [False, True])
def test_requests_that_wait_for_a_start_are_sent_in_order_or_fail_together(dies: bool) -> None:
    play, files, alice = meeting(up=Kind.PIPE)
    lose(play)
    requests = [alice.asks("tools/call")]
    files.is_started()
    requests += [alice.asks("tools/list"), alice.asks("prompts/list")]
    if dies:
        files.dies()
    else:
        files.connects()
        files.is_greeted()
    for each in requests:
        if dies:
            alice.is_answered(each, error=-31004)
        else:
            files.is_asked(each.method)


@pytest.mark.parametrize("kind", [Kind.PIPE, Kind.SOCKET])
@pytest.mark.parametrize("has_started", [False, True])
def test_the_error_says_whether_the_server_was_reached(kind: Kind, has_started: bool) -> None:
    """A process that could not be started has another error than a server that is silent."""
    play = Dialogue(ServerPlan(id="files", kind=kind))
    files, alice = play.server, play.client("alice")
    greeting = alice.greets()
    files.is_started()
    if has_started:
        files.connects()
        files.is_asked("initialize")
    files.dies("no such thing", end=End.BROKEN if has_started else End.UNREACHABLE)
    stage = {"stage": "start"} if not has_started and kind is Kind.PIPE else {}
    verb = "started" if kind is Kind.PIPE else "connected to"
    told = {"code": ..., "message": Containing(f"the server could not be {verb}: no such thing")}
    alice.is_answered(greeting, error=told | {"data": {"outcome": "not_executed"} | stage})


# --- The server's event stream ----------------------------------------------------------------------------------------


def greeting_done(limits: Limits | None = None) -> tuple[Dialogue, Server, Client]:
    """Returns a client whose server is being listened to, without a response yet."""
    play = Dialogue(ServerPlan(id="files", kind=Kind.HTTP), limits=limits)
    files, alice = play.server, play.client("alice", "http")
    greeting = alice.greets()
    files.session = "S1"
    files.answers(files.is_asked("initialize"), GREETED)
    alice.is_answered(greeting, ...)
    files.is_notified("initialized")
    files.is_listened_to()
    return play, files, alice


@pytest.mark.parametrize("is_late", [False, True])
def test_the_first_requests_wait_for_the_event_stream_but_not_for_ever(is_late: bool) -> None:
    """A server may send a question on the stream as soon as it has a call."""
    play, files, alice = greeting_done(Limits(listen_wait_s=1.5))
    call = alice.asks("tools/call", TOOL)
    if is_late:
        play.waits(1.4)
        play.waits(0.2)
        files.is_asked("tools/call", TOOL)
        files.connects(files.stream)
    else:
        files.connects(files.stream)
        files.is_asked("tools/call", TOOL)
    files.asks("roots/list")
    alice.is_asked("roots/list", on=call)


@pytest.mark.parametrize("status", [405, 404, 204])
def test_the_get_stream_of_a_server_that_offers_none_is_not_retried(status: int) -> None:
    play, files, alice = greeting_done()
    call = alice.asks("tools/call", TOOL)
    files.refuses(files.stream, status)
    files.answers(files.is_asked("tools/call", TOOL))
    alice.is_answered(call)
    play.waits(500)


REFUSED = [Cause(End.REFUSED, status=status) for status in (400, 401, 403, 410, 429, 500, 502, 503)]


@pytest.mark.parametrize("cause", [*REFUSED, UNREACHABLE, RESET, Cause(End.TIMED_OUT)])
def test_a_stream_that_cannot_be_opened_is_tried_with_growing_pauses(cause: Cause) -> None:
    play, files, alice = greeting_done(Limits(listen_retry_s=1.0, listen_retry_max_s=5.0, session_idle_ttl_s=500))
    alice.asks("tools/call", TOOL)
    for number, pause in enumerate([1.0, 2.0, 4.0, 5.0, 5.0]):
        files.breaks_off(files.stream, cause)
        if not number:
            files.is_asked("tools/call", TOOL)
        play.waits(pause - 0.01)
        play.waits(0.02)
        files.is_listened_to()


@pytest.mark.parametrize("cause", [RESET, Cause(End.DONE), Cause(End.GONE)])
def test_a_stream_that_broke_is_opened_again_and_a_good_one_ends_the_pauses(cause: Cause) -> None:
    play, files, _ = greeting_done(Limits(listen_retry_s=1.0))
    for _ in range(4):
        files.connects(files.stream)
        files.breaks_off(files.stream, cause)
        play.waits(1.0)
        files.is_listened_to()


# --- Ends -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ends", [True, False])
def test_the_server_ends_the_stream_of_a_deleted_session_in_its_time(ends: bool) -> None:
    """Closing the stream would cost the connection. Later messages on it are dropped."""
    play, files, alice = meeting(listens=True, limits=Limits(stream_farewell_s=2.0))
    alice.leaves()
    files.is_left()
    files.notifies("tools/list_changed")
    files.asks("roots/list")
    play.waits(1.9)
    if ends:
        files.breaks_off(files.stream, Cause(End.DONE))
    play.waits(0.2)
    if not ends:
        files.is_closed(files.stream)
    assert play.engine.next_timeout() is None


def test_a_proxy_that_stops_waits_for_no_stream() -> None:
    play, files, alice = meeting(listens=True)
    alice.leaves()
    files.is_left()
    play.stops()
    files.is_closed(files.stream)


def test_a_process_is_closed_with_its_session() -> None:
    _, files, alice = meeting(up=Kind.PIPE)
    alice.leaves()
    files.is_closed()
