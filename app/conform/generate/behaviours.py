"""Hypothesis strategies for behaviours of servers, in tests of a client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hypothesis import strategies as st

from ....core.oracle import Transport
from ..script.arguments import Source, T
from ..script.behaviour import Behaviour
from ..script.client_survey import ClientSurvey
from ..script.simulated_tasks import OFFERED
from .deeds import DeedContext, kinds_for

DEEDS_MAX: Final = 4
"""Deeds in one behaviour: most faults show after one or two."""
MAYBE: Final = (False,) * 9 + (True,)


@st.composite
def behaviours(draw: st.DrawFn, surveys: Sequence[ClientSurvey]) -> Behaviour:
    """Draws a behaviour in one of the revisions that the client speaks."""
    survey = draw(st.sampled_from(surveys))

    def pick(values: tuple[T, ...]) -> T:
        return draw(st.sampled_from(values))

    context, is_http = DeedContext(survey, pick), survey.transport is Transport.HTTP
    kinds = draw(st.lists(st.sampled_from(kinds_for(survey)), min_size=1, max_size=DEEDS_MAX))
    return Behaviour(
        survey.revision,
        tuple(deed for kind in kinds for deed in kind.make(context)),
        survey.tools,
        pick(MAYBE),
        "" if is_http and pick(MAYBE) else "session-",
        not (is_http and pick(MAYBE)),
        _tasks(survey, pick),
    )


def _tasks(survey: ClientSurvey, pick: Source) -> int | None:
    """Draws the `tasks` of a behaviour. Sometimes offers them to a client without tasks too, which ignores them."""
    if survey.revision not in OFFERED:
        return None
    drawn: int | None = pick((1, 0, 2, None) if survey.has_tasks else (None, None, 1))
    return drawn
