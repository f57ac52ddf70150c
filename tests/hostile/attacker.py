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
import re
import socket
import struct
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

Json = dict[str, Any]

MIB: Final = 1024 * 1024
REQUEST_MAX_BYTES: Final = 16 * MIB
"""The longest message that the proxy takes from a client."""
ROUND_TIMEOUT_S: Final = 20.0
"""The time that the rounds under way at the end of a storm have left."""
GOAL_TIMEOUT_S: Final = 20.0
"""The time for which a storm goes on that has not reached its limits. A storm of usual length takes a tenth."""
LOST: Final = (OSError, EOFError, asyncio.LimitOverrunError)

REFUSALS: Final = {
    "batch_max": re.compile(rb"got a batch of \d+ messages"),
    "bodies_per_owner_max_bytes": re.compile(rb"others that are arriving have all the room"),
    "connections_per_address_max": re.compile(rb"more connections than this server takes"),
    "exchanges_per_session_max": re.compile(rb"requests are open, the most a session may have"),
    "head_size_max_bytes": re.compile(rb"got a head over the limit"),
    "headers_max": re.compile(rb"got \d+ headers, expected at most"),
    "initialize_size_max_bytes": re.compile(rb"got params of \d+ bytes, expected at most"),
    "reply_size_max_bytes": re.compile(rb"over the limit of 67108864 bytes"),
    "request_size_max_bytes": re.compile(rb"got a body over the limit"),
    "sessions_max": re.compile(rb"sessions are open, the most allowed"),
    "sessions_per_owner_max": re.compile(rb"sessions of yours are open"),
}
"""Fields of `Limits`, and the words of the refusal when one is reached."""
RETRIED: Final = frozenset({"bodies_per_owner_max_bytes", "connections_per_address_max"})
"""Limits whose refusal is a 503 that says when to try again."""
REFUSAL_MAX_BYTES: Final = 64 * 1024

PLAIN: Final = "target"
FILES: Final = "target-files"
OWN: Final = "target-own"
REMOTE: Final = "target-remote"
EXITING: Final = "target-exiting"
"""The servers of the gateway that attacks use: one process for all sessions, one for each, with and without files, over
HTTP, and one that exits at once. Honest clients use others."""

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(frozen=True)
class Response:
    """The head of a response, and the beginning of its body."""

    status: int
    fields: dict[bytes, bytes]
    body: bytes


