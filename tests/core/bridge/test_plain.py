"""The quick ways of the bridge come to the same as the modules they stand for, or say that those are to be asked."""

from __future__ import annotations

import itertools

import pytest
from isthmus.core.base.errors import RemoteProtocolError
from isthmus.core.base.revisions import LEGACY, MODERN, Features
from isthmus.core.bridge import plain, request_meta, results
from isthmus.core.bridge.request_meta import Envelope
from isthmus.core.jsonrpc.splice import compact_members

INFO = b'{"name":"s","version":"1"}'
METHODS = ["tools/call", "prompts/get", "resources/read", "completion/complete"]
(V5,) = MODERN.values()
SENDER = Envelope("2026-07-28", b'{"roots":{}}', INFO)

MEMBERS = {
    "content": ["[]", "null", '[{"type":"text","text":"a"}]', '[{"_meta":{"dev.isthmus/original":{}}}]'],
    "structuredContent": ['{"a":1}', "[1]", "null"],
    "resultType": ['"complete"', '"task"', "7"],
    "ttlMs": ["0", '"soon"'],
    "cacheScope": ['"public"'],
    "_meta": ["{}", '{"a":1}', '{"a":1,"a":2}', "null", f'{{"io.modelcontextprotocol/serverInfo":{INFO.decode()}}}'],
}
"""What a result may say of each; or nothing."""


def all_results() -> list[bytes]:
    """Each choice, its members in the order of the table and the other way round."""
    found = {b"{ }", b"[]", b'{"content":[],"content":[]}', b'{"content": []}', b'{"content":[]} '}
    for chosen in itertools.product(*([None, *said] for said in MEMBERS.values())):
        pairs = [f'"{name}":{said}' for name, said in zip(MEMBERS, chosen, strict=True) if said is not None]
        if len(pairs) <= 3:
            found |= {f"{{{','.join(order)}}}".encode() for order in (pairs, pairs[::-1])}
    return sorted(found)


RESULTS = all_results()


@pytest.mark.parametrize("server_info", [None, INFO], ids=["nameless", "named"])
@pytest.mark.parametrize("method", METHODS)
def test_a_result_for_a_client_without_sessions(method: str, server_info: bytes | None) -> None:
    """Most of those that a server means are known here; what the long way refuses is never given on."""
    known = 0
    for said in RESULTS:
        quick = plain.to_modern(method, said, server_info)
        if quick is not None:
            assert quick == results.to_modern(method, said, server_info=server_info), said
            known += 1
    usual = b'{"content":[],"structuredContent":{"a":1}}'
    assert plain.to_modern(method, usual, server_info) is not None
    assert 0 < known < len(RESULTS)


@pytest.mark.parametrize("client", LEGACY.values(), ids=lambda client: client.revision)
@pytest.mark.parametrize("method", METHODS)
def test_a_result_for_a_client_with_sessions(method: str, client: Features) -> None:
    """One that has not heard of some kinds of content has all of it looked at."""
    known = 0
    for said in RESULTS:
        quick = plain.to_legacy(method, said, client)
        if quick is not None:
            assert quick == results.to_legacy(method, said, client=client, server=V5), said
            known += 1
    usual = plain.to_legacy(method, b'{"resultType":"complete","content":[],"ttlMs":0}', client)
    assert (usual is None) is (known == 0) is not (client.audio and client.resource_links)


def test_what_the_long_way_refuses_is_not_known_here() -> None:
    """A `_meta` that has a member twice, with whatever else is beside it."""
    said = b'{"content":[],"_meta":{"a":1,"a":2}}'
    client = LEGACY["2025-11-25"]
    with pytest.raises(RemoteProtocolError, match="twice"):
        results.to_legacy("tools/call", said, client=client, server=V5)
    assert plain.to_legacy("tools/call", said, client) is None


@pytest.mark.parametrize("params", [b"{}", b'{"name":"t"}', b'{"name":"t","arguments":{"a":[1, 2]}}'])
def test_an_envelope_is_put_on(params: bytes) -> None:
    spans = compact_members(params)
    assert spans is not None
    meta = request_meta.add(None, SENDER)[len(b'{"_meta":') : -1]
    assert plain.with_envelope(params, spans, meta) == request_meta.add(params, SENDER)


@pytest.mark.parametrize("rest", [b"", b'"a":1'], ids=["alone", "not alone"])
@pytest.mark.parametrize("others", [(), ("before",), ("after",), ("before", "after")], ids="-".join)
def test_an_envelope_is_taken_off(others: tuple[str, ...], rest: bytes) -> None:
    """Wherever it stands; what else is in `_meta` stays."""
    meta = request_meta.add(None, SENDER)[len(b'{"_meta":') : -1]
    meta = meta[:-1] + b"," + rest + b"}" if rest else meta
    members = [b'"name":"t"'] * ("before" in others) + [b'"_meta":' + meta] + [b'"b":{}'] * ("after" in others)
    params = b"{" + b",".join(members) + b"}"
    spans = compact_members(params)
    assert spans is not None
    kept = b"{" + rest + b"}" if rest else b""
    assert plain.without_envelope(params, spans, kept) == request_meta.strip(params)
