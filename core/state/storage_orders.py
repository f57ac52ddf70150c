"""Storage orders that were given, and what follows each answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ..base.effects import Effect, StorageAnswer, StorageFailed
from ..base.ids import Ticket
from .context import Desk

Then = Callable[[StorageAnswer], None]


LATE_MAX: Final = 1024
"""Orders that timed out and whose late answer still matters."""


class Waiting:
    """Storage orders that were given, and what to do with the answer to each. An order unanswered in time failed."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._thens: dict[Ticket, tuple[Then, Then | None]] = {}
        self._late: dict[Ticket, Then] = {}

    def order(self, make: Callable[[Ticket], Effect], then: Then, *, late: Then | None = None) -> None:
        """Give an order. `then` gets its answer, or a failure once it has taken too long; `late` the answer after
        that, to undo what was done in vain."""
        ticket = self._desk.new_ticket()
        self._thens[ticket] = then, late
        at = self._desk.now + self._desk.limits.storage_timeout_s
        self._desk.timers.set(("storage", ticket), at, "storage order")
        self._desk.order(make(ticket))

    def receive_answer(self, ticket: Ticket, answer: StorageAnswer) -> None:
        """Nothing happens if nothing waits for it (any more)."""
        then, _ = self._thens.pop(ticket, (None, None))
        if then is not None:
            self._desk.timers.cancel(("storage", ticket))
        else:
            then = self._late.pop(ticket, None)
        if then is not None:
            then(answer)

    def handle_timeout(self, ticket: Ticket) -> None:
        then, late = self._thens.pop(ticket)
        if late is not None:
            self._late[ticket] = late
            if len(self._late) > LATE_MAX:
                del self._late[next(iter(self._late))]
        limit = self._desk.limits.storage_timeout_s
        then(StorageFailed(reason=f"storage did not answer within {limit:g} s"))


def reason_of(answer: StorageAnswer) -> str:
    """Why an order was not carried out, for people."""
    return (
        answer.reason
        if isinstance(answer, StorageFailed)
        else f"got an answer of another kind: {type(answer).__name__}"
    )
