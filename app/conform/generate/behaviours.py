"""Strategies of Hypothesis for what servers do to a client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hypothesis import strategies as st

from ....core.oracle import Transport
from ..script.arguments import Source, T
from ..script.behaviour import Behaviour
from ..script.client_survey import ClientSurvey
from ..script.played_tasks import OFFERED
from .deeds import Scene, kinds_for

DEEDS_MAX: Final = 4
"""Of one conversation: most faults show after one or two."""
MAYBE: Final = (False,) * 9 + (True,)


@st.composite
def behaviours(draw: st.DrawFn, surveys: Sequence[ClientSurvey]) -> Behaviour:
    """What a server may do to a client in one of the revisions it speaks."""
    survey = draw(st.sampled_from(surveys))

    def pick(values: tuple[T, ...]) -> T:
        return draw(st.sampled_from(values))

    scene, is_http = Scene(survey, pick), survey.transport is Transport.HTTP
    kinds = draw(st.lists(st.sampled_from(kinds_for(survey)), min_size=1, max_size=DEEDS_MAX))
    return Behaviour(
        survey.revision,
        tuple(deed for kind in kinds for deed in kind.make(scene)),
        survey.tools,
        pick(MAYBE),
        "" if is_http and pick(MAYBE) else "session-",
        not (is_http and pick(MAYBE)),
        _tasks(survey, pick),
    )


def _tasks(survey: ClientSurvey, pick: Source) -> int | None:
    """To a client that knows none they are offered, too, now and then: it asks for none, and so it gets none."""
    if survey.revision not in OFFERED:
        return None
    drawn: int | None = pick((1, 0, 2, None) if survey.has_tasks else (None, None, 1))
    return drawn
