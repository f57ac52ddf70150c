"""The state that all connections of an HTTP server share, and what is remembered of request heads."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Final

import anyio

from ...core.access.gate import Gate
from ...core.access.identity import INTROSPECTION, Peer
from ...core.access.issuer_answers import Wanted
from ...core.base.budget import Budget, address_owner
from ...core.base.errors import RemoteProtocolError
from ...core.base.limits import Limits
from ...core.base.storage import Serve
from ...core.wire.headers import Headers
from ...core.wire.http.admin_routes import PROBED, find_page
from ...core.wire.http.dates import format_date
from ...core.wire.http.endpoint_paths import usual_path
from ...core.wire.http.error_responses import refusal, refusal_at
from ...core.wire.http.forwarded_for import FORWARDED_FOR, caller_host
from ...core.wire.http.hop import HOP, REFUSED, TEXTS, HopCaller, HopReceiver, with_caller
from ...core.wire.http.request_target import split_target
from ...core.wire.http.routes import AREAS, ForwardRoute, Head, McpRoute, PageRoute, Refused, Route, Surface
from ...core.wire.http.server import judge, shared_headers
from ...core.wire.http1.events import RequestHead
from ..base.port import FileService, Port
from ..base.traffic import Counts
from ..http1.server import ServerCodec
from ..reverse_proxy.forwarder import Forwarder
from ..reverse_proxy.replicas import Replicas

_audit: Final = logging.getLogger("isthmus.audit")
_log: Final = logging.getLogger("isthmus.http")

Pages = Callable[[PageRoute, bytes], Awaitable[Refused | Serve]]
"""A function that answers a request for a page with this body, by a response or a file. It is cancelled if its client
hangs up."""


LENGTH_MAX_BYTES: Final = len(b"18446744073709551615")
"""The longest value of a Content-Length, in a head that is remembered."""


DENIED: Final = "denied"
"""The attribute of a log record that has the parts of its line: method, path, address and reason."""
DENIALS_MAX: Final = 20
"""Lines about denied requests in a second. At it: the others are counted, so that nobody can fill the log."""
PATH_MAX_CHARS: Final = 200
"""Characters of a path in such a line. At it: the rest is left out."""

OTHER_AREA: Final = "other"
"""The area of requests that no route is found for: malformed ones, or for unknown paths."""
REPLICA_AREA: Final = "replica"
"""The area of requests that another replica has passed on, which counts them in their own."""
_AREAS: Final = {area: "sse" if area == "messages" else area for area in AREAS}

DATED_MAX: Final = 64
"""Sets of response headers remembered within one second. They differ in media type and in CORS headers."""


class RoutedHead:
    """The result of routing a request's head. A request with the same head need not be routed again.

    Attributes:
        area: one of `AREAS`, `OTHER_AREA` or `REPLICA_AREA`. Both paths of HTTP+SSE are in `sse`.
        head: the last head with this result.
        owner: the owner that the address of the caller stands for, as `budget.address_owner` gives it.
        may_be_kept: the result depends on nothing but the head, and the client is likely to send it again.
        gate_epoch: the epoch of the gate that let it in; None without a gate. The result holds in that epoch only, and
            until the caller's identity expires.
        hop_until: Unix seconds until which the header `Isthmus-Hop` counts; None if it has none.
    """

    __slots__ = ("_named", "area", "gate_epoch", "head", "hop_until", "may_be_kept", "owner", "route", "shared_headers")

    def __init__(
        self,
        head: RequestHead,
        route: Route,
        shared_headers: Headers,
        *,
        may_be_kept: bool,
        area: str = OTHER_AREA,
        owner: str = "",
        gate_epoch: int | None = None,
        hop_until: float | None = None,
    ) -> None:
        self.route = route
        self.area = area
        self.hop_until = hop_until
        self.gate_epoch = gate_epoch
        self.shared_headers = shared_headers
        self.may_be_kept = may_be_kept
        self.owner = owner
        self.head = head
        self._named: Headers | None = None  # its headers without the length, made on first use

    def fits(self, head: RequestHead) -> bool:
        """True if `head` is the same request head; only the length of the body may differ."""
        known = self.head
        if head is known:  # the codec recognised the same bytes
            return True
        if self._named is None:
            self._named = _without(b"content-length", known.headers)
        if (
            head.target != known.target
            or head.method != known.method
            or head.version != known.version
            or len(head.headers) != len(known.headers)
            or _without(b"content-length", head.headers) != self._named
        ):
            return False
        self.head = head
        return True


def _area_of(target: str, surface: Surface) -> str:
    """Returns the area of a request target."""
    try:
        _, path, _ = split_target(target)
    except RemoteProtocolError:
        return OTHER_AREA
    path = surface.aliases.get(path.rstrip("/"), path)
    return "pages" if find_page(path) else _AREAS.get(usual_path(path)[1:].partition("/")[0], OTHER_AREA)


def _without(name: bytes, headers: Headers) -> Headers:
    return tuple([header for header in headers if header[0] != name])


class Denials:
    """The audit log of callers who were not let in: one line each, and at most `DENIALS_MAX` in a second."""

    def __init__(self) -> None:
        self._second = 0
        self._count = 0

    def log(self, method: str, target: str, peer: str, reason: str) -> None:
        """Logs a denial. The query of the target is left out: it may hold a secret."""
        now = int(time.monotonic())
        if now != self._second:
            if self._count > DENIALS_MAX:
                _audit.warning("denied: %d more requests in one second", self._count - DENIALS_MAX)
            self._second, self._count = now, 0
        self._count += 1
        if self._count <= DENIALS_MAX:
            path = target.partition("?")[0][:PATH_MAX_CHARS]
            parts = method, path, peer, reason
            _audit.warning("denied: %s %s from %s: %s", *parts, extra={DENIED: parts})


@dataclass
class ServerContext:
    """The settings and services that all connections of a server share.

    Attributes:
        gate: decides who a request is from; None: nobody is asked.
        wait_for_issuer: returns when a request to an issuer that the gate wants is answered, or has failed.
        replicas: passes requests on to other replicas; None: there are none.
        hops: checks requests that other replicas pass on: no others are served; None: there are none.
        ends_connections: each response is the last one of its connection.
        is_draining: no connection is accepted, and nothing new begins.
        bodies: the room for messages that are arriving.
    """

    surface: Surface
    port: Port
    files: FileService
    limits: Limits
    pages: Pages
    scheme: str
    forwarder: Forwarder | None
    counts: Counts
    only_h11: bool = False
    gate: Gate | None = None
    wait_for_issuer: Callable[[Wanted], Awaitable[None]] | None = None
    replicas: Replicas | None = None
    hops: HopReceiver | None = None
    ends_connections: bool = False
    is_draining: bool = False
    make_codec: Callable[[], ServerCodec] = field(init=False)
    bodies: Budget = field(init=False)
    denials: Denials = field(default_factory=Denials)
    _date: tuple[int, bytes] = field(default=(0, b""))
    _dated: dict[tuple[Headers, Headers], Headers] = field(default_factory=dict)  # within the current second
    _changed: anyio.Event | None = None  # while anybody waits for it
    _has_told_proxy: bool = False  # of a proxy that is not trusted

    def __post_init__(self) -> None:
        size_max = self.limits.head_size_max_bytes
        self.bodies = Budget(self.limits.bodies_max_bytes, self.limits.bodies_per_owner_max_bytes)
        self.make_codec = partial(ServerCodec, head_size_max_bytes=size_max, only_h11=self.only_h11)

    def admit(self, head: RequestHead, peer: Peer, address: str = "") -> RoutedHead:
        """Routes a request, or refuses it, and computes the headers that every response to it carries.

        Args:
            peer: the client.
            address: of the client, as `budget.address_owner` gives it.
        """
        judged = Head(head.method, head.target, head.headers, head.version)
        shared = shared_headers(judged, self.surface)
        limit = self.limits.head_size_max_bytes
        line_size = len(head.method) + len(head.target)
        if line_size + len("  HTTP/1.1") > limit:
            return RoutedHead(head, self.refuse_head(is_in_target=True), shared, may_be_kept=False, owner=address)
        size = line_size + sum(map(len, chain.from_iterable(head.headers))) + len(": \r\n") * len(head.headers)
        if size > limit:
            # h11 checks the limit only while a head is incomplete, but how a head was cut up must not matter.
            return RoutedHead(head, self.refuse_head(is_in_target=False), shared, may_be_kept=False, owner=address)
        if len(head.headers) > self.limits.headers_max:
            seen = f"got {len(head.headers)} headers, expected at most {self.limits.headers_max}"
            return RoutedHead(head, refusal(431, seen), shared, may_be_kept=False, owner=address)
        if self.hops is not None:
            return self._admit_hop(self.hops, head, judged, peer, address, size)
        now = 0.0 if self.gate is None else time.time()
        scheme = "https" if peer.is_secure else self.scheme
        host, owner = peer.host, address
        for name, _ in head.headers:
            if name == FORWARDED_FOR:
                host = self._caller_host(head.headers, peer)
                owner = address_owner(host)
                break
        route = judge(judged, self.surface, scheme=scheme, address=owner, gate=self.gate, peer=peer, now=now)
        is_posted = (isinstance(route, McpRoute) and route.is_posted) or (
            isinstance(route, ForwardRoute) and head.method == "POST"
        )
        may_be_kept = is_posted and size + LENGTH_MAX_BYTES <= limit
        if isinstance(route, McpRoute | ForwardRoute) and route.identity.via == INTROSPECTION:
            may_be_kept = False  # its issuer is asked again soon, and may have revoked the token
        if isinstance(route, Refused) and route.denied:
            self.denials.log(head.method, head.target, host or "a Unix socket", route.denied)
        epoch = None if self.gate is None else self.gate.epoch
        area = _area_of(head.target, self.surface)
        return RoutedHead(head, route, shared, may_be_kept=may_be_kept, area=area, owner=owner, gate_epoch=epoch)

    def _caller_host(self, headers: Headers, peer: Peer) -> str:
        """Returns the address that a request with `X-Forwarded-For` came from: that of the client, or, if this is a
        trusted proxy, the one that it names."""
        proxies = self.surface.trusted_proxies
        if not (self._has_told_proxy or proxies.has(peer)):
            self._has_told_proxy = True
            _log.warning(
                "got X-Forwarded-For from %s, which is no trusted proxy: limits by address and the log have its own "
                "address; if it is your balancer, name it in %s",
                peer.host or "a Unix socket",
                self.surface.names.trusted_proxies,
            )
        return caller_host(headers, peer, proxies)

    def _admit_hop(
        self, hops: HopReceiver, head: RequestHead, judged: Head, peer: Peer, address: str, size: int
    ) -> RoutedHead:
        """Routes a request that another replica passes on, or a probe, as `admit` does. Headers that every response
        carries are those of the other replica."""
        caller = hops.check(judged, time.time())
        if isinstance(caller, HopCaller):
            # That replica has checked the Origin, by the host names that it has itself.
            judged = Head(head.method, head.target, _without(b"origin", head.headers), head.version)
            scheme = "https" if caller.is_secure else "http"
            route = with_caller(judge(judged, self.surface, scheme=scheme, address=caller.address), caller)
            may_be_kept = (
                isinstance(route, McpRoute)
                and route.is_posted
                and size + LENGTH_MAX_BYTES <= self.limits.head_size_max_bytes
            )
            until = caller.expires_at_unix
            return RoutedHead(
                head, route, (), may_be_kept=may_be_kept, area=REPLICA_AREA, owner=caller.address, hop_until=until
            )
        route = judge(judged, self.surface)
        if not (isinstance(route, PageRoute) and route.page in PROBED):
            self.denials.log(head.method, head.target, peer.host or "a Unix socket", f"Isthmus-Hop: {TEXTS[caller]}")
            message = "got no valid Isthmus-Hop, expected one: this address is for other replicas, and not for clients"
            route = refusal_at(head.target, 403, message, ((HOP, REFUSED),))
        return RoutedHead(head, route, (), may_be_kept=False, area=REPLICA_AREA, owner=address)

    def still_holds(self, admitted: RoutedHead) -> bool:
        """True if a request with the same head would be routed alike now: its caller's identity has not ended."""
        if admitted.hop_until is not None:
            return time.time() < admitted.hop_until
        if self.gate is None:
            return True
        assert isinstance(admitted.route, McpRoute | ForwardRoute)
        expires_at = admitted.route.identity.expires_at
        return admitted.gate_epoch == self.gate.epoch and (expires_at is None or time.time() < expires_at)

    async def wait_change(self) -> None:
        """Returns when callers that were let in may not hold any more."""
        self._changed = changed = self._changed or anyio.Event()
        await changed.wait()

    def tell_change(self) -> None:
        """Lets every `wait_change` return."""
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    def refuse_head(self, *, is_in_target: bool) -> Refused:
        """Returns the refusal of a head over the limit: of the request line, or of the headers."""
        limit = f"expected at most {self.limits.head_size_max_bytes} bytes"
        if is_in_target:
            return refusal(414, f"got a request target over the limit, {limit}")
        return refusal(431, f"got a head over the limit, {limit}")

    def date(self) -> bytes:
        """The value of the Date header, formatted once a second."""
        now = int(time.time())
        if self._date[0] != now:
            self._date = (now, format_date(now).encode())
            self._dated.clear()
        return self._date[1]

    def dated(self, headers: Headers, shared: Headers) -> Headers:
        """Returns a reply's headers, the shared headers of its request, and the date. Equal arguments give the same
        object within one second, which `ServerCodec.encode_document` recognises."""
        date = self.date()
        found = self._dated.get((headers, shared))
        if found is None:
            if len(self._dated) >= DATED_MAX:
                self._dated.clear()
            dates = () if any(name == b"date" for name, _ in headers) else ((b"date", date),)
            found = self._dated[headers, shared] = (*headers, *shared, *dates)
        return found
