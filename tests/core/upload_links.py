"""Uploads by signed links, as the engine sees them."""

from __future__ import annotations

from typing import Any

from driving import UNIX_AT_ZERO, Client, Driver, connect, driver, send_in
from inside import Inside
from isthmus.core.base.events import RawFile, UploadOpening
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.plan import ServerPlan
from isthmus.core.files.store.links import UploadGrant, sign_upload
from resumable_clients import FILES


def file_world(plan: ServerPlan = FILES, **more: Any) -> tuple[Driver, Client]:
    """Returns a driver with one server, `f`, that takes files, and a client of it."""
    world = driver(plan, **more)
    return world, connect(world, "http", "f")


def put(world: Driver, query: dict[str, str], size: int | None = 5, **more: Any) -> ChannelId:
    """Opens an upload of one file as the whole body. Returns its channel."""
    raw = RawFile("a b.txt", "text/plain", more.pop("sha256", ""))
    return send_in(world, UploadOpening(server="f", query=query, size_bytes=size, raw=raw, **more))


def bearer(world: Driver, sid: str, *, ttl_s: float = 60.0) -> dict[str, str]:
    """A link for a client without sessions, whose files go by `sid`."""
    context = Inside(world.engine).context
    expires_at_unix = int(UNIX_AT_ZERO + world.now + ttl_s)
    grant = UploadGrant(sid=sid, nonce=context.mint(), expires_at_unix=expires_at_unix, principal="p", is_bearer=True)
    return sign_upload(context.plan.link_key, server="f", grant=grant)
