"""The tools of the attacks: raw connections, requests and WebSocket frames, which nothing checks before they are sent.

All is asyncio and the standard library: an attack is a process of its own, so that it takes no time of the honest
clients, and its end closes whatever it has open.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import random
import socket
import struct
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from typing import Any, ClassVar, Final

Json = dict[str, Any]

MIB: Final = 1024 * 1024
REQUEST_MAX_BYTES: Final = 16 * MIB
"""The longest message that the proxy takes from a client."""
ROUND_TIMEOUT_S: Final = 20.0
"""The time that the rounds under way at the end of a storm have left."""
ATTACKER_ADDRESS: Final = "127.0.0.2"
"""The address of all attacks. Honest clients have another one: the limits of an address are to spare them."""
LOST: Final = (OSError, EOFError, asyncio.LimitOverrunError)

PLAIN: Final = "target"
FILES: Final = "target-files"
OWN: Final = "target-own"
REMOTE: Final = "target-remote"
EXITING: Final = "target-exiting"
"""The servers of the gateway that attacks use: one process for all sessions, one for each, with and without files, over
HTTP, and one that exits at once. Honest clients use others."""

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Storm:
    """One storm of one kind.

    Args:
        port: the port of the gateway.
        chance: chooses all that a kind leaves open.
        seconds: the time after which no further round begins.

    Attributes:
        counts: what the attack did and what it received.
    """

    def __init__(self, port: int, chance: random.Random, seconds: float) -> None:
        self.port = port
        self.chance = chance
        self.counts: Counter[str] = Counter()
        self._ends_at = time.monotonic() + seconds

    @property
    def seconds_left(self) -> float:
        return self._ends_at - time.monotonic()

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Opens a connection, which is reset afterwards."""
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.port, limit=MIB, local_addr=(ATTACKER_ADDRESS, 0)
        )
        self.counts["connections"] += 1
        try:
            yield reader, writer
        finally:
            with contextlib.suppress(OSError):
                raw = writer.get_extra_info("socket")
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()

    def head(self, method: str, path: str, fields: Mapping[str, str]) -> bytes:
        lines = [f"{method} {path} HTTP/1.1", f"host: 127.0.0.1:{self.port}"]
        return "\r\n".join([*lines, *(f"{name}: {value}" for name, value in fields.items()), "", ""]).encode("latin-1")

    async def status(self, reader: asyncio.StreamReader) -> int:
        """Reads and counts one response head. Returns its status."""
        line = await reader.readuntil(b"\r\n")
        status = int(line.split()[1])
        self.counts[f"HTTP {status}"] += 1
        return status

    async def exchange(self, raw: bytes) -> int:
        """Sends any bytes on a connection of their own. Returns the status."""
        async with self.connection() as (reader, writer):
            writer.write(raw)
            await writer.drain()
            return await self.status(reader)

    async def hold(self) -> None:
        """Waits for the end of the storm."""
        await asyncio.sleep(max(self.seconds_left, 0))


class Visit:
    """A session over Streamable HTTP with one of the targets."""

    def __init__(self, storm: Storm, server: str, revision: str) -> None:
        self._storm = storm
        self.path = f"/mcp/{server}"
        self.fields = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        self._revision = revision

    @classmethod
    async def begin(cls, storm: Storm, server: str = PLAIN, *, revision: str = "2025-06-18", **info: Any) -> Visit:
        """Opens the session.

        Raises:
            EOFError: the session was refused.
        """
        visit = cls(storm, server, revision)
        info = {"name": "attacker", "version": "0", **info}
        params = {"protocolVersion": revision, "capabilities": {}, "clientInfo": info}
        body = encode("initialize", params, id=0)
        async with storm.connection() as (reader, writer):
            writer.write(visit.post(body))
            head = await reader.readuntil(b"\r\n\r\n")
        status = int(head.split()[1])
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:] if line)
        storm.counts[f"session {status}"] += 1
        if b"mcp-session-id" not in fields:
            raise EOFError
        visit.fields |= {"mcp-session-id": fields[b"mcp-session-id"].decode(), "mcp-protocol-version": revision}
        await storm.exchange(visit.post(encode("notifications/initialized", {})))
        return visit

    def post(self, body: bytes, *, length: int | None = None) -> bytes:
        """Returns a whole request. `length` is the announced length, where it is another one."""
        size = {"content-length": str(len(body) if length is None else length)}
        return self._storm.head("POST", self.path, {**self.fields, **size}) + body

    def get(self, last_event_id: str) -> bytes:
        return self._storm.head("GET", self.path, {**self.fields, "last-event-id": last_event_id})

    async def send(self, body: bytes) -> int:
        return await self._storm.exchange(self.post(body))

    async def call(self, tool: str, **arguments: Any) -> int:
        return await self.send(call(1, tool, **arguments))


