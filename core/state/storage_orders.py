"""The open storage orders, and the callback for each answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ..base.effects import Effect
from ..base.ids import Ticket
from ..base.storage import StorageAnswer, StorageFailed
from .context import Context

Then = Callable[[StorageAnswer], None]
"""A callback that takes the answer to an order."""


LATE_MAX: Final = 1024
"""Timed-out orders whose late answers are still handled; the oldest are dropped first."""


class StorageOrders:
    """The open storage orders, with a callback for the answer to each. An order that is not answered within
    `Limits.storage_timeout_s` counts as failed."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._thens: dict[Ticket, tuple[Then, Then | None]] = {}
        self._late: dict[Ticket, Then] = {}

    def order(self, make: Callable[[Ticket], Effect], then: Then, *, late: Then | None = None) -> None:
        """Gives an order.

        Args:
            make: builds the order for its ticket.
            then: takes the answer, or a failure after the time limit.
            late: takes an answer that comes after that, to undo work that nobody waits for any more.
        """
        ticket = self._context.new_ticket()
        self._thens[ticket] = then, late
        at = self._context.now + self._context.limits.storage_timeout_s
        self._context.timers.set(("storage", ticket), at, "storage order")
        self._context.order(make(ticket))

    def receive_answer(self, ticket: Ticket, answer: StorageAnswer) -> None:
        """Passes an answer to its callback. Answers that no callback waits for are ignored."""
        then, _ = self._thens.pop(ticket, (None, None))
        if then is not None:
            self._context.timers.cancel(("storage", ticket))
        else:
            then = self._late.pop(ticket, None)
        if then is not None:
            then(answer)

    def handle_timeout(self, ticket: Ticket) -> None:
        """Gives up an order whose time limit has passed."""
        then, late = self._thens.pop(ticket)
        if late is not None:
            self._late[ticket] = late
            if len(self._late) > LATE_MAX:
                del self._late[next(iter(self._late))]
        limit = self._context.limits.storage_timeout_s
        then(StorageFailed(reason=f"storage did not answer within {limit:g} s"))


def reason_of(answer: StorageAnswer) -> str:
    """Returns the reason why an order was not carried out, for people."""
    return (
        answer.reason
        if isinstance(answer, StorageFailed)
        else f"got an answer of another kind: {type(answer).__name__}"
    )
