"""Hypothesis strategies for conversations of clients, in tests of a server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hypothesis import strategies as st

from ..script.arguments import T
from ..script.steps import Conversation, Manner, Step
from ..script.survey import Survey
from .moves import Move, MoveContext, moves_for

MOVES_MAX: Final = 6
"""Moves in one conversation: most faults show after one or two, and longer ones are slower."""


@st.composite
def conversations(draw: st.DrawFn, surveys: Sequence[Survey]) -> Conversation:
    """Draws a conversation in one of the revisions that the server speaks."""
    survey = draw(st.sampled_from(surveys))

    def pick(values: tuple[T, ...]) -> T:
        return draw(st.sampled_from(values))

    manner = draw(st.sampled_from(Manner))
    context = MoveContext(survey, pick, manner)
    steps: list[Step] = []
    last: Move | None = None
    moves = draw(st.lists(st.sampled_from(moves_for(survey)), min_size=1, max_size=MOVES_MAX))
    has_handshake = not Conversation(survey.revision, ()).is_stateless
    if has_handshake:
        is_early = draw(st.sampled_from((False,) * 9 + (True,)))
        steps += [context.plain()] if is_early else []
        steps += context.greet()
        steps += [context.listen()] if survey.has_session and manner is not Manner.NONE else []
    for move in moves:
        if move.is_last:
            last = move
        else:
            steps += move.make(context)
    steps.append(context.plain())
    if last is not None:
        steps += last.make(context)
    return Conversation(survey.revision, tuple(steps), manner)
