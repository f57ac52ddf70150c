"""Tests of resumable uploads (tus), through a proxy at work, beside a plain model of the protocol."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from file_caller import BODY, TUS, Caller, Reply, fail_after, served
from hypothesis import given, settings
from hypothesis import strategies as st
from isthmus.app.config.settings import Management, Uploads
from isthmus.core.wire.http.tus import format_metadata

SIZE_MAX = 3 << 20


@pytest.fixture(scope="module")
def caller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Caller]:
    with served(tmp_path_factory.mktemp("tus"), uploads=Uploads(max_file_bytes=SIZE_MAX)) as base_url:
        yield Caller(base_url)


def create(caller: Caller, length: int, body: bytes = b"", **metadata: str) -> Reply:
    headers = {**(BODY if body else TUS), "Upload-Length": str(length)}
    headers["Upload-Metadata"] = format_metadata({"filename": "a b.bin", **metadata})
    return caller.fetch("POST", caller.link(), headers, body)


def checksum(algorithm: str, content: bytes) -> str:
    return f"{algorithm} {base64.b64encode(hashlib.new(algorithm, content).digest()).decode()}"


def test_options_report_the_supported_protocol_to_anybody(caller: Caller) -> None:
    for path in ("/upload/a", "/upload/a/tus/" + "0" * 32):
        reply = caller.fetch("OPTIONS", caller.base_url + path)
        assert (reply.status, reply.body) == (204, b"")
        assert reply.headers["tus-version"] == "1.0.0"
        assert reply.headers["tus-max-size"] == str(SIZE_MAX)
        assert reply.headers["tus-extension"] == "creation,creation-with-upload,expiration,termination,checksum"
        assert reply.headers["tus-checksum-algorithm"] == "sha1,sha256,md5"


def test_the_usual_course(caller: Caller) -> None:
    content = bytes(range(256)) * 5000
    made = create(caller, len(content), filetype="image/png", sha256=hashlib.sha256(content).hexdigest())
    assert (made.status, made.headers["tus-resumable"], made.body) == (201, "1.0.0", b"")
    assert made.headers["upload-expires"].endswith(" GMT")
    url = made.headers["location"]
    assert url.startswith(caller.base_url + "/upload/a/tus/")
    first = caller.fetch("PATCH", url, {**BODY, "Upload-Offset": "0"}, content[:1000])
    assert (first.status, first.headers["upload-offset"], first.body) == (204, "1000", b"")
    looked = caller.fetch("HEAD", url, TUS)
    assert (looked.status, looked.headers["upload-offset"], looked.headers["cache-control"]) == (
        200,
        "1000",
        "no-store",
    )
    assert looked.headers["upload-metadata"].startswith("filename YSBiLmJpbg==")
    assert caller.fetch("GET", url).json["offset"] == 1000
    last = caller.fetch("PATCH", url, {**BODY, "Upload-Offset": "1000"}, content[1000:])
    assert (last.status, last.headers["upload-offset"]) == (204, str(len(content)))
    assert caller.content(last.headers["upload-handle"]) == content
    shown = caller.fetch("GET", url).json
    assert shown["upload_handle"] == last.headers["upload-handle"]
    assert shown["upload"]["mime_type"] == "image/png"


@pytest.mark.parametrize(
    "change, status",
    [
        ({"Tus-Resumable": "0.2.2"}, 412),
        ({"Tus-Resumable": ""}, 412),
        ({"Upload-Offset": "-1"}, 400),
        ({"Upload-Offset": "1e1"}, 400),
        ({"Upload-Offset": "9" * 30}, 400),
        ({"Upload-Offset": "1"}, 409),
        ({"Content-Type": "application/octet-stream"}, 415),
        ({"Content-Encoding": "gzip"}, 415),
        ({"Upload-Checksum": "crc32 AAAAAA=="}, 400),
        ({"Upload-Checksum": "sha1 AAAA"}, 400),
        ({"Upload-Checksum": "sha1 !!!"}, 400),
        ({"Upload-Checksum": checksum("sha1", b"other")}, 460),
        ({"Content-Length": "11"}, 413),
    ],
)
def test_what_is_refused_changes_nothing(caller: Caller, change: dict[str, str], status: int) -> None:
    url = create(caller, 10).headers["location"]
    refused = caller.fetch("PATCH", url, {**BODY, "Upload-Offset": "0", **change}, b"x" * (11 if status == 413 else 5))
    assert refused.status == status
    assert refused.headers["tus-resumable"] == "1.0.0"
    assert refused.headers["tus-version"] == "1.0.0"
    assert caller.fetch("HEAD", url, TUS).headers["upload-offset"] == "0"


def test_creations_that_make_no_sense_are_refused(caller: Caller) -> None:
    link = caller.link()
    for status, headers in (
        (412, {"Tus-Resumable": "2.0.0", "Upload-Length": "1"}),
        (400, TUS),
        (400, {**TUS, "Upload-Defer-Length": "1"}),
        (400, {**TUS, "Upload-Length": "-1"}),
        (413, {**TUS, "Upload-Length": str(SIZE_MAX + 1)}),
        (400, {**TUS, "Upload-Length": "1", "Upload-Metadata": "a !"}),
        (400, {**TUS, "Upload-Length": "1", "Upload-Metadata": "a YQ==,a YQ=="}),
        (400, {**TUS, "Upload-Length": "1", "Upload-Metadata": "sha256 YQ=="}),
        (400, {**TUS, "Upload-Length": "1", "Upload-Metadata": "a " + "A" * 9000}),
        (400, {**TUS, "Upload-Length": "1", "Upload-Metadata": ",".join(f"k{i} YQ==" for i in range(40))}),
    ):
        assert caller.fetch("POST", link, headers).status == status, headers
    assert caller.fetch("POST", link, {**TUS, "Upload-Length": "1"}, b"x").status == 415
    assert caller.fetch("POST", link, {**BODY, "Upload-Length": "1"}, b"xy").status == 413
    forged = link[:-1] + ("1" if link[-1] == "0" else "0")
    assert caller.fetch("POST", forged, {**TUS, "Upload-Length": "1"}).status == 403
    made = caller.fetch("POST", link, {**TUS, "Upload-Length": "1"})
    assert made.status == 201, "and the link is still good"
    url = made.headers["location"]
    assert caller.fetch("PUT", url, TUS, b"x").status == 405
    assert caller.fetch("POST", url, TUS).status == 405
    assert caller.fetch("DELETE", url).status == 412
    end = caller.fetch("POST", url, {**TUS, "X-HTTP-Method-Override": "DELETE"})
    assert (end.status, caller.fetch("HEAD", url, TUS).status) == (204, 404)


def test_a_file_whose_hash_is_another_is_not_kept(caller: Caller) -> None:
    made = create(caller, 5, sha256=hashlib.sha256(b"other").hexdigest())
    url = made.headers["location"]
    refused = caller.fetch("PATCH", url, {**BODY, "Upload-Offset": "0"}, b"hello")
    assert (refused.status, refused.code) == (400, "sha256_mismatch")
    assert caller.fetch("HEAD", url, TUS).status == 404


def test_a_body_without_a_length_may_be_too_long(caller: Caller) -> None:
    url = create(caller, 10).headers["location"]
    refused = caller.fetch("PATCH", url, {**BODY, "Upload-Offset": "0"}, iter([b"12345", b"67890", b"x"]))
    assert refused.status == 413
    assert caller.fetch("HEAD", url, TUS).headers["upload-offset"] == "0"
    last = caller.fetch("PATCH", url, {**BODY, "Upload-Offset": "0"}, iter([b"12345", b"67890"]))
    assert caller.content(last.headers["upload-handle"]) == b"1234567890"


def test_a_break_in_a_checked_body_takes_it_back(caller: Caller) -> None:
    """The received part of the body cannot be verified."""
    url = create(caller, 10).headers["location"]
    headers = {**BODY, "Upload-Offset": "0", "Content-Length": "10"}
    caller.drop("PATCH", url, {**headers, "Upload-Checksum": checksum("md5", b"1234567890")}, b"12345")
    assert caller.fetch("HEAD", url, TUS).headers["upload-offset"] == "0"
    caller.drop("PATCH", url, headers, b"12345")
    assert caller.fetch("HEAD", url, TUS).headers["upload-offset"] == "5"


def test_who_comes_back_need_not_wait_for_the_old_connection(caller: Caller) -> None:
    """A dead connection may hang for minutes before it is noticed, so a HEAD request ends it. A GET request leaves
    it alone."""
    length = 3 << 20
    url = create(caller, length).headers["location"]
    old = caller.plug("PATCH", url, {**BODY, "Upload-Offset": "0", "Content-Length": str(length)})
    with old:
        old.sendall(b"x" * (2 << 20))
        with fail_after():
            while caller.fetch("GET", url).json["offset"] < 1 << 20:
                pass
        offset = int(caller.fetch("HEAD", url, TUS).headers["upload-offset"])
        assert 1 << 20 <= offset <= 2 << 20
        assert old.recv(12) == b"HTTP/1.1 409"
    rest = caller.fetch("PATCH", url, {**BODY, "Upload-Offset": str(offset)}, b"y" * (length - offset))
    assert caller.content(rest.headers["upload-handle"]) == b"x" * offset + b"y" * (length - offset)


# --- Comparison with a model ------------------------------------------------------------------------------------------

PIECES = st.one_of(
    st.binary(max_size=20), st.builds(lambda unit, n: (unit * n)[:n], st.binary(min_size=1), st.integers(0, 400_000))
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), PIECES, st.sampled_from(["", "sha1", "sha256", "md5", "wrong", "offset"])),
        st.tuples(st.just("drop"), PIECES, st.integers(1, 100_000)),
        st.tuples(st.just("look"), st.just(b""), st.just(0)),
    ),
    max_size=6,
)


@settings(max_examples=25)
@given(first=PIECES, steps=STEPS, rest=PIECES)
def test_a_file_is_what_was_acknowledged(
    caller: Caller, first: bytes, steps: list[tuple[str, bytes, object]], rest: bytes
) -> None:
    """The model is the bytes that the protocol has acknowledged."""
    added = sum(len(piece) for _, piece, _ in steps)
    length = len(first) + added + len(rest)
    made = create(caller, length, first)
    model = first
    url = made.headers["location"]
    assert (made.status, int(made.headers["upload-offset"])) == (201, len(model))
    for kind, piece, how in steps:
        if len(model) == length:
            break
        headers = {**BODY, "Upload-Offset": str(len(model))}
        if kind == "drop":
            headers["Content-Length"] = str(min(len(piece) + int(str(how)), length - len(model)))
            caller.drop("PATCH", url, headers, piece)
            model += piece
        elif kind == "add":
            status = 204
            if how == "wrong":
                headers["Upload-Checksum"], status = checksum("sha1", piece + b"!"), 460
            elif how == "offset":
                headers["Upload-Offset"], status = str(len(model) + 1), 409
            elif how:
                headers["Upload-Checksum"] = checksum(str(how), piece)
            assert caller.fetch("PATCH", url, headers, piece).status == status
            model += piece if status == 204 else b""
        assert int(caller.fetch("HEAD", url, TUS).headers["upload-offset"]) == len(model)
    if len(model) < length:
        model += (left := b"z" * (length - len(model)))
        final = caller.fetch("PATCH", url, {**BODY, "Upload-Offset": str(length - len(left))}, left)
    else:
        final = caller.fetch("HEAD", url, TUS)
    assert final.headers["upload-offset"] == str(length)
    shown = caller.fetch("GET", url).json["upload"]
    assert (shown["size_bytes"], shown["sha256"]) == (length, hashlib.sha256(model).hexdigest())
    assert caller.content(final.headers["upload-handle"]) == model


def test_what_comes_and_goes_is_counted(tmp_path: Path) -> None:
    with served(tmp_path, management=Management(enabled=True)) as base_url:
        caller = Caller(base_url)

        def counted(name: str, **labels: str) -> float:
            labels = {"direction": "in", "server": "a", **labels}
            labels_text = ",".join(f'{label}="{value}"' for label, value in sorted(labels.items()))
            found = re.search(
                rf"^isthmus_{name}\{{{re.escape(labels_text)}\}} (\S+)$",
                caller.fetch("GET", f"{base_url}/metrics").body.decode(),
                re.MULTILINE,
            )
            assert found is not None, (name, labels_text)
            return float(found[1])

        made = create(caller, 10, b"abc")
        caller.fetch("GET", made.headers["location"])
        caller.drop("PATCH", made.headers["location"], {**BODY, "Upload-Offset": "3", "Content-Length": "7"}, b"de")
        refused = caller.fetch("POST", caller.link() + "0", {**TUS, "Upload-Length": "1"})
        assert refused.status == 403
        assert counted("transferred_bytes_total") == 5
        outcomes = ("done", "refused", "broken")
        assert [counted("transfers_total", outcome=outcome) for outcome in outcomes] == [1, 1, 1]
        assert counted("transfers_in_progress") == 0
        with caller.plug(
            "PATCH", made.headers["location"], {**BODY, "Upload-Offset": "5", "Content-Length": "5"}
        ) as plug:
            plug.sendall(b"f")
            with fail_after():
                while counted("transfers_in_progress") == 0 or counted("transferred_bytes_total") < 6:
                    pass
        with fail_after():
            while counted("transfers_in_progress"):
                pass
        assert counted("transfers_total", direction="out", outcome="done") == 0
