"""A test of somebody else's server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.oracle import Transport
from ...transports.http_endpoint import Endpoint
from ..config import ConfigError
from ..documents import without_credentials
from ..errors import Failed
from .http_player import HttpPlayer
from .judging import SERVER_RULES, chances, judge
from .pipe_player import PipePlayer
from .steps import REVISIONS, Conversation
from .survey import Play, survey
from .targets import ServerTarget
from .trials import Surveyed, Trial

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy


def server_trial(target: ServerTarget) -> Trial[Conversation]:
    """Raises:
    ConfigError: the URL is none.
    """
    play, transport, name = _player(target)

    def learn() -> Surveyed[Conversation]:
        is_http = transport is Transport.HTTP
        found = survey(play, is_http=is_http, is_safe=target.is_safe, only=target.revision)
        if not found:
            raise Failed(f"the server speaks none of {target.revision or ', '.join(REVISIONS)}")

        def strategy() -> SearchStrategy[Conversation]:
            from .conversations import conversations  # what it needs is needed to search only

            return conversations(found)

        return Surveyed([each.revision for each in found], strategy)

    return Trial(
        name,
        Conversation,
        SERVER_RULES,
        learn,
        play,
        lambda conversation, played: judge(conversation, played, transport),
        chances,
    )


def _player(target: ServerTarget) -> tuple[Play, Transport, str]:
    url = target.url
    if url is None:
        return PipePlayer(target.spec, target.timeout_s), Transport.PIPE, target.spec.command[0]
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"got the URL {without_credentials(url)}, expected http(s)://…, or -- COMMAND ARG…")
    try:
        Endpoint(url, tuple(target.headers.items()))
    except ValueError as error:
        raise ConfigError(str(error)) from error
    return HttpPlayer(url, target.headers, target.timeout_s), Transport.HTTP, without_credentials(url)
