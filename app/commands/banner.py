"""The text printed on start: listening addresses, servers, and the lines to paste into a client's configuration."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from ...core.base.plan import Affinity
from ...core.wire.http.origin import is_loopback
from ..base.output import plain as _plain
from ..base.output import plain_json, short
from ..base.version import VERSION
from ..config.addresses import SCHEMES, host_of, scheme_of
from ..config.documents import without_credentials
from ..config.plan import to_rate_limits
from ..config.profiles import default_of, left_out, profiles_of, servers_of
from ..config.settings import Server, Settings, Transport
from ..gateway import Gateway
from ..runtime.listeners import is_wildcard
from ..runtime.probe import ServerReport
from .check_adapters import awaits_clients, misfits, own_tools, visible_tools
from .describe_files import file_lines

TOOLS_SHOWN = 12

_SHOWN: Final[Mapping[Transport | None, str]] = {"sse": "sse", "websocket": "websocket", "unix": "unix"}
"""Names shown for transports of a URL; any other transport is shown as http."""


def listening(
    service: Gateway, reports: list[ServerReport], *, is_wrapped: bool, shown: str = "", token: str = ""
) -> str:
    """Returns the text for a gateway that listens: its addresses, each server, and configurations for clients.

    Args:
        is_wrapped: the gateway is that of `isthmus wrap`, whose options switch on what is off.
        shown: the endpoint to show alone, that of all servers; "": each is shown.
        token: what callers must show; "" if the operator knows, or if nobody is asked.
    """
    settings = service.settings
    core = settings.core
    names = _endpoints(settings)
    places = [place for place in (core.port is not None and service.base_url, core.unix_socket) if place]
    lines = [f"isthmus {VERSION} listens on {' and '.join(places)}" if places else f"isthmus {VERSION}"]
    lines += _warnings(service)
    lines.append("")
    if shown and places:
        count = next((len(profile.servers) for profile in profiles_of(settings) if profile.id == shown), 0)
        what = f"one endpoint for {count} servers" if count else f"the endpoint of {shown}"
        url = f"{service.base_url if core.port is not None else ''}/mcp"
        lines[:0] = [f"{what}: {url}", *(f"  {line}" for line in left_out(settings))]
    for server, report in zip(settings.servers, reports, strict=True):
        lines += describe(settings, server, report)
        if report.problem and not awaits_clients(server, report):
            occasion = "request" if report.is_transparent else "session that a client opens"
            lines.append(f"    again   with each {occasion}")
        suffix = names[server.id]
        if places and not shown:
            base = _base_for(server, service.base_url) if core.port is not None else ""
            lines.append(f"    at      {base}/mcp{suffix}")
        if places and server.inspect and not shown:
            lines.append(f"    also    /sse{suffix} (HTTP+SSE) and /ws{suffix} (WebSocket)")
        if server.unix_socket is not None:
            lines.append(f"    socket  {server.unix_socket}, as on stdio")
        if is_wrapped and (unused := off(server, report, is_only=len(settings.servers) == 1)):
            lines.append(f"    off     {', '.join(unused)}")
        lines.append("")
    for profile in profiles_of(settings) if places and not shown else ():
        inner = ", ".join(one.id for one in servers_of(profile))
        base = service.base_url if core.port is not None else ""
        lines += [f"  {profile.id}", f"    profile {inner}", f"    at      {base}/mcp{names[profile.id]}", ""]
    asks = settings.auth.tokens and settings.auth.anonymous != "allow"
    headers = {"headers": {"Authorization": f"Bearer {token or 'TOKEN'}"}} if asks else {}
    header = ["--header", f"Authorization: Bearer {token or 'TOKEN'}"] if asks else []
    urls = _urls(service, names, shown)
    if core.port is not None:
        lines += [
            "for a client's configuration:",
            _paste_line({id: {"url": url} | headers for id, url in urls.items()}),
        ]
    if urls:
        program = _own_path()
        commands = {
            id: {"command": program, "args": ["wrap", "--listen", "stdio", *header, url]} for id, url in urls.items()
        }
        lines += [
            "or, for a client that only starts commands:" if core.port is not None else "for a client's configuration:"
        ]
        lines += [_paste_line(commands), ""]
    return "\n".join(lines)


def _warnings(service: Gateway) -> list[str]:
    settings, core = service.settings, service.settings.core
    lines: list[str] = []
    is_open = settings.auth.anonymous == "allow" or not settings.auth.recognises
    if core.port is not None and not is_loopback(host_of(core.host)) and is_open:
        lines.append(f"WARNING open to other machines, as {core.host}, and nobody is asked who they are")
    names_others = core.any_host or core.allowed_hosts or core.public_base_url
    if core.port is not None and is_wildcard(core.host) and not names_others:
        lines.append("WARNING other machines are refused, whatever they call this one: allow a name or an address with")
        lines.append("        core.allowed_hosts (of isthmus wrap: --allow-host)")
    if settings.sessions.affinity is None and service.plan.affinity is Affinity.REQUEST:
        lines.append(
            "WARNING other machines may call: each call of an anonymous client without sessions (2026-07-28) gets a"
        )
        lines.append(
            "        session or process of its own, and the next call finds nothing of it. To keep it, let auth say who"
        )
        lines.append("        calls, or set sessions.affinity: shared if the servers remember nothing that is private")
    return lines


def _endpoints(settings: Settings) -> dict[str, str]:
    """Returns what stands after `/mcp` in the path of each server and profile."""
    default = default_of(settings)
    unnamed = default or (settings.servers[0].id if len(settings.servers) == 1 else "")
    ids = (*(server.id for server in settings.servers), *(profile.id for profile in profiles_of(settings)))
    return {id: "" if id == unnamed else f"/{id}" for id in ids}


def _urls(service: Gateway, names: Mapping[str, str], shown: str) -> dict[str, str]:
    """Returns the URLs for clients, by the names that they are to have there."""
    settings, core = service.settings, service.settings.core
    if core.port is None:
        return {server.id: f"unix://{server.unix_socket}" for server in settings.servers if server.unix_socket}
    base = core.public_base_url or service.base_url
    if shown and default_of(settings):
        return {"isthmus": f"{base}/mcp"}
    return {server.id: f"{_base_for(server, base)}/mcp{names[server.id]}" for server in settings.servers}


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


def _base_for(server: Server, base_url: str) -> str:
    """Returns the base URL for clients of a server: ws:// if it is a transparent WebSocket server, else http://.

    A transparent server is spoken to in its own transport; every inspected one accepts HTTP.
    """
    is_websocket = not server.inspect and scheme_of(server.upstream.url or "") in SCHEMES["websocket"]
    return f"ws{base_url.removeprefix('http')}" if is_websocket else base_url


def _own_path() -> str:
    """Returns the path of the running `isthmus`: desktop clients do not have the PATH of a virtual environment."""
    started, beside_python = Path(sys.argv[0]).absolute(), Path(sys.executable).with_name("isthmus")
    found = (str(path) for path in (started, beside_python) if path.name == "isthmus" and path.is_file())
    return next(found, "isthmus")


def _paste_line(entries: Mapping[str, object]) -> str:
    return "  " + plain_json(msgspec.json.encode({"mcpServers": entries}).decode())


def describe(settings: Settings, server: Server, report: ServerReport) -> list[str]:
    """Describes a server in a few lines: name, eras, tools, how its files are handled, and warnings."""
    kind = "stdio" if server.upstream.command is not None else _SHOWN.get(server.upstream.transport, "http")
    lines = [f"  {server.id}"]
    if awaits_clients(server, report):
        lines.append(f"    server  answers only clients with credentials of their own (HTTP status {report.status})")
    elif report.problem:
        lines.append(f"    FAILED  {_plain(report.problem)}")
    elif report.is_transparent:
        lines.append(f"    server  transparent, at {_plain(without_credentials(server.upstream.url or ''))}")
    elif report.is_unasked:
        lines.append(f"    server  not asked ({kind})")
    else:
        name = " ".join(short(part) for part in (report.name, report.version) if part) or "without a name"
        eras = "; ".join(f"{era} era, revision {revision or 'unknown'}" for era, revision in report.eras.items())
        lines.append(_plain(f"    server  {name} ({kind}, {eras})"))
    for address in report.addresses:
        failed = f": FAILED, {address.last_error}" if address.state == "ill" else ""
        lines.append(
            _plain(f"    url     {address.name}{failed or (': not tried' if address.state == 'unknown' else '')}")
        )
    if report.tools is not None:
        tools = visible_tools(server, report)
        hidden = f" ({hidden_count} hidden)" if (hidden_count := len(own_tools(server, report)) - len(tools)) else ""
        shown = _plain(", ".join(short(tool) for tool in tools[:TOOLS_SHOWN]))
        more = f" and {len(tools) - TOOLS_SHOWN} more" if len(tools) > TOOLS_SHOWN else ""
        lines.append(f"    tools   {len(tools)}: {shown}{more}{hidden}" if tools else f"    tools   none{hidden}")
    lines += [f"    limits  {_plain(str(limit))}" for limit in to_rate_limits(server)]
    lines += [f"    files   {line}" for line in file_lines(settings, server)]
    lines += [f"    WARNING {_plain(line)}" for line in misfits(server, report)]
    return lines
