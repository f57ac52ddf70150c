"""State machines that follow a written transition table.

A subclass sets `TRANSITIONS`: for each state a row of inputs, and for each input the next state. An input missing from
a row is illegal in that state, and a state with an empty row is terminal.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Generic, TypeVar

from .errors import LocalProtocolError


class Symbol(enum.Enum):
    """Base class of states and inputs. Members are hashed by identity: hashing their names takes longer than the rest
    of a step."""

    __hash__ = object.__hash__


S = TypeVar("S", bound=enum.Enum)
I = TypeVar("I", bound=enum.Enum)  # noqa: E741


class Machine(Generic[S, I]):
    """A state that only moves along `TRANSITIONS`."""

    __slots__ = ("state",)

    TRANSITIONS: Mapping[S, Mapping[I, S]]

    def __init__(self, state: S) -> None:
        self.state = state

    def may(self, taken: I) -> bool:
        """True if the input `taken` is legal in the current state."""
        return taken in self.TRANSITIONS[self.state]

    def step(self, taken: I) -> None:
        """Moves to the state that the input `taken` leads to.

        Raises:
            LocalProtocolError: the input is illegal in this state. The state is unchanged.
        """
        following = self.TRANSITIONS[self.state].get(taken)
        if following is None:
            raise LocalProtocolError(
                f"{type(self).__name__} is {self.state.value}: {taken.value} is not possible there"
            )
        self.state = following

    @property
    def is_over(self) -> bool:
        """True if the state is terminal."""
        return not self.TRANSITIONS[self.state]
