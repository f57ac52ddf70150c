"""Records of a storage, each with a version."""

from __future__ import annotations

from isthmus.core.base.storage import Conflicted, Load, Loaded, Save, Saved


class VersionedRecords(dict[str, bytes]):
    """The values by key. Whatever is written gets a version greater than all before."""

    def __init__(self) -> None:
        super().__init__()
        self._versions: dict[str, int] = {}
        self._last = 0

    def __setitem__(self, key: str, value: bytes) -> None:
        self._last += 1
        self._versions[key] = self._last
        super().__setitem__(key, value)

    def answer(self, order: Load | Save) -> Loaded | Saved | Conflicted:
        """Carries out an order."""
        if isinstance(order, Load):
            return Loaded(self.get(order.key), self.version(order.key))
        if order.if_version not in (None, self.version(order.key)):
            return Conflicted()
        self[order.key] = order.value
        return Saved(self.version(order.key))

    def version(self, key: str) -> int:
        """The version of a record; 0 if there is none."""
        return self._versions[key] if key in self else 0
