"""Whether a server has what its adapters name: a misspelling, or an option of the server that is off, shows here."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator
from typing import Final

from ...core.base.name_filter import Selection
from ...core.files.calls.offers import helper_name
from ...core.jsonrpc.paths import EACH, parse_path
from ..config.file_checks import PATTERN_CHARACTERS
from ..config.file_settings import Adapter, UploadConsumerAdapter
from ..config.settings import Server
from ..runtime.probe import ServerReport

_OPENING: Final = frozenset({"$ref", "allOf", "anyOf", "oneOf", "if", "dependentSchemas", "patternProperties"})
"""Further properties may hide behind these keywords of a schema."""


def awaits_clients(server: Server, report: ServerReport) -> bool:
    """Whether it answers only those who bring credentials of their own, which it then gets: nobody else can ask it."""
    return report.status in (401, 403) and bool(server.upstream.passes)


def own_tools(server: Server, report: ServerReport) -> list[str]:
    """The tools of the server itself, those that clients do not see included."""
    return [tool for tool in report.tools if not server.has_files or tool != helper_name(server.id)]


def visible_tools(server: Server, report: ServerReport) -> list[str]:
    """Those of them that clients see."""
    return [tool for tool in own_tools(server, report) if server.tools.selection.admits(tool)]


def misfits(server: Server, report: ServerReport) -> list[str]:
    """A line for each tool and each argument that an adapter names and the server does not have, and for each entry of
    its filter, and of its tasks, that is about no tool. A pattern is about every tool that it matches.

    The first of a dotted path's names that its schema does not list counts, where the schema lists names at all.
    """
    if report.problem:
        return []
    tools = own_tools(server, report)
    found = [line for adapter in server.adapters for line in _misfits(adapter, report, tools)]
    return [*found, *_idle_entries(server, tools)]


def _idle_entries(server: Server, tools: list[str]) -> Iterator[str]:
    """A pattern of `exclude` may be there for tools to come; a whole name that is misspelt there hides nothing."""
    selection = server.tools.selection
    keys = (
        ("tools.include", selection.include),
        ("tools.exclude", filter(PATTERN_CHARACTERS.isdisjoint, selection.exclude)),
        ("tasks.tools", filter(PATTERN_CHARACTERS.isdisjoint, server.tasks.tools)),
    )
    for key, entries in keys:
        for entry in entries:
            if not any(map(Selection(include=(entry,)).admits, tools)):
                yield f"{key} names {entry}, and this server has no such tool{_near(entry, tools)}"


def _misfits(adapter: Adapter, report: ServerReport, tools: list[str]) -> Iterator[str]:
    kind = "upload_consumer" if isinstance(adapter, UploadConsumerAdapter) else "artifact_producer"
    wired: dict[str, bool] = {}  # the tools that it is about, and whether they are there by their whole names
    for entry in adapter.tools:
        found = list(filter(Selection(include=(entry,)).admits, tools))
        is_whole = entry in tools or PATTERN_CHARACTERS.isdisjoint(entry)
        if not found and is_whole:
            yield f"{kind} names the tool {entry}, which this server does not have{_near(entry, tools)}"
        elif not found:
            yield f"{kind} names tools by {entry}, and this server has none that fits"
        for tool in found:
            wired[tool] = wired.get(tool, False) or is_whole
    for arguments in _arguments_of(adapter):
        yield from _misnamed(kind, arguments, wired, report)


def _arguments_of(adapter: Adapter) -> Iterator[tuple[str, ...]]:
    """The dotted paths that it names, in groups of which each tool is to have at least one."""
    if isinstance(adapter, UploadConsumerAdapter):
        yield adapter.arguments
        return
    if adapter.output_path_argument is not None:
        yield (adapter.output_path_argument,)
    yield adapter.output_locator.path_arguments


def _misnamed(kind: str, arguments: tuple[str, ...], wired: dict[str, bool], report: ServerReport) -> Iterator[str]:
    """Each tool that is named whole has one of the arguments, and each argument is one of some tool's."""
    lacking = {
        tool: {path: known for path in arguments if (known := _instead(report.schemas.get(tool), path)) is not None}
        for tool in wired
    }
    told: set[str] = set()
    for tool, missing in lacking.items():
        if wired[tool] and arguments and len(missing) == len(arguments):
            told.update(arguments)
            if len(arguments) == 1:
                [(path, known)] = missing.items()
                yield f"{kind} names the argument {path}, which {tool} does not have{_near(path, known)}"
            else:
                yield f"{kind} names the arguments {', '.join(arguments)}, and {tool} has none of them"
    for path in arguments:
        if wired and path not in told and all(path in missing for missing in lacking.values()):
            yield f"{kind} names the argument {path}, which none of its tools has"


def _instead(schema: object, argument: str) -> list[str] | None:
    """What the schema has in the place where it rules the dotted path `argument` out; None if it does not."""
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


def _near(name: str, known: Collection[str]) -> str:
    found = difflib.get_close_matches(name, known, n=1)
    return f"; the nearest is {found[0]}" if found else ""
