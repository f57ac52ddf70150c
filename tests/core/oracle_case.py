"""The cases of the oracle: conversations that keep a rule, and break it with one change.

The cases stand in `oracle_cases_…`, by kind of rule; `oracle_cases` has all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from isthmus.core.oracle import Oracle, Transport
from wire_scenes import K, Wire

Play = Callable[[Wire, bool], None]
PIPE, HTTP, SSE = Transport.PIPE, Transport.HTTP, Transport.EVENTS
V5 = "2026-07-28"


class Case(NamedTuple):
    """One rule and its conversation.

    Attributes:
        play: writes the conversation: `play(wire, is_broken)`.
        oracle: further arguments of the oracle.
    """

    rule: str
    transport: Transport
    play: Play
    oracle: dict[str, Any]


CASES: list[Case] = []


def case(rule: str, transport: Transport = PIPE, **oracle: Any) -> Callable[[Play], Play]:
    def keep(play: Play) -> Play:
        CASES.append(Case(rule, transport, play, oracle))
        return play

    return keep


def found(case: Case, revision: str, is_broken: bool) -> tuple[Wire, list[Any]]:
    """Plays a case. Returns its wire, and the violations that the oracle finds."""
    wire = Wire(revision, case.transport)
    case.play(wire, is_broken)
    oracle = Oracle(None if revision == V5 else revision, case.transport, **case.oracle)
    seen = [violation for each in wire.seen for violation in oracle.receive(each)]
    return wire, seen + oracle.finish()


def breaks(wire: Wire, since: int = 0) -> list[str]:
    """Returns the rules that are broken by the observations from number `since` on."""
    oracle = Oracle(None, wire.transport)
    found = [(number, violation) for number, each in enumerate(wire.seen) for violation in oracle.receive(each)]
    return [violation.rule for number, violation in found if number >= since]


# --- Messages for several kinds of rule -------------------------------------------------------------------------------


def acknowledge(w: Wire, id: Any, honoured: dict[str, Any], shown_id: Any = None) -> None:
    meta = {K + "subscriptionId": id if shown_id is None else shown_id}
    w.tell("notifications/subscriptions/acknowledged", id, _meta=meta, notifications=honoured)


def task(id: str, status: str = "working", **more: Any) -> dict[str, Any]:
    """A task of 2025-11-25."""
    members = {"taskId": id, "status": status, "createdAt": "t", "lastUpdatedAt": "t", "ttl": None, **more}
    return {name: value for name, value in members.items() if value is not ...}


def detailed(id: str, status: str = "working", **more: Any) -> dict[str, Any]:
    """A task of the extension."""
    members = {"taskId": id, "status": status, "createdAt": "t", "lastUpdatedAt": "t", "ttlMs": 1000, **more}
    return {name: value for name, value in members.items() if value is not ...}
