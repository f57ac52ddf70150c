"""Errors translated between the eras."""

from __future__ import annotations

import itertools
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from isthmus.app.commands.losses import LOSSES, SERVER_CAPABILITIES, Loss, losses_for_older, losses_of
from isthmus.core.base import errors
from isthmus.core.base.revisions import Era
from isthmus.core.bridge.errors import (
    HTTP_STATUS,
    http_status,
    to_legacy,
    to_missing_capability,
    to_modern,
    to_tool_result,
)
from isthmus.core.jsonrpc.envelope import usable_error
from isthmus.core.jsonrpc.splice import members

METHODS = ["resources/read", "tools/call", "prompts/get", "tools/list", "acme/own"]
URI = "file:///a b"
PARAMS = json.dumps({"uri": URI, "name": "x"}).encode()

# Each class of codes, and its edges.
CODES = sorted(
    {-32700, *range(-32604, -32599), *range(-32101, -31997), -32800, -32768, -32769, -1, 0, 404, -31001, -31007, 10**14}
)
FORBIDDEN = {-32002, -32042, *range(-32099, -32019)} - {-32020, -32021, -32022}
"""Codes that must not be emitted, or have no meaning yet. Source: 2026-07-28 basic, "Error Codes"."""
OWN_HOP = {-32020, -32021, -32022}
"""Codes that only a peer of the stateless era uses, and only about the proxy."""

DATA = [
    None,
    b"null",
    b'"text"',
    b"[1.0]",
    b"{}",
    b'{"uri":"file:///a b"}',
    b'{"uri":"other"}',
    b'{"uri":5, "x":1e400}',
]
DATA += [b'{"a":1,"a":2}', b'{"requiredCapabilities":{"sampling":{"tools":{}},"roots":{}}}']


def error(code: int, data: bytes | None = None) -> bytes:
    return b'{"code":%d, "message":"m\\u00e9"%b}' % (code, b"" if data is None else b',"data":' + data)


def loaded(raw: bytes | None) -> Any:
    assert raw is not None
    return json.loads(raw)


@pytest.mark.parametrize("method", METHODS)
def test_no_stateless_client_gets_a_code_without_meaning(method: str) -> None:
    """-32002, -32042 and reserved codes never pass; each other does, and the hidden code is kept in the data."""
    for code, data in itertools.product(CODES, DATA):
        for params in (PARAMS, b"{}", b'{"uri":5}', None):
            before = error(code, data)
            after = to_modern(method, params, before)
            assert usable_error(after) == after
            new = loaded(after)
            assert new["code"] not in FORBIDDEN | OWN_HOP
            assert new["message"] == "mé"
            if code == errors.RESOURCE_NOT_FOUND and method == "resources/read":
                assert new["code"] == errors.INVALID_PARAMS
                assert params != PARAMS or isinstance(new["data"]["uri"], str)
            elif code in FORBIDDEN | OWN_HOP | {errors.PARSE_ERROR, errors.INVALID_REQUEST}:
                kept = {"dev.isthmus/originalCode": code}
                expected = kept if data is None else kept | {"dev.isthmus/originalData": json.loads(data)}
                assert new == {"code": errors.INTERNAL_ERROR, "message": "mé", "data": expected}
                assert data is None or data in after  # byte for byte
            else:
                assert after is before


@pytest.mark.parametrize("method", METHODS)
def test_no_client_with_a_session_gets_a_fault_of_another_hop(method: str) -> None:
    """A fault of the proxy's own request, or one that its client could never mend, is an internal error."""
    for code, data in itertools.product(CODES, DATA):
        before = error(code, data)
        after = to_legacy(method, PARAMS, before)
        assert usable_error(after) == after
        new = loaded(after)
        if code in (-32700, -32600, -32020, -32022, -32042):
            assert new["code"] == errors.INTERNAL_ERROR
            assert new["data"]["dev.isthmus/originalCode"] == code
            assert data in (None, b"null") or data in after
        elif code == errors.MISSING_CAPABILITY:
            assert new["code"] == errors.INTERNAL_ERROR
            assert new.get("data") == (None if data is None else json.loads(data))
        elif (code, method, data) == (errors.INVALID_PARAMS, "resources/read", b'{"uri":"file:///a b"}'):
            assert after == error(errors.RESOURCE_NOT_FOUND, data)
        else:
            assert after is before


