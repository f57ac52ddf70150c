"""The other replicas of one store: requests are passed on to the one that has what they are about.

Another replica is a transparent server without a configuration: its address comes from its lease. Requests reach it on
its internal listener, with the header `Isthmus-Hop`, and otherwise as the client has sent them.
"""

from __future__ import annotations

import time
from typing import Final, Protocol

from ...core.base.limits import Limits
from ...core.replicas.leases import REPLICAS_MAX, Peer
from ...core.wire.headers import Headers
from ...core.wire.http.hop import HOP, REFUSED, SIGN_EVERY_S, HopCaller, HopSigner
from ...core.wire.http.reverse_proxy import HeaderRules, hop_headers
from ...core.wire.http.reverse_proxy_exchange import ForwardFailed, ForwardPlan
from ...core.wire.http.routes import Head
from ..base.dialer import Dialer
from ..base.driver import DRIVE, Drive
from ..base.endpoint import Endpoint
from .forwarder import Forwarder, TransparentServer

UNIX: Final = "unix:"
"""The start of the address of a replica on this machine. The path of its Unix socket follows."""
_NOWHERE: Final = (
    "its address is not known: the records cannot be read now, or it has neither cluster.listen nor cluster.socket"
)


class Membership(Protocol):
    """The replicas that there are."""

    def known(self, tag: str) -> Peer | None:
        """Returns the replica with this tag; None if it has to be looked up."""

    async def find(self, tag: str, other_than: Peer | None = None, *, is_replaced: bool = False) -> Peer | None:
        """Looks a replica up. Returns None if it is gone for good.

        Args:
            other_than: the replica as it was known, whose process was not met at its address. It is returned if it is
                still the one with this tag.
            is_replaced: another process was met there.
        """


class ReplicaDialer(Dialer):
    """Connects to the internal listener of a replica.

    Raises:
        ValueError: the address cannot be used.
    """

    def __init__(self, address: str, limits: Limits) -> None:
        path = address.removeprefix(UNIX) if address.startswith(UNIX) else ""
        endpoint = Endpoint("http://localhost" if path else address)
        super().__init__(endpoint, endpoint.address(), limits, unix_path=path)

    def explain_refusal(self, status: int, headers: Headers) -> str:
        """Explains a response of the listener to the header `Isthmus-Hop`; "" if it is one to the request."""
        if status == 403 and (HOP, REFUSED) in headers:
            return "it refused the signature: if this recurs, set the same cluster.secret at both, and set their clocks"
        return ""


class HopPlan:
    """The form in which requests with one head go to a replica, for as long as its signature may be used."""

    __slots__ = ("_signed_at", "plan", "run")

    def __init__(self, plan: ForwardPlan, run: str) -> None:
        self.plan = plan
        self.run = run
        self._signed_at = time.monotonic()

    def is_for(self, replica: Peer) -> bool:
        return replica.run == self.run and time.monotonic() - self._signed_at < SIGN_EVERY_S


class Replicas(Forwarder):
    """Passes requests on to other replicas. Used as a `Forwarder`, whose servers are known by their addresses.

    Args:
        signer: of this replica.

    Attributes:
        membership: the replicas that there are.
    """

    def __init__(self, membership: Membership, signer: HopSigner, limits: Limits, drive: Drive = DRIVE) -> None:
        super().__init__({}, limits, drive)
        self.membership = membership
        self._signer = signer

    def note_gone(self, address: str) -> None:
        """Ends the requests to a replica whose lease is over: it may be paused, and answer never or in an hour."""
        for link in [link for link in self._links if link.server == address]:
            link.stop()

    def plan_hop(self, replica: Peer, head: Head, caller: HopCaller, *, is_streamed: bool) -> HopPlan:
        """Returns the form in which requests with this head go to a replica.

        Args:
            is_streamed: the body goes on as it comes, with the client's framing.

        Raises:
            LocalProtocolError: the caller has too many groups or scopes.
        """
        hop = self._signer.sign(replica.run, head.method, head.target, caller, time.time())
        headers = hop_headers(head, hop, is_streamed=is_streamed)
        return HopPlan(ForwardPlan(head.method, head.target.encode(), headers), replica.run)

    def reach(self, address: str) -> str:
        """Returns the id of the server at an address.

        Raises:
            ForwardFailed: there are too many, or the address cannot be used.
        """
        if address not in self._servers:
            if len(self._servers) >= REPLICAS_MAX:
                unused = next((id for id, server in self._servers.items() if not server.links), None)
                if unused is None:
                    detail = f"overloaded: there are connections to {REPLICAS_MAX} replicas"
                    raise ForwardFailed(503, "overloaded", detail)
                self.remove(unused)
            try:
                dialer = ReplicaDialer(address, self._limits)
            except ValueError as error:
                detail = f"the address {address!r} of another replica cannot be used: {error}" if address else _NOWHERE
                raise ForwardFailed(503, "upstream_unreachable", detail) from None
            plans_max = self._limits.pool_idle_max
            server = TransparentServer(Endpoint("http://localhost"), None, HeaderRules(), plans_max=plans_max)
            self.add(address, server, dialer, f"the replica at {address}")
        return address
