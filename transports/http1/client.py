"""A connection to a server as its client sees it: requests in, bytes out; bytes in, responses out.

As on the other side, what is not plain is for h11: a request from the start, or a response from its head on, with the
request made known to h11 that led to it.
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
"""Method, target and headers."""


class ClientCodec(Incoming):
    """Requests and responses, one after the other, on one connection.

    Args:
        head_size_max_bytes: the longest head that is waited for, while it is incomplete.
        only_h11: whether h11 reads and writes everything.
    """

    __slots__ = ("_asked", "_h11", "_is_sent", "_known", "_only_h11", "_post", "_request")

    def __init__(self, *, head_size_max_bytes: int, only_h11: bool = False) -> None:
        super().__init__(head_size_max_bytes)
        self._only_h11 = only_h11
        self._h11 = H11Client(head_size_max_bytes=head_size_max_bytes) if only_h11 else None
        self._request: Request | None = None  # the one at hand
        self._post: tuple[PostHead, bytes, int] | None = None  # or this, with its target and the size of its body
        # The last one: itself, its head, and whether it closes.
        self._asked: tuple[Request, bytes, bool] | None = None
        self._is_sent = False  # its body too
        # The last final head: its bytes, what they say, the size of its body, and whether it closes.
        self._known: tuple[bytes, ResponseHead, int | None, bool] | None = None

    def encode_request(self, method: str, target: bytes, headers: Sequence[tuple[bytes, bytes]]) -> bytes:
        """A request's head. If `headers` hold a Content-Length, the body is to follow as it is.

        Args:
            headers: names in lower case, Host among them.

        Raises:
            h11.LocalProtocolError: the method, the target or a header is none, or it is not the time for a request.
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
        """The head of a POST with a body of that size: `encode_request`, of what is encoded already."""
        start = head.start(target) if self._h11 is None else None
        if start is None:
            return self.encode_request("POST", target, head.sized(size_bytes))
        assert self._request is None and self._post is None
        self._post = head, target, size_bytes
        self._is_closing = head.is_closing
        self._is_sent = False
        return b"%b%d\r\n\r\n" % (start, size_bytes)

    def note_sent(self) -> None:
        """The body has left in full, or there is none."""
        if self._h11 is None:
            self._is_sent = True
        else:
            self._h11.note_sent()

    def forget_heads(self) -> None:
        """The response at hand will last: nothing is kept for the next, nor of its request what nobody looks at."""
        self._asked = self._known = None
        if self._request is not None:
            self._request = (self._request[0], b"", ())

    def receive_data(self, data: bytes) -> None:
        """Take what has arrived; b"" is the stream's end."""
        if self._h11 is not None:
            self._h11.receive_data(data)
        elif data and self._at == len(self._buffer) and self._by_h11 is None:  # as nearly always
            self._buffer, self._at = data, 0
        else:
            self._take(data)

    def next_event(self) -> ClientEvent:
        """What has arrived next.

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
            return self._hand_over().next_event()  # which knows what that means
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
        """The body of a response to a POST that begins with the very bytes of the last one, which were read as `head`,
        if it is there in full and nothing else is: `next_event` and `take_rest` in one. None: nothing was done."""
        known = self._known
        if known is None or known[1] is not head or self._reading is not HEAD or self._post is None:
            return None
        size = known[2]
        body = None if size is None or size < 0 or head.status in BODILESS else self._take_repeated(known[0], size)
        if body is not None:
            self._is_closing = self._is_closing or known[3]
        return body

    def _hand_over(self) -> H11Client:
        """h11 takes the response that comes next, and the next request if none was made."""
        self._h11 = H11Client(head_size_max_bytes=self._head_size_max)
        if self._post is not None:
            head, target, size = self._post
            self._request, self._post = ("POST", target, head.sized(size)), None
        if self._request is not None:
            self._h11.encode_request(*self._request)  # which has left
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
        """What has arrived and was not told of, and whether the stream has ended behind it."""
        return self._give_back() if self._h11 is None else self._h11.trailing_data

    @property
    def is_through(self) -> bool:
        """Whether request and response are complete, and another request may follow."""
        if self._h11 is not None:
            return self._h11.is_through
        return self._reading is DONE and self._is_sent and not self._is_closing

    def start_next_cycle(self) -> None:
        """Go on to the next request. Only if `is_through`."""
        if self._h11 is None:
            assert self.is_through
            self._reading, self._request, self._post = HEAD, None, None
            return
        self._h11.start_next_cycle()
        if not self._only_h11:
            self._buffer, self._is_ended = self._h11.trailing_data
            self._reading, self._h11 = HEAD, None

    def go_on(self) -> bool:
        """`start_next_cycle`, if it may be and nothing stands behind the response: nobody has asked for that. Returns
        whether it was."""
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
