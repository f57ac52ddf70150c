"""Tests of three replicas under load, each request of which goes to any of them: what a client was promised is kept
when replicas are killed, paused or cut off."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from command import until
from record_servers import RecordServer
from replica_processes import Client, Lost, Promises, Replicas, replicas, status
from s3_server import S3Server
from shared_gateways import SharedStores

KILLS: Final = int(os.environ.get("REPLICA_KILLS", "2"))
"""Replicas that are killed under load. The command in docs/proof.md kills a hundred."""
LOADERS: Final = 3
PROMISES_MAX: Final = 200
"""Files of each kind for a client under load. All of them have to fit, since room is made by removing the oldest."""


@pytest.fixture(scope="module")
def world(
    postgres_server: RecordServer, s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Replicas]:
    with replicas(tmp_path_factory.mktemp("replicas"), SharedStores(postgres_server, s3_server), s3_server, 3) as made:
        yield made


def begin_again(work: Callable[[], Any]) -> Any:
    """Does something, and does it again if its session, or the connection of a call, was lost."""
    for _ in range(20):
        try:
            return work()
        except (Lost, OSError):
            threading.Event().wait(0.1)
    raise AssertionError("nothing is served any more")


def test_what_one_replica_has_is_had_by_all(world: Replicas) -> None:
    client, promises = Client(world), Promises()
    for number in range(5):
        promises.make(client, f"all-{number}")
    assert len(promises.artifacts) == 5
    promises.check(client)
    assert 404 not in client.statuses


def test_what_was_promised_outlives_replicas_that_are_killed_under_load(world: Replicas) -> None:
    """Clients with sessions begin anew, and are served within a second of the kill. A call that may have run is never
    answered by two replicas: its connection breaks, and the client is not answered at all."""
    stop, promises, faults = threading.Event(), [Promises() for _ in range(LOADERS)], []

    def load(number: int) -> None:
        client, count = Client(world, seed=number), 0
        while not stop.is_set():
            try:
                if count < PROMISES_MAX:
                    promises[number].make(client, f"{number}-{count}")
                else:
                    assert client.text("act", steps=[], text=f"{count}") == f"{count}"
                count += 1
            except (Lost, OSError):
                continue
            except BaseException as fault:
                faults.append(fault)
                raise

    threads = [threading.Thread(target=load, args=(number,)) for number in range(LOADERS)]
    for thread in threads:
        thread.start()
    rng, watcher = random.Random(1), Client(world, seed=99)
    try:
        for _ in range(KILLS):
            begin_again(lambda: watcher.text("act", steps=[], text="hello"))
            assert watcher.session is not None
            victim = watcher.session.partition(".")[0] if rng.random() < 0.7 else rng.choice(world.live)
            run = world.runs.pop(victim)
            run.signal(signal.SIGKILL)
            run.wait_exit()
            run.__exit__()
            assert begin_again(lambda: watcher.text("act", steps=[], text="again")) == "again"
            world.start(victim)
            world.wait_ready(victim)
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)
    assert not faults
    reader = Client(world, seed=7)
    for each in promises:
        assert each.files
        begin_again(lambda each=each: each.check(reader))


def test_a_paused_replica_is_left_and_ends_when_it_wakes(world: Replicas) -> None:
    client = Client(world)
    client.only = ["a"]
    client.begin()
    created = client.call("act", task=True, steps=[["wait", "never"]], text="late")
    task = created["task"]["taskId"]
    run = world.runs.pop("a")
    run.signal(signal.SIGSTOP)
    try:
        other = Client(world, seed=3)
        until(lambda: status(other, task) == "failed", "the task is given up")
        error = other.request("tasks/result", {"taskId": task})["error"]
        assert "the replica that ran the call was lost" in error["message"]
        client.only = None
        with pytest.raises((Lost, ConnectionError)):  # 404; or 502 from one that has not seen yet that it is gone
            client.text("act", steps=[], text="x")
    finally:
        run.signal(signal.SIGCONT)
    assert run.wait_exit() != 0
    assert "the lease of replica a was lost" in run.stderr
    run.__exit__()
    assert status(other, task) == "failed"
    world.start("a")
    world.wait_ready("a")


def test_a_store_that_is_away_stops_no_session(world: Replicas, postgres_server: RecordServer) -> None:
    client = Client(world, seed=5)
    client.begin()
    postgres_server.kill()
    try:
        for number in range(10):
            assert client.text("act", steps=[], text=str(number)) == str(number)
        refused = client.request("tools/call", {"name": "act", "arguments": {"text": "x"}, "task": {}})
        assert "no task could be made of the call" in refused["error"]["message"]
    finally:
        postgres_server.start()
    promises = Promises()
    until(lambda: kept(promises, client), "files and tasks are taken again")
    promises.check(client)
    assert sorted(world.live) == world.tags
    assert all(run.wait_line is not None for run in world.runs.values())


def kept(promises: Promises, client: Client) -> bool:
    try:
        promises.make(client, "after")
    except (AssertionError, KeyError):
        return False
    return True
