"""What is tested: how it is reached, and what plays conversations with it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final, NamedTuple

from ....core.base.revisions import LATEST_LEGACY
from ....core.oracle import Transport
from ....core.oracle.observations import Head
from ....transports.base.endpoint import Endpoint
from ....transports.stdio.server_process import ChildSpec
from ...base.errors import Failed
from ...config.addresses import SCHEMES, scheme_of, settle
from ...config.documents import without_credentials
from ...config.load import ConfigError
from ...config.settings import Transport as Named
from ..script.steps import Conversation, handshake
from ..script.survey import Play
from .sse import EventsPlayer
from .stdio import PipePlayer
from .streamable_http import HttpPlayer
from .websocket import WebSocketPlayer

FALLS_BACK: Final = (400, 404, 405)
"""Statuses of an `initialize` after which a server may have HTTP+SSE (2025-11-25 basic/transports, "Backwards
Compatibility")."""


TRANSPORTS: Final[tuple[Named, ...]] = ("auto", "streamable_http", "sse", "websocket")

ANSWER_S: Final = 20.0
"""For an answer of a server, whose tools may take a while."""


class Target(NamedTuple):
    """A server.

    Attributes:
        name: what it is called in reports, without credentials.
        transport: what it speaks; None: Streamable HTTP, or HTTP+SSE if it refuses that.
        events: plays over HTTP+SSE, where that is to be found out.
    """

    name: str
    play: Play
    transport: Transport | None
    events: Play | None = None

    def reach(self) -> tuple[Play, Transport]:
        """What plays conversations, and over what.

        Raises:
            Failed: it cannot be reached.
        """
        if self.transport is not None:
            return self.play, self.transport
        assert self.events is not None
        begin = Conversation(LATEST_LEGACY, handshake(LATEST_LEGACY)[:1])
        heads = [seen for _, seen in self.play(begin).seen if isinstance(seen, Head)]
        if heads and heads[0].status in FALLS_BACK:
            try:
                self.events(begin)
            except Failed:
                pass
            else:
                return self.events, Transport.EVENTS
        return self.play, Transport.HTTP


def target_of(options: argparse.Namespace, command: list[str]) -> Target:
    """What the command line names. Nothing is done yet.

    Raises:
        ConfigError: it names nothing that can be tested.
    """
    url = options.target
    if (url is None) == (not command):
        said = "nothing" if url is None else "both a URL and a command"
        raise ConfigError(f"got {said} to test, expected a URL, or -- COMMAND ARG…")
    if url is not None:
        if options.env or options.cwd or options.inherit_env:
            raise ConfigError("got --env, --inherit-env or --cwd with a URL, expected them with a command only")
        return by_url(url, pairs(options.header, ":", "--header"), options.timeout or ANSWER_S, options.transport)
    if options.header or options.transport != "auto":
        raise ConfigError("got --header or --transport with a command, expected them with a URL only")
    return by_command(spec_of(options, command), options.timeout or ANSWER_S)


def spec_of(options: argparse.Namespace, command: list[str]) -> ChildSpec:
    """How to start the command of a command line."""
    return ChildSpec(tuple(command), pairs(options.env, "=", "--env"), options.cwd, options.inherit_env)


def by_command(spec: ChildSpec, timeout_s: float = ANSWER_S) -> Target:
    """A server that is started for each conversation."""
    return Target(spec.command[0], PipePlayer(spec, timeout_s), Transport.PIPE)


def by_url(given: str, headers: dict[str, str], timeout_s: float = ANSWER_S, transport: Named = "auto") -> Target:
    """A server that listens somewhere.

    Raises:
        ConfigError: the URL is none, or none of that transport.
    """
    schemes = [scheme for scheme in SCHEMES[transport] if scheme not in SCHEMES["unix"]]
    if scheme_of(given) not in schemes:
        expected = " or ".join(f"{scheme}://…" for scheme in schemes)
        raise ConfigError(f"got the URL {without_credentials(given)}, expected {expected}, or -- COMMAND ARG…")
    url, transport = settle(given, transport)
    try:
        Endpoint(url, tuple(headers.items()))
    except ValueError as error:
        raise ConfigError(str(error)) from error
    name = without_credentials(given)
    if transport == "websocket":
        return Target(name, WebSocketPlayer(url, headers, timeout_s), Transport.PIPE)
    events = EventsPlayer(url, headers, timeout_s)
    if transport == "sse":
        return Target(name, events, Transport.EVENTS)
    is_settled = transport == "streamable_http"
    return Target(name, HttpPlayer(url, headers, timeout_s), Transport.HTTP if is_settled else None, events)


def pairs(texts: Sequence[str], separator: str, option: str) -> dict[str, str]:
    """What a text says is not repeated: it may be a secret."""
    pairs = [text.partition(separator) for text in texts]
    if not all(found and name.strip() for name, found, _ in pairs):
        raise ConfigError(f"got {option} without a name and a {separator}")
    return {name.strip(): value.strip() for name, _, value in pairs}
