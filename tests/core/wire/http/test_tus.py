"""The headers of resumable uploads (tus): written ones are read again, and any input is read or refused."""

from __future__ import annotations

import base64
import contextlib
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.base.errors import RemoteProtocolError
from isthmus.core.base.events import Checksum, RawFile
from isthmus.core.wire.http.routes import Head, Refused, Surface, UploadRoute
from isthmus.core.wire.http.server import judge, shared_headers
from isthmus.core.wire.http.tus import (
    ALGORITHMS,
    BODY_TYPE,
    METADATA_MAX_BYTES,
    METADATA_PAIRS_MAX,
    check_version,
    format_metadata,
    read_checksum,
    read_metadata,
    read_number,
    supported,
)

SURFACE = Surface(("files",), frozenset({"localhost"}), frozenset())
TEXTS = st.text(max_size=40)


@given(filename=TEXTS, filetype=TEXTS, other=TEXTS)
def test_metadata_is_read_as_it_is_written(filename: str, filetype: str, other: str) -> None:
    filename, filetype, other = (text.encode(errors="replace").decode() for text in (filename, filetype, other))
    written = format_metadata({"other": other, "filename": filename, "filetype": filetype, "sha256": "AB" * 32})
    assert read_metadata(written) == RawFile(filename, filetype or None, "ab" * 32)


def test_metadata_may_be_missing_or_without_a_value() -> None:
    assert read_metadata(None) == read_metadata("") == read_metadata("is_confidential") == RawFile()
    assert read_metadata("name YQ==, type dGV4dC9wbGFpbg==") == RawFile("a", "text/plain")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@given(content=st.binary(max_size=20))
def test_checksums_are_those_of_the_standard_library(algorithm: str, content: bytes) -> None:
    digest = hashlib.new(algorithm, content)
    written = f"{algorithm} {base64.b64encode(digest.digest()).decode()}"
    assert read_checksum(written) == Checksum(algorithm, digest.hexdigest())


@given(value=st.text(alphabet=st.characters(max_codepoint=255), max_size=60))
def test_any_input_is_read_or_refused(value: str) -> None:
    for read in (read_metadata, read_checksum, lambda text: read_number(text, "Upload-Length")):
        found: object = None
        with contextlib.suppress(RemoteProtocolError):
            found = read(value)
        assert found is None or isinstance(found, RawFile | Checksum | int)


_VALUES = st.sampled_from(
    ["", "0", "5", "-1", "1.0.0", "application/offset+octet-stream", "sha1 AAAA", "a YQ==", "x" * 50]
)
_NAMES = ("tus-resumable", "upload-length", "upload-offset", "upload-metadata", "upload-checksum", "content-type")
_OTHERS = ("content-length", "x-http-method-override")


@given(
    method=st.sampled_from(["POST", "PUT", "PATCH", "HEAD", "GET", "DELETE", "OPTIONS", "TRACE"]),
    path=st.sampled_from(["/upload/files", f"/upload/files/tus/{'0' * 32}", "/upload/files/tus/x", "/upload/files/a"]),
    headers=st.lists(st.tuples(st.sampled_from(_NAMES + _OTHERS), _VALUES), max_size=6),
)
def test_every_head_has_one_answer(method: str, path: str, headers: list[tuple[str, str]]) -> None:
    """A head has a route or a refusal, and a tus response says which version it has."""
    fields = [("host", "localhost"), *headers]
    head = Head(method, path, tuple((name.encode(), value.encode()) for name, value in fields))
    route = judge(head, SURFACE)
    if isinstance(route, Refused):
        assert 400 <= route.status < 500 or (method, route.status) == ("OPTIONS", 204)
    else:
        assert isinstance(route, UploadRoute)
    is_tus = "/tus/" in path or any(name == "tus-resumable" for name, _ in headers)
    assert (b"tus-resumable" in dict(shared_headers(head, SURFACE))) == (is_tus and method != "OPTIONS")


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("", "got a checksum by ''"),
        ("crc32 AAAAAA==", "got a checksum by 'crc32'"),
        ("SHA1 AAAA", "got a checksum by 'SHA1'"),
        ("sha1", "no sha1 in base64"),
        ("sha1 AAAA", "no sha1 in base64"),
        ("md5 " + base64.b64encode(bytes(17)).decode(), "no md5 in base64"),
        ("md5 " + base64.b64encode(bytes(15)).decode(), "no md5 in base64"),
        ("sha256 " + "*" * 44, "no sha256 in base64"),
    ],
)
def test_a_malformed_checksum(value: str, problem: str) -> None:
    with pytest.raises(RemoteProtocolError, match=problem):
        read_checksum(value)


def test_no_checksum_need_be_given() -> None:
    assert read_checksum(None) is None


