"""A task of a server, which answers a call in place of a plain result.

The server responded to the call with a task handle. The call's exchange stays open, and `upstream_tasks` fetches the
outcome.
"""

from __future__ import annotations

from ..bridge.input_requests import Question
from ..bridge.tasks import TERMINAL


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

    def __init__(
        self, id: str, *, poll_s: float, status: str, message: str, now: float, number: int | None = None
    ) -> None:
        self.id = id
        self.status = status
        self.message = message
        self.poll_s = self.pause_s = poll_s
        self.looked_at = now
        self.is_looked_at = False
        self.is_fetched = False
        self.is_left = False
        self.is_overdue = False
        self.number = number
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

    # --- Polls ------------------------------------------------------------------------------------------------------

    def begin_look(self) -> None:
        """Begins a `tasks/get`."""
        self.is_looked_at = True

    def end_look(self) -> None:
        """Ends it: it has a response."""
        self.is_looked_at = False

    def begin_fetch(self) -> None:
        """Begins a `tasks/result`."""
        self.is_fetched = True

    def end_fetch(self) -> None:
        """Ends it: it has a response, is lost or is given up."""
        self.is_fetched = False

    def give_up(self, purpose: str) -> int | None:
        """Removes the request of that purpose. Returns its number; None if there is none."""
        return self.requests.pop(purpose, None)

    def hurry(self) -> None:
        """Sets the pause back to the server's poll interval."""
        self.pause_s = self.poll_s

    def take_pause(self, growth: float, *, min_s: float = 0.0, max_s: float) -> float:
        """Returns the pause before the next poll, `min_s` at least. The one after grows by that factor, up to
        `max_s`."""
        pause_s = max(self.pause_s, min_s)
        self.pause_s = min(pause_s * growth, max_s)
        return pause_s

    def receive_state(self, status: str, message: str, poll_s: float | None, now: float) -> bool:
        """Handles the state that the server sent. True if the status or its message is new."""
        self.failures = 0
        self.looked_at = now
        if poll_s is not None and poll_s != self.poll_s:  # else the pauses could not grow while no client waits
            self.pause_s, self.poll_s = min(self.pause_s, poll_s), poll_s
        if status not in TERMINAL:
            self.fault = None  # `tasks/result` had that error because it came too early
        is_new = (status, message) != (self.status, self.message)
        self.status, self.message = status, message
        return is_new

    def receive_failure(self, now: float) -> None:
        """Handles a poll that brought nothing."""
        self.is_looked_at = False
        self.failures += 1
        self.looked_at = now

    def receive_fault(self, fault: bytes) -> None:
        """Keeps the error that `tasks/result` was answered with, until the next poll tells if it is the outcome."""
        self.fault = fault

    def receive_final(self) -> None:
        """Records that its status was final."""
        self.is_overdue = True

    def count_look(self) -> int:
        """Counts a status message that is reported as progress. Returns their number."""
        self.looks += 1
        return self.looks

    # --- Questions --------------------------------------------------------------------------------------------------

    def mark_asked(self, key: str) -> None:
        """Records a question, which is asked once."""
        self.asked.add(key)

    def add_question(self, number: int, question: Question) -> None:
        """Adds a question that the client is asked under that number."""
        self.open[number] = question

    def take_question(self, number: int) -> Question | None:
        """Removes and returns an open question that was answered or withdrawn."""
        return self.open.pop(number, None)

    def receive_answer(self, key: str, result: bytes) -> None:
        """Keeps an answer until the server has taken it. The next poll is due soon."""
        self.answers[key] = result
        self.hurry()

    def take_unsent(self) -> list[tuple[str, bytes]]:
        """Returns the answers that are to be sent now, by key."""
        unsent = [(key, result) for key, result in self.answers.items() if key not in self.sending]
        self.sending.update(self.answers)
        return unsent

    def receive_taken(self, key: str) -> None:
        """Handles an answer that the server has taken."""
        self.answers.pop(key, None)
        self.sending.discard(key)

    def receive_unsent(self, key: str) -> None:
        """Handles an answer that was lost on its way."""
        self.sending.discard(key)

    # --- Ends -------------------------------------------------------------------------------------------------------

    def receive_lost(self) -> None:
        """Handles the loss of the server, and of all requests under way."""
        self.is_looked_at = self.is_fetched = False
        self.sending.clear()

    def end(self) -> None:
        """Ends the task: nothing is asked or answered any more."""
        self.is_looked_at = self.is_fetched = False
        self.open.clear()
        self.answers.clear()
