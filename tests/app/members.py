"""Memberships with short leases: in this process, or each in a process of its own, which tests pause and kill."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio
from anyio import to_thread
from isthmus.app.base.errors import Failed, StartError
from isthmus.app.cluster.membership import GONE_S, Membership
from isthmus.core.base.ids import mint
from isthmus.core.base.replica import ReplicaName
from isthmus.core.replicas.leases import Leases, Peer
from isthmus.storage.interface import Records
from isthmus.storage.postgres import PostgresRecords
from isthmus.storage.redis import RedisRecords
from record_servers import PostgresServer, RecordServer, RedisServer

LEASE_S: Final = 2.0
"""Long enough for a process that waits for its turn on a busy machine."""
RENEW_S: Final = 0.4

_numbers = itertools.count()


class Events:
    """Takes note of what a membership tells: the replicas that are gone, and that the shared stores are closed."""

    def __init__(self) -> None:
        self.gone: dict[str, anyio.Event] = {}
        self.is_fenced = False
        self.ended = anyio.Event()  # the run of another one has ended

    def of(self, tag: str) -> anyio.Event:
        return self.gone.setdefault(tag, anyio.Event())

    def note_gone(self, peer: Peer) -> None:
        self.of(peer.tag).set()

    def note_ended(self) -> None:
        self.ended.set()

    async def fence(self) -> None:
        self.is_fenced = True


def membership(
    records: Records,
    tag: str,
    events: Events,
    *,
    address: str | None = None,
    lease_s: float = LEASE_S,
    renew_s: float = RENEW_S,
    gone_s: float = GONE_S,
) -> Membership:
    leases = Leases(
        ReplicaName(tag, mint(os.urandom)),
        f"http://{tag}:1" if address is None else address,
        now=anyio.current_time(),
        lease_s=lease_s,
        renew_s=renew_s,
    )
    return Membership(
        leases,
        records,
        fence=events.fence,
        when_gone=events.note_gone,
        when_ended=events.note_ended,
        gone_s=gone_s,
    )


@asynccontextmanager
async def member(records: Records, tag: str, events: Events | None = None) -> AsyncIterator[Membership]:
    """Runs a membership in this process."""
    one = membership(records, tag, events or Events())
    await one.take()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(one.run)
        yield one
        tasks.cancel_scope.cancel()
    await one.leave()


class Store:
    """A store of leases that nothing else uses."""

    def __init__(self, server: RecordServer) -> None:
        self.server = server
        self.name = f"m{next(_numbers)}"

    def open(self) -> Records:
        return self.server.records(self.name, answer_timeout_s=RENEW_S * 2)

    @asynccontextmanager
    async def process(self, tag: str) -> AsyncIterator[Member]:
        """Starts a replica in a process of its own, while those of this process go on."""
        with await to_thread.run_sync(self._start, tag) as started:
            yield started

    def _start(self, tag: str) -> Member:
        if isinstance(self.server, PostgresServer):
            address = self.server.dsn()
        else:
            assert isinstance(self.server, RedisServer)
            address = self.server.url()
        return Member(address, self.name, tag)


class Member:
    """A replica in a process of its own.

    Attributes:
        first_line: the first line that it said: "held" when it had taken its lease.
    """

    def __init__(self, address: str, name: str, tag: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__, address, name, tag],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(Path(__file__).parent)])},
        )
        self.first_line = self._line()

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def ended(self) -> str:
        """Waits until the process has ended, and returns all that it has said since."""
        rest, _ = self.process.communicate(timeout=60)
        return rest.strip()

    def __enter__(self) -> Member:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()


async def _main(address: str, name: str, tag: str) -> None:
    records: Records
    if address.startswith("postgresql"):
        records = PostgresRecords(address, table=name)
    else:
        records = RedisRecords(address, prefix=name)
    one = membership(records, tag, Events())
    try:
        await one.take()
        print("held", flush=True)
        await one.run()
    except (StartError, Failed) as error:
        print(error, flush=True)


if __name__ == "__main__":
    anyio.run(_main, *sys.argv[1:])
