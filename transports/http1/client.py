"""The client's side of an HTTP/1.1 connection, without sockets: encodes requests and parses responses.

The message shapes that MCP servers send are read here; everything else is handed over to h11: a request when it is not
plain, or a response from its head on, after h11 has been given the request that it answers. What h11 refuses is
refused.

Two shortcuts skip work. A request equal to the one before is encoded from a copy, and a response head with the same
bytes as the one before is not parsed again: equal bytes parse to equal heads. `take_repeated` also skips the events of
such a response. `tests/transports/http1/test_client.py` compares the codec with h11, and `test_repeated_heads.py`
compares the one step with many.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...core.wire.headers import Headers
from ...core.wire.http1.events import BODILESS, NEED_DATA, ClientEvent, InformationalHead, ResponseHead
from ...core.wire.http1.fields import NotPlain
from ...core.wire.http1.heads import HEAD_END, PostHead, encode_request_head, read_response_head
from .h11 import H11Client
from .incoming import DONE, HEAD, KNOWN_HEAD_SIZE_MAX_BYTES, Incoming

Request = tuple[str, bytes, Headers]
"""A request: method, target and headers."""


class ClientCodec(Incoming):
    """The codec of one connection, for one request and response after another.

    Args:
        head_size_max_bytes: the longest incomplete head that is waited for.
        only_h11: h11 reads and writes everything.
    """

    __slots__ = ("_asked", "_h11", "_is_sent", "_known", "_only_h11", "_post", "_request")

    def __init__(self, *, head_size_max_bytes: int, only_h11: bool = False) -> None:
        super().__init__(head_size_max_bytes, is_request=False)
        self._only_h11 = only_h11
        self._h11 = H11Client(head_size_max_bytes=head_size_max_bytes) if only_h11 else None
        self._request: Request | None = None  # the current one
        self._post: tuple[PostHead, bytes, int] | None = None  # or a prepared POST: head, target, body size
        # The last request: itself, its encoded head, and whether it closes the connection.
        self._asked: tuple[Request, bytes, bool] | None = None
        self._is_sent = False  # the current request, body included
        # The last final head: its bytes, the parsed head, the size of its body, whether it closes the connection.
        self._known: tuple[bytes, ResponseHead, int | None, bool] | None = None

    def encode_request(self, method: str, target: bytes, headers: Sequence[tuple[bytes, bytes]]) -> bytes:
        """Encodes a request's head. If `headers` hold a Content-Length, the body follows unframed.

        Args:
            headers: names in lower case, Host among them.

        Raises:
            h11.LocalProtocolError: the method, the target or a header is invalid, or no request may be sent now.
        """
        if self._h11 is not None:
            return self._h11.encode_request(method, target, headers)
        assert self._request is None
        request = (method, target, tuple(headers))
        asked = self._asked
        if asked is None or asked[0] != request:
            try:
                asked = (request, *encode_request_head(*request))
            except NotPlain:
                return self._hand_over().encode_request(method, target, headers)
            self._asked = asked if len(asked[1]) <= KNOWN_HEAD_SIZE_MAX_BYTES else None
        self._request, encoded, self._is_closing = asked
        self._is_sent = False
        return encoded

    def encode_post(self, head: PostHead, target: bytes, size_bytes: int) -> bytes:
        """Encodes the head of a POST with a body of that size, as `encode_request` does, from a head that is mostly
        encoded already."""
        start = head.start(target) if self._h11 is None else None
        if start is None:
            return self.encode_request("POST", target, head.sized(size_bytes))
        assert self._request is None and self._post is None
        self._post = head, target, size_bytes
        self._is_closing = head.is_closing
        self._is_sent = False
        return b"%b%d\r\n\r\n" % (start, size_bytes)

    def note_sent(self) -> None:
        """Records that the request's body was written in full, or that there is none."""
        if self._h11 is None:
            self._is_sent = True
        else:
            self._h11.note_sent()

    def forget_heads(self) -> None:
        """Drops what was kept to recognise the next head, because the current response is a stream that may last. Of
        its request only the method is kept."""
        self._asked = self._known = None
        if self._request is not None:
            self._request = (self._request[0], b"", ())

    def receive_data(self, data: bytes) -> None:
        """Takes received bytes; b"" is the end of the stream."""
        if self._h11 is not None:
            self._h11.receive_data(data)
        elif data and self._at == len(self._buffer) and self._by_h11 is None:  # the usual case
            self._buffer, self._at = data, 0
        else:
            self._take(data)

    def next_event(self) -> ClientEvent:
        """Returns the next event of the response.

        Raises:
            h11.RemoteProtocolError: the server does not speak HTTP/1.1. Nothing more can be read.
        """
        if self._h11 is not None:
            return self._h11.next_event()
        if self._reading is HEAD:
            return self._next_head()
        return self._next_of_body()

    def _next_head(self) -> ClientEvent:
        buffer, at, known = self._buffer, self._at, self._known
        if self._request is None and self._post is None and (at < len(buffer) or self._is_ended):
            return self._hand_over().next_event()  # bytes without a request: h11 decides what they mean
        if known is None or not buffer.startswith(known[0], at):
            end = buffer.find(HEAD_END, at + self._searched_size)
            if end < 0:
                return NEED_DATA if self._is_head_awaited() else self._hand_over().next_event()
            raw = buffer[at : end + 4]
            try:
                read = read_response_head(raw)
            except NotPlain:
                return self._hand_over().next_event()
            if isinstance(read, InformationalHead):
                self._searched_size = 0
                self._skip_to(end + 4)
                return read
            known = (raw, *read)
            self._known = known if len(raw) <= KNOWN_HEAD_SIZE_MAX_BYTES else None
        raw, head, size, is_closing = known
        if (self._request is not None and self._request[0] == "HEAD") or head.status in BODILESS:
            size = 0
        elif size == -1:  # until the connection ends
            return self._hand_over().next_event()
        self._searched_size = 0
        self._skip_to(at + len(raw))
        self._is_closing = self._is_closing or is_closing
        self._begin_body(size)
        return head

    def take_repeated(self, head: ResponseHead) -> bytes | None:
        """Takes a whole response in one step, instead of `next_event` and `take_rest`: the one to a POST whose head has
        the same bytes as the last one, which was parsed as `head`. Returns its body if exactly that response has
        arrived, and nothing behind it. Otherwise returns None, and nothing has changed."""
        known = self._known
        if known is None or known[1] is not head or self._reading is not HEAD or self._post is None:
            return None
        size = known[2]
        body = None if size is None or size < 0 or head.status in BODILESS else self._take_repeated(known[0], size)
        if body is not None:
            self._is_closing = self._is_closing or known[3]
        return body

    def _hand_over(self) -> H11Client:
        """Hands the next response over to h11, and the next request if none is under way."""
        self._h11 = H11Client(head_size_max_bytes=self._head_size_max)
        if self._post is not None:
            head, target, size = self._post
            self._request, self._post = ("POST", target, head.sized(size)), None
        if self._request is not None:
            self._h11.encode_request(*self._request)  # it was sent: h11 only has to know it
            if self._is_sent:
                self._h11.note_sent()
            self._request = None
        held, is_ended = self._give_back()
        self._buffer, self._at, self._searched_size = b"", 0, 0
        if held:
            self._h11.receive_data(held)
        if is_ended:
            self._h11.receive_data(b"")
        return self._h11

    @property
    def trailing_data(self) -> tuple[bytes, bool]:
        """The bytes received but not parsed, and True if the stream has ended behind them."""
        return self._give_back() if self._h11 is None else self._h11.trailing_data

    @property
    def may_be_kept(self) -> bool:
        """True if the response is complete and the server keeps the connection, so that it may still want the rest of
        the request."""
        if self._h11 is not None:
            return self._h11.may_be_kept
        return self._reading is DONE and not (self._is_closing or self._is_ended)

    @property
    def is_through(self) -> bool:
        """True if request and response are complete and another request may follow."""
        if self._h11 is not None:
            return self._h11.is_through
        return self._reading is DONE and self._is_sent and not self._is_closing

    def start_next_cycle(self) -> None:
        """Goes on to the next request. Call it only if `is_through`."""
        if self._h11 is None:
            assert self.is_through
            self._reading, self._request, self._post = HEAD, None, None
            return
        self._h11.start_next_cycle()
        if not self._only_h11:
            self._buffer, self._is_ended = self._h11.trailing_data
            self._reading, self._h11 = HEAD, None

    def go_on(self) -> bool:
        """Goes on to the next request, if it may, and if no bytes follow the response: no request has asked for them.
        Returns True if it did."""
        if self._h11 is None:
            if self._reading is not DONE or not self._is_sent or self._is_closing or self._is_ended:
                return False
            if self._at < len(self._buffer):
                return False
            self._reading, self._request, self._post = HEAD, None, None
            return True
        if not self._h11.is_through or self._h11.trailing_data != (b"", False):
            return False
        self.start_next_cycle()
        return True
