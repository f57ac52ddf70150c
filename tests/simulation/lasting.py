"""Worlds in which the proxy has a disk, files and tasks, and does not live for ever."""

from __future__ import annotations

import random
from collections import Counter
from typing import Final

import msgspec
from filing_clients import FILING_KINDS, LINK_TTL_S, TASK_TTL_S, UNKNOWN, UPLOAD_TTL_S, Filing
from filing_servers import FilingServer, filing_plan
from isthmus.core.engine import Engine
from isthmus.core.eras import Era
from isthmus.core.limits import Limits
from isthmus.core.plan import Affinity, Eviction, Kind, Offer, Plan, TaskRules
from lasting_network import DYING, ZERO_UNIX, LastingNetwork
from overheard import Overheard
from promises import Promises
from simulated_clients import Client
from simulated_disk import WEATHER, Left
from simulated_network import FAULTS, Wrong
from simulated_servers import Server
from simulation import CALM_S, NARROW, ROOMY, STORM_S, World

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
"""So little that files go for others, and more are refused."""


class LastingWorld(World):
    """See the module."""

    network: LastingNetwork

    def __init__(self, seed: str) -> None:
        self.rng = rng = random.Random(f"lasting {seed}")
        chance = rng.choice((0.0, 0.2, 0.4, 0.7))
        self.faults = frozenset(fault for fault in LASTING_FAULTS if rng.random() < chance)
        self.affinity = rng.choice(list(Affinity))
        self.limits, is_roomy = self._limits()
        self.clients: list[Client] = []
        self.servers: dict[str, Server] = {}
        self.plan = Plan(servers=())
        self.network = LastingNetwork(rng, self.faults, self._dialled, self._make)
        self.servers = {server.plan.id: server for server in self._filing_servers()}
        self.plan = Plan(
            servers=tuple(server.plan for server in self.servers.values()),
            affinity=self.affinity,
            link_key=rng.randbytes(32),
            state_keys=(rng.randbytes(32),),
            workspaces_path="/w",
            eviction=rng.choice(list(Eviction)),
            stores_events=rng.random() < 0.5,
        )
        self.network.start()
        self.promises = Promises(self.network, is_roomy=is_roomy)
        self.network.crashing, self.network.restarted = self._receive_crash, self.promises.check_start

    def _limits(self) -> tuple[Limits, bool]:
        is_roomy = not self.faults or self.rng.random() < 0.6
        limits = NARROW if self.faults and self.rng.random() < 0.5 else ROOMY
        return msgspec.structs.replace(limits, **KEPT, **({} if is_roomy else TIGHT)), is_roomy

    def _make(self, unix_at_zero: float, left: Left) -> Engine:
        return Overheard(
            self.plan,
            entropy=self.rng.randbytes,
            unix_at_zero=unix_at_zero,
            limits=self.limits,
            stored=left.artifacts,
            stored_tasks=left.tasks,
            stored_uploads=left.uploads,
        )

    def _filing_servers(self) -> list[FilingServer]:
        rng, servers = self.rng, []
        for number in range(rng.randint(1, 2)):
            is_modern, is_auto = rng.random() < 0.3, rng.random() < 0.4
            kind = Kind.PIPE if is_auto else rng.choice((Kind.PIPE, Kind.HTTP))
            era = Era.STATELESS if is_modern else rng.choice((None, Era.HANDSHAKE))
            tasks = TaskRules(offer=rng.choice((Offer.AUTO, Offer.ALWAYS, Offer.OWN)))
            plan = filing_plan(f"files {number}", kind, era, is_auto=is_auto, tasks=tasks)
            servers.append(FilingServer(self.network, plan, is_modern=is_modern))
        return servers

    def _join(self, kind: type[Client] | None = None, server: str | None = None) -> Client:
        rng, number = self.rng, len(self.clients)
        kind = rng.choice(FILING_KINDS) if kind is None else next(own for own in FILING_KINDS if issubclass(own, kind))
        principal = rng.choice(("", "ann", "ann", "bob"))
        client = kind(self.network, number, rng.choice(list(self.servers)) if server is None else server, principal)
        assert isinstance(client, Filing)
        client.promises = self.promises
        client.is_auto = self.servers[client.server].plan.auto_files is not None
        self.clients.append(client)
        client.begin()
        return client

    # --- What happens -----------------------------------------------------------------------------------------------

    def run(self) -> None:
        network = self.network
        for _ in range(self.rng.randint(2, 6)):
            self._join().act()
        network.later(1.0, self._strike)
        network.run(STORM_S)
        network.is_stormy = False
        network.run(60.0)  # the weather is fine by then, and what was asked is answered
        if self.faults.intersection(DYING):
            network.crash()
        network.run(20.0)
        self._check_uses()
        network.run(CALM_S)
        self._check_answered()
        self._check_service()
        self._check_empty()

    def _strike(self) -> None:
        if self.network.is_stormy:
            self.network.strike()
        super()._strike()

    def _receive_crash(self) -> None:
        self.promises.receive_crash([client for client in self.clients if isinstance(client, Filing)])

    # --- What holds afterwards --------------------------------------------------------------------------------------

    def _check_uses(self) -> None:
        """What is kept is of use to those whom it was promised."""

    def _check_answered(self) -> None:
        """What is another's, or expired, is refused in a world without faults too."""
        for client in self.clients:
            refused = sum(client.outcomes.pop(f"error {code}", 0) for code in UNKNOWN)
            client.outcomes["error"] -= refused
            client.outcomes += Counter()
        super()._check_answered()

    def _check_empty(self) -> None:
        super()._check_empty()
        network = self.network
        disk, promises = network.disk, self.promises
        network.run(max(0.0, ZERO_UNIX - network.unix_at_zero))  # what lives longer for a clock that was put back
        left = {
            "files": network.engine.files(),
            "tasks": network.engine.tasks(),
            "drafts": disk.drafts.keys() - disk.junk,
        }
        left |= {"records": disk.records.keys() - disk.junk, "blobs": disk.blobs.keys() - disk.junk}
        left |= {"folders": [path for path in disk.files if path.split("/")[2] not in disk.junk]}
        if any(left.values()):
            raise Wrong(f"left when all times are over: {left} of {len(promises.files)} promises")