@pytest.mark.parametrize("data", [None, b"null", b"{}", b'{"uri":null,"x":1.0}'], ids=str)
def test_a_missing_resource_is_named(data: bytes | None) -> None:
    """2026-07-28 wants `data.uri`; the server's other data stay."""
    after = to_modern("resources/read", PARAMS, error(-32002, data))
    assert loaded(after)["data"]["uri"] == URI
    assert data is None or b"x" not in data or b'"x":1.0' in after


def test_a_resource_that_was_named_keeps_its_name() -> None:
    """The server's own URI is kept, since it may have looked for another resource."""
    named = b'{"uri":"other"}'
    assert to_modern("resources/read", PARAMS, error(-32002, named)) == error(-32602, named)


@pytest.mark.parametrize("data", [b'"text"', b"[1.0]", b'{"a":1,"a":2}'], ids=str)
def test_data_that_are_no_object_are_kept_aside(data: bytes) -> None:
    after = to_modern("resources/read", PARAMS, error(-32002, data))
    kept = after[slice(*members(after)["data"])]
    assert loaded(kept)["uri"] == URI
    assert kept[slice(*members(kept)["dev.isthmus/originalData"])] == data


def test_a_missing_resource_survives_two_proxies() -> None:
    """A handshake server's own error is itself again behind two proxies, with the URI it may have left out."""
    modern = to_modern("resources/read", PARAMS, error(-32002))
    assert to_legacy("resources/read", PARAMS, modern) == error(-32002, b'{"uri":"file:///a b"}')
    escaped = b'{"uri":"file:\\/\\/\\/a b"}'
    assert to_legacy("resources/read", escaped, modern) == error(-32002, b'{"uri":"file:///a b"}')
    assert to_legacy("prompts/get", PARAMS, modern) is modern
    assert to_legacy("resources/read", b'{"uri":"file:///b"}', modern) is modern
    assert to_legacy("resources/read", None, modern) is modern


def test_a_missing_capability_is_named() -> None:
    """A tool's result tells the model; other methods have an error, which keeps the capabilities."""
    missing = error(-32021, b'{"requiredCapabilities":{"sampling":{},"roots":{}}}')
    result = loaded(to_tool_result("tools/call", missing))
    assert result["isError"] is True
    assert "sampling, roots" in result["content"][0]["text"]
    assert to_tool_result("prompts/get", missing) is None
    turned = loaded(to_legacy("prompts/get", PARAMS, missing))
    assert "sampling, roots" in turned["message"]
    assert turned["data"] == {"requiredCapabilities": {"sampling": {}, "roots": {}}}
    assert "more than this client can do" in loaded(to_tool_result("tools/call", error(-32021)))["content"][0]["text"]


def test_a_page_to_visit_is_named() -> None:
    """A stateless server must not answer -32042; if one does, the client learns the page."""
    assert "mé" in loaded(to_tool_result("tools/call", error(-32042)))["content"][0]["text"]


def test_other_errors_are_errors() -> None:
    for code in set(CODES) - {-32021, -32042}:
        assert to_tool_result("tools/call", error(code)) is None


def test_the_status_depends_on_the_code_only() -> None:
    """Only the code decides, and whether the envelope was at fault."""
    for code in CODES:
        expected = {-32601: 404, **dict.fromkeys((-32700, -32600, -32020, -32021, -32022), 400)}.get(code, 200)
        assert {http_status(error(code, data)) for data in DATA} == {expected}
        assert http_status(error(code), is_envelope=True) == (400 if code == -32602 else expected)
        assert (expected != 200) == (code in HTTP_STATUS)


@given(
    code=st.sampled_from(CODES) | st.sampled_from(["-32002", 1.5, None, True, [], 10**20]),
    message=st.none() | st.text(max_size=3),
    data=st.sampled_from(DATA),
    method=st.sampled_from(METHODS),
    params=st.sampled_from([None, PARAMS, b"[]", b'{"uri":"\\ud800"}', b'{"uri":1,"uri":2}']),
)
def test_every_error_has_a_translation(
    code: object, message: str | None, data: bytes | None, method: str, params: bytes | None
) -> None:
    """Any error of a server, made usable, becomes one with an integer code and a string message."""
    parts = [b'"code":' + json.dumps(code).encode(), b'"message":' + json.dumps(message).encode()]
    parts += [] if data is None else [b'"data":' + data]
    before = usable_error(b"{" + b",".join(parts) + b"}")
    for after in (to_modern(method, params, before), to_legacy(method, params, before)):
        assert usable_error(after) == after
        assert http_status(after) in (200, 400, 404)
        assert data is None or data in after


