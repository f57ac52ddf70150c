"""Two replicas in memory: requests come to `a`, and its port has them passed on to `b`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio
import http_fakes
import pytest
from anyio.abc import ByteStream
from forward_fakes import transport_of
from http_fakes import SURFACE, Client, World, world
from isthmus.core.access.gate import Gate
from isthmus.core.base.effects import Forward
from isthmus.core.base.events import Opening
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.base.replica import ReplicaName
from isthmus.core.replicas.leases import Peer
from isthmus.core.wire.http.hop import HopReceiver, HopSigner
from isthmus.core.wire.http.routes import Surface
from isthmus.transports.base.driver import Drive
from isthmus.transports.base.port import Outlet
from isthmus.transports.reverse_proxy import forwarder as forwarding
from isthmus.transports.reverse_proxy.replicas import ReplicaDialer, Replicas

SECRET = b"a secret of the replicas"
RUNS = {tag: tag * 32 for tag in "abc"}
INTERNAL = Surface(
    SURFACE.servers, frozenset({"nowhere"}), frozenset(), any_host=True, areas=SURFACE.areas - {"sse", "ws"}
)


CLOSED = "closed.invalid"
"""A host that refuses connections."""
B = Peer("b", RUNS["b"], "http://b.invalid:8933")


class FakeMembership:
    """The replicas that there are. One is known once it was looked up.

    Attributes:
        looked_up: the tags that were looked up.
        refused: those of them whose process was not met at its address.
        successors: what is found in place of a replica that was not met.
        may_answer: the event that a look-up waits for; None: it answers at once.
    """

    def __init__(self, *peers: Peer) -> None:
        self.peers = {peer.tag: peer for peer in peers}
        self.looked_up: list[str] = []
        self.refused: list[str] = []
        self.successors: dict[str, Peer] = {}
        self.may_answer: anyio.Event | None = None

    def known(self, tag: str) -> Peer | None:
        return self.peers.get(tag) if tag in self.looked_up else None

    async def find(self, tag: str, other_than: Peer | None = None, *, is_replaced: bool = False) -> Peer | None:
        if other_than is not None:
            self.refused.append(tag)
            if tag in self.successors:
                self.peers[tag] = self.successors.pop(tag)
        self.looked_up.append(tag)
        if self.may_answer is not None:
            await self.may_answer.wait()
        return self.peers.get(tag)


def signer(tag: str = "a", secret: bytes = SECRET) -> HopSigner:
    return HopSigner(secret, tag)


def receiver(tag: str = "b") -> HopReceiver:
    return HopReceiver(signer(tag), RUNS[tag])


@dataclass
class Pair:
    """Two replicas.

    Attributes:
        client: of `a`.
        made: the number of connections from `a` to `b`.
        error: raised to whoever connects to `b`.
    """

    a: World
    b: World
    membership: FakeMembership
    replicas: Replicas
    made: int = 0
    error: Exception | None = None

    @property
    def client(self) -> Client:
        return self.a.client


def passes_on(channel: ChannelId, opening: Opening, outlet: Outlet) -> None:
    """The engine of a replica for which no request is meant."""
    if not getattr(opening, "is_returned", False):
        outlet.forward(Forward(channel, "b"))  # type: ignore[attr-defined]


@asynccontextmanager
async def pair(
    monkeypatch: pytest.MonkeyPatch,
    limits: Limits | None = None,
    *,
    capacity: int = 1 << 20,
    gate: Gate | None = None,
    only_h11: bool = False,
) -> AsyncIterator[Pair]:
    membership = FakeMembership(B)
    limits = limits or Limits()
    replicas = Replicas(membership, signer(), limits, Drive(protocols=http_fakes.uses_protocols, only_h11=only_h11))
    with monkeypatch.context() as patch:
        patch.setattr(forwarding, "transport_of", transport_of)
        internal = world(limits, surface=INTERNAL, capacity=capacity, hops=receiver())
        public = world(limits, capacity=capacity, replicas=replicas, gate=gate, only_h11=only_h11)
        async with internal as b, replicas, public as a:
            both = Pair(a, b, membership, replicas)

            async def connect(dialer: ReplicaDialer, tls: object) -> ByteStream:
                await anyio.lowlevel.checkpoint()
                if dialer.peer[0] == CLOSED:
                    raise ConnectionRefusedError
                if both.error is not None:
                    raise both.error
                both.made += 1
                return b.connect().stream

            patch.setattr(ReplicaDialer, "_open", connect)
            a.port.on_open = passes_on
            yield both
            for stream in [a.client.stream]:
                stream.hang_up()
            await replicas.wait_no_calls()
            await replicas.close_idle()


def named(tag: str = "b") -> ReplicaName:
    return ReplicaName(tag, RUNS[tag])