def encode(method: str, params: Json, **members: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **members, "method": method, "params": params}).encode()


def call(id: Any, tool: str, **arguments: Any) -> bytes:
    return encode("tools/call", {"name": tool, "arguments": arguments}, id=id)


def call_around(value: bytes) -> bytes:
    """Returns a call of `echo` whose argument `text` is any bytes."""
    start = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":'
    return start + value + b"}}}"


# --- WebSocket --------------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def websocket(storm: Storm, server: str = PLAIN) -> AsyncIterator[Connection]:
    """Opens a WebSocket that offers compression.

    Raises:
        EOFError: the WebSocket was refused.
    """
    fields = {
        "connection": "upgrade",
        "upgrade": "websocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": base64.b64encode(storm.chance.randbytes(16)).decode(),
        "sec-websocket-protocol": "mcp",
        "sec-websocket-extensions": "permessage-deflate; client_no_context_takeover",
    }
    async with storm.connection() as (reader, writer):
        writer.write(storm.head("GET", f"/ws/{server}", fields))
        status = await storm.status(reader)
        if status != 101:
            raise EOFError
        await reader.readuntil(b"\r\n\r\n")
        yield reader, writer


def frame(payload: bytes, *, opcode: int = 1, is_last: bool = True, is_compressed: bool = False) -> bytes:
    """Returns a frame of a client. Its mask is zero, so that its payload stays as it is."""
    first = opcode | (0x80 if is_last else 0) | (0x40 if is_compressed else 0)
    size = len(payload)
    if size < 126:
        head = struct.pack("!BB", first, 0x80 | size)
    elif size < 65536:
        head = struct.pack("!BBH", first, 0x80 | 126, size)
    else:
        head = struct.pack("!BBQ", first, 0x80 | 127, size)
    return head + bytes(4) + payload


# --- Kinds ------------------------------------------------------------------------------------------------------------


class Attack(ABC):
    """One kind of hostile peer: `width` of them, each of which makes rounds until the storm is over."""

    name: ClassVar[str]
    width: ClassVar[int] = 4

    async def prepare(self, storm: Storm) -> None:
        """Makes what all rounds use."""
        del storm

    @abstractmethod
    async def make_round(self, storm: Storm) -> None:
        """Raises one of `LOST` if the gateway ended the connection, which is its right."""

    async def run(self, storm: Storm) -> None:
        """Runs the storm to its end, at the latest `ROUND_TIMEOUT_S` later."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(storm.seconds_left, 0) + ROUND_TIMEOUT_S):
                try:
                    await self.prepare(storm)
                except LOST:
                    storm.counts["refused"] += 1
                    return
                async with asyncio.TaskGroup() as tasks:
                    for _ in range(self.width):
                        tasks.create_task(self._make_rounds(storm))

    async def _make_rounds(self, storm: Storm) -> None:
        while True:
            storm.counts["rounds"] += 1
            try:
                await self.make_round(storm)
            except asyncio.CancelledError:
                storm.counts["given up"] += 1
                raise
            except LOST:
                storm.counts["closed"] += 1
            if storm.seconds_left <= 0:
                return
            await asyncio.sleep(0)
