"""Tests of workers over shared stores: they are replicas like any other, with tags and ports that follow from one
configuration."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command import Run, until
from record_servers import PostgresServer, RecordServer, free_port
from replica_processes import Client, Lost, Promises, Replicas, replicas
from s3_server import S3Server
from shared_gateways import ALICE, SharedStores
from worker_runs import children

PORTS = 4  # two workers, and two that take their places


class MixedReplicas(Replicas):
    """One replica with two workers, `a`, and one that is a process, `b`."""

    def settings(self, tag: str, root: Path) -> dict[str, Any]:
        self.internal_ports.setdefault("workers", free_port(PORTS))
        if tag == "a":
            self.internal_ports["a"] = self.internal_ports["workers"]
        return super().settings(tag, root)

    def start(self, tag: str) -> None:
        workers = ("--workers", "2") if tag == "a" else ()
        run = self.runs[tag] = Run("serve", *workers, str(self.config(tag)))
        run.__enter__()


@pytest.fixture
def world(
    record_server: RecordServer, s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Replicas]:
    if not isinstance(record_server, PostgresServer):
        pytest.skip("the other kind differs in its records only")
    folder, stores = tmp_path_factory.mktemp("replicas"), SharedStores(record_server, s3_server)
    with replicas(folder, stores, s3_server, 2, MixedReplicas) as made:
        yield made


def replicas_seen(world: Replicas) -> int:
    """The number of replicas that the one without workers sees."""
    shown = Client(world).fetch_at("b", "GET", "/healthz", headers={"authorization": f"Bearer {ALICE}"})
    seen: int = shown.json["replicas"]
    return seen


def sessions(world: Replicas, *tags: str) -> list[Client]:
    """A client with a session at each of these replicas."""
    found: dict[str, Client] = {}

    def begin() -> bool:
        client = Client(world, seed=len(found))
        client.only = [next(tag for tag in tags if tag not in found)[0]]
        client.begin()
        client.only = None
        found.setdefault(str(client.session).partition(".")[0], client)
        return found.keys() >= set(tags)

    until(begin, f"sessions at {tags}")
    return [found[tag] for tag in tags]


@pytest.mark.real
def test_workers_are_replicas(world: Replicas) -> None:
    """All have what one has. A worker that dies comes back. SIGHUP replaces all, and the sessions of others go on."""
    until(lambda: replicas_seen(world) == 3, "all replicas")
    clients, promises = sessions(world, "a1", "a2", "b"), Promises()
    for number, client in enumerate(clients):
        promises.make(client, f"{number}")
    for client in clients:
        promises.check(client)
        assert 404 not in client.statuses
    pid = children(world.runs["a"].pid)[0]
    os.kill(pid, signal.SIGKILL)
    world.runs["a"].wait_line("has ended by SIGKILL", "stderr")
    (client,) = sessions(world, "a1")
    promises.check(client)
    until(lambda: replicas_seen(world) == 3, "its return")
    world.signal("a", signal.SIGHUP)
    world.runs["a"].wait_line("all workers have the new configuration", "stderr")
    promises.check(clients[2])
    for client in sessions(world, "a3", "a4"):
        promises.check(client)
    until(lambda: replicas_seen(world) == 3, "the end of the old workers")
    with pytest.raises(Lost):
        clients[1].text("act", steps=[], text="hello")
