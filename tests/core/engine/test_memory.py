"""Bounds of what the engine keeps of the messages of peers: of a value, a session, an owner, and all together."""

from __future__ import annotations

import json
from typing import Any

import pytest
from dialogue import Dialogue
from driving import LATEST, Driver, connect, driver, request
from expected_values import Containing
from isthmus.core.base.budget import UNCOUNTED_MAX_BYTES
from isthmus.core.base.effects import Close
from isthmus.core.base.events import Cause, End, PostOpening
from isthmus.core.base.limits import KIB, Limits
from isthmus.core.base.plan import Kind, ServerPlan
from isthmus.core.base.revisions import Era
from isthmus.core.jsonrpc.envelope import ID_MAX_BYTES, METHOD_MAX_CHARS

OVERLOADED = -31007
PLAN = ServerPlan(id="files", kind=Kind.PIPE, era=Era.HANDSHAKE)
LARGE = {"name": "t", "arguments": {"text": "x" * UNCOUNTED_MAX_BYTES}}
ROOM = UNCOUNTED_MAX_BYTES * 3 // 2
"""Room for one such call, and not for two."""


# --- Requests in flight -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", Era)
@pytest.mark.parametrize("down", ["http", "pipe"])
def test_large_requests_of_one_session_wait_for_each_other(down: str, era: Era) -> None:
    play = Dialogue(PLAN, limits=Limits(session_memory_max_bytes=ROOM))
    files, alice = play.server, play.client("alice", down, era=era)
    alice.meets(files)
    first = alice.asks("tools/call", LARGE)
    asked = files.is_asked("tools/call")
    second = alice.asks("tools/call", LARGE)
    alice.is_answered(second, error={"code": OVERLOADED, "message": Containing("too many bytes")})
    files.answers(asked, {"content": []})
    alice.is_answered(first, ...)
    third = alice.asks("tools/call", LARGE)
    files.answers(files.is_asked("tools/call"), {"content": []})
    alice.is_answered(third, ...)


def test_small_calls_of_posts_are_served_whatever_large_ones_have() -> None:
    play = Dialogue(limits=Limits(session_memory_max_bytes=ROOM))
    files, alice = play.server, play.client("alice", "http")
    alice.meets(files)
    alice.asks("tools/call", LARGE)
    files.is_asked("tools/call")
    for _ in range(8):
        alice.asks("tools/call", {"name": "t", "arguments": {"text": "x" * 60 * KIB}})
        files.is_asked("tools/call")


@pytest.mark.parametrize("limits", [Limits(owner_memory_max_bytes=ROOM), Limits(memory_max_bytes=ROOM)])
def test_sessions_of_one_principal_share_what_it_may_have(limits: Limits) -> None:
    play = Dialogue(limits=limits)
    files = play.server
    alice, again, bob = (play.client(name, "http", principal=name[:1]) for name in ("alice", "again", "bob"))
    for client in (alice, again, bob):
        client.meets(files)
    alice.asks("tools/call", LARGE)
    files.is_asked("tools/call")
    refused = again.asks("tools/call", LARGE)
    again.is_answered(refused, error=OVERLOADED)
    other = bob.asks("tools/call", LARGE)
    if limits.memory_max_bytes == ROOM:
        bob.is_answered(other, error=OVERLOADED)
    else:
        files.is_asked("tools/call")
    alice.leaves()
    play.unexpected.clear()
    again.asks("tools/call", LARGE)
    files.is_asked("tools/call")


def test_the_questions_of_a_server_count_as_well() -> None:
    play = Dialogue(limits=Limits(session_memory_max_bytes=ROOM))
    files, alice = play.server, play.client("alice")
    alice.meets(files)
    asked = [files.asks("sampling/createMessage", {"messages": ["x" * UNCOUNTED_MAX_BYTES], "maxTokens": 1})]
    alice_asked = alice.is_asked("sampling/createMessage")
    asked.append(files.asks("sampling/createMessage", {"messages": ["x" * UNCOUNTED_MAX_BYTES], "maxTokens": 1}))
    files.is_answered(asked[1], error={"code": -32603, "message": Containing("too many bytes")})
    alice.answers(alice_asked, {"role": "user"})
    files.is_answered(asked[0], {"role": "user"})
    files.asks("sampling/createMessage", {"messages": ["x" * UNCOUNTED_MAX_BYTES], "maxTokens": 1})
    alice.is_asked("sampling/createMessage")


def test_a_session_is_refused_while_others_keep_all_the_memory() -> None:
    play = Dialogue(limits=Limits(memory_max_bytes=4000))
    files, alice, bob = play.server, play.client("alice", "http"), play.client("bob", "http")
    params = {"protocolVersion": LATEST, "capabilities": {}, "clientInfo": {"name": "x" * 1500, "version": "1"}}
    greeting = alice.asks("initialize", params)
    files.starts()
    alice.is_answered(greeting, ...)
    files.is_asked_to_listen()
    refused = bob.asks("initialize", params)
    bob.is_answered(refused, error={"code": OVERLOADED, "message": Containing("sessions keep too many bytes")})
    alice.leaves()
    play.unexpected.clear()
    again = bob.asks("initialize", params)
    files.starts()
    bob.is_answered(again, ...)


# --- Values -----------------------------------------------------------------------------------------------------------


