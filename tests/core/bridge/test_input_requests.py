"""Server requests between the eras: each can be shown to the client, and its answer fits the original request."""

from __future__ import annotations

import itertools
import json
from typing import Any

import jsonschema
import mcp.types
import pytest
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.base.errors import INTERNAL_ERROR, INVALID_PARAMS, RemoteProtocolError
from isthmus.core.base.revisions import LEGACY, MODERN
from isthmus.core.bridge import elicitation as forms_of
from isthmus.core.bridge import input_requests, sampling
from isthmus.core.bridge.input_requests import FALLBACKS, METHODS, REFUSALS, Question

ROOTS, ELICIT, SAMPLE = "roots/list", "elicitation/create", "sampling/createMessage"

V3, V4 = LEGACY["2025-06-18"], LEGACY["2025-11-25"]


def packed(value: Any) -> bytes:
    return json.dumps(value).encode()


def form(properties: Any, required: list[str] | None = None) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties}
    return {"message": "?", "requestedSchema": schema | ({} if required is None else {"required": required})}


SAMPLING: dict[str, Any] = {"messages": [{"role": "user", "content": {"type": "text", "text": "?"}}], "maxTokens": 9}
URL: dict[str, Any] = {"mode": "url", "message": "?", "url": "https://example.com"}

# --- Embedding ------------------------------------------------------------------------------------------------------

REQUESTS: list[tuple[str, Any]] = [
    (ROOTS, None),
    (ROOTS, {}),
    (SAMPLE, SAMPLING),
    (ELICIT, form({})),
    (ELICIT, {"mode": "form"} | form({"a": {"type": "string"}})),
    (ELICIT, URL),
]
REQUEST_IDS = ["roots", "roots-params", "sampling", "form", "form-mode", "url"]
OF_THE_ASKING = {"task": {"ttl": 1}, "elicitationId": "e"}
META = {"progressToken": 7, "io.modelcontextprotocol/related-task": {"taskId": "t"}}


@pytest.mark.parametrize("method, params", REQUESTS, ids=REQUEST_IDS)
@pytest.mark.parametrize("vendor", [{}, {"com.example/x": 1}], ids=["plain", "vendor"])
def test_an_embedded_request_has_its_method_and_params_only(method: str, params: Any, vendor: dict[str, int]) -> None:
    """Task, elicitationId, progressToken and related task are left out; all other params are kept."""
    sent = None if params is None else params | vendor | OF_THE_ASKING | {"_meta": META | vendor}
    expected = {"method": method} | ({} if params is None else {"params": params | vendor})
    if params is not None and vendor:
        expected["params"]["_meta"] = vendor
    assert json.loads(input_requests.embed(method, None if sent is None else packed(sent))) == expected


@pytest.mark.parametrize("method, params", REQUESTS, ids=REQUEST_IDS)
def test_an_embedded_request_is_read_as_it_was_written(method: str, params: Any) -> None:
    raw = None if params is None else packed(params)
    result = b'{"resultType":"input_required","inputRequests":{"r1":%b}}' % input_requests.embed(method, raw)
    assert input_requests.is_input_required(result)
    assert input_requests.read_questions(result) == ((Question("r1", method, raw),), None)


UNASKABLE: list[tuple[str, Any]] = [
    (ROOTS, []),
    (SAMPLE, None),
    (SAMPLE, {"messages": []}),
    (SAMPLE, {"maxTokens": 1, "messages": {}}),
    (ELICIT, None),
    (ELICIT, {"message": "?"}),
    (ELICIT, form({}) | {"message": None}),
    (ELICIT, form({}) | {"mode": "telepathy"}),
    (ELICIT, form({}) | {"mode": None}),
    (ELICIT, URL | {"url": 1}),
    (ELICIT, form({}) | {"mode": "url"}),
]


@pytest.mark.parametrize("method, params", UNASKABLE, ids=map(repr, range(len(UNASKABLE))))
def test_a_malformed_server_request_is_refused(method: str, params: Any) -> None:
    """Clients read all entries together, so one malformed entry refuses the server's whole result."""
    with pytest.raises(RemoteProtocolError) as caught:
        input_requests.embed(method, None if params is None else packed(params))
    assert caught.value.rpc_code == INVALID_PARAMS
    if params is not None:
        with pytest.raises(RemoteProtocolError) as caught:
            input_requests.read_questions(packed({"inputRequests": {"k": {"method": method, "params": params}}}))
        assert caught.value.rpc_code == INTERNAL_ERROR


