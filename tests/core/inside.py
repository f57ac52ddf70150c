"""The private parts of an engine, for tests that check what it holds: the one place that knows how to find them."""

from __future__ import annotations

from typing import Any


class Inside:
    """The parts of one engine."""

    def __init__(self, engine: Any) -> None:
        self.context = engine._context
        self.storage_orders = engine._storage_orders
        self.sessions = engine._downstream.sessions
        self.streams = engine._downstream.streams
        self.handshaker = engine._upstream.handshaker
        self.client_listens = engine._subscriptions.client_listens
        self.links = engine._router.links
        self.fast_path = engine._endpoints.fast_path
        self.known_clients = self.fast_path._known
        self.by_affinity = self.known_clients._by_affinity.sessions
        self.questions = next(feature for feature in engine._features if type(feature).__name__ == "Questions")
        self.task_table = engine._tasks._table
        self.local_tasks = engine._tasks._local_tasks
        self.file_store = engine._files._file_store
        self.plane = engine._files._plane
        self.calls = self.plane._calls
        self.resources = engine._files._resources
        self.resumable_uploads = engine._files._resumable_uploads
