"""A pool of server processes started ahead of need, so that a session does not wait for its server to start."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ..base.effects import Spawn
from ..base.events import Cause, End
from ..base.ids import ChannelId
from ..base.plan import Kind, ServerPlan
from ..state.context import ChannelRole, Context
from ..state.link import Link
from .health import Health
from .processes import Processes

TRIAL_S: Final = 5.0
"""Seconds after the start of a spare process in which the end of another process of its server counts as its doing. A
server takes what only one process can have, such as a port, when it starts."""
LOOK_S: Final = 0.5
"""Seconds between two looks whether processes are still starting for sessions, before spare ones on trial are."""
REFILL_WITHIN_S: Final = 10.0
"""Seconds that a spare process on trial waits for those that start for sessions. Most take up to five. Where processes
start all the time, the next session would else never find one."""
NOT_NEEDED: Final = "it is not needed any more"


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
    """The spare processes of all servers, within the bound on all processes.

    The spare processes of a server with `ServerPlan.spares_on_trial` are a default. They are started once a session
    has used the server, and when no process starts for a session, which would take longer beside them. They use at most
    half of the room for processes, and are stopped after `Limits.spare_idle_s` without a session. A server may need
    what only one process can have. So none is kept any more, until an operator starts the server, once a spare process
    ends by itself, or another process ends right after it was started or cannot be started beside it.
    """

    def __init__(self, context: Context, processes: Processes) -> None:
        self._processes = processes
        self._context = context
        self._spares: dict[str, list[WarmProcessRole]] = {}
        self._after_brief: set[ChannelId] = set()  # processes at whose end spare ones are started
        self._given_up: set[str] = set()
        self._on_trial_until: dict[str, float] = {}
        self._waiting_since: dict[str, float] = {}

    @property
    def has_room(self) -> bool:
        return self._processes.count < self._context.limits.children_max

    def spare_count(self, server: str) -> int:
        return len(self._spares.get(server, ()))

    def take(self, plan: ServerPlan) -> WarmProcessRole | None:
        """Returns the spare process that was started first, and removes it from the pool."""
        spares = self._spares.get(plan.id)
        if not spares:
            return None
        role = spares.pop(0)
        self._context.timers.cancel(("spare", role.channel))
        return role

    def receive_ready(self, link: Link, health: Health) -> None:
        """Handles a session that is ready: starts spare processes for the next ones.

        The process of a brief session ends soon. They are started once it is gone, so that the first client finds one
        even if only one can run at a time.
        """
        if link.plan.spares and link.is_brief and link.channel is not None:
            self._after_brief.add(link.channel)
        else:
            self.refill(link.plan, health)

    def receive_session_process_end(self, channel: ChannelId, plan: ServerPlan, health: Health, cause: Cause) -> None:
        """Handles the end of a process that served a session, or was to serve one."""
        if channel in self._after_brief:
            self._after_brief.discard(channel)
            self.refill(plan, health)
        elif cause.end is End.BROKEN and self._context.now < self._on_trial_until.get(plan.id, float("-inf")):
            self.give_up(plan, "the process of a session ended when a spare one was started")

    def refill(self, plan: ServerPlan, health: Health) -> None:
        """Starts as many spare processes as the plan wants, within the bound on all processes and while the server is
        healthy."""
        if plan.kind is not Kind.PIPE or self._context.is_draining or plan.id in self._given_up:
            return
        spares = self._spares.setdefault(plan.id, [])
        if plan.spares_on_trial and len(spares) < plan.spares and self._must_wait(plan):
            self._context.timers.set(("refill", plan.id), self._context.now + LOOK_S, "other processes start")
            return
        while len(spares) < plan.spares and self._has_room_for(plan) and health.why_not(self._context.now) is None:
            role = WarmProcessRole(plan.id, self._context.mint())
            health.receive_start()
            channel = self._context.dial(role, Spawn(server=plan.id, workspace=role.workspace))
            spares.append(role)
            self._processes.receive_started(plan.id, channel)
            if plan.spares_on_trial:
                now = self._context.now
                self._on_trial_until[plan.id] = now + TRIAL_S
                self._context.timers.set(("spare", channel), now + self._context.limits.spare_idle_s, "spare process")

    def _must_wait(self, plan: ServerPlan) -> bool:
        """True while processes start for sessions, for `REFILL_WITHIN_S` at most."""
        since = self._waiting_since.setdefault(plan.id, self._context.now)
        if self._processes.is_starting and self._context.now < since + REFILL_WITHIN_S:
            return True
        del self._waiting_since[plan.id]
        return False

    def _has_room_for(self, plan: ServerPlan) -> bool:
        return self.has_room and not (plan.spares_on_trial and self._is_half_full)

    @property
    def _is_half_full(self) -> bool:
        return self._processes.count >= self._context.limits.children_max // 2

    def make_room(self) -> None:
        """Stops the spare processes on trial, if sessions need more than half of the room."""
        if self._is_half_full:
            self._let_go(lambda id: self._context.servers[id].spares_on_trial)

    def give_up(self, plan: ServerPlan, reason: str) -> None:
        """Keeps no process of the server ready any more, if its spare ones are on trial."""
        if plan.spares_on_trial and plan.id not in self._given_up:
            self._given_up.add(plan.id)
            self._context.note("info", f"no process is kept ready for the next session: {reason}", plan.id)
            self.let_go(plan.id)

    def receive_order(self, server: str) -> None:
        """Handles an operator's order to start the server: processes may be kept ready again."""
        self._given_up.discard(server)

    def handle_idle(self, channel: ChannelId) -> None:
        """Stops a spare process that no session took for `Limits.spare_idle_s`."""
        for spares in self._spares.values():
            for role in [role for role in spares if role.channel == channel]:
                spares.remove(role)
                self._context.close(role.channel, reason=NOT_NEEDED)

    def receive_connected(self, role: WarmProcessRole) -> None:
        """Handles a spare process that runs."""
        role.connect()

    def receive_close(self, role: WarmProcessRole, cause: Cause, health: Health) -> None:
        """Handles the end of a spare process. It is replaced only when the next one is taken, so that a crash becomes
        no loop."""
        spares = self._spares.get(role.server, [])
        if role not in spares:
            return
        spares.remove(role)
        self._context.timers.cancel(("spare", role.channel))
        reason = cause.detail or cause.end.value
        plan = self._context.servers[role.server]
        if plan.spares_on_trial:
            if not cause.is_ours:
                self.give_up(plan, f"a spare one ended: {reason}")
            return
        self._context.note("warning", f"a spare process is gone: {reason}", role.server)
        if not cause.is_ours:
            health.receive_failure(reason, self._context.now)

    def let_go(self, server: str | None = None) -> None:
        """Stops the spare processes of a server, or of all servers."""
        self._let_go(lambda id: server in (None, id))

    def _let_go(self, is_meant: Callable[[str], bool]) -> None:
        for id, spares in self._spares.items():
            if is_meant(id):
                for role in spares:
                    self._context.timers.cancel(("spare", role.channel))
                    self._context.close(role.channel, reason=NOT_NEEDED)
                spares.clear()