@pytest.mark.parametrize("declared", [None, {}, {"sampling": {}}, {"sampling": {"context": {}}}], ids=json.dumps)
@pytest.mark.parametrize("context", ["none", "thisServer", "allServers"])
def test_context_is_requested_of_clients_that_declared_it(declared: Any, context: str) -> None:
    params = packed(SAMPLING | {"includeContext": context})
    capabilities = None if declared is None else packed(declared)
    keeps = context == "none" or declared is None or "context" in declared.get("sampling", {})
    entry = json.loads(input_requests.embed(SAMPLE, params, capabilities=capabilities))
    assert ("includeContext" in entry["params"]) == keeps
    params_shown = input_requests.shown(SAMPLE, params, V4, capabilities=capabilities)
    assert params_shown is not None
    assert ("includeContext" in json.loads(params_shown)) == keeps
    older = input_requests.shown(SAMPLE, params, V3, capabilities=capabilities)  # which has no capability for it
    assert older == params


# --- Reading the requests of a stateless server ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "result, expected",
    [
        (b'{"resultType":"input_required"}', True),
        (b'{"content":[],"resultType" : "input\\u005frequired"}', True),
        (b'{"\\u0072esultType":"input_required"}', True),
        (b'{"resultType":"complete","content":[{"type":"text","text":"input_required"}]}', False),
        (b'{"content":[{"resultType":"input_required"}]}', False),
        (b'["input_required"]', False),
        (b"{}", False),
    ],
    ids=["plain", "escaped", "escaped-key", "in-text", "below", "array", "empty"],
)
def test_an_input_required_result_is_recognized_by_its_type(result: bytes, expected: bool) -> None:
    assert input_requests.is_input_required(result) is expected


def test_server_requests_keep_their_order_and_the_state_its_bytes() -> None:
    """The state, which is to be sent back, is not decoded."""
    raw = b'{"inputRequests":{"z":{"method":"roots/list"},"a":{"params":null,"method":"roots/list"}},'
    questions, state = input_requests.read_questions(raw + b'"requestState":"\\u0041\\/"}')
    assert [(question.key, question.params) for question in questions] == [("z", None), ("a", None)]
    assert state == b'"\\u0041\\/"'


@pytest.mark.parametrize(
    "result",
    [
        {},
        {"inputRequests": None, "requestState": None},
        {"requestState": 1},
        {"inputRequests": []},
        {"inputRequests": {"k": "roots/list"}},
        {"inputRequests": {"k": {"method": "tools/call"}}},
        {"inputRequests": {"k": {"method": 1}}},
        {"inputRequests": {"k": {}}},
    ],
    ids=["neither", "nulls", "state", "array", "text", "method", "number", "nothing"],
)
def test_a_malformed_input_required_result_is_a_protocol_error(result: Any) -> None:
    """A method outside the three, or a malformed entry, is error -32603, and no server request is sent."""
    with pytest.raises(RemoteProtocolError) as caught:
        input_requests.read_questions(packed(result))
    assert caught.value.rpc_code == INTERNAL_ERROR


NAMES = st.sampled_from(["name", "arguments", "_meta", "inputResponses", "requestState", "x"])
ROUNDS = st.tuples(
    st.dictionaries(st.sampled_from("abc"), st.just(b'{"action":"cancel"}')), st.none() | st.just(b'"s"')
)


@given(params=st.none() | st.dictionaries(NAMES, st.integers()).map(packed), rounds=st.lists(ROUNDS, min_size=1))
def test_a_retry_differs_only_in_answers_and_state(
    params: bytes | None, rounds: list[tuple[dict[str, bytes], bytes | None]]
) -> None:
    """Each retry is the first request with this round's answers and state: replaced, never accumulated, and absent
    where there are none."""
    retry = params
    for answers, state in rounds:
        retry = input_requests.retried(retry, answers, state)
    answers, state = rounds[-1]
    params_shown = json.loads(retry or b"{}")
    first = json.loads(params or b"{}")
    assert {key: params_shown[key] for key in params_shown if key not in ("inputResponses", "requestState")} == {
        key: first[key] for key in first if key not in ("inputResponses", "requestState")
    }
    assert input_requests.read_responses(retry) == answers
    assert ("inputResponses" in params_shown) == bool(answers)
    assert ("requestState" in params_shown) == (state is not None)


