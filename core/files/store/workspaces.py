"""Storage orders that put something into a session's workspace, and the removal of workspaces.

Storages carry out orders concurrently. An order that puts something into a workspace, and is under way when the session
ends, may therefore be done after the workspace was removed, and create it anew. The workspace is then removed once
more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from ...base.effects import Effect
from ...base.ids import Ticket
from ...base.storage import StorageAnswer, Sweep
from ...state.context import Context
from ...state.storage_orders import StorageOrders, Then


class WorkspaceOrders:
    """Gives storage orders that put something into workspaces, and removes workspaces.

    Args:
        is_used: returns True if the workspace belongs to an open session.
    """

    def __init__(self, context: Context, storage_orders: StorageOrders, is_used: Callable[[str], bool]) -> None:
        self._context = context
        self._storage_orders = storage_orders
        self._is_used = is_used
        self._under_way: Counter[str] = Counter()
        self._swept: set[str] = set()  # removed while orders were under way

    def order(self, workspace: str, make: Callable[[Ticket], Effect], then: Then) -> None:
        """Gives an order that puts something into a workspace, and calls `then` with the answer."""

        def answered(answer: StorageAnswer) -> None:
            self._under_way[workspace] -= 1
            is_last = not self._under_way[workspace]
            if is_last:
                del self._under_way[workspace]
            if workspace in self._swept and is_last:
                self._swept.discard(workspace)
                self._context.order(Sweep(workspace=workspace))
            then(answer)

        def late(answer: StorageAnswer) -> None:
            # The order was done after its time-out, perhaps in a workspace that is removed already.
            if not self._is_used(workspace):
                self._context.order(Sweep(workspace=workspace))

        self._under_way[workspace] += 1
        self._storage_orders.order(make, answered, late=late)

    def sweep(self, workspace: str) -> None:
        """Removes a workspace in which no server process works any more."""
        self._context.order(Sweep(workspace=workspace))
        if workspace in self._under_way:
            self._swept.add(workspace)
