"""The capabilities that cross, by name, and which members of each; their bounds, and their fingerprints."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from each_row import each_row
from isthmus.core.base.errors import INVALID_PARAMS, RemoteProtocolError
from isthmus.core.base.revisions import features_of
from isthmus.core.bridge.capabilities import (
    CAPABILITIES_DEPTH_MAX,
    CAPABILITIES_SIZE_MAX_BYTES,
    client_to_legacy,
    client_to_modern,
    depth_of,
    fingerprint,
    missing,
    server_to_legacy,
    server_to_modern,
)

LATEST = features_of("2025-11-25")
OF_CLIENTS = ["roots", "sampling", "elicitation", "experimental", "extensions"]
OF_SERVERS = ["tools", "prompts", "resources", "logging", "completions", "experimental", "extensions"]
STRANGE = ["tasks", "toolsQ", "rootsQ", "Roots", ""]
TASKS = "io.modelcontextprotocol/tasks"


def packed(value: Any) -> bytes:
    return json.dumps(value).encode()


@pytest.mark.parametrize("name", [*OF_CLIENTS, *OF_SERVERS, *STRANGE])
def test_a_capability_crosses_by_its_name(name: str) -> None:
    """Clients and servers have their own names. An object crosses with all its members; any other value is dropped."""
    declared, kept = packed({name: {"x": {"y": 1}}}), {name: {"x": {"y": 1}}}
    of_client = kept if name in OF_CLIENTS else {}
    of_server = kept if name in OF_SERVERS else {}
    shown = {"elicitation": {"x": {"y": 1}, "form": {}}} if name == "elicitation" else of_client
    assert json.loads(client_to_legacy(declared, LATEST)) == of_client
    assert json.loads(client_to_modern(declared)) == shown
    assert json.loads(server_to_legacy(declared, LATEST)) == of_server
    assert json.loads(server_to_modern(declared, server=LATEST, has_push=True)) == of_server
    for value in (None, True, 1, "x", []):
        raw = packed({name: value})
        assert client_to_legacy(raw, LATEST) == client_to_modern(raw) == b"{}"
        assert server_to_legacy(raw, LATEST) == server_to_modern(raw, server=LATEST, has_push=True) == b"{}"


def test_the_tasks_extension_does_not_cross() -> None:
    declared = packed({"extensions": {TASKS: {}, "a/b": {}}})
    kept = {"extensions": {"a/b": {}}}
    assert json.loads(client_to_legacy(declared, LATEST)) == json.loads(client_to_modern(declared)) == kept
    assert json.loads(server_to_legacy(declared, LATEST)) == kept
    assert json.loads(server_to_modern(declared, server=LATEST, has_push=True)) == kept


@pytest.mark.parametrize("name", OF_SERVERS)
@pytest.mark.parametrize("has_push", [True, False])
def test_notifications_are_declared_only_with_a_push(name: str, has_push: bool) -> None:
    """The rule holds for tools, prompts and resources; other capabilities keep members of these names."""
    members = {"listChanged": True, "subscribe": True, "x": 1}
    found = json.loads(server_to_modern(packed({name: members}), server=LATEST, has_push=has_push))
    assert found == {name: members if has_push or name not in ("tools", "prompts", "resources") else {"x": 1}}


@pytest.mark.parametrize("name", OF_CLIENTS)
def test_a_client_does_not_declare_changes_of_roots(name: str) -> None:
    members = {"listChanged": True, "subscribe": True, "form": {}, "x": 1}
    expected = {name: {"form": {}, "x": 1} if name == "roots" else members}
    assert json.loads(client_to_legacy(packed({name: members}), LATEST)) == expected
    assert json.loads(client_to_modern(packed({name: members}))) == expected


@each_row("revision", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
@each_row(
    ("elicitation", "forms", "is_form"),
    [
        ({}, {}, True),
        ({"form": {}}, {}, True),
        ({"form": None}, {}, True),
        ({"url": {}}, None, False),
        ({"form": {}, "url": {}}, {}, True),
        ({"form": None, "url": {}}, None, False),
        ({"form": {}, "x": 1}, {"x": 1}, True),
    ],
)
def test_the_modes_of_elicitation_by_revision(revision: str, elicitation: Any, forms: Any, is_form: bool) -> None:
    """Clients before 2025-06-18 have no elicitation, those before 2025-11-25 forms only, and later ones also pages. A
    bare object means forms."""
    declared = packed({"elicitation": elicitation})
    server = features_of(revision)
    if revision == "2025-11-25":
        expected = {"elicitation": elicitation}
    elif revision == "2025-06-18" and is_form:
        expected = {"elicitation": {key: value for key, value in forms.items() if key not in ("form", "url")}}
    else:
        expected = {}
    assert json.loads(client_to_legacy(declared, server)) == expected
    for mode, able in (("form", is_form), ("url", bool(elicitation.get("url") is not None))):
        params = packed({"mode": mode, "message": "m"})
        needed = packed({"elicitation": {mode: {}}}).replace(b" ", b"")
        assert missing(declared, "elicitation/create", params) == (None if able else needed)
    assert missing(declared, "elicitation/create", b"{}") == (None if is_form else b'{"elicitation":{"form":{}}}')


@pytest.mark.parametrize("able", [*itertools.product([None, "x", {}], [None, {}], [None, {}])])
def test_the_capability_of_a_server_request(able: tuple[Any, Any, Any]) -> None:
    roots, sampling, tools = able
    declared: dict[str, Any] = {"roots": roots}
    if sampling is not None:
        declared["sampling"] = {"tools": tools}
    raw = packed(declared)
    assert missing(raw, "roots/list", None) == (None if roots == {} else b'{"roots":{}}')
    plain, with_tools = b'{"messages":[],"maxTokens":1}', b'{"messages":[],"maxTokens":1,"tools":[]}'
    assert missing(raw, "sampling/createMessage", plain) == (None if sampling == {} else b'{"sampling":{}}')
    is_able = sampling == {} and tools == {}
    needed = None if is_able else b'{"sampling":{"tools":{}}}'
    assert missing(raw, "sampling/createMessage", with_tools) == needed
    assert missing(raw, "ping", None) is None


# --- Bounds, and equality by value ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "depth"),
    [
        (b"1", 0),
        (b"{}", 1),
        (b'{"a":[{}]}', 3),
        (b"[" * 32 + b"]" * 32, 32),
        (b"[" * 33 + b"]" * 33, 33),
        (b"[" * 40 + b"]" * 40, 40),
        (b"[" + b"[]," * 40 + b"1]", 2),
        (b"[" + b"{}," * 40 + b"[{}]]", 3),
        (b'["' + b"[" * 40 + b'"]', 1),
        (b'["\\"' + b"{" * 40 + b'"]', 1),
    ],
)
def test_the_depth_of_a_value(raw: bytes, depth: int) -> None:
    """The depth is exact where it may exceed the bound; other values are not looked at more closely."""
    if raw.count(b"[") + raw.count(b"{") <= CAPABILITIES_DEPTH_MAX:
        assert depth <= depth_of(raw) <= CAPABILITIES_DEPTH_MAX
    else:
        assert depth_of(raw) == depth


@pytest.mark.parametrize("off", [0, 1])
def test_the_bounds_themselves_are_accepted(off: int) -> None:
    assert (CAPABILITIES_SIZE_MAX_BYTES, CAPABILITIES_DEPTH_MAX) == (65536, 32)
    large = b'{"x":"%b"}' % (b"y" * (65536 - 8 + off))
    deep = b'{"x":' * (31 + off) + b"{}" + b"}" * (31 + off)
    for raw, text in (
        (large, "got capabilities of 65537 bytes, expected at most 65536"),
        (deep, "got capabilities of more than 32 levels, expected no more"),
    ):
        if not off:
            assert len(fingerprint(raw)) == 64
            continue
        with pytest.raises(RemoteProtocolError) as caught:
            fingerprint(raw)
        assert (caught.value.message, caught.value.rpc_code) == (text, INVALID_PARAMS)


@pytest.mark.parametrize(
    "raw", [b"[]", b"5", b"null", b'"x"', b"{", b"", b'{"a":NaN}', b'{"a":{"b":1,"b":1}}', b'{"a":1,"\\u0061":1}']
)
def test_capabilities_without_a_fingerprint(raw: bytes) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        fingerprint(raw)
    assert caught.value.rpc_code == INVALID_PARAMS


ALIKE = [
    [b'{"a":1}', b'{ "a" : 1.0 }', b'{"\\u0061":10e-1}', b'{"a":0.1e1}', b'{"a":1e0}', b'{"a":1E+0}'],
    [b'{"a":"1"}'],
    [b'{"a":-1}', b'{"a":-1.00}', b'{"a":-0.1e1}'],
    [b'{"a":0}', b'{"a":-0}', b'{"a":0.0}', b'{"a":0e9}', b'{"a":-0.00e-7}'],
    [b'{"a":10}', b'{"a":1e1}', b'{"a":100e-1}', b'{"a":0.010e3}'],
    [b'{"a":0.1}', b'{"a":1e-1}', b'{"a":0.10}', b'{"a":0.01e+1}'],
    [b'{"a":12}', b'{"a":1.2e1}', b'{"a":0.12e2}'],
    [b'{"a":120}'],
    [b'{"a":102}'],
    [b'{"a":1e400}', b'{"a":10e399}'],
    [b'{"a":1e401}'],
    [b'{"a":true}'],
    [b'{"a":"true"}'],
    [b'{"a":null}'],
    [b"{}"],
    [b'{"a":{}}'],
    [b'{"a":[]}'],
    [b'{"a":[1,2]}', b'{"a":[ 1.0 , 2 ]}'],
    [b'{"a":[2,1]}'],
    [b'{"a":[12]}', b'{"a":[12.0]}'],
    [b'{"a":[[1],2]}'],
    [b'{"a":[1,[2]]}'],
    [b'{"a":{"b":1},"c":2}', b'{"c":2,"a":{"b":1}}'],
    [b'{"a":{"b":1,"c":2}}', b'{"a":{"c":2,"b":1}}'],
    [b'{"b":1}'],
    [b'{"a":1,"b":1}', b'{"b":1,"a":1}'],
    [b'{"a":"\\u00e9"}', '{"a":"é"}'.encode()],
]


def test_equal_values_alone_share_a_fingerprint() -> None:
    """Values are compared, whatever the order of members and the spelling of numbers and strings."""
    found = [{fingerprint(raw) for raw in group} for group in ALIKE]
    assert [len(group) for group in found] == [1] * len(ALIKE)
    assert len(set[str]().union(*found)) == len(ALIKE)
