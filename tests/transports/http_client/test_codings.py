"""Tests of servers that compress their responses unasked: what is reported, and when."""

from __future__ import annotations

import json

import anyio
import anyio.lowlevel
import pytest
from client_dialer import ANSWER, CLOSE, DONE, LAST_CHUNK, chunk, dialer, reply
from client_fakes import WITH_BOTH_DRIVERS, Peer, serving
from client_fakes import anyio_backend as anyio_backend
from client_fakes import in_order as in_order
from coded_bodies import PACKERS, Flushing, pack_gzip
from isthmus.core.base.effects import Listen
from isthmus.core.base.events import Cause, Connected, End
from isthmus.core.base.limits import Limits
from isthmus.core.wire.http import codings
from isthmus.core.wire.http.codings import SLICE_BYTES
from isthmus.transports.base import decompressors

pytestmark = [pytest.mark.anyio, WITH_BOTH_DRIVERS]


def coded(coding: str, body: bytes, status: bytes = b"200 OK") -> bytes:
    return reply(body, status, b"Content-Encoding: " + coding.encode())


def events_head(coding: str) -> bytes:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"
    return b"%bContent-Encoding: %b\r\n\r\n" % (head, coding.encode())


def repeating(*answers: bytes):  # type: ignore[no-untyped-def]
    """A script that gives each request its answer, on one connection."""

    async def script(peer: Peer) -> None:
        for answer in answers:
            await peer.request()
            await peer.send(answer)
        await peer.wait_gone()

    return script


@pytest.mark.parametrize("kind", PACKERS)
async def test_a_document_is_reported_decoded_and_its_connection_lives(kind: str) -> None:
    coding, pack = PACKERS[kind]
    script = repeating(coded(coding, pack(ANSWER)), reply(ANSWER), coded(coding, pack(ANSWER)))
    async with serving(script) as server, dialer() as dial:
        for _ in range(3):
            assert await dial.exchange(server.endpoint) == [Connected(status=200), ANSWER, DONE]
        assert server.connections == 1
        assert all(b"\r\naccept-encoding: identity\r\n" in request for request in server.requests)


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd"])
async def test_events_are_reported_as_they_come(coding: str) -> None:
    go = [anyio.Event() for _ in range(3)]
    packer = Flushing(coding)

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(events_head(coding))
        for number in range(3):
            await peer.send(chunk(packer.pack(b"data: %d\n\n" % number)))
            await go[number].wait()
        await peer.send(chunk(packer.finish()) + LAST_CHUNK)
        await peer.wait_gone()

    async with serving(script) as server, dialer() as dial:
        dial(server.endpoint, Listen("s", "sid"))
        for number in range(3):
            assert (await dial.port.until_reports(1, number + 2))[-1] == b"%d" % number
            go[number].set()
        assert await dial.port.cause(1) == DONE


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        (coded("gzip", pack_gzip(ANSWER)[:-1]), "got a body in gzip that is cut off, expected all of it"),
        (coded("gzip", ANSWER), "got a body that is not gzip, expected what its Content-Encoding says"),
        (coded("compress", ANSWER), "got Content-Encoding compress, expected none: none was offered"),
    ],
)
async def test_a_body_that_cannot_be_read_is_reported(sent: bytes, told: str) -> None:
    async with serving(repeating(sent, reply(ANSWER))) as server, dialer() as dial:
        assert (await dial.exchange(server.endpoint))[-1] == Cause(End.BROKEN, told)
        assert await dial.exchange(server.endpoint) == [Connected(status=200), ANSWER, DONE]


async def test_a_refusal_is_reported_decoded() -> None:
    async with serving(repeating(coded("gzip", pack_gzip(b"no"), b"502 Bad Gateway"))) as server, dialer() as dial:
        [cause] = await dial.exchange(server.endpoint)
        assert isinstance(cause, Cause) and (cause.end, cause.status, cause.body) == (End.REFUSED, 502, b"no")


