"""The addresses of servers, from their settings: commands, URLs with the proxies that lead to them, and sockets."""

from __future__ import annotations

import logging
import os

from ...core.base.limits import Limits
from ...core.base.setting_names import KEYS, SettingNames
from ...core.wire.http.egress import NONE, Proxy, proxy_for
from ...core.wire.http.url import parse_url
from ...transports.base.driver import Drive
from ...transports.base.endpoint import Endpoint
from ...transports.reverse_proxy.forwarder import Forwarder, TransparentServer
from ...transports.stdio.server_process import ChildSpec
from ...transports.unix.client import UnixAddress
from ..base.errors import StartError
from ..config.addresses import unix_path
from ..config.plan import to_forward_target, to_header_rules
from ..config.settings import Server, Settings

_log = logging.getLogger("isthmus.server")


def upstreams_of(server: Server, names: SettingNames = KEYS) -> tuple[ChildSpec | Endpoint | UnixAddress, ...]:
    """Returns the addresses of a server, in the order of its plan."""
    upstream = server.upstream
    if upstream.command is not None:
        return (ChildSpec(upstream.command, dict(upstream.env), upstream.cwd, upstream.inherit_env),)
    return tuple(upstream_at(server, url, names) for url in upstream.all_urls)


def upstream_at(server: Server, url: str, names: SettingNames = KEYS) -> Endpoint | UnixAddress:
    """Returns one of the addresses of a server. The proxy is chosen for each."""
    upstream = server.upstream
    path = unix_path(url)
    if path is not None:
        return UnixAddress(path)
    headers = tuple(upstream.headers.items())
    return Endpoint(
        url,
        headers,
        verify_tls=upstream.verify_tls,
        ca_file=upstream.ca_file,
        proxy=_proxy_of(server, url, names),
        names=names,
    )


def _proxy_of(server: Server, url: str, names: SettingNames) -> Proxy | None:
    """Returns the proxy that leads to a server; None if there is none.

    Raises:
        StartError: the setting or the environment names a proxy that cannot be used.
    """
    try:
        proxy = proxy_for(parse_url(url), server.upstream.proxy, names.proxy, os.environ)
    except ValueError as error:
        exempt = f"or except this server: {names.proxy} {NONE}, or its host in NO_PROXY"
        raise StartError(f"{server.id}: {error}; {exempt}") from None
    if proxy is not None:
        _log.info("%s is reached through the proxy %s, which %s names", server.id, proxy.where, proxy.source)
    return proxy


def forwarder_for(settings: Settings, link_key: bytes, limits: Limits, names: SettingNames, drive: Drive) -> Forwarder:
    """Returns what forwards the requests for transparent servers."""
    servers = {}
    for server in settings.servers:
        if not server.inspect:
            (endpoint,) = upstreams_of(server, names)
            assert isinstance(endpoint, Endpoint)
            target, rules = to_forward_target(settings, server, link_key), to_header_rules(server)
            servers[server.id] = TransparentServer(endpoint, target, rules, reply_timeout_s=server.call_timeout_seconds)
    return Forwarder(servers, limits, drive)
