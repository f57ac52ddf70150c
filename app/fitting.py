"""Whether a server has what its adapters name: a misspelling, or an option of the server that is off, shows here."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator
from typing import Final

from ..core.dotted import EACH, parse_path
from .probe import ServerReport
from .settings import Adapter, Server, UploadConsumerAdapter

_OPENING: Final = frozenset({"$ref", "allOf", "anyOf", "oneOf", "if", "dependentSchemas", "patternProperties"})
"""Further properties may hide behind these keywords of a schema."""


def misfits(server: Server, report: ServerReport) -> list[str]:
    """A line for each tool and each argument that an adapter names and the server does not have.

    The first of a dotted path's names that its schema does not list counts, where the schema lists names at all.
    """
    return [] if report.problem else [line for adapter in server.adapters for line in _misfits(adapter, report)]


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
