"""The state of one wire: the requests of both sides, the streams, and the outcome of the handshake.

Checkers read the book as it was before the observation they judge; it is updated after all of them have run. Each table
is bounded: beyond `remembered_max` entries the oldest is forgotten, and from then on nothing is reported that depends
on the absence of an entry.
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
from .seen import (
    SUBSCRIPTION,
    VERSION,
    Frame,
    Id,
    JsonObject,
    Memory,
    MessageKind,
    Request,
    RequestState,
    Stream,
    key_of,
)


def nearest(revision: str) -> str:
    """Returns the revision whose rules apply to a name: itself, or the newest handshake-era revision that is older."""
    if is_known_legacy(revision) or is_known_modern(revision):
        return revision
    older = [name for name in LEGACY if not is_older(revision, name)]
    return older[-1] if older else HANDSHAKE[0]


class WireState:
    """The state of one connection or session.

    Args:
        revision: the revision assumed until the traffic names one. If it is a stateless-era revision, it always
            applies.
        remembered_max: entries of each table.
    """

    def __init__(self, revision: str | None, transport: Transport, remembered_max: int) -> None:
        self.transport = transport
        self.given = revision
        self.remembered_max = remembered_max
        self.requests: dict[Role, Memory[Id, Request]] = {role: self.memory() for role in Role}
        """Requests of each side by id."""
        self.tokens: dict[Role, Memory[Id, Request]] = {role: self.memory() for role in Role}
        """Requests of each side by progress token."""
        self.shared_tokens: Memory[tuple[Role, Id], None] = self.memory()
        """Tokens that two active requests have had, against the rules. Progress with them cannot be assigned to a
        request."""
        self.streams: Memory[int, Stream] = self.memory()
        self.over: Memory[int, None] = self.memory()
        """Numbers of channels that have ended."""
        self.events: Memory[str, tuple[Stream, bytes]] = self.memory()
        """The stream and the message of each event, by event id."""
        self.garbled = dict.fromkeys(Role, 0)
        """Messages of each side that could not be read, and were not yet answered by an error without id."""
        self.hello: Request | None = None
        """The `initialize` that counts: the newest one that was not refused."""
        self.offered: str | None = None
        """The revision that `hello` asks for."""
        self.is_greeted = False
        """True once `initialize` was answered with a result."""
        self.is_ready = False
        """True once `notifications/initialized` was sent."""
        self.negotiated: str | None = None
        self.session: str | None = None
        self.capabilities: dict[Role, JsonObject | None] = dict.fromkeys(Role)
        """Capabilities that each side has declared, of a client only in a handshake; None: they were not seen."""
        self.is_stateless_used = False

    def memory(self) -> Memory[Any, Any]:
        """Returns a new table of the common size."""
        return Memory(self.remembered_max)

    # --- The revision that applies ----------------------------------------------------------------------------------

    @property
    def is_stateless(self) -> bool:
        """True if only stateless-era revisions are spoken on this wire."""
        return self.given is not None and is_known_modern(self.given)

    @property
    def ambient(self) -> str:
        """The revision by which a message is judged that names none."""
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
        """Returns the revision by which an HTTP request without a body is judged."""
        if stream.revision is not None and is_known_modern(stream.revision):
            return stream.revision
        if self.hello is None and self.given is None and stream.verb is not None and not self.is_stateless_used:
            return nearest(stream.revision) if stream.revision is not None else DEFAULT_HTTP_REVISION
        return self.ambient

    def revision_of(self, frame: Frame) -> str:
        """Returns the revision by which a message is judged: the one it names, that of its request, or that of its
        stream."""
        if self.given is not None and self.is_stateless:
            return self.given
        if frame.request is not None:
            return frame.request.revision
        if frame.sender is Role.CLIENT:
            return self._revision_of_client(frame)
        if SUBSCRIPTION in frame.meta:
            return LATEST_MODERN
        token = key_of(frame.params.get("progressToken"))
        if token is not None and token in self.tokens[Role.CLIENT]:
            return self.tokens[Role.CLIENT][token].revision
        requests = frame.stream.origin.requests
        return requests[0].revision if requests else self.ambient

    def _revision_of_client(self, frame: Frame) -> str:
        named = frame.meta.get(VERSION)
        if frame.method == "initialize":
            asked = frame.params.get("protocolVersion")
            return asked if isinstance(asked, str) and is_known_legacy(asked) else LATEST_LEGACY
        if VERSION in frame.meta:
            return named if isinstance(named, str) and is_known_modern(named) else LATEST_MODERN
        if frame.method == "notifications/cancelled":
            target = key_of(frame.params.get("requestId"))
            if target is not None and target in self.requests[Role.CLIENT]:
                return self.requests[Role.CLIENT][target].revision
        header = frame.stream.revision
        return header if header is not None and is_known_modern(header) else self.ambient

    # --- Updates ----------------------------------------------------------------------------------------------------

    def find(self, sender: Role, id: Id, stream: Stream) -> Request | None:
        """Returns the request that a response of `sender` with this id answers. A request of the same POST comes
        first."""
        for request in stream.origin.requests:
            if request.id == id and sender is Role.SERVER:
                return request
        return self.requests[sender.other].get(id)

    def open_requests(self) -> Iterator[Request]:
        """Yields the open requests of both sides."""
        for requests in self.requests.values():
            yield from (request for request in requests.values() if request.state is RequestState.OPEN)

    def note_opened(self, stream: Stream) -> None:
        """Adds a channel."""
        self.streams[stream.number] = stream

    def note_event(self, id: str, stream: Stream, message: bytes) -> None:
        """Adds an event that has an id."""
        self.events[id] = stream, message

    def note_garbled(self, sender: Role) -> None:
        """Counts a message that its receiver may be unable to read."""
        self.garbled[sender] += 1

    def note_complaint(self, sender: Role) -> None:
        """Counts an error without id, which answers one of those messages."""
        self.garbled[sender.other] = max(0, self.garbled[sender.other] - 1)

    def note_shared(self, sender: Role, token: Id) -> None:
        """Adds a progress token of two requests."""
        self.shared_tokens[sender, token] = None

    def note_session(self, session: str) -> None:
        """Takes the session that the response to `initialize` names."""
        self.session = session

    def note(self, frame: Frame) -> None:
        """Updates the book with a message that was judged."""
        if frame.sender is Role.SERVER:
            frame.stream.count()
        if frame.kind is MessageKind.REQUEST:
            self._note_request(frame)
        elif frame.kind is MessageKind.NOTIFICATION:
            self._note_notification(frame)
        elif frame.request is not None:
            self._note_response(frame, frame.request)
        if frame.sender is Role.CLIENT and frame.kind is not MessageKind.REQUEST:
            frame.stream.count(is_notification=True)

    def _note_request(self, frame: Frame) -> None:
        request = frame.made
        assert request is not None
        earlier = self.requests[frame.sender].get(request.id)
        if earlier is not None and earlier.state is RequestState.OPEN:
            request.receive_twin(earlier, shares_channel=self._shares_channel(frame))
        self.requests[frame.sender][request.id] = request
        if request.token is not None:
            self.tokens[frame.sender][request.token] = request
        if frame.sender is Role.CLIENT and frame.stream.verb is not None:
            frame.stream.add_request(request)
        if request.revision == V5:
            self.is_stateless_used = True
        if request.method == "initialize" and request.sender is Role.CLIENT and not self.is_greeted:
            self.hello = request
            asked = frame.params.get("protocolVersion")
            self.offered = asked if isinstance(asked, str) else None
            declared = frame.params.get("capabilities")
            self.capabilities[Role.CLIENT] = declared if isinstance(declared, dict) else {}

    def _shares_channel(self, frame: Frame) -> bool:
        """True if two requests with one id are answered on the same channel."""
        return frame.sender is Role.SERVER or self.transport is not Transport.HTTP

    def entry_for(self, frame: Frame, revision: str) -> Request:
        """Builds the entry for a request; `note` adds it to the book."""
        name = frame.params.get(NAMED.get(frame.method, "taskId"))
        sought = frame.params.get("notifications")
        return Request(
            sender=frame.sender,
            id=frame.id,
            method=frame.method,
            index=frame.index,
            channel=frame.stream.number,
            revision=revision,
            meta=frame.meta,
            token=key_of(frame.meta.get("progressToken")),
            name=name if isinstance(name, str) else None,
            sought=sought if isinstance(sought, dict) else None,
            is_task="task" in frame.params and self._takes_task(frame, revision),
        )

    def _takes_task(self, frame: Frame, revision: str) -> bool:
        declared = self.capabilities[frame.sender.other]
        path = AUGMENTED.get(frame.method)
        return revision == V4 and path is not None and declared is not None and declares(declared, path)

    def _note_notification(self, frame: Frame) -> None:
        if frame.method == "notifications/initialized" and frame.sender is Role.CLIENT:
            self.is_ready = True
        elif frame.method == "notifications/cancelled":
            target = key_of(frame.params.get("requestId"))
            # Either side can end a subscription; any other request is cancelled by its sender.
            request = (
                None
                if target is None
                else self.requests[Role.CLIENT if frame.revision == V5 else frame.sender].get(target)
            )
            if request is not None:
                request.cancel()

    def _note_response(self, frame: Frame, request: Request) -> None:
        if frame.sender is Role.CLIENT and frame.stream.verb is not None:
            frame.stream.add_answered(request)
        if not request.receive_response(is_result=frame.kind is MessageKind.RESULT):
            return
        if request is self.hello:
            if frame.kind is MessageKind.ERROR:
                self.hello, self.offered = None, None
                return
            self.is_greeted = True
            version, declared = frame.result.get("protocolVersion"), frame.result.get("capabilities")
            self.negotiated = version if isinstance(version, str) else None
            self.capabilities[Role.SERVER] = declared if isinstance(declared, dict) else {}
        elif request.method == "server/discover" and frame.kind is MessageKind.RESULT and self.hello is None:
            declared = frame.result.get("capabilities")
            self.capabilities[Role.SERVER] = declared if isinstance(declared, dict) else {}

    def note_refused(self, stream: Stream) -> None:
        """Updates the book for a POST that was refused, so that its body did not arrive.

        Responses in it may be sent again. Requests in it need not be answered on another stream.
        """
        for request in stream.take_answered():
            request.reopen()
        if self.transport is Transport.EVENTS:
            for request in stream.requests:
                request.lose()

    def note_end(self, stream: Stream, by: Role | None) -> None:
        """Updates the book for a channel that ended.

        Requests that could be answered only there need no response any more, unless the client can resume the stream.
        """
        if stream.status is None and stream.verb is Verb.POST:
            self.note_refused(stream)  # without a response, the body may not have arrived
        if stream.verb is None or (self.transport is Transport.EVENTS and stream.verb is Verb.GET):
            for request in self.open_requests():
                request.lose()
        elif self.transport is Transport.EVENTS:
            pass  # responses come on the event stream, which goes on
        elif by is not Role.SERVER or not stream.has_event_id:
            for request in stream.origin.requests:
                if by is Role.CLIENT and request.revision == V5:
                    request.cancel()
                else:
                    request.lose()
        self.streams.pop(stream.number, None)
        self.over[stream.number] = None
