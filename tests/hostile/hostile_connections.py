"""Hostile clients by what they do with their connections, one class a kind."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from attacker import (
    FILES,
    LOST,
    MIB,
    REQUEST_MAX_BYTES,
    Attack,
    Connection,
    Storm,
    Visit,
    call,
    encode,
)
from small_limits import CONNECTIONS_MAX, UNREAD_MAX_BYTES

WINDOW_BYTES: Final = 4096
"""Bytes that the system receives for a client that does not read. By default it would take megabytes off the proxy."""
UNREAD_BYTES: Final = 4 * MIB
"""An answer that nobody reads."""
HANG_UP_TIMEOUT_S: Final = 10.0
"""The time within which the proxy has to end a half-closed connection whose client takes what is left."""


class AbandonedBodies(Attack):
    """Bodies of almost the longest size, whose senders leave before the end."""

    name = "abandoned-bodies"

    async def make_round(self, storm: Storm) -> None:
        async with storm.connection() as (_, writer):
            size = storm.chance.randrange(MIB, REQUEST_MAX_BYTES)
            writer.write(Visit(storm).post(b"x" * size, length=REQUEST_MAX_BYTES))
            await writer.drain()


class SlowHeads(Attack):
    """Heads that arrive byte by byte."""

    name = "slow-heads"
    width = 100

    async def make_round(self, storm: Storm) -> None:
        async with storm.connection() as (_, writer):
            for byte in Visit(storm).post(b""):
                writer.write(bytes([byte]))
                await asyncio.sleep(0.05)
                if storm.seconds_left <= 0:
                    return


class SlowBodies(Attack):
    """Bodies of which a large part arrives at once, and then a byte now and then: together more than an address may
    have on the way."""

    name = "slow-bodies"
    width = 20
    reaches = frozenset({"bodies_per_owner_max_bytes"})

    async def make_round(self, storm: Storm) -> None:
        async with storm.connection() as (reader, writer):
            body = b"x" * storm.chance.randrange(REQUEST_MAX_BYTES // 2, REQUEST_MAX_BYTES - 1)
            start = Visit(storm).post(body, length=REQUEST_MAX_BYTES)
            sending = asyncio.ensure_future(self._send(writer, start))
            try:
                async with storm.lasting():
                    await storm.response(reader)
            finally:
                sending.cancel()

    async def _send(self, writer: asyncio.StreamWriter, start: bytes) -> None:
        with contextlib.suppress(*LOST):
            writer.write(start)
            while True:
                await writer.drain()
                await asyncio.sleep(0.1)
                writer.write(b"x")


class SilentConnections(Attack):
    """Connections on which nothing is sent, more than an address may have."""

    name = "silent-connections"
    width = CONNECTIONS_MAX + 50
    reaches = frozenset({"connections_per_address_max"})

    async def make_round(self, storm: Storm) -> None:
        async with storm.connection() as (reader, _), storm.lasting():
            await storm.response(reader)


class ConnectionFlood(Attack):
    """Connections that are opened and reset at once."""

    name = "connection-flood"
    width = 50

    async def make_round(self, storm: Storm) -> None:
        async with storm.connection() as (_, writer):
            if storm.chance.random() < 0.5:
                writer.write(b"GET /healthz HTTP/1.1\r\n")


class SessionFlood(Attack):
    """Sessions that are begun and left without a word, more than an address may have."""

    name = "session-flood"
    width = 8
    reaches = frozenset({"sessions_per_owner_max"})

    async def make_round(self, storm: Storm) -> None:
        await Visit.begin(storm)


class ManyAddresses(Attack):
    """Sessions that are begun and left by clients of several addresses, together more than there may be."""

    name = "many-addresses"
    width = 8
    reaches = frozenset({"sessions_max"})

    async def make_round(self, storm: Storm) -> None:
        await Visit.begin(storm, address=f"127.0.1.{storm.chance.randrange(1, 5)}")


class HalfClosed(Attack):
    """Clients that end their direction in the midst of a request or of an answer, and keep their connection without
    reading. The gateway has to end it."""

    name = "half-closed"
    width = 200

    async def prepare(self, storm: Storm) -> None:
        self._visit = await Visit.begin(storm)

    async def make_round(self, storm: Storm) -> None:
        requests = {
            "large answer": self._visit.post(call(1, "big", size=MIB)),
            "no answer": self._visit.post(call(1, "hang")),
            "stream": self._visit.get(),
            "pipelined": self._visit.post(encode("ping", {}, id=1)) * 500,
            "cut": self._visit.post(call(1, "echo"))[: storm.chance.randrange(1, 300)],
        }
        manner = storm.chance.choice(list(requests))
        async with storm.connection(window_bytes=WINDOW_BYTES) as (reader, writer):
            writer.transport.pause_reading()
            writer.write(requests[manner])
            await asyncio.sleep(storm.chance.uniform(0, 0.2))  # before, in or after the course of the answer
            writer.write_eof()
            await asyncio.sleep(storm.chance.uniform(0, max(storm.seconds_left, 0)))
            writer.transport.resume_reading()
            try:
                async with asyncio.timeout(HANG_UP_TIMEOUT_S):
                    while await reader.read(MIB):
                        pass
            except TimeoutError:
                storm.wrongs.append(f"a half-closed connection is kept ({manner}), expected its end")
            except LOST:
                pass
            storm.counts[f"ended, {manner}"] += 1


class PipeliningClients(Attack):
    """Clients that send one request after another as fast as they are taken, and read nothing."""

    name = "pipelining"
    width = 50

    async def make_round(self, storm: Storm) -> None:
        requests = storm.head("GET", "/healthz", {}) * 500
        async with storm.connection(window_bytes=WINDOW_BYTES) as (_, writer):
            writer.transport.pause_reading()
            async with storm.lasting():
                while True:
                    writer.write(requests)
                    await writer.drain()
                    storm.counts["requests"] += 500


class UnreadAnswers(Attack):
    """Waves of clients that ask for megabytes, and do not read them. The one that left the most is cut off."""

    name = "unread-answers"
    width = 1
    reaches = frozenset({"outboxes_max_bytes"})

    async def make_round(self, storm: Storm) -> None:
        visit = await Visit.begin(storm)
        async with contextlib.AsyncExitStack() as stack:
            fullest = await self._ask(storm, visit, stack, 4 * UNREAD_BYTES)
            count = UNREAD_MAX_BYTES // UNREAD_BYTES + 8
            others = await asyncio.gather(*(self._ask(storm, visit, stack, UNREAD_BYTES) for _ in range(count)))
            if await self._is_whole(fullest):
                storm.counts["whole"] += 1
            else:
                storm.counts["cut off"] += 1
                storm.reach("outboxes_max_bytes")
            storm.counts["whole" if await self._is_whole(others[-1]) else "cut off"] += 1

    async def _ask(
        self, storm: Storm, visit: Visit, stack: contextlib.AsyncExitStack, size: int
    ) -> tuple[Connection, int]:
        """Asks for so many bytes, and returns once the answer has begun, with the length of its body."""
        reader, writer = await stack.enter_async_context(storm.connection(window_bytes=WINDOW_BYTES))
        writer.write(visit.post(call(1, "big", size=size)))
        storm.counts["calls"] += 1
        head = await reader.readuntil(b"\r\n\r\n")
        writer.transport.pause_reading()
        return (reader, writer), int(head.lower().partition(b"content-length: ")[2].split()[0])

    async def _is_whole(self, answer: tuple[Connection, int]) -> bool:
        (reader, writer), size_bytes = answer
        writer.transport.resume_reading()
        try:
            await reader.readexactly(size_bytes)
        except LOST:
            return False
        return True


class EventStreamFlood(Attack):
    """Event streams that name a last event which never was, one after another in one session."""

    name = "event-stream-flood"

    async def prepare(self, storm: Storm) -> None:
        self._visit = await Visit.begin(storm)

    async def make_round(self, storm: Storm) -> None:
        wrong = ("0-1", "1-99999999", "-1", "x" * 8000, "%00", "0-" + "9" * 4000)
        last_event_id = storm.chance.choice(wrong)
        response = await storm.exchange(self._visit.get(last_event_id))
        if response.status == 404:
            self._visit = await Visit.begin(storm)


class AbandonedUploads(Attack):
    """Uploads in a form and as a plain file, whose senders leave before the end."""

    name = "abandoned-uploads"

    async def prepare(self, storm: Storm) -> None:
        self._visit = await Visit.begin(storm, FILES)

    async def make_round(self, storm: Storm) -> None:
        session = self._visit.fields["mcp-session-id"]
        content = storm.chance.randbytes(storm.chance.randrange(MIB))
        if storm.chance.random() < 0.5:
            method, kind = "PUT", "application/octet-stream"
        else:
            method, kind = "POST", "multipart/form-data; boundary=b"
            content = b'--b\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n' + content
        fields = {"mcp-session-id": session, "content-type": kind, "content-length": str(20 * MIB)}
        async with storm.connection() as (_, writer):
            writer.write(storm.head(method, f"/upload/{FILES}", fields) + content)
            await writer.drain()
            storm.counts["uploads"] += 1


CONNECTIONS: Final[tuple[Attack, ...]] = (
    AbandonedBodies(),
    SlowHeads(),
    SlowBodies(),
    SilentConnections(),
    ConnectionFlood(),
    SessionFlood(),
    ManyAddresses(),
    HalfClosed(),
    PipeliningClients(),
    UnreadAnswers(),
    EventStreamFlood(),
    AbandonedUploads(),
)
