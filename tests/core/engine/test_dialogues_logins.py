"""Dialogues with a server at which each caller has a login of its own: whose login a request is sent with, and how a
client is told that its user has to log in first."""

from __future__ import annotations

from typing import Any

import pytest
from dialogue import Dialogue
from dialogue_peers import ABLE, Client, Server
from expected_values import Containing
from isthmus.core import Cause, End, Era, Kind, Limits, ServerPlan, Sharing
from isthmus.core.base.effects import Spawn

URL = "https://gateway.example/connect/files?ticket=1"
OPENS = {"elicitation": {"form": {}, "url": {}}}
PAGE = {"mode": "url", "elicitationId": "e1", "url": URL, "message": "files wants you to log in"}
NEEDS_LOGIN = Cause(
    End.REFUSED,
    "files wants you to log in",
    status=401,
    challenge="Bearer",
    login=b'{"url":"%b","elicitationId":"e1"}' % URL.encode(),
)
SHOWN = {key: PAGE[key] for key in PAGE if key != "elicitationId"}  # 2026-07-28 has none
TOOL = {"name": "t"}
TOLD = {"code": -31004, "message": PAGE["message"]}


def playing(*, era: Era | None = None, **plan: Any) -> tuple[Dialogue, Server]:
    play = Dialogue(ServerPlan(id="files", kind=Kind.HTTP, logs_in_callers=True, era=era, **plan))
    return play, play.server


def logins_of(play: Dialogue) -> set[str]:
    """Returns whose logins the server was asked with since the last time."""
    found = {target.principal for target in play.dialled if not isinstance(target, Spawn)}
    play.dialled.clear()
    return found


def refuse(files: Server, method: str) -> None:
    files.breaks_off(files.is_asked(method), NEEDS_LOGIN)


def test_every_request_for_a_caller_is_sent_with_its_login() -> None:
    play, files = playing()
    alice, bob = (play.client(name, "http", principal=f"token:{name}") for name in ("alice", "bob"))
    for client in (alice, bob):
        client.meets(files, listens=True)
        call = client.asks("tools/call", TOOL)
        files.answers(files.is_asked("tools/call", TOOL), {"content": []})
        client.is_answered(call, {"content": []})
        client.leaves()
        files.is_left()
        assert logins_of(play) == {client.principal}  # the event stream and the DELETE among them
    play.finish()


def test_other_servers_are_asked_with_no_login() -> None:
    play = Dialogue(ServerPlan(id="files", kind=Kind.HTTP))
    alice = play.client("alice", "http", principal="token:alice")
    alice.meets(play.server)
    assert logins_of(play) == {""}


def test_one_connection_for_all_has_no_login_of_each() -> None:
    with pytest.raises(ValueError, match="a login for each caller"):
        ServerPlan(id="s", kind=Kind.SOCKET, logs_in_callers=True, sharing=Sharing.SERIAL, shares_with_everyone=True)


def test_a_handshake_without_a_login_says_where_to_log_in() -> None:
    play, files = playing()
    alice = play.client("alice", "http", principal="token:alice")
    greeting = alice.greets()
    refuse(files, "initialize")
    alice.is_answered(greeting, error=TOLD | {"data": Containing({"login": {"url": URL, "elicitationId": "e1"}})})
    alice.meets(files)  # as soon as she has logged in


@pytest.mark.parametrize("able", [OPENS, ABLE, {}], ids=["opens pages", "asks in forms", "asks nothing"])
def test_a_session_whose_login_is_lost(able: dict[str, Any]) -> None:
    """A client that can open pages is given the page by the error of the specification."""
    play, files = playing()
    alice = play.client("alice", "http", principal="token:alice", able=able)
    alice.meets(files)
    call = alice.asks("tools/call", TOOL)
    refuse(files, "tools/call")
    if able is OPENS:
        alice.is_answered(call, error={"code": -32042, "data": {"elicitations": [PAGE]}})
    else:
        alice.is_answered(call, error=TOLD)


def stateless(able: dict[str, Any], era: Era) -> tuple[Dialogue, Server, Client]:
    play, files = playing(era=era)
    alice = play.client("alice", "http", era=Era.STATELESS, able=able, principal="token:alice")
    return play, files, alice


ERAS = pytest.mark.parametrize("era", [Era.STATELESS, Era.HANDSHAKE], ids=["stateless", "handshake"])


def first_of(era: Era) -> str:
    """Returns the first request that a server of an era gets."""
    return "server/discover" if era is Era.STATELESS else "initialize"


@ERAS
def test_a_client_without_sessions_is_asked_to_open_the_page(era: Era) -> None:
    """The call is sent once the client has agreed and the user has logged in: at once, or after a wait."""
    play, files, alice = stateless(OPENS, era)
    call = alice.asks("tools/call", TOOL)
    refuse(files, first_of(era))
    asked = next(each for each in play.unexpected if each.peer is alice).what["result"]
    assert asked["inputRequests"] == {"r1": {"method": "elicitation/create", "params": SHOWN}}
    alice.is_answered(call, ...)
    agreed = {"requestState": asked["requestState"], "inputResponses": {"r1": {"action": "accept"}}}
    again = alice.asks("tools/call", TOOL | agreed)
    refuse(files, first_of(era))  # the user has not finished
    play.waits(Limits().url_elicitation_wait_s)
    files.is_greeted()
    if era is Era.STATELESS:
        files.answers(files.is_asked("tools/list"), {"tools": [], "resultType": "complete"})
    files.answers(files.is_asked("tools/call"), {"content": [], "resultType": "complete"})
    alice.is_answered(again, ...)


@ERAS
def test_a_client_that_cannot_be_asked_is_told(era: Era) -> None:
    play, files, alice = stateless(ABLE, era)
    for method, params in (("tools/call", TOOL), ("tools/list", None)):
        call = alice.asks(method, params)
        refuse(files, first_of(era))
        alice.is_answered(call, error=TOLD)
    play.finish()


@ERAS
def test_who_declines_is_not_asked_again(era: Era) -> None:
    play, files, alice = stateless(OPENS, era)
    call = alice.asks("tools/call", TOOL)
    refuse(files, first_of(era))
    state = next(each for each in play.unexpected if each.peer is alice).what["result"]["requestState"]
    alice.is_answered(call, ...)
    declined = {"requestState": state, "inputResponses": {"r1": {"action": "decline"}}}
    again = alice.asks("tools/call", TOOL | declined)
    alice.is_answered(again, Containing({"isError": True}))
    play.finish()
