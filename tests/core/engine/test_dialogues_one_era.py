"""Dialogues about what the proxy leaves to its peers if both speak one era: progress that breaks a rule of its sender,
notifications of vendors, and an error of another revision."""

from __future__ import annotations

from typing import Any

import pytest
from dialogue import Dialogue
from dialogue_peers import Client, Request, Server
from isthmus.core import Era, Kind, ServerPlan, Sharing
from isthmus.core.state.answered_tokens import ANSWERED_TOKENS_MAX

DOWNS = pytest.mark.parametrize("down", ["pipe", "http"])
UPS = pytest.mark.parametrize("up", [Kind.PIPE, Kind.HTTP], ids=["pipe", "http"])
TOOL = {"name": "t"}
TOKEN = "tok"


def meeting(
    down: str = "pipe", up: Kind = Kind.PIPE, client: Era = Era.HANDSHAKE, server: Era = Era.HANDSHAKE, **rest: Any
) -> tuple[Dialogue, Server, Client]:
    play = Dialogue(ServerPlan(id="files", kind=up, era=server, **rest))
    alice = play.client("alice", down, era=client)
    alice.meets(play.server)
    return play, play.server, alice


def call(alice: Client, files: Server) -> tuple[Request, Request]:
    return alice.asks("tools/call", TOOL | {"_meta": {"progressToken": TOKEN}}), files.is_asked("tools/call")


def progress(token: Any, value: Any) -> dict[str, Any]:
    return {"progressToken": token, "progress": value}


# --- Progress of servers ----------------------------------------------------------------------------------------------


@DOWNS
@UPS
def test_progress_that_stands_or_goes_back_passes(down: str, up: Kind) -> None:
    _, files, alice = meeting(down, up)
    request, asked = call(alice, files)
    for value in (1, 1, 0.5, -3, "half", 2):
        files.notifies("progress", progress(asked.id, value), on=asked)
        alice.is_notified("progress", progress(TOKEN, value), on=request)


@UPS
def test_progress_of_a_call_that_was_sent_twice_still_increases(up: Kind) -> None:
    """The second process begins to count anew, under the one token that the client has."""
    _, files, alice = meeting(up=up)
    request = alice.asks("resources/read", {"uri": "file:///a", "_meta": {"progressToken": TOKEN}})
    asked = files.is_asked("resources/read")
    files.notifies("progress", progress(asked.id, 2), on=asked)
    alice.is_notified("progress", progress(TOKEN, 2), on=request)
    if up is Kind.PIPE:
        files.dies()
        files.starts()
    else:
        files.breaks_off(asked)
    again = files.is_asked("resources/read")
    for value in (1, 2, 3):
        files.notifies("progress", progress(again.id, value), on=again)
    alice.is_notified("progress", progress(TOKEN, 3), on=request)


@DOWNS
def test_progress_after_the_answer_passes_under_the_clients_token(down: str) -> None:
    """Over HTTP it goes to the event stream, for that of the call has ended. The oldest tokens are forgotten."""
    _, files, alice = meeting(down)
    stream = alice.listens() if down == "http" else None
    calls = [call(alice, files) for _ in range(3)]
    for request, asked in calls:
        files.answers(asked)
        alice.is_answered(request)
    running = call(alice, files)
    for _, asked in reversed(calls):
        files.notifies("progress", progress(asked.id, 7))
        alice.is_notified("progress", progress(TOKEN, 7), on=stream)
    files.answers(running[1])
    alice.is_answered(running[0])
    for _ in range(ANSWERED_TOKENS_MAX - 2):
        request, asked = call(alice, files)
        files.answers(asked)
        alice.is_answered(request)
    files.notifies("progress", progress(calls[1][1].id, 8))
    files.notifies("progress", progress(calls[2][1].id, 9))
    alice.is_notified("progress", progress(TOKEN, 9), on=stream)


def test_progress_after_a_cancellation_is_dropped() -> None:
    _, files, alice = meeting()
    request, asked = call(alice, files)
    alice.cancels(request)
    files.is_cancelled(asked)
    files.notifies("progress", progress(asked.id, 1))


def test_progress_after_an_unknown_outcome_is_dropped() -> None:
    """Such an answer is a driver's: the POST of the request was cut, and the server may be working on it still."""
    _, files, alice = meeting()
    request, asked = call(alice, files)
    files.answers(asked, error=-31001)
    alice.is_answered(request, error=-31001)
    files.notifies("progress", progress(asked.id, 1))


def test_progress_after_the_answer_is_dropped_without_an_event_stream() -> None:
    """The stream of another call is for what belongs to that."""
    _, files, alice = meeting("http")
    request, asked = call(alice, files)
    files.answers(asked)
    alice.is_answered(request)
    call(alice, files)
    files.notifies("progress", progress(asked.id, 7))


