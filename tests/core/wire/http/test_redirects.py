"""Redirects of servers: those that are followed, and the words about the others."""

from __future__ import annotations

import pytest
from each_row import each_row
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.wire.http.redirects import TARGET_MAX_BYTES, Redirect, judge_redirect, show_origin
from isthmus.core.wire.http.url import parse_url

REQUEST_TARGET = b"/a/mcp?k=v"
HTTP = parse_url("http://host.example:81/a/mcp?k=v")
HTTPS = parse_url("https://host.example/a/mcp?k=v")


@pytest.mark.parametrize(
    ("location", "target", "is_slash"),
    [
        (b"/a/mcp/?k=v", b"/a/mcp/?k=v", True),
        (b"http://host.example:81/a/mcp/?k=v", b"/a/mcp/?k=v", True),
        (b"HTTP://HOST.example:081/a/mcp/?k=v", b"/a/mcp/?k=v", True),
        (b"//host.example:81/a/mcp/?k=v#part", b"/a/mcp/?k=v", True),
        (b"mcp/?k=v", b"/a/mcp/?k=v", True),
        (b"/a/mcp/", b"/a/mcp/", False),  # without what the URL was configured with
        (b"/v2", b"/v2", False),
        (b"../v2?x", b"/v2?x", False),
        (b"?x", b"/a/mcp?x", False),
        (b"http://host.example:81", b"/", False),
        (b" /v2 ", b"/v2", False),
    ],
)
def test_the_same_origin_is_followed(location: bytes, target: bytes, is_slash: bool) -> None:
    """The redirect is remembered if it is permanent, or only adds or removes a slash."""
    assert judge_redirect(HTTP, REQUEST_TARGET, 307, [(b"Location", location)]) == Redirect(target, is_slash)
    assert judge_redirect(HTTP, REQUEST_TARGET, 308, [(b"location", location)]) == Redirect(target, True)
    assert judge_redirect(HTTP, REQUEST_TARGET, 308, [(b"location", location)], is_personal=True) == Redirect(
        target, is_slash
    )


@each_row(
    ("location", "shown"),
    [
        (b"http://host.example/a/mcp/?secret", "http://host.example,"),  # another port
        (b"http://host.example:82/secret", "http://host.example:82,"),
        (b"https://host.example:81/secret", "https://host.example:81,"),
        (b"https://host.example/secret", "https://host.example,"),
        (b"http://other.example:81/secret", "http://other.example:81,"),
        (b"http://user:secret@host.example:81/a", "http://host.example:81,"),
        (b"ws://host.example:81/secret", "ws://host.example:81,"),
        (b"file:///secret", "another path of the same origin,"),
        (b"/\xff/secret", "an unreadable address,"),
        (b"/a secret", "another path of the same origin,"),
        (b"/a\tsecret", "another path of the same origin,"),
        (b"http://host.example:secret/", "an unreadable address,"),
        (b"", "another path of the same origin,"),
        (b"/" + b"s" * TARGET_MAX_BYTES, "another path of the same origin,"),
    ],
)
@each_row("status", [307, 308])
def test_others_are_refused_with_the_origin_they_name(status: int, location: bytes, shown: str) -> None:
    line = judge_redirect(HTTP, REQUEST_TARGET, status, [(b"location", location)])
    assert isinstance(line, str)
    assert line.startswith(f"got a redirect (HTTP status {status}) to {shown} not followed")
    assert "secret" not in line and "k=v" not in line


def test_no_redirect_leads_out_of_tls() -> None:
    line = judge_redirect(HTTPS, REQUEST_TARGET, 307, [(b"location", b"http://host.example/a/mcp/?k=v")])
    assert line == (
        "got a redirect (HTTP status 307) to http://host.example, not followed: it leaves https://host.example, which "
        "alone credentials are for; expected the final URL"
    )


def test_two_locations_are_refused() -> None:
    twice = [(b"location", b"/v2"), (b"location", b"/v3")]
    assert judge_redirect(HTTP, REQUEST_TARGET, 307, twice) == (
        "got a redirect (HTTP status 307) to another path of the same origin, not followed; expected one URL that can "
        "be asked"
    )
    assert judge_redirect(HTTP, REQUEST_TARGET, 307, twice[:1] * 2) == Redirect(b"/v2", False)


@pytest.mark.parametrize("status", [301, 302, 303])
def test_a_redirect_that_may_change_the_method_is_refused(status: int) -> None:
    line = judge_redirect(HTTP, REQUEST_TARGET, status, [(b"location", b"/v2")])
    assert isinstance(line, str) and "a POST may lose its message" in line and "307 or 308" in line


@pytest.mark.parametrize("status", [200, 202, 300, 304, 305, 306, 309, 400, 404, 503])
def test_other_statuses_are_no_redirects(status: int) -> None:
    assert judge_redirect(HTTP, REQUEST_TARGET, status, [(b"location", b"/v2")]) is None


def test_a_redirect_without_a_location_is_an_ordinary_status() -> None:
    assert judge_redirect(HTTP, REQUEST_TARGET, 307, [(b"content-length", b"0")]) is None


@given(location=st.binary(max_size=60), status=st.sampled_from([307, 308]))
def test_a_followed_target_can_be_requested(location: bytes, status: int) -> None:
    found = judge_redirect(HTTP, REQUEST_TARGET, status, [(b"location", location)])
    if isinstance(found, Redirect):
        assert found.target.startswith(b"/") and all(0x21 <= c <= 0x7E for c in found.target)
        assert parse_url(f"http://host.example:81{found.target.decode()}").target == found.target


def test_the_shown_origin_is_printable() -> None:
    """Every ASCII character is tried in the host, and the text is no longer than a line."""
    for code in (*range(0x21, 0x23), *range(0x61, 0x80)):
        shown = chr(code) if code < 0x7F else "?"
        if chr(code) not in "[]":
            assert show_origin(b"//a%cz/p" % code) == f"//a{shown}z"
    assert show_origin(b"//" + b"h" * 200) == "//" + "h" * 98


@pytest.mark.parametrize(("size_bytes", "is_followed"), [(TARGET_MAX_BYTES, True), (TARGET_MAX_BYTES + 1, False)])
def test_the_longest_target(size_bytes: int, is_followed: bool) -> None:
    found = judge_redirect(HTTP, REQUEST_TARGET, 307, [(b"location", b"/".ljust(size_bytes, b"a"))])
    assert isinstance(found, Redirect) == is_followed
