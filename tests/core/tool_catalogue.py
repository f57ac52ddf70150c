"""Catalogues of tools for the tests of search."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from isthmus.core.search.index import Index


def entry(name: str, description: str = "", **members: Any) -> bytes:
    """The entry of a tool in `tools/list`, by its exposed name."""
    return msgspec.json.encode({"name": name, "description": description, "inputSchema": {"type": "object"}, **members})


def with_parameters(name: str, **parameters: str) -> bytes:
    """An entry whose parameters have these descriptions."""
    properties = {each: {"type": "string", "description": about} for each, about in parameters.items()}
    return entry(name, inputSchema={"type": "object", "properties": properties})


def filled(definitions: Iterable[bytes]) -> Index:
    """An index of these tools. The server of each is what stands before `__` in its name."""
    index = Index()
    for definition in definitions:
        name = msgspec.json.decode(definition)["name"]
        assert index.add(name.partition("__")[0], definition)
    return index


def found(index: Index, query: str, **options: Any) -> list[str]:
    """The names of the hits."""
    return [hit.name for hit in index.search(query, **options).hits]
