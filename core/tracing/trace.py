"""The trace of a request: what its client sent, and the span that the proxy makes of it.

The context in `_meta` is the parent. An HTTP header beside it, which describes the POST and not the message, is a link
then; else it is the parent. If neither is valid, the request begins a trace of its own.

A server gets the context of a span of the proxy, if there is one. Else it gets what the client sent, so that its spans
are children of the client's.
"""

from __future__ import annotations

import msgspec

from ..base.events import Headers
from ..base.telemetry import SpanIds, Tracing
from .carrying import (
    BAGGAGE,
    FIELDS,
    PARENT,
    STATE,
    Carried,
    carried_by_headers,
    carried_by_meta,
    fields_of,
    with_headers,
    with_meta,
)
from .context import TraceContext
from .sampling import Sampler


class Trace(msgspec.Struct, frozen=True):
    """The trace of one request.

    Attributes:
        meta: what its `_meta` carries.
        parent: the context that its client sent; None if it sent nothing valid.
        span: the context of its span; None if it has none.
        baggage: what goes on to the server; "" if nothing does.
        links: contexts that belong to it, too.
    """

    meta: Carried
    parent: TraceContext | None
    span: TraceContext | None
    baggage: str
    links: tuple[TraceContext, ...] = ()

    @property
    def ids(self) -> SpanIds | None:
        """The ids of its span; None if it has none."""
        if self.span is None:
            return None
        parent_id = "" if self.parent is None else self.parent.span_id
        links = tuple((link.trace_id, link.span_id) for link in self.links)
        return SpanIds(self.span.trace_id, self.span.span_id, parent_id, self.span.state, links)


class Tracer:
    """Begins the traces of requests, and says what goes with each message.

    Attributes:
        sampler: decides which requests have spans.
    """

    def __init__(self, tracing: Tracing, sampler: Sampler) -> None:
        self.sampler = sampler
        self._tracing = tracing

    def begin(self, params: bytes | None, headers: Headers, now: float) -> Trace | None:
        """Returns the trace of a request; None if it has none, so that nothing goes with it. Called once for each.

        Args:
            params: its params, as its client sent them.
            headers: `PostOpening.trace_context`.
        """
        meta, ambient = carried_by_meta(params), carried_by_headers(headers)
        parent = meta.context or ambient.context
        span = self.sampler.begin(parent, now)
        if span is None and not meta.names and not ambient.names:
            return None
        links: tuple[TraceContext, ...] = ()
        if meta.context is not None and ambient.context is not None and ambient.context != meta.context:
            links = (ambient.context,)
        return Trace(meta, parent, span, meta.baggage or ambient.baggage, links)

    def read(self, params: bytes | None, headers: Headers) -> Trace | None:
        """Returns what a request carries that continues another one, and has no span of its own; None if it carries
        nothing."""
        meta, ambient = carried_by_meta(params), carried_by_headers(headers)
        parent = meta.context or ambient.context
        return None if parent is None else Trace(meta, parent, None, "")

    def begin_attempt(self, trace: Trace) -> TraceContext | None:
        """Returns the context of the span of an attempt at a server; None if the request has no span."""
        return None if trace.span is None else self.sampler.child_of(trace.span)

    def params_with(
        self, params: bytes | None, trace: Trace, attempt: TraceContext | None, *, is_pipe: bool
    ) -> bytes | None:
        """Returns the params of a request for its server.

        Args:
            attempt: the result of `begin_attempt`.
            is_pipe: the server is on a pipe, which has no headers.

        Raises:
            RemoteProtocolError: the params are no object, or have a member twice.
        """
        bridges, drops = is_pipe and self._tracing.bridges, not self._tracing.passes_baggage
        context, baggage = attempt, ""
        if context is None and bridges and trace.parent != trace.meta.context:
            context = trace.parent  # it came in a header. What came in `_meta` is there already.
        if bridges and not drops and BAGGAGE not in trace.meta.names:
            baggage = trace.baggage
        fields, removed = fields_of(context, baggage), {BAGGAGE} if drops else set()
        if context is not None:
            removed |= {PARENT, STATE}
        return with_meta(params, fields, removed) if fields or removed & trace.meta.names else params

    def headers_with(self, headers: Headers, trace: Trace, attempt: TraceContext | None) -> Headers:
        """Returns the headers of a request for a server on HTTP. The arguments are as in `params_with`."""
        drops = not self._tracing.passes_baggage
        if not self._tracing.bridges:
            return with_headers(headers, {}, {BAGGAGE}) if drops else headers
        fields = fields_of(attempt or trace.parent, "" if drops else trace.baggage)
        return with_headers(headers, fields, FIELDS)

    def question_with(self, params: bytes | None, trace: Trace) -> bytes | None:
        """Returns the params of a server's request to a client, in the course of a request with this trace. A context
        that the server has given it stays there.

        Raises:
            RemoteProtocolError: the params are no object, or have a member twice.
        """
        context = trace.span or self._bridged(trace)
        if context is None or PARENT in carried_by_meta(params).names:
            return params
        return with_meta(params, fields_of(context, ""), {PARENT, STATE})

    def _bridged(self, trace: Trace) -> TraceContext | None:
        return trace.parent if self._tracing.bridges else None
