"""The screen of `serve` and `wrap`: what listens where, a row for each server, and how to connect a client."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from ...core.base.plan import Affinity
from ...core.wire.http.origin import is_loopback
from ..base.output import plain_json
from ..base.version import VERSION
from ..config.addresses import host_of
from ..config.profiles import DEFAULT, left_out, profiles_of, servers_of
from ..config.settings import Server, Settings
from ..gateway import Gateway
from ..runtime.listeners import DEFAULT_URL, is_wildcard
from ..runtime.probe import ServerReport
from .check_adapters import awaits_clients
from .endpoint_urls import urls
from .server_details import details, labelled, warned, warnings
from .server_table import WIDTH, joined, row_of, table


def listening(
    service: Gateway,
    reports: list[ServerReport],
    *,
    is_wrapped: bool,
    shown: str = "",
    token: str = "",
    workers: int = 1,
) -> str:
    """Returns the screen of a gateway that listens. Its lines have at most `WIDTH` columns, unless a URL is longer.

    Args:
        is_wrapped: the gateway is that of `isthmus wrap`, whose options switch on what is off.
        shown: the endpoint to show alone, that of all servers; "": each is shown.
        token: what callers must show, if it was made just now; "" if the operator knows it, or if nobody is asked.
        workers: the number of processes that serve.
    """
    settings = service.settings
    core = settings.core
    places = [place for place in (core.port is not None and service.base_url, core.unix_socket) if place]
    lines = [f"isthmus {VERSION} listens on {' and '.join(places)}" if places else f"isthmus {VERSION}"]
    if service.page_url:
        lines.append(f"what crosses is shown at {service.page_url}")
    if workers > 1 and places:
        lines.append(
            f"{workers} workers accept connections at {'this address' if len(places) == 1 else 'these addresses'}"
        )
    if shown and places:
        lines[:0] = _one_endpoint(service, shown)
    lines += ["", *_table(service, reports, is_shown=bool(places) and not shown), ""]
    for server, report in zip(settings.servers, reports, strict=True):
        found = _details(settings, server, report, is_wrapped=is_wrapped)
        lines += [f"  {server.id}", *found, ""] if found else []
    if places and not shown:
        lines += [*_further_endpoints(service), ""]
    pairs = list(zip(settings.servers, reports, strict=True))
    found = [*_warnings(service), *(line for pair in pairs for line in warnings(*pair))]
    lines += [*found, ""] if found else []
    if all(report.problem and not awaits_clients(server, report) for server, report in pairs):
        lines += [
            "no server works yet: fix the error and restart; each new session also tries again",
            "",
        ]
    return "\n".join([*lines, *_connecting(service, shown, token), ""])


def _one_endpoint(service: Gateway, shown: str) -> list[str]:
    settings = service.settings
    count = next((len(profile.servers) for profile in profiles_of(settings) if profile.id == shown), 0)
    what = f"one endpoint for {count} servers" if count else f"the endpoint of {shown}"
    url = f"{service.base_url if settings.core.port is not None else ''}/mcp"
    return [f"{what}: {url}", *(f"  {line}" for line in left_out(settings))]


def _table(service: Gateway, reports: list[ServerReport], *, is_shown: bool) -> list[str]:
    """Returns the table, with URLs if they fit, else with a line about them."""
    pairs, found = list(zip(service.settings.servers, reports, strict=True)), urls(service)
    if is_shown:
        lines = table([row_of(server, report, found[server.id]) for server, report in pairs], last="URL")
        if max(map(len, lines)) <= WIDTH or len(pairs) == 1:
            return lines
    lines = table([row_of(server, report) for server, report in pairs], last="")
    if not is_shown:
        return lines
    base = service.settings.core.public_base_url or service.base_url
    others = [found[server.id] for server, _ in pairs if not found[server.id].startswith(base)]
    return [*lines, "", f"each at {base}/mcp/SERVER", *(f"but at {url}" for url in others)]


def _details(settings: Settings, server: Server, report: ServerReport, *, is_wrapped: bool) -> list[str]:
    is_only = len(settings.servers) == 1
    lines = details(settings, server, report, is_only=is_only)
    if report.problem and not awaits_clients(server, report):
        occasion = "request" if report.is_transparent else "session of a client"
        lines += labelled("again", f"each {occasion} tries it again")
    if server.unix_socket is not None:
        lines += labelled("socket", f"{server.unix_socket}, as on stdio")
    if is_wrapped and (unused := off(server, report, is_only=is_only)):
        lines += labelled("off", ", ".join(unused))
    return lines


def _further_endpoints(service: Gateway) -> list[str]:
    """Returns lines for profiles, and for the other transports of each endpoint."""
    settings, found = service.settings, urls(service)
    lines = []
    for profile in profiles_of(settings):
        servers = [one.id for one in servers_of(profile)]
        head, tail = (
            ("all at one endpoint" if profile.id == DEFAULT else f"profile {profile.id}"),
            f": {found[profile.id]}",
        )
        lines.append(f"{head}{tail} ({joined(servers, WIDTH - len(head + tail) - len(' ()'))})")
    if any(server.inspect for server in settings.servers):
        lines.append("/sse or /ws in place of /mcp: the same over HTTP+SSE or WebSocket")
    return lines


def _warnings(service: Gateway) -> list[str]:
    settings, core = service.settings, service.settings.core
    found: list[str] = []
    is_open = settings.auth.anonymous == "allow" or not settings.auth.recognises
    if core.port is not None and not is_loopback(host_of(core.host)) and is_open:
        found.append(f"open to other machines, as {core.host}, and nobody is asked who they are")
    names_others = core.any_host or core.allowed_hosts or core.public_base_url
    if core.port is not None and is_wildcard(core.host) and not names_others:
        found.append(
            "other machines are refused, whatever they call this one: allow a name or an address with "
            "core.allowed_hosts (of isthmus wrap: --allow-host)"
        )
    if settings.sessions.affinity is None and service.plan.affinity is Affinity.REQUEST:
        found.append(
            "reachable from other machines: an anonymous client of revision 2026-07-28 gets a new session or process "
            "with each call, and finds nothing of its last one. To keep it, let auth say who calls, or set "
            "sessions.affinity: shared if the servers remember nothing that is private"
        )
    return [line for text in found for line in warned(text)]


def _connecting(service: Gateway, shown: str, token: str) -> list[str]:
    """Returns lines about how to connect a client; the entry for its file too, if there is one and it fits."""
    settings, core = service.settings, service.settings.core
    asks = bool(settings.auth.tokens) and settings.auth.anonymous != "allow"
    lines = []
    if token:
        lines.append(f"each caller has to show this token: Authorization: Bearer {token}")
    elif asks:
        lines.append("each caller has to show its token: Authorization: Bearer TOKEN")
    if core.port is None:
        sockets = [server.unix_socket for server in settings.servers if server.unix_socket]
        return [*lines, *(f"a client starts: {own_path()} wrap --listen stdio unix://{path}" for path in sockets)]
    found = urls(service)
    only = ("isthmus", found[shown]) if shown in found else next(iter(found.items())) if len(found) == 1 else None
    if only is not None and not asks:
        id, url = only
        pasted = "  " + plain_json(msgspec.json.encode({"mcpServers": {id: {"url": url}}}).decode())
        lines += ["for a client's configuration:", pasted] if len(pasted) <= WIDTH else []
    base = core.public_base_url or service.base_url
    place = "" if base == DEFAULT_URL else f" --url {base}"
    return [*lines, f"connect a client: isthmus connect-info cursor{place}"]


def off(server: Server, report: ServerReport, *, is_only: bool = True) -> list[str]:
    """Returns what `isthmus wrap` leaves off unless it is asked for, each with its option. `is_only`: it wraps no other
    server."""
    if report.problem or report.is_transparent:
        return []
    found = []
    if server.tasks.offer == "own" and not report.has_tasks:
        found.append(f"tasks{', should the server have none' if report.is_unasked else ''} (--tasks auto)")
    if is_only and server.auto_files is None and server.share == "none":
        found.append("files (--files)")
    return found


def own_path() -> str:
    """Returns the path of the running `isthmus`: desktop clients do not have the PATH of a virtual environment."""
    started, beside_python = Path(sys.argv[0]).absolute(), Path(sys.executable).with_name("isthmus")
    found = (str(path) for path in (started, beside_python) if path.name == "isthmus" and path.is_file())
    return next(found, "isthmus")