def test_the_supported_features() -> None:
    """The size is named only if there is one."""
    lines = dict(supported(5))
    assert lines == dict(supported(None)) | {b"tus-max-size": b"5"}
    assert lines == {
        b"tus-resumable": b"1.0.0",
        b"tus-version": b"1.0.0",
        b"tus-max-size": b"5",
        b"tus-extension": b"creation,creation-with-upload,expiration,termination,checksum",
        b"tus-checksum-algorithm": b"sha1,sha256,md5",
    }


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("name YQ==,name YQ==", "malformed"),
        ("name Y", "malformed"),
        ("name *", "malformed"),
        (",", "malformed"),
        ("na\tme YQ==", "malformed"),
        ("sha256 YQ==", "expected 64 hexadecimal digits"),
        ("a".ljust(METADATA_MAX_BYTES + 1), f"expected {METADATA_MAX_BYTES} at most"),
        (",".join(f"k{at}" for at in range(METADATA_PAIRS_MAX + 1)), f"expected {METADATA_PAIRS_MAX} at most"),
    ],
)
def test_malformed_metadata(value: str, problem: str) -> None:
    with pytest.raises(RemoteProtocolError, match=problem):
        read_metadata(value)


def test_the_largest_metadata() -> None:
    assert read_metadata("a".ljust(METADATA_MAX_BYTES)) == RawFile()
    assert read_metadata(",".join(f"k{at}" for at in range(METADATA_PAIRS_MAX))) == RawFile()


@pytest.mark.parametrize(
    ("value", "number"),
    [
        ("0", 0),
        ("1", 1),
        ("10", 10),
        ("9" * 18, 10**18 - 1),
        ("9" * 19, None),
        ("", None),
        ("00", None),
        ("01", None),
        ("-1", None),
        ("+1", None),
        (" 1", None),
        ("1 ", None),
        ("1Q", None),
        ("0x1", None),
        ("\u0661", None),
        (None, None),
    ],
)
def test_a_number_of_bytes_is_digits(value: str | None, number: int | None) -> None:
    if number is not None:
        assert read_number(value, "Upload-Offset") == number
        return
    seen = "no Upload-Offset header" if value is None else f"Upload-Offset {value!r}"
    with pytest.raises(RemoteProtocolError) as refused:
        read_number(value, "Upload-Offset")
    assert refused.value.message == f"got {seen}, expected a number of bytes"


def test_only_the_beginning_of_a_header_is_quoted() -> None:
    with pytest.raises(RemoteProtocolError, match=f"'{'a' * 32}'"):
        read_number("a" * 33, "Upload-Length")
    with pytest.raises(RemoteProtocolError, match=f"'{'a' * 32}'"):
        read_checksum("a" * 33)
    with pytest.raises(RemoteProtocolError, match=f"'{'a' * 32}'"):
        check_version("a" * 33)


@pytest.mark.parametrize("version", [None, "", "1.0", "1.0.0 ", "0.2.2"])
def test_another_version_is_refused_by_its_own_status(version: str | None) -> None:
    check_version("1.0.0")
    with pytest.raises(RemoteProtocolError) as refused:
        check_version(version)
    assert refused.value.http_status == 412
    seen = "no Tus-Resumable header" if version is None else f"Tus-Resumable {version!r}"
    assert refused.value.message == f"got {seen}, expected 1.0.0"


@pytest.mark.parametrize(
    ("pairs", "found"),
    [
        ({"filename": "a", "name": "b"}, RawFile("a")),
        ({"filename": "", "name": "b"}, RawFile("b")),
        ({"filetype": "text/a", "type": "text/b"}, RawFile("", "text/a")),
        ({"filetype": "", "type": "text/b"}, RawFile("", "text/b")),
        ({"filetype": "", "type": ""}, RawFile("", None)),
        ({"sha256": ""}, RawFile()),
        ({"sha256": "aB" * 32}, RawFile(sha256="ab" * 32)),
        ({"k" * 128: "x"}, RawFile()),
        ({"!~-": "x"}, RawFile()),
    ],
)
def test_the_metadata_keys_that_are_understood(pairs: dict[str, str], found: RawFile) -> None:
    assert read_metadata(format_metadata(pairs)) == found


@pytest.mark.parametrize("key", ["k" * 129, "\x7f", "\xe9"])
def test_a_key_is_visible_ascii(key: str) -> None:
    with pytest.raises(RemoteProtocolError, match="malformed"):
        read_metadata(f"{key} YQ==")


def test_a_name_that_is_no_text_is_replaced() -> None:
    assert read_metadata(f"filename {base64.b64encode(bytes([97, 255])).decode()}") == RawFile("a\ufffd")


@pytest.mark.parametrize("digits", ["a" * 63, "a" * 65, "g" * 64])
def test_a_hash_in_metadata_is_whole(digits: str) -> None:
    with pytest.raises(RemoteProtocolError, match="64 hexadecimal digits"):
        read_metadata(format_metadata({"sha256": digits}))


def test_the_bounds_and_the_content_type() -> None:
    """Clients send some hundred bytes of metadata; the type is the protocol's own."""
    assert (METADATA_MAX_BYTES, METADATA_PAIRS_MAX) == (8192, 32)
    assert ALGORITHMS == {"sha1": 20, "sha256": 32, "md5": 16}
    assert BODY_TYPE == "application/offset+octet-stream"


@pytest.mark.parametrize("blanks", ["", " ", "   "])
def test_blanks_round_a_digest_do_not_count(blanks: str) -> None:
    digest = base64.b64encode(bytes(20)).decode()
    assert read_checksum(f"sha1 {blanks}{digest}{blanks}") == Checksum("sha1", "00" * 20)
    assert read_metadata(f"{blanks}name {blanks}YQ=={blanks},{blanks}type Yg=={blanks}") == RawFile("a", "b")
