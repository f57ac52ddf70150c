"""Decisions of the driver about requests of clients, before anything is done for them (`ServerPlan.decides`).

A request that waits for its decision is an open request of its session. It goes on when the driver allows it, and waits
for no other: decisions may come in any order.

Sessions and their requests have different ways here. A request in a session waits as the exchange that it is. A request
of a client without sessions waits before it becomes one, as it may continue an earlier call. See
`endpoints/undecided_requests`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..base.decisions import Allowed, Decide, Decision, Denied
from ..base.errors import DENIED, RemoteProtocolError
from ..base.ids import Ticket
from ..base.plan import ServerPlan
from ..base.storage import StorageAnswer
from ..bridge.request_name import name_in
from ..state.context import Context
from ..state.exchange import Exchange, ExchangeKey
from ..state.interceptor import Interceptor
from ..state.link import Link
from ..state.session import Session
from .responder import Responder


class Waiting(NamedTuple):
    """A request that waits for its decision. `go_on` is called when it is allowed."""

    session: Session
    exchange: Exchange
    go_on: Callable[[], None]


class Decisions(Interceptor):
    """The requests of all sessions that wait for a decision."""

    name = "decisions"

    def __init__(self, context: Context, responder: Responder) -> None:
        self._context = context
        self._responder = responder
        self._waiting: dict[Ticket, Waiting] = {}
        self._tickets: dict[tuple[str, ExchangeKey], Ticket] = {}

    def is_for(self, plan: ServerPlan) -> bool:
        return plan.decides

    def receive_request(self, link: Link, exchange: Exchange) -> bool:
        session = link.session_of(exchange)
        if session.is_stateless and session.leg is None:
            return False  # allowed already
        try:
            self.ask(session, exchange, lambda: link.router.forward(link, exchange, after=self.name))
        except RemoteProtocolError as error:
            self._responder.fail(session, exchange, error.rpc_code, error.message)
        return True

    def ask(self, session: Session, exchange: Exchange, go_on: Callable[[], None]) -> None:
        """Orders the decision about a request of the session.

        Raises:
            RemoteProtocolError: its name cannot be read. Nothing has changed.
        """
        name = name_in(exchange.method, exchange.params)
        ticket = self._context.new_ticket()
        self._waiting[ticket] = Waiting(session, exchange, go_on)
        self._tickets[session.sid, exchange.key] = ticket
        at = self._context.now + self._context.limits.decision_timeout_s
        self._context.timers.set(("decision", ticket), at, "decision")
        self._context.order(
            Decide(
                ticket,
                exchange.key.channel,
                session.server,
                session.principal,
                exchange.method,
                name,
                None if exchange.params is None else bytes(exchange.params),  # a trace cannot hold an `Outlined`
                exchange.key,
                self._context.address_of(exchange.key.channel),
            )
        )

    def receive_answer(self, ticket: Ticket, answer: StorageAnswer | Decision) -> bool:
        """Carries a decision out. False if no request waits for it. An answer that is none denies the request."""
        waiting = self._waiting.get(ticket)
        if waiting is None:
            return False
        session, exchange, go_on = waiting
        if isinstance(answer, Allowed):
            self.forget(None, session, exchange)
            go_on()
        elif isinstance(answer, Denied):
            self._deny(session, exchange, answer.code, answer.message)
        else:
            text = f"it could not be decided whether {exchange.method[:100]} may run: it did not run"
            self._deny(session, exchange, DENIED, text)
        return True

    def handle_timeout(self, ticket: Ticket) -> None:
        """Denies a request about which nobody has decided."""
        session, exchange, _ = self._waiting[ticket]
        limit = self._context.limits.decision_timeout_s
        text = f"nobody decided within {limit:g} s whether {exchange.method[:100]} may run: it did not run"
        self._deny(session, exchange, DENIED, text)

    def _deny(self, session: Session, exchange: Exchange, code: int, text: str) -> None:
        self._responder.fail(session, exchange, code, text, {"outcome": "not_executed"})

    def forget(self, link: Link | None, session: Session, exchange: Exchange) -> None:
        """Drops the order about a request that is over, or goes on."""
        ticket = self._tickets.pop((session.sid, exchange.key), None)
        if ticket is not None:
            del self._waiting[ticket]
            self._context.timers.cancel(("decision", ticket))
