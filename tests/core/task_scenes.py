"""An engine between one server and its clients, with tasks, that can be restarted over its stored state.

`Scene.run` carries out everything that needs no decision; `Scene.wait` also advances the clock.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
from driving import LATEST, LINK_KEY, UNIX_AT_ZERO, Driver
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import AccessRules, Kind, Offer, Plan, ServerPlan, TaskRules
from isthmus.core.base.replica import LEASE_PREFIX, ReplicaName
from isthmus.core.base.revisions import Era
from isthmus.core.base.telemetry import Tracing
from isthmus.core.bulk import BulkEngine
from task_clients import ClientRequest, Party, handle
from task_servers import TaskServer, Work
from task_store import Store

GRACE_S = 0.3
"""A little more than `task_grace_s`: a client that asked for a task has its handle by then."""


@dataclass
class Scene:
    """An engine with one server, `s`; the storage outlives it.

    Attributes:
        names_era: the plan names the era of the server.
    """

    kind: Kind
    up: Era
    has_tasks: bool
    rules: TaskRules
    limits: Limits
    insists: bool = False
    names_era: bool = True
    access: AccessRules | None = None
    addresses: tuple[str, ...] = ()
    seed: int = 1
    replica: str = ""
    tracing: Tracing | None = None
    store: Store = field(default_factory=Store)
    parties: list[Party] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.now = 100.0
        self._begin()

    @property
    def server_plan(self) -> ServerPlan:
        return ServerPlan(
            id="s",
            kind=self.kind,
            era=self.up if self.names_era else None,
            tasks=self.rules,
            access=self.access,
            addresses=self.addresses,
        )

    def _begin(self) -> None:
        plan = Plan(
            servers=(self.server_plan,),
            link_keys=(LINK_KEY,),
            workspaces_path="/w",
            replica=self.name,
            shares_storage=bool(self.replica),
            tracing=self.tracing,
        )
        self.store.begin()
        engine = BulkEngine(
            plan,
            entropy=random.Random(self.seed).randbytes,
            unix_at_zero=UNIX_AT_ZERO,
            has_storage=True,
            limits=self.limits,
            stored_tasks=[] if self.replica else sorted(self.store.tasks.values(), key=lambda record: record.id),
        )
        self.world = Driver(engine, now=self.now)
        self.server = TaskServer(self.world, "s", self.up, has_tasks=self.has_tasks, insists=self.insists)

    @property
    def name(self) -> ReplicaName | None:
        """The name of the engine among the replicas; None if it is alone."""
        return ReplicaName(self.replica, f"{self.seed:032x}") if self.replica else None

    def join(self) -> None:
        """Takes the lease of the replica."""
        assert self.name is not None
        self.store.records[LEASE_PREFIX + self.replica] = msgspec.json.encode({"run": self.name.run})

    def leave(self) -> None:
        """Loses the lease."""
        del self.store.records[LEASE_PREFIX + self.replica]

    def beside(self, replica: str) -> Scene:
        """Returns another replica over the same storage, with the same server if that is one over HTTP."""
        store = Store(self.store.records, self.store.blobs)
        other = replace(self, replica=replica, seed=self.seed + 1, store=store, parties=[])
        if self.kind is Kind.HTTP:
            other.server.works, other.server.count = self.server.works, 100
        other.join()
        return other

    @property
    def engine(self) -> BulkEngine:
        return self.world.engine

    def restart(self) -> None:
        """Replaces the engine by one over the same storage. Clients have to begin again; a server over HTTP goes on."""
        self.now, self.seed = self.world.now, self.seed + 1
        before = self.server
        self._begin()
        self.run()
        self.server.count = before.count
        self.server.works = dict(before.works)
        for work in before.works.values():
            work.fetching.clear()
            if self.kind is not Kind.HTTP or work.id is None:
                work.is_lost = True

    def party(
        self,
        era: Era,
        *,
        down: str = "http",
        principal: str = "",
        is_plain: bool = False,
        revision: str = LATEST,
    ) -> Party:
        """Adds a client that is ready to send requests."""
        party = Party(self.world, era, down=down, principal=principal, is_plain=is_plain)
        self.parties.append(party)
        return party.begin(self.run, revision=revision)

    def run(self) -> None:
        """Lets the storage and the server do everything that needs no decision."""
        while self.store.attend(self.world) | self.server.attend():
            pass

    def wait(self, seconds: float) -> None:
        """Advances the clock, and runs the scene at every deadline."""
        self.run()
        end = self.world.now + seconds
        while (deadline := self.engine.next_timeout()) is not None and deadline.at <= end:
            self.world.wait(max(0.0, deadline.at - self.world.now))
            self.run()
        self.world.wait(end - self.world.now)
        self.run()

    def begin(
        self, party: Party, tag: str, tool: str = "work", *, accepts: bool = True, **rest: Any
    ) -> tuple[str, Work]:
        """Calls a tool as a task, the server's own if it makes tasks. Returns its id, and the call at the server."""
        asked = party.call(tag, tool, **rest)
        self.run()
        work = self.server.work(tag)
        if accepts and work.as_task:
            self.server.accept(work)
        self.wait(self.limits.task_after_s + GRACE_S if party.is_modern else GRACE_S)
        return handle(asked), work

    def ask(self, asked: ClientRequest) -> ClientRequest:
        """Runs the scene, so that a request gets its response, unless that takes time."""
        self.run()
        return asked

    def status(self, party: Party, id: str) -> str:
        status = self.ask(party.get(id)).result["status"]
        assert isinstance(status, str)
        return status


def scene(
    up: Era = Era.HANDSHAKE,
    kind: Kind = Kind.PIPE,
    *,
    has_tasks: bool = False,
    insists: bool = False,
    offer: Offer = Offer.AUTO,
    strict: bool = False,
    tools: tuple[tuple[str, Offer], ...] = (),
    limits: Limits | None = None,
    names_era: bool = True,
    access: AccessRules | None = None,
    addresses: tuple[str, ...] = (),
    replica: str = "",
    tracing: Tracing | None = None,
) -> Scene:
    rules = TaskRules(offer=offer, strict=strict, tools=tools)
    given = {"insists": insists, "names_era": names_era, "access": access, "addresses": addresses}
    made = Scene(kind, up, has_tasks, rules, limits or Limits(), replica=replica, tracing=tracing, **given)
    if replica:
        made.join()
    return made
