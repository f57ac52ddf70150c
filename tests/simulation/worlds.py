"""Worlds of each kind: `17` is one round the engine alone, `lasting-17` one with a disk, files, and restarts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import simulation
from lasting import LastingWorld
from simulation import Report, World

KINDS: Final[dict[str, type[World]]] = {"": World, "lasting": LastingWorld}
TURNS: Final = ("", "", "lasting-")


def name_of(number: int) -> str:
    """The names of all worlds, in turns."""
    return f"{TURNS[number % len(TURNS)]}{number}"


def run_world(name: str, *, is_heard: bool = True, log: Callable[[str], None] | None = None) -> Report:
    """The world of that name."""
    kind = name.partition("/")[0].rpartition("-")[0]
    return simulation.run_world(name, is_heard=is_heard, log=log, kind=KINDS[kind])