@pytest.mark.parametrize("params", [None, b"{}", b'{"inputResponses":null}', b'{"inputResponses":{}}'], ids=repr)
def test_params_without_answers_have_none(params: bytes | None) -> None:
    assert input_requests.read_responses(params) == {}


@pytest.mark.parametrize("raw", [b"[]", b'"x"', b'{"a":1}', b'{"a":{},"b":null}', b'{"a":{},"a":{}}'], ids=repr)
def test_malformed_answers_are_refused(raw: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        input_requests.read_responses(b'{"inputResponses":%b}' % raw)


# --- Shapes of answers ----------------------------------------------------------------------------------------------

GOOD_ANSWERS: list[tuple[str, Any]] = [
    (ELICIT, {"action": "cancel"}),
    (ELICIT, {"action": "decline", "content": None, "x": 1}),
    (ELICIT, {"action": "accept", "content": {"a": "b", "c": 1.5, "d": True, "e": ["f"]}}),
    (SAMPLE, {"role": "assistant", "model": "m", "content": {"type": "text", "text": ""}}),
    (SAMPLE, {"role": "assistant", "model": "m", "content": [{"type": "x"}], "stopReason": "y"}),
    (ROOTS, {"roots": []}),
    (ROOTS, {"roots": [{"uri": "file:///"}]}),
]
BAD_ANSWERS: list[tuple[str, Any]] = [
    (ELICIT, []),
    (ELICIT, {}),
    (ELICIT, {"action": "maybe"}),
    (ELICIT, {"action": "accept", "content": []}),
    (ELICIT, {"action": "accept", "content": {"a": {}}}),
    (SAMPLE, {"role": "system", "model": "m", "content": {"type": "text", "text": ""}}),
    (SAMPLE, {"role": "assistant", "content": {"type": "text", "text": ""}}),
    (SAMPLE, {"role": "assistant", "model": "m"}),
    (SAMPLE, {"role": "assistant", "model": "m", "content": "x"}),
    (SAMPLE, {"role": "assistant", "model": "m", "content": [{}]}),
    (ROOTS, {}),
    (ROOTS, {"roots": [{"name": "x"}]}),
    (ROOTS, {"roots": ["file:///"]}),
]


@pytest.mark.parametrize("method, answer", GOOD_ANSWERS, ids=map(repr, range(len(GOOD_ANSWERS))))
def test_an_answer_may_have_further_members(method: str, answer: Any) -> None:
    input_requests.check_response(method, packed(answer))


@pytest.mark.parametrize("method, answer", BAD_ANSWERS, ids=map(repr, range(len(BAD_ANSWERS))))
def test_a_malformed_answer_is_refused(method: str, answer: Any) -> None:
    with pytest.raises(RemoteProtocolError, match=method) as caught:
        input_requests.check_response(method, packed(answer))
    assert caught.value.rpc_code == INVALID_PARAMS


@pytest.mark.parametrize("method", sorted(METHODS))
def test_every_server_request_can_be_ended_without_an_answer(method: str) -> None:
    """A server that waits gets a result of its method, or an error."""
    for kind, raw in (FALLBACKS[method], REFUSALS[method]):
        if kind == "result":
            input_requests.check_response(method, raw)
        else:
            mcp.types.ErrorData.model_validate_json(raw)


# --- Forms ----------------------------------------------------------------------------------------------------------

OPTIONS = st.lists(st.sampled_from(["red", "green", "blue", "é", ""]), min_size=1, max_size=4, unique=True)


def titled(options: list[str]) -> list[dict[str, str]]:
    return [{"const": option, "title": f"The {option}"} for option in options]


@st.composite
def many_choices(draw: st.DrawFn) -> dict[str, Any]:
    options = draw(OPTIONS)
    field: dict[str, Any] = {"type": "array"}
    field["items"] = draw(st.sampled_from([{"type": "string", "enum": options}, {"anyOf": titled(options)}]))
    if draw(st.booleans()):
        field["minItems"] = draw(st.integers(0, len(options)))
    if draw(st.booleans()):
        field["maxItems"] = draw(st.integers(field.get("minItems", 0), len(options)))
    if draw(st.booleans()):
        field["default"] = options[:1]
    return field


FIELDS: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.sampled_from(
        [
            {"type": "string", "default": "x", "title": "T"},
            {"type": "integer", "default": 3, "minimum": 0},
            {"type": "boolean", "default": True},
            {"type": "string", "enum": ["a", "b"], "enumNames": ["A", "B"], "default": "a"},
        ]
    ),
    OPTIONS.map(lambda options: {"type": "string", "oneOf": titled(options), "default": options[0]}),
    many_choices(),
)


