"""The contract between a request to a transparent server and the client's connection that it came on."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Protocol

from ...core.wire.headers import Headers
from ...core.wire.http.reply import Out
from ...core.wire.http.reverse_proxy_exchange import ForwardFailed
from ...core.wire.http1.events import Data, Signal


class ClientSide(Protocol):
    """The client's connection, as an `UpstreamRequest` uses it.

    Attributes:
        is_behind: the client has not taken everything that was put.
    """

    @property
    def is_behind(self) -> bool: ...

    def next_body(self) -> Data | Signal:
        """Returns the next event of the request's body, and reads on if it is NEED_DATA."""

    def ask_body(self) -> None:
        """Tells a client that waits for a 100 to send the body, because the server is connected."""

    def refuse_body(self) -> None:
        """Drops the rest of the body: the server takes no more."""

    def put(self, outs: Sequence[Out]) -> None:
        """Writes what follows of the response. More may come from the server, or go to it."""

    def hold(self) -> None:
        """Keeps the request until `finish`, though the end of its response follows now."""

    def finish(self, outs: Sequence[Out]) -> None:
        """Writes the end of the response; none if it was put before. The request is over."""

    def fail(self, failure: ForwardFailed) -> None:
        """Answers with an error, or cuts a response that has begun. The request is over."""

    def switch(self, headers: Headers) -> None:
        """Writes a 101 with these headers. The bytes that follow in both directions are not HTTP."""

    def put_bytes(self, data: bytes) -> None:
        """Writes bytes that are not HTTP."""

    def end_bytes(self) -> None:
        """Ends the connection, because the server did. The request is over."""

    def settle(self) -> None:
        """Goes on with the body, as far as the server takes it."""

    def start(self, work: Callable[[], Coroutine[object, object, None]]) -> None:
        """Runs `work` as a task, which ends with the connection."""
