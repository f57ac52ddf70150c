"""The rounds of questions that a stateless server has for one request of a client with a session.

The server ended the request with its questions (`input_required`). The client is asked by requests of its own revision,
on the stream of its call, and the request is sent again with the answers. That may happen several times.

Source: 2026-07-28 basic/patterns/mrtr.
"""

from __future__ import annotations

from ..bridge.input_requests import Question


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
