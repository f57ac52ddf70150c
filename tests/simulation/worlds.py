"""Worlds of each kind: a seed that is a number makes one round the engine alone, others begin with a word."""

from __future__ import annotations

from lasting import LastingWorld
from simulation import Report, World, run_world

KINDS = {"": World, "lasting": LastingWorld}


def run(seed: str) -> Report:
    """The world of a seed such as "17" or "lasting-17"."""
    kind, _, number = seed.rpartition("-")
    return run_world(seed, lambda _: KINDS[kind](number))
