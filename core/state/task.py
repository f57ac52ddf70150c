"""One task of ours: a call that its client does not wait for, from the handle it is told to the end of its time.

A client asks how it fares (`tasks/get`) and is given the outcome when there is one. Both models of tasks have the same
states; they differ in what `failed` means, which is decided by whoever steps the machine.

What the server asks in its course waits here, each question under a key that is used once, until the client has
answered it or the server has withdrawn it. Whoever answers first has answered.

Source: 2025-11-25 basic/utilities/tasks, "Task Status Lifecycle"; the tasks extension, "Task Status".
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

from ..base.state_machine import Machine


class State(enum.Enum):
    WORKING = "working"
    INPUT_REQUIRED = "input_required"  # the server waits for the client
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Input(enum.Enum):
    ASK = "ask"
    ANSWER = "answer"  # nothing is asked any more
    RETURN = "return"
    FAIL = "fail"
    CANCEL = "cancel"


# An input missing from a row is illegal in that state; an empty row is terminal.
TRANSITIONS: Final[dict[State, dict[Input, State]]] = {
    State.WORKING: {
        Input.ASK: State.INPUT_REQUIRED,
        Input.RETURN: State.COMPLETED,
        Input.FAIL: State.FAILED,
        Input.CANCEL: State.CANCELLED,
    },
    State.INPUT_REQUIRED: {
        Input.ANSWER: State.WORKING,
        Input.RETURN: State.COMPLETED,
        Input.FAIL: State.FAILED,
        Input.CANCEL: State.CANCELLED,
    },
    State.COMPLETED: {},
    State.FAILED: {},
    State.CANCELLED: {},
}


class Wanted(NamedTuple):
    """A question of the server.

    Attributes:
        number: under which it is known among the questions to this client.
        entry: what its client is shown of it: the JSON of an `InputRequest`, or the whole request.
    """

    number: int
    method: str
    entry: bytes


class Outcome(NamedTuple):
    """What a task came to: the JSON of a result, or of an error object."""

    data: bytes
    is_error: bool


class Task(Machine[State, Input]):
    """Moves along `TRANSITIONS` only.

    Attributes:
        id: what its client names it by; unguessable.
        ordinal: how many tasks there were before it.
        owner: a hash of whom it belongs to.
        payer: a hash of the principal, among whose tasks it counts.
        sid: the session it belongs to, where nothing else tells its clients apart; "" for all of an owner.
        principal: who called, as far as this run knows.
        is_legacy: its client has sessions, and is answered as of 2025-11-25.
        created_at, updated_at: ISO 8601.
        created_at_unix, updated_at_unix: the same as wall time.
        expires_at_unix: when it is forgotten.
        message: what is said of its state, for people.
        upstream_task: the server's own name for it, if it is a task there.
        is_remote: the server may be at work on it whatever becomes of this process.
        upstream_session: the `Mcp-Session-Id` that it was begun with, and the revision of that session.
        questions: those without an answer, by their keys.
        told: the numbers of those that its client was asked.
        outcome: what it came to, unless that is in `blob`.
        size_bytes: of the outcome.
        counted_for: the session in which it counts, by its public name.
        ticks: signs of life that the server was given while it was asking.
    """

    __slots__ = (
        "_last_key",
        "blob",
        "counted_for",
        "created_at",
        "created_at_unix",
        "expires_at_unix",
        "id",
        "is_error",
        "is_legacy",
        "is_remote",
        "message",
        "ordinal",
        "outcome",
        "owner",
        "payer",
        "poll_ms",
        "principal",
        "questions",
        "server",
        "sid",
        "size_bytes",
        "ticks",
        "told",
        "tool",
        "ttl_ms",
        "updated_at",
        "updated_at_unix",
        "upstream_session",
        "upstream_task",
    )

    TRANSITIONS = TRANSITIONS

    def __init__(
        self,
        id: str,
        *,
        ordinal: int,
        server: str,
        tool: str,
        owner: str,
        payer: str,
        sid: str,
        principal: str,
        is_legacy: bool,
        created_at: str,
        created_at_unix: float,
        ttl_ms: int,
        poll_ms: int,
    ) -> None:
        super().__init__(State.WORKING)
        self.id = id
        self.ordinal = ordinal
        self.server = server
        self.tool = tool
        self.owner = owner
        self.payer = payer
        self.sid = sid
        self.principal = principal
        self.is_legacy = is_legacy
        self.ttl_ms = ttl_ms
        self.begin(created_at, created_at_unix)
        self.poll_ms = poll_ms
        self.message = ""
        self.upstream_task = ""
        self.is_remote = False
        self.upstream_session: tuple[str, str] = ("", "")
        self.questions: dict[str, Wanted] = {}
        self.told: set[int] = set()
        self.outcome: Outcome | None = None
        self.is_error = False
        self.blob: str | None = None
        self.size_bytes = 0
        self.counted_for = ""
        self.ticks = 0
        self._last_key = 0

    def begin(self, created_at: str, created_at_unix: float) -> None:
        """Its time is counted from here."""
        self.created_at = self.updated_at = created_at
        self.created_at_unix = self.updated_at_unix = created_at_unix
        self.expires_at_unix = created_at_unix + self.ttl_ms / 1000

    def receive_question(self, wanted: Wanted) -> str:
        """The server asks. Returns the key of the question, which no other ever had."""
        self._last_key += 1
        key = f"q{self._last_key}"
        if self.state is State.WORKING:
            self.step(Input.ASK)
        self.questions[key] = wanted
        return key

    def receive_answer(self, number: int) -> bool:
        """A question is settled: answered, or withdrawn. False if it was not open."""
        key = next((key for key, wanted in self.questions.items() if wanted.number == number), None)
        if key is None:
            return False
        del self.questions[key]
        self.told.discard(number)
        if not self.questions and self.state is State.INPUT_REQUIRED:
            self.step(Input.ANSWER)
        return True

    def end(self, how: Input) -> None:
        """It is over, in one of the three ways. What was asked is not wanted any more."""
        assert how in (Input.RETURN, Input.FAIL, Input.CANCEL)
        self.step(how)
        self.questions.clear()
        self.told.clear()
