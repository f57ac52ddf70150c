"""Downloads: ranges, conditions and safe headers."""

from __future__ import annotations

import email
import email.policy
import email.utils
import random
import re
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.storage import Serve
from isthmus.core.wire.http.dates import format_date, parse_date
from isthmus.core.wire.http.download import INLINE_TYPES, Download, plan_download

SHA = "ab" * 32
ETAG = f'"{SHA}"'


def plan(
    *headers: tuple[str, str],
    size: int = 100,
    mime: str = "image/png",
    name: str = "f.png",
    head_only: bool = False,
    at_unix: float = 0.0,
) -> Download:
    order = Serve(ChannelId(1), "blob", name, mime, size_bytes=size, sha256=SHA, stored_at_unix=at_unix)
    return plan_download(order, tuple((n.encode(), v.encode()) for n, v in headers), head_only=head_only)


def span(planned: Download) -> tuple[int, int]:
    """The part of the file that is sent, where there is one part at most."""
    assert len(planned.parts) <= 1 and not planned.tail
    return (planned.parts[0].start, planned.parts[0].stop) if planned.parts else (0, 0)


def body(planned: Download, content: bytes) -> bytes:
    return b"".join(part.head + content[part.start : part.stop] for part in planned.parts) + planned.tail


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
        ("bytes=0-1,2-4", (206, 0, 5)),
        ("bytes=, 0-1 ,,", (206, 0, 2)),
        ("bytes=0-1,3-4", WHOLE),  # in two parts it would be longer
        ("bytes=0-1,5-4", WHOLE),
        ("bytes=" + ",".join(f"{at}-{at}" for at in range(0, 34, 2)), WHOLE),
        ("bytes=100-,-0", (416, 0, 0)),
        ("bytes=,", WHOLE),
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
    start, stop = span(planned)
    assert (planned.status, start, stop) == outcome
    headers = dict(planned.headers)
    assert headers[b"content-length"] == b"%d" % (stop - start)
    if planned.status == 206:
        assert headers[b"content-range"] == b"bytes %d-%d/100" % (start, stop - 1)
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
        assert (planned.status, body(planned, content)) == (206, wanted)
    else:
        assert planned.status == 416


def test_two_range_lines_and_head_are_answered_whole() -> None:
    assert plan(("range", "bytes=0-1"), ("range", "bytes=0-1")).status == 200
    head = plan(("range", "bytes=0-1"), head_only=True)
    assert (head.status, head.parts, dict(head.headers)[b"content-length"]) == (200, (), b"100")


@pytest.mark.parametrize(
    "value, is_known",
    [(ETAG, True), (f"W/{ETAG}", True), (f'"x", {ETAG}', True), ("*", True), ('"x"', False), (SHA, False), ("", False)],
)
def test_a_known_version_is_not_sent_again(value: str, is_known: bool) -> None:
    for head_only in (False, True):
        planned = plan(("if-none-match", value), ("range", "bytes=0-1"), head_only=head_only)
        assert (planned.status == 304) is is_known
        assert dict(planned.headers)[b"etag"] == ETAG.encode()
        if is_known:
            assert not planned.parts and b"content-length" not in dict(planned.headers)


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
def test_any_name_is_carried_by_one_safe_header(name: str) -> None:
    value = dict(plan(name=name).headers)[b"content-disposition"].decode("ascii")
    matched = re.fullmatch(r"inline; filename=\"([ -~]*)\"; filename\*=UTF-8''([!-~]*)", value)
    assert matched is not None
    assert '"' not in matched[1] and "\\" not in matched[1]
    assert not set(matched[2]) & set("\"\\;,'() ")
    assert unquote(matched[2]) == name.encode("utf-8", "replace").decode()


@pytest.mark.parametrize(
    ("name", "plain", "full"),
    [
        ("", "", ""),
        ("a b.png", "a b.png", "a%20b.png"),
        (" ~Q~ ", " ~Q~ ", "%20~Q~%20"),
        ('a"b\\c%d', "a_b_c_d", "a%22b%5Cc%25d"),
        ("r\xe9\x7f\n\x1f.txt", "r____.txt", "r%C3%A9%7F%0A%1F.txt"),
        ("x\ud800y", "x_y", "x%3Fy"),
        ("!#$&+-.^_`|~'()*,/:;<=>?@[]{}", "!#$&+-.^_`|~'()*,/:;<=>?@[]{}",
         "!#$&+-.^_`|~%27%28%29%2A%2C%2F%3A%3B%3C%3D%3E%3F%40%5B%5D%7B%7D"),
    ],
)  # fmt: skip
def test_a_name_is_written_plainly_for_old_readers_and_in_full(name: str, plain: str, full: str) -> None:
    value = dict(plan(name=name).headers)[b"content-disposition"].decode()
    assert value == f"inline; filename=\"{plain}\"; filename*=UTF-8''{full}"


