"""Tests of the asyncio driver of a client connection, between a transport and a connection that follow scripts."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import anyio.lowlevel
import client_fakes
import pytest
from anyio.abc import ByteStream
from client_dialer import DONE, Dialer, answer_all, dialer
from client_fakes import serving
from isthmus.core.base.events import Cause, End
from isthmus.transports.base.dialer import Dialer as TransportDialer
from isthmus.transports.base.endpoint import Endpoint
from isthmus.transports.base.transport_stream import transport_of
from isthmus.transports.http_client.anyio_driver import StreamDriver
from isthmus.transports.http_client.asyncio_connect import ConnectingDriver
from isthmus.transports.http_client.asyncio_driver import ProtocolDriver
from isthmus.transports.http_client.connection import Connection, Step

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]


class Stage:
    """The two neighbours of a driver. `steps` is what the connection answers, in order; `calls` records each call."""

    def __init__(self, *steps: Step | Exception, pieces: tuple[bytes, ...] = ()) -> None:
        self.steps = list(steps)
        self.pieces = list(pieces)
        self.calls: list[str] = []
        self.is_reading = False
        self.is_closed = False
        self.room = 100  # pieces that the transport takes before it is blocked
        self.lost = 0
        transport = cast(asyncio.Transport, self)
        self.driver = ProtocolDriver(cast(Connection, self), transport, self._lose)

    def _lose(self, driver: ProtocolDriver) -> None:
        self.lost += 1

    def _next_step(self, call: str) -> Step:
        self.calls.append(call)
        step = self.steps.pop(0)
        if isinstance(step, Exception):
            raise step
        return step

    def get_extra_info(self, name: str) -> None:
        """Returns no socket."""

    # As the connection.

    def receive(self, data: bytes | None) -> Step:
        return self._next_step(f"receive {data!r}")

    def advance(self) -> Step:
        return self._next_step("advance")

    def begin(self) -> bool:
        return bool(self.pieces)

    def next_piece(self) -> bytes | None:
        return self.pieces.pop(0) if self.pieces else None

    def receive_written(self) -> None:
        self.calls.append("written")

    def fail(self, cause: Cause) -> None:
        assert cause == Cause(End.BROKEN, "internal error")
        self.calls.append("fail")

    def settle(self) -> None:
        self.calls.append("settle")

    # As the transport.

    def set_write_buffer_limits(self, high: int) -> None:
        assert high == 0

    def set_protocol(self, protocol: object) -> None:
        """Does nothing: the test itself calls the driver from here on."""

    def resume_reading(self) -> None:
        self.is_reading = True

    def pause_reading(self) -> None:
        self.is_reading = False

    def is_closing(self) -> bool:
        return self.is_closed

    def abort(self) -> None:
        self.is_closed = True

    def write(self, data: bytes) -> None:
        self.calls.append(f"write {data!r}")
        self.room -= 1
        if self.room == 0:
            self.driver.pause_writing()


async def test_what_takes_long_goes_on_in_a_later_turn_and_nothing_is_read_meanwhile() -> None:
    stage = Stage(Step.TURN, Step.TURN, Step.READ)
    stage.driver.start()
    stage.driver.data_received(b"1")
    assert stage.calls == ["receive b'1'"] and not stage.is_reading
    for _ in range(3):
        await anyio.lowlevel.checkpoint()
    assert stage.calls == ["receive b'1'", "advance", "advance"] and stage.is_reading


async def test_held_input_goes_on_after_the_resume_order_returns() -> None:
    stage = Stage(Step.HOLD, Step.HOLD, Step.READ)
    stage.driver.start()
    stage.driver.resume()  # it holds nothing
    stage.driver.data_received(b"1")
    for _ in range(2):
        stage.driver.resume()
        stage.driver.resume()
        held = list(stage.calls)
        await anyio.lowlevel.checkpoint()
        assert stage.calls == [*held, "advance"]
    assert stage.is_reading


async def test_a_connection_lost_while_paused_is_reported_after_what_it_holds() -> None:
    stage = Stage(Step.HOLD, Step.READ, Step.CLOSE)
    stage.driver.start()
    stage.driver.data_received(b"1")
    stage.is_closed = True
    stage.driver.connection_lost(None)
    assert stage.calls == ["receive b'1'"] and stage.lost == 1
    stage.driver.resume()
    await anyio.lowlevel.checkpoint()
    assert stage.calls == ["receive b'1'", "advance", "receive None", "settle"]


@pytest.mark.parametrize("step", [Step.READ, Step.CLOSE])
async def test_after_the_end_of_the_stream_nothing_is_waited_for(step: Step) -> None:
    stage = Stage(step, Step.CLOSE)
    stage.driver.start()
    assert stage.driver.eof_received(), "the transport is closed by the driver, not for it"
    ends = ["receive b''", "receive None"] if step is Step.READ else ["receive b''"]
    assert stage.calls == [*ends, "settle"] and stage.is_closed
    stage.driver.connection_lost(None)
    assert stage.calls == [*ends, "settle"] and stage.lost == 1


async def test_closing_settles_once_and_not_within_the_order() -> None:
    stage = Stage()
    stage.driver.start()
    stage.driver.close()
    assert stage.is_closed and not stage.calls
    stage.driver.stop()
    stage.driver.connection_lost(None)
    await anyio.lowlevel.checkpoint()
    assert stage.calls == ["settle"]


async def test_pieces_wait_for_those_before_them() -> None:
    stage = Stage(pieces=(b"1", b"2", b"3"))
    stage.room = 2
    stage.driver.start()
    assert stage.calls == ["write b'1'", "write b'2'"]
    stage.driver.resume_writing()
    assert stage.calls[2:] == ["write b'3'", "written"]


async def test_the_last_piece_is_written_when_it_has_left() -> None:
    stage = Stage(pieces=(b"1",))
    stage.room = 1
    stage.driver.start()
    assert stage.calls == ["write b'1'"]
    stage.driver.resume_writing()
    assert stage.calls == ["write b'1'", "written"]


async def test_a_transport_that_closes_is_given_nothing_more() -> None:
    stage = Stage(pieces=(b"1", b"2"))
    stage.room = 1
    stage.driver.start()
    stage.is_closed = True
    stage.driver.resume_writing()
    assert stage.calls == ["write b'1'"]


async def test_a_defect_costs_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage(ZeroDivisionError("a mistake of our own"))
    stage.driver.start()
    stage.driver.data_received(b"1")
    assert stage.calls == ["receive b'1'", "fail", "settle"] and stage.is_closed
    assert "a connection to a server failed" in caplog.text and "ZeroDivisionError" in caplog.text


class FakeTransport:
    """A transport that anyio has connected, and may have begun to read from."""

    def __init__(self, queue: list[bytes], *, is_at_eof: bool = False, is_closed: bool = False) -> None:
        self._reader = SimpleNamespace(read_queue=queue, is_at_eof=is_at_eof)
        self._is_closed = is_closed

    def get_protocol(self) -> object:
        return self._reader

    def set_protocol(self, protocol: object) -> None:
        raise AssertionError

    def is_closing(self) -> bool:
        return self._is_closed


async def test_a_stream_that_something_was_read_from_stays_one() -> None:
    def found(transport: object) -> object:
        return transport_of(cast(ByteStream, SimpleNamespace(_transport=transport)))

    fresh = FakeTransport([])
    assert found(fresh) is fresh
    for used in (FakeTransport([b"1"]), FakeTransport([], is_at_eof=True), FakeTransport([], is_closed=True), object()):
        assert found(used) is None


@pytest.mark.parametrize("is_late", [False, True])
async def test_a_connection_that_is_made_too_late_is_closed(is_late: bool) -> None:
    """A connection is closed if its request is gone by then or the client stops."""
    aborted: list[bool] = []
    transport = cast(asyncio.Transport, SimpleNamespace(abort=lambda: aborted.append(True)))
    offered: list[asyncio.Transport] = []
    driver = ConnectingDriver(cast(Connection, None), cast(TransportDialer, None), offered.append, print)  # type: ignore[arg-type]
    if is_late:
        driver.close()
    driver.connection_made(transport)
    assert (offered, aborted) == ([] if is_late else [transport], [True])


async def test_plain_connections_become_protocols_and_those_with_tls_do_not(
    monkeypatch: pytest.MonkeyPatch, authority: Path, server_tls: ssl.SSLContext
) -> None:
    for uses_protocols in (True, False):
        monkeypatch.setattr(client_fakes, "uses_protocols", uses_protocols)
        async with serving(answer_all) as plain, serving(answer_all, server_tls) as secure, dialer() as dial:
            assert type(await driver_of(dial, plain.endpoint)) is (ProtocolDriver if uses_protocols else StreamDriver)
            endpoint = Endpoint(f"https://localhost:{secure.port}/mcp", ca_file=str(authority / "ca.pem"))
            assert type(await driver_of(dial, endpoint)) is StreamDriver


async def driver_of(dial: Dialer, endpoint: Endpoint) -> object:
    """The driver of the connection that an exchange was made on."""
    assert (await dial.exchange(endpoint))[-1] == DONE
    return next(reversed(dial.client.unheld)).driver
