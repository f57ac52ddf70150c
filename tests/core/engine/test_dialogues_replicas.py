"""Dialogues with two replicas, each with a process of its own."""

from __future__ import annotations

from typing import Any

import pytest
from dialogue import Dialogue
from dialogue_peers import Client, Request
from isthmus.core import Era, Kind, ServerPlan, Sharing
from isthmus.core.base.replica import ReplicaName
from isthmus.core.subscriptions.changed_lists import CHANGE_PREFIX, PAUSE_S

ABLE = {"tools": {"listChanged": True}, "prompts": {"listChanged": True}}
LISTS = {"toolsListChanged": True, "promptsListChanged": True}


def replica(tag: str, kind: Kind = Kind.PIPE, **rest: Any) -> Dialogue:
    plan = ServerPlan(id="files", kind=kind, era=Era.HANDSHAKE, **rest)
    return Dialogue(plan, seed=ord(tag), replica=ReplicaName(tag, tag * 32), shares_storage=True)


def listening(play: Dialogue, name: str, *, is_started: bool = False) -> tuple[Client, Request]:
    client = play.client(name, "http", era=Era.STATELESS, principal=name)
    if is_started:
        client.is_answered(client.asks("server/discover"), ...)
    else:
        client.meets(play.server, able=ABLE, listens=True)
    listen = client.asks("subscriptions/listen", {"notifications": LISTS})
    client.is_granted(listen, LISTS)
    return client, listen


def hears(play: Dialogue, other: Dialogue) -> int:
    """A replica is told of the changes that another one has stored. Returns their number."""
    records = [(key, value) for key, value in other.records.items() if key.startswith(CHANGE_PREFIX)]
    play.happens(lambda now: play.engine.receive_records(records, now))
    return len(records)


@pytest.mark.parametrize(
    "sharing", [{}, {"sharing": Sharing.SERIAL}, {"sharing": Sharing.SERIAL, "shares_with_everyone": True}]
)
def test_a_changed_list_of_a_process_is_told_at_other_replicas(sharing: dict[str, Any]) -> None:
    """The clients that the process works for are told, and no others."""
    a, b = replica("a", **sharing), replica("b", **sharing)
    here, listen = listening(a, "alice")
    there, listen_there = listening(b, "alice")
    eve, listen_of_eve = listening(b, "eve", is_started="shares_with_everyone" in sharing)
    a.server.notifies("tools/list_changed")
    here.is_notified("tools/list_changed", on=listen)
    assert hears(b, a) == 1
    there.is_notified("tools/list_changed", on=listen_there)
    if "shares_with_everyone" in sharing:
        eve.is_notified("tools/list_changed", on=listen_of_eve)
    assert hears(a, a) == 1  # its own
    a.finish()
    b.finish()


def test_many_changes_cost_one_record_a_second() -> None:
    a, b = replica("a"), replica("b")
    here, listen = listening(a, "alice")
    there, listen_there = listening(b, "alice")
    kept = []
    for method in ("tools", "prompts", "tools", "prompts"):
        a.server.notifies(f"{method}/list_changed")
        here.is_notified(f"{method}/list_changed", on=listen)
        kept.append(dict(a.records))
    assert kept[0] == kept[-1]
    hears(b, a)
    there.is_notified("tools/list_changed", on=listen_there)
    a.waits(PAUSE_S)
    hears(b, a)
    there.is_notified("prompts/list_changed", on=listen_there)
    there.is_notified("tools/list_changed", on=listen_there)
    kept.append(dict(a.records))
    a.waits(10 * PAUSE_S)
    assert a.records == kept[-1]


def test_changes_of_sessions_and_of_servers_over_http_stay_here() -> None:
    """A client with a session has a process here alone, and a server over HTTP tells each replica itself."""
    a = replica("a")
    bob = a.client("bob", "http")
    bob.meets(a.server, able=ABLE)
    a.server.notifies("tools/list_changed")
    over_http = replica("a", Kind.HTTP)
    alice, listen = listening(over_http, "alice")
    over_http.server.notifies("tools/list_changed")
    alice.is_notified("tools/list_changed", on=listen)
    assert not any(key.startswith(CHANGE_PREFIX) for key in [*a.records, *over_http.records])


@pytest.mark.parametrize("value", [b"", b"{}", b'{"server":"files","audience":"","methods":["x"],"replica":"b"}', None])
def test_a_record_of_another_form_is_ignored(value: bytes | None) -> None:
    a = replica("a")
    listening(a, "alice")
    a.happens(lambda now: a.engine.receive_records([(CHANGE_PREFIX + "x", value)], now))
    a.finish()
