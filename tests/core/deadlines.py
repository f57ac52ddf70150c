"""The deadlines of an engine, by their reasons."""

from __future__ import annotations

from task_scenes import Scene


def reasons(world: Scene, seconds: float) -> list[str]:
    """Waits for so many seconds. Returns the reasons of the deadlines that were due, in order."""
    end, found = world.world.now + seconds, []
    while (deadline := world.engine.next_timeout()) is not None and deadline.at <= end:
        found.append(deadline.why)
        world.wait(max(0.0, deadline.at - world.world.now))
    world.wait(end - world.world.now)
    return found
