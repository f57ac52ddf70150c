"""What is known so far: the requests of both sides, the streams, and what the handshake said.

Watches read the book as it was before the observation they judge; it is brought up to date after they have looked. Each
table is bounded: beyond `remembered_max` entries the oldest is forgotten, and from then on nothing is said that rests
on something never having been there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..base.revisions import (
    DEFAULT_HTTP_REVISION,
    LATEST_LEGACY,
    LATEST_MODERN,
    LEGACY,
    is_known_legacy,
    is_known_modern,
    is_older,
)
from .methods import AUGMENTED, HANDSHAKE, NAMED, V4, V5, declares
from .observations import Role, Transport, Verb
from .seen import SUBSCRIPTION, VERSION, Ask, Frame, Id, JsonObject, Kind, Memory, State, Stream, key_of


def nearest(revision: str) -> str:
    """The revision whose rules hold under this name: itself, or the newest older one that has a handshake."""
    if is_known_legacy(revision) or is_known_modern(revision):
        return revision
    older = [name for name in LEGACY if not is_older(revision, name)]
    return older[-1] if older else HANDSHAKE[0]


class Book:
    """All that has been seen of one connection or session.

    Args:
        revision: what is spoken before the traffic says; with a stateless one, always.
        remembered_max: entries of each table.
    """

    def __init__(self, revision: str | None, transport: Transport, remembered_max: int) -> None:
        self.transport = transport
        self.given = revision
        self.remembered_max = remembered_max
        self.asks: dict[Role, Memory[Id, Ask]] = {role: self.memory() for role in Role}
        self.tokens: dict[Role, Memory[Id, Ask]] = {role: self.memory() for role in Role}
        self.shared_tokens: Memory[tuple[Role, Id], None] = self.memory()
        """Tokens that two active requests have had, against the rules: whose progress it is does not show."""
        self.streams: Memory[int, Stream] = self.memory()
        self.over: Memory[int, None] = self.memory()
        self.events: Memory[str, tuple[Stream, bytes]] = self.memory()
        self.garbled = dict.fromkeys(Role, 0)
        """Messages of each side that could not be read, and were not answered by an error without id yet."""
        self.hello: Ask | None = None
        """The `initialize` that counts: the newest one that was not refused."""
        self.offered: str | None = None
        self.is_greeted = False
        """`initialize` was answered with a result."""
        self.is_ready = False
        """`notifications/initialized` was said."""
        self.negotiated: str | None = None
        self.session: str | None = None
        self.capabilities: dict[Role, JsonObject | None] = dict.fromkeys(Role)
        """What each side has declared, of a client only with a handshake; None: nobody has heard it."""
        self.is_stateless_used = False

    def memory(self) -> Memory[Any, Any]:
        """A table of the size that all have."""
        return Memory(self.remembered_max)

    # --- Which revision ---------------------------------------------------------------------------------------------

    @property
    def is_stateless(self) -> bool:
        """Whether nothing else is spoken here than revisions without a handshake."""
        return self.given is not None and is_known_modern(self.given)

    @property
    def ambient(self) -> str:
        """What a message is judged by that does not say it."""
        if self.given is not None and self.is_stateless:
            return self.given
        if self.negotiated is not None:
            return nearest(self.negotiated)
        if self.offered is not None and is_known_legacy(self.offered):
            return self.offered
        if self.hello is None and self.is_stateless_used:
            return LATEST_MODERN
        return nearest(self.given) if self.given is not None else LATEST_LEGACY

    def revision_of_head(self, stream: Stream) -> str:
        """What a request without body is judged by."""
        if stream.revision is not None and is_known_modern(stream.revision):
            return stream.revision
        if self.hello is None and self.given is None and stream.verb is not None and not self.is_stateless_used:
            return nearest(stream.revision) if stream.revision is not None else DEFAULT_HTTP_REVISION
        return self.ambient

    def revision_of(self, frame: Frame) -> str:
        """What a message is judged by: what it says itself, what it answers, where it came."""
        if self.given is not None and self.is_stateless:
            return self.given
        if frame.ask is not None:
            return frame.ask.revision
        if frame.sender is Role.CLIENT:
            return self._revision_said(frame)
        if SUBSCRIPTION in frame.meta:
            return LATEST_MODERN
        token = key_of(frame.params.get("progressToken"))
        if token is not None and token in self.tokens[Role.CLIENT]:
            return self.tokens[Role.CLIENT][token].revision
        asks = frame.stream.origin.asks
        return asks[0].revision if asks else self.ambient

    def _revision_said(self, frame: Frame) -> str:
        named = frame.meta.get(VERSION)
        if frame.method == "initialize":
            asked = frame.params.get("protocolVersion")
            return asked if isinstance(asked, str) and is_known_legacy(asked) else LATEST_LEGACY
        if VERSION in frame.meta:
            return named if isinstance(named, str) and is_known_modern(named) else LATEST_MODERN
        if frame.method == "notifications/cancelled":
            target = key_of(frame.params.get("requestId"))
            if target is not None and target in self.asks[Role.CLIENT]:
                return self.asks[Role.CLIENT][target].revision
        header = frame.stream.revision
        return header if header is not None and is_known_modern(header) else self.ambient

    # --- Bringing it up to date -------------------------------------------------------------------------------------

    def find(self, sender: Role, id: Id, stream: Stream) -> Ask | None:
        """The request that a response of `sender` with this id answers: of this very POST, before any other."""
        for ask in stream.origin.asks:
            if ask.id == id and sender is Role.SERVER:
                return ask
        return self.asks[sender.other].get(id)

    def open_asks(self) -> Iterator[Ask]:
        for asks in self.asks.values():
            yield from (ask for ask in asks.values() if ask.state is State.OPEN)

    def note(self, frame: Frame) -> None:
        """A message was judged: keep what it says."""
        frame.stream.messages += frame.sender is Role.SERVER
        if frame.kind is Kind.REQUEST:
            self._note_request(frame)
        elif frame.kind is Kind.NOTIFICATION:
            self._note_notification(frame)
        elif frame.ask is not None:
            self._note_response(frame, frame.ask)
        if frame.sender is Role.CLIENT and frame.kind is not Kind.REQUEST:
            frame.stream.notices += 1

    def _note_request(self, frame: Frame) -> None:
        ask = frame.made
        assert ask is not None
        earlier = self.asks[frame.sender].get(ask.id)
        if earlier is not None and earlier.state is State.OPEN:
            earlier.is_doubled = ask.is_doubled = True
            ask.twins = earlier.twins + 1 if self._shares_channel(frame) else 0
        self.asks[frame.sender][ask.id] = ask
        if ask.token is not None:
            self.tokens[frame.sender][ask.token] = ask
        if frame.sender is Role.CLIENT and frame.stream.verb is not None:
            frame.stream.asks.append(ask)
        if ask.revision == V5:
            self.is_stateless_used = True
        if ask.method == "initialize" and ask.sender is Role.CLIENT and not self.is_greeted:
            self.hello = ask
            asked = frame.params.get("protocolVersion")
            self.offered = asked if isinstance(asked, str) else None
            declared = frame.params.get("capabilities")
            self.capabilities[Role.CLIENT] = declared if isinstance(declared, dict) else {}

    def _shares_channel(self, frame: Frame) -> bool:
        """Whether two requests with one id would be answered on the same channel."""
        return frame.sender is Role.SERVER or self.transport is not Transport.HTTP

    def ask_of(self, frame: Frame) -> Ask:
        name = frame.params.get(NAMED.get(frame.method, "taskId"))
        sought = frame.params.get("notifications")
        return Ask(
            sender=frame.sender,
            id=frame.id,
            method=frame.method,
            index=frame.index,
            channel=frame.stream.number,
            revision=frame.revision,
            meta=frame.meta,
            token=key_of(frame.meta.get("progressToken")),
            name=name if isinstance(name, str) else None,
            sought=sought if isinstance(sought, dict) else None,
            is_task="task" in frame.params and self._takes_task(frame),
        )

    def _takes_task(self, frame: Frame) -> bool:
        declared = self.capabilities[frame.sender.other]
        path = AUGMENTED.get(frame.method)
        return frame.revision == V4 and path is not None and declared is not None and declares(declared, path)

    def _note_notification(self, frame: Frame) -> None:
        if frame.method == "notifications/initialized" and frame.sender is Role.CLIENT:
            self.is_ready = True
        elif frame.method == "notifications/cancelled":
            target = key_of(frame.params.get("requestId"))
            # A subscription can be ended by either side; all else by whoever asked.
            ask = (
                None if target is None else self.asks[Role.CLIENT if frame.revision == V5 else frame.sender].get(target)
            )
            if ask is not None and ask.state is State.OPEN:
                ask.state = State.CANCELLED

    def _note_response(self, frame: Frame, ask: Ask) -> None:
        if frame.sender is Role.CLIENT and frame.stream.verb is not None:
            frame.stream.given.append(ask)
        if ask.twins:
            ask.twins -= 1
            return
        ask.state = State.ANSWERED
        ask.is_task = ask.is_task and frame.kind is Kind.RESULT
        if ask is self.hello:
            if frame.kind is Kind.ERROR:
                self.hello, self.offered = None, None
                return
            self.is_greeted = True
            version, declared = frame.result.get("protocolVersion"), frame.result.get("capabilities")
            self.negotiated = version if isinstance(version, str) else None
            self.capabilities[Role.SERVER] = declared if isinstance(declared, dict) else {}
        elif ask.method == "server/discover" and frame.kind is Kind.RESULT and self.hello is None:
            declared = frame.result.get("capabilities")
            self.capabilities[Role.SERVER] = declared if isinstance(declared, dict) else {}

    def note_refused(self, stream: Stream) -> None:
        """What was posted has not arrived: its answers may be given again, and what it asks on another stream is not
        owed."""
        for ask in stream.given:
            ask.state = State.OPEN
        stream.given.clear()
        if self.transport is Transport.EVENTS:
            for ask in stream.asks:
                if ask.state is State.OPEN:
                    ask.state = State.LOST

    def note_end(self, stream: Stream, by: Role | None) -> None:
        """A channel is over. What only it could have brought is not owed any more, unless its server may be asked for
        the rest."""
        if stream.status is None and stream.verb is Verb.POST:
            self.note_refused(stream)
        if stream.verb is None or (self.transport is Transport.EVENTS and stream.verb is Verb.GET):
            for ask in self.open_asks():
                ask.state = State.LOST
        elif self.transport is Transport.EVENTS:
            pass  # what was posted is answered on the event stream
        elif by is not Role.SERVER or not stream.has_event_id:
            for ask in stream.origin.asks:
                if ask.state is State.OPEN:
                    ask.state = State.CANCELLED if by is Role.CLIENT and ask.revision == V5 else State.LOST
        self.streams.pop(stream.number, None)
        self.over[stream.number] = None
