"""Requests of clients without sessions that wait for the decision of the driver.

Such a request may begin a call, or continue one with answers to its server's questions. Neither happens before it is
allowed. Until then an exchange that is never sent stands for the request in its session: the client can cancel it, and
the end of the session answers it.
"""

from __future__ import annotations

from collections.abc import Callable

from ..base.errors import OVERLOADED, RemoteProtocolError
from ..base.events import Headers
from ..bridge.request_meta import RequestMeta
from ..downstream.downstream import Downstream
from ..downstream.sessions import NO_MEMORY
from ..jsonrpc import envelope
from ..jsonrpc.envelope import Frame
from ..state.context import Context
from ..state.exchange import Exchange, ExchangeInput, ExchangeKey, Reply
from ..state.session import Session, SessionState
from .channels import PostRole

Handle = Callable[[], tuple[Session, Exchange] | None]
"""Handles a request that is allowed. Returns its session and its call; None if it is answered already."""


class UndecidedRequests:
    """The requests without sessions that wait for a decision."""

    def __init__(self, context: Context, downstream: Downstream) -> None:
        self._context = context
        self._decisions = downstream.decisions
        self._responder = downstream.responder

    def ask(
        self,
        session: Session,
        key: ExchangeKey,
        frame: Frame,
        request: RequestMeta,
        reply: Reply,
        headers: Headers,
        handle: Handle,
    ) -> Exchange:
        """Orders the decision about a request. Returns the exchange that stands for it.

        Args:
            session: that of the call which the request will begin or continue.
            handle: called when the request is allowed.

        Raises:
            RemoteProtocolError: there is no memory for it, or its name cannot be read.
        """
        assert frame.id_raw is not None
        assert frame.method is not None
        id_key = envelope.id_key(frame.id_raw)
        assert id_key is not None
        waiting = Exchange(
            key,
            reply,
            sid=session.sid,
            id_raw=frame.id_raw,
            id_key=id_key,
            method=frame.method,
            params=frame.params,
            headers=headers,
            request=request,
        )
        if not session.has_room_for(waiting):
            raise RemoteProtocolError(NO_MEMORY, rpc_code=OVERLOADED, http_status=503)
        self._decisions.ask(session, waiting, lambda: self._go_on(session, waiting, handle))
        session.add(waiting)
        self._responder.touch(session)
        return waiting

    def _go_on(self, session: Session, waiting: Exchange, handle: Handle) -> None:
        reply = waiting.reply
        waiting.step(ExchangeInput.CANCEL)
        session.remove(waiting)
        reply.take(None)
        try:
            found = handle()
        except RemoteProtocolError as error:
            found = None
            reply.refuse(error.http_status)
            message = envelope.encode_error(waiting.id_raw, error.rpc_code, error.message, error.data)
            self._responder.answer_at_once(reply, message)
        role = self._context.role_of(waiting.key.channel)
        if found is not None and isinstance(role, PostRole):
            role.receive_request(*found, reply)  # a client that hangs up cancels the call from now on
        if session.replies is not None and session.state is not SessionState.CLOSED:
            session.replies.receive_settled(session)
