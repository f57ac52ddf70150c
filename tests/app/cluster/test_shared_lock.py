"""The lock of the pins in shared records: what `isthmus pin` approves is in force at all replicas at once."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from access_scenes import modern, shown
from http_caller import USUAL, requested
from isthmus.app.base.errors import ConfigError
from isthmus.app.cluster.lock_record import LockRecord
from isthmus.app.commands.pins import pin
from isthmus.app.config.cluster_settings import Cluster
from isthmus.app.config.load import load
from isthmus.app.config.settings import Settings
from isthmus.app.gateway import Gateway, running
from isthmus.core.access.static_tokens import digest_of
from record_servers import RecordServer
from s3_server import S3Server
from shared_gateways import ALICE, KEY, SharedStores

pytestmark = [pytest.mark.anyio, pytest.mark.real]

PEER = str(Path(__file__).parents[1] / "peers" / "changing.py")
SEARCH = {"name": "search", "description": "Searches.", "inputSchema": {"type": "object"}}
DELETE = {"name": "delete_all", "description": "Deletes.", "inputSchema": {"type": "object"}}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class World:
    """A server whose lists are in a file, and a configuration for it."""

    def __init__(self, folder: Path, stores: SharedStores) -> None:
        self.folder, self.lists, self.config = folder, folder / "lists.json", folder / "isthmus.json"
        config = {
            "core": {"port": 0, "drain_seconds": 2, "link_keys": [KEY]},
            "auth": {"tokens": [{"name": "alice", "sha256": digest_of(ALICE).hex()}]},
            "sessions": {"request_state_keys": [KEY]},
            "storage": {"root": str(folder / "data"), "records": stores.records, "blobs": stores.blobs},
            "pins": {"mode": "block", "new": "hide"},
            "servers": [{"id": "a", "upstream": {"command": [sys.executable, PEER, str(self.lists)]}}],
        }
        self.config.write_text(json.dumps(config))
        self.serves(SEARCH)

    def serves(self, *tools: Any) -> None:
        self.lists.write_text(json.dumps({"tools": tools}))

    @property
    def settings(self) -> Settings:
        return load(self.config)

    async def pin(self, *approved: str) -> bool:
        return await pin(self.settings, shows_diff=False, approved=list(approved) or None)

    @contextlib.asynccontextmanager
    async def replica(self, tag: str) -> AsyncIterator[Gateway]:
        usual, root = self.settings, self.folder / tag
        storage = msgspec.structs.replace(usual.storage, root=str(root))
        cluster = Cluster(replica=tag, socket=f"{root}.sock")
        settings = msgspec.structs.replace(usual, storage=storage, cluster=cluster)
        async with running(settings, listen=True, is_lasting=True, log_server=lambda server, line: None) as found:
            yield found


@pytest.fixture
def world(record_server: RecordServer, s3_server: S3Server, tmp_path: Path) -> World:
    return World(tmp_path, SharedStores(record_server, s3_server))


async def listed(found: Gateway) -> list[str]:
    headers, body = modern("tools/list")
    async with requested(f"{found.base_url}/mcp/a", "POST", USUAL | shown(ALICE) | headers, body) as response:
        async for message in response.messages():
            if message.get("id") == 1:
                return [tool["name"] for tool in message["result"]["tools"]]
    raise AssertionError("no answer")


async def until_listed(found: Gateway, *names: str) -> None:
    while not set(names) <= set(await listed(found)):  # noqa: ASYNC110 (another process has no event to wait for)
        await anyio.sleep(0.02)


async def test_what_is_approved_is_in_force_at_all_replicas(world: World) -> None:
    with anyio.fail_after(120):
        with pytest.raises(ConfigError, match="run `isthmus pin`"):
            async with world.replica("c"):
                raise AssertionError
        assert await world.pin()
        assert not world.config.with_name("isthmus.lock").exists()
        async with world.replica("a") as first, world.replica("b") as second:
            world.serves(SEARCH, DELETE)
            for each in (first, second):
                await until_listed(each, "search")
                assert "delete_all" not in await listed(each)
            assert not await world.pin(), "it differs"
            assert await world.pin("a/delete_all")
            for each in (first, second):
                await until_listed(each, "search", "delete_all")
        async with world.replica("c") as third:
            assert "delete_all" in await listed(third)


async def test_of_two_commands_that_change_the_lock_one_is_refused(world: World) -> None:
    with anyio.fail_after(120):
        locks = [LockRecord(world.settings.storage) for _ in range(2)]
        assert [await lock.read() for lock in locks] == [None, None]
        await locks[0].write({"a": ()})
        with pytest.raises(ConfigError, match="another command has changed it"):
            await locks[1].write({})
        assert await locks[1].read() == {"a": ()}


async def test_a_lock_file_counts_instead(world: World) -> None:
    """A lock that is deployed with the configuration is the only one there is."""
    with anyio.fail_after(120):
        world.config.with_name("isthmus.lock").write_text("version = 1\n")
        assert await world.pin()
        assert "[servers.a" in world.config.with_name("isthmus.lock").read_text()
        assert await LockRecord(world.settings.storage).read() is None
