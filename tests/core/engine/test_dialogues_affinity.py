"""Dialogues of anonymous clients without sessions, each request of which has a session of its own: the handle that a
result has, and what it is good for."""

from __future__ import annotations

from typing import Any

import pytest
from dialogue import Dialogue
from dialogue_peers import Client, Request, Server
from expected_values import Containing
from isthmus.core import Affinity, AutoFiles, Era, Kind, Limits, Profile, ProfileServer, ServerPlan, Sharing

KEY = "dev.isthmus/affinity"
TTL_S, UNCLAIMED_S = Limits().session_idle_ttl_s, Limits().unclaimed_session_ttl_s
TOOL = {"name": "t"}
REFUSED = {"code": -32602, "message": Containing("Nothing was run"), "data": {"reason": "invalid_affinity"}}
COMPLETE = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}


def meeting(**plan: Any) -> tuple[Dialogue, Server, Client]:
    given = {"kind": Kind.PIPE, "era": Era.HANDSHAKE} | plan
    play = Dialogue(ServerPlan(id="files", **given), affinity=Affinity.REQUEST)
    return play, play.server, play.client("alice", "http", era=Era.STATELESS, address="192.0.2.1")


def asks(client: Client, handle: Any = None, method: str = "tools/call", **params: Any) -> Request:
    """Asks with a handle, if there is one."""
    given = (TOOL if method == "tools/call" else {}) | params
    return client.asks(method, given | ({} if handle is None else {"_meta": {KEY: handle}}))


def answers(server: Server, method: str = "tools/call") -> None:
    """Answers a request, which has no handle in it."""
    asked = server.is_asked(method, ...)
    assert KEY not in str(asked.params)
    found: dict[str, Any] = {"content": [{"type": "text", "text": "done"}]} if method == "tools/call" else {"tools": []}
    server.answers(asked, found | ({} if server.era is Era.HANDSHAKE else COMPLETE))


def result(client: Client, request: Request) -> Any:
    return client.play.expects(client, "is answered", {"id": request.id, "result": ...}, request).what["result"]


def handle_in(client: Client, request: Request) -> str:
    return str(result(client, request)["_meta"][KEY])


def first_call(client: Client, server: Server, handle: Any = None) -> str:
    """Makes a call in a session that begins with it. Returns the handle in the result."""
    call = asks(client, handle)
    server.starts()
    answers(server)
    return handle_in(client, call)


# --- One session ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("up", "era"), [(Kind.PIPE, Era.HANDSHAKE), (Kind.HTTP, Era.HANDSHAKE), (Kind.PIPE, Era.STATELESS)]
)
@pytest.mark.parametrize("first", [None, "new"])
def test_requests_with_a_handle_run_in_the_session_of_the_call_that_gave_it(
    up: Kind, era: Era, first: str | None
) -> None:
    """The handle stays the same, and lasts as long as its session is used. A process without sessions may remember
    something, too."""
    play, files, alice = meeting(kind=up, era=era)
    handle = first_call(alice, files, first)
    for _ in range(3):
        play.waits(UNCLAIMED_S - 1 if _ == 0 else TTL_S - 1)
        call = asks(alice, handle)
        answers(files)
        assert handle_in(alice, call) == handle
        listing = asks(alice, handle, "tools/list")
        answers(files, "tools/list")
        assert handle_in(alice, listing) == handle
    assert play.engine.session_count == 1


def test_requests_without_a_handle_do_not_share_a_session() -> None:
    _, files, alice = meeting()
    first = first_call(alice, files)
    call = asks(alice)
    files.starts()
    answers(files)
    assert handle_in(alice, call) != first
    files.is_closed()


def test_a_session_that_is_wanted_is_kept_as_long_as_any_other() -> None:
    play, files, alice = meeting()
    first_call(alice, files, "new")
    play.waits(TTL_S - 1)
    assert play.engine.session_count == 1
    play.waits(1)
    files.is_closed()


def test_a_session_that_may_not_be_wanted_ends_soon() -> None:
    play, files, alice = meeting()
    handle = first_call(alice, files)
    play.waits(Limits().unclaimed_session_ttl_s)
    files.is_closed()
    alice.is_answered(asks(alice, handle), error=REFUSED)


def test_of_the_sessions_that_may_not_be_wanted_an_owner_has_one() -> None:
    """A script makes many calls, each in a process. Another address has one of its own."""
    play, files, alice = meeting()
    bob = play.client("bob", "http", era=Era.STATELESS, address="192.0.2.2")
    kept = first_call(alice, files, "new")
    for client in (bob, alice):
        handles = []
        for _ in range(3):
            handles.append(first_call(client, files))
            if _:
                files.is_closed()
        lost, _, handle = handles
        if client is bob:
            bobs = handle
    alice.is_answered(asks(alice, lost), error=REFUSED)
    for client, good in ((alice, kept), (alice, handle), (bob, bobs)):
        call = asks(client, good)
        answers(files)
        assert handle_in(client, call) == good
    first_call(alice, files)  # does not end the session to which its client has come back
    call = asks(alice, handle)
    answers(files)
    assert handle_in(alice, call) == handle


# --- Refusals ---------------------------------------------------------------------------------------------------------


