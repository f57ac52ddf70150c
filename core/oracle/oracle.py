"""The oracle: watches one connection or session and reports which clauses of the specification are broken.

It is a second opinion. It shares tables of names with the engine and nothing else. It keeps everything it has seen that
a rule may need, and judges one observation after the other. It judges nothing that is not in its rules.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from ..base.errors import LocalProtocolError
from .abilities import CapabilityChecker
from .asking import RequestChecker
from .book import WireState
from .greeting import HandshakeChecker
from .listens import SubscriptionChecker
from .methods import V2
from .observations import PIPE_CHANNEL, AnyObservation, Ended, Head, Opened, Role, Said, Transport, Violation
from .progress import ProgressChecker
from .reading import Reading, read
from .refusals import RefusalChecker
from .rules import RULES
from .seen import Finding, Frame, MessageKind, Stream, key_of, shown
from .sessions import HeaderChecker, SessionChecker
from .stateless import ExtensionChecker, InputRoundChecker, MetaChecker
from .streams import watches
from .tasks import TaskChecker
from .watch import Checker, SchemaCheck

REMEMBERED_MAX: Final = 100_000
"""The most requests, tokens, streams and events, each: a day of a busy session, and some hundred MiB at most."""


class SchemaChecker(Checker):
    """Checks each message with the schemas of the caller."""

    def __init__(self, book: WireState, check: SchemaCheck) -> None:
        super().__init__(book)
        self._check = check

    def frame(self, frame: Frame) -> Iterator[Finding]:
        method = frame.method or (frame.request.method if frame.request is not None else "")
        problem = self._check(frame.revision, frame.sender, method, frame.message)
        if problem is not None:
            yield Finding("schema", frame.sender, problem, frame.revision, (frame.index,))


class Oracle:
    """The checker of one connection (a pipe) or one client's session (HTTP): observations go in, violations come out.

    Observations are given in the order they happened. One oracle is enough for the whole HTTP traffic of a client
    without sessions. Two clients need two oracles, because their ids may be equal.

    Args:
        revision: the revision that both sides speak. A stateless-era one applies to everything, any other until the
            handshake. None: the traffic shows it, message by message, and one connection may have both eras.
        transport: the carrier of the messages. A pipe is channel `PIPE_CHANNEL`, which is never opened.
        client_revisions: those that the client supports; None: unknown, and rules that need them do not apply.
        server_revisions: those that the server supports; None: unknown, and rules that need them do not apply.
        check: judges the shape of each message, for example by the official JSON Schemas.
        remembered_max: the most entries kept of each kind. Beyond it the oldest is forgotten, and nothing is reported
            that depends on what may have been forgotten.
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
        self._book = WireState(revision, transport, remembered_max)
        self._count = 0
        if transport is Transport.PIPE:
            self._book.note_opened(Stream(PIPE_CHANNEL, None, 0))
        kinds: list[type[Checker]] = [
            RequestChecker,
            CapabilityChecker,
            ProgressChecker,
            MetaChecker,
            InputRoundChecker,
            ExtensionChecker,
            SubscriptionChecker,
            TaskChecker,
        ]
        if transport is Transport.HTTP:
            kinds += [SessionChecker, HeaderChecker, RefusalChecker]
        kinds += watches(transport)
        self._watches: list[Checker] = [HandshakeChecker(self._book, client_revisions, server_revisions)]
        self._watches += [kind(self._book) for kind in kinds]
        if check is not None:
            self._watches.append(SchemaChecker(self._book, check))

    @property
    def count(self) -> int:
        """The number of observations so far, which is the number of the next one."""
        return self._count

    def receive(self, observation: AnyObservation) -> list[Violation]:
        """Judges one more observation and returns the violations that it shows.

        Raises:
            LocalProtocolError: the observation is impossible: its channel was opened before, or is not open. Nothing
                has changed.
        """
        self._refuse_impossible(observation)
        index, self._count = self._count, self._count + 1
        if isinstance(observation, Opened):
            found = self._open(observation, index)
        elif isinstance(observation, Head):
            found = self._head(observation, index)
        elif isinstance(observation, Said):
            found = self._message(observation, index)
        else:
            found = self._end(observation, index)
        return self._violations(found)

    def finish(self) -> list[Violation]:
        """Returns the violations that remain if both sides send nothing more: what is still owed. Changes nothing."""
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

    def _open(self, seen: Opened, index: int) -> Iterator[Finding]:
        before = self._book.events.get(seen.last_event_id or "")
        stream = Stream(
            number=seen.channel,
            verb=seen.verb,
            index=index,
            session=seen.session,
            revision=seen.revision,
            accept=seen.accept,
            last_event_id=seen.last_event_id,
            mirrored=seen.mirrored,
            resumes=None if before is None else before[0],
        )
        self._book.note_opened(stream)
        for watch in self._watches:
            yield from watch.opened(stream)

    def _head(self, seen: Head, index: int) -> Iterator[Finding]:
        stream = self._book.streams[seen.channel]
        stream.receive_head(seen.status, seen.content_type)
        for watch in self._watches:
            yield from watch.headed(stream, index, seen.session)
        if seen.status >= 400:
            self._book.note_refused(stream)

    def _end(self, seen: Ended, index: int) -> Iterator[Finding]:
        stream = self._book.streams[seen.channel]
        for watch in self._watches:
            yield from watch.ended(stream, index, seen.by)
        self._book.note_end(stream, seen.by)

    # --- Messages ---------------------------------------------------------------------------------------------------

    def _message(self, seen: Said, index: int) -> Iterator[Finding]:
        book, stream = self._book, self._book.streams[seen.channel]
        if seen.event_id is not None:
            stream.receive_event_id()
            known = book.events.get(seen.event_id)
            if known is not None:
                if not (stream.resumes is not None and known[0] is stream.origin and known[1] == seen.message):
                    yield self._event_reused(stream, index, seen.event_id, known[0])
                return  # the event is sent again after a resumption
            book.note_event(seen.event_id, stream.origin, seen.message)
        if seen.event_id is not None and not seen.message:
            return  # an event without data only gives the client an id to resume from
        if book.transport is Transport.EVENTS and seen.event == "endpoint" and not stream.messages:
            stream.count()
            return
        yield from self._read(seen, stream, index)

    def _event_reused(self, stream: Stream, index: int, id: str, owner: Stream) -> Finding:
        rule = "event-id-reused" if stream.resumes is None or owner is stream.origin else "replay-stream"
        text = f"the event id {shown(id)} was given before, to another event or on another stream"
        revision = stream.origin.requests[0].revision if stream.origin.requests else self._book.ambient
        return Finding(rule, Role.SERVER, text, revision, (owner.index, index))

    def _read(self, seen: Said, stream: Stream, index: int) -> Iterator[Finding]:
        reading = read(seen.message)
        is_refusal = seen.sender is Role.SERVER and (stream.status or 0) >= 400
        if is_refusal and not reading.messages:
            return  # the body of an HTTP error may be anything
        if reading.is_batch or reading.is_ambiguous:
            self._book.note_garbled(seen.sender)  # the peer may refuse it as a whole, or be unable to read it
        if reading.problems:
            yield from self._garbled(reading, seen, stream, index)
        for number, (kind, message) in enumerate(reading.messages):
            id = key_of(message.get("id")) if kind in (MessageKind.RESULT, MessageKind.ERROR) else None
            frame = Frame(
                kind,
                seen.sender,
                stream,
                index,
                message,
                seen,
                request=None if id is None else self._book.find(seen.sender, id, stream),
                is_batched=reading.is_batch,
                is_first=number == 0,
            )
            yield from self._judge(frame)

    def _garbled(self, reading: Reading, seen: Said, stream: Stream, index: int) -> Iterator[Finding]:
        revision = stream.origin.requests[0].revision if stream.origin.requests else self._book.revision_of_head(stream)
        self._book.note_garbled(seen.sender)
        for problem in reading.problems:
            if problem.is_echo and self._book.garbled[seen.sender.other] > 0:
                continue  # a request with an invalid id may be answered with the same id
            yield Finding(problem.rule, seen.sender, problem.text, revision, (index,))

    def _judge(self, frame: Frame) -> Iterator[Finding]:
        book = self._book
        revision = book.revision_of(frame)
        frame.attribute(revision, made=book.entry_for(frame, revision) if frame.kind is MessageKind.REQUEST else None)
        if frame.is_batched and frame.is_first:
            yield Finding("batch-unknown", frame.sender, "got an array of messages", frame.revision, (frame.index,))
        if frame.is_batched and frame.method == "initialize" and frame.sender is Role.CLIENT:
            yield Finding(
                "batch-initialize", frame.sender, "got initialize in an array", frame.revision, (frame.index,)
            )
        for watch in self._watches:
            yield from watch.frame(frame)
        if frame.kind is MessageKind.ERROR and frame.message.get("id") is None:
            book.note_complaint(frame.sender)
        book.note(frame)
        if frame.made is not None and not _is_owed(frame):
            frame.made.lose()

    def _violations(self, breaches: Iterator[Finding]) -> list[Violation]:
        """Returns the findings that the rules of their revision have."""
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
    """True if a request must be answered.

    Where there are no batches, an array may be refused as a whole. A request without valid params may be taken for no
    message.
    """
    return isinstance(frame.message.get("params", {}), dict) and (not frame.is_batched or frame.revision == V2)
