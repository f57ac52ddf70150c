"""A task of a server, which answers a call in place of a plain result.

The server responded to the call with a task handle. The call's exchange stays open, and `upstream_tasks` fetches the
outcome.
"""

from __future__ import annotations

from ..bridge.input_requests import Question


class UpstreamTask:
    """The state of a server's task, as far as it is known.

    Attributes:
        id: the server's own name for it.
        status: the latest status, in the server's words.
        message: the latest status message, for people.
        poll_s: the poll interval that the server suggests, in seconds.
        pause_s: the pause before the next poll, in seconds.
        looked_at: time of the latest status.
        is_looked_at: our `tasks/get` is under way.
        is_fetched: our `tasks/result` is under way, which the server answers when the task is over.
        is_left: the server goes on with it, and is not told that this process stops waiting.
        is_overdue: its status was final, so the response to `tasks/result` is the outcome.
        failures: polls in a row that brought nothing.
        fault: the error that `tasks/result` was answered with, while it is not known if that is the outcome.
        open: its open questions that came under a key, by their numbers in the session.
        asked: the keys of all questions that it ever asked.
        answers: the client's answers that the server has not taken yet, by key.
        sending: the keys of the answers that are being sent.
        number: the number under which its progress comes.
        requests: our requests about it that are under way, as numbers by purpose.
        looks: status messages reported to the client as progress so far.
    """

    __slots__ = (
        "answers",
        "asked",
        "failures",
        "fault",
        "id",
        "is_fetched",
        "is_left",
        "is_looked_at",
        "is_overdue",
        "looked_at",
        "looks",
        "message",
        "number",
        "open",
        "pause_s",
        "poll_s",
        "requests",
        "sending",
        "status",
    )

    def __init__(self, id: str, *, poll_s: float, status: str, message: str, now: float) -> None:
        self.id = id
        self.status = status
        self.message = message
        self.poll_s = self.pause_s = poll_s
        self.looked_at = now
        self.is_looked_at = False
        self.is_fetched = False
        self.is_left = False
        self.is_overdue = False
        self.number: int | None = None
        self.requests: dict[str, int] = {}
        self.failures = 0
        self.fault: bytes | None = None
        self.open: dict[int, Question] = {}
        self.asked: set[str] = set()
        self.answers: dict[str, bytes] = {}
        self.sending: set[str] = set()
        self.looks = 0

    def leave(self) -> None:
        """Leaves the task to its server, which is not told that this process stops waiting."""
        self.is_left = True

    def receive_sent(self, purpose: str, number: int) -> None:
        """Records a request about the task that was sent."""
        self.requests[purpose] = number
