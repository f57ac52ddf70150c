"""Handles requests and notifications of servers: passes them on to the clients they are for.

A server request becomes a `PendingQuestion`: `Responder.ask` sends it to the client under a number of ours, in place of
its id and of its progress token. This module restores both on the way back: the client's response reaches the server
under the server's own id, and progress of the client under the server's own token. Progress of the server for a call is
passed on under the client's token, in place of the number that `UpstreamWriter.write` gave the call.
"""

from __future__ import annotations

import msgspec

from ..base.errors import INTERNAL_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, RemoteProtocolError
from ..base.events import Headers
from ..base.methods import MAY_ASK
from ..base.revisions import Features, features_of
from ..bridge.input_requests import answer_to_legacy, answered, to_older
from ..bridge.related_task import related_id, with_related, without_related
from ..downstream.responder import Responder
from ..jsonrpc import envelope
from ..jsonrpc.envelope import Frame
from ..jsonrpc.splice import members, set_member, take
from ..state.context import Context
from ..state.exchange import Exchange
from ..state.link import Link
from ..state.list_changes import LISTS_OF
from ..state.session import PendingQuestion, Session
from ..state.upstream_session import UpstreamSessionState
from .filtering import hides
from .progress import must_increase, value_of
from .roots import roots_of
from .writer import UpstreamWriter