def test_the_headers_of_each_status() -> None:
    """Every response has the common headers, and each status its own."""
    common = {
        b"etag": ETAG.encode(),
        b"last-modified": b"Thu, 01 Jan 1970 00:00:01 GMT",
        b"cache-control": b"private",
        b"accept-ranges": b"bytes",
        b"x-content-type-options": b"nosniff",
        b"content-security-policy": b"sandbox",
    }
    named = {b"content-disposition": b"inline; filename=\"f.png\"; filename*=UTF-8''f.png"}
    whole = {**common, **named, b"content-type": b"image/png", b"content-length": b"100"}
    part = {**whole, b"content-range": b"bytes 1-2/100", b"content-length": b"2"}
    empty = {**common, b"content-length": b"0"}
    for planned, status, headers in (
        (plan(at_unix=1.0), 200, whole),
        (plan(("range", "bytes=1-2"), at_unix=1.0), 206, part),
        (plan(("range", "bytes=100-"), at_unix=1.0), 416, {**empty, b"content-range": b"bytes */100"}),
        (plan(("if-none-match", "*"), at_unix=1.0), 304, common),
        (plan(("if-match", '"x"'), at_unix=1.0), 412, empty),
    ):
        assert (planned.status, dict(planned.headers)) == (status, headers)
        assert len(planned.headers) == len(headers)


# --- Several ranges ---------------------------------------------------------------------------------------------------


def read_parts(planned: Download, content: bytes) -> list[tuple[int, bytes]]:
    """The start and the content of each part, as a MIME parser reads them."""
    kind = dict(planned.headers)[b"content-type"]
    sent = body(planned, content)
    assert dict(planned.headers)[b"content-length"] == b"%d" % len(sent)
    message = email.message_from_bytes(b"Content-Type: " + kind + b"\r\n\r\n" + sent, policy=email.policy.HTTP)
    assert message.get_content_type() == "multipart/byteranges" and not message.defects
    found = []
    for part in message.iter_parts():
        matched = re.fullmatch(r"bytes (\d+)-(\d+)/(\d+)", str(part["content-range"]))
        assert matched is not None
        data = part.get_payload(decode=True)
        assert isinstance(data, bytes)
        assert len(data) == int(matched[2]) - int(matched[1]) + 1
        assert int(matched[3]) == len(content)
        assert part.get_content_type() == "image/png"
        found.append((int(matched[1]), data))
    return found


def test_several_ranges_are_parts_of_one_body() -> None:
    content = random.Random(1).randbytes(10_000).translate(None, b"\r\n").ljust(10_000, b"x")
    planned = plan(("range", "bytes=5000-5009, 0-3,-5, 2-4"), size=10_000)
    assert planned.status == 206
    assert read_parts(planned, content) == [(5000, content[5000:5010]), (0, content[:5]), (9995, content[-5:])]


def test_parts_are_sent_only_where_they_are_shorter_than_the_file() -> None:
    """Parts as long as the file are not sent. Apart from the frames, a body holds only the file's bytes."""
    statuses = []
    for size in range(200, 300):
        planned = plan(("range", "bytes=0-1,5-5"), size=size)
        kind = dict(plan(("range", "bytes=0-1,5-5"), size=1000).headers)[b"content-type"]
        boundary = kind.partition(b"; boundary=")[2]
        framed = b"".join(
            b"%b--%b\r\nContent-Type: image/png\r\nContent-Range: bytes %b/%d\r\n\r\n%b"
            % (before, boundary, span, size, content)
            for before, span, content in ((b"", b"0-1", b"ab"), (b"\r\n", b"5-5", b"f"))
        )
        framed += b"\r\n--" + boundary + b"--\r\n"
        assert re.fullmatch(rb"[0-9a-f]{32}", boundary)
        assert planned.status == (206 if len(framed) < size else 200)
        if planned.status == 206:
            assert body(planned, b"abcdef".ljust(size)) == framed
        statuses.append(planned.status)
    assert set(statuses) == {200, 206}


_bounds = st.none() | st.integers(0, 4200)


