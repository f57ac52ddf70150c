"""Traces: a run of an engine recorded as JSON Lines, and its replay.

`Recorder` is an engine that writes each input with its effects, and the random bytes that were drawn, one JSON object
a line. `replay` feeds the inputs of a trace to a fresh engine and yields each difference in its effects. The same code
gives none: the engine is deterministic.

A trace holds everything that crossed the wire, session ids and signed links included, and the key that signs links.
Treat it as a secret.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from .base.decisions import Decision
from .base.effects import Effect
from .base.errors import LocalProtocolError
from .base.events import Cause, Connected, Opening
from .base.ids import ChannelId, Entropy
from .base.limits import Limits
from .base.plan import Plan
from .base.plan_check import check_plan
from .base.storage import StorageAnswer
from .bulk import BulkEngine
from .features import plan_for
from .state.records import StoredArtifact, StoredTask, StoredUpload
from .status import Command


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
    answer: StorageAnswer | Decision | None = None
    server: str | None = None
    command: Command | None = None
    task: str | None = None
    file: str | None = None
    records: tuple[tuple[str, bytes | None], ...] | None = None
    effects: msgspec.Raw = msgspec.Raw()
    drawn: tuple[bytes, ...] = ()
    plan: Plan | None = None
    limits: Limits | None = None
    unix_at_zero: float = 0.0
    stored: tuple[StoredArtifact, ...] = ()
    stored_tasks: tuple[StoredTask, ...] = ()
    stored_uploads: tuple[StoredUpload, ...] = ()


class Input(NamedTuple):
    """The parameters of an engine's input, each under the name of the field of `Line` that holds it."""

    given: tuple[str, ...]
    named: tuple[str, ...] = ()


INPUTS: Final[dict[str, Input]] = {
    "receive_open": Input(("channel", "opening", "now")),
    "receive_message": Input(("channel", "message", "now")),
    "receive_messages": Input(("channel", "messages", "now")),
    "receive_pieces": Input(("channel", "pieces", "now")),
    "receive_part": Input(("channel", "pieces", "now"), ("opening", "size_bytes", "cause")),
    "receive_close": Input(("channel", "cause", "now")),
    "receive_answer": Input(("ticket", "answer", "now")),
    "receive_sent": Input(("channel", "size_bytes", "now")),
    "receive_at_once": Input(("channel", "now"), ("opening", "message", "size_bytes", "cause")),
    "receive_drain": Input(("now",)),
    "receive_stop": Input(("now",)),
    "receive_command": Input(("server", "command", "now")),
    "receive_task_cancel": Input(("task", "now")),
    "receive_file_delete": Input(("file", "now")),
    "receive_records": Input(("records", "now")),
    "handle_timeout": Input(("now",)),
}
"""Every input that returns effects. `Recorder` writes by this table and `replay` reads by it."""


class Recorder(BulkEngine):
    """An engine that writes a trace of itself.

    Args:
        write: takes each line of the trace: JSON with its newline.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        entropy: Entropy,
        unix_at_zero: float,
        has_storage: bool = False,
        limits: Limits | None = None,
        stored: Iterable[StoredArtifact] = (),
        stored_tasks: Iterable[StoredTask] = (),
        stored_uploads: Iterable[StoredUpload] = (),
        write: Callable[[bytes], object],
    ) -> None:
        self._drawn: list[bytes] = []
        self._entropy = entropy
        self._write = write
        self._is_within_input = False
        check_plan(plan, has_storage=has_storage)
        plan = plan_for(plan)  # so that an engine with all its rooms replays the trace of a copy without some
        limits, stored, tasks, uploads = limits or Limits(), tuple(stored), tuple(stored_tasks), tuple(stored_uploads)
        super().__init__(
            plan,
            entropy=self._draw,
            unix_at_zero=unix_at_zero,
            has_storage=has_storage,
            limits=limits,
            stored=stored,
            stored_tasks=tasks,
            stored_uploads=uploads,
        )
        self._write_line(
            Line(
                "begin",
                plan=plan,
                limits=limits,
                unix_at_zero=unix_at_zero,
                stored=stored,
                stored_tasks=tasks,
                stored_uploads=uploads,
            )
        )

    def new_channel(self) -> ChannelId:
        channel = super().new_channel()
        self._write(msgspec.json.encode(Line("new_channel", channel=channel)) + b"\n")
        return channel

    def _draw(self, size: int) -> bytes:
        drawn = self._entropy(size)
        self._drawn.append(drawn)
        return drawn

    def _write_line(self, line: Line) -> None:
        drawn, self._drawn = tuple(self._drawn), []
        self._write(msgspec.json.encode(msgspec.structs.replace(line, drawn=drawn)) + b"\n")


def _recorded(name: str, parameters: Input) -> Callable[..., list[Effect]]:
    """The input of `BulkEngine` of that name, which also writes a line."""
    method: Callable[..., list[Effect]] = getattr(BulkEngine, name)

    def record(self: Recorder, *given: Any, **named: Any) -> list[Effect]:
        if self._is_within_input:  # an input may be made of others
            return method(self, *given, **named)
        self._is_within_input = True
        try:
            effects = method(self, *given, **named)
        finally:
            self._is_within_input = False
        fields = dict(zip(parameters.given, given, strict=False)) | named
        if "size_bytes" in parameters.named:
            fields.setdefault("size_bytes", 0)
        for plural in ("messages", "records"):
            if plural in fields:
                fields[plural] = tuple(fields[plural])
        self._write_line(Line(name, effects=msgspec.Raw(_encoded(effects)), **fields))
        return effects

    return record


for _name, _parameters in INPUTS.items():
    setattr(Recorder, _name, _recorded(_name, _parameters))


class Difference(NamedTuple):
    """A line of a trace whose replay has other effects.

    Attributes:
        line: the number of the line, from 1.
        recorded, replayed: the JSON of the effects. Where the engine refused the input, `replayed` is the JSON of the
            reason.
    """

    line: int
    recorded: bytes
    replayed: bytes


_decoder = msgspec.json.Decoder(Line)


def replay(lines: Iterable[bytes]) -> Iterator[Difference]:
    """Feed a trace to a fresh engine. Yields every difference; nothing when the runs are the same.

    Raises:
        ValueError: it is no trace: a line cannot be read, or the first is not `begin`.
    """
    engine: BulkEngine | None = None
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
            engine = BulkEngine(
                line.plan,
                entropy=draw,
                unix_at_zero=line.unix_at_zero,
                has_storage=True,  # the trace holds the answers
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
        if bytes(line.effects) and (replayed := _encoded(effects)) != bytes(line.effects):
            yield Difference(number, bytes(line.effects), replayed)


def _encoded(effects: list[Effect]) -> bytes:
    return msgspec.json.encode(effects, enc_hook=bytes)  # params may be `Outlined`, which are bytes


def _feed(engine: BulkEngine, line: Line, number: int) -> list[Effect]:
    if line.input == "new_channel":
        engine.new_channel()
        return []
    parameters = INPUTS.get(line.input)
    given = [] if parameters is None else [getattr(line, name) for name in parameters.given]
    if parameters is None or None in given:
        raise ValueError(f"line {number} has the input {line.input[:60]!r} without what it needs, or one no engine has")
    named = {name: value for name in parameters.named if (value := getattr(line, name)) is not None}
    if line.input == "receive_part" and not isinstance(line.opening, Connected):
        named.pop("opening", None)
    effects: list[Effect] = getattr(engine, line.input)(*given, **named)
    return effects
