"""A conversation as plain data: what a client says, step by step. It is made up once, and played as often as wanted."""

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
    """Which `Mcp-Session-Id` a request has."""

    OWN = "own"  # that which the server gave, if it gave one
    NONE = "none"
    WRONG = "wrong"


class Manner(enum.Enum):
    """What a client declares, and answers to questions."""

    NONE = "none"  # no capabilities: every question is refused
    GIVES = "gives"  # all of them: every question is answered
    DECLINES = "declines"  # all of them: every question is declined, or refused


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that the client says.

    Attributes:
        body: a line of a pipe, or the body of a POST.
        wire: the session it belongs to, from 0; a pipe has one.
        headers: of HTTP, besides the session's; "" leaves one out that every request has.
        waits: everything that was asked until now is answered, or too late, before the next step.
    """

    body: str = ""
    verb: Verb = Verb.POST
    wire: int = 0
    session: Session = Session.OWN
    headers: dict[str, str] = {}
    waits: bool = True

    @property
    def begins(self) -> bool:
        """Whether it is one of the two by which a session begins."""
        return any(each.get("method") in ("initialize", "notifications/initialized") for each in decoded(self.body))


class Conversation(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one client says, from the beginning to the end.

    Attributes:
        revision: what it speaks.
        steps: what it says, in order.
        manner: how it answers what it is asked.
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
    """Whether a request may have it for its id."""
    return isinstance(value, str | int) and not isinstance(value, bool)


def capabilities_of(manner: Manner, revision: str) -> Json:
    """What a client declares: whatever the revision has a server ask."""
    if manner is Manner.NONE:
        return {}
    declared: Json = {"sampling": {}, "roots": {}}
    if is_known_modern(revision) or LEGACY[revision].url_elicitation:
        declared["elicitation"] = {"form": {}, "url": {}}
    elif LEGACY[revision].elicitation:
        declared["elicitation"] = {}
    return declared


def envelope(revision: str, manner: Manner = Manner.NONE) -> Json:
    """The `_meta` of a request without session."""
    return {
        META + "protocolVersion": revision,
        META + "clientCapabilities": capabilities_of(manner, revision),
        META + "clientInfo": CLIENT_INFO,
    }


def headers_of(revision: str, message: Json) -> dict[str, str]:
    """What a well-behaved client's POST says in its headers, besides the session."""
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


def said(revision: str, message: Json, **more: Any) -> Step:
    """A message with its ordinary headers."""
    return Step(body=encode(message), headers=headers_of(revision, message), **more)


def request(
    revision: str, id: str | int, method: str, params: Json | None = None, manner: Manner = Manner.NONE, **more: Any
) -> Step:
    params = dict(params or {})
    if is_known_modern(revision):
        params["_meta"] = {**envelope(revision, manner), **params.get("_meta", {})}
    message = {"jsonrpc": "2.0", "id": id, "method": method, **({"params": params} if params else {})}
    return said(revision, message, **more)


def notification(revision: str, method: str, params: Json | None = None, **more: Any) -> Step:
    message = {"jsonrpc": "2.0", "method": method, **({"params": params} if params else {})}
    return said(revision, message, **more)


def handshake(revision: str, wire: int = 0, manner: Manner = Manner.NONE) -> tuple[Step, Step]:
    """The two steps by which a session begins."""
    declared = capabilities_of(manner, revision)
    hello = {"protocolVersion": revision, "capabilities": declared, "clientInfo": CLIENT_INFO}
    return (
        request(revision, f"hello-{wire}", "initialize", hello, wire=wire),
        notification(revision, "notifications/initialized", wire=wire),
    )


def decoded(text: str | bytes) -> list[Json]:
    """The objects that a message is or, as an array, holds."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return []
    return [each for each in (found if isinstance(found, list) else [found]) if isinstance(each, dict)]
