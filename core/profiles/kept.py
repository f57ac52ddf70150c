"""Lists of servers as they are kept, and the snapshots made of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from .rewriting import Snapshot


class Kept(NamedTuple):
    """The list of one server.

    Attributes:
        entries: the entries as clients see them, by name.
        raws: the server's own names, by those that clients see.
        expires_at: when it is too old.
        is_changed: the server has said that it has changed.
    """

    entries: Mapping[str, bytes]
    raws: Mapping[str, str]
    expires_at: float
    is_changed: bool = False


class KeptSnapshots(Mapping[str, Snapshot]):
    """The snapshots of servers, each made, and judged, when it is looked at: most names need none."""

    def __init__(
        self, servers: tuple[str, ...], shows: Callable[[str], bool], kept: Mapping[tuple[str, str], Kept]
    ) -> None:
        self._servers = servers
        self._shows = shows
        self._kept = kept

    def __getitem__(self, server: str) -> Snapshot:
        if server not in self._servers or not self._shows(server):
            raise KeyError(server)
        tools, prompts, uris = (
            self._raws(server, method) for method in ("tools/list", "prompts/list", "resources/list")
        )
        return Snapshot(tools, prompts, uris)

    def __iter__(self) -> Iterator[str]:
        return filter(self._shows, self._servers)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _raws(self, server: str, method: str) -> Mapping[str, str]:
        found = self._kept.get((server, method))
        return {} if found is None else found.raws
