"""The messages of the supervisor and its workers, on the socket pair that each worker has with it.

First the supervisor hands over what the worker is to serve, with a length before it. All that follows are lines. The
end of the socket is the end of the other side: a worker without its supervisor drains and ends.
"""

from __future__ import annotations

import socket
from typing import Final

import msgspec

from ..config.settings import Settings

WORKER_VARIABLE: Final = "ISTHMUS_WORKER"
"""The variable that tells a process that it is a worker: the number of the descriptor of its socket."""
LINE_MAX_BYTES: Final = 1024 * 1024
"""Bytes of a line. The longest is the banner, with some lines for each server. At it: the worker counts as broken."""
_LENGTH_BYTES: Final = 8


class Handover(msgspec.Struct, frozen=True):
    """The configuration and the sockets that a worker is to serve.

    Attributes:
        tag: of the worker among the replicas.
        folder: a folder for the sockets of all workers.
        base_url: the URL of the port.
        sockets: the numbers of the descriptors that it listens on, by their names (`Listening`).
        probes: it probes the servers and tells the banner.
        count: the number of workers.
    """

    settings: Settings
    tag: str
    folder: str
    base_url: str
    sockets: dict[str, tuple[int, ...]]
    probes: bool
    count: int


class Serving(msgspec.Struct, frozen=True, tag=True):
    """The worker accepts connections."""


class Probed(msgspec.Struct, frozen=True, tag=True):
    """The worker has probed the servers; `screen` is the banner."""

    screen: str


class Retire(msgspec.Struct, frozen=True, tag=True):
    """The worker is to accept no more connections, and to end with its last session."""


Message = Serving | Probed | Retire
_decoder: Final[msgspec.json.Decoder[Message]] = msgspec.json.Decoder(Message)


def encode(message: Message) -> bytes:
    return msgspec.json.encode(message) + b"\n"


def decode(line: bytes) -> Message:
    return _decoder.decode(line)


def hand_over(handover: Handover) -> bytes:
    data = msgspec.msgpack.encode(handover)
    return len(data).to_bytes(_LENGTH_BYTES, "big") + data


def take_over(channel: socket.socket) -> Handover:
    """Reads what the supervisor hands over. Blocks.

    Raises:
        EOFError: the supervisor is gone.
    """
    size = int.from_bytes(_read(channel, _LENGTH_BYTES), "big")
    return msgspec.msgpack.decode(_read(channel, size), type=Handover)


def _read(channel: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = channel.recv(size - len(data))
        if not piece:
            raise EOFError("the supervisor is gone")
        data += piece
    return bytes(data)
