"""Worlds with all manners and no faults, so that each request must get its good answer.

In some of them clients leave and come again, which ends processes and last lines.
"""

from __future__ import annotations

import random
from typing import Final

import manners
from simulated_servers import Server
from simulation import World
from wired import WiredWorld

LEAVING: Final = 0.4


class MildWorld(World):
    """A world of the kind that the module describes."""

    def _draw(self, fault: str, chance: float, rng: random.Random) -> bool:
        return fault == "leaves" and rng.random() < LEAVING

    def _drawn_manners(self, seed: str) -> list[str]:
        return list(manners.MANNERS)


class MildWiredWorld(MildWorld, WiredWorld):
    """A mild world whose messages are bytes on wires."""

    def _server(self, number: int) -> Server:
        return World._server(self, number)  # servers for files have few of the manners
