"""Tests of the notes that tools of released servers get: on those that read or make files, and on no others.

The tools and their labels are in `tests/core/samples/tools`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from each_row import each_row
from isthmus.core.files.calls.file_arguments import file_arguments

LISTS: Final = Path(__file__).parents[2] / "samples" / "tools" / "lists.jsonl"
SERVERS: Final[list[dict[str, Any]]] = [json.loads(line) for line in LISTS.read_text("utf-8").splitlines()]
HALVES: Final = ("tuned", "held out")

PRECISION_MIN: Final = 0.95
"""The least share of what is found that is right. Measured are 0.957 to 1."""

RECALL_MIN: Final = 0.95
"""The least share of what is there that is found. Measured are 0.959 to 1."""


class Case(NamedTuple):
    """A tool, or an argument of one: whether it is found, and whether it is there."""

    name: str
    is_found: bool
    is_there: bool


def tools(half: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for server in SERVERS:
        if server["half"] == half:
            for tool in server["tools"]:
                yield f"{server['package']} {tool['name']}", tool


def found(tool: dict[str, Any], kind: str) -> tuple[str, ...]:
    entry = {name: tool[name] for name in ("name", "description", "inputSchema")}
    labels: tuple[str, ...] = getattr(file_arguments(json.dumps(entry).encode()), kind)
    return labels


def check(cases: Iterable[Case]) -> None:
    kept = list(cases)
    right = sum(case.is_found and case.is_there for case in kept)
    wrong = [case.name for case in kept if case.is_found and not case.is_there]
    missed = [case.name for case in kept if case.is_there and not case.is_found]
    assert right >= PRECISION_MIN * (right + len(wrong)), wrong
    assert right >= RECALL_MIN * (right + len(missed)), missed


@each_row("half", list(HALVES))
@each_row("kind", ["reads", "writes"])
def test_tools_get_the_note_that_their_arguments_call_for(half: str, kind: str) -> None:
    check(Case(name, bool(found(tool, kind)), kind in tool) for name, tool in tools(half))


@each_row("half", list(HALVES))
@each_row("kind", ["reads", "writes"])
def test_notes_name_the_arguments_that_name_files(half: str, kind: str) -> None:
    cases = []
    for name, tool in tools(half):
        labels, labelled = found(tool, kind), tool.get(kind, [])
        cases += [Case(f"{name} {label}", label in labels, label in labelled) for label in {*labels, *labelled}]
    check(cases)


def test_labels_are_of_arguments() -> None:
    """Each label is in its tool's schema, and at most in one list."""
    for half in HALVES:
        for name, tool in tools(half):
            reads, writes = set(tool.get("reads", [])), set(tool.get("writes", []))
            assert reads.isdisjoint(writes), name
            for label in reads | writes:
                assert f'"{label.rpartition(".")[2]}"' in json.dumps(tool["inputSchema"]), (name, label)
