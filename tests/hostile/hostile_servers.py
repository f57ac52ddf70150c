"""The hostile servers: a client asks a server of `rude_server.py` to misbehave."""

from __future__ import annotations

from typing import Final

from attacker import EXITING, OWN, REMOTE, Attack, Storm, Visit, encode


class RudeCalls(Attack):
    """Calls of one tool of the rude server, each in a session of its own."""

    width = 2

    def __init__(self, name: str, server: str, tool: str, *reaches: str) -> None:
        self.name = name
        self.reaches = frozenset(reaches)
        self._server = server
        self._tool = tool

    async def make_round(self, storm: Storm) -> None:
        await self.call(storm, await Visit.begin(storm, self._server))

    async def call(self, storm: Storm, visit: Visit) -> None:
        await visit.call(self._tool)
        storm.counts["calls"] += 1


class ListChangedFlood(RudeCalls):
    """Thousands of notices that the list of tools has changed, and then a list of 100,000."""

    async def call(self, storm: Storm, visit: Visit) -> None:
        await super().call(storm, visit)
        await visit.send(encode("tools/list", {}, id=2))


class ExitsAtOnce(Attack):
    """A server that exits whenever it is started."""

    name = "exits-at-once"

    async def make_round(self, storm: Storm) -> None:
        await Visit.begin(storm, EXITING)


SERVERS: Final[tuple[Attack, ...]] = (
    RudeCalls("stderr-flood", OWN, "write_stderr"),  # 4 MiB of escape sequences
    RudeCalls("endless-line", OWN, "endless_line", "reply_size_max_bytes"),
    RudeCalls("doubled-ids", OWN, "doubled_ids"),  # thousands of answers to one call
    RudeCalls("unknown-ids", OWN, "unknown_ids"),  # answers to calls that never were
    RudeCalls("notification-flood", OWN, "notifications"),  # also progress under tokens that nobody gave out
    ListChangedFlood("list-changed-flood", OWN, "list_changes"),
    ExitsAtOnce(),
    RudeCalls("endless-head", REMOTE, "endless_head"),
    RudeCalls("endless-body", REMOTE, "endless_body", "reply_size_max_bytes"),
    RudeCalls("compressed-answers", REMOTE, "compressed"),  # in a coding that the request does not accept, of 64 MiB
    RudeCalls("giant-event", REMOTE, "giant_event"),  # many short lines
)
