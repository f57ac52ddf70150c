"""Tests of messages against the packaged schemas: valid and invalid ones in each revision."""

from __future__ import annotations

from typing import Any

import pytest
from isthmus.app.conform.script.schema import RESULTS, fault_of
from isthmus.app.conform.script.steps import REVISIONS, Manner, capabilities_of, decoded, handshake
from isthmus.core.oracle import METHODS, Role

V1, V4, V5 = REVISIONS[0], REVISIONS[3], REVISIONS[-1]
FORM = {"type": "object", "properties": {}}
TOOL = {"name": "t", "inputSchema": {"type": "object"}}


def result(method: str, revision: str = V4, **members: Any) -> str | None:
    return fault_of(revision, Role.SERVER, method, {"jsonrpc": "2.0", "id": 1, "result": members})


def called(method: str, params: Any, revision: str = V4, **more: Any) -> str | None:
    return fault_of(revision, Role.SERVER, method, {"jsonrpc": "2.0", "method": method, "params": params, **more})


@pytest.mark.parametrize("revision", REVISIONS)
def test_a_tool_list(revision: str) -> None:
    more = {"resultType": "complete", "ttlMs": 1, "cacheScope": "public"} if revision == V5 else {}
    assert result("tools/list", revision, tools=[TOOL], **more) is None
    assert "$.tools[0].inputSchema" in str(result("tools/list", revision, tools=[{**TOOL, "inputSchema": []}], **more))
    assert "'tools' is a required property" in str(result("tools/list", revision, **more))


def test_schema_errors_name_their_place() -> None:
    fault = result("tools/call", content=[{"type": "text", "text": "a"}, {"type": "text"}])
    assert fault is not None
    assert fault.startswith("CallToolResult, $.content[1]")
    assert result("resources/read", contents=[{"uri": "a://b", "text": 1}]) is not None
    assert len(str(result("tools/list", tools="x" * 5_000))) <= 300


def test_what_is_asked() -> None:
    assert called("elicitation/create", {"message": "m", "requestedSchema": FORM}, id=1) is None
    assert called("elicitation/create", {"message": 1}, id=1) is not None
    assert called("notifications/progress", {"progressToken": 1, "progress": 0.5}) is None
    assert called("notifications/progress", {"progress": "half"}) is not None
    assert called("own/thing", 5, id=1) is None


def test_rounds_and_what_extensions_have() -> None:
    question = {
        "method": "elicitation/create",
        "params": {"message": "m", "requestedSchema": FORM},
    }
    assert result("tools/call", V5, resultType="input_required", inputRequests={"a": question}) is None
    assert result("tools/call", V5, resultType="input_required", inputRequests={"a": {}}) is not None
    assert result("tools/call", V5, resultType="com.example/other") is None
    assert result("tools/list", V5, tools=[]) is None, "what is missing has rules of its own"


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("manner", Manner)
def test_what_we_say_is_right(revision: str, manner: Manner) -> None:
    for step in handshake(revision, manner=manner) if revision != V5 else ():
        (message,) = decoded(step.body)
        assert fault_of(revision, Role.CLIENT, message["method"], message) is None
    assert isinstance(capabilities_of(manner, revision), dict)


def test_each_result_is_that_of_a_method() -> None:
    assert set(RESULTS) <= set(METHODS)
