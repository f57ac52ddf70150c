"""Emits telemetry events of the requests and sessions of clients, where the plan asks for them."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import msgspec

from ..base.effects import Emit
from ..base.errors import RemoteProtocolError
from ..base.telemetry import NAME_MAX_CHARS, Outcome, RequestEnded, SessionEnded, SessionStarted
from ..jsonrpc import envelope
from ..state.context import Context
from ..state.exchange import Exchange
from ..state.session import Session

CLIENTS_KEPT: Final = 128
"""Names of clients that are kept as text. A client sends the same one with each request."""
LOOKED_AT_MAX_BYTES: Final = 64 * 1024
"""The largest result that is searched for `isError`. At it: the result counts as none of an error."""
_NAMED: Final = frozenset({"tools/call", "prompts/get"})
_IS_ERROR: Final = b'"isError":true'


class Telemetry:
    """Orders an `Emit` for each event. A session of the driver's own has no events, but for the calls in it. A leg of a
    profile has none: its requests are those of the session with the profile.

    A tool's failure is seen by its member `isError` as encoders write it, without spaces; no more is worth its time.
    """

    def __init__(self, context: Context) -> None:
        self._context = context

    def begin(self, exchange: Exchange) -> None:
        """Records when a request came."""
        exchange.receive_begun(self._context.now)

    def end(self, session: Session, exchange: Exchange, message: bytes | None) -> None:
        """Emits the end of a request. `message` is the response; None if there is none."""
        if message is None:
            self._end(session, exchange, Outcome.CANCELLED)
        elif message.startswith(envelope.begin_result(exchange.id_raw)):
            self.end_with_result(session, exchange, message)
        else:
            self.end_with_error(session, exchange, _code_of(message))

    def end_with_result(self, session: Session, exchange: Exchange, result: bytes) -> None:
        """Emits the end of a request with a result. `result` may be empty if nobody read it."""
        is_failed = exchange.method == "tools/call" and len(result) <= LOOKED_AT_MAX_BYTES and _IS_ERROR in result
        self._end(session, exchange, Outcome.TOOL_ERROR if is_failed else Outcome.RESULT)

    def end_with_error(self, session: Session, exchange: Exchange, code: int | None) -> None:
        """Emits the end of a request with an error."""
        self._end(session, exchange, Outcome.ERROR, code)

    def begin_session(self, session: Session) -> None:
        """Emits the start of a session."""
        if not session.is_own and session.leg is None:
            self._context.order(
                Emit(SessionStarted(session.server, session.sid, client_of(session), session.features.revision))
            )

    def end_session(self, session: Session, reason: str) -> None:
        """Emits the end of a session."""
        if not session.is_own and session.leg is None and not session.is_stateless:
            self._context.order(
                Emit(SessionEnded(session.server, session.sid, client_of(session), session.features.revision, reason))
            )

    def _end(self, session: Session, exchange: Exchange, outcome: Outcome, code: int | None = None) -> None:
        if (
            exchange.begun_at is None
            or session.leg is not None
            or (session.is_own and not _is_called(session, exchange))
        ):
            return
        sender = exchange.request or session.client
        self._context.order(
            Emit(
                RequestEnded(
                    session.server,
                    session.sid,
                    _named(sender.client_info),
                    session.features.revision,
                    exchange.method[:NAME_MAX_CHARS],
                    _target_of(exchange),
                    outcome,
                    self._context.now - exchange.begun_at,
                    code,
                )
            )
        )


def _is_called(session: Session, exchange: Exchange) -> bool:
    """True for a call that somebody makes over plain HTTP. Other requests in the driver's own sessions are its own."""
    return exchange.method == "tools/call" and not session.sees_hidden


def client_of(session: Session) -> str:
    return _named(session.client.client_info)


class _Implementation(msgspec.Struct):
    name: str = ""
    version: str = ""


@lru_cache(CLIENTS_KEPT)
def _named(info: bytes | None) -> str:
    """Returns the name and version in a client's description of itself."""
    try:
        found = msgspec.json.decode(info or b"{}", type=_Implementation)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    return f"{found.name} {found.version}".strip()[:NAME_MAX_CHARS]


def _target_of(exchange: Exchange) -> str:
    if exchange.method not in _NAMED:
        return ""
    try:
        return (envelope.text_of(envelope.member_of(exchange.said, "name")) or "")[:NAME_MAX_CHARS]
    except RemoteProtocolError:
        return ""


class _Error(msgspec.Struct):
    code: int


class _Refusal(msgspec.Struct):
    error: _Error


def _code_of(message: bytes) -> int | None:
    try:
        return msgspec.json.decode(message, type=_Refusal).error.code
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
