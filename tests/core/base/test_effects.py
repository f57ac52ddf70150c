"""What an order or an answer leaves out says nothing, but for the few things that are usual."""

from __future__ import annotations

import inspect
from typing import Any

import msgspec
from isthmus.core.base import effects
from isthmus.core.base.effects import Halt, RawFile

USUAL: dict[tuple[str, str], Any] = {
    ("PostOpening", "accepts_json"): True,
    ("PostOpening", "accepts_events"): True,
    ("DraftOpening", "file"): RawFile("", None, ""),
    ("Send", "status"): 200,
    ("Send", "event"): "message",
    ("Close", "status"): 202,
    ("Close", "code"): 1000,
    ("Survey", "entries_max"): 10_000,
    ("Survey", "folder_max"): 64,
    ("Materialize", "folder"): "in",
    ("Appended", "is_over"): True,
    ("Appended", "halt"): Halt.NONE,
}


def test_what_is_left_out_is_empty_but_for_what_is_usual() -> None:
    found = {}
    for name, kind in inspect.getmembers(effects, inspect.isclass):
        if not issubclass(kind, msgspec.Struct):
            continue
        for each in msgspec.structs.fields(kind):
            assert each.default_factory is msgspec.NODEFAULT, "they are frozen, and so is what they hold"
            if each.default is not msgspec.NODEFAULT and each.default not in ("", b"", (), None, False, 0):
                found[name, each.name] = each.default
    assert found == USUAL


def test_what_does_not_halt_has_no_word() -> None:
    """The others have their names, in traces, which are read by later versions."""
    assert {member.value: member.name for member in Halt} == {
        name.lower() if name != "NONE" else "": name for name in Halt.__members__
    }
