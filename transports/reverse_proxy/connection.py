"""A connection to a transparent server, for one request after another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.base.limits import Limits
from ...core.wire.headers import Headers
from ...core.wire.http1.events import ResponseHead
from ..base.input_probe import InputProbe, Socket
from ..base.wire import FOREVER, Wire
from ..http1.client import ClientCodec

if TYPE_CHECKING:
    from ...core.wire.http.reverse_proxy_exchange import ForwardPlan
    from .forwarder import Forwarder
    from .request import UpstreamRequest


class UpstreamConnection:
    """The user of a `Wire` to a server. It hands what happens to the request that holds it. Without one, any byte and
    the end of the stream close it.

    Args:
        server: the id of the server.

    Attributes:
        wire: set before anything else is done with the connection.
        request: the request that holds the connection.
        was_used: it has carried a request before, so the server may have closed it since.
        has_heard: a byte of the current response has arrived.
        is_stream: it is in use for an event stream that a client listens on.
        is_blocked: the last write has not left.
        plan: that of the last request.
        known: the last head of a response, the method of its request, and the headers that pass on: None if the
            response is not passed on in one piece.
    """

    __slots__ = (
        "_forwarder",
        "_is_closed",
        "_is_read",
        "_probe",
        "has_heard",
        "http",
        "idle_since",
        "is_blocked",
        "is_stream",
        "known",
        "plan",
        "request",
        "server",
        "was_used",
        "wire",
    )

    def __init__(self, forwarder: Forwarder, server: str, limits: Limits, *, only_h11: bool) -> None:
        self.wire: Wire
        self.server = server
        self.http = ClientCodec(head_size_max_bytes=limits.head_size_max_bytes, only_h11=only_h11)
        self.request: UpstreamRequest | None = None
        self.plan: ForwardPlan | None = None
        self.was_used = False
        self.has_heard = False
        self.is_stream = False
        self.is_blocked = False
        self.idle_since = 0.0
        self.known: tuple[ResponseHead | None, str, Headers | None] = (None, "", None)
        self._forwarder = forwarder
        self._probe: InputProbe | None = None
        self._is_read = True
        self._is_closed = False

    def watch(self, socket: Socket | None) -> None:
        """Has `has_input` look at this socket."""
        self._probe = InputProbe(socket)

    def has_input(self) -> bool:
        """True if something has arrived that the wire has not handed over yet, as far as that can be known."""
        return self._probe is not None and self._probe.has_input()

    # --- Orders of requests -----------------------------------------------------------------------------------------

    def write(self, parts: list[bytes | bytearray]) -> None:
        self.is_blocked = not self.wire.write(parts)

    def read(self, is_wanted: bool) -> None:
        if is_wanted is not self._is_read:
            self._is_read = is_wanted
            self.wire.read(is_wanted)

    def recycle(self) -> bool:
        """Prepares the connection for another request. Returns False if it cannot carry one."""
        if self._is_closed or not self.http.go_on():
            return False
        self.was_used = True
        self.has_heard = False
        self.request = None
        self.read(True)
        self.wire.set_timeout(FOREVER)
        return True

    def close(self) -> None:
        """Closes the connection, whatever is under way."""
        self.request = None
        if not self._is_closed:
            self._is_closed = True
            self.wire.close()

    # --- Inputs of the wire -----------------------------------------------------------------------------------------

    def receive_data(self, data: bytes) -> None:
        if self.request is None:
            self._forwarder.discard(self)
            return
        self.has_heard = True
        self.request.receive_data(data)

    def receive_eof(self) -> None:
        if self.request is None:
            self._forwarder.discard(self)
        else:
            self.request.receive_eof()

    def receive_lost(self) -> None:
        self.receive_eof()

    def receive_refused(self) -> None:
        if self.request is None:
            self._forwarder.discard(self)
        else:
            self.request.receive_refused()

    def handle_stalled(self) -> None:
        self.receive_refused()

    def handle_timeout(self) -> None:
        if self.request is not None:
            self.request.handle_timeout()

    def handle_written(self) -> None:
        self.is_blocked = False
        if self.request is not None:
            self.request.handle_written()

    def handle_wake(self) -> None:
        if self.request is not None:
            self.request.handle_wake()

    def stop(self) -> None:
        """Ends the connection because its wire failed or ends."""
        request = self.request
        if request is not None:
            request.receive_failure()
        else:
            self._forwarder.discard(self)
