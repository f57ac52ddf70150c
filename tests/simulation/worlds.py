"""Worlds of each kind: `17` is one round the engine alone, `lasting-17` one with a disk, files, and restarts,
`wired-17` one of these whose messages are bytes on wires, and `driven-17` one of those that drivers tell of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import simulation
from driven import DrivenWorld
from lasting import LastingWorld
from simulation import Report, World
from wired import WiredWorld

KINDS: Final[dict[str, type[World]]] = {"": World, "lasting": LastingWorld, "wired": WiredWorld, "driven": DrivenWorld}
TURNS: Final = ("", "", "lasting-", "wired-", "driven-")


def name_of(number: int) -> str:
    """The names of all worlds, in turns."""
    return f"{TURNS[number % len(TURNS)]}{number}"


def kind_of(name: str) -> str:
    """The word that the name of a world begins with, if it has one."""
    return name.partition("/")[0].rpartition("-")[0]


def run_world(name: str, *, is_heard: bool = True, log: Callable[[str], None] | None = None) -> Report:
    """The world of that name."""
    return simulation.run_world(name, is_heard=is_heard, log=log, kind=KINDS[kind_of(name)])
