"""A conversation as plain data: what a client says, step by step. It is made up once, and played as often as wanted."""

from __future__ import annotations

import base64
import enum
import json
from typing import Any, Final

import msgspec

from ...core.eras import LEGACY, MODERN, is_known_modern
from ...core.oracle.methods import NAMED
from ...core.oracle.observations import Verb

REVISIONS: Final = (*LEGACY, *MODERN)
CLIENT_INFO: Final = {"name": "isthmus-conform", "version": "1"}
META: Final = "io.modelcontextprotocol/"
ACCEPT: Final = "application/json, text/event-stream"
Json = dict[str, Any]


class Session(enum.Enum):
    """Which `Mcp-Session-Id` a request has."""

    OWN = "own"  # that which the server gave, if it gave one
    NONE = "none"
    WRONG = "wrong"


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


class Conversation(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one client says, from the beginning to the end.

    Attributes:
        revision: what it speaks.
        steps: what it says, in order.
    """

    revision: str
    steps: tuple[Step, ...]

    @property
    def is_stateless(self) -> bool:
        return is_known_modern(self.revision)


def encode(message: object) -> str:
    return json.dumps(message, ensure_ascii=False, separators=(",", ":"))


def envelope(revision: str) -> Json:
    """The `_meta` of a request without session."""
    return {
        META + "protocolVersion": revision,
        META + "clientCapabilities": {},
        META + "clientInfo": CLIENT_INFO,
    }


def headers_of(revision: str, message: Json) -> dict[str, str]:
    """What a well-behaved client's POST says in its headers, besides the session."""
    method = message.get("method")
    if is_known_modern(revision):
        headers = {"MCP-Protocol-Version": revision}
        if isinstance(method, str):
            headers["Mcp-Method"] = method
            name = message.get("params", {}).get(NAMED.get(method, ""))
            if isinstance(name, str):
                headers["Mcp-Name"] = name if name.isascii() and name.isprintable() else _in_base64(name)
        return headers
    if LEGACY[revision].version_header and method != "initialize":
        return {"MCP-Protocol-Version": revision}
    return {}


def _in_base64(text: str) -> str:
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


def said(revision: str, message: Json, **more: Any) -> Step:
    """A message with its ordinary headers."""
    return Step(body=encode(message), headers=headers_of(revision, message), **more)


def request(revision: str, id: str | int, method: str, params: Json | None = None, **more: Any) -> Step:
    params = dict(params or {})
    if is_known_modern(revision):
        params["_meta"] = {**envelope(revision), **params.get("_meta", {})}
    message = {"jsonrpc": "2.0", "id": id, "method": method, **({"params": params} if params else {})}
    return said(revision, message, **more)


def notification(revision: str, method: str, params: Json | None = None, **more: Any) -> Step:
    message = {"jsonrpc": "2.0", "method": method, **({"params": params} if params else {})}
    return said(revision, message, **more)


def handshake(revision: str, wire: int = 0) -> tuple[Step, Step]:
    """The two steps by which a session begins."""
    hello = {"protocolVersion": revision, "capabilities": {}, "clientInfo": CLIENT_INFO}
    return (
        request(revision, f"hello-{wire}", "initialize", hello, wire=wire),
        notification(revision, "notifications/initialized", wire=wire),
    )


def pruned(conversation: Conversation, number: int) -> Conversation | None:
    """A conversation without a step; None if it is of the handshake of a session in which more is said."""
    steps = conversation.steps
    own = [index for index, step in enumerate(steps) if step.wire == steps[number].wire]
    greeting = {
        next((index for index in own if _says(steps[index], method)), None)
        for method in ("initialize", "notifications/initialized")
    }
    if number in greeting and set(own) - greeting:
        return None
    return Conversation(conversation.revision, (*steps[:number], *steps[number + 1 :]))


def _says(step: Step, method: str) -> bool:
    return any(message.get("method") == method for message in decoded(step.body))


def decoded(text: str | bytes) -> list[Json]:
    """The objects that a message is or, as an array, holds."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return []
    return [each for each in (found if isinstance(found, list) else [found]) if isinstance(each, dict)]
