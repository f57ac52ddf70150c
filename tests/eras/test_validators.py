"""Tests that the validators refuse frames that break a rule. The other tests show that they accept valid ones."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import validators
from abilities import REVISIONS, K

pytestmark = pytest.mark.real

V1, V2, V3, V4, V5 = REVISIONS
META = {K + "protocolVersion": V5, K + "clientCapabilities": {}}
COMPLETE = {"resultType": "complete", "content": []}


def answer(**members: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, **members}


def request(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


class Bad(NamedTuple):
    revision: str
    side: str
    frame: Any
    of: str | None
    why: str


def block(**members: Any) -> dict[str, Any]:
    return answer(result={"content": [members]})


URL = {"mode": "url", "message": "m", "url": "https://example.com/"}
BAD = {
    "an array": Bad(V3, "server", [answer(result={})], None, "expected an object"),
    "an answer to nothing": Bad(V3, "server", answer(result={}), None, "not asked"),
    "an envelope with more": Bad(V3, "server", answer(result={}, more=1), "ping", "more"),
    "audio at first": Bad(
        V1, "server", block(type="audio", data="", mimeType="audio/wav"), "tools/call", "CallToolResult"
    ),
    "a link before links": Bad(
        V2, "server", block(type="resource_link", uri="x:y", name="n"), "tools/call", "CallTool"
    ),
    "forms before forms": Bad(V2, "server", request("elicitation/create", message="m"), None, "no request of a server"),
    "choices before choices": Bad(
        V3,
        "server",
        request(
            "elicitation/create",
            message="m",
            requestedSchema={"type": "object", "properties": {"a": {"type": "array", "items": {"enum": ["x"]}}}},
        ),
        None,
        "ElicitRequest",
    ),
    "a page without an id": Bad(V4, "server", request("elicitation/create", **URL), None, "ElicitRequest"),
    "resultType in a session": Bad(V4, "server", answer(result=COMPLETE), "tools/call", "with resultType"),
    "hints in a session": Bad(V4, "server", answer(result={"tools": [], "ttlMs": 1}), "tools/list", "with ttlMs"),
    "an envelope in a session": Bad(V4, "client", request("tools/list", _meta=META), None, "with io.model"),
    "answers in a session": Bad(
        V4, "client", request("tools/call", name="x", inputResponses={}), None, "with inputResponses"
    ),
    "no resultType": Bad(V5, "server", answer(result={"content": []}), "tools/call", "resultType"),
    "no content": Bad(V5, "server", answer(result={"resultType": "complete"}), "tools/call", "content"),
    "no hints": Bad(V5, "server", answer(result={"resultType": "complete", "tools": []}), "tools/list", "ttlMs"),
    "no envelope": Bad(V5, "client", request("tools/list"), None, "_meta"),
    "another result": Bad(V5, "server", answer(result={**COMPLETE, "resultType": "task"}), "tools/call", "'task'"),
    "questions of a listing": Bad(
        V5, "server", answer(result={"resultType": "input_required"}), "tools/list", "by input_required"
    ),
    "a question of its own": Bad(
        V5,
        "server",
        answer(result={"resultType": "input_required", "inputRequests": {"a": {"method": "x-vendor/ask"}}}),
        "tools/call",
        "InputRequiredResult",
    ),
    "a page with an id": Bad(
        V5,
        "server",
        answer(
            result={
                "resultType": "input_required",
                "inputRequests": {"a": {"method": "elicitation/create", "params": {**URL, "elicitationId": "e"}}},
            }
        ),
        "tools/call",
        "elicitationId",
    ),
    "a request of the server": Bad(V5, "server", request("roots/list"), None, "no request of a server"),
    "a handshake without one": Bad(V5, "client", request("initialize", _meta=META), None, "no request of a client"),
    "an old code": Bad(
        V5, "server", answer(error={"code": -32002, "message": ""}), "tools/call", "must not be emitted"
    ),
    "a reserved code": Bad(V5, "server", answer(error={"code": -32050, "message": ""}), "tools/call", "must not be"),
    "a code that is no number": Bad(
        V1, "server", answer(error={"code": "x", "message": ""}), "tools/call", "JSONRPCError"
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_frame_that_breaks_a_rule_is_found(name: str) -> None:
    bad = BAD[name]
    found = validators.faults(bad.revision, bad.frame, is_from_client=bad.side == "client", of=bad.of)
    assert any(bad.why in fault for fault in found), found


@pytest.mark.parametrize("revision", REVISIONS)
def test_every_result_named_is_defined(revision: str) -> None:
    """A typing error in the table would let anything pass."""
    definitions = validators.schema_of(revision)["$defs"]
    known = {method for side in ("Client", "Server") for method in validators._by_method(revision, f"{side}Request")}
    known |= set(validators.MAY_ASK)
    assert {validators.RESULTS[method] for method in known if method in validators.RESULTS} <= set(definitions)
    assert known - set(validators.RESULTS) <= {
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
        *(f"tasks/{verb}" for verb in ("get", "result", "cancel", "list")),
    }