@st.composite
def forms(draw: st.DrawFn) -> dict[str, Any]:
    # Names that look like those of options, so that they clash.
    properties = draw(st.dictionaries(st.sampled_from(["a", "a.1", "a.1_", "a.2", "b", "ü"]), FIELDS, max_size=4))
    required = draw(st.none() | st.lists(st.sampled_from(sorted(properties) or ["a"]), unique=True))
    return form(properties, None if not properties else required)


def filled(draw: st.DrawFn, schema: dict[str, Any]) -> dict[str, Any]:
    """Draws content that the form allows, as a user of an older client enters it."""
    content: dict[str, Any] = {}
    for name, field in schema["properties"].items():
        if name not in schema.get("required", []) and draw(st.booleans()):
            continue
        if field["type"] == "boolean":
            content[name] = draw(st.booleans())
        elif field["type"] == "integer":
            content[name] = draw(st.integers(0, 5))
        else:
            content[name] = draw(st.sampled_from(field.get("enum", ["", "text"])))
    return content


FIELD_WORDS = {
    "string": {"type", "title", "description", "minLength", "maxLength", "format", "enum", "enumNames"},
    "integer": {"type", "title", "description", "minimum", "maximum"},
    "boolean": {"type", "title", "description", "default"},
}


@given(params=forms())
def test_an_older_client_gets_the_form_it_can_show(params: dict[str, Any]) -> None:
    """A client of 2025-06-18 gets no mode, no choice of many, no titled choice, and defaults for booleans only."""
    params_shown = input_requests.shown(ELICIT, packed(params | {"mode": "form"}), V3)
    assert params_shown is not None
    shown = json.loads(params_shown)
    assert shown.keys() == {"message", "requestedSchema"}
    schema = shown["requestedSchema"]
    assert set(schema.get("required", [])) <= schema["properties"].keys()
    for field in schema["properties"].values():
        assert field.keys() <= FIELD_WORDS[field["type"]]
        assert len(field.get("enum", [])) == len(field.get("enumNames", field.get("enum", [])))
    assert input_requests.shown(ELICIT, params_shown, V3) == params_shown


@given(params=forms(), data=st.data())
def test_an_answer_put_together_fits_the_original_form(params: dict[str, Any], data: st.DataObject) -> None:
    """The answer to a choice of many validates against the original form, or is refused for its bounds."""
    params_shown = input_requests.shown(ELICIT, packed(params), V3)
    assert params_shown is not None
    schema = params["requestedSchema"]
    content = filled(data.draw, json.loads(params_shown)["requestedSchema"])
    answer = packed({"action": "accept", "content": content})
    properties = schema["properties"]
    try:
        raw = input_requests.answered(ELICIT, packed(params), V3, answer)
    except RemoteProtocolError as error:
        raw = None
        refusal = error
    if raw is None:
        assert refusal.rpc_code == INVALID_PARAMS
        assert "expected from" in refusal.message
        assert any({"minItems", "maxItems"} & field.keys() for field in properties.values())
        return
    full = json.loads(raw)["content"]
    jsonschema.validate(full, schema)
    added = json.loads(params_shown)["requestedSchema"]["properties"].keys() - properties.keys()
    chosen = [option for value in full.values() if isinstance(value, list) for option in value]
    assert len(chosen) == sum(content.get(name) is True for name in added)


CHOICE = {"type": "array", "description": "D", "items": {"anyOf": titled(["r", "g"])}, "minItems": 1, "maxItems": 1}


def test_a_choice_of_many_becomes_a_yes_or_no_each() -> None:
    params = form({"c": CHOICE | {"default": ["g"]}, "c.1": {"type": "string"}}, ["c", "c.1"])
    params_shown = input_requests.shown(ELICIT, packed(params), V3)
    assert params_shown is not None
    assert json.loads(params_shown)["requestedSchema"] == {
        "type": "object",
        "properties": {
            "c.1_": {"type": "boolean", "title": "The r", "description": "D"},
            "c.2": {"type": "boolean", "title": "The g", "description": "D", "default": True},
            "c.1": {"type": "string"},
        },
        "required": ["c.1"],
    }
    answer = packed({"action": "accept", "content": {"c.1": "x", "c.2": True, "c.1_": False}})
    full = json.loads(input_requests.answered(ELICIT, packed(params), V3, answer))
    assert full == {"action": "accept", "content": {"c.1": "x", "c": ["g"]}}


