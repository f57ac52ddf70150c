"""The members that server requests and their answers must have, and the words of refusals."""

from __future__ import annotations

import json
from typing import Any

import pytest
from each_row import each_row
from isthmus.core.base.errors import INTERNAL_ERROR, INVALID_PARAMS, RemoteProtocolError
from isthmus.core.base.revisions import features_of
from isthmus.core.bridge.input_requests import answered
from isthmus.core.bridge.input_shapes import METHODS, REQUIRED, check_question, check_response

CLAUSE = "2026-07-28 basic/patterns/mrtr"
VALUES = {"array": b"[]", "object": b"{}", "string": b'"s"', "number": b"-1.5", "true": b"true", "null": b"null"}
NEEDED = {  # by kind of question: what it must have, and of which type
    "sampling/createMessage": {"messages": "array", "maxTokens": "number"},
    "elicitation/create": {"message": "string", "requestedSchema": "object"},
    "elicitation/create form": {"message": "string", "requestedSchema": "object"},
    "elicitation/create url": {"message": "string", "url": "string"},
    "roots/list": {},
}


def params_of(kind: str, **changed: bytes | None) -> bytes:
    parts: dict[str, bytes | None] = {name: VALUES[type_] for name, type_ in NEEDED[kind].items()} | changed
    mode = kind.partition(" ")[2]
    if mode:
        parts["mode"] = json.dumps(mode).encode()
    return b"{" + b",".join(b'"%b":%b' % (name.encode(), raw) for name, raw in parts.items() if raw is not None) + b"}"


def fault(method: str, params: bytes | None, code: int = INVALID_PARAMS) -> str:
    with pytest.raises(RemoteProtocolError) as caught:
        check_question(method, params, code)
    assert (caught.value.rpc_code, caught.value.clause) == (code, CLAUSE)
    return caught.value.message


# --- Server requests --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [INVALID_PARAMS, INTERNAL_ERROR])
@pytest.mark.parametrize("kind", NEEDED)
def test_a_server_request_has_the_members_of_its_kind(kind: str, code: int) -> None:
    """A member that is missing, or of another type, is refused by its name."""
    method = kind.partition(" ")[0]
    check_question(method, params_of(kind), code)
    check_question(method, params_of(kind, other=b"5", _meta=b"{}"), code)
    for name, type_ in NEEDED[kind].items():
        for seen, raw in [*VALUES.items(), ("nothing", None)]:
            if seen == type_:
                continue
            text = fault(method, params_of(kind, **{name: raw}), code)
            assert text == f"got {method} without a usable {name}, expected a question as its schema has it"


@pytest.mark.parametrize("raw", [b"0", b"9", b"-1", b"1e3", b"1.5"])
def test_a_number_may_be_any(raw: bytes) -> None:
    check_question("sampling/createMessage", params_of("sampling/createMessage", maxTokens=raw), INVALID_PARAMS)


@pytest.mark.parametrize("mode", ["", "Form", "page", 5, None, "formQ", "Q"])
def test_an_unknown_mode_is_refused(mode: Any) -> None:
    """Only an absent mode means a form."""
    raw = params_of("elicitation/create", mode=json.dumps(mode).encode())
    seen = "elicitation/create with a mode that is neither form nor url"
    assert fault("elicitation/create", raw) == f"got {seen}, expected a question as its schema has it"


@pytest.mark.parametrize("method", sorted(METHODS))
@pytest.mark.parametrize("params", [b"[]", b"5", b"null", b'"x"', b""])
def test_params_are_an_object(method: str, params: bytes) -> None:
    text = f"got params of {method} that are no object, expected a question as its schema has it"
    assert fault(method, params) == text


def test_only_roots_may_be_requested_without_params() -> None:
    check_question("roots/list", None, INVALID_PARAMS)
    check_question("roots/list", b"{}", INVALID_PARAMS)
    assert "without a usable messages" in fault("sampling/createMessage", None)
    assert "without a usable message," in fault("elicitation/create", None)


def test_the_kinds_are_those_of_the_methods() -> None:
    assert {kind.partition(" ")[0] for kind in REQUIRED} == METHODS
    assert {"sampling/createMessage", "elicitation/create", "roots/list"} == METHODS


# --- Answers ----------------------------------------------------------------------------------------------------------

TEXT = {"type": "text", "text": "x"}
MODEL = {"role": "assistant", "model": "m", "content": TEXT}


