"""Sessions' folders: what is put into them, and when they go.

Storages carry out orders at once. So one that puts something into a folder, and is under way when its session ends, may
be done after the folders were removed, and make them anew: they are removed again once it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from ...base.effects import Effect, StorageAnswer, Sweep
from ...base.ids import Ticket
from ...state.context import Desk
from ...state.storage_orders import Then, Waiting


class Folders:
    """
    Args:
        is_used: whether a workspace is that of a session that goes on.
    """

    def __init__(self, desk: Desk, waiting: Waiting, is_used: Callable[[str], bool]) -> None:
        self._desk = desk
        self._waiting = waiting
        self._is_used = is_used
        self._under_way: Counter[str] = Counter()
        self._swept: set[str] = set()  # with orders under way

    def order(self, workspace: str, make: Callable[[Ticket], Effect], then: Then) -> None:
        """Give an order that puts something into a workspace."""

        def answered(answer: StorageAnswer) -> None:
            self._under_way[workspace] -= 1
            is_last = not self._under_way[workspace]
            if is_last:
                del self._under_way[workspace]
            if workspace in self._swept and is_last:
                self._swept.discard(workspace)
                self._desk.order(Sweep(workspace=workspace))
            then(answer)

        def late(answer: StorageAnswer) -> None:
            if not self._is_used(workspace):
                self._desk.order(Sweep(workspace=workspace))

        self._under_way[workspace] += 1
        self._waiting.order(make, answered, late=late)

    def sweep(self, workspace: str) -> None:
        """Nothing works there any more."""
        self._desk.order(Sweep(workspace=workspace))
        if workspace in self._under_way:
            self._swept.add(workspace)
