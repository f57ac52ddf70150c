"""Opens the connection to a server: starts a process or takes a warm one, or joins a two-way stream; HTTP needs
neither."""

from __future__ import annotations

from collections.abc import Callable

from ..base.effects import Join, Spawn
from ..base.plan import Kind
from ..state.context import Context
from ..state.link import Link
from ..state.upstream_channels import DuplexRole
from .addresses import Addresses
from .health import Health
from .processes import Processes
from .warm_pool import WarmPool


class Dialer:
    """Opens connections to servers.

    Args:
        connected: called with each link whose server can be written to.

    Attributes:
        processes: all processes.
        warm_pool: the spare ones.
        addresses: the addresses of each server that has several, by its id.
    """

    def __init__(self, context: Context, health: dict[str, Health], connected: Callable[[Link], None]) -> None:
        self.processes = Processes(context)
        self.warm_pool = WarmPool(context, self.processes)
        self.addresses = {
            id: Addresses(plan.addresses, context.limits)
            for id, plan in context.servers.items()
            if len(plan.addresses) > 1
        }
        self._context = context
        self._health = health
        self._connected = connected

    def choose(self, link: Link) -> int:
        """Chooses the address for a new session of the link. Returns its place."""
        addresses = self.addresses.get(link.plan.id)
        place = 0 if addresses is None else addresses.place(link.id, self._context.now)
        assert place is not None, "nothing is left out"
        return place

    def reach(self, link: Link) -> None:
        """Connects to the link's server, or takes a spare process. HTTP needs no connection: the link is connected at
        once."""
        if link.plan.kind is Kind.PIPE:
            self._spawn(link)
        elif link.is_pipe:
            self._join(link)
        else:
            self._health[link.plan.id].receive_start()
            self._connected(link)

    def _spawn(self, link: Link) -> None:
        spare = self.warm_pool.take(link.plan) if self._may_take_spare(link) else None
        if spare is not None and spare.channel is not None:
            link.receive_process(spare.workspace)
            link.connect(spare.channel)
            role = DuplexRole(link, is_process=True, was_spare=True)
            self._context.assign(spare.channel, role)
            if spare.is_connected:
                self._connected(link)
        else:
            self._health[link.plan.id].receive_start()
            target = Spawn(server=link.plan.id, workspace=link.workspace)
            channel = self._context.dial(DuplexRole(link, is_process=True), target)
            link.connect(channel)
            link.receive_process()
            self.processes.receive_started(link.plan.id, channel)
            self.warm_pool.make_room()

    def _may_take_spare(self, link: Link) -> bool:
        """True if the session may run in a spare process, whose workspace then becomes the session's.

        A server with files keeps a session's workspace: one that was started before has files there, and so may one
        whose process is started for its first call.
        """
        return not link.has_files or (link.upstream.incarnation <= 1 and not link.is_furnished)

    def why_not(self, link: Link) -> str | None:
        """Returns why no connection can be opened for the link now; None if one can."""
        needs_room = link.plan.kind is Kind.PIPE and not self.warm_pool.spare_count(link.plan.id)
        if needs_room and not self.warm_pool.has_room:
            return f"{self.processes.count} server processes run, the most allowed; try again later"
        return self._health[link.plan.id].why_not(self._context.now)

    def _join(self, link: Link) -> None:
        self._health[link.plan.id].receive_start()
        self.join(link)

    def join(self, link: Link, *, is_repeated: bool = False) -> None:
        """Connects to the server's two-way stream."""
        role = DuplexRole(link, is_process=False, is_repeated=is_repeated)
        target = Join(link.plan.id, link.headers, principal=link.logs_in_as, address=link.address)
        link.connect(self._context.dial(role, target))
