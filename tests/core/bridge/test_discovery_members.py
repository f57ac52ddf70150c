"""Discovery and initialization, member by member, and the refusals of malformed ones."""

from __future__ import annotations

import json
from typing import Any

import pytest
from isthmus.core.base.errors import INTERNAL_ERROR, RemoteProtocolError
from isthmus.core.base.revisions import features_of
from isthmus.core.bridge.discovery import (
    initialize_params,
    introduction,
    refused_revisions,
    served_revisions,
    server_info_of,
    to_discover_result,
    to_initialize_result,
)
from isthmus.core.bridge.request_meta import RequestMeta

OLD = features_of("2025-11-25")
INFO = "io.modelcontextprotocol/serverInfo"
NAMED = {"name": "s", "version": "1"}
DISCOVERED: dict[str, Any] = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
INITIALIZED: dict[str, Any] = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}
MODERN = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", "supportedVersions": ["2026-07-28"]}


def packed(value: Any) -> bytes:
    return json.dumps(value).encode()


def initialized(discovered: Any, revision: str = "2025-11-25") -> Any:
    return json.loads(to_initialize_result(packed(discovered), client=features_of(revision), name="given"))


def discovered(initialize: Any) -> Any:
    return json.loads(to_discover_result(packed(initialize), has_push=True))


@pytest.mark.parametrize(
    ("result", "seen"),
    [
        ([], "no object"),
        (5, "no object"),
        ({"capabilities": {}}, "no list of supportedVersions"),
        ({"supportedVersions": "x", "capabilities": {}}, "no list of supportedVersions"),
        ({"supportedVersions": ["x", 5], "capabilities": {}}, "no list of supportedVersions"),
        ({"supportedVersions": []}, "no capabilities"),
        ({"supportedVersions": [], "capabilities": None}, "no capabilities"),
        ({"supportedVersions": [], "capabilities": []}, "no capabilities"),
    ],
)
def test_a_malformed_discovery_is_refused(result: Any, seen: str) -> None:
    for reader in (served_revisions, lambda raw: to_initialize_result(raw, client=OLD, name="n")):
        with pytest.raises(RemoteProtocolError) as caught:
            reader(packed(result))
        text = f"got a result of server/discover with {seen}, expected what the server supports"
        assert (caught.value.message, caught.value.rpc_code) == (text, INTERNAL_ERROR)


@pytest.mark.parametrize(
    ("result", "seen"), [([], "no object"), ({}, "no capabilities"), ({"capabilities": 5}, "no capabilities")]
)
def test_a_malformed_initialize_result_is_refused(result: Any, seen: str) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        to_discover_result(packed(result), has_push=True)
    text = f"got a result of initialize with {seen}, expected what the server supports"
    assert (caught.value.message, caught.value.rpc_code) == (text, INTERNAL_ERROR)


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
def test_an_initialize_result_made_of_a_discovery(revision: str) -> None:
    """The result has the client's revision, the capabilities, a name and all other members, except for those of the
    stateless era."""
    expected = {"protocolVersion": revision, "capabilities": {"tools": {}}, "serverInfo": NAMED, "x": 1}
    given = {**DISCOVERED, **MODERN, "x": 1, "_meta": {INFO: NAMED}}
    assert initialized(given, revision) == expected
    assert initialized({**given, "_meta": {INFO: NAMED, "y": 2}}, revision) == {**expected, "_meta": {"y": 2}}
    assert initialized({**given, "instructions": "i"}, revision) == {**expected, "instructions": "i"}
    assert initialized({**given, "protocolVersion": "z", "serverInfo": 5}, revision) == expected


@pytest.mark.parametrize(
    ("info", "named"),
    [
        (None, {"name": "given", "version": "0"}),
        ({}, {"name": "given", "version": "0"}),
        ({"name": 5}, {"name": "given", "version": "0"}),
        ({"version": "1"}, {"name": "given", "version": "0"}),
        ({"name": "s"}, {"name": "s", "version": "0"}),
        ({"name": "s", "version": 1, "x": 1}, {"name": "s", "version": "0", "x": 1}),
        ({"name": "s", "version": "1", "x": 1}, {"name": "s", "version": "1", "x": 1}),
    ],
)
def test_a_handshake_gives_every_server_a_name_and_a_version(info: Any, named: Any) -> None:
    given = DISCOVERED | ({} if info is None else {"_meta": {INFO: info}})
    assert initialized(given)["serverInfo"] == named


