"""Servers list any tools and clients ask for any: the index is what its tools make it, and an answer is JSON.

A line of the input is an operation, by its first byte: `+` and `-` and a digit add the rest as a definition of that
server, or remove the tool of that name; `=` and a digit replace the server's tools by those of the rest, with tabs
between them; `?` searches, and `!` calls `search_tools` with the rest as arguments. Accepted outcomes: a definition
that cannot be read is not added; arguments that cannot be read give an error.
"""

from __future__ import annotations

import json
from typing import Final

from isthmus.core.base.revisions import LATEST_LEGACY, features_of
from isthmus.core.search.answers import answer_search
from isthmus.core.search.documents import read_definition
from isthmus.core.search.index import HITS_MAX, Index

SERVERS: Final = {str(digit): f"server {digit}" for digit in range(10)}
FEATURES: Final = features_of(LATEST_LEGACY)


def is_allowed(name: str) -> bool:
    return len(name) % 3 != 0


def check_search(index: Index, query: str) -> None:
    pages, offset = [], 0
    while True:
        page = index.search(query, limit=7, offset=offset)
        pages += page.hits
        if page.next_offset is None:
            break
        assert page.next_offset == offset + 7 == len(pages)
        offset = page.next_offset
    assert len({hit.name for hit in pages}) == len(pages) <= len(index)
    whole = index.search(query, limit=HITS_MAX).hits
    assert whole == tuple(pages[:HITS_MAX])
    some = index.search(query, limit=HITS_MAX, allowed=is_allowed).hits
    assert list(some) == [hit for hit in pages if is_allowed(hit.name)][:HITS_MAX]
    for hit in whole[:3]:
        tool = read_definition(hit.definition)
        assert tool is not None and tool.name == hit.name
        if hit.name.strip() == hit.name and hit.name not in ("", "*"):
            assert index.search(hit.name).hits[0] == hit


def test_one_input(data: bytes) -> None:
    index, tools = Index(), dict[str, tuple[str, bytes]]()
    for line in data.split(b"\n"):
        verb, server, rest = line[:1], line[1:2].decode("latin-1"), line[2:]
        tool = read_definition(rest)
        if verb == b"+":
            assert index.add(server, rest) == (tool is not None)
            if tool is not None:
                tools.pop(tool.name, None)
                tools[tool.name] = (server, rest)
        elif verb == b"-":
            name = rest.decode(errors="replace")
            assert index.remove(name) == (tools.pop(name, None) is not None)
        elif verb == b"=":
            index.replace(server, rest.split(b"\t"))
            tools = {name: kept for name, kept in tools.items() if kept[0] != server}
            for definition in reversed(rest.split(b"\t")):
                tool = read_definition(definition)
                if tool is not None:
                    tools[tool.name] = (server, definition)
        elif verb == b"?":
            check_search(index, line[1:].decode(errors="replace"))
        elif verb == b"!":
            result = json.loads(answer_search(index, line[1:], SERVERS, FEATURES))
            assert result.get("isError") is True or result["structuredContent"].keys() >= {"tools", "more"}
    anew = Index()
    for server, definition in tools.values():
        anew.add(server, definition)
    assert vars(index) == vars(anew)
