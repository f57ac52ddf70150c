"""The times of the storage orders of the engine, and the failures among them."""

from __future__ import annotations

from typing import Final

from ...core.base.storage import (
    Allocate,
    Collect,
    Discard,
    Extend,
    Fetch,
    Forget,
    ForgetAll,
    Load,
    Materialize,
    Remove,
    Save,
    StorageOrder,
    Survey,
    Sweep,
)
from .histogram import STEPS_S, Histogram

OPERATIONS: Final[dict[type[StorageOrder], tuple[str, str]]] = {
    Load: ("records", "load"),
    Save: ("records", "save"),
    Forget: ("records", "delete"),
    ForgetAll: ("records", "delete_all"),
    Extend: ("blobs", "append"),
    Fetch: ("blobs", "read"),
    Discard: ("blobs", "delete"),
    Collect: ("blobs", "take_in"),
    Materialize: ("workspaces", "write"),
    Allocate: ("workspaces", "make_folder"),
    Survey: ("workspaces", "survey"),
    Remove: ("workspaces", "remove"),
    Sweep: ("workspaces", "sweep"),
}
"""The store that an order is for, and what it does there. A file of a server is read from its workspace and kept as a
blob (take in), or the other way round (write)."""


class StoreTimes:
    """The durations of storage orders.

    Attributes:
        durations: by store and operation.
        failures: orders that failed, or took too long, by store and operation.
    """

    def __init__(self) -> None:
        self.durations = {operation: Histogram(STEPS_S) for operation in OPERATIONS.values()}
        self.failures = dict.fromkeys(OPERATIONS.values(), 0)

    def note(self, order: StorageOrder, duration_s: float, has_failed: bool) -> None:
        """Counts an order that was carried out."""
        operation = OPERATIONS[type(order)]
        self.durations[operation].observe(duration_s)
        self.failures[operation] += has_failed
