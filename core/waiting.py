"""Storage orders that were given, and what follows each answer."""

from __future__ import annotations

from collections.abc import Callable

from .desk import Desk
from .effects import Effect, StorageAnswer, StorageFailed
from .ids import Ticket

Then = Callable[[StorageAnswer], None]


class Waiting:
    """Storage orders that were given, and what to do with the answer to each. An order unanswered in time failed."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._thens: dict[Ticket, Then] = {}

    def order(self, make: Callable[[Ticket], Effect], then: Then) -> None:
        ticket = self._desk.new_ticket()
        self._thens[ticket] = then
        at = self._desk.now + self._desk.limits.storage_timeout_s
        self._desk.timers.set(("storage", ticket), at, "storage order")
        self._desk.order(make(ticket))

    def receive_answer(self, ticket: Ticket, answer: StorageAnswer) -> bool:
        """False if nothing waits for it (any more)."""
        then = self._thens.pop(ticket, None)
        if then is None:
            return False
        self._desk.timers.cancel(("storage", ticket))
        then(answer)
        return True

    def handle_timeout(self, ticket: Ticket) -> None:
        limit = self._desk.limits.storage_timeout_s
        self.receive_answer(ticket, StorageFailed(reason=f"storage did not answer within {limit:g} s"))


def reason_of(answer: StorageAnswer) -> str:
    """Why an order was not carried out, for people."""
    return (
        answer.reason
        if isinstance(answer, StorageFailed)
        else f"got an answer of another kind: {type(answer).__name__}"
    )
