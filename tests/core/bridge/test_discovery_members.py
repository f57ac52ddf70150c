"""What a discovery and an initialization say to one another, member by member, and what is said of one that is none."""

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
from isthmus.core.bridge.request_meta import Envelope

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
def test_what_is_no_discovery_is_said_to_be_none(result: Any, seen: str) -> None:
    for reader in (served_revisions, lambda raw: to_initialize_result(raw, client=OLD, name="n")):
        with pytest.raises(RemoteProtocolError) as caught:
            reader(packed(result))
        text = f"got a result of server/discover with {seen}, expected what the server supports"
        assert (caught.value.message, caught.value.rpc_code) == (text, INTERNAL_ERROR)


@pytest.mark.parametrize(
    ("result", "seen"), [([], "no object"), ({}, "no capabilities"), ({"capabilities": 5}, "no capabilities")]
)
def test_what_is_no_initialization_is_said_to_be_none(result: Any, seen: str) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        to_discover_result(packed(result), has_push=True)
    text = f"got a result of initialize with {seen}, expected what the server supports"
    assert (caught.value.message, caught.value.rpc_code) == (text, INTERNAL_ERROR)


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
def test_what_an_initialization_says_of_a_discovery(revision: str) -> None:
    """The client's revision, capabilities and a name; nothing that only the new era knows, and all else."""
    expected = {"protocolVersion": revision, "capabilities": {"tools": {}}, "serverInfo": NAMED, "x": 1}
    said = {**DISCOVERED, **MODERN, "x": 1, "_meta": {INFO: NAMED}}
    assert initialized(said, revision) == expected
    assert initialized({**said, "_meta": {INFO: NAMED, "y": 2}}, revision) == {**expected, "_meta": {"y": 2}}
    assert initialized({**said, "instructions": "i"}, revision) == {**expected, "instructions": "i"}
    assert initialized({**said, "protocolVersion": "z", "serverInfo": 5}, revision) == expected


@pytest.mark.parametrize(
    ("info", "told"),
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
def test_a_server_has_a_name_and_a_version_for_who_shakes_hands(info: Any, told: Any) -> None:
    said = DISCOVERED | ({} if info is None else {"_meta": {INFO: info}})
    assert initialized(said)["serverInfo"] == told


def test_what_a_discovery_says_of_an_initialization() -> None:
    """What the new era requires, capabilities, and its name in `_meta`; nothing that only the old one knows."""
    expected = {**MODERN, "capabilities": {"tools": {}}, "x": 1}
    said = {**INITIALIZED, "x": 1}
    assert discovered(said) == expected
    named = {**expected, "_meta": {INFO: NAMED}}
    assert discovered({**said, "serverInfo": NAMED}) == named
    assert discovered({**said, "serverInfo": {"name": "s"}}) == expected, "half a name is none"
    assert discovered({**said, "serverInfo": NAMED, "_meta": {"y": 2}}) == {**named, "_meta": {"y": 2, INFO: NAMED}}
    assert discovered({**said, "resultType": "z", "ttlMs": 5, "cacheScope": "z", "supportedVersions": 5}) == expected
    assert discovered({**said, "instructions": None}) == expected
    assert discovered({**said, "instructions": "i"}) == {**expected, "instructions": "i"}
    assert discovered({**said, "_meta": 5}) == expected


@pytest.mark.parametrize("info", [None, {"name": "c", "version": "2"}])
def test_how_a_client_without_a_handshake_is_introduced(info: Any) -> None:
    envelope = Envelope("2026-07-28", b'{"roots":{}}', None if info is None else packed(info))
    found = json.loads(initialize_params(envelope, server=OLD, version="9"))
    expected = {"name": "isthmus", "version": "9"} if info is None else info
    assert found == {"protocolVersion": "2025-11-25", "capabilities": {"roots": {}}, "clientInfo": expected}


@pytest.mark.parametrize(
    ("params", "envelope"),
    [
        ({}, Envelope("", b"{}")),
        ({"protocolVersion": 5, "capabilities": 5, "clientInfo": 5}, Envelope("", b"{}")),
        ({"protocolVersion": "2025-11-25", "capabilities": {"roots": {}}}, Envelope("2025-11-25", b'{"roots":{}}')),
        ({"clientInfo": {"name": "c"}}, Envelope("", b"{}")),
        (
            {"clientInfo": {"name": "c", "version": "1"}},
            Envelope("", b"{}", b'{"name":"c","version":"1"}'),
        ),
    ],
)
def test_what_a_handshake_tells_of_a_client(params: Any, envelope: Envelope) -> None:
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
def test_which_revisions_a_refusal_names(error: Any, revisions: tuple[str, ...] | None) -> None:
    assert refused_revisions(packed(error)) == revisions


def test_the_name_of_a_server_is_where_it_says_it() -> None:
    assert server_info_of(packed({"_meta": {INFO: {"name": "s"}}})) == b'{"name": "s"}'
    for other in (None, b"{}", b'{"_meta":{}}', b'{"_meta":{"serverInfo":1}}', b'{"_meta":{},"_meta":{}}'):
        assert server_info_of(other) is None
