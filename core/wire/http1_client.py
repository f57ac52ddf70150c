"""A connection to a server as its client sees it: requests in, bytes out; bytes in, responses out."""

from __future__ import annotations

from collections.abc import Sequence

from .http1 import ClientEvent
from .http1_h11 import H11Client


class ClientCodec:
    """Requests and responses, one after the other, on one connection.

    Args:
        head_size_max_bytes: the longest head that is waited for, while it is incomplete.
        only_h11: whether h11 reads and writes everything.
    """

    def __init__(self, *, head_size_max_bytes: int, only_h11: bool = False) -> None:
        self._h11 = H11Client(head_size_max_bytes=head_size_max_bytes)

    def encode_request(self, method: str, target: bytes, headers: Sequence[tuple[bytes, bytes]]) -> bytes:
        """A request's head. If `headers` hold a Content-Length, the body is to follow as it is.

        Args:
            headers: names in lower case, Host among them.

        Raises:
            h11.LocalProtocolError: the method, the target or a header is none.
        """
        return self._h11.encode_request(method, target, headers)

    def note_sent(self) -> None:
        """The body has left in full."""
        self._h11.note_sent()

    def receive_data(self, data: bytes) -> None:
        """Take what has arrived; b"" is the stream's end."""
        self._h11.receive_data(data)

    def next_event(self) -> ClientEvent:
        """What has arrived next.

        Raises:
            h11.RemoteProtocolError: the server does not speak HTTP/1.1. Nothing more can be read.
        """
        return self._h11.next_event()

    @property
    def trailing_data(self) -> tuple[bytes, bool]:
        """What has arrived and was not told of, and whether the stream has ended behind it."""
        return self._h11.trailing_data

    @property
    def is_through(self) -> bool:
        """Whether request and response are complete, and another request may follow."""
        return self._h11.is_through

    def start_next_cycle(self) -> None:
        """Go on to the next request. Only if `is_through`."""
        self._h11.start_next_cycle()
