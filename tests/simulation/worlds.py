"""The kinds of worlds.

`17` is a world around the engine alone, `lasting-17` one with a disk, files and restarts, `wired-17` a lasting one
whose messages are bytes on wires, `driven-17` a wired one whose inputs have the shapes that drivers use. `mild-17` and
`mild-wired-17` have no fault and all manners. `replicas-17` has one to eight engines around one storage.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import simulation
from driven import DrivenWorld
from lasting import LastingWorld
from mild import MildWiredWorld, MildWorld
from replicas import ReplicasWorld
from simulation import Report, World
from wired import WiredWorld

KINDS: Final[dict[str, type[World]]] = {
    "": World,
    "lasting": LastingWorld,
    "wired": WiredWorld,
    "driven": DrivenWorld,
    "mild": MildWorld,
    "mild-wired": MildWiredWorld,
    "replicas": ReplicasWorld,
}
TURNS: Final = ("", "", "lasting-", "wired-", "driven-", "mild-", "mild-wired-", "replicas-", "replicas-")


def name_of(number: int) -> str:
    """Returns the name of the world with that number. The kinds take turns."""
    return f"{TURNS[number % len(TURNS)]}{number}"


def kind_of(name: str) -> str:
    """Returns the word that the name of a world begins with, or ""."""
    return name.partition("/")[0].rpartition("-")[0]


def run_world(name: str, *, is_checked: bool = True, log: Callable[[str], None] | None = None) -> Report:
    """Runs the world of that name."""
    return simulation.run_world(name, is_checked=is_checked, log=log, kind=KINDS[kind_of(name)])
