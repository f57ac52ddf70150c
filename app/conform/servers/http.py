"""Scripted servers that a client connects to by a URL: for each conversation, one on a port of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import ThreadingHTTPServer
from typing import Final, NamedTuple

from ....core.oracle import Transport
from ....transports.stdio.server_process import ChildSpec
from ...config.settings import Transport as Named
from ..script.behaviour import Behaviour, Line, Script
from ..script.steps import Json
from ..script.survey import Played
from . import sse, streamable_http, websocket
from .client_process import Client, ClientRunner, for_url
from .http_connections import HttpConnections
from .http_request import Request
from .ledger import Ledger
from .relay import HOST
from .sse import SseChannel
from .streamable_http import Channel
from .websocket import SocketChannel

POLL_S = 0.02


class HttpClientRunner(ClientRunner):
    """Runs a client against a scripted server at a URL, a new one for each conversation."""

    def __init__(self, spec: ChildSpec, timeout_s: float, url_transport: UrlTransport) -> None:
        super().__init__(spec, timeout_s)
        self._url_transport = url_transport

    def __call__(self, behaviour: Behaviour) -> Played:
        """Starts the client, and plays its server.

        Raises:
            Failed: the client cannot be started.
        """
        ledger, url_transport = Ledger(self._timeout_s), self._url_transport
        shared = url_transport.shared(behaviour, ledger)
        with Server(shared, url_transport.kind) as server:
            thread = threading.Thread(target=server.serve_forever, args=(POLL_S,), daemon=True)
            thread.start()
            try:
                client = Client(
                    for_url(self._spec, f"{url_transport.scheme}://{HOST}:{server.server_port}{url_transport.path}")
                )
                try:
                    is_hung = client.wait(ledger, self._timeout_s)
                finally:
                    ledger.is_over = True  # first: a thread may be blocked in a write to a client that reads nothing
                    client.end()
                    ledger.close()
            finally:
                server.shutdown()
                thread.join()
        self.words, self.hint = list(client.words), shared.hint
        return ledger.played(is_hung=is_hung)


class Server(ThreadingHTTPServer):
    """An HTTP server on a free port of loopback.

    Args:
        shared: what the requests of one conversation share.
        kind: the handler of requests.
    """

    daemon_threads = True
    block_on_close = False  # do not wait for connections that the client left open
    request_queue_size = 64

    def __init__(self, shared: HttpSessions | HttpConnections, kind: type[Request] = Channel) -> None:
        super().__init__((HOST, 0), kind)
        self.shared = shared

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignores the error: a client may close a connection at any time."""


class HttpSessions:
    """The sessions of one conversation over Streamable HTTP.

    Attributes:
        has_posts: the client has sent a POST.
        hint: for people, the sign that the client uses another transport; empty if there is none.
    """

    def __init__(self, behaviour: Behaviour, ledger: Ledger) -> None:
        self.has_posts = False
        self.hint = ""
        self.behaviour = behaviour
        self.ledger = ledger
        self.kept: dict[str, tuple[int, Json, list[tuple[Line, str]]]] = {}
        """Event id → session, request, and the lines that come after the event, for resumption."""
        self.streams: dict[int, Channel] = {}
        """Session → the stream that the client opened by GET."""
        self._scripts: list[Script] = [Script(behaviour)]
        self._has_handshake: set[int] = set()
        self._sessions: dict[str, int] = {}
        self._ended: set[str] = set()
        self._count = 0

    def channel(self) -> int:
        """Returns a new channel number."""
        with self.ledger.lock:
            self._count += 1
            return self._count - 1

    def wire_of(self, session: str | None, message: Json | None) -> int:
        """Returns the number of the session that a request belongs to.

        `initialize` without a session id begins a new session. A request without a known session id belongs to the
        newest session.
        """
        with self.ledger.lock:
            if session is not None and session in self._sessions:
                return self._sessions[session]
            newest = len(self._scripts) - 1
            if message is not None and message.get("method") == "initialize":
                if newest in self._has_handshake:
                    self._scripts.append(Script(self.behaviour, before=self._scripts[-1]))
                    newest += 1
                self._has_handshake.add(newest)
            return newest

    def script(self, wire: int) -> Script:
        return self._scripts[wire]

    def begin_session(self, wire: int) -> str | None:
        """Returns the session id for the response to `initialize`; None if the server gives none."""
        if not self.behaviour.session or self.behaviour.is_stateless:
            return None
        with self.ledger.lock:
            session = f"{self.behaviour.session}{wire}"
            self._sessions[session] = wire
            return session

    def end_session(self, session: str | None) -> None:
        if session is not None:
            self._ended.add(session)

    def refusal(self, session: str | None, *, is_hello: bool) -> int | None:
        """Returns the HTTP status for a request without a session id or with an ended one; None if it is correct."""
        if is_hello or not self.behaviour.session or self.behaviour.is_stateless:
            return None
        if session is None:
            return 400
        return None if session in self._sessions and session not in self._ended else 404


class UrlTransport(NamedTuple):
    """A transport that has URLs.

    Attributes:
        transport: the transport whose rules apply.
        scheme, path: parts of the URL.
        kind: the handler of requests.
        shared: makes what the requests of one conversation share.
    """

    transport: Transport
    scheme: str
    path: str
    kind: type[Request]
    shared: Callable[[Behaviour, Ledger], HttpSessions | HttpConnections]


URL_TRANSPORTS: Final[dict[Named, UrlTransport]] = {
    "streamable_http": UrlTransport(Transport.HTTP, "http", streamable_http.PATH, Channel, HttpSessions),
    "sse": UrlTransport(Transport.EVENTS, "http", sse.PATH, SseChannel, HttpConnections),
    "websocket": UrlTransport(Transport.PIPE, "ws", websocket.PATH, SocketChannel, HttpConnections),
}
