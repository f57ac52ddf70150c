"""Tus requests by their heads: the verb of each, and its required headers."""

from __future__ import annotations

import base64
import json

import pytest
from isthmus.core.base.events import Checksum, DraftOpening, RawFile, Verb
from isthmus.core.wire.http.routes import Head, Refused, Route, Surface, UploadRoute
from isthmus.core.wire.http.server import judge, shared_headers

SURFACE = Surface(("files",), frozenset({"localhost"}), frozenset(), upload_size_max_bytes=99)
ID = "0" * 32
PATH = f"/upload/files/tus/{ID}"
VERSION = {"tus-resumable": "1.0.0"}
TYPE = {"content-type": "application/offset+octet-stream"}
SHA1 = base64.b64encode(bytes(20)).decode()
CHECKSUM = {"upload-checksum": f"sha1 {SHA1}"}
METADATA = "filename YS5wbmc=,type aW1hZ2UvcG5n"
SPOKEN = {b"tus-resumable": b"1.0.0", b"tus-version": b"1.0.0"}
SUPPORTED = {
    **SPOKEN,
    b"tus-max-size": b"99",
    b"tus-extension": b"creation,creation-with-upload,expiration,termination,checksum",
    b"tus-checksum-algorithm": b"sha1,sha256,md5",
}


def head(method: str, path: str, headers: dict[str, str]) -> Head:
    fields = {"host": "localhost", **headers}
    return Head(method, path, tuple((name.encode(), value.encode()) for name, value in fields.items()))


def routed(method: str, path: str, *headers: dict[str, str]) -> Route:
    return judge(head(method, path, {name: value for each in headers for name, value in each.items()}), SURFACE)


def opened(method: str, path: str, *headers: dict[str, str]) -> DraftOpening:
    route = routed(method, path, *headers)
    assert isinstance(route, UploadRoute), route
    assert isinstance(route.opening, DraftOpening)
    assert route.content_type == ""
    return route.opening


def refused(method: str, path: str, *headers: dict[str, str]) -> tuple[int, str]:
    route = routed(method, path, *headers)
    assert isinstance(route, Refused), route
    return route.status, json.loads(route.body)["detail"]


def test_a_creation_declares_its_length() -> None:
    """The body of a creation is the first part; without a body, the headers of one are ignored."""
    length, session = {"upload-length": "5"}, {"mcp-session-id": "s"}
    bare = DraftOpening("files", Verb.CREATE, {"sig": "x"}, session="s", length=5, base_url="http://localhost")
    assert opened("POST", "/upload/files?sig=x", VERSION, length, session) == bare
    assert opened("POST", "/upload/files?sig=x", VERSION, length, session, {"content-length": "0"}, CHECKSUM) == bare
    with_body = DraftOpening(
        "files",
        Verb.CREATE,
        {},
        size_bytes=3,
        length=5,
        file=RawFile("a.png", "image/png"),
        metadata=METADATA,
        checksum=Checksum("sha1", "00" * 20),
        base_url="http://localhost",
    )
    body = {"content-length": "3", "upload-metadata": METADATA}
    assert opened("POST", "/upload/files", VERSION, length, body, TYPE, CHECKSUM) == with_body
    assert opened("POST", "/upload/files", VERSION, length, TYPE, {"transfer-encoding": "chunked"}) == DraftOpening(
        "files", Verb.CREATE, {}, size_bytes=None, length=5, base_url="http://localhost"
    )


