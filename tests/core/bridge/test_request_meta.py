"""The envelope of a stateless request: added members can be read and removed, and all other bytes stay."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.base.errors import INVALID_PARAMS, RemoteProtocolError
from isthmus.core.base.log_levels import LEVELS
from isthmus.core.bridge import request_meta
from isthmus.core.bridge.request_meta import CAPABILITIES, CLIENT_INFO, KEYS, LOG_LEVEL, PREFIX, REVISION, RequestMeta

SPACES = st.sampled_from(["", " ", "\n\t"])
VALUES = st.sampled_from(["1", "1.0", '"a\\/b"', '{ "x" : [] }', "null", '"\\ud800"', "[]"])
NAMES = st.sampled_from(["a", "b\\u0031", "progressToken", "traceparent", "Io.modelcontextprotocol/protocolVersion"])
NAMES |= st.sampled_from([f"{PREFIX}protocolVersion ", f"{PREFIX}subscriptionId", "com.example/clientInfo"])


@st.composite
def objects(draw: st.DrawFn, names: st.SearchStrategy[str], values: st.SearchStrategy[str]) -> str:
    """A strategy of JSON objects with white space wherever it may be."""
    members = [
        f'{draw(SPACES)}"{name}"{draw(SPACES)}:{draw(SPACES)}{draw(values)}{draw(SPACES)}'
        for name in draw(st.lists(names, max_size=3, unique=True))
    ]
    return "{" + (",".join(members) or draw(SPACES)) + "}"


@st.composite
def plain_params(draw: st.DrawFn) -> bytes:
    """Draws params without an envelope, and without an empty `_meta`, which leaves no trace."""
    text = draw(objects(NAMES, VALUES))
    meta = draw(st.none() | objects(NAMES, VALUES).filter(lambda meta: json.loads(meta) != {}))
    if meta is not None:
        comma = "," if json.loads(text) else ""
        text = f'{{{draw(SPACES)}"_meta":{meta}{comma}{text[1:]}'
    return text.encode()


@st.composite
def envelopes(draw: st.DrawFn) -> RequestMeta:
    return RequestMeta(
        revision=draw(st.sampled_from(["2026-07-28", "2030-01-01", "ü"])),
        capabilities=draw(st.sampled_from([b"{}", b'{"roots": {}}', b'{"elicitation":{"form":{}}}'])),
        client_info=draw(st.sampled_from([None, b'{"name":"c","version":"1"}'])),
        log_level=draw(st.none() | st.sampled_from(LEVELS)),
    )


@given(params=plain_params(), added=envelopes())
def test_removing_the_envelope_undoes_adding_it(params: bytes, added: RequestMeta) -> None:
    """strip(add(p, e)) is p, byte for byte, for every p without an envelope."""
    assert request_meta.strip(request_meta.add(params, added)) == params


@given(params=st.none() | plain_params(), first=envelopes(), second=envelopes())
def test_an_added_envelope_is_read(params: bytes | None, first: RequestMeta, second: RequestMeta) -> None:
    """An envelope replaces every key of the one before it, and is found whole."""
    twice = request_meta.add(request_meta.add(params, first), second)
    assert request_meta.read(twice) == second
    assert request_meta.revision_of(twice) == second.revision


@given(params=plain_params(), added=envelopes())
def test_no_key_of_the_envelope_reaches_a_handshake_server(params: bytes, added: RequestMeta) -> None:
    """No message to a handshake peer carries one of the four keys; all other members are still there."""
    stripped = request_meta.strip_retry(request_meta.add(params, added))
    assert stripped is not None
    before, after = json.loads(params), json.loads(stripped)
    assert not KEYS & after.get("_meta", {}).keys()
    assert after == before


@pytest.mark.parametrize("params", [None, b"{}", b"[1]", b'{"_meta":{}}', b'{"_meta":null}', b'{"_meta":[]}'])
def test_params_without_an_envelope_are_left_alone(params: bytes | None) -> None:
    assert request_meta.strip(params) is params
    assert request_meta.revision_of(params) is None


def test_params_that_held_an_envelope_only_stay_an_object() -> None:
    added = request_meta.add(None, RequestMeta("2026-07-28", b"{}"))
    assert request_meta.strip(added) == b"{}"


def test_a_retry_loses_its_continuation() -> None:
    """The server gets the params without the envelope, inputResponses, requestState and task; deeper members of these
    names are its own."""
    params = b'{"task":{"ttl":1}, "name":"t","arguments":{"task": 1,"requestState":2},"inputResponses":{},'
    params = request_meta.add(params + b'"requestState":"s"}', RequestMeta("2026-07-28", b"{}"))
    assert request_meta.strip_retry(params) == b'{"name":"t","arguments":{"task": 1,"requestState":2}}'


@pytest.mark.parametrize(
    "key",
    [
        "io.modelcontextprotocol/protocolVersion",
        "io.modelcontextprotocol\\/protocolVersion",
        "\\u0069o.modelcontextprotocol/protocolVersion",
        "io.\\u006dodelcontextprotocol\\u002fprotocolVersion",
    ],
)
@pytest.mark.parametrize("meta", ["_meta", "\\u005fmeta"])
def test_a_key_counts_however_it_is_spelled(key: str, meta: str) -> None:
    params = f'{{"{meta}":{{"{key}":"2026-07-28"}},"a":1}}'.encode()
    assert request_meta.revision_of(params) == "2026-07-28"
    assert request_meta.strip(params) == b'{"a":1}'


@pytest.mark.parametrize("key", [REVISION.upper(), REVISION + " ", " " + REVISION, REVISION + "s"])
def test_a_similar_key_is_no_key_of_the_envelope(key: str) -> None:
    """Keys are compared exactly."""
    params = json.dumps({"_meta": {key: "2026-07-28"}}).encode()
    assert request_meta.revision_of(params) is None
    assert request_meta.strip(params) == params


@pytest.mark.parametrize("value", [b"1", b"null", b"{}", b'["2026-07-28"]', b'"\\ud800"'], ids=repr)
def test_a_revision_that_is_no_text_is_a_stateless_request(value: bytes) -> None:
    params = b'{"_meta":{"%b":%b}}' % (REVISION.encode(), value)
    assert request_meta.revision_of(params) == ""
    with pytest.raises(RemoteProtocolError, match=f"{REVISION} "):
        request_meta.read(params)


@pytest.mark.parametrize("params", [None, b"{}", b"[]", b'{"_meta":1}', b'{"_meta":{}}'])
def test_every_required_key_that_is_missing_is_named(params: bytes | None) -> None:
    """A request without a required field is refused with -32602, and 400 on HTTP. Source: 2026-07-28 basic."""
    with pytest.raises(RemoteProtocolError, match=f"no {REVISION} and no {CAPABILITIES} in") as caught:
        request_meta.read(params)
    assert (caught.value.rpc_code, caught.value.http_status) == (INVALID_PARAMS, 400)


GOOD: dict[str, object] = {REVISION: "2026-07-28", CAPABILITIES: {}, CLIENT_INFO: None, LOG_LEVEL: None}


def nested(levels: int) -> object:
    return {} if levels == 1 else {"x": nested(levels - 1)}


@pytest.mark.parametrize(
    "key, value",
    [
        (CAPABILITIES, []),
        (CAPABILITIES, nested(33)),
        (CAPABILITIES, {"experimental": {"x": "y" * 64 * 1024}}),
        (CLIENT_INFO, "me"),
        (CLIENT_INFO, {"name": "me"}),
        (CLIENT_INFO, {"name": 1, "version": "1"}),
        (LOG_LEVEL, "loud"),
        (LOG_LEVEL, 3),
    ],
    ids=["list", "deep", "large", "text", "no-version", "no-name", "no-level", "number"],
)
def test_a_malformed_key_is_refused_by_name(key: str, value: object) -> None:
    assert request_meta.read(json.dumps({"_meta": GOOD}).encode()) == RequestMeta("2026-07-28", b"{}")
    with pytest.raises(RemoteProtocolError, match=f"got a malformed {key} in _meta") as caught:
        request_meta.read(json.dumps({"_meta": GOOD | {key: value}}).encode())
    assert caught.value.rpc_code == INVALID_PARAMS


def test_capabilities_at_the_limit_are_read() -> None:
    """Capabilities have up to 32 levels; brackets in strings do not count."""
    deep = {"x": nested(31), "y": '\\"[{' * 99}
    assert request_meta.read(json.dumps({"_meta": GOOD | {CAPABILITIES: deep}}).encode()).capabilities[:1] == b"{"


def test_a_member_that_is_checked_may_not_occur_twice() -> None:
    twice = b'{"_meta":{"%b":"2026-07-28","%b":"2025-11-25"}}' % (REVISION.encode(), REVISION.encode())
    for reader in (request_meta.revision_of, request_meta.read, request_meta.strip):
        with pytest.raises(RemoteProtocolError, match="twice"):
            reader(twice)