@each_row(
    ("method", "answer", "seen"),
    [
        *((method, raw, "that is no object") for method in sorted(METHODS) for raw in ([], 5, None, "x")),
        ("elicitation/create", {}, "without an action"),
        ("elicitation/create", {"action": None}, "without an action"),
        ("elicitation/create", {"action": "acceptQ"}, "without an action"),
        *(("elicitation/create", {"action": action}, "") for action in ("accept", "decline", "cancel")),
        ("elicitation/create", {"action": "accept", "content": None}, ""),
        ("elicitation/create", {"action": "accept", "content": {}}, ""),
        ("elicitation/create", {"action": "accept", "content": []}, "with content that is no object"),
        ("elicitation/create", {"action": "accept", "content": "x"}, "with content that is no object"),
        *(
            ("elicitation/create", {"action": "accept", "content": {"a": value, "b": 1}}, "")
            for value in ("x", 1, -1.5, True, False, None, [], ["x"])
        ),
        ("elicitation/create", {"action": "accept", "content": {"a": 1, "b": {}}}, "with an object in its content"),
        ("sampling/createMessage", MODEL, ""),
        ("sampling/createMessage", MODEL | {"role": "user"}, ""),
        ("sampling/createMessage", MODEL | {"role": "system"}, "without a role"),
        ("sampling/createMessage", {"model": "m", "content": TEXT}, "without a role"),
        ("sampling/createMessage", {"role": "user", "content": TEXT}, "without a model"),
        ("sampling/createMessage", MODEL | {"model": 5}, "without a model"),
        ("sampling/createMessage", MODEL | {"model": ""}, ""),
        ("sampling/createMessage", {"role": "user", "model": "m"}, "without content"),
        ("sampling/createMessage", MODEL | {"content": "x"}, "without content"),
        ("sampling/createMessage", MODEL | {"content": None}, "without content"),
        ("sampling/createMessage", MODEL | {"content": [TEXT, TEXT]}, ""),
        ("sampling/createMessage", MODEL | {"content": []}, ""),
        ("sampling/createMessage", MODEL | {"content": {}}, "with content that has no type"),
        ("sampling/createMessage", MODEL | {"content": [TEXT, {"type": 5}]}, "with content that has no type"),
        ("roots/list", {"roots": []}, ""),
        ("roots/list", {"roots": [{"uri": "a"}, {"uri": ""}]}, ""),
        ("roots/list", {}, "without roots"),
        ("roots/list", {"roots": None}, "without roots"),
        ("roots/list", {"roots": {}}, "without roots"),
        ("roots/list", {"roots": [{"uri": "a"}, {"name": "b"}]}, "with a root nowhere"),
        ("roots/list", {"roots": [{"uri": 5}]}, "with a root nowhere"),
    ],
)
def test_an_answer_has_the_members_that_its_reader_needs(method: str, answer: Any, seen: str) -> None:
    raw = json.dumps(answer).encode()
    if not seen:
        check_response(method, raw)
        return
    with pytest.raises(RemoteProtocolError) as caught:
        check_response(method, raw)
    assert caught.value.message == f"got an answer to {method} {seen}, expected a result of that method"
    assert (caught.value.rpc_code, caught.value.clause) == (INVALID_PARAMS, CLAUSE)


# --- Forms that were filled in ----------------------------------------------------------------------------------------

CHOICE = {"type": "array", "items": {"enum": ["x", "y"]}}
SCHEMA = {"type": "object", "properties": {"a": CHOICE}, "required": ["a"]}


@pytest.mark.parametrize("content", [{}, None, "absent"])
@pytest.mark.parametrize("action", ["accept", "decline", "cancel"])
@pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25"])
def test_a_form_that_was_left_empty_is_put_together(content: Any, action: str, revision: str) -> None:
    """An accepted form without content, on a client that got a plainer form, is completed with an empty choice."""
    answer = {"action": action} | ({} if content == "absent" else {"content": content})
    raw = json.dumps(answer).encode()
    params = json.dumps({"message": "m", "requestedSchema": SCHEMA}).encode()
    found = answered("elicitation/create", params, features_of(revision), raw)
    if action == "accept" and revision == "2025-06-18":
        assert json.loads(found) == {"action": "accept", "content": {"a": []}}
    else:
        assert found == raw


@pytest.mark.parametrize("schema", [None, 5, "absent"])
def test_an_answer_without_a_schema_is_unchanged(schema: Any) -> None:
    params = json.dumps({"message": "m"} | ({} if schema == "absent" else {"requestedSchema": schema})).encode()
    raw = b'{"action":"accept","content":null}'
    assert answered("elicitation/create", params, features_of("2025-06-18"), raw) == raw