@pytest.mark.parametrize("required", [None, ["c"]], ids=["optional", "required"])
@pytest.mark.parametrize("first, second", list(itertools.product([None, False, True], repeat=2)))
def test_bounds_of_a_choice_hold(required: list[str] | None, first: bool | None, second: bool | None) -> None:
    """Exactly one option may be chosen; none only if the field is not required."""
    params = packed(form({"c": CHOICE}, required))
    content = {name: mark for name, mark in (("c.1", first), ("c.2", second)) if mark is not None}
    answer = packed({"action": "accept", "content": content})
    chosen = [option for option, mark in (("r", first), ("g", second)) if mark]
    if len(chosen) == 2 or (required and not chosen):
        with pytest.raises(RemoteProtocolError, match="expected from 1 to 1"):
            input_requests.answered(ELICIT, params, V3, answer)
    else:
        full = json.loads(input_requests.answered(ELICIT, params, V3, answer))["content"]
        assert full == ({"c": chosen} if chosen else {})


def test_no_chosen_option_is_an_empty_choice() -> None:
    """A form with every option turned down has an empty choice; an untouched form has none."""
    params = packed(form({"c": {"type": "array", "items": {"enum": ["r"]}}}))
    for content, full in (({"c.1": False}, {"c": []}), ({}, {})):
        answer = packed({"action": "accept", "content": content})
        assert json.loads(input_requests.answered(ELICIT, params, V3, answer))["content"] == full


def test_an_option_is_true_or_false() -> None:
    answer = packed({"action": "accept", "content": {"c.1": "yes"}})
    with pytest.raises(RemoteProtocolError, match="no boolean"):
        input_requests.answered(ELICIT, packed(form({"c": CHOICE})), V3, answer)


@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_a_declined_form_needs_no_content(action: str) -> None:
    answer = packed({"action": action})
    assert input_requests.answered(ELICIT, packed(form({"c": CHOICE}, ["c"])), V3, answer) == answer


@pytest.mark.parametrize("method, params", REQUESTS, ids=REQUEST_IDS)
def test_the_newest_handshake_revision_gets_requests_unchanged(method: str, params: Any) -> None:
    """2025-11-25 can show everything, so nothing changes either way."""
    raw = None if params is None else packed(params)
    assert input_requests.shown(method, raw, V4) == raw
    answer = next(packed(answer) for kind, answer in GOOD_ANSWERS if kind == method)
    assert input_requests.answered(method, raw, V4, answer) == answer


def test_a_page_to_visit_has_an_id_in_a_handshake_only() -> None:
    """2025-11-25 requires an elicitationId, which stateless servers do not give; older clients cannot visit pages."""
    params_shown = input_requests.shown(ELICIT, packed(URL), V4, elicitation_id="e1")
    assert params_shown is not None
    assert json.loads(params_shown) == URL | {"elicitationId": "e1"}
    mcp.types.ElicitRequestURLParams.model_validate_json(params_shown)
    assert "elicitationId" not in json.loads(input_requests.embed(ELICIT, params_shown))["params"]
    assert input_requests.shown(ELICIT, packed(form({})), V4, elicitation_id="e1") == packed(form({}))
    with pytest.raises(RemoteProtocolError, match="only forms"):
        input_requests.shown(ELICIT, packed(URL), V3)


def test_a_request_made_older_keeps_its_handshake_members() -> None:
    """A server request between handshake revisions keeps its task, its token and the id of its page."""
    params = packed(URL | OF_THE_ASKING | {"_meta": META})
    assert input_requests.to_older(ELICIT, params, V4) == params


