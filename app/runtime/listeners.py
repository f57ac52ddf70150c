"""The listening sockets of the proxy, and the `Surface` that HTTP requests are checked against."""

from __future__ import annotations

import errno
import functools
import ipaddress
import logging
import socket
from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import urlsplit

import anyio
import msgspec
from anyio.streams.stapled import MultiListener

from ...core.access.gate import Gate
from ...core.base.events import PipeOpening
from ...core.base.limits import Limits
from ...core.base.setting_names import KEYS, SettingNames
from ...core.wire.http.admin_routes import Management
from ...core.wire.http.reverse_proxy_target import ForwardTarget
from ...core.wire.http.routes import Surface
from ...core.wire.http.url import DEFAULT_PORTS
from ...transports.tls.server import ServerTls
from ...transports.unix.listener import LineListener, http_listener
from ..base.errors import StartError
from ..config.access import to_rules, to_trusted_proxies
from ..config.addresses import host_of, is_for_this_machine
from ..config.plan import to_tracing
from ..config.profiles import default_of, headers_of, profiles_of, servers_of
from ..config.settings import Settings
from .hub import Hub
from .port_holder import isthmus_at
from .token_files import Place

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
PASSED_AREAS = frozenset({"mcp", "messages", "upload", "pages"})
"""The areas whose requests replicas pass on to each other, and the health pages."""

DEFAULT_URL: Final = "http://127.0.0.1:8932"
"""The URL of the port, unless the settings have another."""

_log = logging.getLogger("isthmus.server")


HttpListener = tuple[anyio.abc.Listener[anyio.abc.SocketStream], ServerTls | None]
"""A listener for HTTP, and the TLS that its clients have to speak."""


async def open_listeners(settings: Settings, tls: ServerTls | None) -> tuple[list[HttpListener], str]:
    """Opens the HTTP listeners. Returns them and the base URL.

    Args:
        tls: that of the port; None: it speaks plain HTTP.

    Raises:
        StartError: the address is taken or may not be used.
    """
    path, port = settings.core.unix_socket, settings.core.port
    listeners: list[HttpListener] = []
    base_url = "http://localhost"
    if port is not None:
        listener = await port_listener(settings, port)
        base_url = base_url_of(settings, listener.extra(anyio.abc.SocketAttribute.local_port))
        listeners.append((listener, tls))
    if path is not None:
        try:
            listeners.append((await http_listener(path), None))
        except OSError as error:
            raise StartError(f"cannot listen on {path}: {error.strerror or error}") from error
    return listeners, base_url


async def open_page_listener(where: str, *, may_move: bool) -> anyio.abc.Listener[anyio.abc.SocketStream]:
    """Opens the listener of the live page, at `HOST:PORT`.

    Args:
        may_move: it takes a free port if this one is taken.

    Raises:
        StartError: the address is taken or may not be used.
    """
    host, _, port = where.rpartition(":")
    try:
        return await anyio.create_tcp_listener(local_host=host.strip("[]"), local_port=int(port))
    except OSError as error:
        inner = error.__cause__ if isinstance(error.__cause__, OSError) else error
        if may_move and inner.errno == errno.EADDRINUSE and int(port):
            return await open_page_listener(f"{host}:0", may_move=False)
        why = inner.strerror or str(inner)
        raise StartError(f"cannot listen on {where} for the live page (ui.listen, --ui-listen): {why}") from error


def host_and_port_of(listener: anyio.abc.Listener[anyio.abc.SocketStream]) -> str:
    """Returns the `HOST:PORT` of a listener."""
    host, port = listener.extra(anyio.abc.SocketAttribute.raw_socket).getsockname()[:2]
    return f"{host_of(host)}:{port}"


def places_of(listeners: list[HttpListener]) -> list[Place]:
    """Returns the addresses of listeners."""
    found = []
    for listener, _ in listeners:
        for each in listener.listeners if isinstance(listener, MultiListener) else [listener]:
            found.append(place_of(each.extra(anyio.abc.SocketAttribute.raw_socket)))
    return found


def place_of(listening: socket.socket) -> Place:
    """Returns the address of a listening socket."""
    address = listening.getsockname()
    return address if isinstance(address, str) else (address[0], address[1])


def line_listener(
    server: str, path: str, hub: Hub, limits: Limits, gate: Gate | None, listening: socket.socket | None = None
) -> LineListener:
    """Returns the listener of one server on a Unix socket, with a JSON message a line.

    Args:
        listening: its socket; None: it is opened.

    Raises:
        StartError: the socket cannot be opened.
    """
    try:
        return LineListener(
            path,
            hub,
            PipeOpening(server=server),
            limits,
            listening=listening,
            gate=gate,
            wait_answered=hub.wait_answered,
            log=functools.partial(_log.warning, "%s: %s", path),
            protocols=hub.drive.protocols,
        )
    except OSError as error:
        raise StartError(f"cannot listen on {path}: {error.strerror or error}") from error


async def port_listener(settings: Settings, port: int) -> MultiListener[anyio.abc.SocketStream]:
    """Opens the listener of the port, with a socket for each address of the host.

    Raises:
        StartError: the address is taken or may not be used.
    """
    host = settings.core.host
    try:
        return await anyio.create_tcp_listener(local_host=host, local_port=port)
    except OSError as error:
        raise StartError(await _why_not_listening(host, port, error)) from error


