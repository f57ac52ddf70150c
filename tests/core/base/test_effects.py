"""The defaults of effects and inputs: fields that are left out are empty, except for a few usual values."""

from __future__ import annotations

import inspect
from typing import Any

import msgspec
from isthmus.core.base import effects, events, storage
from isthmus.core.base.events import RawFile
from isthmus.core.base.grants import NO_GRANTS
from isthmus.core.base.storage import Halt

USUAL: dict[tuple[str, str], Any] = {
    ("PostOpening", "accepts_json"): True,
    ("PostOpening", "accepts_events"): True,
    ("DraftOpening", "file"): RawFile("", None, ""),
    ("Send", "status"): 200,
    ("Send", "event"): "message",
    ("Close", "status"): 202,
    ("Close", "code"): 1000,
    ("Allocate", "area"): "out",
    ("Survey", "entries_max"): 10_000,
    ("Survey", "folder_max"): 64,
    ("Materialize", "folder"): "in",
    ("Appended", "is_over"): True,
    ("Appended", "halt"): Halt.NONE,
}


EMPTY = ("", b"", (), None, False, 0, frozenset(), NO_GRANTS)


def test_fields_that_are_left_out_have_their_defaults() -> None:
    found = {}
    kinds = {**vars(events), **vars(effects), **vars(storage)}
    for name, kind in kinds.items():
        if not inspect.isclass(kind) or not issubclass(kind, msgspec.Struct):
            continue
        for each in msgspec.structs.fields(kind):
            assert each.default_factory is msgspec.NODEFAULT, "they are frozen, and so is what they hold"
            if each.default is not msgspec.NODEFAULT and each.default not in (
                "",
                b"",
                (),
                None,
                False,
                0,
                frozenset(),
                NO_GRANTS,
            ):
                found[name, each.name] = each.default
    assert found == USUAL


def test_the_values_of_halt_are_its_names() -> None:
    """NONE is empty; the others stand in traces, which later versions read."""
    assert {member.value: member.name for member in Halt} == {
        name.lower() if name != "NONE" else "": name for name in Halt.__members__
    }
