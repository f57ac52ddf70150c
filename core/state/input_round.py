"""The rounds of questions that a stateless server has for one request of a client with a session.

The server ended the request with its questions (`input_required`). The client is asked by requests of its own revision,
on the stream of its call, and the request is sent again with the answers. That may happen several times.

Source: 2026-07-28 basic/patterns/mrtr.
"""

from __future__ import annotations

from ..bridge.input_requests import Question, retried


class InputRound:
    """The rounds of one request.

    Attributes:
        base: the params of the request as they were sent first; each retry is made from them.
        count: rounds with questions so far.
        pauses: retries in a row that had no answers to send.
        open: the questions the client was asked and has not answered, by their numbers in the session.
        answers: the answers so far, by the server's keys.
        state_raw: the server's `requestState`, to be returned unchanged.
        visits: the `elicitationId` of pages that the client agreed to visit, by the numbers of their questions.
    """

    __slots__ = ("answers", "base", "count", "open", "pauses", "state_raw", "visits")

    def __init__(self, base: bytes | None) -> None:
        self.base = base
        self.count = 0
        self.pauses = 0
        self.open: dict[int, Question] = {}
        self.answers: dict[str, bytes] = {}
        self.state_raw: bytes | None = None
        self.visits: dict[int, str] = {}

    def receive_questions(self, state_raw: bytes | None) -> None:
        """Begins to take the answers to new questions, or to none."""
        self.state_raw = state_raw
        self.answers = {}

    def begin_pause(self) -> int:
        """Counts a retry without answers. Returns how many there were in a row before it."""
        self.pauses += 1
        return self.pauses - 1

    def count_round(self) -> int:
        """Counts a round with questions. Returns how many there were."""
        self.pauses = 0
        self.count += 1
        return self.count

    def ask(self, number: int, question: Question, *, visit: str | None) -> None:
        """Records a question that the client is asked, with the `elicitationId` of the page it names, if any."""
        self.open[number] = question
        if visit is not None:
            self.visits[number] = visit

    def take(self, number: int) -> Question | None:
        """Removes and returns an open question."""
        return self.open.pop(number, None)

    def answer(self, question: Question, result: bytes) -> None:
        """Records the answer to a question."""
        self.answers[question.key] = result

    def decline_visit(self, number: int) -> None:
        """Drops a page that the client does not visit."""
        self.visits.pop(number, None)

    def take_visits(self) -> dict[int, str]:
        """Removes and returns the pages that the client agreed to visit."""
        visits, self.visits = self.visits, {}
        return visits

    def retried(self) -> bytes:
        """Returns the params of the request with the answers."""
        return retried(self.base, self.answers, self.state_raw)
