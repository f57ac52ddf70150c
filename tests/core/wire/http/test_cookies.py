"""Cookies of servers: how a Set-Cookie line is read, which cookies are kept, and which are sent back."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.base.effects import Delete, Listen, Post
from isthmus.core.base.events import CookieChanges
from isthmus.core.base.limits import Limits
from isthmus.core.wire.http.cookies import COOKIE_MAX_BYTES, CookieStore, cookie_header, read_cookies
from isthmus.core.wire.http.request import is_value, request_for

NOW_UNIX = 1_700_000_000.0  # 14 November 2023
LIMITS = Limits()


def read(*lines: bytes, host: str = "mcp.example.com", is_secure: bool = True) -> CookieChanges:
    headers = [(b"Content-Type", b"text/html"), *((b"Set-Cookie", line) for line in lines)]
    return read_cookies(headers, host=host, is_secure=is_secure, now_unix=NOW_UNIX)


@pytest.mark.parametrize(
    ("line", "change"),
    [
        (b"a=1", ("a", "1")),
        (b" a = 1 2 ; Path=/other; HttpOnly; SameSite=None; Partitioned", ("a", "1 2")),
        (b"AWSALB=x+/Y==; Expires=Tue, 21 Nov 2023 00:00:00 GMT; Path=/", ("AWSALB", "x+/Y==")),
        (b'q="quoted, text"', ("q", '"quoted, text"')),
        (b"empty=", ("empty", "")),
        (b"u=\xc3\xa9", ("u", "\xc3\xa9")),
        (b"a=1; Max-Age=3600", ("a", "1")),
        (b"a=1; Max-Age=soon", ("a", "1")),
        (b"a=1; Expires=whenever", ("a", "1")),
        (b"a=1; Expires=Tue, 99 Nov 2021 00:00:00 GMT", ("a", "1")),
        (b"a=1; max-age=0", ("a", None)),
        (b"a=; Max-Age=-1", ("a", None)),
        (b"a=1; Expires=Thu, 01 Jan 1970 00:00:00 GMT", ("a", None)),
        (b"a=1; expires=Thu, 01-Jan-70 00:00:01 GMT", ("a", None)),
        (b"a=1; Expires=Tue Nov 14 22:13:20 2023", ("a", None)),
        (b"a=1; Expires=Tue Nov 14 22:13:21 2023", ("a", "1")),
        (b"a=1; Expires=Thu, 01 Jan 1970 00:00:00 GMT; Max-Age=60", ("a", "1")),  # RFC 6265, 5.3: Max-Age decides
        (b"a=1; Max-Age=0; Max-Age=60", ("a", "1")),
        (b"a=1; Domain=mcp.example.com", ("a", "1")),
        (b"a=1; Domain=.EXAMPLE.com", ("a", "1")),
        (b"a=1; Domain=", ("a", "1")),
    ],
)
def test_a_line_sets_or_removes_a_cookie(line: bytes, change: tuple[str, str | None]) -> None:
    assert read(line) == (change,)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"a",
        b"=1",
        b"a b=1",
        b"a,b=1",
        b"a\x00=1",
        b"a=\x001",
        b"a=1\x7f",
        b"a=1; Domain=other.example.com",
        b"a=1; Domain=cp.example.com",
        b"a=1; Domain=a.mcp.example.com",
        b"a=" + b"x" * COOKIE_MAX_BYTES,
    ],
)
def test_an_unusable_line_is_ignored(line: bytes) -> None:
    assert read(b"before=1", line, b"behind=2") == (("before", "1"), ("behind", "2"))


def test_an_address_has_no_domain_above_it() -> None:
    assert read(b"a=1; Domain=0.0.1", host="127.0.0.1") == ()
    assert read(b"a=1; Domain=127.0.0.1", host="127.0.0.1") == (("a", "1"),)


def test_a_secure_cookie_needs_tls() -> None:
    assert read(b"a=1; Secure", b"b=2", is_secure=False) == (("b", "2"),)
    assert read(b"a=1; Secure") == (("a", "1"),)


def kept(*changes: tuple[str, str | None], limits: Limits = LIMITS) -> tuple[tuple[str, str], ...]:
    store = CookieStore(limits)
    for change in changes:
        store.receive((change,))
    return store.pairs


def test_the_last_value_of_a_name_counts() -> None:
    assert kept(("a", "1"), ("b", "2"), ("a", "3")) == (("b", "2"), ("a", "3"))
    assert kept(("a", "1"), ("b", "2"), ("a", None), ("c", None)) == (("b", "2"),)


def test_the_cookie_set_longest_ago_is_dropped_first() -> None:
    limits = Limits(cookies_max=2)
    assert kept(("a", "1"), ("b", "2"), ("a", "1"), ("c", "3"), limits=limits) == (("a", "1"), ("c", "3"))
    limits = Limits(cookies_max_bytes=4)
    assert kept(("a", "1"), ("b", "2"), limits=limits) == (("a", "1"), ("b", "2"))
    assert kept(("a", "1"), ("b", "22"), limits=limits) == (("b", "22"),)
    assert kept(("a", "1"), ("b", "2222"), limits=limits) == ()


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.none() | st.text("x", max_size=9))))
def test_a_store_stays_within_its_bounds(changes: list[tuple[str, str | None]]) -> None:
    limits = Limits(cookies_max=3, cookies_max_bytes=12)
    store = CookieStore(limits)
    for change in changes:
        store.receive((change,))
        assert len(store.pairs) <= 3 and sum(map(len, sum(store.pairs, ()))) <= 12
    store.clear()
    assert store.pairs == ()


PARTS = st.sampled_from(
    [b"a", b"=", b";", b" ", b"Max-Age", b"Expires", b"Domain", b"0", b"-1", b"1:2:3", b"Jan", b"70"]
)


@given(st.lists(PARTS).map(b"".join) | st.binary(max_size=40))
def test_any_line_is_read_or_ignored(line: bytes) -> None:
    """A cookie that is kept can be sent back, as one cookie."""
    for name, value in read(line):
        header = cookie_header([], ((name, value or ""),))
        assert is_value(header) and b";" not in header
        assert read(header) == ((name, value or ""),)


@pytest.mark.parametrize(
    ("given", "whole"),
    [
        ([], b"a=1; b=2"),
        ([b"c=3"], b"c=3; a=1; b=2"),
        ([b"x=0; b=mine"], b"x=0; b=mine; a=1"),
        ([b"a=x", b"b=y"], b"a=x; b=y"),
    ],
)
def test_cookies_of_other_headers_have_precedence(given: list[bytes], whole: bytes) -> None:
    assert cookie_header(given, (("a", "1"), ("b", "2"))) == whole


@pytest.mark.parametrize("kind", [Post, Listen, Delete])
def test_every_request_has_one_line_of_them(kind: type[Post | Listen | Delete]) -> None:
    cookies = (("a", "1"), ("b", "\xe9"))
    target = Post("s", b"{}") if kind is Post else kind("s", "sid")
    plain = request_for(target)[1]
    assert request_for(_with(target, cookies))[1] == [*plain, (b"cookie", b"a=1; b=\xe9")]
    own = [(b"cookie", b"a=own")]
    assert request_for(_with(target, cookies), own)[1] == [*plain, (b"cookie", b"a=own; b=\xe9")]
    passed = _with(target, cookies, (("Cookie", "b=theirs"),))
    assert request_for(passed)[1] == [*plain, (b"cookie", b"b=theirs; a=1")]


def _with(
    target: Post | Listen | Delete, cookies: tuple[tuple[str, str], ...], headers: tuple[tuple[str, str], ...] = ()
) -> Post | Listen | Delete:
    if isinstance(target, Post):
        return Post(target.server, target.message, headers=headers, cookies=cookies)
    if isinstance(target, Listen):
        return Listen(target.server, target.session, headers=headers, cookies=cookies)
    return Delete(target.server, target.session, headers=headers, cookies=cookies)


@pytest.mark.parametrize("month", range(1, 13))
def test_every_month_is_known(month: int) -> None:
    """The first three letters identify the month, in any case, whatever follows."""
    begins = datetime(2024, month, 2, tzinfo=UTC)
    for name in (f"{begins:%b}", f"{begins:%B}".upper()):
        lines = [(b"set-cookie", f"a=1; Expires=Tue, 02 {name} 2024 00:00:00 GMT".encode())]
        for early_s, value in ((1, "1"), (0, None)):
            now_unix = begins.timestamp() - early_s
            assert read_cookies(lines, host="h.example", is_secure=True, now_unix=now_unix) == (("a", value),)


@pytest.mark.parametrize(("size_bytes", "is_kept"), [(COOKIE_MAX_BYTES, True), (COOKIE_MAX_BYTES + 1, False)])
def test_the_longest_cookie(size_bytes: int, is_kept: bool) -> None:
    """Name and value count together; blanks around them, and attributes, do not."""
    line = b" name = " + b"v" * (size_bytes - 4) + b" ; Path=/"
    assert bool(read(line)) == is_kept


@pytest.mark.parametrize(("text", "year"), [("70", 1970), ("99", 1999), ("00", 2000), ("69", 2069), ("2024", 2024)])
def test_a_year_of_two_digits_is_in_the_century_it_is_nearest_to(text: str, year: int) -> None:
    """Source: RFC 6265, 5.1.1."""
    begins_unix = datetime(year, 3, 4, tzinfo=UTC).timestamp()
    lines = [(b"set-cookie", f"a=1; Expires=Mon, 04-Mar-{text} 00:00:00 GMT".encode())]
    for early_s, value in ((1, "1"), (0, None)):
        now_unix = begins_unix - early_s
        assert read_cookies(lines, host="h.example", is_secure=True, now_unix=now_unix) == (("a", value),)
