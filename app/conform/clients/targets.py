"""The server under test: how to connect to it, and the scripted client that plays conversations with it."""

from __future__ import annotations

import argparse
from typing import Final, NamedTuple

from ....core.base.revisions import LATEST_LEGACY
from ....core.oracle import Transport
from ....core.oracle.observations import Head
from ....transports.base.endpoint import Endpoint
from ....transports.stdio.server_process import ChildSpec
from ...base.errors import ConfigError, Failed
from ...config.addresses import SCHEMES, scheme_of, settle
from ...config.documents import without_credentials
from ...config.option_values import environment_of, headers_of
from ...config.settings import Transport as Named
from ..script.steps import Conversation, handshake
from ..script.survey import Play
from .redaction import Redacted
from .sse import SseClient
from .stdio import StdioClient
from .streamable_http import StreamableHttpClient
from .websocket import WebSocketClient

FALLS_BACK: Final = (400, 404, 405)
"""HTTP statuses of `initialize` after which a client tries HTTP+SSE (2025-11-25 basic/transports, "Backwards
Compatibility")."""


TRANSPORTS: Final[tuple[Named, ...]] = ("auto", "streamable_http", "sse", "websocket")

ANSWER_S: Final = 20.0
"""Timeout of a response of a server, whose tools may take a while."""


class Target(NamedTuple):
    """A server under test.

    Attributes:
        name: its name in reports, without credentials.
        play: plays a conversation.
        transport: its transport; None: Streamable HTTP, or HTTP+SSE if it refuses that.
        events: plays a conversation over HTTP+SSE, if the transport is to be detected.
    """

    name: str
    play: Play
    transport: Transport | None
    events: Play | None = None

    def reach(self) -> tuple[Play, Transport]:
        """Returns the function that plays conversations, and the transport; detects it if necessary.

        Raises:
            Failed: the server cannot be reached.
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
    """Returns the server that the command line names, without connecting to it.

    Raises:
        ConfigError: the options name no server, or contradict each other.
    """
    url = options.target
    if (url is None) == (not command):
        given = "nothing" if url is None else "both a URL and a command"
        raise ConfigError(f"got {given} to test, expected a URL, or -- COMMAND ARG…")
    if url is not None:
        if options.env or options.cwd or options.inherit_env:
            raise ConfigError("got --env, --inherit-env or --cwd with a URL, expected them with a command only")
        return by_url(url, headers_of(options.header), options.timeout or ANSWER_S, options.transport)
    if options.header or options.transport != "auto":
        raise ConfigError("got --header or --transport with a command, expected them with a URL only")
    return by_command(spec_of(options, command), options.timeout or ANSWER_S)


def spec_of(options: argparse.Namespace, command: list[str]) -> ChildSpec:
    """Returns how to start the command on the command line."""
    return ChildSpec(tuple(command), environment_of(options.env), options.cwd, options.inherit_env)


def by_command(spec: ChildSpec, timeout_s: float = ANSWER_S) -> Target:
    """Returns a server on stdio, which is started for each conversation."""
    return Target(spec.command[0], StdioClient(spec, timeout_s), Transport.PIPE)


def by_url(given: str, headers: dict[str, str], timeout_s: float = ANSWER_S, transport: Named = "auto") -> Target:
    """Returns a server at a URL.

    Raises:
        ConfigError: the URL is invalid, or not one of that transport.
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
        return Target(name, Redacted(WebSocketClient(url, headers, timeout_s), headers), Transport.PIPE)
    events = Redacted(SseClient(url, headers, timeout_s), headers)
    if transport == "sse":
        return Target(name, events, Transport.EVENTS)
    is_settled = transport == "streamable_http"
    http = Redacted(StreamableHttpClient(url, headers, timeout_s), headers)
    return Target(name, http, Transport.HTTP if is_settled else None, events)
