"""The names and values of the core's enumerations agree."""

from __future__ import annotations

import enum
import importlib
import pkgutil

import isthmus.core
from each_row import each_row

OTHERWISE = ("Halt", "Eviction", "Detail")
"""Enumerations with other values: see `test_effects` and `test_plan`. Those of `Detail` are ordered."""


def enums() -> list[type[enum.Enum]]:
    """All enumerations of the core, except for those of `OTHERWISE`."""
    found = []
    for module in pkgutil.walk_packages(isthmus.core.__path__, "isthmus.core."):
        every = vars(importlib.import_module(module.name)).values()
        kinds = (each for each in every if isinstance(each, type) and issubclass(each, enum.Enum))
        found += [kind for kind in kinds if kind.__module__ == module.name and kind.__name__ not in OTHERWISE]
    return found


@each_row("kind", enums())
def test_each_value_is_its_members_name(kind: type[enum.Enum]) -> None:
    """Messages, traces and addresses show one name."""
    called = {member.name: str(member.value).lower().replace(" ", "_").replace("-", "_") for member in kind}
    assert called == {name: name.lower() for name in called}
