"""Tables against independent sources: the standard library, and the change logs of the specification."""

from __future__ import annotations

import mimetypes
from http import HTTPStatus

import msgspec
import pytest
from each_row import each_row
from isthmus.core.base.revisions import LEGACY, MODERN, Features
from isthmus.core.files.store import filenames
from isthmus.core.wire.http.header_forwarding import may_pass
from isthmus.core.wire.http1 import events

RENAMED = {413: "Content Too Large", 414: "URI Too Long", 416: "Range Not Satisfiable", 422: "Unprocessable Content"}
"""Phrases of RFC 9110, which not every standard library follows yet."""


def test_the_phrase_of_a_status_is_the_registered_one() -> None:
    expected = {status.value: RENAMED.get(status.value, status.phrase).encode() for status in HTTPStatus}
    assert {status: expected.get(status) for status in events.REASONS} == events.REASONS
    assert {200, 202, 204, 206, 400, 401, 403, 404, 405, 413, 429, 500, 502, 503} <= events.REASONS.keys()


@each_row(
    "suffix",
    [
        "aac",
        "avi",
        "avif",
        "bmp",
        "css",
        "csv",
        "doc",
        "gif",
        "heic",
        "htm",
        "html",
        "ico",
        "jpeg",
        "jpg",
        "json",
        "mov",
        "mp3",
        "mp4",
        "pdf",
        "png",
        "ppt",
        "ps",
        "py",
        "rtf",
        "sh",
        "svg",
        "tar",
        "tif",
        "tiff",
        "tsv",
        "txt",
        "wasm",
        "webm",
        "webp",
        "xls",
        "zip",
    ],
)
def test_the_type_of_a_suffix_is_what_the_standard_library_says(suffix: str) -> None:
    """Only suffixes whose type has not changed between versions are compared."""
    known = mimetypes.MimeTypes(filenames=())
    both = {**known.types_map[False], **known.types_map[True]}
    assert filenames.mime_type_of(f"a.{suffix}", b"", None) == both[f".{suffix}"]


@pytest.mark.parametrize(
    ("name", "type_"),
    [
        ("notes.md", "text/markdown"),
        ("run.log", "text/plain"),
        ("nginx.conf", "text/plain"),
        ("voice.m4a", "audio/mp4"),
        ("table.parquet", "application/vnd.apache.parquet"),
        ("page.ipynb", "application/x-ipynb+json"),
        ("map.geojson", "application/geo+json"),
        ("change.patch", "text/x-diff"),
        ("change.diff", "text/x-diff"),
        ("Main.java", "text/x-java"),
        ("store.sqlite", "application/vnd.sqlite3"),
        ("letter.docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
        ("sheet.xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
        ("photo.tif", "image/tiff"),
        ("settings.ini", "text/plain"),
        ("settings.toml", "application/toml"),
        ("lines.jsonl", "application/jsonl"),
    ],
)
def test_the_type_of_a_suffix_that_the_standard_library_does_not_know(name: str, type_: str) -> None:
    assert filenames.mime_type_of(name, b"", None) == type_


@each_row(
    "name",
    # RFC 9110, 7.6.1 and 11.7; RFC 9113, 8.2.2; RFC 6455; and what says how a body is written
    [
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "http2-settings",
        "content-length",
        "content-type",
        "content-encoding",
        "content-range",
        "content-digest",
        "content-md5",
        "range",
        "host",
        "sec-websocket-key",
        "sec-websocket-accept",
        "mcp-session-id",
        "mcp-protocol-version",
        "mcp-method",
        "mcp-name",
        "last-event-id",
        "accept",
    ],
)
def test_headers_of_one_connection_or_one_message_do_not_pass(name: str) -> None:
    assert not may_pass(name)
    assert not may_pass(name.title())
    assert may_pass(f"x-{name}")


REVISIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
SINCE = {
    "audio": "2025-03-26",
    "completions": "2025-03-26",
    "event_ids": "2025-03-26",
    "version_header": "2025-06-18",
    "resource_links": "2025-06-18",
    "elicitation": "2025-06-18",
    "structured": "2025-06-18",
    "url_elicitation": "2025-11-25",
    "rich_forms": "2025-11-25",
    "sampling_tools": "2025-11-25",
    "tasks": "2025-11-25",
    "priming": "2025-11-25",
}
"""The revision that introduced each feature, by the change logs; all later handshake revisions have it as well."""


@pytest.mark.parametrize("revision", REVISIONS)
def test_the_features_of_a_revision(revision: str) -> None:
    found = msgspec.structs.asdict(LEGACY[revision])
    assert {name: found[name] for name in SINCE} == {name: since <= revision for name, since in SINCE.items()}
    assert found["batching"] is (revision <= "2025-03-26")  # 2025-06-18 took it back
    assert found["sessions"] is True
    assert found["any_structure"] is False
    assert found.keys() == SINCE.keys() | {"revision", "sessions", "batching", "any_structure"}


def test_revisions_are_in_their_order() -> None:
    assert list(LEGACY) == REVISIONS
    assert all(isinstance(one, Features) and not one.sessions and one.any_structure for one in MODERN.values())
