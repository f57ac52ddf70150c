"""How a server is reached: a process is started, or a spare one taken, or a stream joined; HTTP needs nothing."""

from __future__ import annotations

from collections.abc import Callable

from ..base.effects import Join, Spawn
from ..base.plan import Kind
from ..state.context import Desk
from ..state.link import ChildRole, Link
from .health import Health
from .warm_pool import Nursery


class Reaching:
    """
    Args:
        connected: to be told of each link that can be spoken on.

    Attributes:
        nursery: the spare processes, and the number of all.
    """

    def __init__(self, desk: Desk, health: dict[str, Health], connected: Callable[[Link], None]) -> None:
        self.nursery = Nursery(desk)
        self._desk = desk
        self._health = health
        self._connected = connected

    def reach(self, link: Link) -> None:
        if link.plan.kind is Kind.PIPE:
            self._spawn(link)
        elif link.is_pipe:
            self._join(link)
        else:
            self._health[link.plan.id].receive_start()
            self._connected(link)

    def _spawn(self, link: Link) -> None:
        spare = self.nursery.take(link.plan) if self._may_move(link) else None
        if spare is not None:
            link.workspace = spare.workspace
            if not link.is_shared:
                link.session.workspace = spare.workspace
            link.channel = spare.channel
            link.children += 1
            role = ChildRole(link, is_process=True)
            self._desk.assign(spare.channel, role)
            if spare.is_connected:
                self._connected(link)
        else:
            self._health[link.plan.id].receive_start()
            target = Spawn(server=link.plan.id, workspace=link.workspace)
            link.channel = self._desk.dial(ChildRole(link, is_process=True), target)
            link.children += 1
            self.nursery.children += 1

    def _may_move(self, link: Link) -> bool:
        """Where there are files, a session that has been served before has its own in its folders, and so may one whose
        first call is what the process is started for."""
        return not link.has_files or (link.upstream.incarnation <= 1 and not link.is_furnished)

    def why_not(self, link: Link) -> str | None:
        """Why nothing can be started for it now."""
        needs_room = link.plan.kind is Kind.PIPE and not self.nursery.spare_count(link.plan.id)
        if needs_room and not self.nursery.has_room:
            return f"{self.nursery.children} server processes run, the most allowed; try again later"
        return self._health[link.plan.id].why_not(self._desk.now)

    def _join(self, link: Link) -> None:
        self._health[link.plan.id].receive_start()
        self.join(link)

    def join(self, link: Link, *, is_repeated: bool = False) -> None:
        """Connect to the server's two-way stream."""
        role = ChildRole(link, is_process=False, is_repeated=is_repeated)
        link.channel = self._desk.dial(role, Join(link.plan.id, link.headers))
