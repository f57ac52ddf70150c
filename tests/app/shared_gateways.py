"""Gateways in threads that share stores on real servers, each with a storage folder of its own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from anyio.from_thread import start_blocking_portal
from file_world import AUTO, Agent, World
from isthmus.app.config.access_settings import Auth, Token
from isthmus.app.config.settings import Core, Server, Sessions, Settings, Storage
from isthmus.app.gateway import running
from isthmus.core.access.static_tokens import digest_of
from record_servers import PostgresServer, RecordServer, RedisServer
from s3_server import BUCKET, S3Server

ALICE: Final = "token-of-alice"
ADMIN: Final = "token-of-admin"
KEY: Final = "a-secret-of-all-replicas"

_numbers = itertools.count(1)


class SharedStores:
    """The addresses of stores that nothing else uses."""

    def __init__(self, records: RecordServer, blobs: S3Server, *, blobs_port: int | None = None) -> None:
        number = next(_numbers)
        if isinstance(records, PostgresServer):
            with records.connect() as db:
                db.execute(f"create database shared{number}".encode())
            self.records = records.dsn().replace("/postgres", f"/shared{number}")
        else:
            assert isinstance(records, RedisServer)
            self.records = records.url().replace("/0", f"/{number % 16}")
        port = blobs_port or blobs.port
        self.prefix = f"shared{number}"
        self.blobs = f"s3://{BUCKET}/{self.prefix}?endpoint=http://127.0.0.1:{port}&region=us-east-1"

    def settings(self, root: Path, *servers: Server, **more: Any) -> Settings:
        tokens = (
            Token(name="alice", sha256=digest_of(ALICE).hex()),
            Token(name="op", sha256=digest_of(ADMIN).hex(), groups=("admin",)),
        )
        return Settings(
            core=Core(port=0, drain_seconds=2.0, link_keys=(KEY,)),
            auth=Auth(tokens=tokens),
            storage=Storage(root=str(root), records=self.records, blobs=self.blobs),
            sessions=Sessions(request_state_keys=(KEY,), **more),
            servers=servers or (AUTO,),
        )


@contextmanager
def replica(settings: Settings) -> Iterator[World]:
    with start_blocking_portal("asyncio") as portal:
        context = running(settings, listen=True, is_lasting=True, log_server=lambda server, line: None)
        with portal.wrap_async_context_manager(context) as gateway:
            yield World(gateway, Path(settings.storage.root))


def alice(world: World, server: str = "auto") -> Agent:
    return Agent(world, server, headers={"authorization": f"Bearer {ALICE}"})


def content(agent: Agent, handle: str) -> str:
    """Returns what a tool reads for the handle of a file."""
    return agent.text("act", steps=[["read", handle]], text="{0}")