def test_an_envelope_of_the_server_does_not_reach_a_handshake_client() -> None:
    params = packed(SAMPLING | {"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}})
    assert input_requests.shown(SAMPLE, params, V4) == packed(SAMPLING)


# --- Sampling -------------------------------------------------------------------------------------------------------

BLOCKS = [
    {"type": "text", "text": "t"},
    {"type": "image", "data": "", "mimeType": "image/png"},
    {"type": "audio", "data": "", "mimeType": "audio/wav"},
]
CONTENTS = st.sampled_from(BLOCKS) | st.lists(st.sampled_from(BLOCKS), max_size=3)
MESSAGES = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant"]), "content": CONTENTS}), max_size=3
)


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-06-18"])
@given(messages=MESSAGES)
def test_older_clients_get_one_block_a_message(revision: str, messages: list[dict[str, Any]]) -> None:
    """Clients before 2025-11-25 get each block as a message, of a kind they know, in order, under its role."""
    client = LEGACY[revision]
    params = packed(SAMPLING | {"messages": messages, "tools": [], "toolChoice": {"mode": "none"}})
    params_shown = input_requests.shown(SAMPLE, params, client)
    assert params_shown is not None
    received = json.loads(params_shown)
    assert received.keys() == SAMPLING.keys()
    flat = [
        (message["role"], block)
        for message in messages
        for block in (message["content"] if isinstance(message["content"], list) else [message["content"]])
        or [{"type": "text", "text": ""}]
    ]
    assert [message["role"] for message in received["messages"]] == [role for role, _ in flat]
    for message, (_, block) in zip(received["messages"], flat, strict=True):
        if block["type"] == "audio" and not client.audio:
            assert message["content"] == {"type": "text", "text": "[audio, audio/wav]"}
        else:
            assert message["content"] == block


@pytest.mark.parametrize("revision", [*LEGACY, *MODERN])
@given(content=CONTENTS)
def test_an_older_server_gets_one_block(revision: str, content: Any) -> None:
    """A server before 2025-11-25 gets one block of a kind it knows; newer ones get the answer unchanged."""
    features = LEGACY.get(revision) or MODERN[revision]
    answer = {"role": "assistant", "model": "m", "content": content}
    raw = input_requests.answer_to_legacy(SAMPLE, packed(answer | {"resultType": "complete"}), features)
    received = json.loads(raw)
    assert received.keys() == answer.keys()
    if features.sampling_tools:
        assert received == answer
        return
    block = received["content"]
    assert isinstance(block, dict)
    assert block["type"] != "audio" or features.audio
    if isinstance(content, dict) and (content["type"] != "audio" or features.audio):
        assert block == content


def test_texts_are_joined_into_one_block() -> None:
    content = [*BLOCKS, {"type": "text", "text": "u"}]
    answer = packed({"role": "assistant", "model": "m", "content": content})
    received = json.loads(input_requests.answer_to_legacy(SAMPLE, answer, V3))
    assert received["content"] == {"type": "text", "text": "t\n[image]\n[audio]\nu"}


# --- Malformed forms --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "schema", [..., None, [], "x", {}, {"properties": None}, {"properties": []}, {"properties": "x"}], ids=str
)
def test_a_form_without_fields_is_shown_and_answered_as_it_is(schema: Any) -> None:
    """The form is the server's mistake, and the client is to judge it."""
    params = packed({"message": "m"} if schema is ... else {"message": "m", "requestedSchema": schema})
    assert input_requests.to_older(ELICIT, params, V3) == params
    answer = packed({"action": "accept", "content": {"a": 1}})
    assert input_requests.answered(ELICIT, params, V3, answer) == answer


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"tools": []}, True),
        ({"toolChoice": {"mode": "none"}}, True),
        ({"tools": None, "toolChoice": None}, False),
        ({"tools": None, "toolChoice": {}}, True),
        ({}, False),
        (None, False),
        ({"messages": [{"content": {"type": "tool_use"}}]}, True),
        ({"messages": [{"content": {"type": "tool_result"}}]}, True),
        ({"messages": [{"content": [{"type": "text"}, {"type": "tool_use"}]}]}, True),
        ({"messages": [{"content": {"type": "text", "text": "tool_use"}}]}, False),
        ({"messages": [{}, {"content": {"type": "text"}}, {"content": {"type": "tool_use"}}]}, True),
        ({"messages": [{"content": {"type": "tool_other"}}]}, False),
    ],
    ids=str,
)
def test_a_sampling_request_that_uses_tools(params: Any, expected: bool) -> None:
    """The request offers tools, or its messages hold tool calls; null offers none."""
    raw = None if params is None else packed(params)
    assert sampling.uses_tools(raw) is expected
    if raw is not None:  # however it is written
        assert sampling.uses_tools(raw.replace(b"tool_", b"t\\u006fol_")) is expected


def test_the_required_fields_of_a_form_stay() -> None:
    """Only choices of many are removed from `required`."""
    plain = b'{"type":"object","properties":{"a":{"type":"string"}},"required":[ "a" ]}'
    assert forms_of.plain_form(plain) == plain
    choice = packed(form({"c": CHOICE})["requestedSchema"])
    assert "required" not in json.loads(forms_of.plain_form(choice))
    assert json.loads(forms_of.plain_form(packed(form({"c": CHOICE}, ["c"])["requestedSchema"])))["required"] == []
