"""Requests of a server to its client, translated between the eras.

A handshake-era server sends a request in the middle of a call and waits for the response. A stateless-era server ends
the call with an `input_required` result, and the client repeats the call with the responses. The three methods are the
same in both eras, so each request crosses unchanged, except for members that belong to the way of asking: ids, tokens,
tasks. An older client gets what its revision can show.

Source: 2026-07-28 basic/patterns/mrtr; 2025-11-25 client/elicitation, client/sampling and client/roots.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from ..base.errors import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, RemoteProtocolError
from ..base.revisions import Features
from ..jsonrpc.envelope import Frame, member_of, text_of
from ..jsonrpc.outline import outline_of
from ..jsonrpc.splice import build_object, insert_members, members, remove_members, set_member, take
from .capabilities import declared, elicitation_mode
from .elicitation import full_content, plain_form
from .input_shapes import CLAUSE, METHODS, check_question
from .input_shapes import check_response as check_response
from .request_meta import strip
from .sampling import older_answer, older_messages

Answer = tuple[Literal["result", "error"], bytes]
"""A member of a JSON-RPC response ("result" or "error"), and its JSON."""

FALLBACKS: Final[dict[str, Answer]] = {
    "elicitation/create": ("result", b'{"action":"cancel"}'),
    "sampling/createMessage": ("error", b'{"code":-1,"message":"Nobody answered"}'),
    "roots/list": ("error", b'{"code":%d,"message":"Nobody answered"}' % INTERNAL_ERROR),
}
"""Responses to a waiting server whose client has gone: what a client sends for a user who turns away."""

REFUSALS: Final[dict[str, Answer]] = {
    "elicitation/create": ("error", b'{"code":%d,"message":"Client cannot be asked that way"}' % INVALID_PARAMS),
    "sampling/createMessage": ("error", b'{"code":%d,"message":"Client has no sampling"}' % METHOD_NOT_FOUND),
    "roots/list": ("error", b'{"code":%d,"message":"Client has no roots"}' % METHOD_NOT_FOUND),
}
"""Responses to a server whose client has not declared the capability: what that client would send itself."""

NOT_ASKED: Final = msgspec.json.encode(
    {"code": METHOD_NOT_FOUND, "message": "the client cannot be asked: it does not offer that"}
)
"""The error for a server whose question has no form that its client could be asked in."""

RETRIED: Final = frozenset({"inputResponses", "requestState"})
"""Members of a request's params that only a retry has, which carries answers."""

RELATED_TASK: Final = "io.modelcontextprotocol/related-task"

_REQUEST_BOUND: Final = frozenset({"task", "elicitationId"})
"""Params that name the server's own request, and mean nothing once it is another request."""
_REQUEST_BOUND_META: Final = frozenset({"progressToken", RELATED_TASK})
"""Keys of `_meta` that name the server's own request."""


class Question(msgspec.Struct, frozen=True):
    """One entry of `inputRequests`. `params` is a JSON object or None."""

    key: str
    method: str
    params: bytes | None


# --- Requests of a handshake-era server, for a stateless-era client -------------------------------------------------


def fallback(method: str) -> Frame:
    """Returns the answer that a server gets to a question that reaches no user: an elicitation is cancelled, as by a
    user who closes the form, and any other question gets an error."""
    kind, body = FALLBACKS.get(method, ("error", NOT_ASKED))
    return Frame(result=body) if kind == "result" else Frame(error=body)


def refusal_of(method: str) -> Frame:
    """Returns the answer that a server gets if the client has not declared the capability that its question needs."""
    _, error = REFUSALS[method]
    return Frame(error=error)


def embed(method: str, params: bytes | None, *, capabilities: bytes | None = None) -> bytes:
    """Returns a server's request as the JSON of an InputRequest.

    Args:
        capabilities: the client's, where known: a hint that the client has not declared to understand is left out.

    Raises:
        RemoteProtocolError: the request lacks members it needs (INVALID_PARAMS).
    """
    assert method in METHODS
    check_question(method, params, INVALID_PARAMS)
    parts = {"method": msgspec.json.encode(method)}
    if params is not None:
        parts["params"] = _without_undeclared_context(method, _without_request_context(params), capabilities)
    return build_object(parts)


def read_responses(params: bytes | None) -> dict[str, bytes]:
    """Returns the `inputResponses` of a retry, each a JSON object; empty if there are none.

    Raises:
        RemoteProtocolError: the `inputResponses` are no object of objects (INVALID_PARAMS).
    """
    raw = member_of(params, "inputResponses")
    if raw is None or raw == b"null":
        return {}
    if not raw.startswith(b"{"):
        raise RemoteProtocolError("got inputResponses that are no object, expected one", rpc_code=INVALID_PARAMS)
    responses = {key: raw[span.start : span.stop] for key, span in members(raw).items()}
    if not all(response.startswith(b"{") for response in responses.values()):
        text = "got an entry of inputResponses that is no object, expected the result of a question"
        raise RemoteProtocolError(text, rpc_code=INVALID_PARAMS)
    return responses


def answer_to_legacy(method: str, response: bytes, server: Features) -> bytes:
    """Translates the response of a stateless-era client into the result that a server of this revision reads."""
    response = remove_members(response, {"resultType"})
    if method != "sampling/createMessage" or server.sampling_tools:
        return response
    return older_answer(response, server)


# --- Requests of a stateless-era server, for a handshake-era client -------------------------------------------------


def is_input_required(result: bytes) -> bool:
    """True if this is an InputRequiredResult. Other results cost no more than a search for the word.

    Raises:
        RemoteProtocolError: a member of the result occurs twice.
    """
    words = outline_of(result)
    if b"input_required" not in words and b"\\u" not in words:
        return False
    return text_of(member_of(result, "resultType")) == "input_required"


