"""Watches one connection or session and says which clauses of the specification are broken.

It is a second opinion: it shares tables of names with the engine and nothing else, keeps everything it has seen that a
rule may need, and looks at one observation after the other. What is not in its rules it does not judge.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from ..base.errors import LocalProtocolError
from .abilities import Abilities
from .asking import Asking
from .book import Book
from .greeting import Greeting
from .listens import Listens
from .methods import V2
from .observations import PIPE_CHANNEL, AnyObservation, Ended, Head, Opened, Role, Said, Transport, Violation
from .progress import Progress
from .reading import Reading, read
from .refusals import Refusals
from .rules import RULES
from .seen import Breach, Frame, Kind, State, Stream, shown
from .sessions import Mirrors, Sessions
from .stateless import Envelope, Extension, Rounds
from .streams import watches
from .tasks import Tasks
from .watch import SchemaCheck, Watch

REMEMBERED_MAX: Final = 100_000
"""Requests, tokens, streams and events, each: a day of a busy session, and some hundred MiB at most."""


class Shapes(Watch):
    """What a caller's schemas say of each message."""

    def __init__(self, book: Book, check: SchemaCheck) -> None:
        super().__init__(book)
        self._check = check

    def frame(self, frame: Frame) -> Iterator[Breach]:
        method = frame.method or (frame.ask.method if frame.ask is not None else "")
        problem = self._check(frame.revision, frame.sender, method, frame.message)
        if problem is not None:
            yield Breach("schema", frame.sender, problem, frame.revision, (frame.index,))


