"""URLs of servers: what is used of them is what was judged."""

from __future__ import annotations

import pytest
from isthmus.core.wire.url import parse_url


@pytest.mark.parametrize("host", ["[:1]", "[1]", "[127.0.0.1]", "[::g]", "[::1", "[::]]", "[]"])
def test_brackets_hold_an_ipv6_address(host: str) -> None:
    """What only looks like one is refused where it is read, not where somebody connects."""
    with pytest.raises(ValueError, match="expected HOST or HOST:PORT"):
        parse_url(f"http://{host}:80/mcp")


@pytest.mark.parametrize("host", ["::1", "fe80::1:2", "::ffff:127.0.0.1"])
def test_an_address_is_shown_in_its_brackets(host: str) -> None:
    address = parse_url(f"https://[{host}]:81/mcp?a=b#c")
    assert (address.host, address.authority, address.target) == (host, f"[{host}]:81".encode(), b"/mcp?a=b")
