"""Turns entries of the wire log into records: finds out which messages belong to which request of a client.

A message is matched with the telemetry events of the same turn, since an engine emits them while it handles the
message: `RequestStarted` belongs to a message that a client sent, `RequestSent` to one that was sent to a server. From
then on ids and progress tokens show to what a message belongs.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Callable, Iterable
from typing import Final, Generic, TypeVar

import msgspec

from ...core.base.revisions import MODERN
from ...core.base.telemetry import (
    QuestionAsked,
    RequestAnswered,
    RequestEnded,
    RequestKey,
    RequestSent,
    RequestStarted,
    SessionEnded,
    SessionStarted,
)
from ..base.tags import tag_of
from .records import (
    AnyRecord,
    Attempt,
    Kept,
    MessageRecord,
    NoteRecord,
    Records,
    RequestRecord,
    SessionRecord,
    StderrRecord,
)
from .redaction import Redactor
from .wire_log import SHOWN_MAX_BYTES, Entry, Happened, Message, Noted

INITIALIZED: Final = "notifications/initialized"
GREETINGS: Final = frozenset({"initialize", "server/discover", INITIALIZED})
"""Messages that Isthmus sends to a server for the `initialize` of a client, before it or later."""
KNOWN_MAX: Final = 20_000
"""Ids, tokens, requests and sessions, of each kind, that are remembered: those of all that is open, and some more. At
it: the oldest are forgotten, and what comes for them belongs to no request."""
ENDED_SESSIONS_MAX: Final = 200
"""Sessions that have ended and are still shown. At it: the oldest are not."""
ID_MAX_CHARS: Final = 80
"""Characters of an id or a token. Those that programs choose are shorter. At it: the rest is left out."""
TEXT_MAX_CHARS: Final = 2000
"""Characters of a line of stderr or of the log. At it: the rest is left out."""

K = TypeVar("K")
V = TypeVar("V")


class _Known(dict[K, V], Generic[K, V]):
    """A table that forgets its oldest entries."""

    def learn(self, key: K, value: V) -> None:
        self[key] = value
        if len(self) > KNOWN_MAX:
            del self[next(iter(self))]


class _Shape(msgspec.Struct):
    id: msgspec.Raw = msgspec.Raw()
    method: str = ""
    params: msgspec.Raw = msgspec.Raw()
    result: msgspec.Raw = msgspec.Raw()
    error: msgspec.Raw = msgspec.Raw()


class _About(msgspec.Struct):
    progressToken: msgspec.Raw = msgspec.Raw()
    requestId: msgspec.Raw = msgspec.Raw()


class _Meta(msgspec.Struct):
    _meta: _About = msgspec.field(default_factory=_About)


_SHAPE: Final = msgspec.json.Decoder(_Shape)
_BATCH: Final = msgspec.json.Decoder(list[msgspec.Raw])
_ABOUT: Final = msgspec.json.Decoder(_About)
_META: Final = msgspec.json.Decoder(_Meta)


class Digest:
    """Makes records.

    Args:
        has_bodies: the bytes and the headers of messages are kept.
    """

    def __init__(self, records: Records, redactor: Redactor, *, has_bodies: bool) -> None:
        self._records = records
        self._redactor = redactor
        self._has_bodies = has_bodies
        self._turn = -1
        self._received: list[MessageRecord] = []  # in this turn, and of no request yet
        self._sent: list[MessageRecord] = []
        self._ended: dict[str, RequestKey] = {}  # in this turn, by the id of the request
        self._asked_now: list[tuple[str, RequestKey]] = []  # questions of this turn that go to a client
        self._requests: _Known[RequestKey, RequestRecord] = _Known()
        self._sessions: _Known[str, SessionRecord] = _Known()
        self._ids: _Known[tuple[str, str], RequestKey] = _Known()  # open requests, by session and id
        self._tokens: _Known[tuple[str, str], RequestKey] = _Known()  # by session and progress token
        self._numbers: _Known[tuple[int, str], RequestKey] = _Known()  # by channel to a server, and number there
        self._channels: _Known[int, RequestKey] = _Known()  # of HTTP requests, for one request each
        self._openers: _Known[str, RequestKey] = _Known()  # the `initialize` of a session, by its tag
        self._questions: _Known[tuple[bool, str], RequestKey] = _Known()  # by leg, and session with id

    def add(self, entries: Iterable[Entry], dropped: int = 0) -> None:
        """Adds entries. `dropped` are lost before them."""
        if dropped:
            self._records.skip(dropped)
        for entry in entries:
            if entry.turn != self._turn:
                self._turn = entry.turn
                self._received, self._sent, self._asked_now = [], [], []
                self._ended.clear()
            match entry:
                case Message():
                    self._add_message(entry)
                case Happened():
                    self._add_event(entry)
                case Noted():
                    self._add_note(entry)

    def sessions(self) -> list[SessionRecord]:
        """Returns the sessions that are open, and those that ended last."""
        return list(self._sessions.values())

    def forget_open(self) -> None:
        """Settles the requests that are open: nothing was logged for a while, so their ends may not be known."""
        for record in self._requests.values():
            record.state, record.outcome = "over", "unknown"
            self._records.add(record)
        self._requests.clear()

    # --- Messages ---------------------------------------------------------------------------------------------------

    def _add_message(self, message: Message) -> None:
        parts = [message.body]
        if message.body.lstrip()[:1] == b"[":
            with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                parts = [bytes(part) for part in _BATCH.decode(message.body)]
        for body in parts:
            is_whole = len(parts) > 1 or message.size_bytes == len(message.body)
            self._add_part(message, body, len(body) if len(parts) > 1 else message.size_bytes, is_whole=is_whole)

    def _add_part(self, message: Message, body: bytes, size_bytes: int, *, is_whole: bool) -> None:
        peer = message.peer
        kind, shape = _read(body)
        record = MessageRecord(
            at=message.at,
            leg="server" if peer.is_upstream else "client",
            way="in" if message.is_received else "out",
            channel=message.channel,
            session=tag_of(peer.session) if peer.session else "",
            server=peer.server,
            kind=kind,
            id=_text(shape.id),
            method=shape.method[:80],
            bytes=size_bytes,
            is_cut=not is_whole or size_bytes > SHOWN_MAX_BYTES,
            event_id=message.event_id[:80],
        )
        key = self._from_server(record, shape) if peer.is_upstream else self._from_client(record, shape, peer.session)
        if key is not None:
            record.request = _name(key)
        elif message.is_received:
            self._received.append(record)
        else:
            self._sent.append(record)
        kept = None
        if self._has_bodies:
            digest = hashlib.sha256(body).digest() if is_whole and size_bytes > SHOWN_MAX_BYTES else b""
            kept = Kept(body[:SHOWN_MAX_BYTES], message.about, digest)
        self._records.add(record, kept)

    def _from_client(self, record: MessageRecord, shape: _Shape, session: str) -> RequestKey | None:
        """Returns the request that a message on a client's leg belongs to, if it is known by now."""
        if record.way == "in":
            if record.kind == "response":
                return self._questions.get((False, f"{session} {record.id}"))
            if record.method == INITIALIZED:
                return self._openers.get(record.session)
            is_end = record.method == "notifications/cancelled"
            return self._ids.get((session, _text(_about(shape).requestId))) if is_end else None
        match record.kind:
            case "response":
                found = self._ended.get(record.id) or self._ids.pop((session, record.id), None)
                return found or self._channels.get(record.channel)
            case "request":
                for at, (method, key) in enumerate(self._asked_now):
                    if method == record.method:
                        del self._asked_now[at]
                        self._questions.learn((False, f"{session} {record.id}"), key)
                        return key
        token = _token(shape)
        return (self._tokens.get((session, token)) if token else None) or self._channels.get(record.channel)

    def _from_server(self, record: MessageRecord, shape: _Shape) -> RequestKey | None:
        """Returns the same for one on a server's leg."""
        channel = record.channel
        if record.way == "out":
            if record.kind == "response":
                return self._questions.get((True, _asked(record)))
            if record.method in GREETINGS and (opener := self._openers.get(record.session)) is not None:
                if record.kind == "request":
                    self._numbers.learn((channel, record.id), opener)
                return opener
            if record.kind == "notification" and record.method == "notifications/cancelled":
                return self._numbers.get((channel, _text(_about(shape).requestId)))
            return None
        if record.kind == "response":
            return self._numbers.pop((channel, record.id), None)
        token = _token(shape)
        found = (self._numbers.get((channel, token)) if token else None) or self._channels.get(channel)
        if found is not None and record.kind == "request":
            self._questions.learn((True, _asked(record)), found)
        return found

    # --- Events -----------------------------------------------------------------------------------------------------

    def _add_event(self, happened: Happened) -> None:
        at = happened.at
        match event := happened.event:
            case RequestStarted():
                self._start(event, at)
            case RequestSent():
                self._send(event, at)
            case RequestAnswered():
                self._receive_answer(event, at)
            case QuestionAsked():
                self._ask(event)
            case RequestEnded():
                self._end(event, at)
            case SessionStarted():
                self._add_session(event, at)
            case SessionEnded():
                session = self._sessions.get(event.session) or self._add_session(event, at)
                session.state, session.reason, session.ended_at = "over", event.reason, at
                self._records.add(session)
                self._forget_sessions()

    def _start(self, event: RequestStarted, at: float) -> None:
        key, id = event.request, event.id_raw.decode(errors="replace")
        self._claim(self._received, key, lambda record: record.leg == "client" and record.id == id)
        self._ids.learn((event.session, id), key)
        if event.method == "initialize":
            self._openers.learn(tag_of(event.session), key)
        if not event.is_pipe:
            self._channels.learn(key[0], key)
        if event.params is not None and b"progressToken" in event.params:
            token = _text(_meta(event.params).progressToken)
            if token:
                self._tokens.learn((event.session, token), key)
        record = self._request(event, at, id)
        session = self._sessions.get(event.session)
        if session is None and event.method != "initialize" and event.revision not in MODERN:
            session = self._add_session(event, at)  # it began before the log did
        if session is not None:
            session.requests += 1
            session.open_requests += 1
        self._records.add(record)

    def _request(self, event: RequestStarted | RequestEnded, at: float, id: str) -> RequestRecord:
        record = RequestRecord(
            at=at,
            request=_name(event.request),
            session=tag_of(event.session),
            client=event.client,
            principal=event.principal,
            server=event.server,
            transport="pipe" if event.is_pipe else "http",
            revision=event.revision,
            id=id,
            method=event.method,
            target=event.target,
            attempts=[],
        )
        self._requests.learn(event.request, record)
        return record

    def _send(self, event: RequestSent, at: float) -> None:
        number, request = str(event.number), self._asker(event.request)

        def is_it(record: MessageRecord) -> bool:
            return record.leg == "server" and record.channel == event.channel and record.id == number

        self._claim(self._sent, request, is_it)
        if event.channel is not None:
            self._numbers.learn((event.channel, number), request)
            if not event.is_pipe:
                self._channels.learn(event.channel, request)
        record = self._requests.get(request)
        if record is not None:
            via = "pipe" if event.is_pipe else "http"
            record.attempts.append(Attempt(event.server, at, None, event.channel, event.number, event.revision, via))
            self._records.add(record)

    def _receive_answer(self, event: RequestAnswered, at: float) -> None:
        request = self._asker(event.request)
        self._claim(self._received, request, lambda record: record.leg == "server" and record.kind == "response")
        record = self._requests.get(request)
        for attempt in [] if record is None else reversed(record.attempts):
            if attempt.ms is None and attempt.server == event.server:
                attempt.ms = round((at - attempt.at) * 1000, 3)
                break

    def _asker(self, key: RequestKey) -> RequestKey:
        """Returns the request of a client for which a profile asks a server: that of the channel in its own key."""
        return key if key in self._requests else self._channels.get(key[0], key)

    def _ask(self, event: QuestionAsked) -> None:
        if event.request is None:
            return
        self._asked_now.append((event.method, event.request))
        for received in self._received:
            if received.leg == "server" and received.kind == "request" and received.method == event.method:
                self._questions.learn((True, _asked(received)), event.request)
        self._claim(self._received, event.request, lambda record: record.kind == "request" and record.leg == "server")
        if (record := self._requests.get(event.request)) is not None:
            record.questions += 1
            self._records.add(record)

    def _end(self, event: RequestEnded, at: float) -> None:
        record = self._requests.get(event.request) or self._request(event, at - event.duration_s, "")
        self._requests.pop(event.request, None)
        record.state, record.outcome, record.code = "over", event.outcome.value, event.code
        record.ms = round((at - record.at) * 1000, 3)
        record.request_bytes, record.response_bytes = event.params_bytes, event.result_bytes
        record.revision, record.client = event.revision or record.revision, event.client or record.client
        if record.id:
            self._ended[record.id] = event.request
        session = self._sessions.get(event.session)
        if session is not None:
            session.open_requests = max(0, session.open_requests - 1)
        self._records.add(record)

    def _claim(self, records: list[MessageRecord], key: RequestKey, is_its: Callable[[MessageRecord], bool]) -> None:
        """Gives the first message of this turn that passes the test to a request."""
        for at, record in enumerate(records):
            if is_its(record):
                record.request = _name(key)
                del records[at]
                return

    def _add_session(self, event: SessionStarted | SessionEnded | RequestStarted, at: float) -> SessionRecord:
        session = SessionRecord(
            at=at,
            session=tag_of(event.session),
            client=event.client,
            principal=event.principal,
            server=event.server,
            transport="pipe" if event.is_pipe else "http",
            revision=event.revision,
        )
        self._sessions.learn(event.session, session)
        self._records.add(session)
        return session

    def _forget_sessions(self) -> None:
        ended = [name for name, session in self._sessions.items() if session.state == "over"]
        for name in ended[: max(0, len(ended) - ENDED_SESSIONS_MAX)]:
            del self._sessions[name]

    def _add_note(self, noted: Noted) -> None:
        text, at = noted.text[:TEXT_MAX_CHARS], noted.at
        shown = self._redactor.redact(text.encode(errors="replace")).body.decode(errors="replace")
        record: AnyRecord
        if noted.level == "stderr":
            record = StderrRecord(at=at, server=noted.server, text=shown)
        else:
            record = NoteRecord(at=at, level=noted.level, server=noted.server, text=shown)
        self._records.add(record)


