"""The shape of `telemetry`: spans, the trace contexts of clients, and the audit log."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from .audit_settings import Audit
from .value_types import Count, about


class Traces(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Spans of OpenTelemetry for requests, sent to a collector. They need the extra isthmus[otel]."""

    endpoint: Annotated[
        str | None,
        about(
            "URL of the collector's OTLP/HTTP receiver, without /v1/traces. null: OTEL_EXPORTER_OTLP_ENDPOINT of the "
            "environment, else http://localhost:4318."
        ),
    ] = None
    headers: Annotated[dict[str, str], about("Headers to send to the collector, such as its token.")] = {}
    ratio: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            description="Share of requests with spans, among those whose client sends no trace context. A client that "
            "sends one has decided itself.",
        ),
    ] = 1.0
    arguments: Annotated[
        Literal["never", "keys", "full"],
        about("What spans of tool calls hold of the arguments. keys: their names. full: their values too."),
    ] = "never"
    max_spans_per_second: Annotated[
        Count, about("Spans that are made in a second, whatever clients ask for. Further requests have none.")
    ] = 100

    def __repr__(self) -> str:
        return f"Traces(endpoint={self.endpoint!r}, ratio={self.ratio!r}, arguments={self.arguments!r}, …)"


class Telemetry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Traces and records of requests for other programs."""

    traces: Annotated[Traces | None, about("Spans, and a collector for them. null: none.")] = None
    bridge: Annotated[
        bool,
        about(
            "Pass the trace context of clients on: from HTTP headers into _meta for servers on stdio, and from _meta "
            "into headers for servers on HTTP. With traces it is always passed on."
        ),
    ] = False
    baggage: Annotated[
        Literal["pass", "drop"], about("What becomes of the baggage beside a trace context. drop: no server gets it.")
    ] = "pass"
    audit: Annotated[Audit | None, about("The record of who used what. null: none.")] = None
