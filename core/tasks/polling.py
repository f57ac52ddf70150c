"""Our own requests about tasks of servers, and the time of the next poll."""

from __future__ import annotations

from typing import Final

import msgspec

from ..bridge import task_support
from ..bridge.request_meta import RequestMeta, add, own_envelope
from ..state.context import Context
from ..state.exchange import Exchange
from ..state.link import FETCH, Link
from ..upstream.writer import UpstreamWriter
from .local_tasks import LocalTasks

PAUSE_GROWTH: Final = 1.5


class TaskPolling:
    """Sends requests about tasks of servers, and schedules polls."""

    def __init__(self, context: Context, writer: UpstreamWriter, local_tasks: LocalTasks) -> None:
        self._context = context
        self._writer = writer
        self._local_tasks = local_tasks

    def run(self, link: Link, exchange: Exchange, purpose: str, method: str, params: object, about: str = "") -> int:
        """Sends a request about a task. A stateless server gets the metadata of the call's client with it. Returns the
        number of the request."""
        encoded = msgspec.json.encode(params)
        if link.is_stateless:
            encoded = add(encoded, self._envelope(link, exchange))
        return self._writer.run(link, purpose, method, encoded, about=about, exchange=exchange)

    def _envelope(self, link: Link, exchange: Exchange) -> RequestMeta:
        session = link.sessions.get(exchange.sid)  # None: on a shared process a session may end before its call does
        plan = self._context.plan
        meta = exchange.request or (own_envelope("", plan.name, plan.version) if session is None else session.client)
        assert link.upstream.revision is not None
        capabilities = task_support.declare_modern(meta.capabilities)
        return msgspec.structs.replace(meta, revision=link.upstream.revision, capabilities=capabilities, log_level=None)

    def fetch(self, link: Link, exchange: Exchange) -> None:
        """Asks for the outcome of a task, which its server sends when it is over."""
        upstream_task = exchange.upstream_task
        assert upstream_task is not None
        upstream_task.begin_fetch()
        self.run(link, exchange, FETCH, "tasks/result", {"taskId": upstream_task.id})

    def drop(self, link: Link, exchange: Exchange, purpose: str) -> None:
        """Gives up the request of that purpose."""
        assert exchange.upstream_task is not None
        number = exchange.upstream_task.give_up(purpose)
        if number is not None and number in link.pending:
            self._writer.give_up_numbers(link, [number])

    def poll_later(self, exchange: Exchange) -> None:
        """Schedules the next poll of a task. While no client waits, the pauses grow up to `Limits.task_poll_max_s`."""
        upstream_task, limits = exchange.upstream_task, self._context.limits
        assert upstream_task is not None
        is_hurried = exchange.task is None or self._local_tasks.is_awaited(exchange)
        min_s = 0.0
        if upstream_task.is_fetched and not (is_hurried and exchange.token_raw is not None):
            min_s = limits.task_poll_max_s  # `tasks/result` is answered when it is over
        elif is_hurried:
            upstream_task.hurry()
        self.set_timer(exchange, upstream_task.take_pause(PAUSE_GROWTH, min_s=min_s, max_s=limits.task_poll_max_s))

    def set_timer(self, exchange: Exchange, pause_s: float) -> None:
        """Schedules the next poll of a task in `pause_s` seconds."""
        self._context.timers.set(
            ("look", (exchange.sid, exchange.key)), self._context.now + pause_s, "task of the server's"
        )
