"""What a server asks of its client while it works: a request of its own in a handshake, a part of the result after it.

A handshake server asks in the middle of a call and waits. A modern one ends the call with `input_required`, and is
called again with the answers. The questions are the same three, so each is carried over as it is, but for what belongs
to the way of asking: ids, tokens, tasks. An older client is shown what its revision can show.

Source: 2026-07-28 basic/patterns/mrtr; 2025-11-25 client/elicitation, client/sampling and client/roots.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from ..base.errors import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, RemoteProtocolError
from ..base.revisions import Features
from ..jsonrpc.envelope import member_of, text_of
from ..jsonrpc.splice import build_object, insert_members, members, remove_members, set_member, take
from .capabilities import declared, elicitation_mode
from .elicitation import full_content, plain_form
from .input_shapes import CLAUSE, METHODS, check_question
from .input_shapes import check_response as check_response
from .request_meta import strip
from .sampling import older_answer, older_messages

Answer = tuple[Literal["result", "error"], bytes]
"""Which member of a JSON-RPC response, and its JSON."""

FALLBACKS: Final[dict[str, Answer]] = {
    "elicitation/create": ("result", b'{"action":"cancel"}'),
    "sampling/createMessage": ("error", b'{"code":-1,"message":"Nobody answered"}'),
    "roots/list": ("error", b'{"code":%d,"message":"Nobody answered"}' % INTERNAL_ERROR),
}
"""What a waiting server is told when its client has gone: what it would hear from a user who turns away."""

REFUSALS: Final[dict[str, Answer]] = {
    "elicitation/create": ("error", b'{"code":%d,"message":"Client cannot be asked that way"}' % INVALID_PARAMS),
    "sampling/createMessage": ("error", b'{"code":%d,"message":"Client has no sampling"}' % METHOD_NOT_FOUND),
    "roots/list": ("error", b'{"code":%d,"message":"Client has no roots"}' % METHOD_NOT_FOUND),
}
"""What a server is told whose client has not declared the capability: what that client would answer itself."""

RELATED_TASK: Final = "io.modelcontextprotocol/related-task"

_OF_THE_ASKING: Final = frozenset({"task", "elicitationId"})
_OF_THE_ASKING_META: Final = frozenset({"progressToken", RELATED_TASK})
"""Parts of a question that name its own request, and mean nothing once that is another."""


class Question(msgspec.Struct, frozen=True):
    """One entry of `inputRequests`. `params` is a JSON object or None."""

    key: str
    method: str
    params: bytes | None


# --- A handshake server's question for a modern client --------------------------------------------------------------


def embed(method: str, params: bytes | None, *, capabilities: bytes | None = None) -> bytes:
    """A server's request as the JSON of an InputRequest.

    Args:
        capabilities: the client's, where known: a hint it has not declared to understand is left out.

    Raises:
        RemoteProtocolError: the question lacks what it needs (INVALID_PARAMS).
    """
    assert method in METHODS
    check_question(method, params, INVALID_PARAMS)
    parts = {"method": msgspec.json.encode(method)}
    if params is not None:
        parts["params"] = _hinted(method, _bared(params), capabilities)
    return build_object(parts)


def read_responses(params: bytes | None) -> dict[str, bytes]:
    """The `inputResponses` of a retry, each a JSON object; empty if there are none.

    Raises:
        RemoteProtocolError: they are no object of objects (INVALID_PARAMS).
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
    """A modern client's answer as the result a server of this revision reads."""
    response = remove_members(response, {"resultType"})
    if method != "sampling/createMessage" or server.sampling_tools:
        return response
    return older_answer(response, server)


# --- A modern server's question for a handshake client --------------------------------------------------------------


def is_input_required(result: bytes) -> bool:
    """Whether this is an InputRequiredResult. Results that do not hold the word cost no more than a search for it.

    Raises:
        RemoteProtocolError: a member of the result occurs twice.
    """
    if b"input_required" not in result and b"\\u" not in result:
        return False
    return text_of(member_of(result, "resultType")) == "input_required"


def read_questions(result: bytes) -> tuple[tuple[Question, ...], bytes | None]:
    """The questions of an InputRequiredResult in order, and the JSON string of its `requestState`, or None.

    Raises:
        RemoteProtocolError: it is malformed, or asks what cannot be asked (INTERNAL_ERROR).
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
    """The params of the next try: those of the first, with the answers and the state of this round only."""
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
    """The params with which a handshake client is asked.

    Args:
        client: its revision.
        elicitation_id: for a page to visit, which in 2025-11-25 has a name.
        capabilities: the client's, where known: a hint it has not declared to understand is left out.

    Raises:
        RemoteProtocolError: it would have to visit a page, and its revision has no word for that (INTERNAL_ERROR).
    """
    if params is None:
        return None
    bared = _bared(strip(params) or b"{}")
    if elicitation_id is not None and question_method == "elicitation/create" and elicitation_mode(bared) == "url":
        bared = set_member(bared, "elicitationId", msgspec.json.encode(elicitation_id))
    hinted = _hinted(question_method, bared, capabilities if client.sampling_tools else None)
    return to_older(question_method, hinted, client)


def to_older(method: str, params: bytes, client: Features) -> bytes:
    """A question as the client's revision can show it, whoever asks; all that belongs to the asking stays.

    Raises:
        RemoteProtocolError: as `shown` does.
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
    """A handshake client's result as the answer to the question its server asked, whose params these are.

    Raises:
        RemoteProtocolError: it is no answer to that (INVALID_PARAMS).
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


def _bared(params: bytes) -> bytes:
    """A question without what belongs to the request it came in."""
    params = remove_members(params, _OF_THE_ASKING)
    meta = member_of(params, "_meta")
    if meta is None or not meta.startswith(b"{"):
        return params
    kept = remove_members(meta, _OF_THE_ASKING_META)
    if kept == meta:
        return params
    return set_member(params, "_meta", kept) if members(kept) else remove_members(params, {"_meta"})


def _hinted(method: str, params: bytes, capabilities: bytes | None) -> bytes:
    """2026-07-28 client/sampling: servers "SHOULD avoid" wishes for context that the client has not declared."""
    if method != "sampling/createMessage" or capabilities is None or declared(capabilities, "sampling", "context"):
        return params
    is_wish = text_of(member_of(params, "includeContext")) != "none"
    return remove_members(params, {"includeContext"}) if is_wish else params


def _unanswerable(seen: str, expected: str) -> RemoteProtocolError:
    return RemoteProtocolError(f"got {seen} in a result, expected {expected}", rpc_code=INTERNAL_ERROR, clause=CLAUSE)
