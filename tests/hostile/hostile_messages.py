"""Hostile clients by the messages that they send, one class a kind."""

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
from hostile_connections import UNREAD_BYTES, WINDOW_BYTES

NEARLY_ALL: Final = REQUEST_MAX_BYTES - 1000
"""The size of a value whose message still fits into the limit."""
LAST_ID: Final = "the last of a burst"
HEAD_MAX_BYTES: Final = 64 * 1024
"""The longest head that the proxy takes."""


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
    reaches = frozenset({"initialize_size_max_bytes"})

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


class Oversize(Attack):
    """Heads, numbers of headers and bodies just over their limits."""

    name = "oversize"
    reaches = frozenset({"head_size_max_bytes", "headers_max", "request_size_max_bytes"})

    async def make_round(self, storm: Storm) -> None:
        visit = Visit(storm)
        for request in (
            storm.head("GET", visit.path, {"x-long": "h" * HEAD_MAX_BYTES}),
            storm.head("GET", visit.path, {f"x-{n}": "" for n in range(300)}),
            visit.post(b"", length=REQUEST_MAX_BYTES + 1),
            storm.head("POST", visit.path, {**visit.fields, "transfer-encoding": "chunked"})
            + (b"%x\r\n" % MIB + b" " * MIB + b"\r\n") * (REQUEST_MAX_BYTES // MIB + 1),
        ):
            with contextlib.suppress(*LOST):
                await storm.exchange(request)


class Batches(Attack):
    """Batches of as many calls as are permitted, of more, and of none."""

    name = "batches"
    reaches = frozenset({"batch_max"})

    async def make_round(self, storm: Storm) -> None:
        visit = await Visit.begin(storm, revision="2025-03-26")
        for count in (0, 64, 65, 50_000):
            with contextlib.suppress(*LOST):
                await visit.send(b"[" + b",".join(call(n, "echo", text="b") for n in range(count)) + b"]")


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


class WebSocketBombs(Attack):
    """Compressed WebSocket messages of about a MiB that become 256 MiB."""

    name = "websocket-bombs"

    async def prepare(self, storm: Storm) -> None:
        deflate = zlib.compressobj(1, zlib.DEFLATED, -15)
        # The blocks of a message may be repeated: each ends at a byte, and refers to nothing before it.
        block = deflate.compress(b" " * MIB) + deflate.flush(zlib.Z_FULL_FLUSH)
        self._payload = (block * 256)[:-4]

    async def make_round(self, storm: Storm) -> None:
        async with websocket(storm, compresses=True) as (reader, writer):
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


class Burst(Attack):
    """Many messages of one session at once, on a WebSocket."""

    width = 2
    count = 2_000
    window_bytes: int | None = None
    is_reading = True

    def messages(self, n: int) -> list[bytes]:
        """Returns the messages of number `n` of a burst."""
        raise NotImplementedError

    async def make_round(self, storm: Storm) -> None:
        async with websocket(storm, window_bytes=self.window_bytes) as (reader, writer):
            info = {"name": "attacker", "version": "0"}
            params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info}
            writer.write(frame(encode("initialize", params, id="hello")))
            await reader.read(100)
            writer.write(frame(encode("notifications/initialized", {})))
            reading = asyncio.ensure_future(self._read(storm, reader, writer))
            try:
                for n in range(self.count):
                    for message in self.messages(n):
                        writer.write(frame(message))
                        storm.counts["messages"] += 1
                    if n % 50 == 0:
                        await writer.drain()
                writer.write(frame(encode("ping", {}, id=LAST_ID)))
                await reading  # a reset would take back what has not arrived
            finally:
                reading.cancel()

    async def _read(self, storm: Storm, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Reads up to the last answer, or nothing until the end of the storm."""
        if not self.is_reading:
            writer.transport.pause_reading()
            async with storm.lasting():
                await asyncio.Event().wait()
            return
        seen = b""
        while LAST_ID.encode() not in seen:
            data = await reader.read(65536)
            if not data:
                return
            storm.note_refusal(data)
            seen = seen[-len(LAST_ID) :] + data


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


class HangingCalls(Burst):
    """Calls that are never answered, more than a session may have."""

    name = "hanging-calls"
    reaches = frozenset({"exchanges_per_session_max"})

    def messages(self, n: int) -> list[bytes]:
        return [call(n, "hang")]


class UnreadSockets(Burst):
    """WebSockets on which megabytes are asked for again and again, and nothing is read."""

    name = "unread-sockets"
    width = 4
    count = 16
    window_bytes = WINDOW_BYTES
    is_reading = False

    def messages(self, n: int) -> list[bytes]:
        return [call(n, "big", size=UNREAD_BYTES)]


MESSAGES: Final[tuple[Attack, ...]] = (
    Backslashes(),
    SpacedKeys(),
    DeepNesting(),
    ManyMembers(),
    BadUtf8(),
    HugeNames(),
    Oversize(),
    Batches(),
    Smuggling(),
    WebSocketBombs(),
    WebSocketFragments(),
    SubscriptionFlood(),
    ProgressTokenFlood(),
    CancelledCalls(),
    HangingCalls(),
    UnreadSockets(),
)
