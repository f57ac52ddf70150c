"""Which wire each thing belongs to, and what exactly is seen of it there."""

from __future__ import annotations

from typing import Any

import pytest
from driving import GONE
from isthmus.core.base.effects import (
    Cause,
    Close,
    Connected,
    Delete,
    DeleteOpening,
    End,
    GetOpening,
    Listen,
    Pass,
    Post,
    PostOpening,
    SendEvents,
    Spawn,
)
from isthmus.core.base.ids import ChannelId
from isthmus.core.oracle import Ended, Head, Opened, Role, Said, Verb
from isthmus.core.oracle.wires import Wire, _is_stateless, _method

from tests.core.oracle.test_wires import HELLO, META, WELCOME, Taken, dial, said, send

CLIENT, SERVER = Role.CLIENT, Role.SERVER
V4, V5 = "2025-11-25", "2026-07-28"
PING = said(id=1, method="ping")
LISTS = said(id=1, method="tools/list", params={"_meta": META})


def wire_of(taken: Taken, channel: int) -> Wire:
    """The wire on which a channel was opened."""
    found = [
        wire
        for wire, seen in taken.by_wire.items()
        if any(isinstance(each, Opened) and each.channel == channel for each in seen)
    ]
    (wire,) = found
    return wire


def groups(taken: Taken, *channels: int) -> list[int]:
    """The same number for those that are on one wire."""
    wires = [wire_of(taken, channel) for channel in channels]
    return [wires.index(wire) for wire in wires]


# --- Whose it is ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("revision", "message", "is_stateless"),
    [
        (None, PING, False),
        (V4, PING, False),
        (V5, PING, True),
        ("2099-01-01", PING, False),
        (None, LISTS, True),
        (V4, LISTS, True),
        (None, said(method="x", params={"_meta": {}}), False),
        (None, said(method="x", params={"_meta": 7}), False),
        (None, said(method="x", params=7), False),
        (None, b"{", False),
        (None, b"[]", False),
        (None, b"\xff", False),
    ],
)
def test_a_post_belongs_to_no_session_if_its_head_or_its_body_says_so(
    revision: str | None, message: bytes, is_stateless: bool
) -> None:
    assert _is_stateless(revision, message) is is_stateless


@pytest.mark.parametrize(
    ("message", "method"), [(PING, "ping"), (said(id=1, result={}), ""), (b"{", ""), (b"7", ""), (b"[]", "")]
)
def test_a_messages_method_is_what_it_says(message: bytes, method: str) -> None:
    assert _method(message) == method


def test_clients_are_told_apart_by_server_principal_and_session() -> None:
    """Requests with one session's id are one wire; those without an id are each by themselves, but for those that say
    all, which are one for each principal."""
    taken = Taken()
    posts = [
        PostOpening("s", session="S"),
        PostOpening("s", session="S"),
        PostOpening("s", session="T"),
        PostOpening("t", session="S"),
        PostOpening("s", "ann", session="S"),
        PostOpening("s"),
        PostOpening("s"),
        PostOpening("s", revision=V5),
        PostOpening("s", revision=V5, session="S"),
        PostOpening("s", "ann", revision=V5),
        PostOpening("t", revision=V5),
    ]
    for channel, opening in enumerate(posts, 1):
        taken.wires.receive_open(channel, opening)
        taken.wires.receive_message(channel, LISTS if opening.revision == V5 else PING)
    assert groups(taken, *range(1, 12)) == [0, 0, 2, 3, 4, 5, 6, 7, 7, 9, 10]
    others = [GetOpening("s", session="S"), DeleteOpening("s", session="S"), GetOpening("s"), DeleteOpening("s")]
    for channel, other in enumerate(others, 21):
        taken.wires.receive_open(channel, other)
    assert groups(taken, 1, 21, 22, 23, 24) == [0, 0, 0, 3, 4]
    assert {wire.server for wire in taken.by_wire} == {"s", "t"}
    assert {wire.proxy for wire in taken.by_wire} == {SERVER}


