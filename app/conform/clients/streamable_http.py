"""Plays a conversation over Streamable HTTP, with a connection and a thread for each request."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import time
from typing import Final
from urllib.parse import urlsplit

from ....core.base.revisions import LEGACY
from ....core.oracle.observations import AnyObservation, Ended, Head, Opened, Role, Said, Verb
from ...base.errors import Failed
from ..script.answers import ClientAnswers
from ..script.steps import ACCEPT, Conversation, Session, Step, decoded
from ..script.survey import Played
from .duplex import LATE_S, MESSAGE_MAX_BYTES, OBSERVATIONS_MAX, QUIET_S, reason_of
from .event_stream import TooLong, events

WRONG_SESSION: Final = "isthmus-conform-no-such-session"


class StreamableHttpClient:
    """A scripted client over Streamable HTTP.

    Args:
        url: the URL of the server.
        headers: sent with every request.
        timeout_s: timeout of each response.
    """

    def __init__(self, url: str, headers: dict[str, str], timeout_s: float) -> None:
        self._url = url
        self._headers = headers
        self._timeout_s = timeout_s

    def __call__(self, conversation: Conversation) -> Played:
        """Plays a conversation.

        Raises:
            Failed: nothing listens there. A server that goes away later counts as one that does not answer.
        """
        state = _State(self._url, self._headers, self._timeout_s, conversation)
        try:
            for step in conversation.steps:
                state.send(step)
                if step.waits:
                    state.wait_answered()
            state.wait_answered()
            if any(not exchange.is_over for exchange in state.exchanges):
                time.sleep(QUIET_S)
        finally:
            state.leave()
        if state.unreachable is not None and not state.has_heard:
            raise Failed(f"the server cannot be reached: {state.unreachable}")
        return Played(state.seen, state.is_cut)


class _State:
    """The sessions and requests of one conversation."""

    def __init__(self, url: str, headers: dict[str, str], timeout_s: float, conversation: Conversation) -> None:
        self.url = urlsplit(url)
        self.headers = headers
        self.timeout_s = timeout_s
        self.seen: list[tuple[int, AnyObservation]] = []
        self.is_cut = False
        self.unreachable: str | None = None
        self.exchanges: list[_Exchange] = []
        self.sessions: dict[int, str] = {}
        self.answers = ClientAnswers(conversation)
        self._revision = conversation.revision
        self._ended: set[int] = set()
        self._is_late = False
        self._lock = threading.Lock()

    def send(self, step: Step) -> None:
        if step.verb is Verb.DELETE and step.session is Session.OWN:
            self._ended.add(step.wire)
        self.answers.note(step.body)
        with self._lock:
            exchange = _Exchange(self, step, len(self.exchanges))
            self.exchanges.append(exchange)
            exchange.start()

    def wait_answered(self) -> None:
        """Waits until all requests are answered, those sent meanwhile included, or the time is up."""
        until = time.monotonic() + (min(LATE_S, self.timeout_s) if self._is_late else self.timeout_s)
        while waiting := [each for each in list(self.exchanges) if not (each.is_endless or each.is_over)]:
            if (left := until - time.monotonic()) <= 0:
                self._is_late = True
                return
            waiting[0].join(left)

    def leave(self) -> None:
        """Closes open requests, and ends the sessions with DELETE."""
        for exchange in list(self.exchanges):
            exchange.close()
        for wire in self.sessions:
            if wire not in self._ended:
                has_version = self._revision in LEGACY and LEGACY[self._revision].version_header
                headers = {"MCP-Protocol-Version": self._revision} if has_version else {}
                self.send(Step(verb=Verb.DELETE, wire=wire, headers=headers))
                self.exchanges[-1].join(self.timeout_s)
                self.exchanges[-1].close()

    @property
    def has_heard(self) -> bool:
        with self._lock:
            return any(isinstance(seen, Head) for _, seen in self.seen)

    def see(self, wire: int, observation: AnyObservation) -> None:
        with self._lock:
            if len(self.seen) < OBSERVATIONS_MAX:
                self.seen.append((wire, observation))
            else:
                self.is_cut = True


class _Exchange:
    """One HTTP request and its response, in a thread of its own."""

    def __init__(self, state: _State, step: Step, channel: int) -> None:
        self._state = state
        self._step = step
        self._channel = channel
        self._messages = decoded(step.body)
        self.is_endless = step.verb is Verb.GET or any(
            message.get("method") == "subscriptions/listen" for message in self._messages
        )
        self._is_left = False
        self._socket: socket.socket | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def is_over(self) -> bool:
        return not self._thread.is_alive()

    def start(self) -> None:
        self._thread.start()

    def join(self, patience_s: float) -> None:
        self._thread.join(patience_s)

    def close(self) -> None:
        """Closes the connection, if the response is not complete."""
        if self.is_over:
            return
        self._is_left = True
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(self._state.timeout_s)

    def _run(self) -> None:
        url, timeout_s = self._state.url, self._state.timeout_s
        make = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
        connection = make(url.hostname or "", url.port, timeout=timeout_s)
        try:
            connection.connect()
        except OSError as error:
            self._state.unreachable = reason_of(error)
            if self._state.has_heard:  # the server was there before, so this request counts as unanswered
                self._note_request(self._headers())
            return
        self._socket = connection.sock
        if self.is_endless:
            connection.sock.settimeout(None)  # without a timeout; `close` ends it
        try:
            self._exchange(connection)
        except TooLong:
            self._state.is_cut = True
        except (OSError, http.client.HTTPException, ValueError):
            if self.is_endless and self._is_left:
                self._see(Ended(self._channel, Role.CLIENT))
        finally:
            connection.close()

    def _note_request(self, headers: dict[str, str]) -> bytes | None:
        """Notes the observations of the request itself. Returns its body."""
        step = self._step
        lower = {name.lower(): value for name, value in headers.items()}
        self._see(
            Opened(
                self._channel,
                step.verb,
                lower.get("mcp-session-id"),
                lower.get("mcp-protocol-version"),
                lower.get("accept", ""),
                None,
                tuple((name, value) for name, value in headers.items() if name.lower().startswith(MIRRORS)),
            )
        )
        body = step.body.encode() if step.verb is Verb.POST else None
        if body is not None:
            self._see(Said(self._channel, Role.CLIENT, body, at=time.monotonic()))
        return body

    def _exchange(self, connection: http.client.HTTPConnection) -> None:
        step, headers = self._step, self._headers()
        body = self._note_request(headers)
        target = self._state.url.path or "/"
        if self._state.url.query:
            target += f"?{self._state.url.query}"
        connection.request(step.verb.value, target, body, headers)
        response = connection.getresponse()
        kind = (response.getheader("Content-Type") or "").partition(";")[0].strip().lower()
        session = response.getheader("Mcp-Session-Id")
        self._see(Head(self._channel, response.status, kind, session))
        if session and any(message.get("method") == "initialize" for message in self._messages):
            self._state.sessions.setdefault(step.wire, session)
        if kind == "text/event-stream" and response.status == 200:
            for event, id, data in events(response):
                self._receive(data, event, id)
        else:
            text = response.read(MESSAGE_MAX_BYTES + 1)
            if len(text) > MESSAGE_MAX_BYTES:
                self._state.is_cut = True
            elif decoded(text) or (kind == "application/json" and text.strip()):
                self._receive(text)
        self._see(Ended(self._channel, Role.CLIENT if self._is_left else Role.SERVER))

    def _headers(self) -> dict[str, str]:
        step = self._step
        accept = "text/event-stream" if step.verb is Verb.GET else ACCEPT
        headers = {"Accept": accept, **self._state.headers}
        if step.verb is Verb.POST:
            headers["Content-Type"] = "application/json"
        if step.session is Session.WRONG:
            headers["Mcp-Session-Id"] = WRONG_SESSION
        elif step.session is Session.OWN and step.wire in self._state.sessions:
            headers["Mcp-Session-Id"] = self._state.sessions[step.wire]
        headers.update(step.headers)
        return {name: value for name, value in headers.items() if value}

    def _receive(self, text: bytes, event: str = "message", id: str | None = None) -> None:
        self._see(Said(self._channel, Role.SERVER, text, event, id, time.monotonic()))
        for step in self._state.answers.answers_to(text, self._step.wire):
            self._state.send(step)

    def _see(self, observation: AnyObservation) -> None:
        self._state.see(self._step.wire, observation)


MIRRORS: Final = ("mcp-method", "mcp-name", "mcp-param-")
