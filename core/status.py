"""The status of each server, as operators see it, and the commands that they may give."""

from __future__ import annotations

import enum
from collections import Counter

import msgspec

from .base.events import PipeOpening
from .base.revisions import Era
from .endpoints.channels import MessageRole, PipeRole, PostRole, StreamRole
from .routing.links import Links
from .state.context import ChannelRole, Context
from .state.exchange import Exchange
from .state.link import Link
from .state.upstream_channels import DuplexRole, UpstreamPostRole, UpstreamStreamRole
from .state.upstream_session import UpstreamSessionState
from .upstream.addresses import Addresses
from .upstream.handshake import Handshaker


class Command(enum.Enum):
    START = "start"  # allow the server to run, and start what can be started before a client connects
    STOP = "stop"  # end what runs, and start nothing until START
    RESTART = "restart"  # STOP, then START


class AddressStatus(msgspec.Struct, frozen=True, kw_only=True):
    """An address of a server that has several.

    Attributes:
        state: `well` (the last handshake there succeeded, or it may be tried again), `ill` (it failed, and is left
            alone for a while), `unknown` (none was tried there yet).
        sessions: the sessions with the server that are there.
        failures: the failures in a row, those within one pause counted once.
        last_error: the latest of them; "" if it has worked since.
    """

    name: str
    state: str
    sessions: int
    failures: int
    last_error: str


class Status(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A server as it is now.

    Attributes:
        state: `running` (requests can pass, in at least one session), `starting`, `failed` (the last attempt failed,
            and nothing runs), `stopped` (by order), `idle` (nothing runs; the next client's request starts it).
        sessions: the number of client sessions.
        in_flight: the number of requests sent to the server that wait for their response.
        processes: the number of its processes, those that are ending and those in the warm pool included.
        spares: the number of its processes in the warm pool.
        starts: the number of processes or connections begun so far.
        failures: the number of starts that failed.
        noise: the number of lines and other things it sent that were no messages.
        differences: what is wrong with definitions that it lists, such as one that differs from what was approved: each
            with its kind and name (`tools/search`).
        differences_seen: the number of times that such a difference was new.
        limited: the number of calls that a rate limit has refused, for each tool, with its name.
        cache_hits: the number of requests that were answered with a kept result.
        cache_misses: the number of those that were not, though a result for them could have been kept.
        last_error: how the last session with the server ended, if it ended badly.
        eras: the eras that the server was found to speak (`handshake`, `stateless`), each with the revision that it
            named.
        era: the era that is spoken in the sessions where requests can pass now, `handshake`, `stateless` or `both`;
            None if there are none.
        revision: the protocol revision that the server speaks, once it has named it.
        capabilities: the names of the capabilities that it declared.
        addresses: its addresses, if it has several.
        ready_at: the moment since which requests can pass, in the oldest such session; None if they cannot.
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
    noise: int
    differences: tuple[tuple[str, str], ...] = ()
    differences_seen: int = 0
    limited: tuple[tuple[str, int], ...] = ()
    cache_hits: int = 0
    cache_misses: int = 0
    last_error: str
    eras: dict[str, str | None]
    era: str | None
    revision: str | None
    capabilities: tuple[str, ...]
    addresses: tuple[AddressStatus, ...] = ()
    ready_at: float | None


class ChannelStatus(msgspec.Struct, frozen=True):
    """A channel as it is now.

    Attributes:
        is_upstream: it leads to a server; else it is of a client.
        server: the id of the server; of a client, that of the server or profile that it uses.
        session: the public name of the client's session; "" if it has none yet, or the channel serves several.
        is_own: it is of a session of the driver's own, and no wire.
    """

    is_upstream: bool
    server: str
    session: str
    is_own: bool = False


def channel_status(role: ChannelRole | None) -> ChannelStatus | None:
    """Returns the status of a channel with this role; None if it carries no messages of the protocol, or is gone."""
    match role:
        case PipeRole(opening=PipeOpening(is_own=True)):
            return ChannelStatus(False, role.opening.server, "", is_own=True)
        case PostRole() | PipeRole():
            return ChannelStatus(False, role.opening.server, "" if role.session is None else role.session.sid)
        case MessageRole():
            return ChannelStatus(False, role.opening.server, "")
        case StreamRole():
            return ChannelStatus(False, role.session.server, role.session.sid)
        case DuplexRole() | UpstreamPostRole() | UpstreamStreamRole():
            link = role.link
            return ChannelStatus(True, link.plan.id, "" if link.is_shared else link.session.files_sid)
    return None


def report(context: Context, handshaker: Handshaker, links: Links, sessions: Counter[str]) -> tuple[Status, ...]:
    """Returns the status of every server, in the order of the plan.

    Args:
        sessions: the number of client sessions of each server.
    """
    by_server: dict[str, list[Link]] = {id: [] for id in context.servers}
    for link in links.links.values():
        by_server[link.plan.id].append(link)
    return tuple(_status(context, handshaker, id, by_server[id], sessions[id]) for id in by_server)


def _status(context: Context, handshaker: Handshaker, id: str, links: list[Link], sessions: int) -> Status:
    health, warm_pool = handshaker.health[id], handshaker.warm_pool
    states = {link.upstream.state for link in links}
    spoken = handshaker.server_eras[id].spoken
    now = {link.era for link in links if link.upstream.state is UpstreamSessionState.READY}
    known = next((link.upstream for link in reversed(links) if link.upstream.revision is not None), None)
    if UpstreamSessionState.READY in states:
        state = "running"
    elif states - {UpstreamSessionState.IDLE, UpstreamSessionState.CLOSED}:
        state = "starting"
    elif health.is_stopped:
        state = "stopped"
    elif warm_pool.spare_count(id):
        state = "running"
    else:
        state = "failed" if health.is_failing else "idle"
    return Status(
        id=id,
        kind=context.servers[id].kind.value,
        state=state,
        sessions=sessions,
        in_flight=sum(
            isinstance(entry, Exchange) and not entry.is_lasting for link in links for entry in link.pending.values()
        ),
        processes=sum(link.children for link in links) + warm_pool.spare_count(id),
        spares=warm_pool.spare_count(id),
        starts=health.starts,
        failures=health.failures,
        noise=health.noise.total(),
        differences=tuple((f"{kind}/{name}", text) for (kind, name), text in sorted(health.differences.items())),
        differences_seen=health.differences_seen,
        limited=tuple(sorted(health.limited.items())),
        cache_hits=health.cache_hits,
        cache_misses=health.cache_misses,
        last_error=health.last_error,
        eras={era.value: spoken[era] for era in Era if era in spoken},
        era="both" if len(now) > 1 else next((era.value for era in now), None),
        revision=None if known is None else known.revision,
        capabilities=() if known is None else tuple(sorted(known.capabilities or ())),
        addresses=_addresses(handshaker.addresses.get(id), context.now),
        ready_at=min(
            (link.upstream.ready_at for link in links if link.upstream.state is UpstreamSessionState.READY),
            default=None,
        ),
    )


def _addresses(addresses: Addresses | None, now: float) -> tuple[AddressStatus, ...]:
    return tuple(
        AddressStatus(
            name=address.name,
            state="ill" if not address.is_well(now) else "well" if address.has_outcome else "unknown",
            sessions=address.links,
            failures=address.failures,
            last_error=address.last_error,
        )
        for address in (() if addresses is None else addresses.all)
    )
