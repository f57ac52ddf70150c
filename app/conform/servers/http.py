"""Plays a server that a client connects to over HTTP: one on a port of its own for each conversation."""

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
from .client_process import Client, Stage, for_url
from .http_request import Request
from .ledger import Ledger
from .lobby import Lobby
from .relay import HOST
from .sse import EventsChannel
from .streamable_http import Channel
from .websocket import SocketChannel

POLL_S = 0.02


class HttpStage(Stage):
    """One server for each conversation. Args: `way`: what it speaks."""

    def __init__(self, spec: ChildSpec, timeout_s: float, way: Way) -> None:
        super().__init__(spec, timeout_s)
        self._way = way

    def __call__(self, behaviour: Behaviour) -> Played:
        """Raises:
        Failed: the client cannot be started.
        """
        ledger, way = Ledger(self._timeout_s), self._way
        hall = way.hall(behaviour, ledger)
        with Server(hall, way.kind) as server:
            thread = threading.Thread(target=server.serve_forever, args=(POLL_S,), daemon=True)
            thread.start()
            try:
                client = Client(for_url(self._spec, f"{way.scheme}://{HOST}:{server.server_port}{way.path}"))
                try:
                    is_hung = client.wait(ledger, self._timeout_s)
                finally:
                    ledger.is_over = True  # at once: somebody may be held up by a client that reads nothing
                    client.end()
                    ledger.close()
            finally:
                server.shutdown()
                thread.join()
        self.words, self.hint = list(client.words), hall.hint
        return ledger.played(is_hung=is_hung)


class Server(ThreadingHTTPServer):
    """Listens on a free port of loopback."""

    daemon_threads = True
    block_on_close = False  # what a client has left open ends with it
    request_queue_size = 64

    def __init__(self, hall: Hall | Lobby, kind: type[Request] = Channel) -> None:
        super().__init__((HOST, 0), kind)
        self.hall = hall

    def handle_error(self, request: object, client_address: object) -> None:
        """A client may go whenever it likes."""


class Hall:
    """The sessions of one conversation over Streamable HTTP: each is a wire of its own.

    Attributes:
        has_posts: the client has posted something.
        hint: what a client did that speaks something else, for people; empty if nothing was seen of that.
    """

    def __init__(self, behaviour: Behaviour, ledger: Ledger) -> None:
        self.has_posts = False
        self.hint = ""
        self.behaviour = behaviour
        self.ledger = ledger
        self.kept: dict[str, tuple[int, Json, list[tuple[Line, str]]]] = {}
        """Event id → whose it is, the request, and what comes after it."""
        self.streams: dict[int, Channel] = {}
        """The stream that the client has opened on each wire."""
        self._scripts: list[Script] = [Script(behaviour)]
        self._has_greeted: set[int] = set()
        self._sessions: dict[str, int] = {}
        self._ended: set[str] = set()
        self._count = 0

    def channel(self) -> int:
        """A new number."""
        with self.ledger.lock:
            self._count += 1
            return self._count - 1

    def wire_of(self, session: str | None, message: Json | None) -> int:
        """Whose a request is. A handshake without session begins a wire; what has no known session belongs to the
        newest."""
        with self.ledger.lock:
            if session is not None and session in self._sessions:
                return self._sessions[session]
            newest = len(self._scripts) - 1
            if message is not None and message.get("method") == "initialize":
                if newest in self._has_greeted:
                    self._scripts.append(Script(self.behaviour, before=self._scripts[-1]))
                    newest += 1
                self._has_greeted.add(newest)
            return newest

    def script(self, wire: int) -> Script:
        return self._scripts[wire]

    def begin_session(self, wire: int) -> str | None:
        """The id that the answer to `initialize` gives; None: there are none."""
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
        """The HTTP status for a request without its session, or one that is over; None: it may go on."""
        if is_hello or not self.behaviour.session or self.behaviour.is_stateless:
            return None
        if session is None:
            return 400
        return None if session in self._sessions and session not in self._ended else 404


class Way(NamedTuple):
    """One of the transports that have URLs.

    Attributes:
        transport: how it is judged.
        scheme, path: of the URL.
        kind: what takes the requests.
        hall: makes what they have in common, in one conversation.
    """

    transport: Transport
    scheme: str
    path: str
    kind: type[Request]
    hall: Callable[[Behaviour, Ledger], Hall | Lobby]


WAYS: Final[dict[Named, Way]] = {
    "streamable_http": Way(Transport.HTTP, "http", streamable_http.PATH, Channel, Hall),
    "sse": Way(Transport.EVENTS, "http", sse.PATH, EventsChannel, Lobby),
    "websocket": Way(Transport.PIPE, "ws", websocket.PATH, SocketChannel, Lobby),
}
