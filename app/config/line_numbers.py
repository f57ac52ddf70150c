"""Finds the line of each dotted key of a document. Only a document with a fault is looked through."""

from __future__ import annotations

import json
from collections.abc import Mapping

from .jsonc import tokens


def line_numbers(text: str, format: str) -> Mapping[str, int]:
    """Returns the line of each dotted key of a document that was parsed; empty for TOML, whose parser gives none."""
    if format == "yaml":
        from .yaml_documents import yaml_lines

        return yaml_lines(text)
    return _json_lines(text) if format == "json" else {}


def line_of(key: str, lines: Mapping[str, int]) -> int | None:
    """Returns the line of a key, or of the nearest key above it; None if neither stands in the document."""
    while key and key not in lines:
        key = key[: max(key.rfind("."), key.rfind("["), 0)]
    return lines.get(key) if key else None


def _json_lines(text: str) -> dict[str, int]:
    lines: dict[str, int] = {}
    containers: list[tuple[str, bool, int]] = []  # dotted key, is an object, entries so far
    line, end, key, before = 1, 0, "", ""
    for part in tokens(text):
        line, end = line + text.count("\n", end, part.start()), part.start()
        word = part[0]
        prefix, is_object, count = containers[-1] if containers else ("", False, 0)
        if word in ("}", "]"):
            containers.pop()
        elif is_object and part.lastgroup == "string" and before in ("{", ","):
            name = json.loads(word)
            key = f"{prefix}.{name}" if prefix else name
            lines.setdefault(key, line)
        elif word not in (",", ":"):
            if containers and not is_object:
                key = f"{prefix}[{count}]"
                lines.setdefault(key, line)
                containers[-1] = (prefix, False, count + 1)
            if word in ("{", "["):
                containers.append((key, word == "{", 0))
        before = word
    return lines
