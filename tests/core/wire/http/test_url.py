"""URLs are taken apart as they are written, or refused without being repeated."""

from __future__ import annotations

import pytest
from isthmus.core.wire.http.url import Address, parse_url


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://h", Address("http", "h", 80, b"h", b"/")),
        ("HTTPS://Host.Example:443/a/?k=v#part", Address("https", "Host.Example", 443, b"Host.Example", b"/a/?k=v")),
        ("https://h:80", Address("https", "h", 80, b"h:80", b"/")),
        ("ws://h:/a", Address("ws", "h", 80, b"h", b"/a")),
        ("wss://h?k", Address("wss", "h", 443, b"h", b"/?k")),
        ("http://[::1]:8080/", Address("http", "::1", 8080, b"[::1]:8080", b"/")),
        ("http://[::1]/", Address("http", "::1", 80, b"[::1]", b"/")),
        ("http://h:1", Address("http", "h", 1, b"h:1", b"/")),
        ("http://h:65535", Address("http", "h", 65535, b"h:65535", b"/")),
    ],
)
def test_the_parts_of_a_url(url: str, address: Address) -> None:
    assert parse_url(url) == address


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("ftp://h/secret", "of another kind"),
        ("h/secret", "of another kind"),
        (" http://h/secret", "of another kind"),
        ("http://me:secret@h/", "user-info"),
        ("http://h/secret a", "a space or a non-ASCII character"),
        ("http://h/secret\n", "a space or a non-ASCII character"),
        ("http://h\u00e9/secret", "a space or a non-ASCII character"),
        ("http:///secret", "HOST or HOST:PORT"),
        ("http://h:0/secret", "HOST or HOST:PORT"),
        ("http://h:65536/secret", "HOST or HOST:PORT"),
        ("http://h:012345/secret", "HOST or HOST:PORT"),
        ("http://h:x/secret", "HOST or HOST:PORT"),
        ("http://::1/secret", "HOST or HOST:PORT"),
        ("http://[h]/secret", "HOST or HOST:PORT"),
    ],
)
def test_an_unusable_url_is_refused(url: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as caught:
        parse_url(url)
    assert "secret" not in str(caught.value)


def test_an_origin_is_compared_in_lower_case() -> None:
    assert parse_url("HTTP://Host:81/a").origin == ("http", "host", 81) != parse_url("http://host").origin


@pytest.mark.parametrize("host", ["[:1]", "[1]", "[127.0.0.1]", "[::g]", "[::1", "[::]]", "[]"])
def test_brackets_hold_an_ipv6_address(host: str) -> None:
    """A malformed address is refused when it is read, not when it is dialled."""
    with pytest.raises(ValueError, match="expected HOST or HOST:PORT"):
        parse_url(f"http://{host}:80/mcp")


@pytest.mark.parametrize("host", ["::1", "fe80::1:2", "::ffff:127.0.0.1"])
def test_an_address_is_shown_in_its_brackets(host: str) -> None:
    address = parse_url(f"https://[{host}]:81/mcp?a=b#c")
    assert (address.host, address.authority, address.target) == (host, f"[{host}]:81".encode(), b"/mcp?a=b")
