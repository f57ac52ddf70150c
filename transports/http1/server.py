"""A client's connection as a server sees it: bytes in, requests out; responses in, bytes out.

The shapes that MCP clients send are read here, everything else by h11: a head that is not plain is handed over, byte
for byte, with the rest of its request and the response. Nothing is accepted that h11 refuses, and what is accepted
means the same. A head that repeats the one before on its connection, as most do, is not even looked at.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...core.wire.headers import Headers
from ...core.wire.http1.events import NEED_DATA, RequestHead, ServerEvent
from ...core.wire.http1.fields import NotPlain
from ...core.wire.http1.heads import HEAD_END, read_request_head
from .h11 import H11Server
from .incoming import DONE, HEAD, KNOWN_HEAD_SIZE_MAX_BYTES, Incoming
from .response_writer import ResponseWriter


class ServerCodec(Incoming):
    """Requests and responses, one after the other, on one connection.

    Args:
        head_size_max_bytes: the longest head that is waited for, while it is incomplete.
        only_h11: whether h11 reads and writes everything.
    """

    __slots__ = ("_awaits_continue", "_h11", "_known", "_only_h11", "_response", "_version")

    def __init__(self, *, head_size_max_bytes: int, only_h11: bool = False) -> None:
        super().__init__(head_size_max_bytes)
        self._only_h11 = only_h11
        self._h11 = H11Server(head_size_max_bytes=head_size_max_bytes) if only_h11 else None
        self._response = ResponseWriter()
        self._version: bytes | None = None
        self._awaits_continue = False
        # The last head: its bytes, what they say, whether it closes and whether it awaits a 100.
        self._known: tuple[bytes, RequestHead, bool, bool] | None = None

    # --- In ---------------------------------------------------------------------------------------------------------

    def receive_data(self, data: bytes) -> None:
        """Take what has arrived; b"" is the stream's end."""
        if self._h11 is not None:
            self._h11.receive_data(data)
        elif data and self._at == len(self._buffer) and self._by_h11 is None:  # as nearly always
            self._buffer, self._at = data, 0
        else:
            self._take(data)

    def next_event(self) -> ServerEvent:
        """What has arrived next.

        Raises:
            h11.RemoteProtocolError: the client does not speak HTTP/1.1. Nothing more can be read.
        """
        if self._h11 is not None:
            return self._h11.next_event()
        if self._reading is HEAD:
            return self._next_head()
        event = self._next_of_body()
        if self._awaits_continue and event is not NEED_DATA:
            self._awaits_continue = False  # it has gone on without
        return event

    def _next_head(self) -> ServerEvent:
        buffer, at, known = self._buffer, self._at, self._known
        if known is None or not buffer.startswith(known[0], at):
            end = buffer.find(HEAD_END, at + self._searched_size)
            if end < 0:
                return NEED_DATA if self._is_head_awaited() else self._hand_over().next_event()
            raw = buffer[at : end + 4]
            try:
                known = read_request_head(raw)
            except NotPlain:
                return self._hand_over().next_event()
            may_come_again = len(raw) <= KNOWN_HEAD_SIZE_MAX_BYTES and known[1].method != "GET"
            self._known = known if may_come_again else None  # a stream lasts, and there may be thousands
        raw, head, self._is_closing, self._awaits_continue = known
        self._searched_size = 0
        self._skip_to(at + len(raw))
        self._version = b"1.1"
        self._begin_body(head.body_size)
        self._response.begin(head.method, is_closing=self._is_closing)
        return head

    def take_repeated(self, head: RequestHead) -> bytes | None:
        """The body of a request that begins with the very bytes of the last one, which were read as `head`, if it is
        there in full and nothing else is: `next_event` and `take_rest` in one. None: nothing was done."""
        known = self._known
        if known is None or known[1] is not head or self._reading is not HEAD or self._h11 is not None:
            return None
        body = None if head.body_size is None else self._take_repeated(known[0], head.body_size)
        if body is not None:
            self._is_closing, self._awaits_continue = known[2], False
            self._version = b"1.1"
            self._response.begin(head.method, is_closing=known[2])
        return body

    def _hand_over(self) -> H11Server:
        """h11 takes the request that comes next, and its response."""
        self._h11 = H11Server(head_size_max_bytes=self._head_size_max, version=self._version)
        held, is_ended = self._give_back()
        self._buffer, self._at, self._searched_size = b"", 0, 0
        if held:
            self._h11.receive_data(held)
        if is_ended:
            self._h11.receive_data(b"")
        return self._h11

    def take_rest(self) -> bytes | None:
        """See `Incoming`. A client that has sent it does not wait for a 100."""
        body = super().take_rest()
        if body is not None:
            self._awaits_continue = False
        return body

    @property
    def trailing_data(self) -> tuple[bytes, bool]:
        """What has arrived and was not told of, and whether the stream has ended behind it."""
        return self._give_back() if self._h11 is None else self._h11.trailing_data

    @property
    def version(self) -> bytes | None:
        """The client's, as of its last request; None before the first."""
        return self._version if self._h11 is None else self._h11.version

    @property
    def is_awaiting_continue(self) -> bool:
        """Whether the client waits for a 100 before it sends the body."""
        return self._awaits_continue if self._h11 is None else self._h11.is_awaiting_continue

    @property
    def is_through(self) -> bool:
        """Whether request and response are complete, and another request may follow."""
        if self._h11 is not None:
            return self._h11.is_through
        return self._reading is DONE and self._response.is_done and not self._is_closing

    def start_next_cycle(self) -> None:
        """Go on to the next request. Only if `is_through`."""
        if self._h11 is None:
            assert self.is_through
            self._reading = HEAD
            return
        self._h11.start_next_cycle()
        if not self._only_h11:
            self._version = self._h11.version
            self._buffer, self._is_ended = self._h11.trailing_data
            self._reading, self._h11 = HEAD, None

    def go_on(self) -> bytes | None:
        """`start_next_cycle`, if it may be: what has arrived of the next request. None: there can be none."""
        if self._h11 is None:
            if self._reading is not DONE or self._is_closing or not self._response.is_done:
                return None
            self._reading = HEAD
            return self._buffer[self._at :]
        if not self._h11.is_through:
            return None
        self.start_next_cycle()
        return self.trailing_data[0]

    # --- Out --------------------------------------------------------------------------------------------------------

    @property
    def _out(self) -> ResponseWriter | H11Server:
        """Who writes the response at hand."""
        if self._h11 is None and self._reading is HEAD:
            self._hand_over()  # there is no request: h11 knows what to make of that
        return self._response if self._h11 is None else self._h11

    def encode_head(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> bytes:
        """A final response's head.

        Args:
            headers: names in lower case. Without a Content-Length the body is chunked, or ends with the connection.

        Raises:
            h11.LocalProtocolError: a header is none, or no response is due.
        """
        encoded = self._out.encode_head(status, headers)
        self._note_head()
        return encoded

    def encode_data(self, data: bytes | bytearray) -> Sequence[bytes | bytearray]:
        """A piece of the response's body, framed; nothing where the response has none.

        Raises:
            h11.LocalProtocolError: it is more than the Content-Length said.
        """
        return self._out.encode_data(data)

    def encode_end(self) -> bytes:
        """What ends the response's body.

        Raises:
            h11.LocalProtocolError: it was less than the Content-Length said.
        """
        return self._out.encode_end()

    def encode_whole(self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> bytes:
        """A whole response: `encode_head`, `encode_data` and `encode_end` in one."""
        encoded = self._out.encode_whole(status, headers, body)
        self._note_head()
        return encoded

    def encode_document(self, status: int, headers: Headers, pieces: tuple[bytes, ...]) -> list[bytes]:
        """A whole response whose length is said for it: `encode_whole`, with a Content-Length behind `headers`.

        Args:
            headers: the same object as last time, on this connection, costs next to nothing.
            pieces: the body's, of which only the first is copied, at least one.
        """
        if self._h11 is None and self._reading is not HEAD:
            encoded = self._response.encode_document(status, headers, pieces)
            self._awaits_continue = False
            self._is_closing = self._is_closing or self._response.is_closing
            return encoded
        body = b"".join(pieces)
        return [self.encode_whole(status, (*headers, (b"content-length", b"%d" % len(body))), body)]

    def encode_informational(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> bytes:
        """A 1xx response. After a 101, which the client must have asked for, what follows both ways is not HTTP."""
        encoded = self._out.encode_informational(status, headers)
        self._awaits_continue = False
        return encoded

    def _note_head(self) -> None:
        self._awaits_continue = False
        self._is_closing = self._is_closing or self._response.is_closing
