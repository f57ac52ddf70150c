"""One call of a client without sessions to a server that has sessions and asks questions during the call.

Such a client cannot be sent requests. Its request is answered with the questions instead (`input_required`), and it
comes back with the answers in a new request, which continues the call. Upstream there is one request all the time. Each
set of questions is a round, and the `requestState` of a round can be claimed once.

In RUN, a request of the client waits for the server's response. ASK means that the server asked, and leads to COLLECT:
for a short time (`Limits.collect_s`) further questions are awaited, so that they can be asked together. EMPTY leads
back to RUN if the server withdraws them all. ISSUE sends all open questions: the client's request is over, and the call
is WAITING, with no request to carry messages. Questions that arrive now belong to the next round, and change no state.

CLAIM means that the client came back with the token of the current round. The call is in RUN again, with the new
request, and at once in COLLECT if questions are still open.

SETTLE is the server's final response. If a request waits, it gets the response, and the call is GONE. If the call is
WAITING, the response is HELD until CLAIM gives it to the client's next request.

END closes the call in every state: the client cancelled, its time ran out, or the session ended. A lost request counts
as a cancellation (2026-07-28 basic/patterns/cancellation), so an honest client never claims a round twice.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final, NamedTuple

from ..base.errors import INVALID_PARAMS, RemoteProtocolError
from ..base.state_machine import Machine


class SuspendedCallState(enum.Enum):
    """The states of a suspended call."""

    RUN = "run"  # a request of the client waits for the server, which asks nothing
    COLLECT = "collect"  # the server asks; further questions may come at once
    WAITING = "waiting"  # the client's request was answered with the questions
    HELD = "held"  # the server has answered meanwhile; the response waits for the client
    GONE = "gone"  # the call has ended


class SuspendedCallInput(enum.Enum):
    """The inputs that move a suspended call from state to state."""

    ASK = "ask"  # the server asked
    EMPTY = "empty"  # the last open question was withdrawn
    ISSUE = "issue"  # the questions are sent to the client
    CLAIM = "claim"  # the client came back for the current round
    SETTLE = "settle"  # the server's final response came
    END = "end"  # cancelled or timed out


# An input missing from a row is illegal in that state; an empty row is terminal. WAITING has no ASK: a question that
# comes then belongs to the next round.
TRANSITIONS: Final[dict[SuspendedCallState, dict[SuspendedCallInput, SuspendedCallState]]] = {
    SuspendedCallState.RUN: {
        SuspendedCallInput.ASK: SuspendedCallState.COLLECT,
        SuspendedCallInput.SETTLE: SuspendedCallState.GONE,
        SuspendedCallInput.END: SuspendedCallState.GONE,
    },
    SuspendedCallState.COLLECT: {
        SuspendedCallInput.ISSUE: SuspendedCallState.WAITING,
        SuspendedCallInput.EMPTY: SuspendedCallState.RUN,
        SuspendedCallInput.SETTLE: SuspendedCallState.GONE,
        SuspendedCallInput.END: SuspendedCallState.GONE,
    },
    SuspendedCallState.WAITING: {
        SuspendedCallInput.CLAIM: SuspendedCallState.RUN,
        SuspendedCallInput.SETTLE: SuspendedCallState.HELD,
        SuspendedCallInput.END: SuspendedCallState.GONE,
    },
    SuspendedCallState.HELD: {
        SuspendedCallInput.CLAIM: SuspendedCallState.GONE,
        SuspendedCallInput.END: SuspendedCallState.GONE,
    },
    SuspendedCallState.GONE: {},
}


class SuspendedQuestion(NamedTuple):
    """A question of the server.

    Attributes:
        number: its number among the session's server requests.
        entry: the JSON of the `InputRequest`.
    """

    number: int
    method: str
    entry: bytes


class SuspendedCall(Machine[SuspendedCallState, SuspendedCallInput]):
    """The state of one suspended call.

    Attributes:
        id: names it in tokens; opaque.
        round: number of times that the client was asked. A token belongs to one round.
        open: the unanswered questions, by the keys under which the client knows them; a key is never used twice.
        outcome: the message that ends the call, in HELD.
        progress: the params of the latest progress that no request could carry.
        missed: log messages that no request could carry, the oldest first.
        ticks: progress notifications that the server was sent to keep it waiting.
    """

    __slots__ = ("_last_key", "id", "missed", "open", "outcome", "progress", "round", "ticks")

    TRANSITIONS = TRANSITIONS

    def __init__(self, id: str) -> None:
        super().__init__(SuspendedCallState.RUN)
        self.id = id
        self.round = 0
        self.open: dict[str, SuspendedQuestion] = {}
        self.outcome: bytes | None = None
        self.progress: bytes | None = None
        self.missed: list[bytes] = []
        self.ticks = 0
        self._last_key = 0

    @property
    def has_request(self) -> bool:
        """True if a request of the client waits for messages."""
        return self.state in (SuspendedCallState.RUN, SuspendedCallState.COLLECT)

    def receive_question(self, question: SuspendedQuestion) -> None:
        """Adds a question of the server."""
        self._last_key += 1
        self.open[f"r{self._last_key}"] = question
        if self.state is SuspendedCallState.RUN:
            self.step(SuspendedCallInput.ASK)

    def receive_withdrawal(self, number: int) -> None:
        """Drops a question that the server withdrew. Unknown numbers are ignored."""
        self.open = {key: wanted for key, wanted in self.open.items() if wanted.number != number}
        if self.state is SuspendedCallState.COLLECT and not self.open:
            self.step(SuspendedCallInput.EMPTY)

    def issue(self) -> dict[str, bytes]:
        """Begins a new round: the client's request ends with all open questions. Returns its `inputRequests`, by
        key."""
        assert self.open
        self.step(SuspendedCallInput.ISSUE)
        self.round += 1
        return {key: wanted.entry for key, wanted in self.open.items()}

    def check_round(self, round: int) -> None:
        """Checks that a token can claim `round`.

        Raises:
            RemoteProtocolError: it can not, because the call goes on with another request, has ended, or is in another
                round.
        """
        if not self.may(SuspendedCallInput.CLAIM) or round != self.round:
            raise invalid_state()

    def claim(self, round: int, responses: Mapping[str, bytes]) -> list[tuple[SuspendedQuestion, bytes]]:
        """Continues the call with the client's answers to a round. Returns the answers to questions that are still
        open; other keys are ignored. Afterwards the state is COLLECT if any question is still open.

        Raises:
            RemoteProtocolError: the round was claimed before, or its call is under way. Nothing has changed.
        """
        self.check_round(round)
        was_held = self.state is SuspendedCallState.HELD
        self.step(SuspendedCallInput.CLAIM)
        if was_held:
            return []
        answered = [(self.open.pop(key), response) for key, response in responses.items() if key in self.open]
        if self.open:
            self.step(SuspendedCallInput.ASK)
        return answered

    def refuse(self, key: str) -> None:
        """Drops a question that the client cannot be asked any more."""
        del self.open[key]

    def miss(self, message: bytes) -> None:
        """Keeps a log message for a client that is away."""
        self.missed.append(message)

    def miss_progress(self, params: bytes | None) -> None:
        """Keeps the latest progress for a client that is away."""
        self.progress = params

    def take_missed(self) -> tuple[list[bytes], bytes | None]:
        """Removes and returns the log messages and the progress that the client missed."""
        missed, self.missed = self.missed, []
        progress, self.progress = self.progress, None
        return missed, progress

    def count_tick(self) -> int:
        """Counts a progress notification to the server. Returns their number."""
        self.ticks += 1
        return self.ticks

    def settle(self, outcome: bytes) -> bool:
        """Ends the call with the server's response. True if `outcome` is kept for the client's next request; False if a
        request waits for it now."""
        has_request = self.has_request
        self.step(SuspendedCallInput.SETTLE)
        self.open.clear()
        if not has_request:
            self.outcome = outcome
        return not has_request

    def end(self) -> None:
        """Ends the call, if it has not ended, and drops its questions and its outcome."""
        if self.may(SuspendedCallInput.END):
            self.step(SuspendedCallInput.END)
        self.open.clear()
        self.outcome = None


def invalid_state() -> RemoteProtocolError:
    """Returns the error for any `requestState` that can not be used. All reasons give the same error, so that it tells
    nothing about other clients' calls."""
    return RemoteProtocolError(
        "Invalid or expired requestState", rpc_code=INVALID_PARAMS, data={"reason": "invalid_request_state"}
    )
