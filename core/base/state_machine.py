"""Stepping along a written transition table."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Generic, TypeVar

from .errors import LocalProtocolError


class Symbol(enum.Enum):
    """A state or an input. Members are found in tables by what they are: hashing their names takes longer than all the
    rest of a step."""

    __hash__ = object.__hash__


S = TypeVar("S", bound=enum.Enum)
I = TypeVar("I", bound=enum.Enum)  # noqa: E741


class Machine(Generic[S, I]):
    """A state that moves along `TRANSITIONS` only: an input missing from a state's row is illegal there."""

    __slots__ = ("state",)

    TRANSITIONS: Mapping[S, Mapping[I, S]]

    def __init__(self, state: S) -> None:
        self.state = state

    def may(self, wish: I) -> bool:
        """Whether the table has a row for `wish` here."""
        return wish in self.TRANSITIONS[self.state]

    def step(self, wish: I) -> None:
        """Raises LocalProtocolError where the table has no row; the state is then unchanged."""
        following = self.TRANSITIONS[self.state].get(wish)
        if following is None:
            raise LocalProtocolError(f"{type(self).__name__} is {self.state.value}: {wish.value} is not possible there")
        self.state = following

    @property
    def is_over(self) -> bool:
        """Whether the state is terminal."""
        return not self.TRANSITIONS[self.state]
