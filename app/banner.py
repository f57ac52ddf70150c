"""What people see on start: what listens where, what is behind it, and the line to paste into a client."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ..core.catalog import helper_name
from ..core.eras import features_of
from .probe import ServerReport
from .service import VERSION, Service
from .settings import ArtifactProducerAdapter, Server, UploadConsumerAdapter

TOOLS_SHOWN = 12


def listening(service: Service, reports: list[ServerReport]) -> str:
    """One screen for the HTTP listener."""
    is_only = len(service.settings.servers) == 1
    urls = {id: f"{service.base_url}/mcp{'' if is_only else '/' + id}" for id in service.server_ids}
    lines = [f"isthmus {VERSION} listens on {service.base_url}", ""]
    for server, report in zip(service.settings.servers, reports, strict=True):
        lines += describe(server, report)
        if report.problem:
            lines.append("    again   with each session that a client opens")
        lines += [f"    at      {urls[server.id]}", ""]
    commands = {id: {"command": "isthmus", "args": ["wrap", "--listen", "stdio", url]} for id, url in urls.items()}
    lines += ["for a client's configuration:", _paste_line({id: {"url": url} for id, url in urls.items()})]
    lines += ["or, for a client that only starts commands:", _paste_line(commands), ""]
    return "\n".join(lines)


def _paste_line(entries: Mapping[str, object]) -> str:
    return "  " + msgspec.json.encode({"mcpServers": entries}).decode()


def describe(server: Server, report: ServerReport) -> list[str]:
    """A server in a few lines: who it is, what it can, what is done with its files, what is wrong."""
    upstream = server.upstream
    kind = "stdio" if upstream.command is not None else "http"
    lines = [f"  {server.id}"]
    if report.problem:
        lines.append(f"    FAILED  {_plain(report.problem)}")
    else:
        era = features_of(report.revision).era
        said = _plain(f"{report.name} {report.version} ({kind}, {era} era, revision {report.revision})")
        lines.append(f"    server  {said}")
        tools = [tool for tool in report.tools if not server.adapters or tool != helper_name(server.id)]
        shown = _plain(", ".join(tools[:TOOLS_SHOWN]))
        more = f" and {len(tools) - TOOLS_SHOWN} more" if len(tools) > TOOLS_SHOWN else ""
        lines.append(f"    tools   {len(tools)}: {shown}{more}" if tools else "    tools   none")
    lines += [f"    files   {line}" for line in _adapters(server)]
    lines += [f"    WARNING {line}" for line in missing_tools(server, report)]
    return lines


def _plain(text: str) -> str:
    """What a server said, fit for a terminal: on one line, and without control characters."""
    return "".join(character if character.isprintable() else " " for character in text)


def _adapters(server: Server) -> list[str]:
    lines = []
    for adapter in server.adapters:
        tools = ", ".join(adapter.tools)
        if isinstance(adapter, UploadConsumerAdapter):
            how = f"{adapter.uri_scheme} handles in {adapter.file_path_argument} (from {helper_name(server.id)})"
            lines.append(f"{tools} takes {how}")
        else:
            where = adapter.output_path_argument or adapter.output_locator.mode.value
            lines.append(f"{tools} makes artifact:// resources ({where})")
    return lines


def missing_tools(server: Server, report: ServerReport) -> list[str]:
    """Adapters for tools that the server does not have: a misspelling, or an option of the server that is off."""
    if report.problem:
        return []
    lines = []
    for adapter in server.adapters:
        kind = "artifact_producer" if isinstance(adapter, ArtifactProducerAdapter) else "upload_consumer"
        missing = [tool for tool in adapter.tools if tool not in report.tools]
        lines += [f"{kind} names the tool {tool}, which this server does not have" for tool in missing]
    return lines