class Oracle:
    """Everything that is seen of one connection (a pipe) or one client's session (HTTP) goes in; violations come out.

    Observations are given in the order they happened. For the whole HTTP traffic of a client without sessions one
    oracle is enough; two clients need two, or their ids meet.

    Args:
        revision: what both speak; with a stateless one everything is judged by it, with another what is said before the
            handshake. None: the traffic says, message by message, and one connection may have both eras.
        transport: what carries the messages. A pipe is channel `PIPE_CHANNEL`, which is never opened.
        client_revisions: what the client supports; None: nobody knows, and rules that need it do not apply.
        server_revisions: likewise of the server.
        check: judges the shape of each message, such as by the official JSON Schemas.
        remembered_max: how much is kept of each kind. Beyond it the oldest is forgotten, and nothing is reported that
            rests on what may have been forgotten.
    """

    def __init__(
        self,
        revision: str | None,
        transport: Transport,
        *,
        client_revisions: Collection[str] | None = None,
        server_revisions: Collection[str] | None = None,
        check: SchemaCheck | None = None,
        remembered_max: int = REMEMBERED_MAX,
    ) -> None:
        assert remembered_max >= 1
        self._book = Book(revision, transport, remembered_max)
        self._count = 0
        if transport is Transport.PIPE:
            self._book.streams[PIPE_CHANNEL] = Stream(PIPE_CHANNEL, None, 0)
        kinds: list[type[Watch]] = [Asking, Abilities, Progress, Envelope, Rounds, Extension, Listens, Tasks]
        if transport is Transport.HTTP:
            kinds += [Sessions, Mirrors, Refusals]
        kinds += watches(transport)
        self._watches: list[Watch] = [Greeting(self._book, client_revisions, server_revisions)]
        self._watches += [kind(self._book) for kind in kinds]
        if check is not None:
            self._watches.append(Shapes(self._book, check))

    @property
    def count(self) -> int:
        """How many observations there were: the number that the next one has."""
        return self._count

    def receive(self, observation: AnyObservation) -> list[Violation]:
        """One more thing was seen. Returns what it breaks.

        Raises:
            LocalProtocolError: it cannot have been: its channel was opened before, or is not open. Nothing has changed.
        """
        self._refuse_impossible(observation)
        index, self._count = self._count, self._count + 1
        if isinstance(observation, Opened):
            found = self._open(observation, index)
        elif isinstance(observation, Head):
            found = self._head(observation, index)
        elif isinstance(observation, Said):
            found = self._say(observation, index)
        else:
            found = self._end(observation, index)
        return self._violations(found)

    def finish(self) -> list[Violation]:
        """Both sides are at rest, and say nothing more: what is still owed is a violation. Changes nothing."""
        return self._violations(breach for watch in self._watches for breach in watch.finish(self._count))

    # --- One observation --------------------------------------------------------------------------------------------

    def _refuse_impossible(self, observation: AnyObservation) -> None:
        streams, number = self._book.streams, observation.channel
        if isinstance(observation, Opened):
            if number in streams or number in self._book.over:
                raise LocalProtocolError(f"channel {number} was opened before")
            if self._book.transport is Transport.PIPE:
                raise LocalProtocolError("a pipe has no requests of HTTP")
        elif number not in streams:
            raise LocalProtocolError(f"channel {number} is not open")
        elif isinstance(observation, Head) and streams[number].verb is None:
            raise LocalProtocolError("a pipe has no responses of HTTP")

    def _open(self, seen: Opened, index: int) -> Iterator[Breach]:
        stream = Stream(
            number=seen.channel,
            verb=seen.verb,
            index=index,
            session=seen.session,
            revision=seen.revision,
            accept=seen.accept,
            last_event_id=seen.last_event_id,
            mirrored=seen.mirrored,
        )
        before = self._book.events.get(seen.last_event_id or "")
        stream.resumes = None if before is None else before[0]
        self._book.streams[seen.channel] = stream
        for watch in self._watches:
            yield from watch.opened(stream)

    def _head(self, seen: Head, index: int) -> Iterator[Breach]:
        stream = self._book.streams[seen.channel]
        stream.status, stream.content_type = seen.status, seen.content_type
        for watch in self._watches:
            yield from watch.headed(stream, index, seen.session)
        if seen.status >= 400:
            self._book.note_refused(stream)

    def _end(self, seen: Ended, index: int) -> Iterator[Breach]:
        stream = self._book.streams[seen.channel]
        for watch in self._watches:
            yield from watch.ended(stream, index, seen.by)
        self._book.note_end(stream, seen.by)

    # --- Messages ---------------------------------------------------------------------------------------------------

    def _say(self, seen: Said, index: int) -> Iterator[Breach]:
        book, stream = self._book, self._book.streams[seen.channel]
        if seen.event_id is not None:
            stream.has_event_id = True
            known = book.events.get(seen.event_id)
            if known is not None:
                if not (stream.resumes is not None and known[0] is stream.origin and known[1] == seen.message):
                    yield self._about_event(stream, index, seen.event_id, known[0])
                return  # it is sent again
            book.events[seen.event_id] = (stream.origin, seen.message)
        if seen.event_id is not None and not seen.message:
            return  # it primes the client to come back
        if book.transport is Transport.EVENTS and seen.event == "endpoint" and not stream.messages:
            stream.messages += 1
            return
        yield from self._read(seen, stream, index)

    def _about_event(self, stream: Stream, index: int, id: str, owner: Stream) -> Breach:
        rule = "event-id-reused" if stream.resumes is None or owner is stream.origin else "replay-stream"
        text = f"the event id {shown(id)} was given before, to another event or on another stream"
        revision = stream.origin.asks[0].revision if stream.origin.asks else self._book.ambient
        return Breach(rule, Role.SERVER, text, revision, (owner.index, index))

    def _read(self, seen: Said, stream: Stream, index: int) -> Iterator[Breach]:
        reading = read(seen.message)
        is_refusal = seen.sender is Role.SERVER and (stream.status or 0) >= 400
        if is_refusal and not reading.messages:
            return  # the body of an error may be anything
        if reading.is_batch or reading.is_ambiguous:
            self._book.garbled[seen.sender] += 1  # it may be refused as a whole, or taken for unreadable
        if reading.problems:
            yield from self._garbled(reading, seen, stream, index)
        for number, (kind, message) in enumerate(reading.messages):
            frame = Frame(kind, seen.sender, stream, index, message, seen)
            frame.is_batched, frame.is_first = reading.is_batch, number == 0
            yield from self._judge(frame)

    def _garbled(self, reading: Reading, seen: Said, stream: Stream, index: int) -> Iterator[Breach]:
        revision = stream.origin.asks[0].revision if stream.origin.asks else self._book.revision_of_head(stream)
        self._book.garbled[seen.sender] += 1
        for problem in reading.problems:
            if problem.is_echo and self._book.garbled[seen.sender.other] > 0:
                continue  # who asks with an id that is none may be answered with it
            yield Breach(problem.rule, seen.sender, problem.text, revision, (index,))

    def _judge(self, frame: Frame) -> Iterator[Breach]:
        book = self._book
        if frame.kind in (Kind.RESULT, Kind.ERROR) and frame.message.get("id") is not None:
            frame.ask = book.find(frame.sender, frame.id, frame.stream)
        frame.revision = book.revision_of(frame)
        if frame.kind is Kind.REQUEST:
            frame.made = book.ask_of(frame)
        if frame.is_batched and frame.is_first:
            yield Breach("batch-unknown", frame.sender, "got an array of messages", frame.revision, (frame.index,))
        if frame.is_batched and frame.method == "initialize" and frame.sender is Role.CLIENT:
            yield Breach("batch-initialize", frame.sender, "got initialize in an array", frame.revision, (frame.index,))
        for watch in self._watches:
            yield from watch.frame(frame)
        if frame.kind is Kind.ERROR and frame.message.get("id") is None:
            book.garbled[frame.sender.other] = max(0, book.garbled[frame.sender.other] - 1)
        book.note(frame)
        if frame.made is not None and not _is_owed(frame):
            frame.made.state = State.LOST

    def _violations(self, breaches: Iterator[Breach]) -> list[Violation]:
        """What of it the rules of the revision have."""
        out = []
        for found in breaches:
            rule = RULES[found.rule]
            assert found.who in rule.who, found
            if found.revision in rule.clauses:
                clause = f"{found.revision} {rule.clauses[found.revision]}"
                severity = rule.severity(found.revision)
                out.append(Violation(rule.id, found.who, severity, found.text, clause, found.observations))
        return out


def _is_owed(frame: Frame) -> bool:
    """Whether a request has to be answered: an array may be refused as a whole where there are none, and what has no
    good params be taken for no message."""
    return isinstance(frame.message.get("params", {}), dict) and (not frame.is_batched or frame.revision == V2)
