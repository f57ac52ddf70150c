"""What is known of a task of a server's: the other way in which a call's answer comes.

The server said, in place of an answer, that the call is a task now. Its exchange waits on, and `tasked` asks for it.
"""

from __future__ import annotations

from ..bridge.input_requests import Question


class Remote:
    """
    Attributes:
        id: the server's own name for it.
        status: what the server said last, in its own words.
        message: for people, likewise.
        poll_s: how often it wants to be asked.
        pause_s: how long the next look is put off.
        looked_at: when it was seen last.
        is_looked_at: our `tasks/get` is under way.
        is_fetched: our `tasks/result` is, which waits until the task is over.
        is_left: its server goes on with it, and is not told that nobody is here any more.
        is_overdue: it was seen to be over, so that what it is fetched as is the outcome.
        failures: looks in a row that brought nothing.
        fault: the error that `tasks/result` was answered with, while it is not known whether that is the outcome.
        open: its questions by the numbers they are known by here; those that came under a key.
        asked: the keys of all questions that it ever asked.
        answers: what its client answered, and the server has not taken yet, by key.
        sending: the keys of those that are on their way.
        number: what its progress comes under.
        requests: ours that are under way, by what they are for.
        looks: how often something new was said of it.
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