@DOWNS
def test_progress_for_a_token_of_the_server_passes_but_no_number_of_the_proxy(down: str) -> None:
    """A number of the proxy could be another token of the client."""
    _, files, alice = meeting(down)
    stream = alice.listens() if down == "http" else None
    request = alice.asks("tools/call", TOOL)
    asked = files.is_asked("tools/call")
    on = request if down == "http" else None
    for token in ("mine", asked.id + 1000):
        files.notifies("progress", progress(token, 1))
        alice.is_notified("progress", progress(token, 1), on=on)
    for token in (asked.id, str(asked.id), 0, True, None, {}, [], 1.5):
        files.notifies("progress", progress(token, 1))
    files.answers(asked)
    alice.is_answered(request)
    files.notifies("progress", progress("mine", 2))
    alice.is_notified("progress", progress("mine", 2), on=stream)


def test_progress_for_an_unknown_token_reaches_none_of_several_clients() -> None:
    play, files, _ = meeting(sharing=Sharing.CONCURRENT)
    play.client("bob").meets(files)
    files.notifies("progress", progress("mine", 1))


@pytest.mark.parametrize("client", list(Era))
def test_between_two_eras_progress_increases_and_ends_with_the_answer(client: Era) -> None:
    server = Era.STATELESS if client is Era.HANDSHAKE else Era.HANDSHAKE
    _, files, alice = meeting("pipe", Kind.PIPE, client, server)
    request, asked = call(alice, files)
    for value, passes in ((1, True), (1, False), (0, False), (2, True)):
        files.notifies("progress", progress(asked.id, value), on=asked)
        if passes:
            alice.is_notified("progress", progress(TOKEN, value))
    files.answers(asked, {"content": []} if server is Era.HANDSHAKE else {"content": [], "resultType": "complete"})
    alice.is_answered(request, ...)
    files.notifies("progress", progress(asked.id, 3))
    files.notifies("progress", progress("mine", 3))


# --- Progress of clients ----------------------------------------------------------------------------------------------


@DOWNS
def test_progress_of_a_client_passes_whatever_it_says(down: str) -> None:
    """The server gets it under its own token, after the answer as well, but never a number of the proxy."""
    play, files, alice = meeting(down)
    stream = alice.listens() if down == "http" else None
    question = files.asks("elicitation/create", {"message": "m", "_meta": {"progressToken": 70}})
    asked = alice.is_asked("elicitation/create", on=stream)
    given = asked.params["_meta"]["progressToken"]
    for value in (1, 1, 0):
        alice.notifies("progress", progress(given, value))
        files.is_notified("progress", progress(70, value))
    alice.answers(asked, {"action": "cancel"})
    files.is_answered(question, {"action": "cancel"})
    alice.notifies("progress", progress(given, 2))
    files.is_notified("progress", progress(70, 2))
    for token in ("mine", given + 1000):
        alice.notifies("progress", progress(token, 1))
        files.is_notified("progress", progress(token, 1))
    for token in (0, str(0), True, None, {}, 1.5):
        alice.notifies("progress", progress(token, 1))
    if down == "pipe":
        files.dies()
        alice.asks("ping")
        play.unexpected.clear()
        alice.notifies("progress", progress(given, 3))


def test_progress_of_one_of_several_clients_for_an_unknown_token_is_dropped() -> None:
    """The token could be that of a question to another client."""
    play, files, alice = meeting(sharing=Sharing.CONCURRENT)
    play.client("bob").meets(files)
    alice.notifies("progress", progress("mine", 1))


# --- Notifications of vendors -----------------------------------------------------------------------------------------


@UPS
@DOWNS
@pytest.mark.parametrize("client", list(Era))
@pytest.mark.parametrize("server", list(Era))
def test_a_vendors_notification_of_a_client_reaches_its_server(down: str, up: Kind, client: Era, server: Era) -> None:
    """A stateless client over HTTP has no channel that says whose notification it is."""
    _, files, alice = meeting(down, up, client, server)
    alice.asks("prompts/get", {"name": "p"})
    files.is_asked("prompts/get")
    alice.notifies("acme/tick", {"n": 1})
    if client is Era.HANDSHAKE or down == "pipe":
        files.is_notified("acme/tick", {"n": 1})


@pytest.mark.parametrize("method", ["roots/list_changed", "initialized", "progress"])
def test_notifications_of_the_handshake_do_not_reach_a_stateless_server(method: str) -> None:
    _, files, alice = meeting(server=Era.STATELESS)
    call(alice, files)
    alice.notifies(method, progress("mine", 1) if method == "progress" else None)


# --- Pages that a stateless server sends its client to ----------------------------------------------------------------


@pytest.mark.parametrize("able", [{"elicitation": {"url": {}}}, {"elicitation": {}}, {}])
def test_an_error_that_asks_for_a_page_passes_if_the_client_knows_it(able: dict[str, Any]) -> None:
    play = Dialogue(ServerPlan(id="files", kind=Kind.PIPE, era=Era.STATELESS))
    files, alice = play.server, play.client("alice", able=able)
    alice.meets(files)
    request, asked = call(alice, files)
    pages = [{"mode": "url", "elicitationId": "e", "url": "https://x/", "message": "m"}]
    refusal = {"code": -32042, "message": "log in", "data": {"elicitations": pages}}
    files.answers(asked, error=refusal)
    if able == {"elicitation": {"url": {}}}:
        alice.is_answered(request, error=refusal)
    else:
        text = "The server asks for a visit to a page, which this client does not offer: log in"
        alice.is_answered(request, {"isError": True, "content": [{"type": "text", "text": text}]})
