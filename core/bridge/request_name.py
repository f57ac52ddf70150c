"""The name in a request: of the tool, the prompt, the resource or the task that it is about.

A rule by names holds only if it sees the name that the server sees. Parsers disagree about an object with a member
twice, and some read members without regard to case. Such a name counts as unreadable, like one that is no text.
"""

from __future__ import annotations

from typing import Final

from ..base.errors import INVALID_PARAMS, RemoteProtocolError
from ..jsonrpc.envelope import text_of
from ..jsonrpc.splice import members, take

NAMED_BY: Final = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "resources/subscribe": "uri",
    "resources/unsubscribe": "uri",
    "tasks/get": "taskId",
    "tasks/result": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
"""The member of the params that holds the name, by method."""
REFERENCED_BY: Final = {"ref/prompt": "name", "ref/resource": "uri"}
"""The member of the `ref` of `completion/complete` that holds the name, by its type."""


def name_in(method: str, params: bytes | None) -> str | None:
    """Returns the name in a request; None for a method that names nothing.

    Raises:
        RemoteProtocolError: the method names something, and the name cannot be read (INVALID_PARAMS).
    """
    member: str | None
    if method == "completion/complete":
        holder = sole_member(params, "ref")
        member = REFERENCED_BY.get(text_of(sole_member(holder, "type")) or "")
    else:
        holder, member = params, NAMED_BY.get(method)
        if member is None:
            return None
    name = None if member is None else text_of(sole_member(holder, member))
    if name is None:
        text = f"got {method} without a {member or 'ref'} that can be read, expected exactly one"
        raise RemoteProtocolError(text, rpc_code=INVALID_PARAMS)
    return name


def sole_member(data: bytes | None, key: str) -> bytes | None:
    """Returns the JSON of an object's member. None if it is missing or ambiguous: there twice, or also in another case,
    since some servers read members without regard to case."""
    if data is None or not data.startswith(b"{"):
        return None
    try:
        spans = members(data)
    except RemoteProtocolError:
        return None
    if any(other != key and other.casefold() == key.casefold() for other in spans):
        return None
    return take(data, spans.get(key))
