"""Capabilities across the eras: projecting adds nothing, and equal capabilities are equal however they are spelled."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest
from each_row import each_row
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.base.errors import INVALID_PARAMS, RemoteProtocolError
from isthmus.core.base.revisions import LEGACY, MODERN
from isthmus.core.bridge.capabilities import (
    client_to_legacy,
    client_to_modern,
    fingerprint,
    missing,
    server_to_legacy,
    server_to_modern,
)

Capabilities = dict[str, Any]

CLIENTS: dict[str, list[Any]] = {
    "roots": [{}, {"listChanged": True}],
    "sampling": [{}, {"tools": {}}, {"tools": {}, "context": {}}],
    "elicitation": [{}, {"form": {}}, {"url": {}}, {"form": {}, "url": {}}],
    "tasks": [{"list": {}}],
    "experimental": [{"x": {"y": 1}}],
    "extensions": [{"com.example/e": {}}, {"com.example/e": {}, "io.modelcontextprotocol/tasks": {}}],
    "com.example/unknown": [{}],
}
SERVERS: dict[str, list[Any]] = {
    "tools": [{}, {"listChanged": True}],
    "prompts": [{}, {"listChanged": False}],
    "resources": [{}, {"subscribe": True, "listChanged": True}],
    "logging": [{}],
    "completions": [{}],
    "tasks": [{"list": {}}],
    "extensions": [{"io.modelcontextprotocol/tasks": {}}],
}


def drawn(table: dict[str, list[Any]]) -> st.SearchStrategy[Capabilities]:
    return st.fixed_dictionaries({}, optional={name: st.sampled_from(values) for name, values in table.items()})


def paths(value: Any) -> set[tuple[str, ...]]:
    """Returns every member name with its parents. An elicitation without modes means forms."""
    found: set[tuple[str, ...]] = set()
    for name, below in value.items() if isinstance(value, dict) else ():
        found |= {(name,)} | {(name, *path) for path in paths(below)}
        if name == "elicitation" and not {"form", "url"} & set(below):
            found.add((name, "form"))
    return found


Projection = Callable[[bytes], bytes]
OF_CLIENTS: dict[str, Projection] = {"modern": client_to_modern}
OF_CLIENTS |= {f"to-{era}": lambda raw, f=f: client_to_legacy(raw, f) for era, f in LEGACY.items()}
OF_CLIENTS |= {f"from-{era}": lambda raw, f=f: client_to_modern(raw, f) for era, f in LEGACY.items()}
OF_SERVERS: dict[str, Projection] = {
    f"to-{era}": lambda raw, f=f: server_to_legacy(raw, f) for era, f in LEGACY.items()
}
OF_SERVERS |= {
    f"push-{has_push}": lambda raw, has_push=has_push: server_to_modern(
        raw, server=LEGACY["2025-11-25"], has_push=has_push
    )
    for has_push in (False, True)
}


def check_projection(project: Projection, capabilities: Capabilities, more: Capabilities) -> None:
    raw = json.dumps(capabilities).encode()
    projected = project(raw)
    assert paths(json.loads(projected)) <= paths(capabilities)
    assert project(projected) == projected
    larger = json.loads(project(json.dumps(capabilities | more).encode()))
    kept = {path for path in paths(json.loads(projected)) if path[0] not in more}
    assert kept <= paths(larger)


@pytest.mark.parametrize("name", OF_CLIENTS)
@given(capabilities=drawn(CLIENTS), more=drawn(CLIENTS))
def test_a_client_projection_adds_nothing(name: str, capabilities: Capabilities, more: Capabilities) -> None:
    """Projecting only takes away; twice is once; and a client that declares more is not shown to declare less."""
    check_projection(OF_CLIENTS[name], capabilities, more)


@pytest.mark.parametrize("name", OF_SERVERS)
@given(capabilities=drawn(SERVERS), more=drawn(SERVERS))
def test_a_server_projection_adds_nothing(name: str, capabilities: Capabilities, more: Capabilities) -> None:
    check_projection(OF_SERVERS[name], capabilities, more)


@each_row("revision", LEGACY)
@each_row("elicitation", [None, *CLIENTS["elicitation"]])
@each_row("sampling", [None, *CLIENTS["sampling"]])
def test_a_handshake_declares_only_what_its_revision_knows(revision: str, elicitation: Any, sampling: Any) -> None:
    """Modes and tools go to 2025-11-25, a bare elicitation to 2025-06-18 if there are forms, and none to earlier
    revisions."""
    declared = {"roots": {}, "elicitation": elicitation, "sampling": sampling}
    projected = json.loads(client_to_legacy(json.dumps(declared).encode(), LEGACY[revision]))
    expected: Capabilities = {"roots": {}}
    if elicitation is not None and revision == "2025-11-25":
        expected["elicitation"] = elicitation
    elif elicitation is not None and revision == "2025-06-18" and (elicitation == {} or "form" in elicitation):
        expected["elicitation"] = {}
    if sampling is not None:
        expected["sampling"] = sampling if revision == "2025-11-25" else {}
    assert projected == expected


def test_the_capabilities_that_a_stateless_client_may_declare() -> None:
    declared = b'{"roots":{"listChanged":true},"sampling":{"tools":{}},"elicitation":{},"tasks":{"list":{}},"x":{}}'
    assert client_to_modern(declared) == b'{"roots":{},"sampling":{"tools":{}},"elicitation":{"form":{}}}'


def test_a_client_of_forms_only_does_not_declare_urls() -> None:
    declared = b'{"elicitation":{"form":{},"url":{}},"sampling":{"tools":{}}}'
    expected = b'{"elicitation":{"form":{}},"sampling":{}}'
    assert client_to_modern(declared, LEGACY["2025-06-18"]) == expected
    assert client_to_modern(declared, LEGACY["2025-03-26"]) == b'{"sampling":{}}'


@pytest.mark.parametrize("has_push", [False, True])
def test_notifications_are_declared_only_with_a_push(has_push: bool) -> None:
    """`listChanged` and `subscribe` reach a stateless client only if the server can send messages outside of
    requests."""
    server = b'{"tools":{"listChanged":true,"x":1},"resources":{"subscribe":true,"listChanged":true},"logging":{}}'
    expected = server if has_push else b'{"tools":{"x":1},"resources":{},"logging":{}}'
    assert server_to_modern(server, server=LEGACY["2025-11-25"], has_push=has_push) == expected


@pytest.mark.parametrize(
    "revision, declared, may_complete",
    list(itertools.product(LEGACY, ["tools", "prompts", "resources"], [False, True])),
)
def test_completion_is_declared_for_the_oldest_servers(revision: str, declared: str, may_complete: bool) -> None:
    """2024-11-05 has the method and no capability, which is declared with prompts or resources until the server refuses
    it."""
    raw = json.dumps({declared: {}}).encode()
    shown = json.loads(server_to_modern(raw, server=LEGACY[revision], has_push=True, may_complete=may_complete))
    assert ("completions" in shown) == (revision == "2024-11-05" and declared != "tools" and may_complete)


@pytest.mark.parametrize("raw", [b'{"roots":null}', b'{"roots":true,"sampling":1}', b'{"elicitation":[]}'], ids=repr)
def test_a_capability_that_is_no_object_declares_nothing(raw: bytes) -> None:
    assert client_to_modern(raw) == b"{}"
    assert missing(raw, "roots/list", None) == b'{"roots":{}}'


# --- Equality -------------------------------------------------------------------------------------------------------

JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(max_size=3), JSONS, max_size=4)


def respelled(value: Any) -> str:
    """Returns equal JSON with its keys in reverse, its strings in escapes and its numbers in other digits."""
    if isinstance(value, dict):
        return "{ " + " , ".join(f"{respelled(key)} : {respelled(value[key])}" for key in reversed(value)) + "}"
    if isinstance(value, list):
        return "[" + ",\n".join(map(respelled, value)) + "]"
    if isinstance(value, str):
        units = value.encode("utf-16-be", "surrogatepass")
        return '"' + "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2)) + '"'
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    text = repr(value)
    if "e" not in text and "." in text:
        return text + "00E+0"
    return text if "e" in text or value == 0 else text + "0e-1"


@given(value=OBJECTS)
def test_equal_capabilities_have_one_fingerprint(value: Capabilities) -> None:
    """The order of keys and the spelling of numbers and strings make no difference."""
    assert fingerprint(json.dumps(value).encode()) == fingerprint(respelled(value).encode())


@given(one=OBJECTS, other=OBJECTS)
def test_other_capabilities_have_another_fingerprint(one: Capabilities, other: Capabilities) -> None:
    """Equal fingerprints are those of equal values: 1 is 1.0, and not true."""

    def strict(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: strict(below) for key, below in value.items()}
        if isinstance(value, list):
            return list(map(strict, value))
        return ("bool", value) if isinstance(value, bool) else value

    same = fingerprint(json.dumps(one).encode()) == fingerprint(json.dumps(other).encode())
    assert same == (strict(one) == strict(other))


@pytest.mark.parametrize(
    "one, other, same",
    [
        ("1", "1.0", True),
        ("100", "1e2", True),
        ("-0", "0.0e5", True),
        ("12345678901234567890123", "12345678901234567890123.0", True),
        ("12345678901234567890123", "12345678901234567890124", False),
        ("1", '"1e0"', False),
        ("0.1", "0.10000000000000001", False),
        ("1" + "0" * 9000, "10e8999", True),
        ("1e" + "9" * 5000, "1e" + "9" * 5001, False),
    ],
    ids=["decimal", "exponent", "zero", "long", "longer", "text", "precise", "huge", "absurd"],
)
def test_numbers_are_compared_by_value(one: str, other: str, same: bool) -> None:
    prints = [fingerprint(f'{{"experimental":{{"x":{number}}}}}'.encode()) for number in (one, other)]
    assert (prints[0] == prints[1]) == same


@pytest.mark.parametrize(
    "raw",
    [
        b"[]",
        b'{"x":NaN}',
        b'{"x":1,"x":1}',
        b'{"experimental":{"x":1,"\\u0078":1}}',
        b'{"x":"' + b"y" * 64 * 1024 + b'"}',
        b'{"x":' * 33 + b"1" + b"}" * 33,
        b'{"x":' * 9000 + b"1" + b"}" * 9000,
        b"{",
    ],
    ids=["array", "nan", "twice", "twice-below", "large", "deep", "abyss", "cut"],
)
def test_capabilities_without_a_fingerprint_are_refused(raw: bytes) -> None:
    """Capabilities have at most 64 KiB and 32 levels, and each key once."""
    with pytest.raises(RemoteProtocolError) as caught:
        fingerprint(raw)
    assert caught.value.rpc_code == INVALID_PARAMS


def test_capabilities_at_the_limit_have_a_fingerprint() -> None:
    assert fingerprint(b'{"x":' * 32 + b"1" + b"}" * 32)
    assert fingerprint(b'{"x":"' + b"y" * (64 * 1024 - 8) + b'"}')


# --- Missing capabilities -------------------------------------------------------------------------------------------

FORM = b'{"message":"?","requestedSchema":{"type":"object","properties":{}}}'
URL = b'{"mode":"url","message":"?","url":"https://x"}'
PLAIN = b'{"messages":[],"maxTokens":1}'
TOOLS = b'{"messages":[],"maxTokens":1,"tools":[]}'
TOOL_RESULT = b'{"maxTokens":1,"messages":[{"role":"user","content":[{"type":"tool_\\u0072esult"}]}]}'
QUESTIONS: list[tuple[str, bytes | None, tuple[str, ...]]] = [
    ("roots/list", None, ("roots",)),
    ("elicitation/create", FORM, ("elicitation", "form")),
    ("elicitation/create", URL, ("elicitation", "url")),
    ("sampling/createMessage", PLAIN, ("sampling",)),
    ("sampling/createMessage", TOOLS, ("sampling", "tools")),
    ("sampling/createMessage", TOOL_RESULT, ("sampling", "tools")),
]


@pytest.mark.parametrize(
    "method, params, path", QUESTIONS, ids=["roots", "form", "url", "plain", "tools", "tool-result"]
)
@given(capabilities=drawn(CLIENTS))
def test_a_server_request_needs_the_capabilities_it_uses(
    method: str, params: bytes | None, path: tuple[str, ...], capabilities: Capabilities
) -> None:
    """A capability that the client has not declared is named; with it declared as well, the request can be sent."""
    lacking = missing(json.dumps(capabilities).encode(), method, params)
    assert (lacking is None) == (path in paths(capabilities))
    if lacking is not None:
        assert path in paths(json.loads(lacking))
        merged = capabilities | {path[0]: capabilities.get(path[0], {}) | json.loads(lacking)[path[0]]}
        assert missing(json.dumps(merged).encode(), method, params) is None


def test_only_three_methods_need_a_capability() -> None:
    assert missing(b"{}", "ping", None) is None


@pytest.mark.parametrize("revision", LEGACY)
@given(capabilities=drawn(CLIENTS))
def test_a_projected_client_is_asked_no_more(revision: str, capabilities: Capabilities) -> None:
    """A server request that the projected capabilities allow is allowed by the original ones."""
    raw = json.dumps(capabilities).encode()
    projected = client_to_legacy(raw, LEGACY[revision])
    for method, params, _ in QUESTIONS:
        if missing(projected, method, params) is None:
            assert missing(raw, method, params) is None


def test_the_tables_cover_every_revision() -> None:
    assert len(OF_CLIENTS) == 1 + 2 * len(LEGACY)
    assert not LEGACY.keys() & MODERN.keys()


@pytest.mark.parametrize("may_complete", [False, True])
@pytest.mark.parametrize("revision", LEGACY)
def test_completion_that_was_refused_is_not_declared(revision: str, may_complete: bool) -> None:
    """A refusal of the method overrides the server's own declaration."""
    raw = b'{"completions":{"a":1}}'
    shown = server_to_modern(raw, server=LEGACY[revision], has_push=True, may_complete=may_complete)
    assert json.loads(shown) == ({"completions": {"a": 1}} if may_complete else {})
