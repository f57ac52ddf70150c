"""Reads the resources that a result links to from the server that made it, so that they become artifacts.

They may be gone when the client comes to read them, or be known in this one session only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from ...base.errors import RemoteProtocolError
from ...base.storage import InlineSource
from ...bridge.request_meta import add
from ...jsonrpc import envelope
from ...jsonrpc.envelope import Frame
from ...state.context import Context
from ...state.exchange import Exchange, ExchangeKey
from ...state.link import OwnRequest
from ...state.upstream_session import UpstreamSessionState
from ...upstream.writer import UpstreamWriter
from .claims import contents_of
from .job import FileCall

PURPOSE: Final = "linked"
"""Purpose of the proxy's own requests that read such resources."""

Then = Callable[[list[InlineSource], list[str]], None]


class _Reading:
    """The resources that are being read for one call."""

    __slots__ = ("contents", "job", "open", "problems", "then")

    def __init__(self, job: FileCall, uris: Sequence[str], then: Then) -> None:
        self.job = job
        self.open = set(uris)
        self.contents: list[InlineSource] = []
        self.problems: list[str] = []
        self.then = then


class LinkedResources:
    """Reads linked resources for calls."""

    def __init__(self, context: Context, writer: UpstreamWriter) -> None:
        self._context = context
        self._writer = writer
        self._readings: dict[ExchangeKey, _Reading] = {}

    def read(self, job: FileCall, uris: Sequence[str], then: Then) -> None:
        """Reads the resources and calls `then` with their contents and the problems, after `lookup_s` seconds at the
        latest."""
        link, exchange = job.link, job.exchange
        if link.upstream.state is not UpstreamSessionState.READY:
            then([], [f"{uri[:160]}: the server is gone" for uri in uris])
            return
        reading = self._readings[exchange.key] = _Reading(job, uris, then)
        at = self._context.now + self._context.limits.lookup_s
        self._context.timers.set((PURPOSE, (exchange.sid, exchange.key)), at, "linked resources")
        for uri in sorted(reading.open):  # a set has no fixed order, and the engine must be reproducible
            params = msgspec.json.encode({"uri": uri})
            if link.is_stateless:
                revision = link.upstream.revision
                assert revision is not None
                client = link.session_of(exchange).client
                params = add(params, msgspec.structs.replace(client, revision=revision))
            self._writer.run(link, PURPOSE, "resources/read", params, about=uri, exchange=exchange)

    def receive_own_response(self, own_request: OwnRequest, frame: Frame) -> None:
        """Receives the server's response to one of the reads."""
        reading = None if own_request.exchange is None else self._readings.get(own_request.exchange.key)
        if reading is None or own_request.about not in reading.open:
            return
        reading.open.discard(own_request.about)
        found: list[InlineSource] = []
        if frame.result is not None:
            found = contents_of(frame.result)
        reading.contents += found
        if not found:
            why = "it is empty" if frame.error is None else f"the server said {_message_of(frame.error)}"
            reading.problems.append(f"{own_request.about[:160]} could not be read: {why}")
        if not reading.open:
            self._end(reading)

    def handle_timeout(self, key: ExchangeKey) -> None:
        """Gives up what the server has not returned in time."""
        reading = self._readings[key]
        reading.problems += [f"{uri[:160]} could not be read in time" for uri in sorted(reading.open)]
        self._end(reading)

    def forget(self, exchange: Exchange) -> None:
        """Gives up the reads for a call that is over, and cancels their requests."""
        reading = self._readings.pop(exchange.key, None)
        if reading is None:
            return
        self._context.timers.cancel((PURPOSE, (exchange.sid, exchange.key)))
        if reading.open:
            link = reading.job.link
            entries = [(number, entry) for number, entry in link.pending.items() if isinstance(entry, OwnRequest)]
            own = [n for n, entry in entries if entry.purpose == PURPOSE and entry.exchange is exchange]
            self._writer.give_up_numbers(link, own)

    def _end(self, reading: _Reading) -> None:
        self.forget(reading.job.exchange)
        reading.then(reading.contents, reading.problems)


def _message_of(error: bytes) -> str:
    try:
        return (envelope.text_of(envelope.member_of(error, "message")) or "")[:160]
    except RemoteProtocolError:
        return "what cannot be read"
