"""Processes started before anybody needs them, so that a session does not wait for its server to start."""

from __future__ import annotations

from ..base.effects import Cause, Spawn
from ..base.ids import ChannelId
from ..base.plan import Kind, ServerPlan
from ..state.context import Desk, Role
from .health import Health


class SpareRole(Role):
    """A process that no session has yet."""

    __slots__ = ("channel", "is_connected", "server", "workspace")

    def __init__(self, server: str, workspace: str) -> None:
        self.server = server
        self.workspace = workspace
        self.channel = ChannelId(0)
        self.is_connected = False


class Nursery:
    """The spare processes of all servers, and the count of all processes.

    Attributes:
        children: processes that were started and are not known to be gone, spare or not.
    """

    def __init__(self, desk: Desk) -> None:
        self.children = 0
        self._desk = desk
        self._spares: dict[str, list[SpareRole]] = {}

    @property
    def has_room(self) -> bool:
        return self.children < self._desk.limits.children_max

    def spare_count(self, server: str) -> int:
        return len(self._spares.get(server, ()))

    def take(self, plan: ServerPlan) -> SpareRole | None:
        """The spare process that was started first. From now on it is the caller's."""
        spares = self._spares.get(plan.id)
        return spares.pop(0) if spares else None

    def refill(self, plan: ServerPlan, health: Health) -> None:
        """Start as many as the plan wants, as far as there is room and the server fares well."""
        if plan.kind is not Kind.PIPE or self._desk.is_draining:
            return
        spares = self._spares.setdefault(plan.id, [])
        while len(spares) < plan.spares and self.has_room and health.why_not(self._desk.now) is None:
            role = SpareRole(plan.id, self._desk.mint())
            health.receive_start()
            role.channel = self._desk.dial(role, Spawn(server=plan.id, workspace=role.workspace))
            spares.append(role)
            self.children += 1

    def receive_connected(self, role: SpareRole) -> None:
        role.is_connected = True

    def receive_close(self, role: SpareRole, cause: Cause, health: Health) -> None:
        """A spare process is gone. It is replaced when the next one is taken, lest a crash becomes a loop."""
        self.children -= 1
        spares = self._spares.get(role.server, [])
        if role in spares:
            spares.remove(role)
            self._desk.note("warning", f"a spare process is gone: {cause.detail or cause.end.value}", role.server)
            health.receive_failure(cause.detail or cause.end.value, self._desk.now)

    def let_go(self, server: str | None = None) -> None:
        """Stop the spare processes of a server, or of all."""
        for id, spares in self._spares.items():
            if server is None or id == server:
                for role in spares:
                    self._desk.close(role.channel, reason="it is not needed any more")
                spares.clear()
