"""The server's side of an HTTP/1.1 connection, without sockets: parses requests and encodes responses.

The message shapes that MCP clients send are read here; everything else is handed over to h11: a head that is not plain
goes there byte for byte, with the rest of its request and the response. Nothing is accepted that h11 refuses, and what
is accepted means the same. Of what h11 accepts, lines that others may read differently are refused (`find_ambiguity`).

A head with the same bytes as the one before on its connection, as most have, is not parsed again: equal bytes parse to
equal heads. `take_repeated` also skips the events of such a request. `tests/transports/http1/test_server.py` compares
the codec with h11, and `test_repeated_heads.py` compares the one step with many.
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
    """The codec of one connection, for one request and response after another.

    Args:
        head_size_max_bytes: the longest incomplete head that is waited for.
        only_h11: h11 reads and writes everything.
    """

    __slots__ = ("_awaits_continue", "_h11", "_known", "_only_h11", "_response", "_version")

    def __init__(self, *, head_size_max_bytes: int, only_h11: bool = False) -> None:
        super().__init__(head_size_max_bytes, is_request=True)
        self._only_h11 = only_h11
        self._h11 = H11Server(head_size_max_bytes=head_size_max_bytes) if only_h11 else None
        self._response = ResponseWriter()
        self._version: bytes | None = None
        self._awaits_continue = False
        # The last head: its bytes, the parsed head, whether it closes the connection and whether it awaits a 100.
        self._known: tuple[bytes, RequestHead, bool, bool] | None = None

    # --- In ---------------------------------------------------------------------------------------------------------

    def receive_data(self, data: bytes) -> None:
        """Takes received bytes; b"" is the end of the stream."""
        if self._h11 is not None:
            self._h11.receive_data(data)
        elif data and self._at == len(self._buffer) and self._by_h11 is None:  # the usual case
            self._buffer, self._at = data, 0
        else:
            self._take(data)

    def next_event(self) -> ServerEvent:
        """Returns the next event of the request.

        Raises:
            h11.RemoteProtocolError: the client does not speak HTTP/1.1. Nothing more can be read.
        """
        if self._h11 is not None:
            return self._h11.next_event()
        if self._reading is HEAD:
            return self._next_head()
        event = self._next_of_body()
        if self._awaits_continue and event is not NEED_DATA:
            self._awaits_continue = False  # the client sent the body without waiting for the 100
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
            self._known = known if may_come_again else None  # a GET is a stream that lasts; there may be thousands
        raw, head, self._is_closing, self._awaits_continue = known
        self._searched_size = 0
        self._skip_to(at + len(raw))
        self._version = b"1.1"
        self._begin_body(head.body_size)
        self._response.begin(head.method, is_closing=self._is_closing)
        return head

    def take_repeated(self, head: RequestHead) -> bytes | None:
        """Takes a whole request in one step, instead of `next_event` and `take_rest`: one whose head has the same bytes
        as the last one, which was parsed as `head`. Returns its body if exactly that request has arrived, and nothing
        behind it. Otherwise returns None, and nothing has changed."""
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
        """Hands the next request and its response over to h11."""
        self._h11 = H11Server(head_size_max_bytes=self._head_size_max, version=self._version)
        held, is_ended = self._give_back()
        self._buffer, self._at, self._searched_size = b"", 0, 0
        if held:
            self._h11.receive_data(held)
        if is_ended:
            self._h11.receive_data(b"")
        return self._h11

    def take_rest(self) -> bytes | None:
        """Takes the whole body, see `Incoming.take_rest`. A client that has sent it does not wait for a 100."""
        body = super().take_rest()
        if body is not None:
            self._awaits_continue = False
        return body

    @property
    def trailing_data(self) -> tuple[bytes, bool]:
        """The bytes received but not parsed, and True if the stream has ended behind them."""
        return self._give_back() if self._h11 is None else self._h11.trailing_data

    @property
    def version(self) -> bytes | None:
        """The client's HTTP version in its last request; None before the first."""
        return self._version if self._h11 is None else self._h11.version

    @property
    def is_awaiting_continue(self) -> bool:
        """True if the client waits for a 100 before it sends the body."""
        return self._awaits_continue if self._h11 is None else self._h11.is_awaiting_continue

    @property
    def is_through(self) -> bool:
        """True if request and response are complete and another request may follow."""
        if self._h11 is not None:
            return self._h11.is_through
        return self._reading is DONE and self._response.is_done and not self._is_closing

    def start_next_cycle(self) -> None:
        """Goes on to the next request. Call it only if `is_through`."""
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
        """Goes on to the next request, if it may. Returns the bytes that have arrived of it; None if there can be no
        other request."""
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
        """The writer of the current response."""
        if self._h11 is None and self._reading is HEAD:
            self._hand_over()  # there is no request: h11 decides whether that is an error
        return self._response if self._h11 is None else self._h11

    def encode_head(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> bytes:
        """Encodes the head of a final response.

        Args:
            headers: names in lower case. Without a Content-Length the body is chunked, or ends with the connection.

        Raises:
            h11.LocalProtocolError: a header is invalid, or no response is due.
        """
        encoded = self._out.encode_head(status, headers)
        self._note_head()
        return encoded

    def encode_data(self, data: bytes | bytearray) -> Sequence[bytes | bytearray]:
        """Encodes a piece of the response's body, framed; nothing for a response without a body.

        Raises:
            h11.LocalProtocolError: the body is longer than its Content-Length.
        """
        return self._out.encode_data(data)

    def encode_end(self) -> bytes:
        """Encodes the end of the response's body.

        Raises:
            h11.LocalProtocolError: the body is shorter than its Content-Length.
        """
        return self._out.encode_end()

    def encode_whole(self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> bytes:
        """Encodes a whole response: `encode_head`, `encode_data` and `encode_end` in one."""
        encoded = self._out.encode_whole(status, headers, body)
        self._note_head()
        return encoded

    def encode_document(self, status: int, headers: Headers, pieces: tuple[bytes, ...]) -> list[bytes]:
        """Encodes a whole response as `encode_whole` does, and appends a Content-Length to `headers`.

        Args:
            headers: passing the same object as last time on this connection costs next to nothing.
            pieces: the body in at least one piece, of which only the first is copied.
        """
        if self._h11 is None and self._reading is not HEAD:
            encoded = self._response.encode_document(status, headers, pieces)
            self._awaits_continue = False
            self._is_closing = self._is_closing or self._response.is_closing
            return encoded
        body = b"".join(pieces)
        return [self.encode_whole(status, (*headers, (b"content-length", b"%d" % len(body))), body)]

    def encode_informational(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> bytes:
        """Encodes a 1xx response. After a 101, which the client must have asked for, the bytes in both directions are
        not HTTP."""
        encoded = self._out.encode_informational(status, headers)
        self._awaits_continue = False
        return encoded

    def _note_head(self) -> None:
        self._awaits_continue = False
        self._is_closing = self._is_closing or self._response.is_closing