class ServerMessages:
    """Passes server requests, progress and other notifications on to clients, and responses back."""

    def __init__(self, context: Context, responder: Responder, writer: UpstreamWriter) -> None:
        self._context = context
        self._responder = responder
        self._writer = writer

    # --- From the server ------------------------------------------------------------------------------------------

    def receive_request(self, link: Link, frame: Frame, related: Exchange | None) -> None:
        """Answers a server request, or passes it on to the client.

        Args:
            related: the exchange on whose stream the request came, if that is known.
        """
        assert frame.id_raw is not None
        assert frame.method is not None
        id_raw, method = frame.id_raw, frame.method
        if frame.method == "ping":
            self._writer.tell(link, envelope.encode_result(frame.id_raw, b"{}"))
            return
        session = self._session_for(link, frame)
        if session is None:
            return
        if frame.method == "roots/list" and link.plan.owns_roots:
            self._writer.tell(link, envelope.encode_result(frame.id_raw, roots_of(self._context, session)))
        elif len(session.questions) >= self._context.limits.questions_per_session_max:
            text = f"{len(session.questions)} requests to this client are open, the most allowed"
            self._writer.tell(link, envelope.encode_error(frame.id_raw, INTERNAL_ERROR, text))
        elif not session.room.has_room(size_bytes := len(frame.params or b"")):
            text = "the requests to and from this client that are open have too many bytes: try again later"
            self._writer.tell(link, envelope.encode_error(frame.id_raw, INTERNAL_ERROR, text))
        elif self._is_open(link, frame.id_raw):
            text = "got the id of a request that is still open, expected another"
            self._writer.tell(link, envelope.encode_error(frame.id_raw, INVALID_REQUEST, text))
        else:
            try:
                token = envelope.progress_token(frame.params)
            except RemoteProtocolError as error:
                self._writer.tell(link, envelope.encode_error(frame.id_raw, error.rpc_code, error.message))
                return
            related, frame = self._find_call(link, session, frame, related)
            if related is not None:
                self._writer.expect_reply(link, related)
            question = PendingQuestion(id_raw, token, method, link.upstream.incarnation, None, size_bytes=size_bytes)
            try:
                shown = self._to_client_revision(link, session, frame)
            except RemoteProtocolError as error:
                self._writer.tell(link, envelope.encode_error(frame.id_raw, error.rpc_code, error.message))
                return
            if shown is not frame.params:
                question = question._replace(params=frame.params)
            self._responder.ask(session, question, shown, related)

    def _find_call(
        self, link: Link, session: Session, frame: Frame, related: Exchange | None
    ) -> tuple[Exchange | None, Frame]:
        """Returns the call that a server request belongs to, and the request without the server's name for its task.

        The call is that of the task that the request names; else the related one; else the latest task, if all calls in
        progress are tasks.
        """
        named = related_id(frame.params)
        if named is not None and (call := link.upstream_tasks.get(named)) is not None and call.sid == session.sid:
            return call, msgspec.structs.replace(frame, params=without_related(frame.params))
        if related is None:
            calls = [e for e in session.exchanges.values() if e.method in MAY_ASK and e.is_upstream and link.carries(e)]
            if calls and all(call.task is not None for call in calls):
                related = calls[-1]
        return related, frame

    def _with_client_task(self, link: Link, params: bytes | None) -> bytes | None:
        """Returns params in which the server's task is named as the client knows it, or not at all if the client does
        not know it."""
        call = link.upstream_tasks.get(related_id(params) or "")
        if call is None:
            return params
        bare = without_related(params)
        return with_related(bare, call.task.id) if call.task is not None and call.task.is_legacy else bare

    def _to_client_revision(self, link: Link, session: Session, frame: Frame) -> bytes | None:
        """Returns the params of a server request, translated if the client's revision is older than the server's."""
        assert frame.method is not None
        if frame.params is None or session.is_stateless or session.features == features_of(link.upstream.revision):
            return frame.params
        return to_older(frame.method, frame.params, session.features)

    def receive_notification(
        self, link: Link, frame: Frame, related: Exchange | None, *, is_ours: bool = False
    ) -> None:
        """Delivers a notification to the sessions that it is for.

        Args:
            is_ours: the server did not send it: the proxy announces what the server could not.
        """
        assert frame.method is not None
        is_announced = is_ours and frame.method in LISTS_OF
        if hides(link, frame):
            return
        try:
            if frame.method == "notifications/progress":
                self._receive_progress(link, frame.params, related)
                return
            if frame.method == "notifications/cancelled":
                self._receive_cancelled(link, frame.params)
                return
            params = self._with_client_task(link, frame.params)
        except RemoteProtocolError as error:
            self._context.note("warning", f"server sent a broken {frame.method}: {error.message}", link.plan.id)
            return
        message = envelope.encode_notification(frame.method, params)
        shared_process = link.shared_process
        if shared_process is None:
            if not is_announced or self._responder.may_announce(link.session, frame.method):
                self._responder.deliver(link.session, frame.method, message, related)
            return
        try:
            named = related_id(frame.params)
            asker = shared_process.asker(link, self._context.now) if named is None else _session_of_task(link, named)
            recipients = shared_process.hearers(
                frame.method, params, asker, is_anyones=named is None and shared_process.is_quiet(link)
            )
        except RemoteProtocolError as error:
            self._context.note("warning", f"server sent a broken {frame.method}: {error.message}", link.plan.id)
            return
        for session in recipients:
            if not is_announced or self._responder.may_announce(session, frame.method):
                self._responder.deliver(session, frame.method, message, None)

    def _session_for(self, link: Link, frame: Frame) -> Session | None:
        """Returns the session that a server request is for; None, and the server gets an error, if there is none."""
        shared_process = link.shared_process
        if shared_process is None:
            return link.session
        id_raw, method = frame.id_raw, frame.method
        assert id_raw is not None
        assert method is not None
        named = related_id(frame.params)
        session = shared_process.asker(link, self._context.now) if named is None else _session_of_task(link, named)
        if session is not None and shared_process.can_be_asked(session, method):
            return session
        if session is None:
            text = f"{len(link.sessions)} clients share this server, and which of them {method} is for cannot be told"
            if not link.sessions:
                text = f"no client is there to answer {method}"
            code = INTERNAL_ERROR
        else:
            text, code = f"the client does not offer {method}", METHOD_NOT_FOUND
        self._context.note("info", text, link.plan.id)
        self._writer.tell(link, envelope.encode_error(id_raw, code, text))
        return None

    def _is_open(self, link: Link, id_raw: bytes) -> bool:
        key = envelope.id_key(id_raw)
        questions = (question for session in link.sessions.values() for question in session.questions.values())
        return any(envelope.id_key(question.id_raw) == key for question in questions)

    def _receive_progress(self, link: Link, params: bytes | None, related: Exchange | None) -> None:
        """Passes progress on under the client's own token, on the stream of the request that it is about."""
        if params is None:
            return
        spans = members(params)
        span = spans.get("progressToken")
        if span is None:
            return
        token_raw = params[span.start : span.stop]
        number = envelope.number_of(token_raw)
        exchange = None if number is None else link.pending.get(number) or link.tokens.get(number)
        if not isinstance(exchange, Exchange) or exchange.token_raw is None:
            self._pass_late_progress(link, params, token_raw, related)
            return
        self._writer.expect_reply(link, exchange)
        progress = value_of(take(params, spans.get("progress")))
        if progress is not None:  # else the client decides
            if progress <= exchange.told and must_increase(link, exchange):
                return
            exchange.receive_progress(progress)
        restored = without_related(params)
        if restored is params:
            restored = b"".join((params[: span.start], exchange.token_raw, params[span.stop :]))
        else:
            restored = set_member(restored or b"{}", "progressToken", exchange.token_raw)
        message = envelope.encode_notification("notifications/progress", restored)
        self._responder.tell_progress(link.session_of(exchange), exchange, message)

    def _pass_late_progress(self, link: Link, params: bytes, token_raw: bytes, related: Exchange | None) -> None:
        """Passes progress on that is about no open request, if the client can tell that as well as the proxy."""
        number = envelope.number_of(token_raw)
        answered = None if number is None else link.answered_tokens.get(number)
        if answered is not None:
            session = link.sessions.get(str(answered.owner))
            token_raw = answered.token_raw
        elif envelope.id_key(token_raw) is None or (number is not None and number <= link.last_id):
            session = None  # it is no token, or the proxy's own number, which could be a token of the client
        else:
            session = None if link.shared_process is not None else link.session
        if session is None or session.is_stateless != link.is_stateless:
            return
        self._context.note("debug", "passed progress for a request that is not open", link.plan.id)
        bare = set_member(without_related(params) or b"{}", "progressToken", token_raw)
        message = envelope.encode_notification("notifications/progress", bare)
        if answered is not None:
            self._responder.tell_outside(session, message)
        else:
            self._responder.deliver(session, "notifications/progress", message, related)

    def _receive_cancelled(self, link: Link, params: bytes | None) -> None:
        id_raw = envelope.member_of(params, "requestId")
        key = None if id_raw is None else envelope.id_key(id_raw)
        for session in link.sessions.values():
            for number, question in list(session.questions.items()):
                if key is not None and envelope.id_key(question.id_raw) == key:
                    self._responder.cancel_question(session, number, params)

    # --- From the client ------------------------------------------------------------------------------------------

    def reply(self, link: Link, question: PendingQuestion, answer: Frame, headers: Headers) -> None:
        """Sends a client's response to the server that asked."""
        upstream = link.upstream
        if question.incarnation != upstream.incarnation or upstream.state in (
            UpstreamSessionState.IDLE,
            UpstreamSessionState.DIALING,
        ):
            return  # the upstream session that asked is over
        if upstream.is_denied:
            return  # the server does not know this session any more
        if link.upstream.state is UpstreamSessionState.INITIALIZING and not link.is_pipe:
            return  # the server asked before it named its session: a POST could not say which session it is for
        if answer.result is not None:
            self._writer.tell(link, envelope.encode_result(question.id_raw, answer.result), headers)
        else:
            assert answer.error is not None
            self._writer.tell(
                link, envelope.encode_error_raw(question.id_raw, envelope.usable_error(answer.error)), headers
            )

    def restore(self, session: Session, question: PendingQuestion, answer: Frame, server: Features) -> Frame:
        """Returns a client's response, translated to the server's revision."""
        if answer.result is None:
            return answer
        try:
            result = answer.result
            if question.params is not None:
                result = answered(question.method, question.params, session.features, result)
            return Frame(result=answer_to_legacy(question.method, result, server))
        except RemoteProtocolError as error:
            return Frame(error=envelope.error_object(error.rpc_code, error.message))

    def restore_token(self, link: Link, session: Session, params: bytes | None) -> bytes | None:
        """Returns the params of a client's progress on a server request, under the server's own token.

        Progress for no open request passes as well, if the server can tell that as well as the proxy. None if it must
        be dropped.
        """
        try:
            token_raw = envelope.member_of(params, "progressToken")
        except RemoteProtocolError:
            return None
        if params is None or token_raw is None:
            return None
        number = envelope.number_of(token_raw)
        question = None if number is None else session.questions.get(number)
        if number is not None and question is not None:
            if question.stream is None or question.token_raw is None:
                return None
            self._responder.expect_answer(session, number)
            return set_member(params, "progressToken", question.token_raw)
        answered = None if number is None else session.answered_tokens.get(number)
        if answered is not None:
            if answered.owner != link.upstream.incarnation:
                return None
            return set_member(params, "progressToken", answered.token_raw)
        if envelope.id_key(token_raw) is None or link.shared_process is not None:
            return None  # it is no token, or could be that of a question to another client
        if number is not None and number <= session.last_question:
            return None  # it is the proxy's own number, which could be a token of the server
        return params


def _session_of_task(link: Link, named: str) -> Session | None:
    """Returns the session whose call became the server's task of that name; None if there is no such task."""
    call = link.upstream_tasks.get(named)
    return None if call is None else link.sessions.get(call.sid)
