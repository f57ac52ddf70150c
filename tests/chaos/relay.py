"""A TCP relay on loopback that does to its connections what networks do, chosen by a seed.

While it is `stormy`, a connection may be cut at any byte, in either direction, with FIN or RST or in one direction
only. Pieces arrive late, in single bytes, or not at all for a while. Once it is calm it passes everything on, on the
remaining connections too.
"""

from __future__ import annotations

import contextlib
import random
import socket
import struct
from dataclasses import dataclass
from typing import Final

import anyio
from anyio.abc import SocketAttribute, SocketStream, TaskGroup

LOST: Final = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, OSError)
TINY_UNTIL: Final = 3000
"""The number of bytes of a direction that may pass in tiny pieces. A whole large result would take for ever."""


@dataclass
class Course:
    """The faults of one direction of a connection.

    Attributes:
        cut_at: the number of bytes after which it is cut; None if it is not.
        cut: `fin`, `rst`, or `half` for this direction alone.
        piece: the number of bytes that are passed on at once.
        late: the chance that a piece is late, up to 20 ms.
        stall_at: the number of bytes after which nothing passes for `stall_s`.
    """

    cut_at: int | None = None
    cut: str = "fin"
    piece: int = 1 << 20
    late: float = 0.0
    stall_at: int | None = None
    stall_s: float = 0.0


def _anywhere(chance: random.Random) -> int:
    """Returns a position. Every order of magnitude is equally likely, except that positions within busy event streams
    are likelier."""
    return int(10 ** chance.uniform(0, 4.7)) if chance.random() < 0.5 else chance.randint(300, 3000)


def _draw(chance: random.Random, harshness: float) -> Course:
    course = Course()
    if chance.random() < harshness:
        course.cut_at = _anywhere(chance)
        course.cut = chance.choice(("fin", "rst", "rst", "half"))
    if chance.random() < 0.3:
        course.piece = chance.choice((1, 2, 7, 40))
    if chance.random() < 0.3:
        course.late = chance.random() * 0.2
    if chance.random() < 0.15:
        course.stall_at, course.stall_s = _anywhere(chance), chance.uniform(0.1, 1.5)
    return course


class Relay:
    """The relay.

    Attributes:
        port: the port that it listens on, once `start` has returned.
        cuts: the number of connections that it has cut.
    """

    def __init__(self, target_port: int, seed: str, *, harshness: float) -> None:
        self.stormy = True
        self.port = 0
        self.cuts = 0
        self.connections = 0
        self._target_port = target_port
        self._chance = random.Random(seed)
        self._harshness = harshness

    async def start(self, tasks: TaskGroup) -> None:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1", backlog=512)
        self.port = listener.extra(SocketAttribute.local_port)
        tasks.start_soon(listener.serve, self._carry)

    def calm(self) -> None:
        self.stormy = False

    async def _carry(self, near: SocketStream) -> None:
        self.connections += 1
        forth, back = _draw(self._chance, self._harshness / 3), _draw(self._chance, self._harshness)
        async with near:
            try:
                far = await anyio.connect_tcp("127.0.0.1", self._target_port)
            except OSError:
                _reset(near)
                return
            async with far, anyio.create_task_group() as tasks:
                tasks.start_soon(self._pump, near, far, forth, tasks)
                tasks.start_soon(self._pump, far, near, back, tasks)

    async def _pump(self, source: SocketStream, sink: SocketStream, course: Course, tasks: TaskGroup) -> None:
        passed = 0
        try:
            while True:
                data = await source.receive(65536)
                while data:
                    piece = data
                    if self.stormy:
                        if passed < TINY_UNTIL:
                            piece = piece[: course.piece]
                        if course.cut_at is not None:
                            piece = piece[: max(0, course.cut_at - passed)]
                        if course.cut_at is not None and passed >= course.cut_at:
                            self.cuts += 1
                            if course.cut == "half":
                                await sink.send_eof()
                                await self._discard(source)
                            elif course.cut == "rst":
                                _reset(source)
                                _reset(sink)
                            tasks.cancel_scope.cancel()
                            return
                        if course.stall_at is not None and passed >= course.stall_at:
                            course.stall_at = None
                            await anyio.sleep(course.stall_s)
                        elif course.late and self._chance.random() < course.late:
                            await anyio.sleep(self._chance.random() * 0.02)
                    await sink.send(piece)
                    passed += len(piece)
                    data = data[len(piece) :]
        except anyio.EndOfStream:
            with contextlib.suppress(*LOST):
                await sink.send_eof()
        except LOST:
            tasks.cancel_scope.cancel()

    async def _discard(self, source: SocketStream) -> None:
        """Reads and drops the other direction for a little while, as if nothing had happened."""
        with anyio.move_on_after(self._chance.uniform(0.05, 1.0)), contextlib.suppress(*LOST):
            while True:
                await source.receive(65536)


def _reset(stream: SocketStream) -> None:
    """Makes the close send RST."""
    with contextlib.suppress(OSError, *LOST):
        raw = stream.extra(SocketAttribute.raw_socket)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
