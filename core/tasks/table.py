"""Which tasks there are, and what runs for them."""

from __future__ import annotations

from ..state.exchange import Exchange, Reply
from ..state.session import Session
from ..state.task import Outcome, Task


class Run:
    """A call that goes on.

    Attributes:
        leg: the request that is to be answered with the handle, until it is; and its id.
        outcome: what it came to, while that is being stored.
        message: what the server said of that.
        is_cancelled: the server has cancelled it.
        saves: how often its record is being saved before its client is told.
        created: what else the server said when it made a task of it.
    """

    __slots__ = (
        "created",
        "exchange",
        "id_raw",
        "is_cancelled",
        "leg",
        "message",
        "outcome",
        "saves",
        "session",
    )

    def __init__(self, session: Session, exchange: Exchange) -> None:
        self.session = session
        self.exchange = exchange
        self.leg: Reply | None = exchange.reply
        self.id_raw = exchange.id_raw
        self.outcome: Outcome | None = None
        self.message = ""
        self.is_cancelled = False
        self.saves = 0
        self.created: bytes | None = None


class TaskTable:
    """
    Attributes:
        tasks: all that a client was told of, or is about to be, by their ids, those that began first first.
        runs: the calls that are under way for them.
        waiters: requests that wait for something to be known of a task, oldest first.
    """

    def __init__(self) -> None:
        self.tasks: dict[str, Task] = {}
        self.runs: dict[str, Run] = {}
        self.waiters: dict[str, list[tuple[Session, Exchange]]] = {}

    def is_told(self, task: Task) -> bool:
        """Whether its client was given its id."""
        run = self.runs.get(task.id)
        return run is None or run.leg is None

    def waiter_of(self, task: Task) -> Exchange | None:
        """The latest request that waits for its outcome in the session that it runs in: its principal may wait in
        others, too, which know nothing of that one's questions and tokens."""
        run, waiting = self.runs.get(task.id), self.waiters.get(task.id, [])
        if run is None:
            return None
        found = [e for session, e in waiting if e.method == "tasks/result" and session is run.session]
        return found[-1] if found else None