class Storm:
    """One storm of one kind.

    Args:
        port: the port of the gateway.
        chance: chooses all that a kind leaves open.
        seconds: the time after which no further round begins, unless a limit of `reaches` was not reached.
        address: the IP address of the attack. Each kind has its own, and honest clients have another one: the limits of
            an address are to spare them.
        reaches: the fields of `Limits` that the attack is to reach.

    Attributes:
        counts: what the attack did and what it received.
        reached: fields of `Limits` that it has reached.
        wrongs: descriptions of answers that must not be.
    """

    def __init__(
        self, port: int, chance: random.Random, seconds: float, address: str, reaches: frozenset[str] = frozenset()
    ) -> None:
        self.port = port
        self.chance = chance
        self.counts: Counter[str] = Counter()
        self.reached: set[str] = set()
        self.wrongs: list[str] = []
        self._address = address
        self._reaches = reaches
        self._has_reached = asyncio.Event()
        self._ends_at = time.monotonic() + seconds
        self.reach()

    @property
    def seconds_left(self) -> float:
        """The time left of the storm, or, once that is over, of what it may take to reach its limits."""
        left = self._ends_at - time.monotonic()
        return left if left > 0 or self._has_reached.is_set() else left + GOAL_TIMEOUT_S

    @property
    def missed(self) -> set[str]:
        """The limits that are not reached yet."""
        return set(self._reaches - self.reached)

    def reach(self, *limits: str) -> None:
        """Records limits that are reached."""
        self.reached |= {*limits}
        if not self.missed:
            self._has_reached.set()

    @contextlib.asynccontextmanager
    async def connection(
        self, *, address: str | None = None, window_bytes: int | None = None
    ) -> AsyncIterator[Connection]:
        """Opens a connection, which is reset afterwards.

        Args:
            address: where it comes from, if not from the address of the attack.
            window_bytes: what the system may receive of it before anybody reads.
        """
        raw = socket.socket()
        try:
            raw.setblocking(False)
            if window_bytes is not None:
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window_bytes)
            raw.bind((address or self._address, 0))
            await asyncio.get_running_loop().sock_connect(raw, ("127.0.0.1", self.port))
        except BaseException:
            raw.close()
            raise
        reader, writer = await asyncio.open_connection(sock=raw, limit=MIB)
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

    async def response(self, reader: asyncio.StreamReader) -> Response:
        """Reads a response, of a long one the beginning, and counts it. Notes the limit that a refusal names."""
        head = await reader.readuntil(b"\r\n\r\n")
        status = int(head.split(None, 2)[1])
        self.counts[f"HTTP {status}"] += 1
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:] if line)
        size_bytes = min(int(fields.get(b"content-length", b"0")), REFUSAL_MAX_BYTES)
        response = Response(status, fields, await reader.readexactly(size_bytes))
        for limit in self.note_refusal(response.body):
            if limit in RETRIED and not (status == 503 and fields.get(b"retry-after", b"").isdigit()):
                self.wrongs.append(f"{limit} was reached: got {head[:500]!r}, expected 503 with Retry-After")
        return response

    def note_refusal(self, text: bytes) -> list[str]:
        """Notes the limits that a refusal names, and returns them."""
        found = [limit for limit, words in REFUSALS.items() if words.search(text)]
        self.counts.update(f"at {limit}" for limit in found)
        self.reach(*found)
        return found

    async def exchange(self, raw: bytes) -> Response:
        """Sends any bytes on a connection of their own. Returns the response."""
        async with self.connection() as (reader, writer):
            writer.write(raw)
            await writer.drain()
            return await self.response(reader)

    @contextlib.asynccontextmanager
    async def lasting(self) -> AsyncIterator[None]:
        """Cancels what is within at the end of the storm."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None) as scope:
                watching = asyncio.ensure_future(self._end(scope))
                try:
                    yield
                finally:
                    watching.cancel()

    async def _end(self, scope: asyncio.Timeout) -> None:
        await self._hold()
        scope.reschedule(asyncio.get_running_loop().time())

    async def _hold(self) -> None:
        """Waits for the end of the storm, which is not before its limits are reached."""
        while (left := self.seconds_left) > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await (asyncio.sleep(left) if self._has_reached.is_set() else self._has_reached.wait())


class Visit:
    """A session over Streamable HTTP with one of the targets."""

    def __init__(self, storm: Storm, server: str = PLAIN, revision: str = "2025-06-18") -> None:
        self._storm = storm
        self.path = f"/mcp/{server}"
        self.fields = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        self._revision = revision

    @classmethod
    async def begin(
        cls,
        storm: Storm,
        server: str = PLAIN,
        *,
        revision: str = "2025-06-18",
        address: str | None = None,
        **info: Any,
    ) -> Visit:
        """Opens the session, from another address if one is given.

        Raises:
            EOFError: the session was refused.
        """
        visit = cls(storm, server, revision)
        info = {"name": "attacker", "version": "0", **info}
        params = {"protocolVersion": revision, "capabilities": {}, "clientInfo": info}
        body = encode("initialize", params, id=0)
        async with storm.connection(address=address) as (reader, writer):
            writer.write(visit.post(body))
            opened = await storm.response(reader)
        if b"mcp-session-id" not in opened.fields:
            raise EOFError
        storm.counts["sessions"] += 1
        session = opened.fields[b"mcp-session-id"].decode()
        visit.fields |= {"mcp-session-id": session, "mcp-protocol-version": revision}
        await storm.exchange(visit.post(encode("notifications/initialized", {})))
        return visit

    def post(self, body: bytes, *, length: int | None = None) -> bytes:
        """Returns a whole request. `length` is the announced length, where it is another one."""
        size = {"content-length": str(len(body) if length is None else length)}
        return self._storm.head("POST", self.path, {**self.fields, **size}) + body

    def get(self, last_event_id: str | None = None) -> bytes:
        last = {} if last_event_id is None else {"last-event-id": last_event_id}
        return self._storm.head("GET", self.path, {**self.fields, **last})

    async def send(self, body: bytes) -> Response:
        return await self._storm.exchange(self.post(body))

    async def call(self, tool: str, **arguments: Any) -> Response:
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
async def websocket(
    storm: Storm, server: str = PLAIN, *, compresses: bool = False, window_bytes: int | None = None
) -> AsyncIterator[Connection]:
    """Opens a WebSocket, which may offer compression.

    Raises:
        EOFError: the WebSocket was refused.
    """
    fields = {
        "connection": "upgrade",
        "upgrade": "websocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": base64.b64encode(storm.chance.randbytes(16)).decode(),
        "sec-websocket-protocol": "mcp",
    }
    if compresses:
        fields["sec-websocket-extensions"] = "permessage-deflate; client_no_context_takeover"
    async with storm.connection(window_bytes=window_bytes) as (reader, writer):
        writer.write(storm.head("GET", f"/ws/{server}", fields))
        if (await storm.response(reader)).status != 101:
            raise EOFError
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
    """One kind of hostile peer: `width` of them, each of which makes rounds until the storm is over.

    Attributes:
        reaches: the fields of `Limits` that it reaches. A storm that does not is a failure.
    """

    name: str
    width: int = 4
    reaches: frozenset[str] = frozenset()

    async def prepare(self, storm: Storm) -> None:
        """Makes what all rounds use."""
        del storm

    @abstractmethod
    async def make_round(self, storm: Storm) -> None:
        """Raises one of `LOST` if the gateway ended the connection, which is its right."""

    async def run(self, storm: Storm) -> None:
        """Runs the storm to its end, at the latest `GOAL_TIMEOUT_S` and `ROUND_TIMEOUT_S` later."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(storm.seconds_left, 0) + GOAL_TIMEOUT_S + ROUND_TIMEOUT_S):
                try:
                    await self.prepare(storm)
                except LOST:
                    storm.wrongs.append("the attack was refused before it began")
                    return
                async with asyncio.TaskGroup() as tasks:
                    for _ in range(self.width):
                        tasks.create_task(self._make_rounds(storm))
        storm.wrongs += [f"{limit} was not reached, expected a storm that reaches it" for limit in sorted(storm.missed)]

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
