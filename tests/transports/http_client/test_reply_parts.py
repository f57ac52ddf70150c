"""Tests of large replies that the HTTP client reports in parts, over both drivers."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest
from client_dialer import CLOSE, DONE, TYPE, dialer
from client_fakes import PATIENCE_S, WITH_BOTH_DRIVERS, Part, Peer, Report, serving
from client_fakes import anyio_backend as anyio_backend
from client_fakes import in_order as in_order
from isthmus.core.base.events import Cause, Connected, End
from isthmus.core.base.ids import ChannelId
from isthmus.core.jsonrpc.envelope_edges import EDGE_BYTES

pytestmark = [pytest.mark.anyio, WITH_BOTH_DRIVERS]


def large(size_bytes: int) -> tuple[bytes, bytes]:
    """The head of a document, and the document."""
    document = b"".join(b"%07d " % number * 1000 for number in range(size_bytes // 8000))
    return b"HTTP/1.1 200 OK\r\n" + TYPE + b"Content-Length: %d\r\n\r\n" % len(document), document


def joined(reports: list[Report]) -> bytes:
    return b"".join(one.data for one in reports if isinstance(one, Part))


async def test_a_document_is_reported_in_parts_and_its_connection_lives() -> None:
    head, document = large(1_000_000)

    async def script(peer: Peer) -> None:
        while True:
            await peer.request()
            await peer.send(head, document[:500_000])
            await has_come.wait()
            await peer.send(document[500_000:])

    async with serving(script) as server, dialer() as dial:
        dial.port.wants_parts = True
        for number in (1, 2):
            has_come = anyio.Event()
            dial(server.endpoint)
            await dial.port.until(lambda number=number: len(joined(dial.port.reports.get(number, []))) == 500_000)
            has_come.set()
            opened, first, *rest, ended = await dial.port.until_closed(number)
            assert (opened, ended) == (Connected(status=200), DONE)
            assert isinstance(first, Part) and first.size_bytes == len(document)
            assert not any(isinstance(one, Part) and one.size_bytes for one in rest)
            assert joined([first, *rest]) == document
            assert dial.port.begun[-1] == (document[:EDGE_BYTES], len(document))
        assert server.connections == 1


async def test_pausing_stops_a_document_that_is_wanted_as_it_comes() -> None:
    """A paused channel reports nothing, and the server is held back by full socket buffers."""
    head, document = large(32_000_000)
    sent = 0

    async def script(peer: Peer) -> None:
        nonlocal sent
        await peer.request()
        await peer.send(head)
        for at in range(0, len(document), 64_000):
            await peer.send(document[at : at + 64_000])
            sent += 64_000

    async with serving(script) as server, dialer() as dial:
        dial.port.wants_parts = True
        dial.port.on_report = lambda channel, report: outlet.pause() if isinstance(report, Part) else None
        outlet = dial(server.endpoint)
        await dial.port.until_reports(1, 2)
        await anyio.wait_all_tasks_blocked()
        before = len(joined(dial.port.reports[ChannelId(1)]))
        assert sent < len(document)
        dial.port.on_report = None
        assert len(joined(dial.port.reports[ChannelId(1)])) == before < 1_000_000
        outlet.resume()
        assert joined(await dial.port.until_closed(1)) == document


async def test_a_document_that_breaks_off_was_reported_as_far_as_it_came() -> None:
    head, document = large(1_000_000)

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(head, document[:700_000])

    async with serving(script) as server, dialer() as dial:
        dial.port.wants_parts = True
        dial(server.endpoint)
        reports = await dial.port.until_closed(1)
        assert joined(reports) == document[:700_000]
        assert reports[-1] == Cause(End.BROKEN, "the connection ended within the response")


async def test_a_document_that_is_given_up_on_its_way_hangs_up() -> None:
    head, document = large(1_000_000)

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(head, document[:500_000])
        await peer.wait_gone()

    async with serving(script) as server, dialer() as dial:
        dial.port.wants_parts = True
        dial.port.on_report = lambda channel, report: outlet.close(CLOSE) if isinstance(report, Part) else None
        outlet = dial(server.endpoint)
        assert (await dial.port.until_closed(1))[-1] == DONE
        with anyio.fail_after(PATIENCE_S):
            await server.gone[0].wait()
