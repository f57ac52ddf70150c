"""Emits telemetry events of the requests and sessions of clients, where the plan asks for them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import msgspec

from ..base.effects import Emit
from ..base.errors import CANCELLED
from ..base.ids import ChannelId
from ..base.telemetry import (
    NAME_MAX_CHARS,
    TOOLS_MAX,
    Detail,
    Outcome,
    QuestionAsked,
    RequestAnswered,
    RequestEnded,
    RequestSent,
    RequestStarted,
    SessionEnded,
    SessionStarted,
    SpanIds,
    TaskGiven,
    TelemetryEvent,
    ToolsListed,
)
from ..jsonrpc import envelope
from ..jsonrpc.splice import Outlined
from .context import Context
from .exchange import Exchange
from .link import Link
from .session import Session

CLIENTS_KEPT: Final = 128
"""Names of clients that are kept as text. A client sends the same one with each request."""
LOOKED_AT_MAX_BYTES: Final = 64 * 1024
"""The largest result that is searched for `isError`. At it: the outcome is UNREAD."""
ID_MAX_BYTES: Final = 80
"""Bytes of the id of a request in an event. Ids that clients choose are shorter. At it: the rest is left out."""
_IS_ERROR: Final = b'"isError":true'
_IS_ERROR_SPACED: Final = b'"isError": true'  # as the standard encoder of Python writes it


class _Use(msgspec.Struct):
    name: str


class _Read(msgspec.Struct):
    name: str = msgspec.field(name="uri")


_BY_NAME: Final = msgspec.json.Decoder(_Use)
_NAMED_BY: Final[Mapping[str, msgspec.json.Decoder[_Use] | msgspec.json.Decoder[_Read]]] = {
    "tools/call": _BY_NAME,
    "prompts/get": _BY_NAME,
    "resources/read": msgspec.json.Decoder(_Read),
}
"""Readers of the params of requests that have a target."""
# Looking a member of an enumeration up takes as long as all else here.
_RESULT: Final = Outcome.RESULT
_TOOL_ERROR: Final = Outcome.TOOL_ERROR
_UNREAD: Final = Outcome.UNREAD


class Telemetry:
    """Orders an `Emit` for each event. A session of the driver's own has no events, but for the calls in it. A leg of a
    profile has none of its own: its requests are those of the session with the profile.

    A tool's failure is seen by its member `isError` as encoders write it; no more is worth its time.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._tracer = context.tracer
        self._has_ends = context.plan.telemetry >= Detail.ENDS
        self._order = context.order
        self._has_steps = context.plan.telemetry >= Detail.STEPS

    @classmethod
    def of(cls, context: Context) -> Telemetry | None:
        """Returns the telemetry of an engine; None if its plan asks for none, and has no tracing."""
        return cls(context) if context.plan.telemetry or context.tracer is not None else None

    # --- Sessions ---------------------------------------------------------------------------------------------------

    def begin_session(self, session: Session) -> None:
        """Emits the start of a session."""
        if self._has_ends and not session.is_own and session.leg is None:
            revision, is_pipe = session.features.revision, session.pipe is not None
            self._emit(
                SessionStarted(session.server, session.sid, client_of(session), revision, session.principal, is_pipe)
            )

    def end_session(self, session: Session, reason: str) -> None:
        """Emits the end of a session."""
        if self._has_ends and not session.is_own and session.leg is None and not session.is_stateless:
            revision, is_pipe = session.features.revision, session.pipe is not None
            self._emit(
                SessionEnded(
                    session.server, session.sid, client_of(session), revision, session.principal, is_pipe, reason
                )
            )

    # --- Requests ---------------------------------------------------------------------------------------------------

    def begin(self, session: Session, exchange: Exchange, *, is_plain: bool = False) -> None:
        """Begins the trace of a request, and emits its start.

        Args:
            is_plain: it is on the fast path, so it has no trace.
        """
        if session.leg is not None or (session.is_own and (exchange.method != "tools/call" or session.sees_hidden)):
            return  # of its own, a driver makes calls for somebody over plain HTTP
        now, tracer, trace = self._context.now, self._tracer, None
        if tracer is not None:
            if is_plain:
                tracer.sampler.pass_over()
            else:
                role = self._context.role_of(exchange.key.channel)
                trace = tracer.begin(exchange.said, () if role is None else role.trace_context, now)
        exchange.receive_begun(now, trace)
        if self._has_steps or exchange.is_recorded:
            self._emit(
                RequestStarted(
                    session.server,
                    session.sid,
                    _named((exchange.request or session.client).client_info),
                    session.features.revision,
                    session.principal,
                    session.pipe is not None,
                    exchange.key,
                    exchange.id_raw[:ID_MAX_BYTES],
                    exchange.method[:NAME_MAX_CHARS],
                    _target_of(exchange),
                    exchange.said,
                    None if trace is None else trace.ids,
                    self._context.address_of(exchange.key.channel),
                )
            )

    def begin_again(self, exchange: Exchange, params: bytes | None, channel: ChannelId) -> None:
        """Handles a further request in which a client sends answers for a call that waits for them."""
        if self._tracer is not None:
            role = self._context.role_of(channel)
            headers = () if role is None else role.trace_context
            exchange.link_trace(self._tracer.read(params, headers))

    def receive_sent(self, link: Link, exchange: Exchange, number: int, post: ChannelId | None) -> None:
        """Handles a request that was written to a server."""
        if not (self._has_ends or exchange.is_recorded):
            return
        if exchange.begun_at is None and link.session_of(exchange).leg is None:
            return  # the driver asks for itself
        exchange.receive_sent_at(self._context.now)
        if self._has_steps or exchange.is_recorded:
            self._emit(
                RequestSent(
                    exchange.key,
                    link.plan.id,
                    number,
                    post or link.channel,
                    exchange.attempts,
                    link.upstream.revision or "",
                    link.is_pipe,
                    _attempt_ids(exchange),
                )
            )

    def receive_answer(self, server: str, exchange: Exchange, error: bytes | None = None) -> None:
        """Handles the answer of a server to a request. `error` is the JSON of its error."""
        if exchange.sent_at is not None and (self._has_ends or exchange.is_recorded):
            code = None if error is None else envelope.error_code(error)
            duration_s = self._context.now - exchange.sent_at
            self._order(Emit(RequestAnswered(exchange.key, server, exchange.method[:NAME_MAX_CHARS], duration_s, code)))

    def receive_list(self, server: str, result: bytes) -> None:
        """Handles a page of the list of a server's tools. Nothing is emitted of one that cannot be read."""
        if not self._has_ends:
            return
        try:
            tools = msgspec.json.decode(result, type=_ToolList).tools
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return
        if tools:
            self._emit(ToolsListed(server, tuple(tool.name[:NAME_MAX_CHARS] for tool in tools[:TOOLS_MAX])))

    def receive_question(self, session: Session, method: str, related: Exchange | None) -> None:
        """Handles a question of a server. `related` is the request in whose course it asks, if that is known;
        else it is that of the only one that is open."""
        if self._has_steps:
            related = related or session.only_call()
            request = None if related is None else related.key
            sid = session.files_sid
            self._emit(QuestionAsked(request, session.server, sid, method[:NAME_MAX_CHARS]))

    def receive_task(self, exchange: Exchange) -> None:
        """Handles that a client got the handle of a task in response to a request."""
        if exchange.begun_at is not None and (self._has_steps or exchange.is_recorded):
            self._emit(TaskGiven(exchange.key))

    def end(self, session: Session, exchange: Exchange, message: bytes | None) -> None:
        """Emits the end of a request. `message` is the response; None if there is none."""
        if message is None:
            self._end(session, exchange, Outcome.CANCELLED)
        elif message.startswith(beginning := envelope.begin_result(exchange.id_raw)):
            result_bytes = len(message) - len(beginning) - 1
            self._end(session, exchange, _outcome_of(exchange, message), result_bytes)
        else:
            code = _code_of(message)
            self._end(session, exchange, Outcome.CANCELLED if code == CANCELLED else Outcome.ERROR, code=code)

    def end_with_result(self, session: Session, exchange: Exchange, result: bytes) -> None:
        """Emits the end of a request with a result."""
        self._end(session, exchange, _outcome_of(exchange, result), len(result))

    def end_unread(self, session: Session, exchange: Exchange, result_bytes: int) -> None:
        """Emits the end of a request whose result is passed on unread."""
        is_tool = exchange.method == "tools/call"
        self._end(session, exchange, Outcome.UNREAD if is_tool else Outcome.RESULT, result_bytes)

    def end_with_error(self, session: Session, exchange: Exchange, code: int | None) -> None:
        """Emits the end of a request with an error."""
        self._end(session, exchange, Outcome.ERROR, code=code)

    def _end(
        self, session: Session, exchange: Exchange, outcome: Outcome, result_bytes: int = 0, code: int | None = None
    ) -> None:
        if exchange.begun_at is None or not (self._has_ends or exchange.is_recorded):
            return
        ended = RequestEnded(
            session.server,
            session.sid,
            _named((exchange.request or session.client).client_info),
            session.features.revision,
            session.principal,
            session.pipe is not None,
            exchange.key,
            exchange.method[:NAME_MAX_CHARS],
            _target_of(exchange),
            outcome,
            self._context.now - exchange.begun_at,
            0 if exchange.said is None else len(exchange.said),
            result_bytes,
            code,
            exchange.trace_links if exchange.is_recorded else (),
        )
        self._order(Emit(ended))

    def _emit(self, event: TelemetryEvent) -> None:
        self._order(Emit(event))  # type: ignore[arg-type]  # each is one of `AnyEvent`