def test_sessions_with_servers_are_told_apart_by_server_and_id() -> None:
    taken = Taken()
    targets: list[Any] = [
        Post("s", PING, "S", V4),
        Post("s", PING, "S", V4),
        Post("s", PING, "T", V4),
        Post("t", PING, "S", V4),
        Listen("s", "S", V4),
        Delete("s", "S", V4),
        Listen("s", None, V4),
        Post("s", PING, None, V4),
        Post("s", LISTS, None, V5),
        Post("s", LISTS, None, V5),
        Post("t", LISTS, None, V5),
        Post("s", said(id=0, method="initialize", params=HELLO)),
        Post("s", said(id=0, method="initialize", params=HELLO)),
    ]
    taken.order(*(dial(channel, target) for channel, target in enumerate(targets, 1)))
    assert groups(taken, *range(1, 14)) == [0, 0, 2, 3, 0, 0, 6, 6, 8, 8, 10, 11, 12]
    assert {wire.proxy for wire in taken.by_wire} == {CLIENT}
    mixed = [wire_of(taken, channel).is_mixed for channel in range(1, 14)]
    assert mixed == [False] * 8 + [True] * 5


def test_a_session_is_known_by_the_id_that_the_handshake_gave() -> None:
    """On both sides; one that was refused gave none, whatever it says."""
    taken = Taken()
    taken.post(1, said(id=0, method="initialize", params=HELLO))
    taken.order(send(1, said(id=0, result=WELCOME), session="S", is_last=True))
    taken.post(2, PING, "S", V4)
    taken.post(3, said(id=0, method="initialize", params=HELLO))
    refused = said(id=0, error={"code": -32602, "message": ""})
    taken.order(send(3, refused, session="T", status=400, is_last=True))
    taken.post(4, PING, "T", V4)
    assert groups(taken, 1, 2, 3, 4) == [0, 0, 2, 3]
    for channel, status in ((11, 299), (13, 300)):
        taken.post(channel, said(id=0, method="initialize", params=HELLO))
        taken.order(send(channel, said(id=0, result=WELCOME), session=f"S{status}", status=status, is_last=True))
        taken.post(channel + 1, PING, f"S{status}", V4)
    assert groups(taken, 11, 12, 13, 14) == [0, 0, 2, 3]
    taken = Taken()
    for channel, session, status in ((1, "S", 200), (3, "T", 299)):
        taken.order(dial(channel, Post("s", said(id=0, method="initialize", params=HELLO))))
        assert status < 300
        taken.wires.receive_open(channel, Connected(session=session))
        taken.order(dial(channel + 1, Post("s", PING, session, V4)))
    assert groups(taken, 1, 2, 3, 4) == [0, 0, 2, 2]


# --- What is seen of it -----------------------------------------------------------------------------------------------


def test_a_clients_post_is_seen_whole() -> None:
    """Its head with all that was looked at, its body, the reply's head once, each event with its id, and the end."""
    taken = Taken()
    mirrored = (("Mcp-Method", "ping"),)
    taken.wires.receive_open(1, PostOpening("s", session="S", revision=V4, mirrored=mirrored))
    assert taken.by_wire == {}
    taken.wires.receive_message(1, PING)
    one, two, three = (said(method=f"m{number}") for number in range(3))
    taken.order(
        send(1, one, event_id="1-1", session="S"),
        SendEvents(ChannelId(1), (two, three), ()),
        send(1, said(id=1, result={}), is_last=True),
    )
    (seen,) = taken.by_wire.values()
    assert seen == [
        Opened(1, Verb.POST, "S", V4, None, None, mirrored),
        Said(1, CLIENT, PING),
        Head(1, 200, None, "S"),
        Said(1, SERVER, one, "message", "1-1"),
        Said(1, SERVER, two),
        Said(1, SERVER, three),
        Said(1, SERVER, said(id=1, result={})),
        Ended(1, SERVER),
    ]


