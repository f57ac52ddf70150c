"""One world from one seed: its clients and servers, its faults, and the checks during and after it.

A world consists of parts, any of which may be left out (`masks`): the faults, `narrow` limits, servers (s0), clients
(c0) with their operations (c0.0) and what they do with their grants (g0.0), the faults of servers (x.0), and clients
that come afterwards (n0).
"""

from __future__ import annotations

import itertools
import random
import re
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import manners
import masks
import msgspec
from checked_engine import CheckedEngine
from isthmus.core.base.effects import Dial
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Affinity, Kind, Offer, Plan, Profile, ProfileServer, ServerPlan, Sharing, TaskRules
from isthmus.core.base.revisions import Era
from isthmus.core.bulk import BulkEngine
from isthmus.core.files.transfer.admission import USED_PREFIX
from isthmus.core.oracle import Violation
from isthmus.core.oracle.wires import Wire
from simulated_clients import KINDS, Client, ModernHttpClient, PipeClient
from simulated_grants import GrantedClient, GrantRecord
from simulated_network import FAULTS, STRANGE, Channel, Network, Wrong
from simulated_servers import Server
from simulated_storage import Storage
from simulated_subscriptions import LOSSY_FAULTS, ChangeLog, Resources, Subscriptions
from simulated_tasks import TaskRecord, Tasks
from simulated_works import Works
from stateless_driving import tables

STORM_S: Final = 60.0
CALM_S: Final = 400.0
"""A time longer than all time limits below together."""
WAITING_S: Final = 60.0
"""The time after which all messages of the storm have arrived."""
TRIES: Final = 12
EMPTY_S: Final = 2_000.0
NEWCOMER: Final = 100
"""The number of the first client that comes after the storm."""
PROFILE: Final = "all"

ROOMY: Final = Limits(
    reply_timeout_s=40.0,
    question_timeout_s=30.0,
    session_idle_ttl_s=200.0,
    stream_ttl_s=100.0,
    suspended_call_ttl_s=40.0,
    start_timeout_s=20.0,
    server_era_ttl_s=100.0,
    shared_linger_s=20.0,
    crash_loop_pause_s=10.0,
    crash_loop_pause_max_s=20.0,
    task_ttl_s=80.0,
    task_ttl_max_s=120.0,
    task_after_s=2.0,
    task_inline_max_bytes=80,
)
NARROW: Final = msgspec.structs.replace(
    ROOMY,
    exchanges_per_session_max=12,
    streams_per_session_max=4,
    events_max=16,
    suspended_calls_per_session_max=4,
    outbox_high_bytes=2048,
    outbox_low_bytes=512,
    tasks_max=14,
    tasks_per_principal_max=9,
    tasks_per_session_max=5,
    task_questions_max=1,
    task_page_max=2,
)
"""Limits so low that a short storm reaches them. Not used in worlds without faults."""


@dataclass
class Report:
    """The result of a world. `wrong` is empty if all was well.

    Attributes:
        seed: the world's name.
        parts: the parts that it had.
        who: its servers and clients, one a line.
        checker: the check that failed: its place in the code, and the oracle's rules if it was the oracle.
    """

    seed: str
    faults: tuple[str, ...]
    parts: tuple[str, ...] = ()
    who: tuple[str, ...] = ()
    wrong: str = ""
    checker: str = ""
    messages: int = 0
    history: str = ""
    counts: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)


class LenientEngine(CheckedEngine):
    """An engine with an oracle that does not insist on the server's name in results.

    A server may have named itself in one session, and not yet in another. A response that the proxy gives before the
    session's server has started has no name, though an earlier session may have learned one.
    """

    def _note(self, wire: Wire, found: list[Violation]) -> None:
        super()._note(wire, [each for each in found if each.rule != "server-info" or each.who is not wire.proxy])