def test_an_initialize_that_is_too_long_is_refused() -> None:
    play = Dialogue(limits=Limits(initialize_size_max_bytes=1000))
    alice = play.client("alice")
    params = {"protocolVersion": LATEST, "capabilities": {}, "clientInfo": {"name": "x" * 1000, "version": "1"}}
    greeting = alice.asks("initialize", params)
    alice.is_answered(greeting, error={"code": -32602, "message": Containing("expected at most 1000")})
    again = alice.asks("initialize", params | {"clientInfo": {"name": "x", "version": "1"}})
    play.server.starts()
    alice.is_answered(again, ...)


@pytest.mark.parametrize(
    ("frame", "seen"),
    [
        ({"id": "x" * ID_MAX_BYTES, "method": "ping"}, f"got an id of {ID_MAX_BYTES + 2} bytes"),
        ({"id": 1, "method": "x" * 64 * KIB}, f"got a method of {64 * KIB} characters"),
        ({"id": 1, "method": "x" * METHOD_MAX_CHARS + "\t"}, f"got a method of {METHOD_MAX_CHARS + 1} characters"),
        (
            {"id": 1, "method": "tools/call", "params": {"_meta": {"progressToken": "x" * ID_MAX_BYTES}}},
            f"got a progressToken of {ID_MAX_BYTES + 2} bytes",
        ),
    ],
)
def test_a_value_that_is_kept_with_a_request_has_a_longest_length(frame: dict[str, Any], seen: str) -> None:
    world = driver()
    client = connect(world, "http", "pipe")
    channel = client.send(json.dumps({"jsonrpc": "2.0", **frame}, separators=(",", ":")).encode())
    assert seen in world.only_message(channel)["error"]["message"]
    assert not world.unread


def test_the_params_of_subscriptions_are_remembered_up_to_their_size() -> None:
    world = driver(limits=Limits(subscriptions_per_session_max_bytes=1000))
    client = connect(world, "http", "pipe")
    for name in ("a", "b" * 960, "c" * 960, "d"):
        client.request("1", "resources/subscribe", json.dumps({"uri": name}))
        world.answer(world.take_sent("resources/subscribe"))
    world.end(world.dials[0].channel, Cause(End.BROKEN))
    world.start_server()
    assert [len(received.frame["params"]["uri"]) for received in world.unread] == [1, 960, 1]


def test_the_uris_of_listens_have_a_size_together() -> None:
    play = Dialogue(PLAN, limits=Limits(subscriptions_per_session_max_bytes=1000))
    files, alice = play.server, play.client("alice", "http", era=Era.STATELESS)
    alice.meets(files, able={"resources": {"subscribe": True}})
    listen = alice.asks("subscriptions/listen", {"notifications": {"resourceSubscriptions": ["x" * 600, "y" * 401]}})
    alice.is_answered(listen, error={"code": OVERLOADED, "message": Containing("expected at most 1000")})


def test_notifications_that_wait_for_a_server_have_a_size_together() -> None:
    play = Dialogue(limits=Limits(notifications_waiting_max_bytes=1000))
    files, alice = play.server, play.client("alice")
    greeting = alice.greets()
    files.is_started()
    alice.notifies("x", {"text": "a" * 600})
    alice.notifies("x", {"text": "b" * 600})
    alice.notifies("x", {"text": "c"})
    files.connects()
    files.is_greeted()
    alice.is_answered(greeting, ...)
    files.is_notified("x", {"text": "a" * 600})
    files.is_notified("x", {"text": "c"})


# --- What peers do not read -------------------------------------------------------------------------------------------


def closes(world: Driver, size: int) -> list[Close]:
    """The channels that are closed when the server answers a call."""
    before = len(world.log)
    world.answer(world.take_sent("tools/call"), json.dumps({"content": [], "x": "y" * size}))
    return [effect for effect in world.log[before:] if isinstance(effect, Close)]


def test_the_client_that_reads_least_is_cut_off_when_all_together_leave_too_much() -> None:
    world = driver(limits=Limits(outbox_high_bytes=1000, outbox_low_bytes=300, outboxes_max_bytes=7000))
    channels, closed = [], []
    for size in (3500, 1500, 900, 1200, 1300):
        channels.append(connect(world, "http", "pipe").request("1", "tools/call", "{}"))
        closed.append(closes(world, size))
    assert closed[:3] == [[]] * 3
    assert closed[3] == [Close(channels[0], reason="too much waits to be read", drops=True)]
    assert closed[4] == [], "what was cut off does not count"
    assert world.notes("warning")
    world.take(channels[0], 100)
    world.end(channels[0], Cause(End.BROKEN))
    for channel in channels[1:]:
        world.take(channel, len(world.messages(channel)[0]))
        world.end(channel)
    client = connect(world, "http", "pipe")
    for _ in range(2):
        client.request("1", "tools/call", "{}")
        assert closes(world, 2500) == [], "what has left does not count"


def test_the_address_that_has_all_its_sessions_gets_no_more_and_others_do() -> None:
    world = driver(limits=Limits(sessions_max=3, sessions_per_owner_max=2))
    initialize = request('"i"', "initialize", f'{{"protocolVersion":"{LATEST}","capabilities":{{}}}}')

    def opens(address: str, principal: str = "") -> str:
        channel = world.engine.new_channel()
        world.open(channel, PostOpening("pipe", principal, address=address))
        world.send(channel, initialize)
        error = world.only_message(channel)["error"] if world.messages(channel) else {"message": ""}
        return str(error["message"])

    assert [opens("192.0.2.1") for _ in range(2)] == ["", ""]
    assert "2 sessions of yours are open" in opens("192.0.2.1")
    assert opens("192.0.2.1", "ann") == "", "who is known counts for itself"
    assert "3 sessions are open" in opens("192.0.2.2")
