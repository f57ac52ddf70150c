"""A client's connection as a server sees it: bytes in, requests out; responses in, bytes out."""

from __future__ import annotations

from collections.abc import Sequence

from .http1 import ServerEvent
from .http1_h11 import H11Server


class ServerCodec:
    """Requests and responses, one after the other, on one connection.

    Args:
        head_size_max_bytes: the longest head that is waited for, while it is incomplete.
        only_h11: whether h11 reads and writes everything.
    """

    def __init__(self, *, head_size_max_bytes: int, only_h11: bool = False) -> None:
        self._h11 = H11Server(head_size_max_bytes=head_size_max_bytes)

    def receive_data(self, data: bytes) -> None:
        """Take what has arrived; b"" is the stream's end."""
        self._h11.receive_data(data)

    def next_event(self) -> ServerEvent:
        """What has arrived next.

        Raises:
            h11.RemoteProtocolError: the client does not speak HTTP/1.1. Nothing more can be read.
        """
        return self._h11.next_event()

    @property
    def trailing_data(self) -> tuple[bytes, bool]:
        """What has arrived and was not told of, and whether the stream has ended behind it."""
        return self._h11.trailing_data

    @property
    def version(self) -> bytes | None:
        """The client's, as of its last request; None before the first."""
        return self._h11.version

    @property
    def is_awaiting_continue(self) -> bool:
        """Whether the client waits for a 100 before it sends the body."""
        return self._h11.is_awaiting_continue

    @property
    def is_through(self) -> bool:
        """Whether request and response are complete, and another request may follow."""
        return self._h11.is_through

    def start_next_cycle(self) -> None:
        """Go on to the next request. Only if `is_through`."""
        self._h11.start_next_cycle()

    def encode_head(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> bytes:
        """A final response's head.

        Args:
            headers: names in lower case. Without a Content-Length the body is chunked, or ends with the connection.

        Raises:
            h11.LocalProtocolError: a header is none, or there is no request to answer.
        """
        return self._h11.encode_head(status, headers)

    def encode_data(self, data: bytes) -> list[bytes]:
        """A piece of the response's body, framed; nothing where the response has none.

        Raises:
            h11.LocalProtocolError: it is more than the Content-Length said.
        """
        return self._h11.encode_data(data)

    def encode_end(self) -> bytes:
        """What ends the response's body.

        Raises:
            h11.LocalProtocolError: it was less than the Content-Length said.
        """
        return self._h11.encode_end()

    def encode_whole(self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> bytes:
        """A whole response: `encode_head`, `encode_data` and `encode_end` in one."""
        return self._h11.encode_whole(status, headers, body)

    def encode_informational(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> bytes:
        """A 1xx response. After a 101, which the client must have asked for, what follows both ways is not HTTP."""
        return self._h11.encode_informational(status, headers)
