"""The hostile servers, one class a kind: a client asks a server of `rude_server.py` to misbehave."""

from __future__ import annotations

from typing import ClassVar, Final

from attacker import EXITING, OWN, REMOTE, Attack, Storm, Visit


class RudeCalls(Attack):
    """Calls of one tool of the rude server, each in a session of its own."""

    server: ClassVar[str]
    tool: ClassVar[str]
    width = 2

    async def make_round(self, storm: Storm) -> None:
        visit = await Visit.begin(storm, self.server)
        await visit.call(self.tool)
        storm.counts["calls"] += 1


class StderrFlood(RudeCalls):
    """4 MiB of escape sequences on stderr."""

    name, server, tool = "stderr-flood", OWN, "write_stderr"


class EndlessLine(RudeCalls):
    """One line on stdout that does not end."""

    name, server, tool = "endless-line", OWN, "endless_line"


class DoubledIds(RudeCalls):
    """Thousands of answers to one call."""

    name, server, tool = "doubled-ids", OWN, "doubled_ids"


class UnknownIds(RudeCalls):
    """Answers to calls that never were."""

    name, server, tool = "unknown-ids", OWN, "unknown_ids"


class NotificationFlood(RudeCalls):
    """Log messages, and progress under tokens that nobody gave out."""

    name, server, tool = "notification-flood", OWN, "notifications"


class ListChangedFlood(RudeCalls):
    """Thousands of notices that the list of tools has changed, and then a list of 100,000."""

    name, server, tool = "list-changed-flood", OWN, "list_changes"

    async def make_round(self, storm: Storm) -> None:
        await super().make_round(storm)
        visit = await Visit.begin(storm, self.server)
        await visit.send(b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}')


class ExitsAtOnce(Attack):
    """A server that exits whenever it is started."""

    name = "exits-at-once"

    async def make_round(self, storm: Storm) -> None:
        await Visit.begin(storm, EXITING)


class EndlessHead(RudeCalls):
    """A response whose headers do not end."""

    name, server, tool = "endless-head", REMOTE, "endless_head"


class EndlessBody(RudeCalls):
    """A response whose body does not end."""

    name, server, tool = "endless-body", REMOTE, "endless_body"


class CompressedAnswers(RudeCalls):
    """Responses in a coding that the request does not accept, of 64 MiB when decoded."""

    name, server, tool = "compressed-answers", REMOTE, "compressed"


class GiantEvent(RudeCalls):
    """One event of many short lines that does not end."""

    name, server, tool = "giant-event", REMOTE, "giant_event"


SERVERS: Final[tuple[type[Attack], ...]] = (
    StderrFlood,
    EndlessLine,
    DoubledIds,
    UnknownIds,
    NotificationFlood,
    ListChangedFlood,
    ExitsAtOnce,
    EndlessHead,
    EndlessBody,
    CompressedAnswers,
    GiantEvent,
)
