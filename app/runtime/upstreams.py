"""Connections to servers: makes the transport for each channel that the engine dials."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

import anyio

from ...core.base.budget import Budget, Share
from ...core.base.effects import Delete, Join, Listen, Post, Spawn, Target
from ...core.base.events import Cause, End
from ...core.base.ids import ChannelId
from ...core.base.limits import Limits
from ...core.base.plan import ServerPlan
from ...core.base.setting_names import SettingNames
from ...transports.base.dialer import Dialer
from ...transports.base.endpoint import Endpoint, is_websocket
from ...transports.base.port import Outlet, Port
from ...transports.base.tokens import TokensOf, UpstreamTokens
from ...transports.http_client.client import HttpClient
from ...transports.memory import MemoryServer, MemoryUpstream
from ...transports.sse.client import SseUpstream
from ...transports.stdio.server_process import Child, ChildSpec
from ...transports.unix.client import UnixAddress, UnixServer
from ..config.settings import Server
from ..disk.workspaces import Folders, Workspaces

if TYPE_CHECKING:
    from ...transports.websocket.client import SocketServer

UpstreamAddress = ChildSpec | Endpoint | UnixAddress | MemoryUpstream

_log = logging.getLogger("isthmus.hub")


class Upstreams:
    """Opens connections to all servers of a plan.

    Args:
        plans: the servers by id.
        addresses: the address of each server by id; of one that has several, all in the order of the plan.
        client: the HTTP client; must stay open as long as this is used.
        replies: bounds the messages that are arriving from all servers.
        log_server: called with (server, line) for each line that a child process writes to stderr, and for other
            messages about a server.
        protocols: as in `transports.base.driver`.
        tokens: the tokens for servers that want them, by id and principal.
    """

    def __init__(
        self,
        plans: Mapping[str, ServerPlan],
        addresses: Mapping[str, UpstreamAddress | tuple[UpstreamAddress, ...]],
        workspaces: Workspaces,
        limits: Limits,
        port: Port,
        client: HttpClient,
        replies: Budget,
        *,
        log_server: Callable[[str, str], None],
        protocols: bool | None = None,
        tokens: Mapping[str, TokensOf] = MappingProxyType({}),
    ) -> None:
        self._protocols = protocols
        self._tokens = tokens
        self._plans = plans
        self._addresses = addresses
        self._workspaces = workspaces
        self._limits = limits
        self._port = port
        self._client = client
        self._replies = replies
        self._log_server = log_server
        self._dialers: dict[Endpoint, Dialer] = {}  # of WebSocket servers, kept for their TLS context

    def reach(self, target: Target, channel: ChannelId) -> tuple[Outlet, Callable[[], Awaitable[None]] | None]:
        """Returns the writing end of a new channel, and a coroutine function to run for it, if there is one.

        Raises:
            LocalProtocolError: the request cannot be sent as HTTP. Nothing was started.
        """
        upstream = self._addresses[target.server]
        if isinstance(upstream, tuple):
            upstream = upstream[0 if isinstance(target, Spawn) else target.address]
        if isinstance(upstream, MemoryUpstream):
            server = MemoryServer(self._port)
            return server, partial(_serve_memory, upstream, server)
        if isinstance(target, Spawn):
            assert isinstance(upstream, ChildSpec)
            return self._spawn(upstream, target, channel)
        if isinstance(target, Join):
            assert isinstance(upstream, Endpoint | UnixAddress)
            joined = self._join(upstream, target, channel)
            return joined, joined.run
        assert isinstance(upstream, Endpoint)
        return self._client.dial(upstream, target, channel, self._port, tokens=self._tokens_for(target)), None

    def _tokens_for(self, target: Join | Post | Listen | Delete) -> UpstreamTokens | None:
        tokens_of = self._tokens.get(target.server)
        return None if tokens_of is None else tokens_of(target.principal)

    def _spawn(
        self, spec: ChildSpec, target: Spawn, channel: ChannelId
    ) -> tuple[Outlet, Callable[[], Awaitable[None]]]:
        has_files = self._plans[target.server].has_files
        if has_files:
            spec = _placed(spec, self._workspaces.folders(target.workspace))
        child = Child(
            spec,
            channel,
            self._port,
            self._limits,
            log=lambda line: self._log_server(target.server, line),
            share=Share(self._replies, target.server),
            protocols=self._protocols,
            names=self._plans[target.server].names,
        )
        return child, partial(self._run_child, child, channel, target.workspace) if has_files else child.run

    async def _run_child(self, child: Child, channel: ChannelId, workspace: str) -> None:
        try:
            await self._workspaces.prepare(workspace)
        except OSError as error:
            detail = f"the session's folders cannot be made: {error.strerror}"
            self._port.closed(channel, Cause(End.UNREACHABLE, detail=detail, unsent=True))
            return
        await child.run()

    def _join(
        self, endpoint: Endpoint | UnixAddress, target: Join, channel: ChannelId
    ) -> SocketServer | SseUpstream | UnixServer:
        """Returns a two-way connection: Unix socket, WebSocket, or HTTP+SSE for an http URL."""
        log, tokens = partial(self._log_server, target.server), self._tokens_for(target)
        share = Share(self._replies, target.server)
        if isinstance(endpoint, UnixAddress):
            return UnixServer(
                endpoint, channel, self._port, self._limits, log=log, share=share, protocols=self._protocols
            )
        if is_websocket(endpoint.url):
            from ...transports.websocket.client import SocketServer  # late: wsproto loads slowly

            dialer = self._dialers.get(endpoint)
            if dialer is None:
                dialer = self._dialers[endpoint] = Dialer(endpoint, endpoint.address(), self._limits)
            return SocketServer(
                dialer, endpoint, target.headers, channel, self._port, self._limits, share=share, tokens=tokens
            )
        return SseUpstream(endpoint, target, channel, self._port, self._limits, self._client, log=log, tokens=tokens)


def warn_of_unchecked(servers: Sequence[Server], names: SettingNames) -> None:
    for server in servers:
        if not server.upstream.verify_tls:
            _log.warning(
                "%s: its certificate is not checked (%s): anybody on the way can read and change what is said",
                server.id,
                names.unchecked,
            )


async def _serve_memory(upstream: MemoryUpstream, server: MemoryServer) -> None:
    try:
        await upstream.serve(server)
    except (anyio.EndOfStream, anyio.BrokenResourceError):
        pass  # the engine closed the channel
    except Exception:  # a server in our own process must not take the proxy with it
        _log.exception("a server in this process failed")
    finally:
        server.leave()


def _placed(spec: ChildSpec, folders: Folders) -> ChildSpec:
    """Puts the session's folders in place of `{ws}`, `{in}`, `{out}` and `{tmp}` in command, environment and cwd.

    Without a working directory the child runs in `{ws}`. Its TMPDIR is `{tmp}` unless the environment sets it.
    """
    return ChildSpec(
        command=tuple(folders.place(part) for part in spec.command),
        env={"TMPDIR": folders.tmp} | {name: folders.place(value) for name, value in spec.env.items()},
        cwd=folders.place(spec.cwd or "{ws}"),
        inherit_env=spec.inherit_env,
    )
