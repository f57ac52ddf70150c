"""Stops server processes that had no request for a while. The next request starts them again."""

from __future__ import annotations

from ..base.plan import Kind, ServerPlan
from ..state.context import Context
from ..state.exchange import Exchange
from ..state.interceptor import Interceptor
from ..state.link import Link
from ..state.upstream_session import UpstreamSessionState
from ..upstream.failures import Failures


class IdleStop(Interceptor):
    """The idle time of each process (`ServerPlan.idle_stop_s`)."""

    name = "idle stop"

    def __init__(self, context: Context, failures: Failures) -> None:
        self._context = context
        self._failures = failures

    def is_for(self, plan: ServerPlan) -> bool:
        return plan.kind is Kind.PIPE and plan.idle_stop_s is not None

    def has_say(self, link: Link) -> bool:
        return False

    def receive_request(self, link: Link, exchange: Exchange) -> bool:
        self.restart(link)
        return False

    def restart(self, link: Link) -> None:
        """Restarts the idle time of a process."""
        if link.plan.kind is Kind.PIPE and link.plan.idle_stop_s is not None:
            at = self._context.now + link.plan.idle_stop_s
            self._context.timers.set(("rest", link.id), at, "idle server process")

    def handle_rest(self, link: Link) -> None:
        """Stops a process whose time is over, unless something still depends on it."""
        if link.upstream.state is not UpstreamSessionState.READY:
            return
        questions = any(session.questions for session in link.sessions.values())
        if link.pending or link.queue or questions or link.is_awaited or link.upstream_tasks:
            self.restart(link)
        else:
            self._failures.rest(link)
