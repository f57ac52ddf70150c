"""A test of somebody else's client."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.oracle import Transport
from .behaviour import Behaviour
from .client_judging import chances_of_client, judge_client
from .client_process import is_piped
from .client_survey import survey_client
from .http_stage import HttpStage
from .judging import CLIENT_RULES
from .pipe_stage import PipeStage
from .targets import ClientTarget
from .trials import Surveyed, Trial

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy


def client_trial(target: ClientTarget) -> Trial[Behaviour]:
    """A test of the client that a command starts."""
    is_pipe = is_piped(target.spec)
    stage = (PipeStage if is_pipe else HttpStage)(target.spec, target.timeout_s)
    transport = Transport.PIPE if is_pipe else Transport.HTTP

    def learn() -> Surveyed[Behaviour]:
        found = survey_client(stage, lambda: stage.words, is_http=not is_pipe, only=target.revision)

        def strategy() -> SearchStrategy[Behaviour]:
            from .behaviours import behaviours  # what it needs is needed to search only

            return behaviours(found)

        return Surveyed([each.revision for each in found], strategy)

    return Trial(
        target.spec.command[0],
        Behaviour,
        CLIENT_RULES,
        learn,
        stage,
        lambda behaviour, played: judge_client(behaviour, played, transport),
        chances_of_client,
    )
