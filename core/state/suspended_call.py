"""One call of a client without sessions whose server, which has sessions, asks something in its course.

Such a client cannot be asked: its request is answered with the questions instead (`input_required`), and it comes back
with the answers in another request, which goes on where the first one stopped. Each of these requests is a *leg* of the
call. Upstream there is one request all the time. Between two legs the call is parked: what the server asks then waits
for the next leg, and its answer is held for it.

A leg that is lost is a cancel (2026-07-28 basic/patterns/cancellation), so a round is never claimed twice by an honest
client.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final, NamedTuple

from ..base.errors import INVALID_PARAMS, RemoteProtocolError
from ..base.state_machine import Machine


class State(enum.Enum):
    RUN = "run"  # a leg waits for the server, which asks nothing
    COLLECT = "collect"  # the server asks; perhaps more comes at once
    PARKED = "parked"  # the leg was ended with the questions
    HELD = "held"  # the server has answered meanwhile
    GONE = "gone"


class Input(enum.Enum):
    ASK = "ask"
    EMPTY = "empty"  # the last question was withdrawn
    ISSUE = "issue"
    CLAIM = "claim"
    SETTLE = "settle"
    END = "end"


# An input missing from a row is illegal in that state; an empty row is terminal. What is asked while a call is parked
# changes nothing: it belongs to the next round.
TRANSITIONS: Final[dict[State, dict[Input, State]]] = {
    State.RUN: {Input.ASK: State.COLLECT, Input.SETTLE: State.GONE, Input.END: State.GONE},
    State.COLLECT: {
        Input.ISSUE: State.PARKED,
        Input.EMPTY: State.RUN,
        Input.SETTLE: State.GONE,
        Input.END: State.GONE,
    },
    State.PARKED: {Input.CLAIM: State.RUN, Input.SETTLE: State.HELD, Input.END: State.GONE},
    State.HELD: {Input.CLAIM: State.GONE, Input.END: State.GONE},
    State.GONE: {},
}


class Wanted(NamedTuple):
    """A question of the server.

    Attributes:
        number: under which it is known among the questions to this client.
        entry: the JSON of the `InputRequest`.
    """

    number: int
    method: str
    entry: bytes


class Park(Machine[State, Input]):
    """Moves along `TRANSITIONS` only.

    Attributes:
        id: names it in tokens; opaque.
        round: how many times the client was asked. A token belongs to one round.
        open: the questions that have no answer, by the keys that the client knows them by; a key is never used twice.
        outcome: the message that ends the call, in HELD.
        progress: the params of the last progress that no leg could be told.
        missed: log messages, likewise, the oldest first.
        ticks: signs of life that the server was given.
    """

    __slots__ = ("_last_key", "id", "missed", "open", "outcome", "progress", "round", "ticks")

    TRANSITIONS = TRANSITIONS

    def __init__(self, id: str) -> None:
        super().__init__(State.RUN)
        self.id = id
        self.round = 0
        self.open: dict[str, Wanted] = {}
        self.outcome: bytes | None = None
        self.progress: bytes | None = None
        self.missed: list[bytes] = []
        self.ticks = 0
        self._last_key = 0

    @property
    def has_leg(self) -> bool:
        """Whether a request of the client waits for what comes."""
        return self.state in (State.RUN, State.COLLECT)

    def receive_question(self, wanted: Wanted) -> None:
        """The server asks."""
        self._last_key += 1
        self.open[f"r{self._last_key}"] = wanted
        if self.state is State.RUN:
            self.step(Input.ASK)

    def receive_withdrawal(self, number: int) -> None:
        """The server does not want to know it any more."""
        self.open = {key: wanted for key, wanted in self.open.items() if wanted.number != number}
        if self.state is State.COLLECT and not self.open:
            self.step(Input.EMPTY)

    def issue(self) -> dict[str, bytes]:
        """The leg ends with all open questions: a new round. Returns the `inputRequests`."""
        assert self.open
        self.step(Input.ISSUE)
        self.round += 1
        return {key: wanted.entry for key, wanted in self.open.items()}

    def check_round(self, round: int) -> None:
        """Raises RemoteProtocolError where a token of that round can claim nothing."""
        if not self.may(Input.CLAIM) or round != self.round:
            raise invalid_state()

    def claim(self, round: int, responses: Mapping[str, bytes]) -> list[tuple[Wanted, bytes]]:
        """The client is back with answers of a round. Returns those that somebody waits for; keys that are not known
        any more mean nothing. Afterwards the state is COLLECT if something is still to be asked.

        Raises:
            RemoteProtocolError: the round was claimed before, or its call is under way. Nothing has changed.
        """
        self.check_round(round)
        was_held = self.state is State.HELD
        self.step(Input.CLAIM)
        if was_held:
            return []
        answered = [(self.open.pop(key), response) for key, response in responses.items() if key in self.open]
        if self.open:
            self.step(Input.ASK)
        return answered

    def settle(self, outcome: bytes) -> bool:
        """The call is over. True if `outcome` is kept for the next leg; False if there is one to give it to."""
        has_leg = self.has_leg
        self.step(Input.SETTLE)
        self.open.clear()
        if not has_leg:
            self.outcome = outcome
        return not has_leg

    def end(self) -> None:
        """Nobody comes back for it, or nobody is wanted to."""
        if self.may(Input.END):
            self.step(Input.END)
        self.open.clear()
        self.outcome = None


def invalid_state() -> RemoteProtocolError:
    """What anybody is told whose `requestState` is worth nothing: that, and not why."""
    return RemoteProtocolError(
        "Invalid or expired requestState", rpc_code=INVALID_PARAMS, data={"reason": "invalid_request_state"}
    )
