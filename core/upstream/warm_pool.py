"""A pool of server processes started ahead of need, so that a session does not wait for its server to start."""

from __future__ import annotations

from ..base.effects import Spawn
from ..base.events import Cause
from ..base.plan import Kind, ServerPlan
from ..state.context import ChannelRole, Context
from .health import Health
from .processes import Processes


class WarmProcessRole(ChannelRole):
    """A process that belongs to no session yet."""

    __slots__ = ("is_connected", "server", "workspace")

    def __init__(self, server: str, workspace: str) -> None:
        self.server = server
        self.workspace = workspace
        self.is_connected = False

    def connect(self) -> None:
        """Records that the process runs."""
        self.is_connected = True


class WarmPool:
    """The spare processes of all servers, within the bound on all processes."""

    def __init__(self, context: Context, processes: Processes) -> None:
        self._processes = processes
        self._context = context
        self._spares: dict[str, list[WarmProcessRole]] = {}

    @property
    def has_room(self) -> bool:
        return self._processes.count < self._context.limits.children_max

    def spare_count(self, server: str) -> int:
        return len(self._spares.get(server, ()))

    def take(self, plan: ServerPlan) -> WarmProcessRole | None:
        """Returns the spare process that was started first, and removes it from the pool."""
        spares = self._spares.get(plan.id)
        return spares.pop(0) if spares else None

    def refill(self, plan: ServerPlan, health: Health) -> None:
        """Starts as many spare processes as the plan wants, within `Limits.children_max` and while the server is
        healthy."""
        if plan.kind is not Kind.PIPE or self._context.is_draining:
            return
        spares = self._spares.setdefault(plan.id, [])
        while len(spares) < plan.spares and self.has_room and health.why_not(self._context.now) is None:
            role = WarmProcessRole(plan.id, self._context.mint())
            health.receive_start()
            channel = self._context.dial(role, Spawn(server=plan.id, workspace=role.workspace))
            spares.append(role)
            self._processes.receive_started(plan.id, channel)

    def receive_connected(self, role: WarmProcessRole) -> None:
        """Handles a spare process that runs."""
        role.connect()

    def receive_close(self, role: WarmProcessRole, cause: Cause, health: Health) -> None:
        """Handles the end of a spare process. It is replaced only when the next one is taken, so that a crash becomes
        no loop."""
        spares = self._spares.get(role.server, [])
        if role in spares:
            spares.remove(role)
            self._context.note("warning", f"a spare process is gone: {cause.detail or cause.end.value}", role.server)
            if not cause.is_ours:
                health.receive_failure(cause.detail or cause.end.value, self._context.now)

    def let_go(self, server: str | None = None) -> None:
        """Stops the spare processes of a server, or of all servers."""
        for id, spares in self._spares.items():
            if server is None or id == server:
                for role in spares:
                    self._context.close(role.channel, reason="it is not needed any more")
                spares.clear()
