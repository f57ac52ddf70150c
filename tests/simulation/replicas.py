"""Worlds of one to eight replicas, which share a storage: any of them answers any request.

Their parts are those of lasting worlds. The faults of replicas are struck in the parts `r.0`.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from typing import Final

import masks
import msgspec
from filing_clients import FILING_KINDS, UNKNOWN, Filing
from isthmus.core.base.errors import INTERNAL_ERROR
from isthmus.core.base.plan import Affinity, Eviction, Plan
from isthmus.core.bulk import BulkEngine
from lasting import KEPT, TIGHT, LastingWorld
from replica_network import REPLICA_FAULTS, SKEW_MAX_S, Replica, ReplicaNetwork
from replica_promises import ReplicaPromises
from replica_quotas import Quotas
from simulated_clients import Client
from simulated_network import FAULTS, Wrong
from simulated_servers import Server
from simulation import CALM_S, EMPTY_S, NARROW, NEWCOMER, OWN, ROOMY, STORM_S, TRIES, LenientEngine
from stateless_driving import tables

WEATHER: Final = ("slow", "broken", "full")
FAULTS_OF_ALL: Final = (*FAULTS, *WEATHER, *REPLICA_FAULTS)
COUNTS: Final = (1, 2, 2, 2, 3, 3, 5, 8)
HEALED_S: Final = 50.0
"""The time after a storm in which pauses, splits and outages end, and processes start again. One that was cut off for
30 s waits for the lease of the run before for 10 s more."""
AGAIN_S: Final = 16.0
"""The time in which processes that were killed together start again: a lease is taken over after 10 s."""
UNUSED_S: Final = 700.0
"""The time after which all files and tasks of clients that have left are over, and what they used is given back."""
FOLLOWER: Final = 3000
"""The number of the first client that comes to look after tasks. It is above those of all other clients."""
OVER: Final = ("completed", "failed", "cancelled")


class ReplicasWorld(LastingWorld):
    """A world of the kind that the module describes."""

    network: ReplicaNetwork  # type: ignore[assignment]
    promises: ReplicaPromises

    def __init__(self, name: str, *, is_checked: bool = True, count: int = 0) -> None:
        seed, self._kept = masks.parse(name)
        self.parts: list[str] = []
        self.rng = rng = random.Random(seed)
        chance = rng.choice((0.0, 0.2, 0.4, 0.7))
        drawn = [fault for fault in FAULTS_OF_ALL if self._draw(fault, chance, rng)]
        self.faults = frozenset(filter(self._has, drawn))
        self.affinity, eviction = rng.choice(list(Affinity)), rng.choice(list(Eviction))
        is_narrow = rng.random() < 0.4 and bool(drawn) and self._has("narrow")
        is_tight = rng.random() < 0.3 and bool(drawn) and self._has("tight")
        limits = msgspec.structs.replace(NARROW if is_narrow else ROOMY, **KEPT, **(TIGHT if is_tight else {}))
        count = count or rng.choice(COUNTS)
        self.task_record = self.change_log = None
        self.clients: list[Client] = []
        self.servers: dict[str, Server] = {}
        self.network = ReplicaNetwork(rng, self.faults, self._dialled)  # type: ignore[assignment]
        self.network.manners = self._manners(seed)
        self.network.is_routed = rng.random() < 0.3
        self.grant_record = self._drawn_grants(seed)
        drawn_servers = [self._server(number) for number in range(rng.randint(1, 2))]
        self.servers = {server.plan.id: server for server in drawn_servers if self._has(server.name)}
        for server in drawn_servers:
            server.may_run_once = False  # each replica has processes of its own
        plan = Plan(
            servers=tuple(server.plan for server in self.servers.values()),
            affinity=self.affinity,
            link_keys=(b"signs all that is a link, and no more",),
            state_keys=(b"seals what clients bring back",),
            workspaces_path="/w",
            eviction=eviction,
            shares_storage=True,
        )

        def make(replica: Replica) -> BulkEngine:
            return (LenientEngine if is_checked else BulkEngine)(
                msgspec.structs.replace(plan, replica=replica.name),
                entropy=replica.rng_of(f"entropy {replica.tag} {replica.run_name}").randbytes,
                unix_at_zero=replica.unix_at_zero,
                has_storage=True,
                limits=limits,
            )

        self._server_ids = [server.plan.id for server in drawn_servers]
        self._client_count = rng.randint(2, 7)
        self.network.disk.quotas = Quotas(limits, SKEW_MAX_S if "skews" in self.faults else 0.0)
        self.promises = ReplicaPromises(self.network, is_roomy=not is_tight)  # type: ignore[arg-type]
        self.network.begin(count, make)

    def _enter(self, number: int, kind: type[Filing], server: str, principal: str) -> Filing:
        client = super()._enter(number, kind, server, principal)
        client.likes_tasks = number < NEWCOMER
        return client

    @property
    def replicas(self) -> list[Replica]:
        return list(self.network.replicas.values())

    # --- The course of a world --------------------------------------------------------------------------------------

    def run(self) -> None:
        network = self.network
        for number in range(self._client_count):
            client = self._join(number) if self._has(f"c{number}") else None
            if client is not None:
                self._plan(f"c{number}", client.act)
        for part, act in (("x", self._strike), ("d", network.disk.strike), ("r", network.strike)):
            if self._has(part):
                self._plan(part, act)
        network.run(STORM_S)
        network.is_stormy = False
        network.run(HEALED_S)
        self.promises.check_stored()
        if not self.faults:
            self._check_clients()  # later, their sessions have been idle for too long
        if "kills" in self.faults:
            for replica in self.replicas:
                replica.crash()
            network.run(AGAIN_S)
            self.promises.check_stored()
        if any(replica.is_down for replica in self.replicas):
            raise Wrong("a replica has not started again")
        self._check_uses()
        self._check_tasks()
        if self.faults:
            self._check_clients()
        network.rest(CALM_S)
        self._check_answered()
        self._check_service()
        self._check_empty()

    # --- Checks afterwards ------------------------------------------------------------------------------------------

    def _check_tasks(self) -> None:
        """Checks that each task of a named principal can be found anywhere, and has come to an end."""
        network, promises = self.network, self.promises
        numbers = itertools.count(FOLLOWER)
        for server, principal, is_modern in dict.fromkeys(
            (one.server, one.principal, one.is_modern) for one in promises.tasks if one.principal
        ):
            kind = next(kind for kind in reversed(FILING_KINDS) if kind.is_modern == is_modern)
            client = self._enter(next(numbers), kind, server, principal)
            client.is_rude = False
            known = [one for one in promises.tasks if promises.must_see(one, client)]
            for _ in range(TRIES):
                network.run(5.0)
                if client.is_ready and all(handle.status in OVER for handle in known):
                    break
                for handle in known if client.is_ready and client.knows_tasks else []:
                    if handle.status not in OVER:
                        client.look(handle)
            left = [one for one in known if one.status not in OVER and promises.must_see(one, client)]
            if left and client.knows_tasks and "never" not in self.faults:
                raise Wrong(f"tasks that do not come to an end: {left}")
            network.counts["tasks followed"] += len(known)

    def _check_answered(self) -> None:
        for client in self.clients:
            # what is of others or expired is unknown, and a task that was cancelled has no result
            refused = sum(client.outcomes.pop(f"error {code}", 0) for code in (*UNKNOWN, INTERNAL_ERROR))
            client.outcomes["error"] -= refused
            client.outcomes += Counter()
        super(LastingWorld, self)._check_answered()

    def _check_empty(self) -> None:
        network = self.network
        for client in self.clients:
            client.is_done = True
            client.leave()
        network.rest(UNUSED_S)
        owners = {replica.name.owner for replica in self.replicas}
        network.disk.quotas.check_returned(network.disk.records, owners, network.now_unix)
        network.rest(EMPTY_S)
        disk = network.disk
        disk.remove_expired()
        disk.remove_junk()
        records = [key for key in disk.records if not key.startswith(("replica/", "list/"))]
        if records or disk.blobs or disk.files:
            raise Wrong(f"left of files and tasks: {records}, {list(disk.blobs)}, {list(disk.files)}")
        for replica in self.replicas:
            left = {name: table for name, table in tables(replica.engine).items() if table and name not in OWN}
            drafts = replica.disk.partial.keys() - disk.junk
            if left or drafts or replica.engine.tasks() or replica.engine.files():
                raise Wrong(
                    f"left in {replica.tag} of clients that have gone: {left}, {drafts}, {replica.engine.files()}"
                )
        if network.hops or network.unbegun:
            raise Wrong(f"left of requests that were passed on: {network.hops}")
