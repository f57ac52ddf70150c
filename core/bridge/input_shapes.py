"""Checks of the params of server requests, and of their responses: only for members that their readers rely on.

Source: the schemas of `sampling/createMessage`, `elicitation/create` and `roots/list`, which hardly differ by revision.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from ..base.errors import INVALID_PARAMS, RemoteProtocolError
from ..jsonrpc.envelope import member_of, text_of
from ..jsonrpc.splice import items_of, members, take
from .sampling import blocks_of

METHODS: Final = frozenset({"sampling/createMessage", "elicitation/create", "roots/list"})
"""The methods that `input_required` may contain (2026-07-28 basic/patterns/mrtr, "InputRequests")."""

CLAUSE: Final = "2026-07-28 basic/patterns/mrtr"

ACTIONS: Final = frozenset({"accept", "decline", "cancel"})

_NUMBER: Final = re.compile(rb"-?[0-9]")
_ARRAY: Final = re.compile(rb"\[")
_OBJECT: Final = re.compile(rb"\{")
_STRING: Final = re.compile(rb'"')
_SCALAR: Final = re.compile(rb'["\[tfn0-9-]')

REQUIRED: Final[dict[str, dict[str, re.Pattern[bytes]]]] = {
    "sampling/createMessage": {"messages": _ARRAY, "maxTokens": _NUMBER},
    "elicitation/create form": {"message": _STRING, "requestedSchema": _OBJECT},
    "elicitation/create url": {"message": _STRING, "url": _STRING},
    "roots/list": {},
}
"""The members that each question's params must have, and the pattern of the first bytes of their JSON. One bad question
spoils all others in the same result: clients read them together."""


def check_question(method: str, params: bytes | None, rpc_code: int) -> None:
    """Checks that the params have what the question needs.

    Raises:
        RemoteProtocolError: a member is missing or has the wrong type. Its code is `rpc_code`.
    """
    if params is not None and not params.startswith(b"{"):
        raise _lacking(f"params of {method} that are no object", rpc_code)
    spans = {} if params is None else members(params)
    kind = method
    if method == "elicitation/create":
        mode = take(params or b"{}", spans.get("mode"))
        kind += " " + ("form" if mode is None else text_of(mode) or "")
        if kind not in REQUIRED:
            raise _lacking(f"{method} with a mode that is neither form nor url", rpc_code)
    for name, beginning in REQUIRED[kind].items():
        if beginning.match(take(params or b"{}", spans.get(name)) or b"") is None:
            raise _lacking(f"{method} without a usable {name}", rpc_code)


def check_response(method: str, response: bytes) -> None:
    """Checks that `response` is a result of this method. It may have further members.

    Raises:
        RemoteProtocolError: `response` is no such result (INVALID_PARAMS).
    """
    seen = _FAULTS[method](response) if response.startswith(b"{") else "that is no object"
    if seen:
        text = f"got an answer to {method} {seen}, expected a result of that method"
        raise RemoteProtocolError(text, rpc_code=INVALID_PARAMS, clause=CLAUSE)


def _elicit_fault(result: bytes) -> str:
    if text_of(member_of(result, "action")) not in ACTIONS:
        return "without an action"
    content = member_of(result, "content")
    if content is None or content == b"null":
        return ""
    if not content.startswith(b"{"):
        return "with content that is no object"
    values = [content[span.start : span.stop] for span in members(content).values()]
    return "" if all(_SCALAR.match(value) for value in values) else "with an object in its content"


def _sampling_fault(result: bytes) -> str:
    if text_of(member_of(result, "role")) not in ("user", "assistant"):
        return "without a role"
    if not (member_of(result, "model") or b"").startswith(b'"'):
        return "without a model"
    content = member_of(result, "content")
    if content is None or not content.startswith((b"{", b"[")):
        return "without content"
    are_blocks = all(text_of(member_of(block, "type")) is not None for block in blocks_of(result))
    return "" if are_blocks else "with content that has no type"


def _roots_fault(result: bytes) -> str:
    roots = member_of(result, "roots")
    if roots is None or not roots.startswith(b"["):
        return "without roots"
    return "" if all(text_of(member_of(root, "uri")) is not None for root in items_of(roots)) else "with a root nowhere"


_FAULTS: Final[dict[str, Callable[[bytes], str]]] = {
    "elicitation/create": _elicit_fault,
    "sampling/createMessage": _sampling_fault,
    "roots/list": _roots_fault,
}


def _lacking(seen: str, rpc_code: int) -> RemoteProtocolError:
    return RemoteProtocolError(
        f"got {seen}, expected a question as its schema has it", rpc_code=rpc_code, clause=CLAUSE
    )