@pytest.mark.parametrize(
    ("headers", "status", "detail"),
    [
        ({"upload-length": "5", "tus-resumable": "0.2"}, 412, "got Tus-Resumable '0.2', expected 1.0.0"),
        ({}, 400, "got no Upload-Length header, expected a number of bytes"),
        ({"upload-length": "x"}, 400, "got Upload-Length 'x', expected a number of bytes"),
        ({"upload-defer-length": "1"}, 400, "got Upload-Defer-Length, expected Upload-Length"),
        ({"upload-length": "5", "content-encoding": "gzip"}, 415, "got Content-Encoding 'gzip', expected none"),
        (
            {"upload-length": "5", "content-length": "3"},
            415,
            "got no Content-Type, expected application/offset+octet-stream",
        ),
        (
            {"upload-length": "5", "content-length": "3", "content-type": "image/png"},
            415,
            "got Content-Type 'image/png', expected application/offset+octet-stream",
        ),
        (
            {"upload-length": "5", "content-length": "3", **TYPE, "upload-checksum": "crc x"},
            400,
            "got a checksum by 'crc', expected one of sha1, sha256, md5",
        ),
        (
            {"upload-length": "5", "upload-metadata": "a"} | {"upload-metadata": "a *"},
            400,
            "got malformed Upload-Metadata, expected different keys, each with base64 after it",
        ),
    ],
)
def test_a_wrong_creation_is_refused(headers: dict[str, str], status: int, detail: str) -> None:
    assert refused("POST", "/upload/files", VERSION, headers) == (status, detail)


@pytest.mark.parametrize("type", ["application/offset+octet-stream", "Application/Offset+Octet-Stream ; x=y"])
def test_a_part_has_its_offset(type: str) -> None:
    offset = {"upload-offset": "7", "content-length": "3", "content-type": type}
    part = DraftOpening("files", Verb.APPEND, {}, draft=ID, session="s", size_bytes=3, offset=7)
    assert opened("PATCH", PATH, VERSION, offset, {"mcp-session-id": "s"}) == part
    checked = DraftOpening(
        "files", Verb.APPEND, {"q": "1"}, draft=ID, size_bytes=3, offset=7, checksum=Checksum("sha1", "00" * 20)
    )
    assert opened("PATCH", PATH + "?q=1", VERSION, offset, CHECKSUM) == checked
    assert opened("POST", PATH + "?q=1", VERSION, offset, CHECKSUM, {"x-http-method-override": "PATCH"}) == checked
    empty = DraftOpening("files", Verb.APPEND, {}, draft=ID, size_bytes=0, offset=0)
    assert opened("PATCH", PATH, VERSION, TYPE, {"upload-offset": "0"}) == empty


@pytest.mark.parametrize(
    ("headers", "status", "detail"),
    [
        ({"tus-resumable": ""}, 412, "got Tus-Resumable '', expected 1.0.0"),
        ({}, 400, "got no Upload-Offset header, expected a number of bytes"),
        ({"upload-offset": "-1"}, 400, "got Upload-Offset '-1', expected a number of bytes"),
        (
            {"content-type": "x" * 65},
            415,
            f"got Content-Type '{'x' * 64}', expected application/offset+octet-stream",
        ),
        ({"content-type": ""}, 415, "got no Content-Type, expected application/offset+octet-stream"),
        ({"content-encoding": "x" * 33}, 415, f"got Content-Encoding '{'x' * 32}', expected none"),
        (
            {"content-range": "bytes 0-1/2"},
            400,
            "got Content-Range, expected a whole file; parts are taken by the tus protocol",
        ),
        ({"content-length": "1" * 33}, 400, f"got Content-Length '{'1' * 32}', expected digits"),
        ({"upload-offset": "0", "upload-checksum": "md5 x"}, 400, "got an Upload-Checksum that is no md5 in base64"),
    ],
)
def test_a_wrong_part_is_refused(headers: dict[str, str], status: int, detail: str) -> None:
    found, text = refused("PATCH", PATH, VERSION, TYPE, headers)
    assert (found, text.startswith(detail)) == (status, True), text


