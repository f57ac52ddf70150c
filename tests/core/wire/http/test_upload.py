"""Upload requests by their heads: a form or a file, its name, its type and its hash."""

from __future__ import annotations

import base64
import hashlib
import json
from urllib.parse import quote

import pytest
from each_row import each_row
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.base.events import DraftOpening, RawFile, UploadOpening
from isthmus.core.wire.http.routes import Head, Refused, Route, Surface, UploadRoute
from isthmus.core.wire.http.server import judge
from isthmus.core.wire.http.upload import FILENAME_MAX_BYTES

SURFACE = Surface(("files",), frozenset({"localhost"}), frozenset())
HASH = hashlib.sha256(b"a").hexdigest()
ENCODED = base64.b64encode(hashlib.sha256(b"a").digest()).decode()


def routed(path: str, *extra: tuple[str, str | bytes], method: str = "PUT") -> Route:
    headers = [("host", "localhost"), *extra]
    coded = tuple((name.encode(), value if isinstance(value, bytes) else value.encode()) for name, value in headers)
    return judge(Head(method, path, coded), SURFACE)


def raw(path: str, *extra: tuple[str, str | bytes]) -> RawFile:
    route = routed(path, *extra)
    assert isinstance(route, UploadRoute) and isinstance(route.opening, UploadOpening)
    assert route.opening.raw is not None
    return route.opening.raw


def test_a_put_is_one_file() -> None:
    route = routed(
        "/upload/files?a=1",
        ("content-type", "image/png"),
        ("content-length", "3"),
        ("x-filename", "a%20b.png"),
        ("x-content-sha256", HASH.upper()),
    )
    wanted = UploadOpening("files", {"a": "1"}, size_bytes=3, raw=RawFile("a b.png", "image/png", HASH))
    assert route == UploadRoute(wanted, "image/png")
    assert raw("/upload/files") == RawFile()


@pytest.mark.parametrize(
    "path, header, name",
    [
        ("/upload/files", b"plain.txt", "plain.txt"),
        ("/upload/files", "r%C3%A9sum%C3%A9 1.txt", "résumé 1.txt"),
        ("/upload/files", "résumé.txt".encode(), "résumé.txt"),
        ("/upload/files", "résumé.txt".encode("latin-1"), "résumé.txt"),
        ("/upload/files", b"100%.txt", "100%.txt"),
        ("/upload/files", b"50%ff.txt", "50%ff.txt"),
        ("/upload/files/r%C3%A9sum%C3%A9.txt", b"", "résumé.txt"),
        ("/upload/files/a+b%2Bc.txt", b"", "a+b+c.txt"),  # a plus is a blank in queries only
        ("/upload/files/a.txt", b"b.txt", "b.txt"),
        ("/upload/files", b"../../etc/passwd", "../../etc/passwd"),  # made safe where it is kept
    ],
)
def test_the_name_stands_in_a_header_or_in_the_path(path: str, header: bytes, name: str) -> None:
    assert raw(path, ("x-filename", header)).filename == name


@given(name=st.text(max_size=60))
def test_every_name_arrives_that_is_percent_encoded(name: str) -> None:
    name = name.encode(errors="replace").decode()
    assert raw("/upload/files", ("x-filename", quote(name, safe=""))).filename == name


@pytest.mark.parametrize(
    "name, value",
    [
        ("x-content-sha256", HASH),
        ("repr-digest", f"sha-256=:{ENCODED}:"),
        ("content-digest", f"sha-512=:AAAA:, sha-256=:{ENCODED}:"),
        ("digest", f"SHA-256={ENCODED},unixsum=30637"),
    ],
)
def test_the_hash_may_stand_in_several_headers(name: str, value: str) -> None:
    assert raw(
        "/upload/files", (name, value), ("x-content-sha256", HASH) if name == "digest" else ("x", "y")
    ) == RawFile(sha256=HASH)


@each_row("name", ["repr-digest", "content-digest", "digest"])
@each_row(
    ("value", "is_read"),
    [
        (f"sha-256=:{ENCODED}:", True),
        (f"sha-256={ENCODED}", True),
        (f"SHA-256 = :{ENCODED}:", True),
        (f" sha-512=:AAAA: ,  sha-256=:{ENCODED}: ", True),
        (f"sha-256=:{ENCODED}:, sha-256={ENCODED}", True),
        ("", False),
        ("md5=AAAA", False),
        (f"x-sha-256=:{ENCODED}:", False),
        (f"sha-256=:{ENCODED}", None),
        (f"sha-256={ENCODED}:", None),
        ("sha-256", None),
        ("sha-256=:" + "*" * 44 + ":", None),
        ("sha-256=:" + "A" * 44 + ":", None),
        (f"sha-256=:{ENCODED[:-1]}A:", None),
        (f"sha-256=:{ENCODED}:, sha-256=:{'A' * 43}=:", None),
    ],
)
def test_digests_are_read_or_refused(name: str, value: str, is_read: bool | None) -> None:
    """Digests of other algorithms are ignored, and one of ours is right or refused."""
    if is_read is not None:
        assert raw("/upload/files", (name, value)).sha256 == (HASH if is_read else "")
        return
    refused = routed("/upload/files", (name, value))
    assert isinstance(refused, Refused) and refused.status == 400


