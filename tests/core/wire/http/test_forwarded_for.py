"""Tests of the address of a caller behind proxies: only what trusted proxies have written counts."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.access.identity import Peer
from isthmus.core.wire.http.forwarded_for import ENTRY_MAX_BYTES, PROXIES_MAX, TrustedProxies, caller_host

PROXIES = TrustedProxies((ip_network("10.0.0.0/8"), ip_network("fd00::/8")))
NEAR = Peer("10.0.0.3")
FORWARDED = b"x-forwarded-for"

addresses = st.ip_addresses().map(str)
strangers = addresses.filter(lambda text: not any(ip_address(text) in network for network in PROXIES.networks))
trusted = st.ip_addresses(network="10.0.0.0/8").map(str) | st.ip_addresses(network="fd00::/8").map(str)
values = st.lists(addresses | trusted | st.sampled_from(["", "unknown", "_hidden", "[::1]:80", "10.0.0.1:80"])).map(
    lambda entries: ",".join(entries).encode()
) | st.binary(max_size=80)
written = st.lists(st.tuples(st.sampled_from([FORWARDED, b"forwarded", b"via", b"x-real-ip"]), values), max_size=4)


def shapes(address: str) -> list[str]:
    """The ways in which a proxy may write an address."""
    if ":" in address:
        return [address, f"[{address}]", f"[{address}]:4711", f"{address}%eth0" if "." not in address else address]
    return [address, f"{address}:4711", f"::ffff:{address}"]


def host_of(value: str, peer: Peer = NEAR, proxies: TrustedProxies = PROXIES) -> str:
    return caller_host(((FORWARDED, value.encode()),), peer, proxies)


@given(written, strangers)
def test_a_peer_that_is_not_trusted_never_chooses_its_address(headers: list[tuple[bytes, bytes]], host: str) -> None:
    assert caller_host(tuple(headers), Peer(host), PROXIES) == host
    assert caller_host(tuple(headers), Peer(host), TrustedProxies()) == host
    assert caller_host(tuple(headers), Peer(is_unix=True), PROXIES) == ""


@given(written, strangers, st.lists(trusted, min_size=1, max_size=PROXIES_MAX), st.data())
def test_a_client_behind_trusted_proxies_never_chooses_its_address(
    headers: list[tuple[bytes, bytes]], client: str, chain: list[str], data: st.DataObject
) -> None:
    """Each proxy adds its own peer, to the last header or in one more."""
    for peer in (client, *chain[:-1]):
        entry = data.draw(st.sampled_from(shapes(peer))).encode()
        lines = [at for at, (name, _) in enumerate(headers) if name == FORWARDED]
        if lines and data.draw(st.booleans()):
            headers[lines[-1]] = FORWARDED, headers[lines[-1]][1] + data.draw(st.sampled_from([b",", b" ,\t"])) + entry
        else:
            headers.append((FORWARDED, entry))
    found = caller_host(tuple(headers), Peer(chain[-1]), PROXIES)
    mapped = getattr(ip_address(client), "ipv4_mapped", None)
    assert ip_address(found) == (mapped or ip_address(client))


@pytest.mark.parametrize(
    ("value", "host"),
    [
        ("198.51.100.7, 203.0.113.9", "203.0.113.9"),
        ("203.0.113.9, 10.1.1.1 ,10.2.2.2:80", "203.0.113.9"),
        ("[2001:db8::7]:443, fd00::1", "2001:db8::7"),
        ("::ffff:203.0.113.9", "203.0.113.9"),
        ("10.9.9.9, 10.1.1.1", "10.9.9.9"),  # all are trusted: the client is on the network of the proxies
        ("203.0.113.9, unknown, 10.1.1.1", "10.1.1.1"),  # the proxy at 10.1.1.1 does not say who its peer is
        ("203.0.113.9, _hidden", "10.0.0.3"),
        ("203.0.113.9,", "10.0.0.3"),
        ("", "10.0.0.3"),
        ("1" * (ENTRY_MAX_BYTES + 1), "10.0.0.3"),
        ("203.0.113.9.1", "10.0.0.3"),
        ("[203.0.113.9", "10.0.0.3"),
        ("２03.0.113.9", "10.0.0.3"),
    ],
)
def test_what_an_entry_says(value: str, host: str) -> None:
    assert host_of(value) == host
    assert host_of(value, Peer("::ffff:10.0.0.3")) == host.replace("10.0.0.3", "::ffff:10.0.0.3")


def test_peers_of_unix_sockets_are_trusted_by_name() -> None:
    proxies = TrustedProxies(has_unix=True)
    assert host_of("203.0.113.9", Peer(is_unix=True), proxies) == "203.0.113.9"
    assert host_of("unix:", Peer(is_unix=True), proxies) == ""


def test_so_many_entries_are_looked_at() -> None:
    chain = [f"10.1.{n // 256}.{n % 256}" for n in range(500)]
    assert host_of(", ".join(["203.0.113.9", *chain[:PROXIES_MAX]])) == chain[0]
    assert host_of(", ".join(["203.0.113.9", *chain[: PROXIES_MAX - 1]])) == "203.0.113.9"
    assert host_of(",".join(chain)) == chain[-PROXIES_MAX]
    lines = tuple((FORWARDED, address.encode()) for address in chain)
    assert caller_host(lines, NEAR, PROXIES) == chain[-PROXIES_MAX]
