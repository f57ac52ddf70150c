"""Whether a server has what its adapters name: a misspelling, or an option of the server that is off, shows here."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator
from typing import Final

from ..core.catalog import helper_name
from ..core.dotted import EACH, parse_path
from ..core.selection import Selection
from .probe import ServerReport
from .settings import Adapter, Server, UploadConsumerAdapter

_PATTERN: Final = frozenset("*?[")

_OPENING: Final = frozenset({"$ref", "allOf", "anyOf", "oneOf", "if", "dependentSchemas", "patternProperties"})
"""Further properties may hide behind these keywords of a schema."""


def awaits_clients(server: Server, report: ServerReport) -> bool:
    """Whether it answers only those who bring credentials of their own, which it then gets: nobody else can ask it."""
    return report.status in (401, 403) and bool(server.upstream.passes)


def own_tools(server: Server, report: ServerReport) -> list[str]:
    """The tools of the server itself, those that clients do not see included."""
    return [tool for tool in report.tools if not server.adapters or tool != helper_name(server.id)]


def visible_tools(server: Server, report: ServerReport) -> list[str]:
    """Those of them that clients see."""
    return [tool for tool in own_tools(server, report) if server.tools.selection.admits(tool)]


def misfits(server: Server, report: ServerReport) -> list[str]:
    """A line for each tool and each argument that an adapter names and the server does not have, and for each entry of
    its filter, and of its tasks, that is about no tool.

    The first of a dotted path's names that its schema does not list counts, where the schema lists names at all.
    """
    if report.problem:
        return []
    found = [line for adapter in server.adapters for line in _misfits(adapter, report)]
    return [*found, *_idle_entries(server, own_tools(server, report))]


def _idle_entries(server: Server, tools: list[str]) -> Iterator[str]:
    """A pattern of `exclude` may be there for tools to come; a whole name that is misspelt there hides nothing."""
    selection = server.tools.selection
    keys = (
        ("tools.include", selection.include),
        ("tools.exclude", filter(_PATTERN.isdisjoint, selection.exclude)),
        ("tasks.tools", filter(_PATTERN.isdisjoint, server.tasks.tools)),
    )
    for key, entries in keys:
        for entry in entries:
            if not any(map(Selection(include=(entry,)).admits, tools)):
                yield f"{key} names {entry}, and this server has no such tool{_near(entry, tools)}"


def _misfits(adapter: Adapter, report: ServerReport) -> Iterator[str]:
    if isinstance(adapter, UploadConsumerAdapter):
        kind, argument = "upload_consumer", adapter.file_path_argument
    else:
        kind, argument = "artifact_producer", adapter.output_path_argument or ""
    for tool in adapter.tools:
        if tool not in report.tools:
            yield f"{kind} names the tool {tool}, which this server does not have{_near(tool, report.tools)}"
        elif argument and (known := _instead(report.schemas.get(tool), argument)) is not None:
            yield f"{kind} names the argument {argument}, which {tool} does not have{_near(argument, known)}"


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
