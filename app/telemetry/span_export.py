"""Sends spans to a collector over OTLP/HTTP, from a thread of its own.

Spans wait in a queue of bounded size. A collector that is away, or takes too little, costs spans, which are counted,
and never delays a request. The package `opentelemetry-exporter-otlp-proto-http` encodes and sends; it also reads the
usual variables of the environment, such as `OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_EXPORTER_OTLP_HEADERS` and
`OTEL_SERVICE_NAME`.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from ..base.errors import StartError
from ..base.version import VERSION
from .spans import FinishedSpan

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

QUEUE_MAX_BYTES: Final = 8 * 1024 * 1024
"""Bytes of spans that wait, at 1 KiB each and more with arguments: those of more than a minute at the usual limit of
100 in a second. At it: new ones are dropped, and counted."""
BATCH_MAX: Final = 512
"""Spans that are sent at once, as OpenTelemetry's own processor has it."""
PERIOD_S: Final = 1.0
"""Seconds for which spans are gathered, unless they are enough for a batch."""
FLUSH_MAX_S: Final = 5.0
"""Seconds that a stop waits for the last spans. A collector that answers takes much less. At it: they are dropped."""

_PATH: Final = "/v1/traces"
_log = logging.getLogger("isthmus.spans")
_MISSING: Final = "telemetry.traces wants packages that are not installed: pip install 'isthmus[otel]'"


@contextlib.contextmanager
def span_export(endpoint: str | None, headers: Mapping[str, str]) -> Iterator[SpanExport]:
    """Sends spans until the context is left; see `SpanExport`. Entering and leaving blocks."""
    export = SpanExport(endpoint, headers)
    try:
        yield export
    finally:
        export.stop()


class SpanExport:
    """The queue of spans, and the thread that sends them.

    Args:
        endpoint: the URL of the collector; None: that of the environment.
        headers: headers to send to it.

    Raises:
        StartError: the packages are not installed.

    Attributes:
        dropped: spans that were dropped, by the reason.
    """

    def __init__(self, endpoint: str | None, headers: Mapping[str, str]) -> None:
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.util.instrumentation import InstrumentationScope
        except ImportError:
            raise StartError(_MISSING) from None
        self.dropped = {"queue": 0, "collector": 0}
        url = None if endpoint is None else f"{endpoint.rstrip('/').removesuffix(_PATH)}{_PATH}"
        self._where = "the address of the environment" if url is None else urlsplit(url).netloc.rpartition("@")[2]
        self._exporter = OTLPSpanExporter(endpoint=url, headers=dict(headers) or None)
        self._resource = Resource.create({"service.version": VERSION})
        if str(self._resource.attributes["service.name"]).startswith("unknown_service"):  # the environment names none
            self._resource = self._resource.merge(Resource({"service.name": "isthmus"}))
        self._scope = InstrumentationScope("isthmus", VERSION)
        self._waiting: deque[FinishedSpan] = deque()
        self._waiting_bytes = 0
        self._changed = threading.Condition()
        self._is_stopping = False
        self._is_away = False
        # What it logs of each failure is said once here, and may hold the URL.
        logging.getLogger("opentelemetry.exporter").setLevel(logging.CRITICAL + 1)
        self._thread = threading.Thread(target=self._run, name="spans", daemon=True)
        self._thread.start()

    def put(self, span: FinishedSpan) -> None:
        """Queues a span, or drops it if too many wait."""
        with self._changed:
            if self._waiting_bytes + span.size_bytes > QUEUE_MAX_BYTES:
                self.dropped["queue"] += 1
                return
            self._waiting.append(span)
            self._waiting_bytes += span.size_bytes
            if len(self._waiting) == BATCH_MAX:
                self._changed.notify()

    def stop(self) -> None:
        """Sends what waits, and ends the thread. What could not be sent in time is dropped. Blocks."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify()
        self._thread.join(FLUSH_MAX_S)
        self._exporter.shutdown()  # type: ignore[no-untyped-call]  # also ends a pause between two attempts
        self._thread.join(0.5)

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._is_stopping and len(self._waiting) < BATCH_MAX:
                    self._changed.wait(PERIOD_S)
                batch = [self._waiting.popleft() for _ in range(min(BATCH_MAX, len(self._waiting)))]
                self._waiting_bytes -= sum(span.size_bytes for span in batch)
                is_over = self._is_stopping and not batch
            if is_over:
                return
            if batch:
                self._send(batch)

    def _send(self, batch: Sequence[FinishedSpan]) -> None:
        from opentelemetry.sdk.trace.export import SpanExportResult

        try:
            is_sent = self._exporter.export([self._readable(span) for span in batch]) is SpanExportResult.SUCCESS
        except Exception:  # whatever the package meets with one batch, the next one is sent
            is_sent = False
        if not is_sent:
            self.dropped["collector"] += len(batch)
        if is_sent is self._is_away:
            self._is_away = not is_sent
            if is_sent:
                _log.info("the collector of spans takes them again")
            else:
                _log.warning("the collector of spans at %s does not take them: they are dropped", self._where)

    def _readable(self, span: FinishedSpan) -> ReadableSpan:
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState

        ids = span.ids
        trace_id, flags = int(ids.trace_id, 16), TraceFlags(TraceFlags.SAMPLED)
        state = TraceState.from_header([ids.state]) if ids.state else None

        def context(trace_id: int, span_id: str, *, is_remote: bool) -> SpanContext:
            return SpanContext(trace_id, int(span_id, 16), is_remote, flags, state)

        return ReadableSpan(
            name=span.name,
            context=context(trace_id, ids.span_id, is_remote=False),
            parent=context(trace_id, ids.parent_id, is_remote=span.is_server) if ids.parent_id else None,
            resource=self._resource,
            attributes=span.attributes,
            links=[Link(context(int(trace, 16), id, is_remote=True)) for trace, id in span.links],
            kind=SpanKind.SERVER if span.is_server else SpanKind.CLIENT,
            status=Status(StatusCode.ERROR if span.is_error else StatusCode.UNSET),
            start_time=span.begun_ns,
            end_time=span.ended_ns,
            instrumentation_scope=self._scope,
        )