@pytest.mark.parametrize("hash", ["a" * 63, "a" * 65, "g" * 64, ""])
def test_a_plain_hash_is_64_digits(hash: str) -> None:
    refused = routed("/upload/files", ("x-content-sha256", hash))
    assert isinstance(refused, Refused) and refused.status == 400
    assert f"got X-Content-SHA256 {hash!r}" in json.loads(refused.body)["detail"]


@pytest.mark.parametrize(("size", "is_read"), [(FILENAME_MAX_BYTES, True), (FILENAME_MAX_BYTES + 1, False)])
def test_a_name_in_a_header_has_its_bound(size: int, is_read: bool) -> None:
    route = routed("/upload/files", ("x-filename", "a" * size))
    assert isinstance(route, UploadRoute) is is_read
    if isinstance(route, Refused):
        assert json.loads(route.body)["detail"] == "got a file name of 8193 bytes, expected 8192 at most"


@pytest.mark.parametrize("coding", ["", "identity"])
def test_a_body_that_is_not_coded_is_taken(coding: str) -> None:
    for method in ("PUT", "POST"):
        assert isinstance(routed("/upload/files", ("content-encoding", coding), method=method), UploadRoute)


@pytest.mark.parametrize(
    ("headers", "size"),
    [
        ([], None),
        ([("content-length", "0")], 0),
        ([("content-length", "0" * 17 + "7")], 7),
        ([("content-length", "9" * 18)], 10**18 - 1),
        ([("transfer-encoding", "chunked")], None),
    ],
)
def test_the_declared_length_of_a_body(headers: list[tuple[str, str]], size: int | None) -> None:
    for method in ("PUT", "POST"):
        route = routed("/upload/files", *headers, method=method)
        assert isinstance(route, UploadRoute) and route.opening.size_bytes == size


@pytest.mark.parametrize(
    "status, path, extra",
    [
        (400, "/upload/files", (("x-content-sha256", "abc"),)),
        (400, "/upload/files", (("x-content-sha256", HASH), ("x-content-sha256", HASH))),
        (400, "/upload/files", (("x-content-sha256", "0" * 64), ("digest", f"sha-256={ENCODED}"))),
        (400, "/upload/files", (("repr-digest", "sha-256=:AAAA:"),)),
        (400, "/upload/files", (("digest", "sha-256=" + "=" * 44),)),
        (400, "/upload/files", (("x-filename", "a"), ("x-filename", "b"))),
        (400, "/upload/files", (("x-filename", "a" * 9000),)),
        (400, "/upload/files", (("content-range", "bytes 0-1/2"),)),
        (400, "/upload/files", (("content-length", "-1"),)),
        (400, "/upload/files", (("content-length", "9" * 19),)),
        (400, "/upload/files", (("content-length", "1"), ("transfer-encoding", "chunked"))),
        (400, "/upload/files/a%2Fb", ()),
        (400, "/upload/files/a%00b", ()),
        (404, "/upload/files/a/b", ()),
        (404, "/upload/other", ()),
        (415, "/upload/files", (("content-encoding", "gzip"),)),
        (415, "/upload/files", (("content-type", "multipart/form-data; boundary=x"),)),
    ],
)
def test_a_wrong_file_is_refused_by_its_head(status: int, path: str, extra: tuple[tuple[str, str], ...]) -> None:
    route = routed(path, *extra)
    assert isinstance(route, Refused) and route.status == status
    assert json.loads(route.body)["detail"]


@pytest.mark.parametrize("method", ["PUT", "POST"])
def test_the_content_type_is_unchanged(method: str) -> None:
    for headers, expected in (([], ""), ([("content-type", "A/b; c=D")], "A/b; c=D")):
        route = routed("/upload/files", *headers, method=method)
        assert isinstance(route, UploadRoute) and route.content_type == expected


def test_a_form_is_posted_to_the_server_itself() -> None:
    form = routed("/upload/files", ("content-type", "multipart/form-data; boundary=x"), method="POST")
    assert isinstance(form, UploadRoute) and isinstance(form.opening, UploadOpening) and form.opening.raw is None
    refused = routed("/upload/files/a.txt", method="POST")
    assert isinstance(refused, Refused) and (refused.status, dict(refused.headers)[b"allow"]) == (405, b"PUT, OPTIONS")


@pytest.mark.parametrize(
    ("fields", "length"),
    [
        ({"upload-length": "5"}, 5),
        ({"upload-length": "5", "upload-defer-length": "1"}, 5),
        ({"upload-defer-length": "1"}, "got Upload-Defer-Length, expected Upload-Length"),
        ({}, "Upload-Length"),
    ],
)
def test_a_resumable_upload_declares_its_length(fields: dict[str, str], length: int | str) -> None:
    route = routed("/upload/files", ("tus-resumable", "1.0.0"), ("content-length", "0"), *fields.items(), method="POST")
    if isinstance(length, int):
        assert isinstance(route, UploadRoute) and isinstance(route.opening, DraftOpening)
        assert route.opening.length == length
    else:
        assert isinstance(route, Refused) and route.status == 400
        assert length in json.loads(route.body)["detail"]
        assert ("Defer" in json.loads(route.body)["detail"]) == ("upload-defer-length" in fields)
