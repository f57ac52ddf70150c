"""A server that is played over HTTP+SSE: a GET begins a wire, and its event stream says where to post."""

from __future__ import annotations

import contextlib
import socket
from typing import Final
from urllib.parse import parse_qs, urlsplit

from ....core.oracle.observations import Ended, Role, Verb
from ..script.steps import decoded
from .lobby import Caller

PATH: Final = "/sse"
POSTS: Final = "/messages"
OF_OTHERS: Final = "it posts to the URL of the event stream; then it takes --transport streamable_http"


class EventsChannel(Caller):
    """One request after the other."""

    _is_cut = False

    def do_GET(self) -> None:
        """Until the client hangs up, or is hung up on."""
        if self.is_elsewhere(PATH):
            return
        self.close_connection = True
        self.number = self.lobby.channel()
        performer = self.lobby.begin(self.number, self.write_event, self._cut)
        if performer is None:
            self.send_error(503)
            return
        self.wire = performer.wire
        self.see(self.opened(Verb.GET))
        self.begin_events({})
        self.lobby.enter(performer)  # before it can be known where to post
        self.event(f"{POSTS}?session={self.wire}", kind="endpoint")
        with contextlib.suppress(OSError):
            while self.rfile.read(1):
                """Nothing can be said on it."""
        self.see(Ended(self.number, None if self._is_cut else Role.CLIENT))
        performer.leave()

    def _cut(self) -> None:
        self._is_cut = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def do_POST(self) -> None:
        """What is said about it comes on the event stream, once it was accepted."""
        if self.place == PATH:
            self.lobby.hint = OF_OTHERS
            self.send_error(405)
            return
        body = None if self.is_elsewhere(POSTS) else self.body()
        if body is None:
            return
        performer = self.lobby.performer(parse_qs(urlsplit(self.path).query).get("session", [""])[0])
        if performer is None:
            self.send_error(404)
            return
        self.wire, self.number = performer.wire, self.lobby.channel()
        self.see(self.opened(Verb.POST))
        performer.hear(body, self.number)
        messages = decoded(body)
        done = [(deed, each) for each in messages if (deed := performer.deed_for(each)) is not None]
        for deed, message in done:
            if (status := deed.status or 200) >= 300:
                lines = performer.lines_of(deed, message)
                self.answer(status, lines[0][1] if lines else None)
                return
        self.answer(202 if messages else 400)
        for deed, message in done:
            performer.perform(deed, message)
