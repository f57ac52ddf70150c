"""Resources that a result links to are read from the server that made it, to be taken in as artifacts.

They may be gone when the client comes to read them, or be known in this one session only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from ...base.effects import InlineSource
from ...base.errors import RemoteProtocolError
from ...bridge.request_meta import add
from ...jsonrpc import envelope
from ...jsonrpc.envelope import Frame
from ...state.context import Desk
from ...state.exchange import Exchange, ExchangeKey
from ...state.link import Errand
from ...state.upstream_session import State
from ...upstream.writer import Uplink
from .claims import contents_of
from .job import Job

PURPOSE: Final = "linked"
"""What a request of ours is for that reads such a resource."""

Then = Callable[[list[InlineSource], list[str]], None]


class _Reading:
    __slots__ = ("contents", "job", "open", "problems", "then")

    def __init__(self, job: Job, uris: Sequence[str], then: Then) -> None:
        self.job = job
        self.open = set(uris)
        self.contents: list[InlineSource] = []
        self.problems: list[str] = []
        self.then = then


class Reading:
    """What is being read for calls. It is `outputs.Reader`."""

    def __init__(self, desk: Desk, uplink: Uplink) -> None:
        self._desk = desk
        self._uplink = uplink
        self._readings: dict[ExchangeKey, _Reading] = {}

    def read(self, job: Job, uris: Sequence[str], then: Then) -> None:
        link, exchange = job.link, job.exchange
        if link.upstream.state is not State.READY:
            then([], [f"{uri[:160]}: the server is gone" for uri in uris])
            return
        reading = self._readings[exchange.key] = _Reading(job, uris, then)
        at = self._desk.now + self._desk.limits.lookup_s
        self._desk.timers.set((PURPOSE, (exchange.sid, exchange.key)), at, "linked resources")
        for uri in sorted(reading.open):
            params = msgspec.json.encode({"uri": uri})
            if link.is_stateless:
                revision = link.upstream.revision
                assert revision is not None
                client = link.session_of(exchange).client
                params = add(params, msgspec.structs.replace(client, revision=revision))
            self._uplink.run(link, PURPOSE, "resources/read", params, about=uri, exchange=exchange)

    def receive_errand(self, errand: Errand, frame: Frame) -> None:
        """The server answered one of the reads."""
        reading = None if errand.exchange is None else self._readings.get(errand.exchange.key)
        if reading is None or errand.about not in reading.open:
            return
        reading.open.discard(errand.about)
        found: list[InlineSource] = []
        if frame.result is not None:
            found = contents_of(frame.result)
        reading.contents += found
        if not found:
            why = "it is empty" if frame.error is None else f"the server said {_message_of(frame.error)}"
            reading.problems.append(f"{errand.about[:160]} could not be read: {why}")
        if not reading.open:
            self._end(reading)

    def handle_timeout(self, key: ExchangeKey) -> None:
        """The server takes too long over the rest."""
        reading = self._readings[key]
        reading.problems += [f"{uri[:160]} could not be read in time" for uri in sorted(reading.open)]
        self._end(reading)

    def forget(self, exchange: Exchange) -> None:
        """The call is over: what is still read for it is read in vain, and not waited for."""
        reading = self._readings.pop(exchange.key, None)
        if reading is None:
            return
        self._desk.timers.cancel((PURPOSE, (exchange.sid, exchange.key)))
        if reading.open:
            link = reading.job.link
            entries = [(number, entry) for number, entry in link.pending.items() if isinstance(entry, Errand)]
            own = [n for n, entry in entries if entry.purpose == PURPOSE and entry.exchange is exchange]
            self._uplink.give_up_numbers(link, own)

    def _end(self, reading: _Reading) -> None:
        self.forget(reading.job.exchange)
        reading.then(reading.contents, reading.problems)


def _message_of(error: bytes) -> str:
    try:
        return (envelope.text_of(envelope.member_of(error, "message")) or "")[:160]
    except RemoteProtocolError:
        return "what cannot be read"
