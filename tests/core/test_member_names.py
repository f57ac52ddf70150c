"""What the members of the tables are called."""

from __future__ import annotations

import enum
import importlib
import pkgutil
from pathlib import Path

import isthmus.core
import pytest


def enums() -> list[type[enum.Enum]]:
    """Those of the folders of the core."""
    found = []
    for folder in ("bridge", "oracle", "wire"):
        inside = Path(isthmus.core.__file__).parent / folder
        for module in pkgutil.iter_modules([str(inside)], f"isthmus.core.{folder}."):
            every = vars(importlib.import_module(module.name)).values()
            kinds = (each for each in every if isinstance(each, type) and issubclass(each, enum.Enum))
            found += [kind for kind in kinds if kind.__module__ == module.name]
    return found


@pytest.mark.parametrize("kind", enums(), ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_members_are_called_what_they_are(kind: type[enum.Enum]) -> None:
    """In messages, traces and addresses, one name."""
    called = {member.name: str(member.value).lower().replace(" ", "_").replace("-", "_") for member in kind}
    assert called == {name: name.lower() for name in called}
