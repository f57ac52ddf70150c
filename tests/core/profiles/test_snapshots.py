"""Dialogues with a profile whose lists outlast the proxy."""

from __future__ import annotations

from typing import Any

import pytest
from dialogue import Dialogue
from dialogue_peers import Client, Server
from expected_values import Containing
from isthmus.core import Cause, End, Kind, NameFilter, Profile, ProfileServer, ServerPlan
from isthmus.core.profiles import snapshots
from isthmus.core.profiles.snapshots import SNAPSHOT_MAX_BYTES, SNAPSHOTS_MAX

OLD, NEW = ({"name": name} for name in ("old", "new"))

CAN: dict[str, Any] = {"tools": {}, "prompts": {}, "resources": {}}


def meeting(before: Dialogue | None = None, principal: str = "alice", **plan: Any) -> tuple[Dialogue, Client, Server]:
    """Returns a client of a profile, of a proxy that was started again after that of `before`."""
    profile = Profile("all", (ProfileServer("alpha"),), keeps_lists=True)
    play = Dialogue(ServerPlan(id="alpha", kind=Kind.PIPE, **plan), profiles=(profile,))
    play.records |= {} if before is None else before.records
    alice = play.client("alice", "pipe", server="all", principal=principal)
    alice.is_answered(alice.greets(), ...)
    alice.notifies("initialized")
    return play, alice, play.server


def listed(*tools: Any) -> Containing:
    return Containing({"tools": [Containing({"name": f"alpha__{tool['name']}"}) for tool in tools]})


def read(alice: Client, alpha: Server, *tools: Any) -> None:
    """The client lists tools, for which the server is asked."""
    asking = alice.asks("tools/list")
    alpha.starts(able=CAN)
    alpha.answers(alpha.is_asked("tools/list"), {"tools": list(tools)})
    alice.is_answered(asking, listed(*tools))


def test_a_stored_list_is_shown_at_once_and_read_again() -> None:
    """The client is told if it differs, and the new one is stored."""
    first, alice, alpha = meeting()
    read(alice, alpha, OLD)
    second, alice, alpha = meeting(first)
    asking = alice.asks("tools/list")
    alpha.is_started()
    alice.is_answered(asking, listed(OLD))
    alpha.connects()
    alpha.is_greeted(able=CAN)
    alpha.answers(alpha.is_asked("tools/list"), {"tools": [NEW]})
    alice.is_notified("tools/list_changed")
    third, alice, alpha = meeting(second)
    asking = alice.asks("tools/list")
    alpha.is_started()
    alice.is_answered(asking, listed(NEW))
    third.finish()


def test_a_list_is_there_though_its_server_is_down() -> None:
    first, alice, alpha = meeting()
    read(alice, alpha, OLD)
    second, alice, alpha = meeting(first)
    asking = alice.asks("tools/list")
    alpha.is_started()
    alice.is_answered(asking, listed(OLD))
    alpha.breaks_off(alpha.channel, Cause(End.UNREACHABLE, detail="no such program", unsent=True))
    second.finish()


@pytest.mark.parametrize(
    "other", [{"principal": "bob"}, {"tools": NameFilter(exclude=("old",))}], ids=["caller", "configuration"]
)
def test_another_caller_or_configuration_has_another_record(other: Any) -> None:
    first, alice, alpha = meeting()
    read(alice, alpha, OLD)
    _, alice, alpha = meeting(first, **other)
    read(alice, alpha, NEW)


@pytest.mark.parametrize("value", [b"", b"{", b'{"entries":[]}'])
def test_a_record_that_cannot_be_read_is_none(value: bytes) -> None:
    first, alice, alpha = meeting()
    read(alice, alpha, OLD)
    first.records = dict.fromkeys(first.records, value)
    _, alice, alpha = meeting(first)
    read(alice, alpha, OLD)


def test_a_long_list_is_not_stored() -> None:
    play, alice, alpha = meeting()
    long = {"name": "long", "description": "x" * SNAPSHOT_MAX_BYTES}
    read(alice, alpha, long)
    assert not play.records


def test_stored_lists_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Further lists are neither read nor written at `SNAPSHOTS_MAX`."""
    assert SNAPSHOTS_MAX > 1
    monkeypatch.setattr(snapshots, "SNAPSHOTS_MAX", 1)
    play, alice, alpha = meeting()
    read(alice, alpha, OLD)
    asking = alice.asks("prompts/list")
    alpha.answers(alpha.is_asked("prompts/list"), {"prompts": []})
    alice.is_answered(asking, ...)
    assert len(play.records) == 1