def test_our_own_codes_differ() -> None:
    """Each code has one name, and lies outside the range that JSON-RPC reserves."""
    named = {name: value for name, value in vars(errors).items() if name.isupper() and isinstance(value, int)}
    assert len(set(named.values())) == len(named)
    assert {named[name] for name in ("INPUT_REFUSED", "TOO_MANY_ROUNDS")} == {-31005, -31006}
    assert named["URL_REQUIRED"] == -32042
    for name in ("HEADER_MISMATCH", "MISSING_CAPABILITY", "UNSUPPORTED_VERSION"):
        assert named[name] in OWN_HOP


def test_the_table_of_losses_reads_well() -> None:
    """The table has one row a feature, each with a sentence or two."""
    rows = msgspec.to_builtins(LOSSES)
    assert len({row["feature"] for row in rows}) == len(rows)
    for row in rows:
        assert row["carried"].endswith(".")
        assert row["from_era"] in {"handshake", "stateless", "any"}
        assert row["to_era"] in {"handshake", "stateless", "older"}
        assert row["from_era"] != "any" or row["to_era"] == "older"
        if row["to_era"] == "older":
            assert row["speaker"] == "server"


def test_losses_are_listed_for_the_servers_they_apply_to() -> None:
    """All capabilities, both eras and older clients together list every loss except those within an era; no
    capabilities list the losses that depend on nothing a server declares."""
    every = {loss.capability for loss in LOSSES}
    eras = (Era.HANDSHAKE, Era.STATELESS)

    def listed(declared: set[str]) -> list[Loss]:
        between = [loss for server, client in (eras, eras[::-1]) for loss in losses_of(server, client, declared)]
        return between + [loss for server in eras for loss in losses_for_older(server, declared)]

    within = [loss for loss in LOSSES if loss.from_era == loss.to_era]
    assert {loss.feature for loss in listed(every)} == {loss.feature for loss in LOSSES if loss not in within}
    bare = {loss.feature for loss in listed(set())}
    assert bare == {
        loss.feature
        for loss in LOSSES
        if loss not in within and loss.capability.partition(".")[0] not in SERVER_CAPABILITIES
    }
    only_handshake = {loss.feature for loss in losses_of(*eras, every)}
    assert {"vendor's question", "retry without its state"} <= only_handshake
    assert only_handshake.isdisjoint({"server without a name", "log level", "rich forms"})


REQUIRED = b'{"sampling":{}}'


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (b'{"isError":true,"content":[{"type":"text","text":"no model"},{"type":"text","text":"2nd"}]}', "no model"),
        (b'{"isError":true,"content":[{"type":"image","text":"alt"},{"type":"text","text":"it failed"}]}', "it failed"),
        (b'{"isError":true,"content":["no model",{"type":"text"}]}', "see data"),
        (b'{"isError":true,"content":[{"type":"image","data":""}]}', "see data"),
        (b'{"isError":true}', "see data"),
        (b'{"isError":true,"content":{}}', "see data"),
    ],
)
def test_a_tool_that_failed_without_an_answer_is_an_error(result: bytes, text: str) -> None:
    """The message holds the first text of the result, and the data hold the whole result."""
    listed = loaded(to_missing_capability(REQUIRED, result=result))
    assert listed == {
        "code": errors.MISSING_CAPABILITY,
        "message": f"The server asked for what this client has not declared, and failed: {text}",
        "data": {"requiredCapabilities": {"sampling": {}}, "dev.isthmus/originalResult": json.loads(result)},
    }


@pytest.mark.parametrize("data", [None, b'{"a":1.0}'])
def test_an_error_without_an_answer_is_kept(data: bytes | None) -> None:
    listed = loaded(to_missing_capability(REQUIRED, error=error(-32603, data)))
    kept = {} if data is None else {"dev.isthmus/originalData": json.loads(data)}
    assert listed == {
        "code": errors.MISSING_CAPABILITY,
        "message": "The server asked for what this client has not declared, and failed: mé",
        "data": {"requiredCapabilities": {"sampling": {}}, "dev.isthmus/originalCode": -32603, **kept},
    }


@pytest.mark.parametrize("result", [None, b"{}", b'{"isError":false}', b'{"isError":"true"}', b'{"isError":null}'])
def test_a_result_without_an_error_needs_no_answer(result: bytes | None) -> None:
    assert to_missing_capability(REQUIRED, result=result) is None


def test_every_loss_depends_on_a_known_capability() -> None:
    needed = {loss.capability.partition(".")[0] for loss in LOSSES}
    assert needed - SERVER_CAPABILITIES == {"", "roots", "sampling", "elicitation"}
    assert needed >= SERVER_CAPABILITIES
