"""Time limits for calls of certain tools, from the arrival of the call to its response (`ServerPlan.tool_time_limits`).

Unlike the reply timeout, a limit is not put off by progress or questions. A call that has become a task is not limited:
a task has a time of its own.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

from ..base.errors import TIMED_OUT
from ..base.plan import ServerPlan
from ..downstream.responder import Responder
from ..state.context import Context
from ..state.exchange import Exchange, ExchangeKey
from ..state.interceptor import Interceptor
from ..state.link import Link
from ..state.session import Session
from ..upstream.task_offers import tool_of


class ToolTimeLimits(Interceptor):
    """Gives up calls that take too long."""

    name = "time limits"

    def __init__(self, context: Context, responder: Responder) -> None:
        self._context = context
        self._responder = responder

    def is_for(self, plan: ServerPlan) -> bool:
        return bool(plan.tool_time_limits)

    def receive_request(self, link: Link, exchange: Exchange) -> bool:
        if exchange.method == "tools/call":
            limit_s = _limit_of(link.plan, tool_of(exchange))
            if limit_s is not None:
                timer = "limit", (exchange.sid, exchange.key)
                self._context.timers.set(timer, self._context.now + limit_s, "time limit of a tool")
        return False

    def handle_limit(self, session: Session, key: ExchangeKey) -> None:
        """Gives up a call whose time is over, and cancels it at the server."""
        exchange = session.exchanges.get(key)
        if exchange is None or exchange.task is not None:
            return
        tool = tool_of(exchange)
        limit_s = _limit_of(self._context.servers[session.server], tool)
        text = f"{tool[:100]} took longer than the {limit_s:g} s that it may take: given up"
        if exchange.is_begun:
            text, outcome = f"{text}; it may have run", "unknown"
        else:
            text, outcome = f"{text}; it did not run", "not_executed"
        self._responder.fail(session, exchange, TIMED_OUT, text, {"outcome": outcome})

    def forget(self, link: Link | None, session: Session, exchange: Exchange) -> None:
        self._context.timers.cancel(("limit", (exchange.sid, exchange.key)))


def _limit_of(plan: ServerPlan, tool: str) -> float | None:
    """Returns the limit of the first pattern that matches the tool, in seconds; None if none does."""
    return next((limit_s for pattern, limit_s in plan.tool_time_limits if fnmatchcase(tool, pattern)), None)
