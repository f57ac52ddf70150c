"""The table of all tasks, of the calls that run for them, and of the requests that wait for them."""

from __future__ import annotations

from ..bridge import tasks
from ..state.exchange import Exchange, Reply
from ..state.session import Session
from ..state.task import Outcome, Task


class Run:
    """A call that runs as a task.

    Attributes:
        request: the reply to answer with the handle; None once it is answered.
        id_raw: the id of that request.
        outcome: the result or error of the call, while it is being stored.
        message: the server's status message for the outcome.
        is_cancelled: the server has cancelled its task.
        is_ending: its end is being stored.
        saves: the saves of its record that are under way before its client gets the handle.
        created: an object with the `_meta` of the server's `CreateTaskResult`, which goes into ours.
    """

    __slots__ = (
        "created",
        "exchange",
        "id_raw",
        "is_cancelled",
        "is_ending",
        "message",
        "outcome",
        "request",
        "saves",
        "session",
    )

    def __init__(self, session: Session, exchange: Exchange) -> None:
        self.session = session
        self.exchange = exchange
        self.request: Reply | None = exchange.reply
        self.id_raw = exchange.id_raw
        self.outcome: Outcome | None = None
        self.message = ""
        self.is_cancelled = False
        self.is_ending = False
        self.saves = 0
        self.created: bytes | None = None

    def begin_save(self) -> None:
        """Begins a save of the record, which delays the handle."""
        self.saves += 1

    def end_save(self) -> bool:
        """Ends a save. True if it was the last under way."""
        self.saves -= 1
        return not self.saves

    def take_request(self) -> Reply:
        """Returns the reply that is answered now. It is awaited no more."""
        request, self.request = self.request, None
        assert request is not None
        return request

    def end(self) -> None:
        """Notes that the end of the task is being stored."""
        self.is_ending = True

    def receive_meta(self, meta: bytes) -> None:
        """Keeps the `_meta` of the server's `CreateTaskResult` for ours."""
        self.created = b'{"_meta":' + meta + b"}"

    def receive_outcome(self, outcome: Outcome) -> None:
        """Keeps the outcome, with the final status message of the server's task if it is one."""
        self.outcome = outcome
        upstream_task = self.exchange.upstream_task
        if upstream_task is not None and upstream_task.status in tasks.TERMINAL:
            self.message = upstream_task.message
            self.is_cancelled = upstream_task.status == "cancelled" and outcome.is_error


class TaskTable:
    """The tasks of all clients.

    Attributes:
        tasks: those whose handle a client has or is about to get, by id, oldest first.
        runs: the calls that run for them, by the id of the task.
        waiters: the client requests that wait for a task, with their sessions, by its id, oldest first.
    """

    def __init__(self) -> None:
        self.tasks: dict[str, Task] = {}
        self.runs: dict[str, Run] = {}
        self.waiters: dict[str, list[tuple[Session, Exchange]]] = {}

    def add_waiter(self, task: Task, session: Session, exchange: Exchange) -> None:
        """Lets a request wait for a task."""
        exchange.wait_for(task.id)
        self.waiters.setdefault(task.id, []).append((session, exchange))

    def remove_waiter(self, id: str, exchange: Exchange) -> list[tuple[Session, Exchange]]:
        """Removes a request that waits for a task. Returns the others."""
        kept = [entry for entry in self.waiters.pop(id) if entry[1] is not exchange]
        if kept:
            self.waiters[id] = kept
        return kept

    def is_told(self, task: Task) -> bool:
        """True if the client has been given the task's handle."""
        run = self.runs.get(task.id)
        return run is None or run.request is None

    def waiter_of(self, task: Task) -> Exchange | None:
        """Returns the latest `tasks/result` that waits in the session in which the task runs. Its principal may wait in
        other sessions too, which do not know the questions and progress tokens of that one."""
        run, waiting = self.runs.get(task.id), self.waiters.get(task.id, [])
        if run is None:
            return None
        found = [e for session, e in waiting if e.method == "tasks/result" and session is run.session]
        return found[-1] if found else None