@pytest.mark.parametrize("coding", ["br", "zstd"])
async def test_without_its_package_a_coding_is_reported_with_the_command(
    monkeypatch: pytest.MonkeyPatch, coding: str
) -> None:
    monkeypatch.setattr(decompressors, "_find", lambda module: None)
    for find in (decompressors._find_br, decompressors._find_zstd):
        find.cache_clear()
    try:
        sent = coded(coding, PACKERS[coding][1](ANSWER))
        async with serving(repeating(sent)) as server, dialer() as dial:
            cause = (await dial.exchange(server.endpoint))[-1]
            assert isinstance(cause, Cause)
            assert cause.detail.startswith(
                f"got Content-Encoding {coding}, expected none: none was offered. To read it"
            )
            assert codings.INSTALL in cause.detail
    finally:
        for find in (decompressors._find_br, decompressors._find_zstd):
            find.cache_clear()


async def test_a_few_bytes_that_hold_too_much_are_refused() -> None:
    limits = Limits(reply_size_max_bytes=4 * SLICE_BYTES)
    bomb = pack_gzip(b"x" * (40 * SLICE_BYTES))
    async with serving(repeating(coded("gzip", bomb))) as server, dialer(limits) as dial:
        _, error, cause = await dial.exchange(server.endpoint)
        assert isinstance(error, bytes) and json.loads(error)["error"]["code"] == -31007
        assert isinstance(cause, Cause) and cause.end is End.BROKEN
        assert dial.client.replies.used == 0


@pytest.mark.usefixtures("in_order")
async def test_others_have_their_turn_between_two_slices() -> None:
    """Large events of one read are not reported in one turn of the loop."""
    turns = 0
    seen: list[int] = []
    is_over = anyio.Event()
    body = pack_gzip(b"data: %b\n\n" % (b"x" * SLICE_BYTES) * 8)

    async def count() -> None:
        nonlocal turns
        while not is_over.is_set():
            turns += 1
            await anyio.lowlevel.checkpoint()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(events_head("gzip") + chunk(body) + LAST_CHUNK)
        await peer.wait_gone()

    async with serving(script) as server, dialer() as dial, anyio.create_task_group() as tasks:
        dial.port.on_report = lambda channel, report: seen.append(turns)
        tasks.start_soon(count)
        assert len(await dial.exchange(server.endpoint)) == 10
        is_over.set()
    assert len(set(seen)) >= 8, "one turn an event"


async def test_a_request_given_up_ends_the_decoding() -> None:
    """The rest is not decoded, and the memory is given back."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(events_head("br") + chunk(PACKERS["br"][1](b"data: %b\n\n" % (b"x" * SLICE_BYTES) * 8)))
        await peer.wait_gone()

    async with serving(script) as server, dialer() as dial:
        exchange = dial(server.endpoint)
        dial.port.on_report = lambda channel, report: isinstance(report, bytes) and exchange.close(CLOSE)
        reports = await dial.port.until_closed(1)
        assert len(reports) <= 4 and reports[-1] == DONE
        assert dial.client.replies.used == 0


async def test_a_paused_channel_is_decoded_no_further_until_it_is_resumed() -> None:
    body = pack_gzip(b"".join(b"data: %d%b\n\n" % (number, b"x" * SLICE_BYTES) for number in range(4)))

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(events_head("gzip") + chunk(body) + LAST_CHUNK)
        await peer.wait_gone()

    async with serving(script) as server, dialer() as dial:
        exchange = dial(server.endpoint)
        dial.port.on_report = lambda channel, report: isinstance(report, bytes) and exchange.pause()
        for number in range(4):
            reports = await dial.port.until_reports(1, number + 2)
            assert len(reports) == number + 2
            assert isinstance(reports[-1], bytes) and reports[-1].startswith(b"%d" % number)
            exchange.resume()
        assert await dial.port.cause(1) == DONE
