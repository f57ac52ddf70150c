"""The endpoints of a gateway, as URLs for clients."""

from __future__ import annotations

from collections.abc import Mapping

from ..config.addresses import SCHEMES, scheme_of
from ..config.profiles import default_of, profiles_of
from ..config.settings import Server, Settings
from ..gateway import Gateway


def urls(service: Gateway) -> Mapping[str, str]:
    """Returns the URL of each server and profile; a path, if only a Unix domain socket listens."""
    settings, core = service.settings, service.settings.core
    base = (core.public_base_url or service.base_url) if core.port is not None else ""
    servers = {server.id: server for server in settings.servers}
    return {
        id: f"{_base_for(servers[id], base) if id in servers else base}/mcp{suffix}"
        for id, suffix in _suffixes(settings).items()
    }


def _suffixes(settings: Settings) -> dict[str, str]:
    """Returns what stands after `/mcp` in the path of each server and profile."""
    default = default_of(settings)
    unnamed = default or (settings.servers[0].id if len(settings.servers) == 1 else "")
    ids = (*(server.id for server in settings.servers), *(profile.id for profile in profiles_of(settings)))
    return {id: "" if id == unnamed else f"/{id}" for id in ids}


def _base_for(server: Server, base_url: str) -> str:
    """Returns the base URL for clients of a server: ws:// if it is a transparent WebSocket server, else http://.

    A transparent server is spoken to in its own transport; every inspected one accepts HTTP.
    """
    is_websocket = not server.inspect and scheme_of(server.upstream.url or "") in SCHEMES["websocket"]
    return f"ws{base_url.removeprefix('http')}" if is_websocket and base_url else base_url
