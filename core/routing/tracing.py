"""Gives servers the trace contexts of requests (`Plan.tracing`).

The params and headers are changed as they are written, not before: what is compared with other requests, such as the
key of a result that is kept, must not differ by a context, and an attempt that comes later has a context of its own.
"""

from __future__ import annotations

from ..base.events import Headers
from ..base.plan import ServerPlan
from ..state.context import Context
from ..state.exchange import Exchange
from ..state.interceptor import Interceptor
from ..state.link import Link


class TracePropagation(Interceptor):
    """Writes trace contexts into `_meta` and into headers.

    A request with a trace is no plain call: the fast path asks for that itself. So no plain call needs this one.
    """

    name = "tracing"

    def __init__(self, context: Context) -> None:
        self._tracer = context.tracer

    def is_for(self, plan: ServerPlan) -> bool:
        return self._tracer is not None

    def has_say(self, link: Link) -> bool:
        return False

    def adapt_request(
        self, link: Link, exchange: Exchange, params: bytes | None, headers: Headers
    ) -> tuple[bytes | None, Headers]:
        tracer, trace = self._tracer, exchange.trace
        if tracer is None or trace is None:
            return params, headers
        attempt = tracer.begin_attempt(trace)
        exchange.receive_attempt(attempt)
        params = tracer.params_with(params, trace, attempt, is_pipe=link.is_pipe)
        return params, headers if link.is_pipe else tracer.headers_with(headers, trace, attempt)
