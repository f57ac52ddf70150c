"""One task: a call that its client does not wait for, from the handle it is given to the end of its life.

A client polls the task (`tasks/get`), and gets the outcome when there is one. Both models of tasks, that of 2025-11-25
and the tasks extension, have the same states. They differ in the meaning of `failed`, which is decided by the code that
ends the task.

A task is WORKING while its call runs. ASK means that the server asked a question in its course: the task is
INPUT_REQUIRED as long as any question is open. Each question waits under a key that is used once. ANSWER means that the
last open question was answered by the client, or withdrawn by the server, and leads back to WORKING. If two requests
answer one question, the first one counts.

Three inputs end a task in both states: RETURN with a result, FAIL with an error (or, in one of the models, with a
result that says so), and CANCEL. Open questions are dropped then. The three final states have no way out: the task
keeps its outcome until its life (`ttl_ms`) is over and it is forgotten.

Source: 2025-11-25 basic/utilities/tasks, "Task Status Lifecycle"; the tasks extension, "Task Status".
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final, NamedTuple

from ..base.state_machine import Machine
from ..base.timestamps import format_time
from ..bridge.tasks import TERMINAL, TaskFields
from ..tracing.trace import Trace

if TYPE_CHECKING:
    from .records import StoredTask


class TaskState(enum.Enum):
    """The states of a task."""

    WORKING = "working"
    INPUT_REQUIRED = "input_required"  # the server waits for answers of the client
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class TaskInput(enum.Enum):
    """The inputs that move a task from state to state."""

    ASK = "ask"  # the server asked
    ANSWER = "answer"  # no question is open any more
    RETURN = "return"  # the call has a result
    FAIL = "fail"  # the call failed
    CANCEL = "cancel"  # the client, the server or the proxy cancelled it


# An input missing from a row is illegal in that state; an empty row is terminal.
TRANSITIONS: Final[dict[TaskState, dict[TaskInput, TaskState]]] = {
    TaskState.WORKING: {
        TaskInput.ASK: TaskState.INPUT_REQUIRED,
        TaskInput.RETURN: TaskState.COMPLETED,
        TaskInput.FAIL: TaskState.FAILED,
        TaskInput.CANCEL: TaskState.CANCELLED,
    },
    TaskState.INPUT_REQUIRED: {
        TaskInput.ANSWER: TaskState.WORKING,
        TaskInput.RETURN: TaskState.COMPLETED,
        TaskInput.FAIL: TaskState.FAILED,
        TaskInput.CANCEL: TaskState.CANCELLED,
    },
    TaskState.COMPLETED: {},
    TaskState.FAILED: {},
    TaskState.CANCELLED: {},
}


class TaskQuestion(NamedTuple):
    """A question of the server.

    Attributes:
        number: its number among the session's server requests.
        entry: the form in which the client sees it: the JSON of an `InputRequest`, or of the whole request.
    """

    number: int
    method: str
    entry: bytes


class Outcome(NamedTuple):
    """The outcome of a task: the JSON of a result, or of an error object."""

    data: bytes
    is_error: bool


class Task(Machine[TaskState, TaskInput]):
    """The state of one task. Times as text are ISO 8601, times as numbers seconds since 1970.

    Attributes:
        id: its name for the client; unguessable.
        ordinal: number of tasks created before it.
        server: the id of its server.
        tool: the name of the called tool.
        owner: a hash of the client identity that may see it.
        payer: a hash of the principal in whose quota it counts.
        sid: the session it belongs to, where nothing else tells clients apart; "" for all of an owner.
        principal: the caller, as far as this run knows.
        is_legacy: its client has sessions, and gets answers as of 2025-11-25.
        ttl_ms: its life from creation, in milliseconds.
        poll_ms: the poll interval suggested to the client, in milliseconds.
        expires_at_unix: time at which it is forgotten.
        message: the status message, for people.
        upstream_task: the server's own task id, if it is a task there; else "".
        is_remote: the server may work on it whatever becomes of this process.
        upstream_session: the `Mcp-Session-Id` that it was begun with, the revision of that session, and the name of
            its address, where the server has several.
        questions: its open questions, by key.
        told: the numbers of those that the client was sent.
        outcome: its outcome, unless that is in `blob`.
        is_error: the outcome is an error object.
        blob: the name of the blob that holds a large outcome.
        size_bytes: size of the outcome.
        counted_for: the session in whose quota it counts, by its public name.
        ticks: progress notifications that the server was sent while its questions waited.
        replica: the replica that runs it or has ended it, as in its record.
        trace: the trace of the request that it was made of; None if that had none, or was in an earlier run.
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
        "replica",
        "server",
        "sid",
        "size_bytes",
        "ticks",
        "told",
        "tool",
        "trace",
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
        replica: str = "",
    ) -> None:
        super().__init__(TaskState.WORKING)
        self.id = id
        self.ordinal = ordinal
        self.server = server
        self.tool = tool
        self.owner = owner
        self.payer = payer
        self.sid = sid
        self.principal = principal
        self.is_legacy = is_legacy
        self.replica = replica
        self.ttl_ms = ttl_ms
        self.begin(created_at, created_at_unix)
        self.poll_ms = poll_ms
        self.message = ""
        self.upstream_task = ""
        self.is_remote = False
        self.upstream_session: tuple[str, str, str] = ("", "", "")
        self.questions: dict[str, TaskQuestion] = {}
        self.told: set[int] = set()
        self.outcome: Outcome | None = None
        self.is_error = False
        self.blob: str | None = None
        self.size_bytes = 0
        self.counted_for = ""
        self.ticks = 0
        self.trace: Trace | None = None
        self._last_key = 0

    def receive_trace(self, trace: Trace | None) -> None:
        """Takes the trace of the request that it was made of."""
        self.trace = trace

    def begin(self, created_at: str, created_at_unix: float) -> None:
        """Starts its life at this time."""
        self.created_at = self.updated_at = created_at
        self.created_at_unix = self.updated_at_unix = created_at_unix
        self.expires_at_unix = created_at_unix + self.ttl_ms / 1000

    def restore(self, record: StoredTask, now_unix: float) -> None:
        """Goes on from the record of an earlier run. A task that was not over is `working`."""
        self.expires_at_unix = record.expires_at_unix
        self.updated_at, self.updated_at_unix = record.updated_at, now_unix
        self.message = record.message
        self.upstream_task, self.is_remote = record.upstream_task, record.is_remote
        self.upstream_session = record.upstream_session, record.upstream_revision, record.upstream_address
        self.is_error, self.size_bytes, self.blob = record.is_error, record.size_bytes, record.blob
        if record.status not in (TaskState.WORKING, TaskState.INPUT_REQUIRED):
            self.state = record.status
            if record.outcome:
                self.outcome = Outcome(record.outcome.encode(), record.is_error)

    def touch(self, at_unix: float) -> None:
        """Sets the time of the last change, by our own clock: the server's may differ, and the times to live that
        clients see are by ours."""
        self.updated_at_unix = at_unix
        self.updated_at = format_time(at_unix)

    def describe(self, message: str) -> None:
        """Sets the status message."""
        self.message = message

    def move(self, sid: str) -> None:
        """Moves to another session of its owner."""
        self.sid = sid

    def count_for(self, sid: str) -> None:
        """Records the session in whose quota it counts."""
        self.counted_for = sid

    # --- The server's task ------------------------------------------------------------------------------------------

    def receive_handle(
        self, created: TaskFields, upstream_session: tuple[str, str, str] | None, *, ttl_max_ms: int, now_unix: float
    ) -> None:
        """Handles the handle of the server's task.

        Args:
            upstream_session: that of a server which may work on the task whatever becomes of this process.
        """
        elapsed_ms = int((now_unix - self.created_at_unix) * 1000)  # before the server made it a task
        self.ttl_ms = ttl_max_ms if created.ttl_ms is None else min(elapsed_ms + created.ttl_ms, ttl_max_ms)
        self.expires_at_unix = self.created_at_unix + self.ttl_ms / 1000
        self.upstream_task = created.id
        self.is_remote = upstream_session is not None
        self.upstream_session = upstream_session or self.upstream_session
        self.receive_status(created)

    def receive_status(self, seen: TaskFields) -> bool:
        """Takes over the poll interval and the status message of the server's task. True if the message is new."""
        if seen.poll_ms is not None:
            self.poll_ms = seen.poll_ms
        message = seen.message or ""
        if message == self.message or seen.status in TERMINAL:
            return False
        self.message = message
        return True

    # --- Questions --------------------------------------------------------------------------------------------------

    def receive_question(self, question: TaskQuestion) -> str:
        """Adds a question of the server. Returns its key, which no other question ever had."""
        self._last_key += 1
        key = f"q{self._last_key}"
        if self.state is TaskState.WORKING:
            self.step(TaskInput.ASK)
        self.questions[key] = question
        return key

    def receive_answer(self, number: int) -> bool:
        """Removes a question that was answered or withdrawn. False if it was not open."""
        key = next((key for key, wanted in self.questions.items() if wanted.number == number), None)
        if key is None:
            return False
        del self.questions[key]
        self.told.discard(number)
        if not self.questions and self.state is TaskState.INPUT_REQUIRED:
            self.step(TaskInput.ANSWER)
        return True

    def mark_told(self, number: int) -> None:
        """Records that the client is sent a question."""
        self.told.add(number)

    def tick(self) -> int:
        """Counts a progress notification for an open question. Returns their number."""
        self.ticks += 1
        return self.ticks

    # --- End --------------------------------------------------------------------------------------------------------

    def receive_outcome(self, outcome: Outcome, blob: str | None = None) -> None:
        """Takes the outcome, which is in the blob as well if there is one."""
        self.outcome, self.is_error, self.size_bytes = outcome, outcome.is_error, len(outcome.data)
        self.blob = blob or self.blob

    def release_outcome(self) -> None:
        """Frees the memory of an outcome that is in a blob."""
        if self.blob is not None:
            self.outcome = None

    def end(self, how: TaskInput, message: str, at_unix: float) -> None:
        """Ends the task by one of the three final inputs, and drops its open questions."""
        assert how in (TaskInput.RETURN, TaskInput.FAIL, TaskInput.CANCEL)
        self.step(how)
        self.questions.clear()
        self.told.clear()
        self.message = message
        self.touch(at_unix)
