"""Worlds in which the proxy has a disk, files and tasks, and may be restarted.

Their parts are those of other worlds, and `tight` limits, the troubles of the disk (d.0), and those of the process
(r.0).
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from typing import Final

import masks
import msgspec
from filing_clients import FILING_KINDS, LINK_TTL_S, TASK_TTL_S, UNKNOWN, UPLOAD_TTL_S, Filing, FilingHttp, FilingPipe
from filing_servers import FilingServer, filing_plan
from isthmus.core.base.effects import Dial
from isthmus.core.base.plan import Affinity, Eviction, Kind, Offer, Plan, TaskRules
from isthmus.core.base.revisions import Era
from isthmus.core.bulk import BulkEngine
from lasting_network import DYING, RESTART_S, LastingNetwork
from promises import Promises
from simulated_clients import KINDS as PLAIN_KINDS
from simulated_clients import Client
from simulated_disk import WEATHER, Left
from simulated_network import FAULTS, Channel, Wrong
from simulated_servers import Server
from simulation import CALM_S, EMPTY_S, NARROW, ROOMY, STORM_S, TRIES, LenientEngine, World

LASTING_FAULTS: Final = (*FAULTS, *WEATHER, "vanishes", *DYING)

KEPT: Final = {
    "upload_ttl_s": UPLOAD_TTL_S,
    "artifact_ttl_s": 150.0,
    "upload_link_ttl_s": LINK_TTL_S,
    "upload_draft_ttl_s": 40.0,
    "upload_draft_max_s": 80.0,
    "task_ttl_s": TASK_TTL_S,
    "task_ttl_max_s": TASK_TTL_S,
    "task_poll_max_s": 5.0,
    "storage_timeout_s": 15.0,
    "tombstone_ttl_s": 100.0,
}
TIGHT: Final = {
    "session_storage_max_bytes": 700,
    "storage_max_bytes": 1500,
    "uploads_per_session_max": 4,
    "artifacts_per_session_max": 4,
    "stored_files_max": 12,
    "upload_drafts_per_session_max": 2,
    "upload_drafts_max": 3,
    "task_inline_max_bytes": 30,
    "tasks_max": 8,
    "tasks_per_principal_max": 5,
    "tasks_per_session_max": 4,
}
"""Limits so low that files are evicted for others, and more are refused."""

FAIR_S: Final = 60.0
"""The time without faults after a storm, in which open requests are answered."""

USER: Final = 2000
"""The number of the first client that comes to use stored files. It is above those of all other clients."""
KINDS_OF_USERS: Final = (FilingPipe, FilingHttp)


class LastingWorld(World):
    """A world of the kind that the module describes."""

    network: LastingNetwork
    network_kind: type[LastingNetwork] = LastingNetwork

    def __init__(self, name: str, *, is_checked: bool = True) -> None:
        seed, self._kept = masks.parse(name)
        self.parts: list[str] = []
        self.rng = rng = random.Random(seed)
        chance = rng.choice((0.0, 0.2, 0.4, 0.7))
        drawn = [fault for fault in LASTING_FAULTS if self._draw(fault, chance, rng)]
        self.faults = frozenset(filter(self._has, drawn))
        self.affinity, eviction, stores_events = rng.choice(list(Affinity)), rng.choice(list(Eviction)), rng.random()
        is_narrow = rng.random() < 0.5 and bool(drawn) and self._has("narrow")
        is_tight = rng.random() < 0.4 and bool(drawn) and self._has("tight")
        limits = msgspec.structs.replace(NARROW if is_narrow else ROOMY, **KEPT, **(TIGHT if is_tight else {}))
        self.task_record = self.change_log = (
            None  # a restart changes tasks and subscriptions in ways that these two do not model
        )
        self.clients: list[Client] = []
        self.servers: dict[str, Server] = {}
        self.network = self.network_kind(rng, self.faults, self._dialled)
        self.network.manners = self._manners(seed)
        self.grant_record = self._drawn_grants(seed)
        drawn_servers = [self._server(number) for number in range(rng.randint(1, 2))]
        self.servers = {server.plan.id: server for server in drawn_servers if self._has(server.name)}
        plan = Plan(
            servers=tuple(server.plan for server in self.servers.values()),
            affinity=self.affinity,
            link_keys=(b"signs all that is a link, and no more",),
            state_keys=(b"seals what clients bring back",),
            workspaces_path="/w",
            eviction=eviction,
            stores_events=stores_events < 0.5,
        )
        entropy = self.network.rng_of("entropy").randbytes

        def make(unix_at_zero: float, left: Left) -> BulkEngine:
            return (LenientEngine if is_checked else BulkEngine)(
                plan,
                entropy=entropy,
                unix_at_zero=unix_at_zero,
                has_storage=True,
                limits=limits,
                stored=left.artifacts,
                stored_tasks=left.tasks,
                stored_uploads=left.uploads,
            )

        self._server_ids = [server.plan.id for server in drawn_servers]
        self._client_count = rng.randint(2, 6)
        self.promises = Promises(self.network, is_roomy=not is_tight)
        self.network.begin(make, self.promises.check_start)

    def _server(self, number: int) -> Server:
        rng = self.network.rng_of(f"files of s{number}")
        if rng.random() < 0.3:
            return super()._server(number)
        is_modern, is_auto = rng.random() < 0.3, rng.random() < 0.4
        kind = Kind.PIPE if is_auto else rng.choice((Kind.PIPE, Kind.HTTP))
        era = Era.STATELESS if is_modern else rng.choice((None, Era.HANDSHAKE))
        tasks = TaskRules(offer=rng.choice((Offer.AUTO, Offer.ALWAYS, Offer.OWN)))
        plan = filing_plan(f"s{number}", kind, era, is_auto=is_auto, tasks=tasks)
        return FilingServer(self.network, plan, is_modern=is_modern)

    def _dialled(self, channel: Channel, dial: Dial) -> None:
        self.servers[dial.target.server].dialled(channel, dial)

    def _join(self, number: int, kind: type[Client] | None = None, server: str | None = None) -> Client | None:
        rng = self.network.rng_of(f"plan of c{number}")
        kind = rng.choice(PLAIN_KINDS) if kind is None else kind
        principal = rng.choice(("", "ann", "ann", "bob"))
        server = rng.choice(self._server_ids) if server is None else server
        if server not in self.servers:
            return None
        if not isinstance(self.servers[server], FilingServer):
            return super()._join(number, kind, server)
        own = next(k for k in FILING_KINDS if issubclass(k, kind))
        return self._enter(number, own, server, principal)

    def _enter(self, number: int, kind: type[Filing], server: str, principal: str) -> Filing:
        client = kind(self.network, number, server, principal)
        client.promises = self.promises
        client.is_auto = self.servers[server].plan.auto_files is not None
        self.clients.append(client)
        client.begin()
        return client

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
        network.run(FAIR_S)
        if network.is_down:  # the last effects met a restart that was drawn in the storm
            network.run(RESTART_S)
        self._check_clients()
        self.promises.check_stored()
        if self.faults.intersection(DYING):
            network.crash()
        network.run(20.0)
        self._check_uses()
        network.run(CALM_S)
        self._check_answered()
        self._check_service()
        self._check_empty()

    def _strike(self, number: int) -> None:
        if self.servers:
            super()._strike(number)

    # --- Checks afterwards ------------------------------------------------------------------------------------------

    def _check_uses(self) -> None:
        """Checks that clients can use the files that they were promised, in sessions of their own."""
        network, promises = self.network, self.promises
        numbers = itertools.count(USER)
        for server, principal in dict.fromkeys((one.server, one.principal) for one in promises.files):
            kept = [one for one in promises.files if (one.server, one.principal) == (server, principal)]
            kept = [one for one in kept if promises.is_kept(one)][-8:]
            if not kept:
                continue
            client = self._enter(next(numbers), KINDS_OF_USERS[len(kept) % 2], server, principal)
            client.is_rude = False
            for _ in range(TRIES):
                network.run(2.0)
                for promise in kept if client.is_ready else []:
                    if promises.is_kept(promise) and promise not in client.used:
                        client.use(promise)
            network.run(10.0)
            left = [one for one in kept if one not in client.used and promises.is_kept(one)]
            if left:
                raise Wrong(f"{client} cannot use {left}: {client.outcomes}")

    def _check_answered(self) -> None:
        """Checks the outcomes. Files of others and expired files are refused even in a world without faults."""
        for client in self.clients:
            refused = sum(client.outcomes.pop(f"error {code}", 0) for code in UNKNOWN)
            client.outcomes["error"] -= refused
            client.outcomes += Counter()
        super()._check_answered()

    def _check_empty(self) -> None:
        network = self.network
        disk = network.disk
        for client in self.clients:
            client.is_done = True
            client.leave()
        put_back_s = network.latest_unix_at_zero - network.unix_at_zero
        network.run(EMPTY_S + put_back_s)
        disk.remove_junk()
        left = {"files": network.engine.files(), "drafts": disk.partial, "folders": list(disk.files)}
        if any(left.values()):
            raise Wrong(f"left when all times are over: {left}")
        super()._check_empty()
