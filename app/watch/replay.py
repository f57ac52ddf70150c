"""Sends a recorded request of a client once more, in a session of the proxy's own, to compare the results."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import anyio
import msgspec

from ...core.access.identity import Identity
from ...core.base.errors import RemoteProtocolError
from ...core.base.limits import Limits
from ...core.jsonrpc import envelope
from ...core.jsonrpc.splice import remove_members
from ...core.wire.http.error_responses import page_answer, page_error
from ...core.wire.http.routes import Refused
from ..runtime.own_sessions import OwnSessions, Refusal
from .records import MessageRecord
from .redaction import REDACTED
from .watching import Watching

REPEATED: Final = frozenset(
    {"tools/call", "prompts/get", "resources/read", "completion/complete", "tools/list", "prompts/list"}
) | {"resources/list", "resources/templates/list"}
"""The methods that can be repeated: the others set something in the session of their client."""


class _Order(msgspec.Struct):
    message: int
    server: str = ""


class Replays:
    """The requests that are sent once more.

    Args:
        own_sessions: the sessions in which they are sent; None: there are none, as nothing else listens.
        servers: the ids that they may be sent to.
    """

    def __init__(self, watching: Watching, own_sessions: OwnSessions, servers: Collection[str], limits: Limits) -> None:
        self._watching = watching
        self._own_sessions = own_sessions
        self._servers = servers
        self._limits = limits

    async def answer(self, body: bytes, identity: Identity) -> Refused:
        """Sends a request again, and returns both results: `{"result" or "error", "ms", "recorded"}`."""
        try:
            order = msgspec.json.decode(body, type=_Order)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return page_error(400, f"got a body that is no order ({error}), expected message and server as JSON")
        found = self._watching.message(order.message)
        if found is None:
            return page_error(409, f"the message {order.message} is not kept any more")
        record, kept = found
        server = order.server or record.server
        if why := _why_not(record, kept.data):
            return page_error(409, f"the message {order.message} cannot be repeated: {why}")
        if server not in self._servers:
            right = ", ".join(sorted(self._servers))
            return page_error(409, f"got the server {server[:80]!r}, expected one of {right}")
        try:
            params = envelope.decode(kept.data).params or b"{}"
            params = remove_members(params, ("_meta", "task"))
        except RemoteProtocolError as error:
            return page_error(409, f"the message {order.message} cannot be repeated: {error.message}")
        begun = anyio.current_time()
        shown: dict[str, object] = {"recorded": self._response_of(record)}
        with anyio.move_on_after(self._limits.reply_timeout_s):
            try:
                with self._own_sessions.using(server, identity) as session:
                    shown["result"] = msgspec.Raw(await session.request(record.method, params))
            except Refusal as refusal:
                shown["error"] = {"code": refusal.code, "message": str(refusal), "data": refusal.data}
            shown["ms"] = round((anyio.current_time() - begun) * 1000, 3)
            return page_answer(200, msgspec.json.encode(shown))
        return page_error(504, f"no answer within {self._limits.reply_timeout_s:g} s: it may still have an effect")

    def _response_of(self, request: MessageRecord) -> msgspec.Raw | None:
        """Returns the recorded result or error of a request; None if it is not kept."""
        for record in self._watching.records.after(request.n, self._watching.records.last):
            if not isinstance(record, MessageRecord) or record.request != request.request:
                continue
            if (record.leg, record.way, record.kind) == ("client", "out", "response"):
                found = self._watching.message(record.n)
                if found is None or record.is_cut:
                    return None
                frame = envelope.decode(found[1].data)
                return msgspec.Raw(frame.result or frame.error or b"null")
        return None


def _why_not(record: MessageRecord, body: bytes) -> str:
    if (record.leg, record.way, record.kind) != ("client", "in", "request"):
        return "it is no request of a client"
    if record.method not in REPEATED:
        return f"{record.method} sets something in the session of its client"
    if record.is_cut:
        return "only its beginning is kept"
    if REDACTED.encode() in body:
        return "values in it were redacted"
    return ""
