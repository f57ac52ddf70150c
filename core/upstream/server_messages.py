"""What servers say of their own accord: requests to the client, their withdrawal, progress and other notifications.

A server's request reaches the client under a number of ours (an `Ask`), and its answer the server under the server's
own id. Progress tokens are translated like ids, in both directions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from ..base.effects import Headers
from ..base.errors import INTERNAL_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, RemoteProtocolError
from ..base.methods import MAY_ASK
from ..base.revisions import Features, features_of
from ..bridge.input_requests import answer_to_legacy, answered, to_older
from ..bridge.related_task import related_id, with_related, without_related
from ..downstream.responder import Courier
from ..jsonrpc import envelope
from ..jsonrpc.envelope import Frame
from ..jsonrpc.splice import members, set_member, take
from ..state.context import Desk
from ..state.exchange import Exchange
from ..state.link import Link
from ..state.session import Ask, Session
from ..state.upstream_session import State
from .filtering import hides
from .progress import further
from .shared_process import Crowd
from .writer import Uplink


class Asking:
    """
    Args:
        crowds: of links that several sessions share, by the links' ids.
        roots_of: the JSON result of `roots/list` in a session, for servers whose roots are not the client's.
    """

    def __init__(
        self,
        desk: Desk,
        courier: Courier,
        uplink: Uplink,
        crowds: Mapping[str, Crowd],
        *,
        roots_of: Callable[[Session], bytes],
    ) -> None:
        self._desk = desk
        self._crowds = crowds
        self._courier = courier
        self._uplink = uplink
        self._roots_of = roots_of

    # --- From the server ------------------------------------------------------------------------------------------

    def receive_request(self, link: Link, frame: Frame, related: Exchange | None) -> None:
        """`related` is the exchange on whose stream it came, if that is known."""
        assert frame.id_raw is not None
        assert frame.method is not None
        id_raw, method = frame.id_raw, frame.method
        if frame.method == "ping":
            self._uplink.tell(link, envelope.encode_result(frame.id_raw, b"{}"))
            return
        session = self._whose(link, frame)
        if session is None:
            return
        if frame.method == "roots/list" and link.plan.owns_roots:
            self._uplink.tell(link, envelope.encode_result(frame.id_raw, self._roots_of(session)))
        elif len(session.asks) >= self._desk.limits.asks_per_session_max:
            text = f"{len(session.asks)} requests to this client are open, the most allowed"
            self._uplink.tell(link, envelope.encode_error(frame.id_raw, INTERNAL_ERROR, text))
        elif self._is_asked_already(link, frame.id_raw):
            text = "got the id of a request that is still open, expected another"
            self._uplink.tell(link, envelope.encode_error(frame.id_raw, INVALID_REQUEST, text))
        else:
            try:
                token = envelope.progress_token(frame.params)
            except RemoteProtocolError as error:
                self._uplink.tell(link, envelope.encode_error(frame.id_raw, error.rpc_code, error.message))
                return
            related, frame = self._attributed(link, session, frame, related)
            if related is not None:
                self._uplink.expect_reply(link, related)
            ask = Ask(id_raw, token, method, link.upstream.incarnation, None)
            try:
                shown = self._shown(link, session, frame)
            except RemoteProtocolError as error:
                self._uplink.tell(link, envelope.encode_error(frame.id_raw, error.rpc_code, error.message))
                return
            if shown is not frame.params:
                ask = ask._replace(params=frame.params)
            self._courier.ask(session, ask, shown, related)

    def _attributed(
        self, link: Link, session: Session, frame: Frame, related: Exchange | None
    ) -> tuple[Exchange | None, Frame]:
        """The call that a question belongs to, and the question without the server's name for it: the task that it
        names, or, where nothing says more, the only kind of call that there is."""
        named = related_id(frame.params)
        if named is not None and (call := link.remotes.get(named)) is not None and call.sid == session.sid:
            return call, msgspec.structs.replace(frame, params=without_related(frame.params))
        if related is None:
            calls = [e for e in session.exchanges.values() if e.method in MAY_ASK and e.is_upstream and link.carries(e)]
            if calls and all(call.task is not None for call in calls):
                related = calls[-1]
        return related, frame

    def _renamed(self, link: Link, params: bytes | None) -> bytes | None:
        """What is said in the course of a task names that as its client knows it, if it does."""
        call = link.remotes.get(related_id(params) or "")
        if call is None:
            return params
        bare = without_related(params)
        return with_related(bare, call.task.id) if call.task is not None and call.task.is_legacy else bare

    def _shown(self, link: Link, session: Session, frame: Frame) -> bytes | None:
        """The params of a question as the client's revision has them, if that is older than its server's."""
        assert frame.method is not None
        if frame.params is None or session.is_stateless or session.features == features_of(link.upstream.revision):
            return frame.params
        return to_older(frame.method, frame.params, session.features)

    def receive_notification(self, link: Link, frame: Frame, related: Exchange | None) -> None:
        assert frame.method is not None
        if hides(link, frame):
            return
        try:
            if frame.method == "notifications/progress":
                self._receive_progress(link, frame.params)
                return
            if frame.method == "notifications/cancelled":
                self._receive_withdrawal(link, frame.params)
                return
            params = self._renamed(link, frame.params)
        except RemoteProtocolError as error:
            self._desk.note("warning", f"server sent a broken {frame.method}: {error.message}", link.plan.id)
            return
        message = envelope.encode_notification(frame.method, params)
        crowd = self._crowds.get(link.id)
        if crowd is None:
            self._courier.deliver(link.session, frame.method, message, related)
            return
        try:
            named = related_id(frame.params)
            asker = crowd.asker(self._desk.now) if named is None else _session_of_task(link, named)
            hearers = crowd.hearers(frame.method, params, asker, is_anyones=named is None and crowd.is_quiet)
        except RemoteProtocolError as error:
            self._desk.note("warning", f"server sent a broken {frame.method}: {error.message}", link.plan.id)
            return
        for session in hearers:
            self._courier.deliver(session, frame.method, message, None)

    def _whose(self, link: Link, frame: Frame) -> Session | None:
        """Who is asked. None if nobody can be: the server is told so."""
        crowd = self._crowds.get(link.id)
        if crowd is None:
            return link.session
        id_raw, method = frame.id_raw, frame.method
        assert id_raw is not None
        assert method is not None
        named = related_id(frame.params)
        session = crowd.asker(self._desk.now) if named is None else _session_of_task(link, named)
        if session is not None and crowd.can_be_asked(session, method):
            return session
        if session is None:
            text = f"{len(link.sessions)} clients share this server, and which of them {method} is for cannot be told"
            if not link.sessions:
                text = f"no client is there to answer {method}"
            code = INTERNAL_ERROR
        else:
            text, code = f"the client does not offer {method}", METHOD_NOT_FOUND
        self._desk.note("info", text, link.plan.id)
        self._uplink.tell(link, envelope.encode_error(id_raw, code, text))
        return None

    def _is_asked_already(self, link: Link, id_raw: bytes) -> bool:
        key = envelope.id_key(id_raw)
        asks = (ask for session in link.sessions.values() for ask in session.asks.values())
        return any(envelope.id_key(ask.id_raw) == key for ask in asks)

    def _receive_progress(self, link: Link, params: bytes | None) -> None:
        """It goes to whose request it is about, under that request's own token, on that request's own stream."""
        if params is None:
            return
        spans = members(params)
        span = spans.get("progressToken")
        number = None if span is None else envelope.number_of(params[span.start : span.stop])
        exchange = link.pending.get(number) or link.tokens.get(number) if number is not None else None
        if not isinstance(exchange, Exchange) or exchange.token_raw is None:
            return
        assert span is not None
        self._uplink.expect_reply(link, exchange)
        progress = further(exchange.told, take(params, spans.get("progress")))
        if progress is None:
            return
        exchange.told = progress
        restored = without_related(params)
        if restored is params:
            restored = b"".join((params[: span.start], exchange.token_raw, params[span.stop :]))
        else:
            restored = set_member(restored or b"{}", "progressToken", exchange.token_raw)
        message = envelope.encode_notification("notifications/progress", restored)
        self._courier.tell_progress(link.session_of(exchange), exchange, message)

    def _receive_withdrawal(self, link: Link, params: bytes | None) -> None:
        id_raw = envelope.member_of(params, "requestId")
        key = None if id_raw is None else envelope.id_key(id_raw)
        for session in link.sessions.values():
            for number, ask in list(session.asks.items()):
                if key is not None and envelope.id_key(ask.id_raw) == key:
                    self._courier.unask(session, number, params)

    # --- From the client ------------------------------------------------------------------------------------------

    def reply(self, link: Link, ask: Ask, answer: Frame, headers: Headers) -> None:
        """The client's answer, for whoever asked."""
        upstream = link.upstream
        if ask.incarnation != upstream.incarnation or upstream.state in (State.IDLE, State.DIALING):
            return  # who asked is gone
        if upstream.is_denied:
            return  # and so is this one
        if link.upstream.state is State.INITIALIZING and not link.is_pipe:
            return  # it asked before it gave its session a name: there is nowhere to send an answer
        if answer.result is not None:
            self._uplink.tell(link, envelope.encode_result(ask.id_raw, answer.result), headers)
        else:
            assert answer.error is not None
            self._uplink.tell(link, envelope.encode_error_raw(ask.id_raw, envelope.usable_error(answer.error)), headers)

    def restore(self, session: Session, ask: Ask, answer: Frame, server: Features) -> Frame:
        """A client's answer as its server's revision has it."""
        if answer.result is None:
            return answer
        try:
            result = answer.result
            if ask.params is not None:
                result = answered(ask.method, ask.params, session.features, result)
            return Frame(result=answer_to_legacy(ask.method, result, server))
        except RemoteProtocolError as error:
            return Frame(error=envelope.error_object(error.rpc_code, error.message))

    def restore_token(self, session: Session, params: bytes | None) -> bytes | None:
        """Progress on a server's request: its own token again. None if nothing of the kind is open, or it stands."""
        try:
            token_raw = envelope.member_of(params, "progressToken")
            progress_raw = envelope.member_of(params, "progress")
        except RemoteProtocolError:
            return None
        number = None if token_raw is None else envelope.number_of(token_raw)
        ask = None if number is None else session.asks.get(number)
        if params is None or number is None or ask is None or ask.stream is None or ask.token_raw is None:
            return None
        self._courier.expect_answer(session, number)
        progress = further(ask.told, progress_raw)
        if progress is None:
            return None
        session.asks[number] = ask._replace(told=progress)
        return set_member(params, "progressToken", ask.token_raw)


def _session_of_task(link: Link, named: str) -> Session | None:
    """Whose task of the server's that is. None: there is none of that name."""
    call = link.remotes.get(named)
    return None if call is None else link.sessions.get(call.sid)
