"""Gateways that hold leases: what they say of each other, and the end of one that has lost its own."""

from __future__ import annotations

from pathlib import Path

import anyio
import msgspec
import pytest
from http_caller import fetch, requested
from isthmus.app.base.errors import Failed, StartError
from isthmus.app.cluster.taken import taken_by
from isthmus.app.config.cluster_settings import Cluster
from isthmus.app.config.settings import Settings
from isthmus.app.gateway import Gateway, running
from isthmus.app.stores.stores import open_records
from one_loop import anyio_backend  # noqa: F401 (a fixture)
from record_servers import RecordServer
from s3_server import S3Server
from shared_gateways import ADMIN, ALICE, SharedStores

pytestmark = [pytest.mark.anyio, pytest.mark.real]


@pytest.fixture
def stores(redis_server: RecordServer, s3_server: S3Server) -> SharedStores:
    return SharedStores(redis_server, s3_server)


def settings(stores: SharedStores, root: Path, tag: str | None) -> Settings:
    cluster = Cluster() if tag is None else Cluster(replica=tag, socket=f"{root}.sock")
    return msgspec.structs.replace(stores.settings(root), cluster=cluster)


def gateway(given: Settings) -> anyio.abc.AsyncContextManager[Gateway]:
    return running(given, listen=True, is_lasting=True, log_server=lambda server, line: None)


async def test_gateways_know_each_other(stores: SharedStores, tmp_path: Path) -> None:
    given = settings(stores, tmp_path / "a", "a")
    async with gateway(given) as one, gateway(settings(stores, tmp_path / "b", None)) as other:
        assert one.plan.replica is not None
        assert one.plan.replica.tag == "a"
        assert other.membership is not None
        found = await other.membership.find("a")
        assert found is not None
        assert (found.run, found.address) == (one.plan.replica.run, f"unix:{tmp_path}/a.sock")
        caller = {"authorization": f"Bearer {ALICE}"}
        _, health = await fetch(f"{other.base_url}/healthz", headers=caller)
        assert (health["replica"], health["replicas"]) == (other.membership.name.tag, 2)
        admin = {"authorization": f"Bearer {ADMIN}"}
        async with requested(f"{other.base_url}/metrics", headers=admin) as response:
            assert b"isthmus_replicas 2.0" in await response.body()
        assert await taken_by(given) == f"replica a runs now at unix:{tmp_path}/a.sock"
        same = msgspec.structs.replace(stores.settings(tmp_path / "c"), cluster=Cluster(replica="a"))
        with pytest.raises(StartError, match="replica a runs already at unix:"):
            async with gateway(same):
                pass
    assert await taken_by(given) == ""


async def test_a_gateway_that_has_lost_its_lease_ends_without_draining(stores: SharedStores, tmp_path: Path) -> None:
    given = settings(stores, tmp_path / "a", "a")
    records = await open_records(given.storage)
    with anyio.fail_after(60), pytest.raises(BaseExceptionGroup) as caught:
        async with gateway(given):
            await records.delete("replica/a")
            await anyio.sleep_forever()
    assert caught.group_contains(Failed, match="the lease of replica a was lost")
    await records.aclose()
