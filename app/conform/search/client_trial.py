"""Trials of a client."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from ....core.oracle import Role, Transport
from ....transports.stdio.server_process import ChildSpec
from ...base.errors import ConfigError
from ...config.settings import Transport as Named
from ..script.behaviour import Behaviour
from ..script.client_survey import survey_client
from ..servers.client_process import ClientRunner, is_piped
from ..servers.http import URL_TRANSPORTS, HttpClientRunner
from ..servers.stdio import PipeClientRunner
from ..verdict.clients import chances_of_client, judge_client
from ..verdict.servers import CLIENT_RULES
from .trial import Surveyed, Trial, in_time

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy


CLIENT_ANSWER_S: Final = 10.0
"""Timeout of a response of a client: a program gives it, as a rule, and not a person."""


class ClientTarget(msgspec.Struct, frozen=True):
    """A client under test.

    Attributes:
        spec: the command that starts it, in which `{url}` or `{server}` stands for our server.
        revision: speak this one only; None: all that the client speaks.
        timeout_s: timeout of each response, and of each silence.
        transport: the transport of our server; "auto": stdio if the command has `{server}`, else Streamable HTTP.
    """

    spec: ChildSpec
    revision: str | None = None
    timeout_s: float = CLIENT_ANSWER_S
    transport: Named = "auto"


def client_trial(target: ClientTarget) -> Trial[Behaviour]:
    """Returns the trial of a client.

    Raises:
        ConfigError: the command has `{server}`, which is on stdio, and another transport is given.
    """
    runner, transport = _runner(target)

    def learn(is_late: Callable[[], bool]) -> Surveyed[Behaviour]:
        found = survey_client(in_time(runner, is_late, Role.CLIENT), runner.told, transport, only=target.revision)

        def strategy() -> SearchStrategy[Behaviour]:
            from ..generate.behaviours import behaviours  # late: a replay does not need Hypothesis

            return behaviours(found)

        return Surveyed([each.revision for each in found], strategy)

    return Trial(
        target=target.spec.command[0],
        role=Role.CLIENT,
        kind=Behaviour,
        rules=CLIENT_RULES,
        survey=learn,
        play=runner,
        judge=lambda behaviour, played: judge_client(behaviour, played, transport),
        chances=lambda behaviour, played: chances_of_client(behaviour, played, transport),
        size=lambda behaviour: len(behaviour.deeds),
        without=_without,
    )


def _runner(target: ClientTarget) -> tuple[ClientRunner, Transport]:
    if not is_piped(target.spec):
        url_transport = URL_TRANSPORTS["streamable_http" if target.transport == "auto" else target.transport]
        return HttpClientRunner(target.spec, target.timeout_s, url_transport), url_transport.transport
    if target.transport != "auto":
        raise ConfigError(f"got the transport {target.transport} with {{server}}, which is on stdio; expected {{url}}")
    return PipeClientRunner(target.spec, target.timeout_s), Transport.PIPE


def _without(behaviour: Behaviour, index: int) -> Behaviour:
    return msgspec.structs.replace(behaviour, deeds=behaviour.deeds[:index] + behaviour.deeds[index + 1 :])