def read_questions(result: bytes) -> tuple[tuple[Question, ...], bytes | None]:
    """Returns the questions of an InputRequiredResult in order, and the JSON string of its `requestState`, or None.

    Raises:
        RemoteProtocolError: the result is malformed, or holds a question that cannot be asked (INTERNAL_ERROR).
    """
    state = member_of(result, "requestState")
    entries = member_of(result, "inputRequests")
    state, entries = (None if raw == b"null" else raw for raw in (state, entries))
    if state is None and entries is None:
        raise _unanswerable("neither inputRequests nor requestState", "at least one")
    if state is not None and not state.startswith(b'"'):
        raise _unanswerable("a requestState that is no string", "a string")
    if entries is None:
        return (), state
    if not entries.startswith(b"{"):
        raise _unanswerable("inputRequests that are no object", "one")
    questions = [_question(key, entries[span.start : span.stop]) for key, span in members(entries).items()]
    return tuple(questions), state


def retried(params: bytes | None, answers: Mapping[str, bytes], state_raw: bytes | None) -> bytes:
    """Returns the params of the next try: those of the first, with the answers and the state of this round only."""
    parts: dict[str, bytes] = {}
    if answers:
        parts["inputResponses"] = build_object(answers)
    if state_raw is not None:
        parts["requestState"] = state_raw
    return insert_members(remove_members(params or b"{}", {"inputResponses", "requestState"}), parts)


def shown(
    question_method: str,
    params: bytes | None,
    client: Features,
    *,
    elicitation_id: str | None = None,
    capabilities: bytes | None = None,
) -> bytes | None:
    """Returns the params of the server request that a handshake-era client gets.

    Args:
        client: the client's revision.
        elicitation_id: for an elicitation in `url` mode, which needs an id in 2025-11-25.
        capabilities: the client's, where known: a hint that the client has not declared to understand is left out.

    Raises:
        RemoteProtocolError: the elicitation has a mode that the client's revision does not have (INTERNAL_ERROR).
    """
    if params is None:
        return None
    bare = _without_request_context(strip(params) or b"{}")
    if elicitation_id is not None and question_method == "elicitation/create" and elicitation_mode(bare) == "url":
        bare = set_member(bare, "elicitationId", msgspec.json.encode(elicitation_id))
    allowed = _without_undeclared_context(question_method, bare, capabilities if client.sampling_tools else None)
    return to_older(question_method, allowed, client)


def to_older(method: str, params: bytes, client: Features) -> bytes:
    """Returns a server request's params as the client's revision can show them.

    Members that belong to the way of asking stay, so this serves servers of either era.

    Raises:
        RemoteProtocolError: the elicitation has a mode that the client's revision does not have (INTERNAL_ERROR).
    """
    if method == "sampling/createMessage" and not client.sampling_tools:
        return older_messages(params, client)
    if method != "elicitation/create" or client.rich_forms:
        return params
    if elicitation_mode(params) != "form":
        raise _unanswerable("a page to visit for a client that knows only forms", "a form")
    params = remove_members(params, {"mode"})
    schema = member_of(params, "requestedSchema")
    if schema is None or not schema.startswith(b"{"):
        return params
    return set_member(params, "requestedSchema", plain_form(schema))


def answered(method: str, params: bytes | None, client: Features, answer: bytes) -> bytes:
    """Translates a handshake-era client's result into the answer to a question with these params.

    Raises:
        RemoteProtocolError: the result is no answer to that question (INVALID_PARAMS).
    """
    check_response(method, answer)
    if method != "elicitation/create" or client.rich_forms or text_of(member_of(answer, "action")) != "accept":
        return answer
    schema, content = member_of(params, "requestedSchema"), member_of(answer, "content")
    if schema is None or not schema.startswith(b"{"):
        return answer
    filled = content if content is not None and content != b"null" else b"{}"
    full = full_content(schema, filled)
    return answer if full == filled else set_member(answer, "content", full)


def _question(key: str, entry: bytes) -> Question:
    if not entry.startswith(b"{"):
        raise _unanswerable("a question that is no object", "one")
    spans = members(entry)
    method, params = text_of(take(entry, spans.get("method"))), take(entry, spans.get("params"))
    if method not in METHODS:
        raise _unanswerable("a question of another method", "one of " + ", ".join(sorted(METHODS)))
    params = None if params == b"null" else params
    check_question(method, params, INTERNAL_ERROR)
    return Question(key, method, params)


def _without_request_context(params: bytes) -> bytes:
    """Removes the members that belong to the request in which the question came."""
    params = remove_members(params, _REQUEST_BOUND)
    meta = member_of(params, "_meta")
    if meta is None or not meta.startswith(b"{"):
        return params
    kept = remove_members(meta, _REQUEST_BOUND_META)
    if kept == meta:
        return params
    return set_member(params, "_meta", kept) if members(kept) else remove_members(params, {"_meta"})


def _without_undeclared_context(method: str, params: bytes, capabilities: bytes | None) -> bytes:
    """Removes a wish for context that the client has not declared.

    2026-07-28 client/sampling: servers "SHOULD avoid" such wishes.
    """
    if method != "sampling/createMessage" or capabilities is None or declared(capabilities, "sampling", "context"):
        return params
    wants_context = text_of(member_of(params, "includeContext")) != "none"
    return remove_members(params, {"includeContext"}) if wants_context else params


def _unanswerable(seen: str, expected: str) -> RemoteProtocolError:
    return RemoteProtocolError(f"got {seen} in a result, expected {expected}", rpc_code=INTERNAL_ERROR, clause=CLAUSE)
