"""The indexes of the tools that clients of a profile may find, one for each kind of client.

An index is made of lists of servers when a search needs it. It is changed when those lists have changed: tools whose
entries are the same are not indexed again. Kinds of clients that see the same lists share one index.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..search.index import Index
from .client_kind import ClientKind

CATALOGUES_MAX: Final = 16
"""Kinds of clients whose indexes are kept. At it: the one that was used least lately is dropped, and made again."""
TOOLS_MAX: Final = 5_000
"""Tools in one index. Two hundred take about a megabyte. At it: the tools of the servers that come last are not
found."""

Entries = Mapping[str, bytes]
"""The entries of a server's `tools/list` as clients see them, by name."""


class Catalogue:
    """The tools of some servers, and their index."""

    def __init__(self) -> None:
        self.index = Index()
        self.lists: dict[str, Entries] = {}

    def has(self, lists: Mapping[str, Entries]) -> bool:
        """True if these are its lists."""
        return self.lists == lists

    def replace(self, lists: Mapping[str, Entries]) -> None:
        """Takes the lists of servers, by what the servers are called."""
        for server in [server for server in self.lists if server not in lists]:
            self.index.replace(server, ())
        room = TOOLS_MAX
        for server, entries in lists.items():
            found = list(entries.values())[:room]
            room -= len(found)
            self.index.replace(server, found)
        self.lists = dict(lists)


class Catalogues:
    """The catalogues of all kinds of clients of one profile."""

    def __init__(self) -> None:
        self._by_kind: dict[ClientKind, Catalogue] = {}

    def index_of(self, kind: ClientKind, lists: Mapping[str, Entries]) -> Index:
        """Returns the index of these lists, which are what clients of the kind may see."""
        own = self._by_kind.pop(kind, None)
        found = own
        if own is None or not own.has(lists):
            found = next((other for other in self._by_kind.values() if other.has(lists)), None)
        if found is None:
            is_shared = own is None or any(other is own for other in self._by_kind.values())
            found = Catalogue() if own is None or is_shared else own
            found.replace(lists)
        if len(self._by_kind) >= CATALOGUES_MAX:
            del self._by_kind[next(iter(self._by_kind))]
        self._by_kind[kind] = found
        return found.index