class World:
    """A world.

    Args:
        name: a seed, or a seed and the parts of its world to keep.
        is_checked: True to check each wire with an oracle. That doubles the time and changes nothing else.
    """

    members: tuple[str, ...] = ()
    """The servers of the profile."""

    def __init__(self, name: str, *, is_checked: bool = True) -> None:
        seed, self._kept = masks.parse(name)
        self.parts: list[str] = []
        self.rng = rng = random.Random(seed)
        chance = rng.choice((0.0, 0.3, 0.6, 0.9))
        drawn = [fault for fault in FAULTS if self._draw(fault, chance, rng)]
        drawn += [fault for fault in STRANGE if self._draw(fault, chance, random.Random(f"{seed} {fault}"))]
        self.faults = frozenset(filter(self._has, drawn))
        self.network = Network(rng, self.faults, self._dialled)
        self.network.manners = self._manners(seed)
        self.affinity = rng.choice(list(Affinity))
        is_narrow = rng.random() < 0.7 and bool(drawn) and self._has("narrow")
        self.task_record = TaskRecord() if rng.random() < 0.4 and self._has("tasks") else None
        self.change_log = ChangeLog() if rng.random() < 0.4 and self._has("news") else None
        self.grant_record = self._drawn_grants(seed)
        drawn_servers = [self._server(number) for number in range(rng.randint(1, 3))]
        self.servers = {server.plan.id: server for server in drawn_servers if self._has(server.name)}
        self.members = self._drawn_members(seed)
        profile = Profile(PROFILE, tuple(map(ProfileServer, self.members)), keeps_lists=True)
        plan = Plan(
            servers=tuple(server.plan for server in self.servers.values()),
            profiles=(profile,) if self.members else (),
            affinity=self.affinity,
        )
        self.network.engine = (LenientEngine if is_checked else BulkEngine)(
            plan,
            entropy=self.network.rng_of("entropy").randbytes,
            unix_at_zero=1e9,
            has_storage=True,
            limits=NARROW if is_narrow else ROOMY,
        )
        self._server_ids = [server.plan.id for server in drawn_servers]
        self._client_count = rng.randint(2, 7)
        self.clients: list[Client] = []
        self.network.storage = Storage(self.network)

    def _has(self, part: str) -> bool:
        if self._kept is not None and part not in self._kept:
            return False
        self.parts.append(part)
        return True

    def _manners(self, seed: str) -> frozenset[str]:
        return frozenset(filter(self._has, self._drawn_manners(seed)))

    def _drawn_grants(self, seed: str) -> GrantRecord | None:
        is_drawn = random.Random(f"{seed} grants").random() < 0.4
        return GrantRecord(self.network) if is_drawn and self._has("grants") else None

    def _drawn_members(self, seed: str) -> tuple[str, ...]:
        """Returns the servers of the profile; none if there is no profile in this world."""
        is_drawn = random.Random(f"{seed} profile").random() < 0.4
        if not (is_drawn and self._has("profile")):
            return ()
        return tuple(id for id, server in self.servers.items() if not server.is_for_one)

    def _draw(self, fault: str, chance: float, rng: random.Random) -> bool:
        """True if the world has that fault."""
        return rng.random() < chance

    def _drawn_manners(self, seed: str) -> list[str]:
        return manners.of_world(seed, self._kept)

    def _server(self, number: int) -> Server:
        rng = self.network.rng_of(f"plan of s{number}")
        is_modern, kind = rng.random() < 0.4, rng.choice(list(Kind))
        sharing = Sharing.NONE if kind is Kind.HTTP else rng.choice((Sharing.NONE, *Sharing))
        era = Era.STATELESS if is_modern else rng.choice((None, Era.HANDSHAKE))
        if is_modern and self.network.manners_of(f"s{number}") & {"future", "curt"}:
            era = None  # so that it is asked to `initialize`
        places = self.network.rng_of(f"addresses of s{number}")
        plan = ServerPlan(
            id=f"s{number}",
            kind=kind,
            addresses=ADDRESSES[: places.choice((0, 0, 2, 3))] if kind is Kind.HTTP else (),
            sharing=sharing,
            shares_with_everyone=self.network.rng_of(f"sharing of s{number}").random() < 0.5,
            era=era,
            idle_stop_s=rng.choice((None, 5.0)),
            spares=rng.choice((0, 0, 1)) if kind is Kind.PIPE and sharing is Sharing.NONE else 0,
            spares_on_trial=self.network.rng_of(f"spares of s{number}").random() < 0.7,
            tasks=TaskRules(offer=rng.choice(list(Offer)) if self.task_record is not None else Offer.OWN),
            access=None if self.grant_record is None else self.grant_record.draw_rules(f"s{number}"),
            answers_early=kind is Kind.PIPE and self.network.rng_of(f"early of s{number}").random() < 0.6,
        )
        server = Server(self.network, plan, is_modern=is_modern)
        server.grant_record = self.grant_record
        if rng.random() < 0.6 and self.task_record is not None:
            server.works = Works(server)
        if self.change_log is not None:
            server.resources = Resources(server)
        return server

    def _dialled(self, channel: Channel, dial: Dial) -> None:
        self.servers[dial.target.server].dialled(channel, dial)

    def _join(self, number: int, kind: type[Client] | None = None, server: str | None = None) -> Client | None:
        """Lets a client begin. Returns None if its server is not in this world."""
        rng = self.network.rng_of(f"plan of c{number}")
        kind = rng.choice(KINDS) if kind is None else kind
        principal = rng.choice(("", "", "ann", "bob"))
        if kind is ModernHttpClient and self.affinity is Affinity.SHARED:
            principal = f"p{number}"  # clients of one principal would share a session, and get each other's questions
        server = rng.choice(self._server_ids) if server is None else server
        if server != PROFILE and server not in self.servers:
            return None
        if server != PROFILE and self.servers[server].is_for_one:
            if any(client.server == server for client in self.clients):
                return None
            kind = PipeClient
        client = kind(self.network, number, server, principal)
        client.members = self.members if server == PROFILE else ()
        if self.task_record is not None and rng.random() < 0.7:
            client.tasks = Tasks(client, self.task_record)
        if self.change_log is not None and rng.random() < 0.7:
            client.subscriptions = Subscriptions(client, self.change_log)
        if self.grant_record is not None and server in self.grant_record.rules:
            granted = GrantedClient(client, self.grant_record)
            if number < NEWCOMER and self._has(f"g{number}"):
                self._plan(f"g{number}", granted.act)
        self.clients.append(client)
        client.begin()
        return client

    def run(self) -> None:
        network = self.network
        for number in range(self._client_count):
            server = PROFILE if self.members and number % 2 else None
            client = self._join(number, server=server) if self._has(f"c{number}") else None
            if client is not None:
                self._plan(f"c{number}", client.act)
        if self.change_log is not None:
            self._plan("news", self._publish)
        if self._has("x"):
            self._plan("x", self._strike)
        network.run(STORM_S)
        network.is_stormy = False
        self._check_clients()
        if self.change_log is not None:
            self._check_updates(self.change_log)
        network.run(CALM_S)
        self._check_answered()
        engine = self.network.engine
        if isinstance(engine, CheckedEngine) and engine.is_at_rest:
            engine.finish()
        self._check_service()
        self._check_empty()

    def _plan(self, part: str, act: Callable[[int], None]) -> None:
        """Plans an action about once a second while the storm lasts."""
        rng, at = self.network.rng_of(f"times of {part}"), 0.0
        for number in itertools.count():
            if at >= STORM_S:
                return
            if self._has(f"{part}.{number}"):
                self.network.later(at, act, number)
            at += rng.expovariate(1.0)

    def _publish(self, number: int) -> None:
        rng = self.network.rng_of(f"change {number}")
        candidates = [server.resources for server in self.servers.values() if server.resources is not None]
        if candidates and self.change_log is not None:
            self.change_log.publish(rng.choice(candidates), rng)

    def _strike(self, number: int) -> None:
        network, rng = self.network, self.network.rng_of(f"x{number}")
        server = rng.choice(list(self.servers.values()))
        if network.strikes("crashes", 0.2, rng):
            server.crash()
        if network.strikes("forgets", 0.1, rng):
            server.forget()
        if network.strikes("cuts", 0.1, rng) and network.channels:
            network.cut(rng.choice(list(network.channels.values())))
        if network.strikes("halves", 0.1, rng) and network.channels:
            network.halve(rng.choice(list(network.channels.values())))
        if network.strikes("sleeps", 0.01, rng):
            network.sleep(rng.choice((5.0, 60.0, 600.0, 10_000.0)), rng.choice((0, 3, 100)))

    # --- Checks afterwards ------------------------------------------------------------------------------------------

    def _check_updates(self, change_log: ChangeLog) -> None:
        """Checks that subscribers were notified of all changes, unless a fault prevents it. Then ends all
        subscriptions."""
        ended_at = self.network.now
        self.network.run(WAITING_S)
        if not self.faults & LOSSY_FAULTS and "narrow" not in self.parts:
            self.network.counts["news checked"] += change_log.check(before=ended_at)
        for client in self.clients:
            if client.subscriptions is not None:
                client.subscriptions.stop()

    def _check_answered(self) -> None:
        """Checks that no request is pending for ever, and that without faults all had good answers."""
        for client in self.clients:
            owed = sorted(number for number, owed in client.owed.items() if not owed.lasts)
            if owed:
                raise Wrong(f"{type(client).__name__} {client.mark} is still owed {owed}")
            bad = {name: count for name, count in client.outcomes.items() if name not in GOOD}
            if not self.faults and bad:
                raise Wrong(f"nothing went wrong, and {type(client).__name__} {client.mark} had {bad}")

    def _check_clients(self) -> None:
        """Checks that each client gets an answer in the session that it has, or is told that it has none."""
        waiting = {client: client.outcomes["result"] for client in self.clients}
        for _ in range(TRIES):
            for client in waiting:
                if client.is_ready:
                    client.request("tools/list")
            self.network.run(20.0)
            waiting = {client: count for client, count in waiting.items() if client.outcomes["result"] == count}
        for client in waiting:
            raise Wrong(f"{client} gets nothing any more: {client.outcomes}")

    def _check_service(self) -> None:
        """Checks that a new client of each kind gets an answer from each server."""
        drawn = itertools.product([*self._server_ids, *[PROFILE] * bool(self.members)], dict.fromkeys(KINDS))
        for number, (server, kind) in enumerate(drawn, NEWCOMER):
            client = self._join(number, kind, server) if self._has(f"n{number}") else None
            if client is not None:
                self._serve(client)

    def _serve(self, client: Client) -> None:
        client.is_rude = False
        for _ in range(TRIES):
            self.network.run(20.0)
            if client.is_ready:
                client.call()
                self.network.run(20.0)
            if client.outcomes["result"] or client.outcomes["task completed"]:
                return
        raise Wrong(f"{type(client).__name__} gets nothing from {client.server}: {client.outcomes}")

    def _check_empty(self) -> None:
        """Checks that nothing is left once all clients have left."""
        for client in self.clients:
            client.is_done = True
            client.leave()
        self.network.run(EMPTY_S)
        tasks, storage = self.network.engine.tasks(), self.network.storage
        # Lists that are kept, and used links until they have expired, outlast all sessions.
        records = [key for key in storage.records if not key.startswith(("list/", USED_PREFIX))]
        if tasks or records or storage.blobs:
            raise Wrong(f"left of tasks: {tasks}, {records}, {list(storage.blobs)}")
        left = {name: table for name, table in tables(self.network.engine).items() if table and name not in OWN}
        if left:
            raise Wrong(f"left of clients that have gone: {left}")


