"""The fast path of the bridge: its results equal those of the full translation, or it leaves the message to that."""

from __future__ import annotations

import itertools

import pytest
from isthmus.core.base.errors import RemoteProtocolError
from isthmus.core.base.revisions import LEGACY, MODERN, Features
from isthmus.core.bridge import plain, request_meta, results
from isthmus.core.bridge.request_meta import RequestMeta
from isthmus.core.jsonrpc.splice import compact_members

INFO = b'{"name":"s","version":"1"}'
METHODS = ["tools/call", "prompts/get", "resources/read", "completion/complete"]
(V5,) = MODERN.values()
SENDER = RequestMeta("2026-07-28", b'{"roots":{}}', INFO)

MEMBERS = {
    "content": ["[]", "null", '[{"type":"text","text":"a"}]', '[{"_meta":{"dev.isthmus/original":{}}}]'],
    "structuredContent": ['{"a":1}', "[1]", "null"],
    "resultType": ['"complete"', '"task"', "7"],
    "ttlMs": ["0", '"soon"'],
    "cacheScope": ['"public"'],
    "_meta": ["{}", '{"a":1}', '{"a":1,"a":2}', "null", f'{{"io.modelcontextprotocol/serverInfo":{INFO.decode()}}}'],
}
"""Values of each member of a result; any member may also be absent."""


def all_results() -> list[bytes]:
    """Returns results with each choice of members, in the order of the table and in reverse."""
    found = {b"{ }", b"[]", b'{"content":[],"content":[]}', b'{"content": []}', b'{"content":[]} '}
    for chosen in itertools.product(*([None, *result] for result in MEMBERS.values())):
        pairs = [f'"{name}":{result}' for name, result in zip(MEMBERS, chosen, strict=True) if result is not None]
        if len(pairs) <= 3:
            found |= {f"{{{','.join(order)}}}".encode() for order in (pairs, pairs[::-1])}
    return sorted(found)


RESULTS = all_results()


@pytest.mark.parametrize("server_info", [None, INFO], ids=["nameless", "named"])
@pytest.mark.parametrize("method", METHODS)
def test_a_result_for_a_client_without_sessions(method: str, server_info: bytes | None) -> None:
    """Most results that servers send are translated here; one that the full translation refuses never is."""
    known = 0
    for result in RESULTS:
        quick = plain.to_modern(method, result, server_info)
        if quick is not None:
            assert quick == results.to_modern(method, result, server_info=server_info), result
            known += 1
    usual = b'{"content":[],"structuredContent":{"a":1}}'
    assert plain.to_modern(method, usual, server_info) is not None
    assert 0 < known < len(RESULTS)


@pytest.mark.parametrize("client", LEGACY.values(), ids=lambda client: client.revision)
@pytest.mark.parametrize("method", METHODS)
def test_a_result_for_a_client_with_sessions(method: str, client: Features) -> None:
    """A client that does not know some kinds of content has the whole result examined."""
    known = 0
    for result in RESULTS:
        quick = plain.to_legacy(method, result, client)
        if quick is not None:
            assert quick == results.to_legacy(method, result, client=client, server=V5), result
            known += 1
    usual = plain.to_legacy(method, b'{"resultType":"complete","content":[],"ttlMs":0}', client)
    assert (usual is None) is (known == 0) is not (client.audio and client.resource_links)


def test_a_result_that_is_refused_is_left_to_the_full_translation() -> None:
    """A `_meta` with a repeated member is refused, whatever else is beside it."""
    result = b'{"content":[],"_meta":{"a":1,"a":2}}'
    client = LEGACY["2025-11-25"]
    with pytest.raises(RemoteProtocolError, match="twice"):
        results.to_legacy("tools/call", result, client=client, server=V5)
    assert plain.to_legacy("tools/call", result, client) is None


@pytest.mark.parametrize("params", [b"{}", b'{"name":"t"}', b'{"name":"t","arguments":{"a":[1, 2]}}'])
def test_an_envelope_is_added(params: bytes) -> None:
    spans = compact_members(params)
    assert spans is not None
    meta = request_meta.add(None, SENDER)[len(b'{"_meta":') : -1]
    assert plain.with_envelope(params, spans, meta) == request_meta.add(params, SENDER)


@pytest.mark.parametrize("rest", [b"", b'"a":1'], ids=["alone", "not alone"])
@pytest.mark.parametrize("others", [(), ("before",), ("after",), ("before", "after")], ids="-".join)
def test_an_envelope_is_removed(others: tuple[str, ...], rest: bytes) -> None:
    """The envelope may stand anywhere, and other members of `_meta` stay."""
    meta = request_meta.add(None, SENDER)[len(b'{"_meta":') : -1]
    meta = meta[:-1] + b"," + rest + b"}" if rest else meta
    members = [b'"name":"t"'] * ("before" in others) + [b'"_meta":' + meta] + [b'"b":{}'] * ("after" in others)
    params = b"{" + b",".join(members) + b"}"
    spans = compact_members(params)
    assert spans is not None
    kept = b"{" + rest + b"}" if rest else b""
    assert plain.without_envelope(params, spans, kept) == request_meta.strip(params)
