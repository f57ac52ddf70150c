"""Measures the search for tools: `python bench/search.py FOLDER` prints how well it finds them, and at what cost.

The folder holds `tools.jsonl`, a tool a line with `server`, `name`, `title`, `description` and `params` (descriptions
by name), and `queries.tsv` with lines of a kind, a query, and the wanted tools as `server/name` with commas between
them. `tests/core/search/catalogue` is one. A hash splits the queries in halves, so that one can be kept for judging.

hit@5 is the part of the queries with a wanted tool among the first five hits, recall@5 the part of the wanted tools
that are there, and MRR the mean of one divided by the rank of the first. CPU is that of this process, the least of
rounds; the bytes are those of the index with its synonyms, and without the definitions.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import time
import tracemalloc
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from isthmus.core.search.index import Index

ROUNDS: Final = 7
SHOWN_MAX: Final = 5
RANKS_MAX: Final = 10


class Query(NamedTuple):
    kind: str
    text: str
    wanted: frozenset[str]

    @property
    def half(self) -> str:
        return ("dev", "test")[hashlib.sha256(self.text.encode()).digest()[-1] % 2]


def read_tools(folder: Path, copies: int = 1) -> list[tuple[str, bytes]]:
    """Returns the alias of the server and the definition of each tool. Copies are of servers with other names."""
    found = []
    for copy in range(copies):
        for line in (folder / "tools.jsonl").read_text(encoding="utf-8").splitlines():
            tool = json.loads(line)
            alias = tool["server"] + (f"-copy{copy}" if copy else "")
            properties = {name: {"type": "string", "description": about} for name, about in tool["params"].items()}
            entry: dict[str, Any] = {"name": f"{alias}__{tool['name']}", "title": tool.get("title")}
            entry |= {"description": tool["description"], "inputSchema": {"type": "object", "properties": properties}}
            found.append((alias, msgspec.json.encode(entry)))
    return found


def read_queries(folder: Path) -> list[Query]:
    lines = (folder / "queries.tsv").read_text(encoding="utf-8").splitlines()
    rows = [line.split("\t") for line in lines if line and not line.startswith("#")]
    return [Query(kind, text, frozenset(wanted.split(","))) for kind, text, wanted in rows]


def filled(tools: list[tuple[str, bytes]]) -> Index:
    index = Index()
    for alias, definition in tools:
        index.add(alias, definition)
    return index


def found_by(index: Index, query: Query) -> list[str]:
    """Returns the hits as `server/name`."""
    hits = index.search(query.text, limit=RANKS_MAX).hits
    return [f"{hit.server}/{hit.name.removeprefix(hit.server + '__')}" for hit in hits]


def figures(index: Index, queries: list[Query]) -> dict[str, float]:
    """Returns the means over the queries."""
    sums = {"hit@1": 0.0, "hit@5": 0.0, "recall@5": 0.0, "MRR": 0.0}
    for query in queries:
        ranks = [rank for rank, name in enumerate(found_by(index, query), 1) if name in query.wanted]
        near = sum(rank <= SHOWN_MAX for rank in ranks)
        sums["hit@1"] += 1 in ranks
        sums["hit@5"] += near > 0
        sums["recall@5"] += near / min(SHOWN_MAX, len(query.wanted))
        sums["MRR"] += 1 / ranks[0] if ranks else 0
    return {name: value / max(1, len(queries)) for name, value in sums.items()}


def costs(tools: list[tuple[str, bytes]], queries: list[Query]) -> str:
    tracemalloc.start()
    index = filled(tools)
    gc.collect()
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    least = min(_cpu_s(index, queries) for _ in range(ROUNDS))
    return f"{len(tools)} tools: {least / len(queries) * 1e6:.0f} µs CPU a query, {size / len(tools):.0f} bytes a tool"


def _cpu_s(index: Index, queries: list[Query]) -> float:
    before = time.process_time()
    for query in queries:
        index.search(query.text)
    return time.process_time() - before


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the search for tools on a benchmark.")
    parser.add_argument("folder", type=Path, help="with tools.jsonl and queries.tsv")
    parser.add_argument("--copies", type=int, default=10, help="servers of each kind in the large catalogue")
    parser.add_argument("--misses", action="store_true", help="print queries of the dev half without a wanted tool")
    options = parser.parse_args()
    tools, queries = read_tools(options.folder), read_queries(options.folder)
    index = filled(tools)
    for name in ("dev", "test", "all"):
        chosen = [query for query in queries if name in (query.half, "all")]
        row = ", ".join(f"{figure} {value:.3f}" for figure, value in figures(index, chosen).items())
        print(f"{name}: {row} ({len(chosen)} queries)")
    print(costs(tools, queries))
    print(costs(read_tools(options.folder, options.copies), queries))
    for query in queries if options.misses else ():
        if query.half == "dev" and query.wanted.isdisjoint(found := found_by(index, query)[:SHOWN_MAX]):
            print(f"missed: {query.text} {sorted(query.wanted)}: {found}")


if __name__ == "__main__":
    main()