@given(
    size=st.sampled_from([0, 1, 5, 700, 4000]), requested=st.lists(st.tuples(_bounds, _bounds), min_size=1, max_size=18)
)
def test_each_range_gets_its_bytes(size: int, requested: list[tuple[int | None, int | None]]) -> None:
    """A model looks at each byte by itself."""
    content = bytes(97 + at % 26 for at in range(size))
    header = "bytes=" + ", ".join("-".join("" if bound is None else str(bound) for bound in one) for one in requested)
    planned = plan(("range", header), size=size)
    malformed = any(first is None and last is None for first, last in requested)
    malformed |= any(first is not None and last is not None and last < first for first, last in requested)
    wanted: set[int] = set()
    for first, last in requested:
        if first is None:
            wanted |= set(range(size)[-last:] if last else ())
        else:
            wanted |= set(range(size)[first : None if last is None else last + 1])
    if malformed or len(requested) > 16:
        assert (planned.status, body(planned, content)) == (200, content)
    elif not wanted:
        assert planned.status == 416
    elif planned.status == 200:
        assert body(planned, content) == content, "which is no longer than the parts would be"
    elif len(planned.parts) == 1:
        (part,) = planned.parts
        assert set(range(part.start, part.stop)) == wanted
        assert body(planned, content) == content[part.start : part.stop]
    else:
        parts = read_parts(planned, content)
        sent = [at for start, data in parts for at in range(start, start + len(data))]
        assert len(sent) == len(set(sent)), "no byte twice"
        assert set(sent) == wanted
        assert all(content[start : start + len(data)] == data for start, data in parts)
        assert len(body(planned, content)) < size


def test_a_boundary_is_not_in_the_file() -> None:
    kinds = set()
    for sha256 in (SHA, "cd" * 32):
        order = Serve(ChannelId(1), "blob", "f", "", size_bytes=9999, sha256=sha256)
        kinds.add(dict(plan_download(order, ((b"range", b"bytes=0-1,5-6"),)).headers)[b"content-type"])
    assert len(kinds) == 2
    assert not any(sha256.encode() in kind for kind in kinds for sha256 in (SHA, "cd" * 32))


# --- Conditions -------------------------------------------------------------------------------------------------------

NOW = "Tue, 14 Nov 2023 22:13:20 GMT"  # 1_700_000_000
BEFORE = "Tue, 14 Nov 2023 22:13:19 GMT"


@pytest.mark.parametrize(
    "headers, status",
    [
        ((("if-match", ETAG),), 200),
        ((("if-match", "*"),), 200),
        ((("if-match", '"x"'),), 412),
        ((("if-match", f"W/{ETAG}"),), 412),
        ((("if-match", '"x"'), ("if-match", ETAG)), 200),
        ((("if-match", ETAG), ("if-unmodified-since", BEFORE)), 200),
        ((("if-match", '"x"'), ("if-none-match", ETAG)), 412),
        ((("if-unmodified-since", BEFORE),), 412),
        ((("if-unmodified-since", NOW),), 200),
        ((("if-unmodified-since", "yesterday"),), 200),
        ((("if-modified-since", NOW),), 304),
        ((("if-modified-since", BEFORE),), 200),
        ((("if-modified-since", "Tue, 31 Feb 2023 22:13:20 GMT"),), 200),
        ((("if-none-match", '"x"'), ("if-modified-since", NOW)), 200),
        ((("range", "bytes=0-1"), ("if-range", NOW)), 206),
        ((("range", "bytes=0-1"), ("if-range", BEFORE)), 200),
        ((("range", "bytes=0-1"), ("if-range", ETAG)), 206),
    ],
)
def test_conditions_are_evaluated_as_http_requires(headers: tuple[tuple[str, str], ...], status: int) -> None:
    planned = plan(*headers, at_unix=1_700_000_000.9)
    assert planned.status == status
    assert dict(planned.headers)[b"last-modified"] == NOW.encode()
    assert bool(planned.parts) == (status < 300)


@pytest.mark.parametrize("name", ["if-modified-since", "if-unmodified-since"])
def test_a_file_without_a_time_ignores_conditions_on_it(name: str) -> None:
    planned = plan((name, NOW))
    assert planned.status == 200
    assert b"last-modified" not in dict(planned.headers)


@given(at_unix=st.integers(0, 253_402_300_799))
def test_dates_are_read_as_they_are_written(at_unix: int) -> None:
    assert parse_date(format_date(at_unix)) == at_unix
    assert email.utils.formatdate(at_unix, usegmt=True) == format_date(at_unix)