def base_url_of(settings: Settings, port: int) -> str:
    """Returns the base URL of the port that is listened on."""
    host = settings.core.host
    shown = "127.0.0.1" if is_wildcard(host) else host
    scheme = "http" if settings.core.tls is None else "https"
    return f"{scheme}://{f'[{shown}]' if ':' in shown else shown}:{port}"


async def _why_not_listening(host: str, port: int, error: OSError) -> str:
    inner = error.__cause__ if isinstance(error.__cause__, OSError) else error
    if errno.EADDRINUSE in (error.errno, inner.errno) or "in use" in str(error):
        version = await isthmus_at("127.0.0.1" if is_wildcard(host) else host, port)
        holder = f"another isthmus ({version})" if version else "another program"
        return (
            f"port {port} on {host} is taken by {holder}: choose another one with --port N, or --port 0 for a free one"
        )
    if errno.EACCES in (error.errno, inner.errno):
        return f"port {port} may not be opened by this user: choose one above 1023"
    return f"cannot listen on {host}:{port}: {error.strerror or error}"


def is_wildcard(host: str) -> bool:
    """True if the address stands for every interface."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def surface_of(
    settings: Settings,
    transparent: Mapping[str, ForwardTarget] | None = None,
    names: SettingNames = KEYS,
    *,
    local_token: str | None = None,
    base_url: str = "",
) -> Surface:
    """Returns what the HTTP listeners offer.

    Args:
        local_token: opens the pages of operators on this machine; None: there is none.
        base_url: the URL of the port.
    """
    core = settings.core
    hosts = {*LOOPBACK_NAMES, *map(host_of, core.allowed_hosts)}
    if not is_wildcard(core.host):
        hosts.add(host_of(core.host))
    if core.public_base_url:
        hosts.add(host_of(urlsplit(core.public_base_url).hostname or ""))
    aliases = {server.further_path: f"/mcp/{server.id}" for server in settings.servers if server.further_path}
    if core.further_upload_path:
        aliases |= {f"{core.further_upload_path}/{server.id}": f"/upload/{server.id}" for server in settings.servers}
    return Surface(
        servers=tuple(server.id for server in settings.servers),
        profiles={profile.id: tuple(server.id for server in servers_of(profile)) for profile in profiles_of(settings)},
        default=default_of(settings),
        hosts=frozenset(hosts),
        origins=frozenset(origin.lower() for origin in core.allowed_origins),
        any_host=core.any_host,
        public_origin=_origin_of(core.public_base_url) if core.public_base_url else "",
        prefix=urlsplit(core.public_base_url or "").path.rstrip("/"),
        management=management_of(settings, local_token, base_url),
        transparent=dict(transparent or {}),
        upload_size_max_bytes=settings.uploads.max_file_bytes,
        passes={endpoint: passes for endpoint, passes in _passes(settings) if passes},
        required={server.id: server.required_headers for server in settings.servers if server.required_headers},
        access={server.id: rules for server in settings.servers if (rules := to_rules(server.access)) is not None},
        aliases=aliases,
        names=names,
        trusted_proxies=to_trusted_proxies(core),
        reads_traces=to_tracing(settings.telemetry) is not None,
    )


def internal_surface(surface: Surface) -> Surface:
    """Returns the surface of the listener for other replicas, which have checked the host names themselves."""
    servers = tuple(id for id in surface.servers if id not in surface.transparent)
    return msgspec.structs.replace(
        surface, servers=servers, any_host=True, transparent={}, management=None, areas=PASSED_AREAS
    )


def _passes(settings: Settings) -> Iterator[tuple[str, tuple[tuple[str, str], ...]]]:
    yield from ((server.id, server.upstream.passes) for server in settings.servers)
    yield from ((profile.id, headers_of(profile, settings)) for profile in profiles_of(settings))


def _origin_of(url: str) -> str:
    parts = urlsplit(url)
    port = "" if parts.port in (None, DEFAULT_PORTS[parts.scheme]) else f":{parts.port}"
    return f"{parts.scheme}://{host_of(parts.hostname or '')}{port}"


def management_of(settings: Settings, local_token: str | None, base_url: str) -> Management | None:
    """Returns the rule of the pages for operators; None: nobody may use them.

    Without a configured token, only a listener for this machine offers them, or one whose callers are recognised.

    Args:
        local_token: that of this gateway, if there is one.
        base_url: the URL of the port, for which a command prints the token.
    """
    core = settings.core
    if not core.management.enabled:
        return None
    if core.management.token is not None:
        return Management.with_token(core.management.token)
    if local_token is not None:
        place = f" unix:{core.unix_socket}" if core.port is None else "" if base_url == DEFAULT_URL else f" {base_url}"
        expected = f"the token that this command prints to the user who runs this isthmus: isthmus token show{place}"
        return Management.with_local_token(local_token, expected)
    is_local = is_for_this_machine(core)
    return Management(is_local=is_local) if is_local or settings.auth.recognises else None
