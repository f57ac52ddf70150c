"""The hostile clients, one class a kind."""

from __future__ import annotations

import asyncio
import contextlib
import zlib
from typing import Final

from attacker import (
    FILES,
    LOST,
    MIB,
    PLAIN,
    REQUEST_MAX_BYTES,
    Attack,
    Storm,
    Visit,
    call,
    call_around,
    encode,
    frame,
    websocket,
)

NEARLY_ALL: Final = REQUEST_MAX_BYTES - 1000
"""The size of a value whose message still fits into the limit."""


class AbandonedBodies(Attack):
    """Bodies of almost the longest size, whose senders leave before the end."""

    name = "abandoned-bodies"

    async def make_round(self, storm: Storm) -> None:
        async with storm.connection() as (_, writer):
            size = storm.chance.randrange(MIB, REQUEST_MAX_BYTES)
            writer.write(Visit(storm, PLAIN, "2025-06-18").post(b"x" * size, length=REQUEST_MAX_BYTES))
            await writer.drain()


class SlowHeads(Attack):
    """Heads that arrive byte by byte."""

    name = "slow-heads"
    width = 100

    async def make_round(self, storm: Storm) -> None:
        async with storm.connection() as (_, writer):
            for byte in Visit(storm, PLAIN, "2025-06-18").post(b""):
                writer.write(bytes([byte]))
                await asyncio.sleep(0.05)
                if storm.seconds_left <= 0:
                    return


class SlowBodies(Attack):
    """Bodies of which the first part arrives at once, and then a byte now and then."""

    name = "slow-bodies"
    width = 20

    async def make_round(self, storm: Storm) -> None:
        async with storm.connection() as (_, writer):
            body = b"x" * storm.chance.randrange(MIB)
            writer.write(Visit(storm, PLAIN, "2025-06-18").post(body, length=REQUEST_MAX_BYTES))
            while storm.seconds_left > 0:
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.1)


class SilentConnections(Attack):
    """Connections on which nothing is sent."""

    name = "silent-connections"
    width = 300

    async def make_round(self, storm: Storm) -> None:
        async with storm.connection():
            await storm.hold()


class ConnectionFlood(Attack):
    """Connections that are opened and reset at once."""

    name = "connection-flood"
    width = 50

    async def make_round(self, storm: Storm) -> None:
        async with storm.connection() as (_, writer):
            if storm.chance.random() < 0.5:
                writer.write(b"GET /healthz HTTP/1.1\r\n")


class SessionFlood(Attack):
    """Sessions that are begun and left without a word."""

    name = "session-flood"
    width = 8

    async def make_round(self, storm: Storm) -> None:
        await Visit.begin(storm)


class LargeBodies(Attack):
    """Messages of the longest size, to a server whose arguments are read and to one whose arguments are not."""

    width = 1

    def body(self, storm: Storm) -> bytes:
        raise NotImplementedError

    async def make_round(self, storm: Storm) -> None:
        body = self.body(storm)
        for server in (PLAIN, FILES):
            visit = await Visit.begin(storm, server)
            with contextlib.suppress(*LOST):
                await visit.send(body)