@pytest.mark.parametrize(
    ("method", "verb"), [("HEAD", Verb.RESUME), ("GET", Verb.LOOK), ("DELETE", Verb.END)], ids=lambda each: str(each)
)
def test_the_other_verbs_have_no_body(method: str, verb: Verb) -> None:
    """GET is open to any client; the others require the protocol's version."""
    order = DraftOpening("files", verb, {"q": "1"}, draft=ID, session="s")
    session = {"mcp-session-id": "s", "content-type": "text/plain"}
    assert opened(method, PATH + "?q=1", VERSION, session) == order
    if verb is Verb.LOOK:
        assert opened(method, PATH + "?q=1", session) == order
    else:
        route = routed(method, PATH, session)
        assert isinstance(route, Refused) and route.status == 412
    overridden = routed("POST", PATH + "?q=1", VERSION, session, {"x-http-method-override": method})
    if verb is Verb.RESUME:
        assert isinstance(overridden, Refused), "its answer has no body, as the method says"
        assert overridden.status == 405
    else:
        assert overridden == UploadRoute(order, "")


@pytest.mark.parametrize("override", [None, "", "POST", "PUT", "patch", "OPTIONS"])
def test_a_post_without_a_known_override_is_refused(override: str | None) -> None:
    headers = {} if override is None else {"x-http-method-override": override}
    route = routed("POST", PATH, VERSION, headers)
    assert isinstance(route, Refused)
    assert (route.status, dict(route.headers)[b"allow"]) == (405, b"HEAD, GET, PATCH, DELETE, POST, OPTIONS")
    assert json.loads(route.body)["detail"].startswith(f"got method {override or 'POST'}, expected one of HEAD")


@pytest.mark.parametrize("id", ["x", ID[:-1], ID + "0", "g" * 32])
def test_an_id_that_was_not_minted_is_not_found(id: str) -> None:
    """The id is checked before everything else in the request."""
    for headers in ({}, VERSION):
        assert refused("GET", f"/upload/files/tus/{id}", headers)[0] == 404
        assert refused("PATCH", f"/upload/files/tus/{id}", headers)[0] == 404


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/upload/files", b"POST, PUT, OPTIONS"),
        ("/upload/files/a.txt", b"PUT, OPTIONS"),
        ("/upload/files/tus", b"PUT, OPTIONS"),
        (PATH, b"HEAD, GET, PATCH, DELETE, POST, OPTIONS"),
    ],
)
def test_the_methods_of_each_path(path: str, allowed: bytes) -> None:
    route = routed("OPTIONS", path)
    assert route == Refused(204, b"", ((b"allow", allowed), *SUPPORTED.items()))
    for method in ("TRACE", "PATCH", "GET"):
        found = routed(method, path, VERSION, TYPE, {"upload-offset": "0"})
        is_refused = isinstance(found, Refused) and found.status == 405
        assert is_refused is (method.encode() not in allowed.split(b", "))
    for deeper in ("/upload/files/a/b", "/upload/files/tus/a/b", "/upload/files/TUS/" + ID):
        assert refused("OPTIONS", deeper)[0] == 404


@pytest.mark.parametrize(
    ("method", "path", "headers", "is_spoken"),
    [
        ("POST", "/upload/files", VERSION, True),
        ("POST", "/upload/files", {"tus-resumable": "x"}, True),
        ("POST", "/upload/files", {}, False),
        ("PUT", "/upload/files/a", {}, False),
        ("GET", PATH, {}, True),
        ("PATCH", PATH + "?x=1", {}, True),
        ("OPTIONS", PATH, VERSION, False),
        ("PUT", "/upload/files/a?b=/tus/", {}, False),
        ("GET", "/artifacts/files/tus/x", VERSION, False),
        ("GET", "/mcp/tus/x", VERSION, False),
    ],
)
def test_every_tus_response_has_the_version(method: str, path: str, headers: dict[str, str], is_spoken: bool) -> None:
    shared = dict(shared_headers(head(method, path, headers), SURFACE))
    assert {name: value for name, value in shared.items() if name.startswith(b"tus")} == (SPOKEN if is_spoken else {})
