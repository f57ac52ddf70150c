"""Measures the work of replicas, not their time: `replica_work.py [--clients 48]`.

The same clients use one, two, four and eight replicas without faults. Once the balancer sends each request to the owner
of what it names, once to any replica. The table shows for each client request the inputs of all engines and the CPU
time in them; how many times the requests of one replica all of them could take, if each had a processor of its own and
the busiest one were the bound; and the same if the load were spread evenly.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "core"))

import msgspec
from filing_clients import Filing
from isthmus.core.base.plan import Offer, TaskRules
from isthmus.core.bulk import BulkEngine
from replicas import ReplicasWorld
from simulated_clients import Client, HttpClient, ModernHttpClient
from simulated_servers import Server

COUNTS: Final = (1, 2, 4, 8)
LOAD_S: Final = 60.0
INPUTS: Final = (
    *("receive_open", "receive_message", "receive_messages", "receive_close", "receive_sent", "receive_answer"),
    *("receive_records", "receive_at_once", "handle_timeout"),
)


class Gauge:
    """The inputs of each replica, and the CPU time in them."""

    def __init__(self) -> None:
        self.inputs: dict[str, int] = {}
        self.cpu_ns: dict[str, int] = {}

    def watch(self, engine: BulkEngine, tag: str) -> None:
        """Counts the inputs of an engine from now on."""
        for name in INPUTS:
            setattr(engine, name, self._watched(getattr(engine, name), tag))

    def _watched(self, act: Any, tag: str) -> Any:
        def watched(*given: Any, **named: Any) -> Any:
            began_ns = time.thread_time_ns()
            try:
                return act(*given, **named)
            finally:
                self.inputs[tag] = self.inputs.get(tag, 0) + 1
                self.cpu_ns[tag] = self.cpu_ns.get(tag, 0) + time.thread_time_ns() - began_ns

        return watched


class LoadWorld(ReplicasWorld):
    """A world without faults, of clients over HTTP that only call."""

    has_tasks = False

    def _draw(self, fault: str, chance: float, rng: random.Random) -> bool:
        return False

    def _drawn_manners(self, seed: str) -> list[str]:
        return []

    def _server(self, number: int) -> Server:
        server = super()._server(number)
        if not self.has_tasks:
            server.plan = msgspec.structs.replace(server.plan, tasks=TaskRules(offer=Offer.OWN))
        return server


def measured(seed: str, count: int, client_count: int, *, is_routed: bool) -> tuple[Gauge, int]:
    """Returns what the replicas did, and the number of client requests."""
    world = LoadWorld(seed, is_checked=False, count=count)
    world.network.is_routed = is_routed
    gauge = Gauge()
    for replica in world.replicas:
        gauge.watch(replica.engine, replica.tag)
    for number in range(client_count):
        client = world._join(number, (HttpClient, ModernHttpClient)[number % 2])
        if client is not None:
            world._plan(f"c{number}", partial(_call, client))
    world.network.run(LOAD_S)  # in which sessions begin and servers start
    before = world.network.asked
    gauge.inputs.clear()
    gauge.cpu_ns.clear()
    for client in world.clients:
        world._plan(f"more of {client.name}", partial(_call, client))
    world.network.run(LOAD_S)
    return gauge, world.network.asked - before


def _call(client: Client, number: int) -> None:
    if client.is_ready:
        (client.echo if isinstance(client, Filing) else client.call)()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--clients", type=int, default=48)
    parser.add_argument("--seeds", nargs="*", default=["replicas-5"])
    parser.add_argument("--tasks", action="store_true", help="servers may make tasks of calls, which others are told")
    options = parser.parse_args()
    LoadWorld.has_tasks = options.tasks
    print("| Balancer | Replicas | Inputs a request | CPU µs a request | Times one, busiest | Times one, even |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for is_routed in (True, False):
        alone = 0.0
        for count in COUNTS:
            inputs = cpu_ns = asked = busiest = 0
            for seed in options.seeds:
                gauge, more = measured(seed, count, options.clients, is_routed=is_routed)
                asked += more
                inputs += sum(gauge.inputs.values())
                cpu_ns += sum(gauge.cpu_ns.values())
                busiest += max(gauge.inputs.values())
            each = inputs / asked
            alone = alone or each
            name = "by owner" if is_routed else "at random"
            row = (
                f"{each:.1f} | {cpu_ns / asked / 1000:.0f} | {alone * asked / busiest:.1f} | {count * alone / each:.1f}"
            )
            print(f"| {name} | {count} | {row} |", flush=True)


if __name__ == "__main__":
    main()
