"""A run as JSON Lines, and the proof that it can be had again.

`Recorder` stands before an engine and writes each input with its effects, and the random bytes drawn, one JSON object
a line. `replay` feeds the inputs of such a trace to a fresh engine and yields where its effects differ: none, for the
same code, which is what deterministic means.

A trace holds everything that crossed the wire, session ids and signed links included, and the key that signs links.
Treat it as a secret.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from .base.effects import Cause, Connected, Effect, Opening, StorageAnswer
from .base.errors import LocalProtocolError
from .base.ids import ChannelId, Entropy, Ticket
from .base.limits import Limits
from .base.plan import Plan
from .base.timers import Deadline
from .engine import Engine
from .files.store.records import FileEnds, FileStatus, StoredArtifact, StoredUpload
from .status import Command, Status
from .tasks.record import StoredTask, TaskStatus


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """One input and its outcome.

    Attributes:
        input: the engine method's name; `begin` for the line that holds what the engine was made with.
        effects: the JSON of the list it returned.
        drawn: the random bytes it drew, in order.
    """

    input: str
    now: float = 0.0
    channel: int | None = None
    ticket: int | None = None
    size_bytes: int | None = None
    message: bytes | None = None
    messages: tuple[bytes, ...] | None = None
    pieces: tuple[bytes, ...] = ()
    opening: Opening | None = None
    cause: Cause | None = None
    answer: StorageAnswer | None = None
    server: str | None = None
    command: Command | None = None
    task: str | None = None
    file: str | None = None
    effects: msgspec.Raw = msgspec.Raw()
    drawn: tuple[bytes, ...] = ()
    plan: Plan | None = None
    limits: Limits | None = None
    unix_at_zero: float = 0.0
    stored: tuple[StoredArtifact, ...] = ()
    stored_tasks: tuple[StoredTask, ...] = ()
    stored_uploads: tuple[StoredUpload, ...] = ()


class Recorder:
    """An engine that keeps a trace: the same inputs, and `write(line)` for each with a line of JSON and its newline."""

    def __init__(
        self,
        plan: Plan,
        *,
        entropy: Entropy,
        unix_at_zero: float,
        limits: Limits | None = None,
        stored: Iterable[StoredArtifact] = (),
        stored_tasks: Iterable[StoredTask] = (),
        stored_uploads: Iterable[StoredUpload] = (),
        write: Callable[[bytes], object],
    ) -> None:
        self._drawn: list[bytes] = []
        self._entropy = entropy
        self._write = write
        limits, stored, tasks, uploads = limits or Limits(), tuple(stored), tuple(stored_tasks), tuple(stored_uploads)
        self._engine = Engine(
            plan,
            entropy=self._draw,
            unix_at_zero=unix_at_zero,
            limits=limits,
            stored=stored,
            stored_tasks=tasks,
            stored_uploads=uploads,
        )
        drawn, self._drawn = tuple(self._drawn), []
        begin = Line("begin", plan=plan, limits=limits, unix_at_zero=unix_at_zero, drawn=drawn)
        self._note(msgspec.structs.replace(begin, stored=stored, stored_tasks=tasks, stored_uploads=uploads))

    def _draw(self, size: int) -> bytes:
        drawn = self._entropy(size)
        self._drawn.append(drawn)
        return drawn

    def _note(self, line: Line) -> None:
        self._write(msgspec.json.encode(line) + b"\n")

    def _record(self, line: Line, effects: list[Effect]) -> list[Effect]:
        drawn, self._drawn = tuple(self._drawn), []
        self._note(msgspec.structs.replace(line, effects=msgspec.Raw(msgspec.json.encode(effects)), drawn=drawn))
        return effects

    @property
    def session_count(self) -> int:
        return self._engine.session_count

    @property
    def exchange_count(self) -> int:
        return self._engine.exchange_count

    def owes(self, channel: ChannelId) -> bool:
        return self._engine.owes(channel)

    def passes(self, channel: ChannelId, beginning: bytes, size_bytes: int) -> bool:
        return self._engine.passes(channel, beginning, size_bytes)

    def report(self) -> tuple[Status, ...]:
        return self._engine.report()

    def tasks(self) -> tuple[TaskStatus, ...]:
        return self._engine.tasks()

    def files(self) -> tuple[FileStatus, ...]:
        return self._engine.files()

    def file_ends(self) -> tuple[FileEnds, ...]:
        return self._engine.file_ends()

    def next_timeout(self) -> Deadline | None:
        return self._engine.next_timeout()

    @property
    def earliest_at(self) -> float:
        return self._engine.earliest_at

    def new_channel(self) -> ChannelId:
        channel = self._engine.new_channel()
        self._note(Line("new_channel", channel=channel))
        return channel

    def receive_open(self, channel: ChannelId, opening: Opening, now: float) -> list[Effect]:
        line = Line("receive_open", now, channel, opening=opening)
        return self._record(line, self._engine.receive_open(channel, opening, now))

    def receive_message(self, channel: ChannelId, message: bytes, now: float) -> list[Effect]:
        line = Line("receive_message", now, channel, message=message)
        return self._record(line, self._engine.receive_message(channel, message, now))

    def receive_messages(self, channel: ChannelId, messages: Sequence[bytes], now: float) -> list[Effect]:
        line = Line("receive_messages", now, channel, messages=tuple(messages))
        return self._record(line, self._engine.receive_messages(channel, messages, now))

    def receive_pieces(self, channel: ChannelId, pieces: tuple[bytes, ...], now: float) -> list[Effect]:
        line = Line("receive_pieces", now, channel, pieces=pieces)
        return self._record(line, self._engine.receive_pieces(channel, pieces, now))

    def receive_part(
        self,
        channel: ChannelId,
        pieces: tuple[bytes, ...],
        now: float,
        *,
        opening: Connected | None = None,
        size_bytes: int = 0,
        cause: Cause | None = None,
    ) -> list[Effect]:
        effects = self._engine.receive_part(channel, pieces, now, opening=opening, size_bytes=size_bytes, cause=cause)
        line = Line("receive_part", now, channel, pieces=pieces, opening=opening, size_bytes=size_bytes, cause=cause)
        return self._record(line, effects)

    def receive_close(self, channel: ChannelId, cause: Cause, now: float) -> list[Effect]:
        line = Line("receive_close", now, channel, cause=cause)
        return self._record(line, self._engine.receive_close(channel, cause, now))

    def receive_answer(self, ticket: Ticket, answer: StorageAnswer, now: float) -> list[Effect]:
        line = Line("receive_answer", now, ticket=ticket, answer=answer)
        return self._record(line, self._engine.receive_answer(ticket, answer, now))

    def receive_sent(self, channel: ChannelId, size_bytes: int, now: float) -> list[Effect]:
        line = Line("receive_sent", now, channel, size_bytes=size_bytes)
        return self._record(line, self._engine.receive_sent(channel, size_bytes, now))

    def receive_at_once(
        self,
        channel: ChannelId,
        now: float,
        *,
        opening: Opening | None = None,
        message: bytes | None = None,
        size_bytes: int = 0,
        cause: Cause | None = None,
    ) -> list[Effect]:
        effects = self._engine.receive_at_once(
            channel, now, opening=opening, message=message, size_bytes=size_bytes, cause=cause
        )
        line = Line(
            "receive_at_once", now, channel, opening=opening, message=message, size_bytes=size_bytes, cause=cause
        )
        return self._record(line, effects)

    def receive_drain(self, now: float) -> list[Effect]:
        return self._record(Line("receive_drain", now), self._engine.receive_drain(now))

    def receive_stop(self, now: float) -> list[Effect]:
        return self._record(Line("receive_stop", now), self._engine.receive_stop(now))

    def receive_command(self, server: str, command: Command, now: float) -> list[Effect]:
        line = Line("receive_command", now, server=server, command=command)
        return self._record(line, self._engine.receive_command(server, command, now))

    def receive_task_cancel(self, id: str, now: float) -> list[Effect]:
        return self._record(Line("receive_task_cancel", now, task=id), self._engine.receive_task_cancel(id, now))

    def receive_file_delete(self, id: str, now: float) -> list[Effect]:
        return self._record(Line("receive_file_delete", now, file=id), self._engine.receive_file_delete(id, now))

    def handle_timeout(self, now: float) -> list[Effect]:
        return self._record(Line("handle_timeout", now), self._engine.handle_timeout(now))


class Difference(NamedTuple):
    """Where a replay parted from its trace: the line's number from 1, and the effects' JSON on both sides. Where the
    engine refused the input, `replayed` is the JSON of a text that says why."""

    line: int
    recorded: bytes
    replayed: bytes


_decoder = msgspec.json.Decoder(Line)


def replay(lines: Iterable[bytes]) -> Iterator[Difference]:
    """Feed a trace to a fresh engine. Yields every difference; nothing when the runs are the same.

    Raises:
        ValueError: it is no trace: a line cannot be read, or the first is not `begin`.
    """
    engine: Engine | None = None
    pool: list[bytes] = []

    def draw(size: int) -> bytes:
        # Other code may draw more than was recorded: that shows as a difference, so it must not stop the replay.
        return pool.pop(0) if pool else bytes(size)

    for number, text in enumerate(lines, 1):
        try:
            line = _decoder.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ValueError(f"line {number} is no line of a trace: {error}") from None
        if line.input == "begin":
            if line.plan is None:
                raise ValueError(f"line {number} begins a trace without a plan")
            pool.extend(line.drawn)
            engine = Engine(
                line.plan,
                entropy=draw,
                unix_at_zero=line.unix_at_zero,
                limits=line.limits,
                stored=line.stored,
                stored_tasks=line.stored_tasks,
                stored_uploads=line.stored_uploads,
            )
            continue
        if engine is None:
            raise ValueError(f"line {number} comes before the line that begins a trace")
        pool.extend(line.drawn)
        try:
            effects = _feed(engine, line, number)
        except LocalProtocolError as error:  # an engine that did otherwise before may now find the input impossible
            yield Difference(number, bytes(line.effects), msgspec.json.encode(str(error)))
            continue
        if bytes(line.effects) and (replayed := msgspec.json.encode(effects)) != bytes(line.effects):
            yield Difference(number, bytes(line.effects), replayed)


def _feed(engine: Engine, line: Line, number: int) -> list[Effect]:
    channel, ticket = ChannelId(line.channel or 0), Ticket(line.ticket or 0)
    if line.input == "new_channel":
        engine.new_channel()
        return []
    if line.input == "receive_at_once":
        return engine.receive_at_once(
            channel,
            line.now,
            opening=line.opening,
            message=line.message,
            size_bytes=line.size_bytes or 0,
            cause=line.cause,
        )
    if line.input == "receive_part":
        opening = line.opening if isinstance(line.opening, Connected) else None
        return engine.receive_part(
            channel, line.pieces, line.now, opening=opening, size_bytes=line.size_bytes or 0, cause=line.cause
        )
    if line.input == "receive_pieces":
        return engine.receive_pieces(channel, line.pieces, line.now)
    if line.opening is not None:
        return engine.receive_open(channel, line.opening, line.now)
    if line.cause is not None:
        return engine.receive_close(channel, line.cause, line.now)
    if line.answer is not None:
        return engine.receive_answer(ticket, line.answer, line.now)
    if line.server is not None and line.command is not None:
        return engine.receive_command(line.server, line.command, line.now)
    if line.task is not None:
        return engine.receive_task_cancel(line.task, line.now)
    if line.file is not None:
        return engine.receive_file_delete(line.file, line.now)
    if line.size_bytes is not None:
        return engine.receive_sent(channel, line.size_bytes, line.now)
    if line.messages is not None:
        return engine.receive_messages(channel, line.messages, line.now)
    if line.input == "receive_message":
        return engine.receive_message(channel, line.message or b"", line.now)
    simple = {
        "receive_drain": engine.receive_drain,
        "receive_stop": engine.receive_stop,
        "handle_timeout": engine.handle_timeout,
    }
    if line.input not in simple:
        raise ValueError(f"line {number} has the input {line.input[:60]!r} without what it needs, or one no engine has")
    return simple[line.input](line.now)
