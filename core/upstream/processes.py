"""The processes of all servers, and when a process that failed to start is started again.

A server may need what only one process can have: a port, a lock, a browser profile. A process of such a server fails to
start while an earlier one is ending. That is no failure of the server: it is started again once the earlier ones are
gone. If another process works for another session, a second one can never start, and its client is told what helps.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Final

from ..base.events import HINT
from ..base.ids import ChannelId
from ..state.context import Context
from ..state.link import Link
from ..state.upstream_channels import DuplexRole
from ..state.upstream_session import UpstreamSessionState

STARTING: Final = frozenset({UpstreamSessionState.DIALING, UpstreamSessionState.INITIALIZING})


class Restart(enum.Enum):
    """The time at which a process that ended before it was ready is started again."""

    LATER = "later"  # when the earlier processes are gone that are ending
    NOW = "now"  # the earlier processes have ended since it was started
    CONFLICT = "conflict"  # not, as another process of its server works
    NEVER = "never"  # not, as no other process explains it


def restart_after(*, overlapped: bool, ending: bool, working: bool) -> Restart:
    """Returns when a process is started again that ended before it was ready.

    Args:
        overlapped: an earlier process was ending when it was started.
        ending: an earlier process is ending now.
        working: another process of its server serves a session.
    """
    if ending:
        return Restart.LATER
    if overlapped:
        return Restart.NOW
    return Restart.CONFLICT if working else Restart.NEVER


def explain(reason: str, share: str) -> str:
    """Returns how a process ended that could not run beside another one, with what helps in place of another hint.

    Args:
        share: the setting that has all sessions use one process.
    """
    advice = f"this server runs for another session already; if it can run only once, set {share}"
    return reason.partition(HINT)[0] + HINT + advice


class Processes:
    """The processes of all servers, spare or not, and the links that wait for the end of some.

    A link waits for the processes that are ending when its own ends, and for no later ones, so other sessions cannot
    delay it without end. `Limits.start_timeout_s` bounds all its attempts together.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._overlapped: dict[str, dict[ChannelId, bool]] = {}  # the processes by server, as in `restart_after`
        self._waiting: dict[str, tuple[Link, set[ChannelId]]] = {}  # by the links' ids; what each waits for

    @property
    def count(self) -> int:
        """The number of processes that were started and are not known to be gone."""
        return sum(map(len, self._overlapped.values()))

    @property
    def is_starting(self) -> bool:
        """True if a process of any server is starting for a session."""
        channels = [channel for channels in self._overlapped.values() for channel in channels]
        roles = map(self._context.role_if_open, channels)
        return any(isinstance(role, DuplexRole) and role.link.upstream.state in STARTING for role in roles)

    def receive_started(self, server: str, channel: ChannelId) -> None:
        """Records a process that was started."""
        self._overlapped.setdefault(server, {})[channel] = bool(self._ending(server))

    def receive_ended(self, server: str, channel: ChannelId) -> bool:
        """Records that a process is gone. True if an earlier one was ending when it was started."""
        return self._overlapped[server].pop(channel)

    def restart_after(self, server: str, *, overlapped: bool) -> Restart:
        """Returns when a process is started again that ended before it was ready. It is recorded as gone."""
        roles = [self._context.role_if_open(channel) for channel in self._overlapped[server]]
        working = any(isinstance(role, DuplexRole) and role.link.upstream.state not in STARTING for role in roles)
        return restart_after(overlapped=overlapped, ending=bool(self._ending(server)), working=working)

    def wait(self, link: Link) -> None:
        """Has a link wait until the processes are gone that are ending now."""
        self._waiting[link.id] = link, self._ending(link.plan.id)

    def start_waiting(self, channel: ChannelId, start: Callable[[Link], None]) -> None:
        """Starts the links that waited for this process, which is gone, and for no other."""
        for id, (link, ending) in list(self._waiting.items()):
            ending.discard(channel)
            if not ending:
                del self._waiting[id]
                if link.upstream.state is UpstreamSessionState.DIALING and link.channel is None:
                    start(link)

    def _ending(self, server: str) -> set[ChannelId]:
        channels = self._overlapped.get(server, {})
        return {channel for channel in channels if not self._context.is_open(channel)}
