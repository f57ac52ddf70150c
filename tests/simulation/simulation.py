"""One world from one seed: who is in it, what goes wrong, and what must hold meanwhile and afterwards."""

from __future__ import annotations

import random
import traceback
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

import msgspec
from isthmus.core.effects import Dial
from isthmus.core.eras import Era
from isthmus.core.limits import Limits
from isthmus.core.plan import Affinity, Kind, Plan, ServerPlan, Sharing
from overheard import Overheard
from simulated_clients import KINDS, Client, ModernHttpClient
from simulated_network import FAULTS, Channel, Network, Wrong
from simulated_servers import Server
from stateless_driving import tables

STORM_S: Final = 60.0
CALM_S: Final = 400.0
"""Longer than every time limit below, one after the other."""
TRIES: Final = 12
EMPTY_S: Final = 2_000.0

ROOMY: Final = Limits(
    reply_timeout_s=40.0,
    ask_timeout_s=30.0,
    session_idle_ttl_s=200.0,
    stream_ttl_s=100.0,
    park_ttl_s=40.0,
    start_timeout_s=20.0,
    verdict_ttl_s=100.0,
    shared_linger_s=20.0,
    crash_loop_pause_s=10.0,
    crash_loop_pause_max_s=20.0,
)
NARROW: Final = msgspec.structs.replace(
    ROOMY,
    exchanges_per_session_max=12,
    streams_per_session_max=4,
    events_max=16,
    parks_per_session_max=4,
    outbox_high_bytes=2048,
    outbox_low_bytes=512,
)
"""So little that a short storm reaches it; not in worlds where nothing may go wrong."""


@dataclass
class Report:
    """What came of a world: `wrong` is empty if all was well."""

    seed: str
    faults: tuple[str, ...]
    wrong: str = ""
    messages: int = 0
    history: str = ""
    told: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)


class World:
    """See the module."""

    def __init__(self, seed: str) -> None:
        self.rng = rng = random.Random(seed)
        chance = rng.choice((0.0, 0.3, 0.6, 0.9))
        self.faults = frozenset(fault for fault in FAULTS if rng.random() < chance)
        self.network = Network(rng, self.faults, self._dialled)
        self.servers = {server.plan.id: server for server in self._servers()}
        self.affinity = rng.choice(list(Affinity))
        plan = Plan(
            servers=tuple(server.plan for server in self.servers.values()),
            affinity=self.affinity,
        )
        limits = NARROW if self.faults and rng.random() < 0.7 else ROOMY
        self.network.engine = Overheard(plan, entropy=rng.randbytes, unix_at_zero=1e9, limits=limits)
        self.clients: list[Client] = []

    def _servers(self) -> list[Server]:
        rng, servers = self.rng, []
        for number in range(rng.randint(1, 3)):
            is_modern, kind = rng.random() < 0.4, rng.choice(list(Kind))
            sharing = Sharing.NONE if kind is Kind.HTTP else rng.choice((Sharing.NONE, *Sharing))
            plan = ServerPlan(
                id=f"server {number}",
                kind=kind,
                sharing=sharing,
                era=Era.STATELESS if is_modern else rng.choice((None, Era.HANDSHAKE)),
                idle_stop_s=rng.choice((None, 5.0)),
                spares=rng.choice((0, 0, 1)) if kind is Kind.PIPE and sharing is Sharing.NONE else 0,
            )
            servers.append(Server(self.network, plan, is_modern=is_modern))
        return servers

    def _dialled(self, channel: Channel, dial: Dial) -> None:
        self.servers[dial.target.server].dialled(channel, dial)

    def _join(self, kind: type[Client] | None = None, server: str | None = None) -> Client:
        rng, number = self.rng, len(self.clients)
        kind = rng.choice(KINDS) if kind is None else kind
        principal = rng.choice(("", "", "ann", "bob"))
        if kind is ModernHttpClient and self.affinity is Affinity.SHARED:
            principal = f"p{number}"  # those of one principal have one session, and hear what it is asked
        client = kind(self.network, number, rng.choice(list(self.servers)) if server is None else server, principal)
        self.clients.append(client)
        client.begin()
        return client

    def run(self) -> None:
        for _ in range(self.rng.randint(2, 7)):
            self._join().act()
        self.network.later(1.0, self._strike)
        self.network.run(STORM_S)
        self.network.is_stormy = False
        self.network.run(CALM_S)
        self._check_answered()
        if self.network.engine.is_at_rest:
            self.network.engine.finish()
        self._check_service()
        self._check_empty()

    def _strike(self) -> None:
        network = self.network
        if network.is_stormy:
            network.later(self.rng.expovariate(1.0), self._strike)
            server = self.rng.choice(list(self.servers.values()))
            if network.strikes("crashes", 0.2):
                server.crash()
            if network.strikes("forgets", 0.1):
                server.forget()
            if network.channels and network.strikes("cuts", 0.1):
                network.cut(self.rng.choice(list(network.channels.values())))

    # --- What holds afterwards --------------------------------------------------------------------------------------

    def _check_answered(self) -> None:
        """No request is pending for ever; and where nothing went wrong, all had good answers."""
        for client in self.clients:
            if client.owed:
                raise Wrong(f"{type(client).__name__} {client.mark} is still owed {sorted(client.owed)}")
            bad = {name: count for name, count in client.outcomes.items() if name not in ("result", "resumed")}
            if not self.faults and bad:
                raise Wrong(f"nothing went wrong, and {type(client).__name__} {client.mark} had {bad}")

    def _check_service(self) -> None:
        """A new client of each kind gets an answer from each server."""
        for server in self.servers:
            for kind in dict.fromkeys(KINDS):
                client = self._join(kind, server)
                client.is_rude = False
                for _ in range(TRIES):
                    self.network.run(20.0)
                    if client.is_ready:
                        client.call()
                        self.network.run(20.0)
                    if client.outcomes["result"]:
                        break
                else:
                    raise Wrong(f"{kind.__name__} gets nothing from {self.servers[server].plan}: {client.outcomes}")

    def _check_empty(self) -> None:
        """Once all clients have left, nothing is left of them."""
        for client in self.clients:
            client.is_done = True
            client.leave()
        self.network.run(EMPTY_S)
        left = {name: table for name, table in tables(self.network.engine).items() if table and name not in OWN}
        if left:
            raise Wrong(f"left of clients that have gone: {left}")


OWN: Final = ("timers", "links")
"""What may go on without clients: servers that rest, and are begun again."""


def run_world(seed: str) -> Report:
    """Whatever is raised in a world is what is wrong with it."""
    world = World(seed)
    report = Report(seed, tuple(sorted(world.faults)))
    try:
        world.run()
    except Exception:
        report.wrong = traceback.format_exc()
    report.messages, report.told = world.network.messages, world.network.told
    report.history = world.network.history.hexdigest()
    for client in world.clients:
        report.outcomes.update(client.outcomes)
    return report
