"""The schemas of a tool's arguments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from .mentions import LABEL_MAX_CHARS

NODES_MAX: Final = 1000
"""Subschemas of one tool that are looked at. The largest of real tools have about a hundred. At it: further ones give
no hints."""

DEPTH_MAX: Final = 8
"""Levels of subschemas that are looked at. The bound also ends circular references."""

TEXT_MAX_CHARS: Final = 16 * 1024
"""Characters of an error or a description that are read. What matters stands at the beginning."""


def argument_schemas(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields every subschema of an argument within `schema`, with its label. A list's items have the label of the
    list."""
    pending: list[tuple[str, object, int]] = [("", schema, 0)]
    for _ in range(NODES_MAX):
        if not pending:
            return
        label, part, depth = pending.pop()
        if not isinstance(part, dict) or depth > DEPTH_MAX:
            continue
        if label:
            yield label, part
        below = [part.get("items"), _referred(schema, part.get("$ref"))]
        for name in ("anyOf", "oneOf", "allOf"):
            choices = part.get(name)
            below += choices[:NODES_MAX] if isinstance(choices, list) else []
        named = [(label, inner) for inner in below if inner is not None]
        properties = part.get("properties")
        if isinstance(properties, dict):
            for name in list(properties)[:NODES_MAX]:
                below_label = f"{label}.{name}" if label else name
                if name and len(below_label) <= LABEL_MAX_CHARS:
                    named.append((below_label, properties[name]))
        pending += [(name, inner, depth + 1) for name, inner in named[: NODES_MAX - len(pending)]]


def _referred(schema: dict[str, Any], reference: object) -> object:
    if not isinstance(reference, str):
        return None
    for table in ("$defs", "definitions"):
        defined = schema.get(table)
        if isinstance(defined, dict) and reference.startswith(f"#/{table}/"):
            return defined.get(reference.removeprefix(f"#/{table}/"))
    return None


def decoded_object(raw: bytes | None) -> dict[str, Any]:
    """Returns a JSON object as a dict; an empty one for anything else."""
    if raw is None or not raw.startswith(b"{"):
        return {}
    try:
        decoded = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return decoded if isinstance(decoded, dict) else {}