GOOD: Final = {
    "result",
    "resumed",
    "progress",
    "news",
    "news subscribed",
    "news undeclared",
    "task begun",
    "task completed",
    "task cancelled",
    "task of others",
    "task refused",
    "grants allowed",
    "grants needs scopes",
    "grants hidden",
    "grants listed",
    "grants task allowed",
    "grants task needs scopes",
    "grants task hidden",
    "task error -32603",
}
"""Outcomes of worlds without faults. A client that waits for a task and cancels it gets an error."""

ADDRESSES: Final = ("one", "two", "three")
OWN: Final = ("timers", "links")
"""Tables that may have entries without clients: resting servers, and their restarts."""


def run_world(
    name: str, *, is_checked: bool = True, log: Callable[[str], None] | None = None, kind: type[World] | None = None
) -> Report:
    """Runs a world. Any exception in it makes the report's `wrong`."""
    world = (kind or World)(name, is_checked=is_checked)
    world.network.log = log
    report = Report(name, tuple(sorted(world.faults)))
    try:
        world.run()
    except Exception as error:
        report.wrong, report.checker = traceback.format_exc(), _checker(error)
    report.parts = tuple(world.parts)
    report.who = tuple(map(str, (*world.servers.values(), *world.clients)))
    report.messages, report.counts = world.network.messages, world.network.counts
    report.history = world.network.history.hexdigest()
    for client in world.clients:
        report.outcomes.update(client.outcomes)
    return report


def _checker(error: Exception) -> str:
    place = traceback.extract_tb(error.__traceback__)[-1]
    rules = re.findall(r"\brule='([a-z-]+)'", str(error))
    return " ".join((type(error).__name__, Path(place.filename).name, place.name, str(place.lineno), *rules))
