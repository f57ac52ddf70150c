"""A scripted server over HTTP+SSE: a GET opens a session, and its event stream names the URL for POSTs."""

from __future__ import annotations

import contextlib
import socket
from typing import Final
from urllib.parse import parse_qs, urlsplit

from ....core.oracle.observations import Ended, Role, Verb
from ..script.steps import decoded
from .http_connections import ConnectionRequest

PATH: Final = "/sse"
POSTS: Final = "/messages"
OF_OTHERS: Final = "it posts to the URL of the event stream; then it takes --transport streamable_http"


class SseChannel(ConnectionRequest):
    """The requests of one connection, one after the other."""

    _is_cut = False

    def do_GET(self) -> None:
        """Opens the event stream of a new session, and holds it until either side closes it."""
        if self.is_elsewhere(PATH):
            return
        self.close_connection = True
        self.number = self.connections.channel()
        connection = self.connections.begin(self.number, self.write_event, self._cut)
        if connection is None:
            self.send_error(503)
            return
        self.wire = connection.wire
        self.see(self.opened(Verb.GET))
        self.begin_events({})
        self.connections.enter(connection)  # before the client learns the URL for POSTs
        self.event(f"{POSTS}?session={self.wire}", kind="endpoint")
        with contextlib.suppress(OSError):
            while self.rfile.read(1):
                """Nothing can be said on it."""
        self.see(Ended(self.number, None if self._is_cut else Role.CLIENT))
        connection.leave()

    def _cut(self) -> None:
        self._is_cut = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def do_POST(self) -> None:
        """Accepts a message; the reaction to it follows on the event stream."""
        if self.place == PATH:
            self.connections.hint = OF_OTHERS
            self.send_error(405)
            return
        body = None if self.is_elsewhere(POSTS) else self.body()
        if body is None:
            return
        connection = self.connections.connection(parse_qs(urlsplit(self.path).query).get("session", [""])[0])
        if connection is None:
            self.send_error(404)
            return
        self.wire, self.number = connection.wire, self.connections.channel()
        self.see(self.opened(Verb.POST))
        connection.receive(body, self.number)
        messages = decoded(body)
        done = [(deed, each) for each in messages if (deed := connection.deed_for(each)) is not None]
        for deed, message in done:
            if (status := deed.status or 200) >= 300:
                lines = connection.lines_of(deed, message)
                self.answer(status, lines[0][1] if lines else None)
                return
        self.answer(202 if messages else 400)
        for deed, message in done:
            connection.carry_out(deed, message)
