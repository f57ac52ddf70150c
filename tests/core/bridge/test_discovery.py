"""Discovery across the eras: `initialize` answered from a discovery, and the reverse."""

from __future__ import annotations

import json
from typing import Any

import mcp.types
import pytest
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.base.errors import INTERNAL_ERROR, RemoteProtocolError
from isthmus.core.base.revisions import LEGACY, MODERN
from isthmus.core.bridge import discovery
from isthmus.core.bridge.discovery import SERVER_INFO
from isthmus.core.bridge.request_meta import RequestMeta

DISCOVERED: dict[str, Any] = {
    "resultType": "complete",
    "supportedVersions": ["2026-07-28", "2031-01-01"],
    "capabilities": {"tools": {"listChanged": True}, "completions": {}},
    "instructions": "Ask.",
    "ttlMs": 5,
    "cacheScope": "public",
    "_meta": {SERVER_INFO: {"name": "s", "version": "2", "title": "S"}, "com.example/x": 1},
}
INITIALIZED: dict[str, Any] = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {"listChanged": True}, "completions": {}},
    "serverInfo": {"name": "s", "version": "2", "title": "S"},
    "instructions": "Ask.",
    "_meta": {"com.example/x": 1},
}


def without(value: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: below for name, below in value.items() if name not in names}


def initialized(discovered: dict[str, Any], revision: str = "2025-06-18") -> dict[str, Any]:
    raw = discovery.to_initialize_result(json.dumps(discovered).encode(), client=LEGACY[revision], name="here")
    mcp.types.InitializeResult.model_validate_json(raw)
    value = json.loads(raw)
    assert isinstance(value, dict)
    return value


def discovered(result: dict[str, Any], *, has_push: bool = True) -> dict[str, Any]:
    value = json.loads(discovery.to_discover_result(json.dumps(result).encode(), has_push=has_push))
    assert isinstance(value, dict)
    return value


@pytest.mark.parametrize("revision", LEGACY)
def test_a_handshake_is_answered_in_the_clients_revision(revision: str) -> None:
    """The result has no member that only a discovery has."""
    answer = initialized(DISCOVERED, revision)
    expected = INITIALIZED | {"protocolVersion": revision}
    if revision == "2024-11-05":
        expected["capabilities"] = {"tools": {"listChanged": True}}
    assert answer == expected


def test_a_discovery_names_modern_revisions_only() -> None:
    """A client may put any listed date into `_meta`, so no older one is listed."""
    answer = discovered(INITIALIZED)
    assert answer == DISCOVERED | {"supportedVersions": list(MODERN), "ttlMs": 0, "cacheScope": "private"}


@pytest.mark.parametrize("revision", ["2025-03-26", "2025-06-18", "2025-11-25"])
@given(
    names=st.sets(st.sampled_from(["tools", "prompts", "resources", "logging", "completions", "experimental"])),
    instructions=st.none() | st.text(),
)
def test_a_round_trip_changes_nothing(revision: str, names: set[str], instructions: str | None) -> None:
    """initialize → discover → initialize is the identity on what both eras can express."""
    result = INITIALIZED | {"protocolVersion": revision, "capabilities": {name: {} for name in sorted(names)}}
    result = without(result, "instructions") | ({} if instructions is None else {"instructions": instructions})
    assert initialized(discovered(result), revision) == result


@pytest.mark.parametrize(
    "info, answer",
    [
        (None, {"name": "here", "version": "0"}),
        ("s", {"name": "here", "version": "0"}),
        ({"version": "1"}, {"name": "here", "version": "0"}),
        ({"name": "s", "title": "S"}, {"name": "s", "title": "S", "version": "0"}),
        ({"name": "s", "version": 1}, {"name": "s", "version": "0"}),
    ],
    ids=["none", "text", "no-name", "no-version", "number"],
)
def test_an_anonymous_server_gets_a_name(info: Any, answer: Any) -> None:
    """A handshake names the server, and a stateless server need not name itself."""
    assert initialized(DISCOVERED | {"_meta": {SERVER_INFO: info}})["serverInfo"] == answer
    assert "_meta" not in discovered(without(INITIALIZED, "_meta") | {"serverInfo": {"name": 1}})


@pytest.mark.parametrize("instructions", [None, 1, ["x"]], ids=json.dumps)
def test_instructions_are_text_or_absent(instructions: Any) -> None:
    assert "instructions" not in initialized(DISCOVERED | {"instructions": instructions})
    assert "instructions" not in discovered(INITIALIZED | {"instructions": instructions})


def test_without_a_channel_no_push_is_declared() -> None:
    assert discovered(INITIALIZED, has_push=False)["capabilities"] == {"tools": {}, "completions": {}}