def test_a_discovery_made_of_an_initialize_result() -> None:
    """The discovery has the members that the stateless era requires, the capabilities and the name in `_meta`, and none
    that only handshakes have."""
    expected = {**MODERN, "capabilities": {"tools": {}}, "x": 1}
    given = {**INITIALIZED, "x": 1}
    assert discovered(given) == expected
    named = {**expected, "_meta": {INFO: NAMED}}
    assert discovered({**given, "serverInfo": NAMED}) == named
    assert discovered({**given, "serverInfo": {"name": "s"}}) == expected, "half a name is none"
    assert discovered({**given, "serverInfo": NAMED, "_meta": {"y": 2}}) == {**named, "_meta": {"y": 2, INFO: NAMED}}
    assert discovered({**given, "resultType": "z", "ttlMs": 5, "cacheScope": "z", "supportedVersions": 5}) == expected
    assert discovered({**given, "instructions": None}) == expected
    assert discovered({**given, "instructions": "i"}) == {**expected, "instructions": "i"}
    assert discovered({**given, "_meta": 5}) == expected


@pytest.mark.parametrize("info", [None, {"name": "c", "version": "2"}])
def test_the_handshake_made_for_a_stateless_client(info: Any) -> None:
    envelope = RequestMeta("2026-07-28", b'{"roots":{}}', None if info is None else packed(info))
    found = json.loads(initialize_params(envelope, server=OLD, name="isthmus", version="9"))
    expected = {"name": "isthmus", "version": "9"} if info is None else info
    assert found == {"protocolVersion": "2025-11-25", "capabilities": {"roots": {}}, "clientInfo": expected}


@pytest.mark.parametrize(
    ("params", "envelope"),
    [
        ({}, RequestMeta("", b"{}")),
        ({"protocolVersion": 5, "capabilities": 5, "clientInfo": 5}, RequestMeta("", b"{}")),
        ({"protocolVersion": "2025-11-25", "capabilities": {"roots": {}}}, RequestMeta("2025-11-25", b'{"roots":{}}')),
        ({"clientInfo": {"name": "c"}}, RequestMeta("", b"{}")),
        (
            {"clientInfo": {"name": "c", "version": "1"}},
            RequestMeta("", b"{}", b'{"name":"c","version":"1"}'),
        ),
    ],
)
def test_the_envelope_made_of_a_handshake(params: Any, envelope: RequestMeta) -> None:
    found = introduction(json.dumps(params, separators=(",", ":")).encode())
    assert found == envelope


@pytest.mark.parametrize(
    ("error", "revisions"),
    [
        ({"code": -32022, "data": {"supported": ["a", "b"]}}, ("a", "b")),
        ({"code": -32022.0, "data": {"supported": []}}, ()),
        ({"code": -32022, "data": {"supported": ["a", 5]}}, None),
        ({"code": -32022, "data": {"supported": "a"}}, None),
        ({"code": -32022, "data": {}}, None),
        ({"code": -32022}, None),
        ({"code": -32023, "data": {"supported": ["a"]}}, None),
        ({"code": "-32022", "data": {"supported": ["a"]}}, None),
        ({"data": {"supported": ["a"]}}, None),
    ],
)
def test_the_revisions_that_a_refusal_names(error: Any, revisions: tuple[str, ...] | None) -> None:
    assert refused_revisions(packed(error)) == revisions


def test_the_name_of_a_server_is_read_from_its_meta() -> None:
    assert server_info_of(packed({"_meta": {INFO: {"name": "s"}}})) == b'{"name": "s"}'
    for other in (None, b"{}", b'{"_meta":{}}', b'{"_meta":{"serverInfo":1}}', b'{"_meta":{},"_meta":{}}'):
        assert server_info_of(other) is None
