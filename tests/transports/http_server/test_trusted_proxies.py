"""Tests of the address of a caller behind a proxy, over real sockets: in openings, in the log and in limits."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_network
from typing import NamedTuple

import anyio
import msgspec
import pytest
from anyio.abc import SocketAttribute, SocketStream
from http_fakes import SURFACE, WAIT_S, FakeFiles, FakePort, pages, post
from isthmus.core.access.gate import Gate, GateSettings
from isthmus.core.access.static_tokens import StaticToken, digest_of, new_token
from isthmus.core.base.budget import UNCOUNTED_MAX_BYTES
from isthmus.core.base.effects import Send
from isthmus.core.base.events import PostOpening
from isthmus.core.base.limits import Limits
from isthmus.core.replicas.leases import Peer
from isthmus.core.wire.http.forwarded_for import TrustedProxies
from isthmus.transports.http_server.server import HttpServer
from isthmus.transports.reverse_proxy.replicas import Replicas
from replica_fakes import INTERNAL, RUNS, FakeMembership, passes_on, receiver, signer

pytestmark = pytest.mark.anyio

RESULT = b'{"jsonrpc":"2.0","id":1,"result":{}}'
TRUSTED = TrustedProxies((ip_network("127.0.0.1"),))
FORGED = "X-Forwarded-For: 198.51.100.7"


class Both(NamedTuple):
    a: FakePort
    b: FakePort
    port: int


@asynccontextmanager
async def both(
    proxies: TrustedProxies, *, passes: bool = False, limits: Limits | None = None, gate: Gate | None = None
) -> AsyncIterator[Both]:
    """Two replicas, of which `a` may pass all requests on to `b`, which trusts nobody."""
    limits = limits or Limits()
    internal = await anyio.create_tcp_listener(local_host="127.0.0.1")
    address = f"http://127.0.0.1:{internal.extra(SocketAttribute.local_port)}"
    replicas = Replicas(FakeMembership(Peer("b", RUNS["b"], address)), signer(), limits)
    a, b = FakePort(), FakePort()
    (b if passes else a).on_message = lambda channel, message, outlet: outlet.send(Send(channel, message, is_last=True))
    if passes:
        a.on_open = passes_on
    surface = msgspec.structs.replace(SURFACE, trusted_proxies=proxies)
    near = HttpServer(surface, a, FakeFiles(), limits, pages=pages, replicas=replicas, gate=gate)
    far = HttpServer(INTERNAL, b, FakeFiles(), limits, pages=pages, hops=receiver())
    public = await anyio.create_tcp_listener(local_host="127.0.0.1")
    with anyio.fail_after(WAIT_S):
        async with replicas, anyio.create_task_group() as tasks:
            await tasks.start(far.serve, internal)
            await tasks.start(near.serve, public)
            yield Both(a, b, public.extra(SocketAttribute.local_port))
            tasks.cancel_scope.cancel()


async def answered(stream: SocketStream, request: bytes) -> bytes:
    await stream.send(request)
    return await stream.receive()


def addresses(port: FakePort) -> list[str]:
    return [opening.address for opening in port.openings.values() if isinstance(opening, PostOpening)]


async def test_each_request_of_a_proxy_has_the_address_of_its_own_client() -> None:
    seen = ["203.0.113.9", "203.0.113.10", "2001:db8:1:2:3::4", "203.0.113.10", "203.0.113.10", "[2001:db8::1]:80"]
    async with both(TRUSTED) as w, await anyio.connect_tcp("127.0.0.1", w.port) as balancer:
        for address in seen:
            assert b" 200 " in await answered(balancer, post(RESULT, FORGED, f"X-Forwarded-For: {address}"))
        assert b" 200 " in await answered(balancer, post(RESULT))
    owners = ["203.0.113.9", "203.0.113.10", "2001:db8:1:2::/64", "203.0.113.10", "203.0.113.10", "2001:db8::/64"]
    assert addresses(w.a) == [*owners, "127.0.0.1"]


async def test_the_address_goes_along_to_another_replica() -> None:
    async with both(TRUSTED, passes=True) as w, await anyio.connect_tcp("127.0.0.1", w.port) as balancer:
        for address in ("203.0.113.9", "203.0.113.10"):
            assert b" 200 " in await answered(balancer, post(RESULT, FORGED, f"X-Forwarded-For: {address}"))
    assert addresses(w.b) == addresses(w.a) == ["203.0.113.9", "203.0.113.10"]


async def test_a_proxy_that_is_not_trusted_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    async with both(TrustedProxies()) as w, await anyio.connect_tcp("127.0.0.1", w.port) as balancer:
        for n in range(3):
            assert b" 200 " in await answered(balancer, post(RESULT, f"X-Forwarded-For: 203.0.113.{n}"))
    assert addresses(w.a) == ["127.0.0.1"] * 3
    (told,) = [record.message for record in caplog.records if "X-Forwarded-For" in record.message]
    assert "127.0.0.1" in told and "name it in core.trusted_proxies" in told


async def test_the_audit_log_names_the_client(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "isthmus.audit")
    gate = Gate(GateSettings((StaticToken("ci", digest_of(new_token(lambda size: b"\7" * size))),)))
    async with both(TRUSTED, gate=gate) as w, await anyio.connect_tcp("127.0.0.1", w.port) as balancer:
        assert b" 401 " in await answered(balancer, post(RESULT, "X-Forwarded-For: 203.0.113.9"))
    assert [record.message for record in caplog.records] == ["denied: POST /mcp from 203.0.113.9: no credentials"]


async def test_clients_of_one_proxy_do_not_share_their_room_for_bodies() -> None:
    size_bytes = 2 * UNCOUNTED_MAX_BYTES
    limits = Limits(bodies_max_bytes=4 * size_bytes, bodies_per_owner_max_bytes=size_bytes)
    large = post(b"x" * size_bytes, "X-Forwarded-For: 203.0.113.9")
    async with both(TRUSTED, limits=limits) as w, await anyio.connect_tcp("127.0.0.1", w.port) as first:
        await first.send(large[:-1])
        async with await anyio.connect_tcp("127.0.0.1", w.port) as second:
            while b" 503 " not in await answered(second, large):  # until what the first has sent has arrived
                pass
        async with await anyio.connect_tcp("127.0.0.1", w.port) as third:
            assert b" 200 " in await answered(third, large.replace(b".113.9", b".113.8"))
