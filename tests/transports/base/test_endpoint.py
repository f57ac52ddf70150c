"""Tests of the parser of a server's URL and headers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from isthmus.transports.base.endpoint import Address, Endpoint


@pytest.mark.parametrize(
    ("url", "scheme", "host", "port", "authority", "target"),
    [
        ("http://h", "http", "h", 80, b"h", b"/"),
        ("HTTPS://h:443/a//b/../c?x=%20#f", "https", "h", 443, b"h", b"/a//b/../c?x=%20"),
        ("http://h:443?x", "http", "h", 443, b"h:443", b"/?x"),
        ("http://[::1]:8080/?", "http", "::1", 8080, b"[::1]:8080", b"/?"),
        ("https://[::1]/mcp", "https", "::1", 443, b"[::1]", b"/mcp"),
        ("http://h:/", "http", "h", 80, b"h", b"/"),
    ],
)
def test_urls_in_parts(url: str, scheme: str, host: str, port: int, authority: bytes, target: bytes) -> None:
    assert Endpoint(url).address() == Address(scheme, host, port, authority, target)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Endpoint("h/mcp"), "http:// or https://"),
        (lambda: Endpoint("http://user:secret@h/"), "user-info"),
        (lambda: Endpoint("http:///secret"), "expected HOST"),
        (lambda: Endpoint("http://h:65536/secret"), "expected HOST"),
        (lambda: Endpoint("http://h:0/secret"), "expected HOST"),
        (lambda: Endpoint("http://::1/secret"), "expected HOST"),
        (lambda: Endpoint("http://h/a secret"), "percent-encoded"),
        (lambda: Endpoint("http://h\u00e9/secret"), "percent-encoded"),
        (lambda: Endpoint("http://h/\r\nX: secret"), "percent-encoded"),
        (lambda: Endpoint("http://h/", (("a b", "secret"),)), "'a b'"),
        (lambda: Endpoint("http://h/", (("Content-Length", "secret"),)), "Content-Length"),
        (lambda: Endpoint("http://h/", (("Mcp-Session-Id", "secret"),)), "Mcp-Session-Id"),
        (lambda: Endpoint("http://h/", (("a", "secret\r\nb: c"),)), "header a"),
        (lambda: Endpoint("http://h/", (("a", "secret\u20ac"),)), "header a"),
    ],
)
def test_endpoints_that_cannot_be_used_are_refused(make: Callable[[], Endpoint], words: str) -> None:
    with pytest.raises(ValueError) as refusal:
        make()
    assert words in str(refusal.value)
    assert "secret" not in str(refusal.value)


def test_an_endpoint_shows_no_credentials() -> None:
    assert "secret" not in repr(Endpoint("http://h/", (("Authorization", "Bearer secret"),)))
