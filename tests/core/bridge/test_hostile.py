"""The bridge under hostile input: any value that a peer sends is carried over or refused with one error."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from isthmus.core.base.errors import RemoteProtocolError
from isthmus.core.base.revisions import LEGACY
from isthmus.core.bridge import capabilities, discovery, input_requests, request_meta
from isthmus.core.bridge.request_meta import RequestMeta

KEYS = ["_meta", "action", "capabilities", "code", "content", "data", "elicitation", "enum", "extensions", "form"]
KEYS += ["anyOf", "const", "default", "inputRequests", "inputResponses", "items", "maxItems", "maxTokens", "message"]
KEYS += ["messages", "method", "minItems", "mode", "model", "oneOf", "params", "properties", "protocolVersion"]
KEYS += ["requestState", "requestedSchema", "required", "resultType", "role", "roots", "sampling", "serverInfo", "x"]
KEYS += ["supported", "supportedVersions", "tools", "type", "uri", "url", *request_meta.KEYS, discovery.SERVER_INFO]
TEXTS = [
    "",
    "accept",
    "array",
    "form",
    "url",
    "string",
    "user",
    "text",
    "input_required",
    "tool_use",
    "audio",
    "object",
]
TEXTS += sorted(input_requests.METHODS)

ATOMS = st.none() | st.booleans() | st.sampled_from([-32022, 0, 1.5, 10**400]) | st.sampled_from([*TEXTS, "\ud800"])
JSONS = st.recursive(
    ATOMS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5),
    max_leaves=12,
)


def object_with(*keys: str) -> st.SearchStrategy[bytes]:
    """A strategy of objects that may have these members, each of any value."""
    made = st.dictionaries(st.sampled_from(KEYS), JSONS, max_size=3)
    named = st.fixed_dictionaries({}, optional=dict.fromkeys(keys, JSONS))
    return st.builds(lambda one, two: json.dumps(one | two).encode(), made, named) | JSONS.map(
        lambda value: json.dumps(value).encode()
    )


V1, V3 = LEGACY["2024-11-05"], LEGACY["2025-06-18"]
FORM, SAMPLE, ROOTS = "elicitation/create", "sampling/createMessage", "roots/list"
ACCEPT = b'{"action":"accept","content":{"a.1":true}}'
FIELD = st.fixed_dictionaries({"type": st.just("array"), "items": JSONS, "minItems": JSONS, "default": JSONS})
FORMS = st.dictionaries(st.sampled_from(["a", "a.1"]), FIELD | JSONS).map(
    lambda made: json.dumps({"message": "", "requestedSchema": {"properties": made, "required": ["a"]}}).encode()
)

CALLS: dict[str, tuple[st.SearchStrategy[bytes], Callable[[bytes], object]]] = {
    "revision": (object_with("_meta"), request_meta.revision_of),
    "envelope": (object_with("_meta"), request_meta.read),
    "add": (object_with("_meta"), lambda raw: request_meta.add(raw, RequestMeta("2026-07-28", b"{}"))),
    "strip": (object_with("_meta"), request_meta.strip_retry),
    "client-to-legacy": (object_with("elicitation", "roots"), lambda raw: capabilities.client_to_legacy(raw, V3)),
    "client-to-modern": (object_with("elicitation", "roots"), capabilities.client_to_modern),
    "server-to-legacy": (object_with("tools", "extensions"), lambda raw: capabilities.server_to_legacy(raw, V1)),
    "server-to-modern": (
        object_with("tools", "extensions"),
        lambda raw: capabilities.server_to_modern(raw, server=V1, has_push=False),
    ),
    "fingerprint": (object_with(), capabilities.fingerprint),
    "missing": (
        object_with("messages", "tools", "mode"),
        lambda raw: [capabilities.missing(raw, method, raw) for method in input_requests.METHODS],
    ),
    "initialize": (
        object_with("supportedVersions", "capabilities", "_meta"),
        lambda raw: discovery.to_initialize_result(raw, client=V3, name="n"),
    ),
    "discover": (
        object_with("protocolVersion", "capabilities", "serverInfo", "_meta"),
        lambda raw: discovery.to_discover_result(raw, has_push=False),
    ),
    "refused": (object_with("code", "data"), discovery.refused_revisions),
    "embed-form": (object_with("message", "requestedSchema", "mode"), lambda raw: input_requests.embed(FORM, raw)),
    "embed-roots": (object_with("_meta"), lambda raw: input_requests.embed(ROOTS, raw)),
    "asking": (object_with("resultType"), input_requests.is_input_required),
    "questions": (object_with("inputRequests", "requestState"), input_requests.read_questions),
    "responses": (object_with("inputResponses"), input_requests.read_responses),
    "retried": (object_with("inputResponses"), lambda raw: input_requests.retried(raw, {}, b'"s"')),
    "shown-form": (FORMS, lambda raw: input_requests.shown(FORM, raw, V3)),
    "shown-sampling": (object_with("messages"), lambda raw: input_requests.shown(SAMPLE, raw, V1)),
    "answered-form": (FORMS, lambda raw: input_requests.answered(FORM, raw, V3, ACCEPT)),
    "answer-form": (object_with("action", "content"), lambda raw: input_requests.answered(FORM, b"{}", V3, raw)),
    "answer-sampling": (object_with("content"), lambda raw: input_requests.answer_to_legacy(SAMPLE, raw, V1)),
    "answer-roots": (object_with("roots"), lambda raw: input_requests.check_response(ROOTS, raw)),
}


def outcome(call: Callable[[bytes], object], raw: bytes) -> object:
    try:
        return call(raw)
    except RemoteProtocolError as error:
        return error


@pytest.mark.parametrize("name", CALLS)
@settings(max_examples=40)
@given(data=st.data())
def test_any_json_is_translated_or_refused(name: str, data: st.DataObject) -> None:
    """Every function of the bridge takes any JSON: it answers in JSON, or raises RemoteProtocolError."""
    made, call = CALLS[name]
    result = outcome(call, data.draw(made))
    if isinstance(result, bytes):
        json.loads(result)
    if isinstance(result, RemoteProtocolError):
        assert result.message.startswith("got ")