class Backslashes(LargeBodies):
    """16 MiB of backslashes and one lone surrogate."""

    name = "backslashes"

    def body(self, storm: Storm) -> bytes:
        return call_around(b'"' + b"\\\\" * (NEARLY_ALL // 2) + b'\\ud800"')


class SpacedKeys(LargeBodies):
    """Many members of the envelope, with spaces in all places that permit them."""

    name = "spaced-keys"

    def body(self, storm: Storm) -> bytes:
        members = b" ,  ".join(b'"key %d" :  %d' % (n, n) for n in range(400_000))
        return call_around(b"{}")[:-1] + b" , " + members + b"}"


class DeepNesting(LargeBodies):
    """Brackets within brackets, complete or not."""

    name = "deep-nesting"

    def body(self, storm: Storm) -> bytes:
        depth = storm.chance.choice((500, 100_000, NEARLY_ALL // 2))
        end = b"]" * depth if storm.chance.random() < 0.5 else b""
        return call_around(b"[" * depth + end)


class ManyMembers(LargeBodies):
    """An object of a million members, or an array of as many objects."""

    name = "many-members"

    def body(self, storm: Storm) -> bytes:
        if storm.chance.random() < 0.5:
            return call_around(b"{" + b",".join(b'"m%d":0' % n for n in range(1_000_000)) + b"}")
        return call_around(b"[" + b",".join([b'{"m":"file"}'] * 1_000_000) + b"]")


class BadUtf8(LargeBodies):
    """Bytes that are no UTF-8, at the end of a long text."""

    name = "bad-utf8"

    def body(self, storm: Storm) -> bytes:
        wrong = storm.chance.choice((b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82"))
        return call_around(b'"' + "é".encode() * (NEARLY_ALL // 2) + wrong + b'"')


class HugeNames(Attack):
    """Ids, progress tokens, names of tools and descriptions of clients of a megabyte and more."""

    name = "huge-names"

    async def make_round(self, storm: Storm) -> None:
        long = "n" * storm.chance.randrange(MIB, 4 * MIB)
        visit = await Visit.begin(storm)
        number = b"9" * 1_000_000
        for body in (
            call(long, "echo"),
            call(1, long),
            encode("tools/call", {"name": "echo", "arguments": {}, "_meta": {"progressToken": long}}, id=1),
            encode(long, {}, id=1),
            call_around(b'""').replace(b'"id":1', b'"id":' + number),
        ):
            with contextlib.suppress(*LOST):
                await visit.send(body)
        await Visit.begin(storm, name=long, version=long)


class Batches(Attack):
    """Batches of as many calls as are permitted, of more, and of none."""

    name = "batches"

    async def make_round(self, storm: Storm) -> None:
        visit = await Visit.begin(storm, revision="2025-03-26")
        for count in (0, 64, 65, 50_000):
            with contextlib.suppress(*LOST):
                await visit.send(b"[" + b",".join(call(n, "echo", text="b") for n in range(count)) + b"]")


class WebSocketBombs(Attack):
    """Compressed WebSocket messages of about a MiB that become 256 MiB."""

    name = "websocket-bombs"

    async def prepare(self, storm: Storm) -> None:
        deflate = zlib.compressobj(1, zlib.DEFLATED, -15)
        # The blocks of a message may be repeated: each ends at a byte, and refers to nothing before it.
        block = deflate.compress(b" " * MIB) + deflate.flush(zlib.Z_FULL_FLUSH)
        self._payload = (block * 256)[:-4]

    async def make_round(self, storm: Storm) -> None:
        async with websocket(storm) as (reader, writer):
            writer.write(frame(self._payload, is_compressed=True))
            storm.counts["messages"] += 1
            await reader.read(100)


class WebSocketFragments(Attack):
    """WebSocket messages of many thousand fragments, empty ones among them, without a last one."""

    name = "websocket-fragments"

    async def make_round(self, storm: Storm) -> None:
        async with websocket(storm) as (_, writer):
            writer.write(frame(b'{"jsonrpc":"2.0"', is_last=False))
            fragments = b"".join(frame(b" " * (n % 2), opcode=0, is_last=False) for n in range(5_000))
            # A bounded number, or the buffers of the connection hold the work of many seconds when the storm is over.
            for _ in range(20):
                writer.write(fragments)
                await writer.drain()
                storm.counts["fragments"] += 5_000
                if storm.seconds_left <= 0:
                    return


class HalfClosed(Attack):
    """Clients that end their direction after a request, or in the midst of one."""

    name = "half-closed"
    width = 20

    async def make_round(self, storm: Storm) -> None:
        request = Visit(storm, PLAIN, "2025-06-18").post(encode("ping", {}, id=1))
        cut = storm.chance.randrange(len(request) + 1)
        async with storm.connection() as (reader, writer):
            writer.write(request[:cut])
            writer.write_eof()
            await storm.status(reader)


class UnreadAnswers(Attack):
    """Clients that ask for megabytes, and do not read them."""

    name = "unread-answers"
    width = 8

    async def make_round(self, storm: Storm) -> None:
        visit = await Visit.begin(storm)
        async with storm.connection() as (_, writer):
            writer.transport.pause_reading()
            writer.write(visit.post(call(1, "big", size=4 * MIB)))
            await writer.drain()
            storm.counts["calls"] += 1
            await storm.hold()


class EventStreamFlood(Attack):
    """Event streams that name a last event which never was, one after another in one session."""

    name = "event-stream-flood"

    async def prepare(self, storm: Storm) -> None:
        self._visit = await Visit.begin(storm)

    async def make_round(self, storm: Storm) -> None:
        wrong = ("0-1", "1-99999999", "-1", "x" * 8000, "%00", "0-" + "9" * 4000)
        last_event_id = storm.chance.choice(wrong)
        status = await storm.exchange(self._visit.get(last_event_id))
        if status == 404:
            self._visit = await Visit.begin(storm)


class Smuggling(Attack):
    """Requests that two parsers may read differently."""

    name = "smuggling"

    async def make_round(self, storm: Storm) -> None:
        host = f"host: 127.0.0.1:{storm.port}".encode()
        start = b"POST /mcp/target HTTP/1.1\r\n" + host + b"\r\n"
        within = b"GET /healthz HTTP/1.1\r\n" + host + b"\r\n\r\n"
        shapes = (
            start.replace(b"\r\n", b"\n") + b"content-length: 0\n\n" + within,
            start + b"x-folded: a\r\n b\r\ncontent-length: 0\r\n\r\n" + within,
            start + b"content-length: 5\r\ncontent-length: 6\r\n\r\n12345" + within,
            start + b"content-length: 5, 5\r\n\r\n12345" + within,
            start + b"content-length: +5\r\n\r\n12345" + within,
            start + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n" + within,
            start + b"transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n" + within,
            start + b"transfer-encoding : chunked\r\n\r\n0\r\n\r\n" + within,
            start + b"transfer-encoding: chunked\r\n\r\n0;" + b"e" * 60_000 + b"\r\n\r\n" + within,
            start + b"transfer-encoding: chunked\r\n\r\n" + b"1;a=b\r\nx\r\n" * 20_000 + b"0\r\n\r\n" + within,
            start + b"transfer-encoding: chunked\r\n\r\nffffffffffffffff1\r\n" + within,
            start + b"transfer-encoding: chunked\r\n\r\n0\r\nhost: other\r\n\r\n" + within,
            start + host + b"\r\ncontent-length: 0\r\n\r\n" + within,
            start + b"x-nul: a\0b\r\ncontent-length: 0\r\n\r\n" + within,
        )
        await storm.exchange(storm.chance.choice(shapes))


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


class Burst(Attack):
    """Many messages of one session at once, on a WebSocket."""

    width = 2
    count = 2_000

    def messages(self, n: int) -> list[bytes]:
        """Returns the messages of number `n` of a burst."""
        raise NotImplementedError

    async def make_round(self, storm: Storm) -> None:
        async with websocket(storm) as (reader, writer):
            info = {"name": "attacker", "version": "0"}
            params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info}
            writer.write(frame(encode("initialize", params, id="hello")))
            await reader.read(100)
            writer.write(frame(encode("notifications/initialized", {})))
            reading = asyncio.ensure_future(self._read(reader))
            try:
                for n in range(self.count):
                    for message in self.messages(n):
                        writer.write(frame(message))
                        storm.counts["messages"] += 1
                    if n % 50 == 0:
                        await writer.drain()
                        if storm.seconds_left <= 0:
                            break
            finally:
                reading.cancel()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        """Reads and drops the answers: the burst is to reach the proxy, not to be held up by the client."""
        with contextlib.suppress(*LOST):
            while await reader.read(65536):
                pass


class SubscriptionFlood(Burst):
    """Subscriptions of ever more resources."""

    name = "subscription-flood"

    def messages(self, n: int) -> list[bytes]:
        return [encode("resources/subscribe", {"uri": f"file:///{n}/" + "u" * 500}, id=n)]


class ProgressTokenFlood(Burst):
    """Calls with progress tokens, long ones too, and progress of the client under tokens that nobody gave out."""

    name = "progress-token-flood"

    def messages(self, n: int) -> list[bytes]:
        token = {"progressToken": f"{n}" + "t" * (n % 3 * 2_000)}
        asked = encode("tools/call", {"name": "echo", "arguments": {}, "_meta": token}, id=n)
        return [asked, encode("notifications/progress", {**token, "progress": n})]


class CancelledCalls(Burst):
    """Calls that are cancelled at once, and cancellations of calls that never were."""

    name = "cancelled-calls"

    def messages(self, n: int) -> list[bytes]:
        cancelled = [encode("notifications/cancelled", {"requestId": id}) for id in (n, -n, f"never {n}")]
        return [call(n, "hang"), *cancelled]


CLIENTS: Final[tuple[type[Attack], ...]] = (
    AbandonedBodies,
    SlowHeads,
    SlowBodies,
    SilentConnections,
    ConnectionFlood,
    SessionFlood,
    Backslashes,
    SpacedKeys,
    DeepNesting,
    ManyMembers,
    BadUtf8,
    HugeNames,
    Batches,
    WebSocketBombs,
    WebSocketFragments,
    HalfClosed,
    UnreadAnswers,
    EventStreamFlood,
    Smuggling,
    AbandonedUploads,
    SubscriptionFlood,
    ProgressTokenFlood,
    CancelledCalls,
)