def _read(body: bytes) -> tuple[str, _Shape]:
    """Returns the kind of a message, and its members. Of one that is cut off, those in its beginning are not read."""
    try:
        shape = _SHAPE.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        shape = _Shape()
        if (match := _BEGINNING.match(body)) is None:
            return "unreadable", shape
        shape.id = msgspec.Raw(match[1])
        return "response", shape
    if shape.method:
        return "request" if _text(shape.id) else "notification", shape
    return "response" if bytes(shape.result) or bytes(shape.error) else "unreadable", shape


_BEGINNING: Final = re.compile(rb'\{"jsonrpc":"2\.0","id":("(?:[^"\\]|\\.)*"|-?[0-9]+),"(?:result|error)":')
"""The beginning of a response as the proxy writes it, and most servers."""


def _text(raw: msgspec.Raw) -> str:
    return bytes(raw).decode(errors="replace")[:ID_MAX_CHARS]


def _about(shape: _Shape) -> _About:
    try:
        return _ABOUT.decode(shape.params) if bytes(shape.params) else _About()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _About()


def _meta(params: bytes) -> _About:
    try:
        return _META.decode(params)._meta
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _About()


def _token(shape: _Shape) -> str:
    """Returns the JSON of the progress token of a notification of progress; "" for other messages."""
    return _text(_about(shape).progressToken) if shape.method == "notifications/progress" else ""


def _asked(question: MessageRecord) -> str:
    return f"{question.server} {question.session} {question.id}"


def _name(key: RequestKey) -> str:
    return f"{key[0]}.{key[1]}"
