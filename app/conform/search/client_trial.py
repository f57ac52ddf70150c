"""A test of somebody else's client."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from ....core.oracle import Role, Transport
from ....transports.stdio.server_process import ChildSpec
from ...config.load import ConfigError
from ...config.settings import Transport as Named
from ..script.behaviour import Behaviour
from ..script.client_survey import survey_client
from ..servers.client_process import Stage, is_piped
from ..servers.http import WAYS, HttpStage
from ..servers.stdio import PipeStage
from ..verdict.clients import chances_of_client, judge_client
from ..verdict.servers import CLIENT_RULES
from .trial import Surveyed, Trial, in_time

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy


CLIENT_ANSWER_S: Final = 10.0
"""For an answer of a client: who gives it is a program, as a rule."""


class ClientTarget(msgspec.Struct, frozen=True):
    """A client, by the command that starts it: `{url}` and `{server}` in it say where our end is.

    Attributes:
        revision: speak this one only; None: all that the client speaks.
        timeout_s: for each answer, and for each silence.
        transport: what our end speaks; "auto": stdio where `{server}` says so, else Streamable HTTP.
    """

    spec: ChildSpec
    revision: str | None = None
    timeout_s: float = CLIENT_ANSWER_S
    transport: Named = "auto"


def client_trial(target: ClientTarget) -> Trial[Behaviour]:
    """A test of the client that a command starts.

    Raises:
        ConfigError: it is told of a server on stdio, and of another transport.
    """
    stage, transport = _stage(target)

    def learn(is_late: Callable[[], bool]) -> Surveyed[Behaviour]:
        found = survey_client(in_time(stage, is_late, Role.CLIENT), stage.told, transport, only=target.revision)

        def strategy() -> SearchStrategy[Behaviour]:
            from ..generate.behaviours import behaviours  # what it needs is needed to search only

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
        chances=lambda behaviour, played: chances_of_client(behaviour, played, transport),
        size=lambda behaviour: len(behaviour.deeds),
        without=_without,
    )


def _stage(target: ClientTarget) -> tuple[Stage, Transport]:
    if not is_piped(target.spec):
        way = WAYS["streamable_http" if target.transport == "auto" else target.transport]
        return HttpStage(target.spec, target.timeout_s, way), way.transport
    if target.transport != "auto":
        raise ConfigError(f"got the transport {target.transport} with {{server}}, which is on stdio; expected {{url}}")
    return PipeStage(target.spec, target.timeout_s), Transport.PIPE


def _without(behaviour: Behaviour, index: int) -> Behaviour:
    return msgspec.structs.replace(behaviour, deeds=behaviour.deeds[:index] + behaviour.deeds[index + 1 :])
