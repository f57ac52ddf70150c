"""What a server without sessions wants to know before it answers a request of a client that has one.

The server ended the request with its questions (`input_required`); the client is asked them as its own revision has it,
by requests on the stream of its call, and the request is sent again with the answers. That may happen several times.

Source: 2026-07-28 basic/patterns/mrtr.
"""

from __future__ import annotations

from ..bridge.input_requests import Question


class Round:
    """
    Attributes:
        base: the params of the request as they were sent first: each retry is made of them.
        count: rounds with questions so far.
        pauses: retries in a row that had nothing to say.
        open: the questions the client was asked, by their numbers among all it was asked.
        answers: what is known by now, by the keys of the server.
        state_raw: the server's own note, to be given back as it is.
        visits: the questions about pages to visit, that the client agreed to, by `elicitationId`.
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
