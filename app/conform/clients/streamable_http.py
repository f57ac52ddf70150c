"""Plays a conversation over Streamable HTTP: a connection and a thread for each request, all closed when it is over."""

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
from ..script.answers import Answering
from ..script.steps import ACCEPT, Conversation, Session, Step, decoded
from ..script.survey import Played
from .duplex import LATE_S, MESSAGE_MAX_BYTES, OBSERVATIONS_MAX, QUIET_S, reason_of
from .event_stream import TooLong, events

WRONG_SESSION: Final = "isthmus-conform-no-such-session"


class HttpPlayer:
    """Args: `url`: where the server listens. `headers`: sent with every request. `timeout_s`: for each answer."""

    def __init__(self, url: str, headers: dict[str, str], timeout_s: float) -> None:
        self._url = url
        self._headers = headers
        self._timeout_s = timeout_s

    def __call__(self, conversation: Conversation) -> Played:
        """Raises:
        Failed: nobody listens there. One that has gone in the middle just does not answer.
        """
        talk = _Talk(self._url, self._headers, self._timeout_s, conversation)
        try:
            for step in conversation.steps:
                talk.say(step)
                if step.waits:
                    talk.wait_answered()
            talk.wait_answered()
            if any(not exchange.is_over for exchange in talk.exchanges):
                time.sleep(QUIET_S)
        finally:
            talk.leave()
        if talk.unreachable is not None and not talk.has_heard:
            raise Failed(f"the server cannot be reached: {talk.unreachable}")
        return Played(talk.seen, talk.is_cut)


class _Talk:
    """What is said in the sessions of one conversation."""

    def __init__(self, url: str, headers: dict[str, str], timeout_s: float, conversation: Conversation) -> None:
        self.url = urlsplit(url)
        self.headers = headers
        self.timeout_s = timeout_s
        self.seen: list[tuple[int, AnyObservation]] = []
        self.is_cut = False
        self.unreachable: str | None = None
        self.exchanges: list[_Exchange] = []
        self.sessions: dict[int, str] = {}
        self.answering = Answering(conversation)
        self._revision = conversation.revision
        self._ended: set[int] = set()
        self._is_late = False
        self._lock = threading.Lock()

    def say(self, step: Step) -> None:
        if step.verb is Verb.DELETE and step.session is Session.OWN:
            self._ended.add(step.wire)
        self.answering.note(step.body)
        with self._lock:
            exchange = _Exchange(self, step, len(self.exchanges))
            self.exchanges.append(exchange)
            exchange.start()

    def wait_answered(self) -> None:
        """Until all is answered, what the client says to that included, or the time is up."""
        until = time.monotonic() + (min(LATE_S, self.timeout_s) if self._is_late else self.timeout_s)
        while open := [each for each in list(self.exchanges) if not (each.is_endless or each.is_over)]:
            if (left := until - time.monotonic()) <= 0:
                self._is_late = True
                return
            open[0].join(left)

    def leave(self) -> None:
        """Close what is still open, and end the sessions."""
        for exchange in list(self.exchanges):
            exchange.close()
        for wire in self.sessions:
            if wire not in self._ended:
                has_version = self._revision in LEGACY and LEGACY[self._revision].version_header
                headers = {"MCP-Protocol-Version": self._revision} if has_version else {}
                self.say(Step(verb=Verb.DELETE, wire=wire, headers=headers))
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
    """One request and its response, in a thread of its own."""

    def __init__(self, talk: _Talk, step: Step, channel: int) -> None:
        self._talk = talk
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
        """Go away from it, if it is not over."""
        if self.is_over:
            return
        self._is_left = True
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(self._talk.timeout_s)

    def _run(self) -> None:
        url, timeout_s = self._talk.url, self._talk.timeout_s
        make = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
        connection = make(url.hostname or "", url.port, timeout=timeout_s)
        try:
            connection.connect()
        except OSError as error:
            self._talk.unreachable = reason_of(error)
            if self._talk.has_heard:  # it was there before: what is asked now is owed
                self._announce(self._headers())
            return
        self._socket = connection.sock
        if self.is_endless:
            connection.sock.settimeout(None)  # whoever began it closes it
        try:
            self._exchange(connection)
        except TooLong:
            self._talk.is_cut = True
        except (OSError, http.client.HTTPException, ValueError):
            if self.is_endless and self._is_left:
                self._see(Ended(self._channel, Role.CLIENT))
        finally:
            connection.close()

    def _announce(self, headers: dict[str, str]) -> bytes | None:
        """Have it seen what is asked. Returns the body."""
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
        body = self._announce(headers)
        target = self._talk.url.path or "/"
        if self._talk.url.query:
            target += f"?{self._talk.url.query}"
        connection.request(step.verb.value, target, body, headers)
        response = connection.getresponse()
        kind = (response.getheader("Content-Type") or "").partition(";")[0].strip().lower()
        session = response.getheader("Mcp-Session-Id")
        self._see(Head(self._channel, response.status, kind, session))
        if session and any(message.get("method") == "initialize" for message in self._messages):
            self._talk.sessions.setdefault(step.wire, session)
        if kind == "text/event-stream" and response.status == 200:
            for event, id, data in events(response):
                self._hear(data, event, id)
        else:
            text = response.read(MESSAGE_MAX_BYTES + 1)
            if len(text) > MESSAGE_MAX_BYTES:
                self._talk.is_cut = True
            elif decoded(text) or (kind == "application/json" and text.strip()):
                self._hear(text)
        self._see(Ended(self._channel, Role.CLIENT if self._is_left else Role.SERVER))

    def _headers(self) -> dict[str, str]:
        step = self._step
        accept = "text/event-stream" if step.verb is Verb.GET else ACCEPT
        headers = {"Accept": accept, **self._talk.headers}
        if step.verb is Verb.POST:
            headers["Content-Type"] = "application/json"
        if step.session is Session.WRONG:
            headers["Mcp-Session-Id"] = WRONG_SESSION
        elif step.session is Session.OWN and step.wire in self._talk.sessions:
            headers["Mcp-Session-Id"] = self._talk.sessions[step.wire]
        headers.update(step.headers)
        return {name: value for name, value in headers.items() if value}

    def _hear(self, text: bytes, event: str = "message", id: str | None = None) -> None:
        self._see(Said(self._channel, Role.SERVER, text, event, id, time.monotonic()))
        for step in self._talk.answering.answers_to(text, self._step.wire):
            self._talk.say(step)

    def _see(self, observation: AnyObservation) -> None:
        self._talk.see(self._step.wire, observation)


MIRRORS: Final = ("mcp-method", "mcp-name", "mcp-param-")
