"""Which results are brought across in one step, and what they become: most are."""

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
def test_a_result_for_the_new_era(method: str, result: bytes, modern: bytes | None) -> None:
    """With the name of its server, if that is known; None: it has to be looked at."""
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
def test_a_result_for_the_old_era(method: str, result: bytes, legacy: bytes | None) -> None:
    """Without what that has no word for; None: it has to be looked at."""
    assert to_legacy(method, result, features_of(NEW)) == legacy


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
@pytest.mark.parametrize("result", [b'{"content":[]}', b'{"content":[],"structuredContent":{}}'])
def test_what_an_older_client_may_not_know_is_looked_at(revision: str, result: bytes) -> None:
    knows = revision in ("2025-06-18", "2025-11-25")
    assert to_legacy("tools/call", result, features_of(revision)) == (result if knows else None)


def test_what_an_older_hop_has_changed_is_looked_at() -> None:
    """It is restored."""
    marked = b'{"content":[{"type":"text","text":"x","_meta":{"dev.isthmus/original":{}}}]}'
    assert to_legacy("tools/call", marked, features_of(NEW)) is None
    assert to_modern("tools/call", marked, None) is None
