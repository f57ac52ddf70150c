"""The change notes: each has a number of its own, and what it says to drivers is in the form that commands print."""

from __future__ import annotations

import re

from each_row import each_row
from isthmus.app.commands.change_notes import change_notes, for_drivers

NOTES = change_notes()


def test_each_note_has_a_number_of_its_own() -> None:
    numbers = [name[:4] for name in NOTES]
    assert all(re.fullmatch(r"\d{4}-[a-z0-9-]+", name) for name in NOTES)
    assert len(numbers) == len(set(numbers)) > 100


@each_row("name", NOTES)
def test_what_a_driver_must_do_is_an_item_of_its_own(name: str) -> None:
    """An item for drivers begins with the mark, goes on with an order in lower case, and ends with a full stop."""
    text, items = NOTES[name], for_drivers(NOTES[name])
    marks = re.findall(r"(?<![.\w])drivers?:", text, re.IGNORECASE)
    assert len(items) == len(marks), "write it as: - `driver:` set the new `Cause.is_ours` where …"
    for item in items:
        assert item[0].islower() and item.endswith("."), item


def test_items_for_drivers_are_found() -> None:
    text = "Words.\n- `driver:` carry out\n  the new `Halt`.\n- Other.\n- `driver:` pass `now`.\n\n`driver:` no item."
    assert for_drivers(text) == ["carry out the new `Halt`.", "pass `now`."]
    assert sum(len(for_drivers(text)) for text in NOTES.values()) > 10