def test_a_get_is_seen_with_what_it_takes_up() -> None:
    """And a DELETE with nothing of the kind; what is closed has the status that it was closed with."""
    taken = Taken()
    taken.wires.receive_open(1, GetOpening("s", session="S", revision=V4, last_event_id="1-1"))
    taken.order(send(1, b"", event_id="2-1"), Close(ChannelId(1), status=202))
    taken.wires.receive_open(2, DeleteOpening("s", session="S", revision=V4))
    taken.order(Close(ChannelId(2), status=204), Close(ChannelId(2), status=204))
    (seen,) = taken.by_wire.values()
    assert seen == [
        Opened(1, Verb.GET, "S", V4, None, "1-1"),
        Head(1, 200),
        Said(1, SERVER, b"", "message", "2-1"),
        Ended(1, SERVER),
        Opened(2, Verb.DELETE, "S", V4),
        Head(2, 204),
        Ended(2, SERVER),
    ]


def test_a_post_to_a_server_is_seen_whole() -> None:
    """Mirrored headers are looked at where the revision has them; the head comes with the first that shows it."""
    taken = Taken()
    mirrored = (("Mcp-Method", "ping"),)
    taken.order(dial(1, Post("s", PING, "S", V4, mirrored=mirrored)))
    taken.wires.receive_message(1, said(id=1, result={}))
    taken.wires.receive_close(1, Cause(End.DONE))
    taken.order(dial(2, Listen("s", "S", V4, last_event_id="e7")), dial(3, Delete("s", "S", V4)), Close(ChannelId(2)))
    taken.wires.receive_close(3, Cause(End.DONE))
    (seen,) = taken.by_wire.values()
    assert seen == [
        Opened(1, Verb.POST, "S", V4),
        Said(1, CLIENT, PING),
        Head(1, 200),
        Said(1, SERVER, said(id=1, result={})),
        Ended(1, SERVER),
        Opened(2, Verb.GET, "S", V4, None, "e7"),
        Opened(3, Verb.DELETE, "S", V4),
        Ended(2, CLIENT),
        Head(3, 202),
        Ended(3, SERVER),
    ]
    taken = Taken()
    taken.order(dial(1, Post("s", LISTS, None, V5, mirrored=mirrored)))
    assert next(iter(taken.by_wire.values()))[0] == Opened(1, Verb.POST, None, V5, None, None, mirrored)


def test_a_process_is_a_pipe_that_nobody_opens() -> None:
    """It has no heads, and one channel; after its end nothing is seen."""
    taken = Taken()
    taken.order(dial(5, Spawn("s", "w")), send(5, PING))
    taken.wires.receive_open(5, Connected())
    taken.wires.receive_message(5, said(id=1, result={}))
    taken.order(Close(ChannelId(5)), send(5, PING))
    taken.wires.receive_message(5, PING)
    taken.wires.receive_close(5, GONE)
    (wire,) = taken.by_wire
    assert (wire.proxy, wire.server, wire.is_mixed) == (CLIENT, "s", False)
    assert taken.by_wire[wire] == [Said(0, CLIENT, PING), Said(0, SERVER, said(id=1, result={})), Ended(0, CLIENT)]


@pytest.mark.parametrize("is_cut", [True, False])
def test_what_is_passed_on_in_parts_is_seen_when_it_is_whole(is_cut: bool) -> None:
    """With its head at the first; what is cut off in the midst was ended by nobody who meant it."""
    taken = Taken()
    taken.post(1, PING, "S", V4)
    whole = said(id=1, result={"x": "y" * 50})
    taken.order(Pass(ChannelId(1), (whole[:9], whole[9:20]), len(whole)))
    (seen,) = taken.by_wire.values()
    assert seen[2:] == [Head(1, 200)]
    if is_cut:
        taken.order(Close(ChannelId(1), reason="cut"))
        assert seen[3:] == [Ended(1, None)]
    else:
        taken.order(Pass(ChannelId(1), (whole[20:],)))
        assert seen[3:] == [Said(1, SERVER, whole), Ended(1, SERVER)]


def test_a_message_that_comes_in_parts_goes_with_its_channel() -> None:
    """The rest of it is nobody's."""
    taken = Taken()
    taken.order(dial(1, Post("s", PING, "S", V4)))
    whole = said(id=1, result={})
    taken.wires.receive_part(1, (whole[:5],), len(whole))
    taken.wires.receive_close(1, Cause(End.BROKEN))
    taken.wires.receive_part(1, (whole[5:],), 0)
    (seen,) = taken.by_wire.values()
    assert seen[2:] == [Ended(1, None)]
