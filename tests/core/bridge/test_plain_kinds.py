"""The results that the fast path of the bridge translates, and their translations."""

from __future__ import annotations

import pytest
from isthmus.core.base.revisions import features_of
from isthmus.core.bridge.plain import to_legacy, to_modern

NEW = "2025-11-25"
INFO = b'{"name":"s"}'
NAMED = b'"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s"}}'
FRESH = b'"ttlMs":0,"cacheScope":"private"'


@pytest.mark.parametrize(
    ("method", "result", "modern"),
    [
        ("tools/call", b'{"content":[]}', b'{"content":[],"resultType":"complete"}'),
        (
            "tools/call",
            b'{"content":[],"structuredContent":{"a":1}}',
            b'{"content":[],"structuredContent":{"a":1},"resultType":"complete"}',
        ),
        ("tools/call", b'{"content":[],"structuredContent":[]}', None),
        ("tools/call", b'{"content":[],"structuredContent":null}', None),
        ("tools/call", b'{"content":null}', None),
        ("tools/call", b"{}", None),
        ("tools/call", b'{"content":[],"_meta":{}}', None),
        ("tools/call", b'{"content":[],"resultType":"complete"}', None),
        ("tools/call", b'{ "content":[]}', None),
        ("prompts/get", b'{"messages":[]}', b'{"messages":[],"resultType":"complete"}'),
        ("prompts/get", b"{}", b'{"resultType":"complete"}'),
        ("prompts/get", b'{"ttlMs":1}', b'{"ttlMs":1,"resultType":"complete"}'),
        ("resources/read", b'{"contents":[]}', b'{"contents":[],"resultType":"complete",' + FRESH + b"}"),
        ("resources/read", b'{"contents":[],"ttlMs":1}', None),
        ("resources/read", b'{"contents":[],"cacheScope":"public"}', None),
    ],
)
def test_a_result_for_a_stateless_client(method: str, result: bytes, modern: bytes | None) -> None:
    """The name of the server is added, if it is known. None: the full translation examines the result."""
    assert to_modern(method, result, None) == modern
    named = None if modern is None else modern[:-1] + b"," + NAMED + b"}"
    assert to_modern(method, result, INFO) == named


@pytest.mark.parametrize(
    ("method", "result", "legacy"),
    [
        ("tools/call", b'{"content":[],"resultType":"complete"}', b'{"content":[]}'),
        ("tools/call", b'{"resultType":"complete","content":[]}', b'{"content":[]}'),
        ("tools/call", b'{"content":[]}', b'{"content":[]}'),
        ("tools/call", b'{"resultType":"complete"}', b"{}"),
        ("tools/call", b'{"resultType":"input_required"}', None),
        ("tools/call", b'{ "content":[]}', None),
        (
            "tools/call",
            b'{"content":[],"structuredContent":{"a":1},"x":1,"resultType":"complete"}',
            b'{"content":[],"structuredContent":{"a":1},"x":1}',
        ),
        ("tools/call", b'{"content":[],"structuredContent":[1]}', None),
        ("tools/call", b'{"content":[],"structuredContent":1}', None),
        ("tools/call", b'{"a":1,' + NAMED + b',"b":2}', b'{"a":1,"b":2}'),
        ("tools/call", NAMED.join([b"{", b"}"]), b"{}"),
        (
            "tools/call",
            b'{"a":1,"_meta":{"x":1,"io.modelcontextprotocol/serverInfo":{}},"b":2}',
            b'{"a":1,"_meta":{"x":1},"b":2}',
        ),
        ("tools/call", b'{"a":1,"_meta":{"x":1,"x":2}}', None),
        ("tools/call", b'{"ttlMs":1,"cacheScope":"private"}', b'{"ttlMs":1,"cacheScope":"private"}'),
        ("resources/read", b'{"contents":[],"ttlMs":1,"cacheScope":"public","x":1}', b'{"contents":[],"x":1}'),
        ("resources/read", b'{"ttlMs":1,"contents":[],"cacheScope":"public"}', b'{"contents":[]}'),
    ],
)
def test_a_result_for_a_handshake_client(method: str, result: bytes, legacy: bytes | None) -> None:
    """Members of the stateless era are left out. None: the full translation examines the result."""
    assert to_legacy(method, result, features_of(NEW)) == legacy


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
@pytest.mark.parametrize("result", [b'{"content":[]}', b'{"content":[],"structuredContent":{}}'])
def test_content_unknown_to_an_older_client_is_left_to_the_full_translation(revision: str, result: bytes) -> None:
    knows = revision in ("2025-06-18", "2025-11-25")
    assert to_legacy("tools/call", result, features_of(revision)) == (result if knows else None)


def test_a_stand_in_is_left_to_the_full_translation() -> None:
    """The full translation restores the original block."""
    marked = b'{"content":[{"type":"text","text":"x","_meta":{"dev.isthmus/original":{}}}]}'
    assert to_legacy("tools/call", marked, features_of(NEW)) is None
    assert to_modern("tools/call", marked, None) is None
