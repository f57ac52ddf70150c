"""Tests of the way of spans to a collector: what it gets, and that one that is away costs spans and nothing else."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable

import pytest
from isthmus.app.base.errors import StartError
from isthmus.app.base.version import VERSION
from isthmus.app.telemetry import span_export
from isthmus.app.telemetry.span_export import SpanExport
from isthmus.app.telemetry.spans import SPAN_BYTES, FinishedSpan
from isthmus.core.base.telemetry import SpanIds
from otlp_receiver import PATIENCE_S, collector

IDS = SpanIds("1" * 32, "2" * 16, "3" * 16, "vendor=1")


def span(number: int = 1, size_bytes: int = SPAN_BYTES) -> FinishedSpan:
    attributes = {"mcp.method.name": "tools/call", "isthmus.attempt": number, "list": ["a", "b"]}
    return FinishedSpan(
        IDS, f"tools/call {number}", True, 5, 9, dict(attributes), True, (("4" * 32, "5" * 16),), size_bytes
    )


def wait_until(holds: Callable[[], bool]) -> None:
    tick = threading.Event()
    for _ in range(int(PATIENCE_S * 100)):
        if holds():
            return
        tick.wait(0.01)
    raise AssertionError("it did not come to pass")


def test_a_collector_gets_what_was_put() -> None:
    with collector() as found:
        export = SpanExport(found.url, {"authorization": "Bearer x"})
        export.put(span())
        export.stop()
        (seen,) = found.spans
        assert (seen.trace_id, seen.span_id, seen.parent_id, seen.state) == ("1" * 32, "2" * 16, "3" * 16, "vendor=1")
        assert (seen.name, seen.kind, seen.is_error, seen.duration_ns) == ("tools/call 1", "SERVER", True, 4)
        assert seen.attributes == {"mcp.method.name": "tools/call", "isthmus.attempt": 1, "list": ["a", "b"]}
        assert seen.links == (("4" * 32, "5" * 16),)
        assert seen.service == "isthmus"
        assert VERSION.encode() in found.bodies[0]
        assert found.headers[0]["authorization"] == "Bearer x"
        assert export.dropped == {"queue": 0, "collector": 0}


def test_the_environment_names_the_collector_and_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    with collector() as found:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", found.url)
        monkeypatch.setenv("OTEL_SERVICE_NAME", "gateway-eu")
        export = SpanExport(None, {})
        export.put(span())
        export.stop()
        assert [one.service for one in found.spans] == ["gateway-eu"]


def test_what_was_put_is_sent_before_a_stop_and_in_order() -> None:
    with collector() as found:
        export = SpanExport(found.url, {})
        for number in range(1500):
            export.put(span(number))
        export.stop()
        assert [one.name for one in found.spans] == [f"tools/call {number}" for number in range(1500)]


def test_without_the_packages_the_settings_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(StartError, match=r"pip install 'isthmus\[otel\]'"):
        SpanExport(None, {})


def test_a_collector_that_does_not_listen_costs_the_spans(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.1")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    export = SpanExport(url, {})
    for _ in range(2):
        before = export.dropped["collector"]
        export.put(span())
        wait_until(lambda: export.dropped["collector"] > before)  # noqa: B023
    export.stop()
    assert [record.getMessage() for record in caplog.records] == [
        f"the collector of spans at {url.removeprefix('http://')} does not take them: they are dropped"
    ]


def test_a_collector_that_never_answers_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spans are taken while a request to it is open, up to the size of the queue. A stop does not wait for it."""
    monkeypatch.setattr(span_export, "QUEUE_MAX_BYTES", 100 * SPAN_BYTES)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        export = SpanExport(f"http://127.0.0.1:{listener.getsockname()[1]}", {})
        export.put(span())
        listener.settimeout(PATIENCE_S)
        connection, _ = listener.accept()
        with connection:
            assert connection.recv(1)  # the request has come, and is never answered
            for number in range(150):
                export.put(span(number))
            assert export.dropped == {"queue": 50, "collector": 0}
            assert export._thread.is_alive()
            monkeypatch.setattr(span_export, "FLUSH_MAX_S", 0.1)
            export.stop()
