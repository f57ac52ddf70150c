"""The members that a result has in one era only, by name, and the revisions that added content."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from each_row import each_row
from isthmus.core.base.errors import INTERNAL_ERROR, RemoteProtocolError
from isthmus.core.base.revisions import features_of
from isthmus.core.bridge.results import (
    CACHEABLE,
    is_older,
    meta_to_legacy,
    named,
    to_legacy,
    to_modern,
    wrapped_tools,
)

REVISIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"]
NEW, OLD = features_of("2026-07-28"), features_of("2025-11-25")
LISTS = ["server/discover", "tools/list", "prompts/list", "resources/list", "resources/templates/list"]
OF_NO_SESSION = ["serverInfo", "subscriptionId", "protocolVersion", "clientInfo", "clientCapabilities", "logLevel"]
PREFIX = "io.modelcontextprotocol/"
INFO = b'{"name":"s","version":"1"}'


def modern(method: str, result: Any, info: bytes | None = None) -> Any:
    return json.loads(to_modern(method, json.dumps(result).encode(), server_info=info))


def legacy(method: str, result: Any) -> Any:
    return json.loads(to_legacy(method, json.dumps(result).encode(), client=OLD, server=NEW))


@each_row(("client", "server"), [*itertools.product(REVISIONS, REVISIONS)])
def test_servers_whose_results_may_be_unknown_to_a_client(client: str, server: str) -> None:
    """Three revisions added content and structure; 2025-11-25 added none."""
    changes = {"2025-03-26", "2025-06-18", "2026-07-28"}
    expected = any(client < revision <= server for revision in changes)
    assert is_older(features_of(client), features_of(server)) is expected


def test_the_results_that_can_be_cached() -> None:
    """Source: 2026-07-28 server/utilities/caching."""
    assert {*LISTS, "resources/read"} == CACHEABLE


@pytest.mark.parametrize("method", [*sorted(CACHEABLE), "tools/call", "prompts/get", "acme/own"])
def test_stateless_members_are_added_and_removed_again(method: str) -> None:
    needed = {"resultType": "complete"}
    if method in CACHEABLE:
        needed |= {"ttlMs": 0, "cacheScope": "private"}
    bare: dict[str, Any] = {"x": 1} | ({"content": []} if method == "tools/call" else {})
    assert modern(method, bare) == bare | needed
    assert legacy(method, bare | needed) == bare
    kept = {"ttlMs": 5, "cacheScope": "public"}
    assert legacy(method, {**bare, **kept}) == (bare if method in CACHEABLE else {**bare, **kept})


@pytest.mark.parametrize(
    ("name", "value", "is_usable"),
    [
        ("resultType", "complete", True),
        ("resultType", "other", False),
        ("resultType", None, False),
        ("ttlMs", 0, True),
        ("ttlMs", 10, True),
        ("ttlMs", 1.0, True),
        ("ttlMs", 1.5, False),
        ("ttlMs", -1, False),
        ("ttlMs", "1", False),
        ("cacheScope", "private", True),
        ("cacheScope", "public", True),
        ("cacheScope", "all", False),
        ("cacheScope", None, False),
    ],
)
def test_a_legacy_servers_own_members_are_kept_or_shadowed(name: str, value: Any, is_usable: bool) -> None:
    needed = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    found = modern("tools/list", {name: value})
    if is_usable:
        assert found == needed | {name: value}
    else:
        assert found == {**needed, "_meta": {"dev.isthmus/shadowed": {name: value}}}


@pytest.mark.parametrize("member", OF_NO_SESSION)
def test_stateless_members_of_meta_are_removed(member: str) -> None:
    """A `_meta` that held nothing else goes with them; one that was empty before stays."""
    name = PREFIX + member
    for near in (name.upper(), name + "Q", member):
        assert meta_to_legacy(json.dumps({near: 1}).encode()) == json.dumps({near: 1}).encode()
    assert meta_to_legacy(json.dumps({name: 1}).encode()) is None
    assert json.loads(meta_to_legacy(json.dumps({"x": 1, name: {}}).encode()) or b"") == {"x": 1}
    assert legacy("tools/call", {"content": [], "_meta": {name: 1}}) == {"content": []}
    assert legacy("tools/call", {"content": [], "_meta": {name: 1, "x": 1}}) == {"content": [], "_meta": {"x": 1}}


@pytest.mark.parametrize("raw", [b"{}", b'{ "x":1 }', b"null", b"5", b"[]"])
def test_other_meta_is_left_alone(raw: bytes) -> None:
    assert meta_to_legacy(raw) == raw
    assert legacy("tools/call", {"content": [], "_meta": json.loads(raw)})["_meta"] == json.loads(raw)


def test_all_envelope_members_are_removed_together() -> None:
    meta = {PREFIX + member: 1 for member in OF_NO_SESSION}
    assert meta_to_legacy(json.dumps(meta).encode()) is None
    assert json.loads(meta_to_legacy(json.dumps({**meta, "x": 1}).encode()) or b"") == {"x": 1}


@pytest.mark.parametrize(
    ("meta", "info", "expected"),
    [
        ("absent", None, "absent"),
        ("absent", INFO, {PREFIX + "serverInfo": json.loads(INFO)}),
        (None, None, "absent"),
        ({}, None, {}),
        ({"x": 1}, INFO, {"x": 1, PREFIX + "serverInfo": json.loads(INFO)}),
        ({PREFIX + "serverInfo": 5}, INFO, {PREFIX + "serverInfo": 5}),
        ({PREFIX + "related-task": {}}, None, "absent"),
        ({PREFIX + "related-task": {}, "x": 1}, None, {"x": 1}),
        (5, None, {"dev.isthmus/shadowed": {"_meta": 5}}),
        ([], INFO, {PREFIX + "serverInfo": json.loads(INFO), "dev.isthmus/shadowed": {"_meta": []}}),
    ],
)
def test_the_meta_of_a_legacy_result(meta: Any, info: bytes | None, expected: Any) -> None:
    """The related task is removed; the server is named unless it has named itself."""
    result = {"x": 1} | ({} if meta == "absent" else {"_meta": meta})
    found = modern("acme/own", result, info)
    assert found.pop("_meta", "absent") == expected
    assert found == {"x": 1, "resultType": "complete"}


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ({}, {"content": []}),
        ({"content": None}, {"content": []}),
        ({"content": [], "structuredContent": None}, {"content": []}),
        ({"content": [], "structuredContent": {}}, {"content": [], "structuredContent": {}}),
    ],
)
def test_null_members_of_legacy_servers_are_absent(result: Any, expected: Any) -> None:
    assert modern("tools/call", result) == {**expected, "resultType": "complete"}


def test_task_support_is_not_listed() -> None:
    tools = [{"name": "a", "execution": {"taskSupport": "optional"}, "x": 1}, {"name": "b"}, 5]
    assert modern("tools/list", {"tools": tools})["tools"] == [{"name": "a", "x": 1}, {"name": "b"}, 5]
    assert modern("acme/list", {"tools": tools})["tools"] == tools


@pytest.mark.parametrize("kind", ["input_required", 5, None, "completeQ"])
def test_only_a_complete_result_can_be_translated(kind: Any) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        legacy("tools/call", {"content": [], "resultType": kind})
    assert caught.value.message == f'got a result of type {json.dumps(kind)}, expected "complete"'
    assert caught.value.rpc_code == INTERNAL_ERROR
    assert caught.value.clause == '2026-07-28 basic, "ResultType"'


def test_a_result_of_our_own_names_its_server() -> None:
    assert named(b'{ "x":1 }', None) == b'{ "x":1 }'
    assert json.loads(named(b'{"x":1}', INFO)) == {"x": 1, "_meta": {PREFIX + "serverInfo": json.loads(INFO)}}
    found = json.loads(named(json.dumps({"_meta": {PREFIX + "serverInfo": 1, "y": 2}}).encode(), INFO))
    assert found == {"_meta": {PREFIX + "serverInfo": json.loads(INFO), "y": 2}}


def test_the_tools_that_are_wrapped() -> None:
    """A tool is wrapped if it has a name and a schema that allows more than objects."""
    whole, part = {"type": "object"}, {"type": "array"}
    tools = [
        {"name": "a", "outputSchema": whole},
        {"name": "b", "outputSchema": part},
        {"outputSchema": part},
        {"name": 5, "outputSchema": part},
        {"name": "c"},
        {"name": "d", "outputSchema": {"type": "string"}},
    ]
    assert wrapped_tools(json.dumps({"tools": tools}).encode()) == {"b", "d"}
    assert wrapped_tools(b"{}") == frozenset()
