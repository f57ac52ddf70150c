"""Any text stands in a header: the values read are within their bounds, and the headers written from them are valid.

The first byte says which header the rest is: ranges and conditions of a download, cookies, CORS, dates, tus, digests
and names of files, or Accept. Accepted outcomes: `RemoteProtocolError` or None; or values that an independent reader
allows.
"""

from __future__ import annotations

import email.utils
import re
from collections.abc import Callable
from typing import Final

from isthmus.core.base.errors import RemoteProtocolError
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.base.storage import Serve
from isthmus.core.wire.headers import Headers, accepts
from isthmus.core.wire.http import cors, tus
from isthmus.core.wire.http.cookies import COOKIE_MAX_BYTES, CookieStore, cookie_header, read_cookies
from isthmus.core.wire.http.dates import format_date, parse_date
from isthmus.core.wire.http.download import plan_download
from isthmus.core.wire.http.ranges import PARTS_MAX, parse_ranges
from isthmus.core.wire.http.upload import decode_name, read_sha256

SHA256: Final = "5e" * 32


def lines_of(data: bytes, *names: bytes) -> Headers:
    """Returns the lines of the input as headers with these names in turn."""
    lines = re.sub(rb"[\r\0]", b"", data).split(b"\n")
    return tuple((names[i % len(names)], line.strip(b" \t")) for i, line in enumerate(lines))


def check_headers(headers: Headers) -> None:
    for name, value in headers:
        assert not re.search(rb"[\r\n\0]", name + value)


def check_ranges(data: bytes) -> None:
    for size in (0, 1, 10, 5000):
        found = parse_ranges(data, size)
        if found is None:
            continue
        assert len(found) <= PARTS_MAX
        asked = set().union(*found) if found else set()
        assert sum(len(one) for one in found) == len(asked)  # no byte twice
        assert all(0 <= one.start < one.stop <= size for one in found)
        assert not any(one.stop == other.start for one in found for other in found)


def check_download(data: bytes) -> None:
    headers = lines_of(data, b"range", b"if-range", b"if-match", b"if-none-match", b"if-modified-since")
    size = len(data)
    name = data.decode("utf-8", "replace")
    order = Serve(ChannelId(1), "b", name, data.decode("latin-1"), size, SHA256, stored_at_unix=784111777.5)
    for head_only in (False, True):
        plan = plan_download(order, headers, head_only=head_only)
        check_headers(plan.headers)
        assert plan.status in (200, 206, 304, 412, 416)
        sent = sum(len(part.head) + part.stop - part.start for part in plan.parts) + len(plan.tail)
        lengths = [int(value) for field, value in plan.headers if field == b"content-length"]
        assert len(lengths) == (plan.status != 304)
        assert not lengths or sent == (0 if head_only else lengths[0])
        assert all(0 <= part.start < part.stop <= size for part in plan.parts)
        assert sent <= size or plan.status == 206


def check_cookies(data: bytes) -> None:
    limits = Limits(cookies_max=3, cookies_max_bytes=200)
    store = CookieStore(limits)
    for host in ("a.example", "127.0.0.1"):
        changes = read_cookies(lines_of(data, b"Set-Cookie"), host=host, is_secure=False, now_unix=784111777.0)
        store.receive(changes)
        assert len(store.pairs) <= limits.cookies_max
        assert sum(len(name) + len(value) for name, value in store.pairs) <= limits.cookies_max_bytes
        for name, value in changes:
            assert len(name) + len(value or "") <= COOKIE_MAX_BYTES
            assert not re.search("[;\r\n\0]", name + (value or ""))
    header = cookie_header([b"own=1"], store.pairs)
    check_headers(((b"cookie", header),))
    again = [part.partition(b"=")[0] for part in header.split(b"; ")]
    assert len(again) == len(set(again))


def check_cors(data: bytes) -> None:
    headers = lines_of(data, b"origin", b"access-control-request-headers")
    answer = cors.preflight_headers(headers, ("GET",))
    check_headers(answer)
    names = dict(answer)[b"access-control-allow-headers"].decode().split(", ")
    assert len(names) <= max(cors.NAMES_MAX, cors.ALLOWED_HEADERS.count(",") + 1)
    assert "*" not in names
    for name, value in cors.response_headers(headers, frozenset({"localhost"}), frozenset({"https://a.example"})):
        if name == b"access-control-allow-origin":
            assert re.fullmatch(rb"(?i)https?://localhost(:[0-9]{1,5})?|https://a\.example", value)


def check_dates(data: bytes) -> None:
    text = data.decode("latin-1")
    at = parse_date(text)
    if at is not None:
        assert email.utils.parsedate_to_datetime(text).timestamp() == at
        assert at < 0 or parse_date(format_date(at)) == at


def check_tus(data: bytes) -> None:
    text = data.decode("latin-1")
    file = tus.read_metadata(text)
    assert not file.sha256 or re.fullmatch("[0-9a-f]{64}", file.sha256)
    written = tus.format_metadata({"filename": file.filename, "filetype": file.mime_type or "", "sha256": file.sha256})
    if len(written) <= tus.METADATA_MAX_BYTES:
        assert tus.read_metadata(written) == file


def check_digest(data: bytes) -> None:
    digest = read_sha256(lines_of(data, b"repr-digest", b"content-digest", b"x-content-sha256"))
    assert digest is None or re.fullmatch("[0-9a-f]{64}", digest)


def check_checksum(data: bytes) -> None:
    checksum = tus.read_checksum(data.decode("latin-1"))
    assert checksum is not None
    assert len(checksum.digest) == 2 * tus.ALGORITHMS[checksum.algorithm]


def check_name(data: bytes) -> None:
    decode_name(data.decode("latin-1")).encode()


def check_accept(data: bytes) -> None:
    text = data.decode("latin-1")
    for media in ("application/json", "text/event-stream"):
        if accepts(text, media) and text:
            assert any(part in text.lower() for part in (media, media.partition("/")[0] + "/*", "*/*"))


CHECKS: Final[tuple[Callable[[bytes], None], ...]] = (
    check_ranges,
    check_download,
    check_cookies,
    check_cors,
    check_dates,
    check_tus,
    check_digest,
    check_checksum,
    check_name,
    check_accept,
)


def test_one_input(data: bytes) -> None:
    try:
        CHECKS[(data[0] if data else 0) % len(CHECKS)](data[1:])
    except RemoteProtocolError as error:
        assert error.http_status in (400, 412, 415)
