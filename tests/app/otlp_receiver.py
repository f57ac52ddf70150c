"""A collector: receives spans over OTLP/HTTP, and decodes them with the protobuf classes of OpenTelemetry."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

PATIENCE_S: Final = 30.0
KINDS: Final = {2: "SERVER", 3: "CLIENT"}


@dataclass(frozen=True)
class Span:
    """A span as the collector has it. Ids are hexadecimal; `service` is the `service.name` of its resource."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    kind: str
    state: str
    attributes: dict[str, Any]
    is_error: bool
    links: tuple[tuple[str, str], ...]
    duration_ns: int
    service: str


@dataclass
class Collector:
    """The spans, raw bodies and headers that have come so far."""

    url: str = ""
    spans: list[Span] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def receive(self, headers: dict[str, str], body: bytes) -> None:
        request = ExportTraceServiceRequest.FromString(body)
        with self.changed:
            self.headers.append(headers)
            self.bodies.append(body)
            for of_resource in request.resource_spans:
                resource = {pair.key: _value(pair.value) for pair in of_resource.resource.attributes}
                for of_scope in of_resource.scope_spans:
                    self.spans += [_span(one, str(resource.get("service.name"))) for one in of_scope.spans]
            self.changed.notify_all()

    def wait_for(self, holds: Callable[[list[Span]], bool]) -> list[Span]:
        """Blocks until `holds` is true of the spans. Returns them."""
        with self.changed:
            assert self.changed.wait_for(lambda: holds(self.spans), PATIENCE_S), self.spans
            return list(self.spans)


def _span(one: Any, service: str) -> Span:
    return Span(
        trace_id=one.trace_id.hex(),
        span_id=one.span_id.hex(),
        parent_id=one.parent_span_id.hex(),
        name=one.name,
        kind=KINDS.get(one.kind, str(one.kind)),
        state=one.trace_state,
        attributes={pair.key: _value(pair.value) for pair in one.attributes},
        is_error=one.status.code == 2,
        links=tuple((link.trace_id.hex(), link.span_id.hex()) for link in one.links),
        duration_ns=one.end_time_unix_nano - one.start_time_unix_nano,
        service=service,
    )


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in value.array_value.values]
    return getattr(value, kind)


@contextlib.contextmanager
def collector() -> Iterator[Collector]:
    """Runs a collector on a free port of this machine."""
    found = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.path == "/v1/traces":
                found.receive({name.lower(): value for name, value in self.headers.items()}, body)
            self.send_response(200 if self.path == "/v1/traces" else 404)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield found
        finally:
            server.shutdown()
            thread.join()
