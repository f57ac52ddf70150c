"""A storage of events that a test controls: it carries out the orders of the engine in any order, or fails them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from driving import Driver, driver
from isthmus.core.base.effects import Effect
from isthmus.core.base.limits import Limits
from isthmus.core.base.storage import Forget, ForgetAll, Load, Loaded, Save, Saved, StorageFailed

FULL = StorageFailed("the disk is full", is_full=True)


@dataclass
class Store:
    """A storage that carries out its orders when a test says so, in order or not."""

    world: Driver
    records: dict[str, bytes] = field(default_factory=dict)
    seen: int = 0
    waiting: list[Save | Load] = field(default_factory=list)

    def look(self) -> list[Save | Load]:
        """The orders that are still to be carried out, oldest first."""
        for effect in self.world.log[self.seen :]:
            if isinstance(effect, Save | Load):
                self.waiting.append(effect)
            elif isinstance(effect, Forget):
                self.records.pop(effect.key, None)
            elif isinstance(effect, ForgetAll):
                self.records = {key: v for key, v in self.records.items() if not key.startswith(effect.prefix)}
        self.seen = len(self.world.log)
        return self.waiting

    def do(self, order: Save | Load) -> list[Effect]:
        self.look().remove(order)
        if isinstance(order, Load):
            return self.world.store(order.ticket, Loaded(self.records.get(order.key)))
        self.records[order.key] = order.value
        return self.world.store(order.ticket, Saved())

    def fail(self, order: Save | Load) -> list[Effect]:
        self.look().remove(order)
        return self.world.store(order.ticket, FULL)

    def do_all(self) -> None:
        while self.look():
            self.do(self.waiting[0])
        self.look()

    def saves(self) -> list[str]:
        """The keys of the saves that are not done."""
        return [order.key for order in self.look() if isinstance(order, Save)]

    def loads(self) -> list[Load]:
        return [order for order in self.look() if isinstance(order, Load)]


def storing(**limits: Any) -> tuple[Driver, Store]:
    world = driver(limits=Limits(**limits), stores_events=True)
    return world, Store(world)
