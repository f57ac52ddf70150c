"""What an operator is told of a server, and may order."""

from __future__ import annotations

import enum
from collections import Counter

import msgspec

from .base.revisions import Era
from .routing.router import Servers
from .state.exchange import Exchange
from .state.link import Link
from .state.upstream_session import State


class Command(enum.Enum):
    START = "start"  # let it run again, and start what can be started before a client comes
    STOP = "stop"  # end what runs, and start nothing before it is told to
    RESTART = "restart"  # the one after the other


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """A server as it is now.

    Attributes:
        state: `running` (requests can pass, in at least one session), `starting`, `failed` (the last attempt failed,
            and nothing runs), `stopped` (by order), `idle` (nothing runs; the next client's request starts it).
        sessions: of clients.
        in_flight: requests that it has been sent and not answered.
        processes: of ours, those that are ending and the spare ones included.
        starts: processes or connections begun so far.
        failures: those that failed.
        last_error: how the last session with it ended, if it ended badly.
        eras: how it was found to speak, `handshake`, `stateless` or both, each with the revision that it named.
        era: how it is spoken to in the sessions where requests can pass now, `handshake`, `stateless` or `both`; None
            if there are none.
        revision: the protocol revision it speaks, once it has said so.
        capabilities: what it declared, by name.
        ready_at: since when requests can pass, in the session that has stood longest; None if they cannot.
    """

    id: str
    kind: str
    state: str
    sessions: int
    in_flight: int
    processes: int
    spares: int
    starts: int
    failures: int
    last_error: str
    eras: dict[str, str | None]
    era: str | None
    revision: str | None
    capabilities: tuple[str, ...]
    ready_at: float | None


def report(servers: Servers, sessions: Counter[str]) -> tuple[Status, ...]:
    """Every server of the plan, in its order.

    Args:
        sessions: how many each has.
    """
    links: dict[str, list[Link]] = {id: [] for id in servers.handshakes.health}
    for link in servers.links.values():
        links[link.plan.id].append(link)
    return tuple(_status(servers, id, links[id], sessions[id]) for id in links)


def _status(servers: Servers, id: str, links: list[Link], sessions: int) -> Status:
    health, nursery = servers.handshakes.health[id], servers.handshakes.nursery
    states = {link.upstream.state for link in links}
    spoken = servers.handshakes.verdicts[id].spoken
    now = {link.era for link in links if link.upstream.state is State.READY}
    known = next((link.upstream for link in reversed(links) if link.upstream.revision is not None), None)
    if State.READY in states:
        state = "running"
    elif states - {State.IDLE, State.CLOSED}:
        state = "starting"
    elif health.is_stopped:
        state = "stopped"
    elif nursery.spare_count(id):
        state = "running"
    else:
        state = "failed" if health.is_failing else "idle"
    return Status(
        id=id,
        kind=servers.kind_of(id),
        state=state,
        sessions=sessions,
        in_flight=sum(isinstance(entry, Exchange) for link in links for entry in link.pending.values()),
        processes=sum(link.children for link in links) + nursery.spare_count(id),
        spares=nursery.spare_count(id),
        starts=health.starts,
        failures=health.failures,
        last_error=health.last_error,
        eras={era.value: spoken[era] for era in Era if era in spoken},
        era="both" if len(now) > 1 else next((era.value for era in now), None),
        revision=None if known is None else known.revision,
        capabilities=() if known is None else tuple(sorted(known.capabilities or ())),
        ready_at=min((link.upstream.ready_at for link in links if link.upstream.state is State.READY), default=None),
    )