def test_unread_members_stay_byte_for_byte() -> None:
    raw = b'{"supportedVersions":[],"capabilities":{},"com.example/n":1.0e2,"instructions":"\\u0041\\/"}'
    answer = discovery.to_initialize_result(raw, client=LEGACY["2025-06-18"], name="here")
    assert answer.endswith(b'"com.example/n":1.0e2,"instructions":"\\u0041\\/"}')


@pytest.mark.parametrize("revision", LEGACY)
@pytest.mark.parametrize("info", [None, b'{"name": "c","version":"1","icons":[]}'], ids=["anonymous", "named"])
def test_a_modern_client_is_introduced_as_itself(revision: str, info: bytes | None) -> None:
    """The handshake made for a stateless client has its projected capabilities, and its name or ours."""
    envelope = RequestMeta("2026-07-28", b'{"elicitation":{"url":{}},"roots":{}}', info)
    raw = discovery.initialize_params(envelope, server=LEGACY[revision], name="isthmus", version="7")
    mcp.types.InitializeRequestParams.model_validate_json(raw)
    answer = json.loads(raw)
    assert answer["protocolVersion"] == revision
    assert answer["clientInfo"] == (json.loads(info) if info else {"name": "isthmus", "version": "7"})
    assert ("elicitation" in answer["capabilities"]) == (revision == "2025-11-25")


@pytest.mark.parametrize(
    "result",
    [
        [],
        {},
        without(DISCOVERED, "capabilities"),
        DISCOVERED | {"capabilities": []},
        without(DISCOVERED, "supportedVersions"),
        DISCOVERED | {"supportedVersions": "2026-07-28"},
        DISCOVERED | {"supportedVersions": ["2026-07-28", 1]},
    ],
    ids=["array", "empty", "incapable", "list", "silent", "text", "number"],
)
def test_a_result_that_is_no_discovery_is_no_stateless_server(result: Any) -> None:
    """Servers answer {} to unknown methods, which names no revisions."""
    raw = json.dumps(result).encode()
    with pytest.raises(RemoteProtocolError) as caught:
        discovery.served_revisions(raw)
    assert caught.value.rpc_code == INTERNAL_ERROR
    with pytest.raises(RemoteProtocolError):
        discovery.to_initialize_result(raw, client=LEGACY["2025-06-18"], name="here")


def test_the_revisions_served_are_listed_in_order() -> None:
    assert discovery.served_revisions(json.dumps(DISCOVERED).encode()) == ("2026-07-28", "2031-01-01")


@pytest.mark.parametrize("result", [b"[]", b"{}", b'{"capabilities":null}'], ids=repr)
def test_a_malformed_initialize_result_makes_no_discovery(result: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="initialize"):
        discovery.to_discover_result(result, has_push=True)


@pytest.mark.parametrize(
    "error, supported",
    [
        (b'{"code":-32022,"message":"","data":{"supported":["2026-07-28","x"],"requested":"y"}}', ("2026-07-28", "x")),
        (b'{"code":-32022.0,"data":{"supported":[]}}', ()),
        (b'{"code":-32021,"data":{"supported":["x"]}}', None),
        (b'{"code":-320220,"data":{"supported":["x"]}}', None),
        (b'{"code":-32022,"data":{"supported":["x",1]}}', None),
        (b'{"code":-32022,"data":{"supported":"x"}}', None),
        (b'{"code":-32022,"data":["x"]}', None),
        (b'{"code":-32022}', None),
        (b'{"code":-32022,"code":-32022,"data":{"supported":["x"]}}', None),
        (b"1", None),
    ],
    ids=["two", "none", "other", "longer", "mixed", "text", "array", "bare", "twice", "number"],
)
def test_only_a_whole_refusal_names_revisions(error: bytes, supported: tuple[str, ...] | None) -> None:
    assert discovery.refused_revisions(error) == supported


@pytest.mark.parametrize(
    ("discovered", "info"),
    [
        (b'{"_meta":{"%b":{"name":"s", "version":"1"}}}' % SERVER_INFO.encode(), b'{"name":"s", "version":"1"}'),
        (b'{"_meta":{"%b":{},"%b":{}}}' % (SERVER_INFO.encode(), SERVER_INFO.encode()), None),
        (b'{"_meta":{},"_meta":{}}', None),
        (b'{"_meta":{}}', None),
        (b'{"_meta":[]}', None),
        (b"{}", None),
        (None, None),
    ],
)
def test_a_server_is_named_where_it_can_be_read(discovered: bytes | None, info: bytes | None) -> None:
    """A server that names itself twice has no name, since two readers could believe different ones."""
    assert discovery.server_info_of(discovered) == info
