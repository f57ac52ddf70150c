"""Tests of spans of a running gateway, what a collector that is away changes, and what metrics say of it."""

from __future__ import annotations

import re
import socket
from typing import Final

import anyio
import pytest
from isthmus.app.config.telemetry_settings import Telemetry, Traces
from otlp_receiver import PATIENCE_S, collector
from working_stub import ModernStub, Stub, connected

CALLS: Final = 50


async def dropped(port: int) -> dict[str, int]:
    """Returns the counts of spans that were dropped, by reason."""
    reader = await anyio.connect_tcp("127.0.0.1", port)
    async with reader:
        await reader.send(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        body = b""
        try:
            while True:
                body += await reader.receive()
        except anyio.EndOfStream:
            pass
    found = re.findall(rb'isthmus_spans_dropped_total\{reason="(\w+)"\} ([0-9.]+)', body)
    return {reason.decode(): int(float(count)) for reason, count in found}


@pytest.mark.parametrize("stub", [Stub, ModernStub])
def test_each_request_of_a_gateway_has_spans(stub: type[Stub]) -> None:
    async def run(url: str) -> None:
        traces = Traces(endpoint=url, max_spans_per_second=1000)
        with anyio.fail_after(PATIENCE_S):
            async with connected(stub, is_modern=stub.is_modern, telemetry=Telemetry(traces=traces)) as client:
                for number in range(1, CALLS + 1):
                    await client.call(number)

    with collector() as found:
        anyio.run(run, found.url)
        calls = [one for one in found.spans if one.name == "tools/call echo"]
        above = {one.span_id for one in calls if one.kind == "SERVER"}
        assert len(calls) == 2 * CALLS
        assert {one.parent_id for one in calls if one.kind == "CLIENT"} == above


@pytest.mark.parametrize("is_there", [True, False])
def test_calls_go_on_while_the_collector_is_away(is_there: bool) -> None:
    """All calls are answered while the one request to the collector is open, or before it is known that nobody
    listens: none waits for it."""

    async def run() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            if not is_there:
                listener.close()
            traces = Traces(endpoint=url, max_spans_per_second=20)
            with anyio.fail_after(PATIENCE_S):
                async with connected(Stub, is_modern=False, telemetry=Telemetry(traces=traces)) as client:
                    await client.call(1)
                    if is_there:
                        listener.settimeout(PATIENCE_S)
                        connection, _ = await anyio.to_thread.run_sync(listener.accept)
                        assert await anyio.to_thread.run_sync(connection.recv, 1)
                    for number in range(2, CALLS):
                        await client.call(number)
                    counts = await dropped(client.writer.get_extra_info("peername")[1])
                    assert counts["rate"] > 0
                    if is_there:
                        assert counts["collector"] == 0
                        connection.close()

    anyio.run(run)
