"""A storage that carries out each order in its own time and never fails."""

from __future__ import annotations

import hashlib
import random

from isthmus.core.base.effects import Effect
from isthmus.core.base.storage import (
    Collect,
    Collected,
    CollectedFile,
    Conflicted,
    Discard,
    Fetch,
    Fetched,
    Forget,
    InlineSource,
    Load,
    Loaded,
    Save,
    Saved,
    StorageAnswer,
    StorageFailed,
)
from simulated_network import Network


class Storage:
    """The storage.

    Attributes:
        records, blobs: its content.
    """

    def __init__(self, network: Network) -> None:
        self._network = network
        self._rng: random.Random = network.rng_of("storage")
        self.records: dict[str, bytes] = {}
        self.blobs: dict[str, bytes] = {}

    def carry_out(self, order: Effect) -> bool:
        """Carries out an order. Returns False if the order is none for a storage."""
        if isinstance(order, Forget):
            self.records.pop(order.key, None)
        elif isinstance(order, Discard):
            self.blobs.pop(order.blob, None)
        elif isinstance(order, Save | Load | Collect | Fetch):
            answer = self._answer(order)
            self._network.later(self._rng.uniform(0.0, 0.05), self._network.answer, order.ticket, answer)
        else:
            return False
        return True

    def _answer(self, order: Save | Load | Collect | Fetch) -> StorageAnswer:
        if isinstance(order, Save):
            if order.if_version == 0 and order.key in self.records:
                return Conflicted()
            self.records[order.key] = order.value
            return Saved()
        if isinstance(order, Load):
            return Loaded(self.records.get(order.key))
        if isinstance(order, Fetch):
            data = self.blobs.get(order.blob)
            return StorageFailed("there is none", is_missing=True) if data is None else Fetched(data)
        files = []
        for source, blob in zip(order.sources, order.blobs, strict=True):
            assert isinstance(source, InlineSource)
            self.blobs[blob] = source.data
            sha256 = hashlib.sha256(source.data).hexdigest()
            files.append(CollectedFile(filename=source.filename, size_bytes=len(source.data), sha256=sha256))
        return Collected(tuple(files))
