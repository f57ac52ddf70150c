"""Compares a server's tools with its adapters, to find misspelt names and tools that the server has switched off."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ...core.base.name_filter import NameFilter
from ...core.base.nearest import hint
from ...core.files.calls.offers import helper_name, put_name
from ...core.jsonrpc.paths import EACH, parse_path
from ..config.file_checks import PATTERN_CHARACTERS
from ..config.file_settings import Adapter, UploadConsumerAdapter
from ..config.settings import Server
from ..runtime.probe import ServerReport

_OPENING: Final = frozenset({"$ref", "allOf", "anyOf", "oneOf", "if", "dependentSchemas", "patternProperties"})
"""Keywords of a JSON Schema that may define properties elsewhere than in `properties`."""


def awaits_clients(server: Server, report: ServerReport) -> bool:
    """True if the server refuses the proxy (401 or 403) but gets headers of clients, who may have credentials."""
    return report.status in (401, 403) and bool(server.upstream.passes)


def names_tools(server: Server) -> bool:
    """True if the configuration names tools that `misfits` looks for among those of the server."""
    return bool(server.adapters or server.tools.selection or server.tasks.tools or server.rate_limits)


def own_tools(server: Server, report: ServerReport) -> list[str]:
    """Returns the tools of the server itself, hidden ones included; none if they were not asked for."""
    added = (helper_name(server.id), put_name(server.id)) if server.has_files else ()
    return [tool for tool in report.tools or () if tool not in added]


def visible_tools(server: Server, report: ServerReport) -> list[str]:
    """Returns the tools of the server itself that clients see."""
    return [tool for tool in own_tools(server, report) if server.tools.selection.admits(tool)]


def misfits(server: Server, report: ServerReport) -> list[str]:
    """Returns a line for each name in the configuration that the server has no counterpart for.

    Such a name is a tool or an argument of an adapter, or an entry of `tools`, `tasks.tools` or `rate_limits` that
    matches no tool. An argument is missing if its schema rules out a step of its dotted path. Without a list of tools
    nothing is missing.
    """
    if report.problem or report.tools is None:
        return []
    tools = own_tools(server, report)
    found = [line for adapter in server.adapters for line in _misfits(adapter, report, tools)]
    return [*found, *_unmatched_entries(server, tools)]


def _unmatched_entries(server: Server, tools: list[str]) -> Iterator[str]:
    """Yields entries that match no tool. Patterns count in `include` only: elsewhere they may be for later tools."""
    selection = server.tools.selection
    keys = (
        ("tools.include", selection.include),
        ("tools.exclude", filter(PATTERN_CHARACTERS.isdisjoint, selection.exclude)),
        ("tasks.tools", filter(PATTERN_CHARACTERS.isdisjoint, server.tasks.tools)),
        *(
            (f"rate_limits[{i}].tools", filter(PATTERN_CHARACTERS.isdisjoint, limit.tools))
            for i, limit in enumerate(server.rate_limits)
        ),
    )
    for key, entries in keys:
        for entry in entries:
            if not any(map(NameFilter(include=(entry,)).admits, tools)):
                yield f"{key} names {entry}, and this server has no such tool{hint(entry, tools)}"


def _misfits(adapter: Adapter, report: ServerReport, tools: list[str]) -> Iterator[str]:
    kind = "upload_consumer" if isinstance(adapter, UploadConsumerAdapter) else "artifact_producer"
    wired: dict[str, bool] = {}  # matched tool: whether an entry names it whole, not by a pattern
    for entry in adapter.tools:
        found = list(filter(NameFilter(include=(entry,)).admits, tools))
        is_whole = entry in tools or PATTERN_CHARACTERS.isdisjoint(entry)
        if not found and is_whole:
            yield f"{kind} names the tool {entry}, which this server does not have{hint(entry, tools)}"
        elif not found:
            yield f"{kind} names tools by {entry}, and this server has none that fits"
        for tool in found:
            wired[tool] = wired.get(tool, False) or is_whole
    for arguments in _arguments_of(adapter):
        yield from _misnamed(kind, arguments, wired, report)


def _arguments_of(adapter: Adapter) -> Iterator[tuple[str, ...]]:
    """Yields groups of dotted paths; each tool should have at least one of each group."""
    if isinstance(adapter, UploadConsumerAdapter):
        yield adapter.arguments
        return
    if adapter.output_path_argument is not None:
        yield (adapter.output_path_argument,)
    yield adapter.output_locator.path_arguments


def _misnamed(kind: str, arguments: tuple[str, ...], wired: dict[str, bool], report: ServerReport) -> Iterator[str]:
    """Checks that each tool named whole has one of the arguments, and that each argument is one of some tool."""
    lacking = {
        tool: {
            path: known for path in arguments if (known := _alternatives(report.schemas.get(tool), path)) is not None
        }
        for tool in wired
    }
    reported: set[str] = set()
    for tool, missing in lacking.items():
        if wired[tool] and arguments and len(missing) == len(arguments):
            reported.update(arguments)
            if len(arguments) == 1:
                [(path, known)] = missing.items()
                yield f"{kind} names the argument {path}, which {tool} does not have{hint(path, known)}"
            else:
                yield f"{kind} names the arguments {', '.join(arguments)}, and {tool} has none of them"
    for path in arguments:
        if wired and path not in reported and all(path in missing for missing in lacking.values()):
            yield f"{kind} names the argument {path}, which none of its tools has"


def _alternatives(schema: object, argument: str) -> list[str] | None:
    """Returns the names that the schema allows where it rules out the path `argument`; None if it does not."""
    before = ""
    for step in parse_path(argument):
        if not isinstance(schema, dict):
            return None
        if step == EACH:
            schema, before = schema.get("items"), before.removesuffix(".") + EACH + "."
            continue
        properties = schema.get("properties")
        if not isinstance(properties, dict):
            return None
        if step not in properties:
            is_open = schema.get("additionalProperties", False) is not False or not _OPENING.isdisjoint(schema)
            return None if is_open else [f"{before}{known}" for known in properties]
        schema, before = properties[step], f"{before}{step}."
    return None
