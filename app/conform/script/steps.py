"""The conversation of a scripted client, step by step, as plain data that can be recorded and played again."""

from __future__ import annotations

import base64
import enum
import json
from typing import Any, Final, TypeGuard

import msgspec

from ....core.base.revisions import LEGACY, MODERN, is_known_modern
from ....core.oracle.methods import NAMED
from ....core.oracle.observations import Verb

REVISIONS: Final = (*LEGACY, *MODERN)
CLIENT_INFO: Final = {"name": "isthmus-conform", "version": "1"}
META: Final = "io.modelcontextprotocol/"
ACCEPT: Final = "application/json, text/event-stream"
VERSION_HEADER: Final = "MCP-Protocol-Version"
Json = dict[str, Any]


class Session(enum.Enum):
    """The `Mcp-Session-Id` of a request."""

    OWN = "own"  # the id that the server gave, if any
    NONE = "none"
    WRONG = "wrong"


class Manner(enum.Enum):
    """The capabilities of a client, and its answers to server requests."""

    NONE = "none"  # no capabilities: refuses every server request
    GIVES = "gives"  # all capabilities: answers every server request
    DECLINES = "declines"  # all capabilities: declines or refuses every server request


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message or HTTP request of the client.

    Attributes:
        body: a line of a pipe, or the body of a POST.
        verb: the HTTP method.
        wire: the number of the session that it belongs to, from 0; a pipe has one session.
        session: the session id to send.
        headers: HTTP headers besides the session's; "" leaves out one that every request has.
        waits: wait until all requests so far are answered or timed out, before the next step.
    """

    body: str = ""
    verb: Verb = Verb.POST
    wire: int = 0
    session: Session = Session.OWN
    headers: dict[str, str] = {}
    waits: bool = True

    @property
    def begins(self) -> bool:
        """True for the two steps of the handshake."""
        return any(each.get("method") in ("initialize", "notifications/initialized") for each in decoded(self.body))


class Conversation(msgspec.Struct, frozen=True, omit_defaults=True):
    """All that one scripted client does.

    Attributes:
        revision: the revision that it speaks.
        steps: its messages, in order.
        manner: its capabilities, and its answers to server requests.
    """

    revision: str
    steps: tuple[Step, ...]
    manner: Manner = Manner.NONE

    @property
    def is_stateless(self) -> bool:
        return is_known_modern(self.revision)


def encode(message: object) -> str:
    return json.dumps(message, ensure_ascii=False, separators=(",", ":"))


def is_id(value: object) -> TypeGuard[str | int]:
    """True if `value` is a valid request id."""
    return isinstance(value, str | int) and not isinstance(value, bool)


def capabilities_of(manner: Manner, revision: str) -> Json:
    """Returns the capabilities of a client: all that the revision has for server requests, or none."""
    if manner is Manner.NONE:
        return {}
    declared: Json = {"sampling": {}, "roots": {}}
    if is_known_modern(revision) or LEGACY[revision].url_elicitation:
        declared["elicitation"] = {"form": {}, "url": {}}
    elif LEGACY[revision].elicitation:
        declared["elicitation"] = {}
    return declared


def envelope(revision: str, manner: Manner = Manner.NONE) -> Json:
    """Returns the `_meta` of a request of the stateless era."""
    return {
        META + "protocolVersion": revision,
        META + "clientCapabilities": capabilities_of(manner, revision),
        META + "clientInfo": CLIENT_INFO,
    }


def headers_of(revision: str, message: Json) -> dict[str, str]:
    """Returns the headers of a correct client's POST, besides the session."""
    method = message.get("method")
    if is_known_modern(revision):
        headers = {VERSION_HEADER: revision}
        if isinstance(method, str):
            headers["Mcp-Method"] = method
            params = message.get("params")
            name = params.get(NAMED.get(method, "")) if isinstance(params, dict) else None
            if isinstance(name, str):
                headers["Mcp-Name"] = name if name.isascii() and name.isprintable() else _in_base64(name)
        return headers
    if LEGACY[revision].version_header and method != "initialize":
        return {VERSION_HEADER: revision}
    return {}


def _in_base64(text: str) -> str:
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


def step_of(revision: str, message: Json, **more: Any) -> Step:
    """Returns the step that sends a message with its usual headers."""
    return Step(body=encode(message), headers=headers_of(revision, message), **more)


def request(
    revision: str, id: str | int, method: str, params: Json | None = None, manner: Manner = Manner.NONE, **more: Any
) -> Step:
    params = dict(params or {})
    if is_known_modern(revision):
        params["_meta"] = {**envelope(revision, manner), **params.get("_meta", {})}
    message = {"jsonrpc": "2.0", "id": id, "method": method, **({"params": params} if params else {})}
    return step_of(revision, message, **more)


def notification(revision: str, method: str, params: Json | None = None, **more: Any) -> Step:
    message = {"jsonrpc": "2.0", "method": method, **({"params": params} if params else {})}
    return step_of(revision, message, **more)


def handshake(revision: str, wire: int = 0, manner: Manner = Manner.NONE) -> tuple[Step, Step]:
    """Returns the two steps of the handshake."""
    declared = capabilities_of(manner, revision)
    initialize_params = {"protocolVersion": revision, "capabilities": declared, "clientInfo": CLIENT_INFO}
    return (
        request(revision, f"hello-{wire}", "initialize", initialize_params, wire=wire),
        notification(revision, "notifications/initialized", wire=wire),
    )


def decoded(text: str | bytes) -> list[Json]:
    """Returns the JSON objects in a message: itself, or the items of an array; empty if it is not JSON."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return []
    return [each for each in (found if isinstance(found, list) else [found]) if isinstance(each, dict)]
