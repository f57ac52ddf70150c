"""Finds the line of each dotted key of a document. Only a document with a fault is looked through."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from typing import Final

from .jsonc import tokens

_NAME: Final = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*')"""
_TOML_NAME: Final = re.compile(_NAME)
_TOML_LINE: Final = re.compile(rf"\s*(?:(?P<table>\[\[?)\s*)?(?P<keys>{_NAME}(?:\s*\.\s*{_NAME})*)\s*(?(table)\]|=)")
_TOML_QUOTES: Final = re.compile(r'"""|\'\'\'')


def line_numbers(text: str, format: str) -> Mapping[str, int]:
    """Returns the line of each dotted key of a document that was parsed; of TOML, of those that begin a line."""
    if format == "yaml":
        from .yaml_documents import yaml_lines

        return yaml_lines(text)
    return _json_lines(text) if format == "json" else _toml_lines(text)


def line_of(key: str, lines: Mapping[str, int]) -> int | None:
    """Returns the line of a key, or of the nearest key above it; None if neither stands in the document."""
    while key and key not in lines:
        key = key[: max(key.rfind("."), key.rfind("["), 0)]
    return lines.get(key) if key else None


def _toml_lines(text: str) -> dict[str, int]:
    """Looks at tables and keys only. A line in a text of several lines may look like a key, and is not one."""
    lines: dict[str, int] = {}
    counts: dict[str, int] = {}
    prefix, quotes = "", ""
    for number, line in enumerate(text.splitlines(), 1):
        found = None if quotes else _TOML_LINE.match(line)
        if found is not None:
            key = ".".join(_toml_name(name) for name in _TOML_NAME.findall(found["keys"]))
            if found["table"]:
                prefix = key
                if found["table"] == "[[":
                    counts[key] = counts.get(key, -1) + 1
                    lines.setdefault(key, number)
                    prefix = f"{key}[{counts[key]}]"
                lines.setdefault(prefix, number)
            else:
                lines.setdefault(f"{prefix}.{key}" if prefix else key, number)
        for mark in _TOML_QUOTES.findall(line):
            quotes = "" if mark == quotes else quotes or mark
    return lines


def _toml_name(name: str) -> str:
    if name.startswith('"'):
        text = tomllib.loads(f"name = {name}")["name"]
        assert isinstance(text, str)
        return text
    return name.strip("'")


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
