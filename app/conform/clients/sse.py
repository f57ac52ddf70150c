"""Plays a conversation over HTTP+SSE: one event stream from the server, and a POST for each message to it."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import queue
import socket
import threading
import time
from collections.abc import Callable
from typing import Final
from urllib.parse import urljoin, urlsplit

from ....core.oracle.observations import AnyObservation, Ended, Head, Opened, Role, Said, Verb
from ....core.wire.http.url import parse_url
from ...base.errors import Failed
from ..script.steps import Conversation, decoded
from ..script.survey import Played
from .duplex import MESSAGE_MAX_BYTES, OBSERVATIONS_MAX, ScriptedClient, reason_of
from .event_stream import TooLong, events

STREAM: Final = 0
"""The channel of the event stream; POSTs have the next numbers."""
KIND: Final = "text/event-stream"


class SseClient:
    """A scripted client over HTTP+SSE.

    Args:
        url: the URL of the event stream.
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
            Failed: nothing listens there, or there is no event stream with an endpoint.
        """
        stream = _Stream(self._url, self._headers, self._timeout_s)
        try:
            begun = stream.begin()
            played = ScriptedClient(stream, conversation, self._timeout_s).play()
        finally:
            stream.leave()
        return Played([*((0, seen) for seen in begun), *played.seen], played.is_cut)


class _Stream:
    """The event stream, read by a thread of its own, and the POSTs, each in a thread of its own."""

    def __init__(self, url: str, headers: dict[str, str], timeout_s: float) -> None:
        self._url = url
        self._headers = headers
        self._timeout_s = timeout_s
        self._endpoint = ""
        self._received: queue.Queue[AnyObservation | None] = queue.Queue(OBSERVATIONS_MAX)
        self._numbers = itertools.count(STREAM + 1)
        self._sockets: dict[int, socket.socket] = {}
        self._threads: list[threading.Thread] = []

    def begin(self) -> list[AnyObservation]:
        """Opens the stream and waits for the `endpoint` event. Returns the observations so far."""
        opened = Opened(STREAM, Verb.GET, accept=KIND)
        try:
            connection = self._connect(self._url, STREAM)
            connection.request("GET", _target(self._url), headers={"Accept": KIND, **self._headers})
            response = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            raise Failed(f"the server cannot be reached: {reason_of(error)}") from error
        kind = _kind(response)
        if response.status != 200 or kind != KIND:
            connection.close()
            got = f"{response.status} with {kind or 'no content type'}"
            raise Failed(f"the server begins no event stream: got HTTP status {got}, expected 200 with {KIND}")
        self._sockets[STREAM].settimeout(None)  # without a timeout; `leave` closes it
        self._start(self._read, connection, response)
        seen_first: list[AnyObservation] = [opened, Head(STREAM, response.status, kind)]
        until = time.monotonic() + self._timeout_s
        while not self._endpoint:
            try:
                seen = self.receive(max(0.0, until - time.monotonic()))
            except (TimeoutError, EOFError):
                raise Failed("the server names no address to post to: expected an endpoint event") from None
            seen_first.append(seen)
            if isinstance(seen, Said) and seen.event == "endpoint":
                self._endpoint = self._resolved(seen.message)
        return seen_first

    def _resolved(self, endpoint: bytes) -> str:
        """Resolves the URL in an `endpoint` event. Refuses another origin, which must not get our credentials."""
        try:
            found = urljoin(self._url, endpoint.decode().strip())
            is_same = parse_url(found).origin == parse_url(self._url).origin
        except ValueError:
            is_same = False
        if not is_same:
            raise Failed("the server names an address to post to that is not of its own origin")
        return found

    def send(self, text: str) -> list[AnyObservation]:
        number = next(self._numbers)
        body = text.encode()
        self._start(self._post, number, body)
        return [Opened(number, Verb.POST), Said(number, Role.CLIENT, body, at=time.monotonic())]

    def receive(self, patience_s: float) -> AnyObservation:
        try:
            seen = self._received.get(timeout=patience_s) if patience_s > 0 else self._received.get_nowait()
        except queue.Empty:
            raise TimeoutError from None
        if seen is None:
            raise EOFError
        return seen

    def leave(self) -> None:
        """Closes all connections, and waits for the threads."""
        for opened in list(self._sockets.values()):
            with contextlib.suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(self._timeout_s)

    def _start(self, work: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _connect(self, url: str, channel: int) -> http.client.HTTPConnection:
        parts = urlsplit(url)
        make = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = make(parts.hostname or "", parts.port, timeout=self._timeout_s)
        connection.connect()
        self._sockets[channel] = connection.sock
        return connection

    def _read(self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse) -> None:
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
            try:
                for event, id, data in events(response):
                    self._put(Said(STREAM, Role.SERVER, data, event, id, time.monotonic()))
            except TooLong:
                self._put(Said(STREAM, Role.SERVER, b" " * (MESSAGE_MAX_BYTES + 1)))
        connection.close()
        self._put(None)

    def _post(self, channel: int, body: bytes) -> None:
        try:
            connection = self._connect(self._endpoint, channel)
            with contextlib.closing(connection):
                headers = {"Content-Type": "application/json", **self._headers}
                connection.request("POST", _target(self._endpoint), body, headers)
                response = connection.getresponse()
                self._put(Head(channel, response.status, _kind(response)))
                text = response.read(MESSAGE_MAX_BYTES + 1)
                if decoded(text):
                    self._put(Said(channel, Role.SERVER, text, at=time.monotonic()))
                self._put(Ended(channel, Role.SERVER))
        except (OSError, http.client.HTTPException):
            self._put(Ended(channel))

    def _put(self, seen: AnyObservation | None) -> None:
        with contextlib.suppress(queue.Full):  # dropped: `ScriptedClient` notices that there were more than it keeps
            self._received.put(seen, timeout=self._timeout_s)


def _target(url: str) -> str:
    parts = urlsplit(url)
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


def _kind(response: http.client.HTTPResponse) -> str:
    return (response.getheader("Content-Type") or "").partition(";")[0].strip().lower()
