"""A test of somebody else's client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from ...core.oracle import Role, Transport
from ...transports.stdio import ChildSpec
from .behaviour import Behaviour
from .client_judging import chances_of_client, judge_client
from .client_process import is_piped
from .client_survey import survey_client
from .http_stage import HttpStage
from .judging import CLIENT_RULES
from .pipe_stage import PipeStage
from .trials import Surveyed, Trial

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy


CLIENT_ANSWER_S: Final = 10.0
"""For an answer of a client: who gives it is a program, as a rule."""


class ClientTarget(msgspec.Struct, frozen=True):
    """A client, by the command that starts it: `{url}` and `{server}` in it say where our end is.

    Attributes:
        revision: speak this one only; None: all that the client speaks.
        timeout_s: for each answer, and for each silence.
    """

    spec: ChildSpec
    revision: str | None = None
    timeout_s: float = CLIENT_ANSWER_S


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
        target=target.spec.command[0],
        role=Role.CLIENT,
        kind=Behaviour,
        rules=CLIENT_RULES,
        survey=learn,
        play=stage,
        judge=lambda behaviour, played: judge_client(behaviour, played, transport),
        chances=chances_of_client,
        size=lambda behaviour: len(behaviour.deeds),
        without=_without,
    )


def _without(behaviour: Behaviour, index: int) -> Behaviour:
    return msgspec.structs.replace(behaviour, deeds=behaviour.deeds[:index] + behaviour.deeds[index + 1 :])
