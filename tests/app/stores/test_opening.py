"""Tests of stores that cannot be used: what is said at the start and by `check`, in words that help."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import msgspec
import pytest
from isthmus.app.base.errors import StartError
from isthmus.app.commands import describe_stores
from isthmus.app.commands.server_table import WIDTH
from isthmus.app.config.settings import Storage
from isthmus.app.stores import report as module
from isthmus.app.stores import stores as stores_module
from isthmus.app.stores.report import examine
from isthmus.app.stores.stores import opened
from one_loop import anyio_backend  # noqa: F401 (a fixture)
from record_servers import SECRET, RecordServer, RedisServer, free_port
from s3_server import S3Server
from shared_gateways import SharedStores

pytestmark = [pytest.mark.anyio, pytest.mark.real]


async def problem_at_start(storage: Storage, root: Path) -> str:
    with anyio.fail_after(60), pytest.raises(StartError) as caught:
        async with opened(storage, str(root), may_share=True):
            raise AssertionError("it was opened")
    return str(caught.value)


async def said_by_check(storage: Storage) -> str:
    with anyio.fail_after(60):
        reports = await examine(storage)
    lines = [*describe_stores.lines_of(reports), *describe_stores.warnings(reports)]
    for line in lines:
        assert len(line) <= WIDTH or max(map(len, line.split())) > 30, line
    return re.sub(r"\s+", " ", "\n".join(lines))


@pytest.fixture
def storage(record_server: RecordServer, s3_server: S3Server, tmp_path: Path) -> Storage:
    stores = SharedStores(record_server, s3_server)
    return Storage(root=str(tmp_path / "root"), records=stores.records, blobs=stores.blobs)


async def test_stores_are_described(storage: Storage, record_server: RecordServer) -> None:
    found = await said_by_check(storage)
    engine = r"(Redis|Valkey) \d" if isinstance(record_server, RedisServer) else r"PostgreSQL \d"
    assert re.match(rf"STORE STATE records ready {engine}\S*.*: every answer is on disk blobs ready S3 at 127", found)
    assert found.endswith("what was written was listed, read and removed")
    assert await examine(Storage()) == []


async def test_stores_that_cannot_be_reached(storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key, the address without its secrets, the reason, and what to do. Both stores are tried by `check`."""
    monkeypatch.setattr(stores_module, "TRIAL_RETRY_S", 0.2)
    port = free_port()
    is_redis = storage.records is not None and storage.records.startswith("redis")
    address = f"redis://127.0.0.1:{port}/0" if is_redis else f"postgresql://127.0.0.1:{port}/x"
    without_records = msgspec.structs.replace(storage, records=address.replace("//", f"//u:{SECRET}@"))
    text = await problem_at_start(without_records, tmp_path)
    assert text.startswith(f"storage.records: {address} cannot be used: ")
    assert "refused" in text and text.endswith("; start it, or correct storage.records") and SECRET not in text
    found = await said_by_check(without_records)
    assert f"records FAILED {address} cannot be used" in found and "blobs ready" in found
    elsewhere = f"s3://bucket/x?endpoint=http://127.0.0.1:{port}"
    without_blobs = msgspec.structs.replace(storage, blobs=elsewhere)
    text = await problem_at_start(without_blobs, tmp_path)
    assert text == (
        f"storage.blobs: s3://bucket/x at http://127.0.0.1:{port} cannot be used: there is no connection to it; "
        "start it, or correct storage.blobs"
    )
    found = await said_by_check(without_blobs)
    assert "records ready" in found and "blobs FAILED s3://bucket/x at" in found


async def test_a_bucket_that_is_missing(storage: Storage, tmp_path: Path) -> None:
    assert storage.blobs is not None
    missing = msgspec.structs.replace(storage, blobs=re.sub("s3://[^/]+", "s3://no-such-bucket", storage.blobs))
    text = await problem_at_start(missing, tmp_path)
    assert text.endswith("cannot be used: it answers NoSuchBucket; create the bucket, or correct its name")


async def test_a_package_that_is_missing(storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        for name in ("psycopg", "redis", "isthmus.storage.postgres_connections"):
            patch.setitem(sys.modules, name, None)
        extra = "redis" if str(storage.records).startswith("redis") else "postgres"
        text = await problem_at_start(storage, tmp_path)
        assert text.endswith(f"needs a package that is not installed: pip install 'isthmus[{extra}]'")
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    text = await problem_at_start(storage, tmp_path)
    assert text.endswith("a package that is not installed: pip install 'isthmus[s3]'")


@contextmanager
def setting(server: RecordServer, name: str, value: str) -> Iterator[None]:
    assert isinstance(server, RedisServer)
    with server.connect() as client:
        before = client.config_get(name)[name]
        client.config_set(name, value)
        try:
            yield
        finally:
            client.config_set(name, before)


@pytest.mark.parametrize("record_server", ["redis"], indirect=True)
async def test_a_redis_that_forgets(storage: Storage, record_server: RecordServer, tmp_path: Path) -> None:
    """One that may evict records is refused. One that may lose the last second is used, and `check` says so."""
    with setting(record_server, "maxmemory-policy", "allkeys-lru"):
        text = await problem_at_start(storage, tmp_path)
        assert text.endswith("(maxmemory-policy is allkeys-lru): set maxmemory-policy to noeviction")
        assert "FAILED" in await said_by_check(storage)
    with setting(record_server, "appendfsync", "everysec"):
        found = await said_by_check(storage)
        assert "records ready" in found
        assert "WARNING storage.records: about a second of saves is lost when Redis dies" in found
        assert "appendfsync always, or use PostgreSQL" in found


async def test_a_clock_that_is_wrong(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CLOCK_SKEW_S", -1e9)
    found = await said_by_check(storage)
    assert re.search(r"WARNING storage\.records: its clock is \d+ s (ahead of|behind) that of this machine", found)
    assert re.search(r"WARNING storage\.blobs: its clock is \d+ s (ahead of|behind)", found)
