"""Ranges, conditions and harmless headers of downloads."""

from __future__ import annotations

import re
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.effects import Serve
from isthmus.core.ids import ChannelId
from isthmus.core.wire.download import INLINE_TYPES, Download, plan_download

SHA = "ab" * 32
ETAG = f'"{SHA}"'


def plan(
    *headers: tuple[str, str], size: int = 100, mime: str = "image/png", name: str = "f.png", head_only: bool = False
) -> Download:
    order = Serve(ChannelId(1), "blob", name, mime, size_bytes=size, sha256=SHA)
    return plan_download(order, tuple((n.encode(), v.encode()) for n, v in headers), head_only=head_only)


WHOLE = (200, 0, 100)


@pytest.mark.parametrize(
    "value, outcome",
    [
        ("bytes=0-0", (206, 0, 1)),
        ("bytes=10-19", (206, 10, 20)),
        ("bytes=10-", (206, 10, 100)),
        ("bytes=99-1000", (206, 99, 100)),
        ("bytes=-10", (206, 90, 100)),
        ("bytes=-1000", (206, 0, 100)),
        ("Bytes = 1-2", (206, 1, 3)),
        ("bytes=100-", (416, 0, 0)),
        ("bytes=1000-2000", (416, 0, 0)),
        ("bytes=-0", (416, 0, 0)),
        ("bytes=0-1,3-4", WHOLE),
        ("bytes=5-4", WHOLE),
        ("bytes=-", WHOLE),
        ("bytes=a-b", WHOLE),
        ("lines=1-2", WHOLE),
        ("bytes=" + "9" * 100 + "-", WHOLE),
        ("", WHOLE),
    ],
)
def test_ranges(value: str, outcome: tuple[int, int, int]) -> None:
    planned = plan(("range", value))
    assert (planned.status, planned.start, planned.stop) == outcome
    headers = dict(planned.headers)
    assert headers[b"content-length"] == b"%d" % (planned.stop - planned.start)
    if planned.status == 206:
        assert headers[b"content-range"] == b"bytes %d-%d/100" % (planned.start, planned.stop - 1)
    elif planned.status == 416:
        assert headers[b"content-range"] == b"bytes */100"
    else:
        assert b"content-range" not in headers


@given(size=st.integers(0, 20), first=st.none() | st.integers(0, 25), last=st.none() | st.integers(0, 25))
def test_a_range_is_the_slice_that_python_would_take(size: int, first: int | None, last: int | None) -> None:
    content = bytes(range(size))
    if first is None:
        wanted = b"" if not last else content[-last:]
    else:
        wanted = content[first:] if last is None else content[first : last + 1]
    planned = plan(("range", f"bytes={'' if first is None else first}-{'' if last is None else last}"), size=size)
    if (first is None and last is None) or (first is not None and last is not None and last < first):
        assert planned.status == 200
    elif wanted:
        assert (planned.status, content[planned.start : planned.stop]) == (206, wanted)
    else:
        assert planned.status == 416


def test_two_range_lines_and_head_are_answered_whole() -> None:
    assert plan(("range", "bytes=0-1"), ("range", "bytes=0-1")).status == 200
    head = plan(("range", "bytes=0-1"), head_only=True)
    assert (head.status, head.start, head.stop, dict(head.headers)[b"content-length"]) == (200, 0, 0, b"100")


@pytest.mark.parametrize(
    "value, is_known",
    [(ETAG, True), (f"W/{ETAG}", True), (f'"x", {ETAG}', True), ("*", True), ('"x"', False), (SHA, False), ("", False)],
)
def test_what_the_client_has_is_not_sent_again(value: str, is_known: bool) -> None:
    for head_only in (False, True):
        planned = plan(("if-none-match", value), ("range", "bytes=0-1"), head_only=head_only)
        assert (planned.status == 304) is is_known
        assert dict(planned.headers)[b"etag"] == ETAG.encode()
        if is_known:
            assert planned.start == planned.stop and b"content-length" not in dict(planned.headers)


@pytest.mark.parametrize("validator, status", [(ETAG, 206), ('"x"', 200), (f"W/{ETAG}", 200), ("Tue, 1 Jan", 200)])
def test_a_range_of_another_version_is_answered_whole(validator: str, status: int) -> None:
    assert plan(("range", "bytes=0-1"), ("if-range", validator)).status == status


@pytest.mark.parametrize(
    "mime, sent, is_inline",
    [
        *((mime, mime, True) for mime in sorted(INLINE_TYPES)),
        ("text/plain; charset=utf-8", "text/plain; charset=utf-8", True),
        ("Image/PNG", "Image/PNG", True),
        ("text/html", "text/html", False),
        ("image/svg+xml", "image/svg+xml", False),
        ("", "application/octet-stream", False),
        ("image/png\r\nset-cookie: x", "application/octet-stream", False),
        ("image", "application/octet-stream", False),
    ],
)
def test_only_harmless_types_are_shown(mime: str, sent: str, is_inline: bool) -> None:
    headers = dict(plan(mime=mime).headers)
    assert headers[b"content-type"] == sent.encode()
    assert headers[b"content-disposition"].startswith(b"inline;" if is_inline else b"attachment;")


def test_every_response_is_sandboxed() -> None:
    for planned in (plan(), plan(("range", "bytes=1-2")), plan(("range", "bytes=100-")), plan(("if-none-match", "*"))):
        headers = dict(planned.headers)
        assert headers[b"x-content-type-options"] == b"nosniff"
        assert headers[b"content-security-policy"] == b"sandbox"
        assert headers[b"cache-control"] == b"private"


@given(name=st.text())
def test_any_name_is_one_safe_header_that_carries_it(name: str) -> None:
    value = dict(plan(name=name).headers)[b"content-disposition"].decode("ascii")
    matched = re.fullmatch(r"inline; filename=\"([ -~]*)\"; filename\*=UTF-8''([!-~]*)", value)
    assert matched is not None
    assert '"' not in matched[1] and "\\" not in matched[1]
    assert not set(matched[2]) & set("\"\\;,'() ")
    assert unquote(matched[2]) == name.encode("utf-8", "replace").decode()