def _attempt_ids(exchange: Exchange) -> SpanIds | None:
    attempt, trace = exchange.attempt, exchange.trace
    if attempt is None or trace is None or trace.span is None:
        return None
    return SpanIds(attempt.trace_id, attempt.span_id, trace.span.span_id, attempt.state)


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
    said, decoder = exchange.said, _NAMED_BY.get(exchange.method)
    if decoder is None or said is None:
        return ""
    # The outline of large params has their short members.
    try:
        return decoder.decode(said.outline if isinstance(said, Outlined) else said).name[:NAME_MAX_CHARS]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""


def _outcome_of(exchange: Exchange, result: bytes) -> Outcome:
    if exchange.method != "tools/call":
        return _RESULT
    if len(result) > LOOKED_AT_MAX_BYTES:
        return _UNREAD
    return _TOOL_ERROR if _IS_ERROR in result or _IS_ERROR_SPACED in result else _RESULT


class _Tool(msgspec.Struct):
    name: str


class _ToolList(msgspec.Struct):
    tools: list[_Tool] = []


class _Error(msgspec.Struct):
    code: int


class _Refusal(msgspec.Struct):
    error: _Error


def _code_of(message: bytes) -> int | None:
    try:
        return msgspec.json.decode(message, type=_Refusal).error.code
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
