"""Joins the replicas of the shared stores, and leaves them again."""

from __future__ import annotations

import os
import secrets
import string
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import anyio

from ...core.base.ids import mint
from ...core.base.replica import ReplicaName
from ...core.replicas.leases import RENEW_S, Leases, Peer
from ...storage.interface import Records
from ...storage.sqlite import SqliteRecords
from ..config.cluster_settings import Cluster
from ..config.settings import Settings
from ..stores.stores import Stores, open_records
from .membership import GONE_S, Membership
from .place import place_of

DRAWN_TAG_CHARS: Final = 6
"""Characters of a tag that is drawn. Of a hundred replicas, two draw the same once in 400,000 times."""


@asynccontextmanager
async def joined(
    settings: Settings,
    stores: Stores,
    *,
    when_gone: Callable[[Peer], None],
    when_ended: Callable[[], None] = lambda: None,
    is_listening: bool,
) -> AsyncIterator[Membership | None]:
    """Takes the lease of this process, keeps it, and gives it back when the context is left. The context is that of all
    that uses the shared stores.

    Yields None where the stores are not shared.

    Args:
        when_gone, when_ended: as in `Membership`.
        is_listening: the listener for other replicas is open.

    Raises:
        StartError: another replica has the tag.
        StorageError: the store cannot be used.
        Failed: the lease was lost, which cancels what runs in the context.
    """
    if not stores.shared:
        yield None
        return
    cluster = settings.cluster
    name = ReplicaName(cluster.replica or _drawn_tag(), mint(os.urandom))
    # A store of its own, with one connection and a short time limit: a renewal waits for nobody, and one whose
    # connection has died is tried again in time.
    records: Records
    if stores.records_path:
        records = SqliteRecords(stores.records_path)
    else:
        records = await open_records(settings.storage, calls_max=1, answer_timeout_s=RENEW_S)
    address, place = (cluster.address, _place(cluster)) if is_listening else ("", "")
    leases = Leases(name, address, place, now=anyio.current_time())
    membership = Membership(
        leases,
        records,
        fence=stores.records.aclose,
        when_gone=when_gone,
        when_ended=when_ended,
        gone_s=0.0 if stores.records_path else GONE_S,  # workers start at once, and read a file of this machine
    )
    try:
        await membership.take()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(membership.run)
            yield membership
            tasks.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await membership.leave()
            await records.aclose()


def _place(cluster: Cluster) -> str:
    bound = cluster.socket or cluster.listen
    assert bound is not None
    return place_of(bound)


def _drawn_tag() -> str:
    return "".join(secrets.choice(string.ascii_lowercase + string.digits) for _ in range(DRAWN_TAG_CHARS))