def test_a_handle_that_is_not_good_here_is_refused() -> None:
    """A call with one does not run in a session without what the client expects in it."""
    play, files, alice = meeting()
    handle = first_call(alice, files, "new")
    bob = play.client("bob", "http", era=Era.STATELESS, principal="bob")
    able = play.client("able", "http", era=Era.STATELESS, able={})
    for client in (bob, able):
        client.is_answered(asks(client, handle), error=REFUSED)
    for wrong in ("", "x", 7, handle[:-1], handle + "0", handle.replace("isa1.", "isa1.0"), "isa1.." + "0" * 32):
        alice.is_answered(asks(alice, wrong), error=REFUSED)
    alice.is_answered(asks(alice, "x", "tools/list"), error=REFUSED)


def test_a_handle_is_good_at_one_server() -> None:
    plans = [ServerPlan(id=id, kind=Kind.PIPE, era=Era.HANDSHAKE) for id in ("one", "two")]
    play = Dialogue(*plans, affinity=Affinity.REQUEST)
    alice = play.client("alice", "http", era=Era.STATELESS, server="one")
    other = play.client("other", "http", era=Era.STATELESS, server="two")
    handle = first_call(alice, play.servers[0], "new")
    other.is_answered(asks(other, handle), error=REFUSED)


# --- Where there are none ---------------------------------------------------------------------------------------------


def test_a_url_without_sessions_gets_handles_as_they_are() -> None:
    """The server may run behind a proxy of this kind, whose handles they are."""
    _, files, alice = meeting(kind=Kind.HTTP, era=Era.STATELESS)
    for handle in (None, "new", "isa1.x.y"):
        call = asks(alice, handle, "prompts/list")
        files.starts()
        asked = files.is_asked("prompts/list", ...)
        assert asked.params["_meta"].get(KEY) == handle
        files.answers(asked, COMPLETE | {"prompts": [], "_meta": {KEY: "isa1.z.z"}})
        assert handle_in(alice, call) == "isa1.z.z"
        files.is_closed()


@pytest.mark.parametrize("sharing", [Sharing.CONCURRENT, Sharing.SERIAL])
def test_a_process_for_all_has_no_handles(sharing: Sharing) -> None:
    play, files, alice = meeting(sharing=sharing)
    call = asks(alice, "new")
    files.starts()
    answers(files)
    assert KEY not in str(result(alice, call))
    assert play.engine.session_count == 0


def test_a_server_that_gives_no_session_has_no_handles() -> None:
    play, files, alice = meeting(kind=Kind.HTTP)
    call = asks(alice)
    files.starts(session=None)
    answers(files)
    files.is_closed()
    assert KEY not in str(result(alice, call))
    assert play.engine.session_count == 0


def test_a_shared_session_has_no_handles() -> None:
    play = Dialogue(ServerPlan(id="files", kind=Kind.PIPE, era=Era.HANDSHAKE))
    alice = play.client("alice", "http", era=Era.STATELESS)
    call = asks(alice, "isa1.x.y")
    play.server.starts()
    play.server.answers(play.server.is_asked("tools/call", ...), {"content": []})
    assert KEY not in str(result(alice, call))


# --- What agents are told ---------------------------------------------------------------------------------------------


def test_the_first_result_of_a_server_with_files_says_that_only_files_stay() -> None:
    """An owner is told once while a session of its waits. A client that says that it knows handles needs no word."""
    _, files, alice = meeting(auto_files=AutoFiles())
    first_call(alice, files, "new")
    texts = []
    for _ in range(2):
        call = asks(alice)
        files.starts()
        answers(files)
        texts.append([block["text"] for block in result(alice, call)["content"]])
        if _:
            files.is_closed()
    (done, told), again = texts
    assert (done, again) == ("done", ["done"])
    assert KEY in told
    assert "artifact://" in told


def test_results_of_other_servers_stay_as_they_are() -> None:
    _, files, alice = meeting()
    call = asks(alice)
    files.starts()
    answers(files)
    assert [block["text"] for block in result(alice, call)["content"]] == ["done"]


@pytest.mark.parametrize("era", list(Era))
@pytest.mark.parametrize("own", ["", "Be kind."])
def test_the_instructions_say_that_a_server_starts_fresh_for_each_call(era: Era, own: str) -> None:
    _, files, alice = meeting(era=era)
    discovery = alice.asks("server/discover")
    files.starts(**({"instructions": own} if own else {}))
    instructions = result(alice, discovery)["instructions"]
    assert instructions.startswith(own)
    assert instructions.count("starts fresh for each call") == 1
    files.is_closed()


# --- Profiles ---------------------------------------------------------------------------------------------------------


def test_a_handle_of_a_profile_keeps_the_sessions_of_its_servers() -> None:
    plans = [ServerPlan(id=id, kind=Kind.PIPE, era=Era.HANDSHAKE) for id in ("one", "two")]
    shown = Profile("all", (ProfileServer("one"), ProfileServer("two")))
    play = Dialogue(*plans, profiles=(shown,), affinity=Affinity.REQUEST)
    one, two = play.servers
    alice = play.client("alice", "http", era=Era.STATELESS, server="all")
    call = asks(alice, "new", name="one__t")
    one.starts()
    answers(one)
    handle = handle_in(alice, call)
    for server, starts in ((two, True), (one, False), (two, False)):
        call = asks(alice, handle, name=f"{server.name}__t")
        if starts:
            server.starts()
        answers(server)
        assert handle_in(alice, call) == handle
