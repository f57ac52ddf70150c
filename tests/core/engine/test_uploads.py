"""Uploads of one file as it is, and links that hold without a session."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from driving import LINK_KEY, UNIX_AT_ZERO, Client, Driver, ask_link, connect, driver, manifest, send_in
from isthmus.core.base.effects import DownloadOpening, Load, Loaded, RawFile, Receive, Save, Saved, UploadOpening
from isthmus.core.base.errors import LocalProtocolError
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, ServerPlan, UploadConsumer
from isthmus.core.files.store.handles import sign_download, sign_upload
from isthmus.core.files.store.store import StoredUpload

HELPER = "f_get_upload_url"
FILES = ServerPlan(id="f", kind=Kind.PIPE, consumers=(UploadConsumer(tools=("eat",), file_path_argument="path"),))
HASH = "ab" * 32


def filing(**more: Any) -> tuple[Driver, Client]:
    world = driver(FILES, **more)
    return world, connect(world, "http", "f")


def put(world: Driver, query: dict[str, str], size: int | None = 5, **more: Any) -> ChannelId:
    raw = RawFile("a b.txt", "text/plain", more.pop("sha256", ""))
    return send_in(world, UploadOpening(server="f", query=query, size_bytes=size, raw=raw, **more))


def refused(world: Driver, channel: ChannelId) -> tuple[int, str]:
    (sent,) = world.sent[channel]
    return sent.status, json.loads(sent.message)["code"]


def save(world: Driver, channel: ChannelId, *files: tuple[str, int]) -> StoredUpload:
    (order,) = world.say(channel, manifest(*files))
    assert isinstance(order, Save)
    world.store(order.ticket, Saved())
    return msgspec.json.decode(order.value, type=StoredUpload)


def test_a_file_that_is_put_is_one_upload() -> None:
    world, client = filing()
    channel = put(world, ask_link(client, HELPER), sha256=HASH)
    order = world.only(Receive)
    assert (len(order.blobs), order.raw) == (1, RawFile("a b.txt", "text/plain", HASH))
    assert order.total_size_max_bytes == 5
    record = save(world, channel, ("a b.txt", 5))
    assert world.said(channel)["upload"]["filename"] == "a b.txt"
    assert world.said(channel)["upload_handle"] == f"upload://sessions/{record.sid}/{record.uid}"
    assert not record.is_bearer


@pytest.mark.parametrize("said", [b"", b"{}", b'{"files":"\xff"}', b"[" * 100_000, manifest(("a", 1), ("b", 1))])
def test_what_is_no_manifest_of_what_was_ordered_is_the_drivers_mistake(said: bytes) -> None:
    """It is told so, and the upload is as it was."""
    world, client = filing()
    channel = put(world, ask_link(client, HELPER))
    with pytest.raises(LocalProtocolError, match="manifest"):
        world.engine.receive_message(channel, said, world.now)
    assert save(world, channel, ("a", 5)).size_bytes == 5


@pytest.mark.parametrize("value", [b"", b"{}", b'{"blob":"\xff"}', b"[" * 100_000])
def test_a_record_that_nobody_can_read_is_of_no_file(value: bytes) -> None:
    """Whoever follows a link to it is told what is told of one that has expired."""
    world, _ = filing()
    sid, aid = "1" * 32, "2" * 32
    expires_at_unix = int(UNIX_AT_ZERO) + 1000
    query = sign_download(LINK_KEY, server="f", sid=sid, artifact=aid, filename="a", expires_at_unix=expires_at_unix)
    channel = send_in(world, DownloadOpening("f", sid, aid, "a", query))
    world.store(world.last(Load).ticket, Loaded(value))
    assert refused(world, channel) == (404, "not_found")


def test_what_cannot_be_taken_is_refused_before_its_body() -> None:
    world, client = filing(limits=Limits(upload_size_max_bytes=10, session_storage_max_bytes=15), require_sha256=True)
    query = ask_link(client, HELPER)
    assert refused(world, put(world, query, 5)) == (400, "sha256_required")
    assert refused(world, put(world, query, 11, sha256=HASH)) == (413, "file_too_large")
    first = put(world, query, 10, sha256=HASH)
    assert refused(world, put(world, query, 6, sha256=HASH)) == (413, "request_too_large")
    assert not world.sent[put(world, query, 5, sha256=HASH)]
    assert refused(world, put(world, query, 1, sha256=HASH)) == (507, "storage_full")
    save(world, first, ("a", 10))
    assert refused(world, put(world, query, 1, sha256=HASH)) == (403, "bad_credential")


def bearer(world: Driver, sid: str, *, ttl_s: float = 60.0) -> dict[str, str]:
    """A link for a client without sessions, whose files go by `sid`."""
    engine, expiry = world.engine, int(UNIX_AT_ZERO + world.now + ttl_s)
    nonce = engine._counter._deposits._nonces.mint(
        engine._desk.entropy, server="f", sid=sid, expires_at=world.now + ttl_s, principal="p", is_bearer=True
    )
    return sign_upload(engine._desk.plan.link_key, server="f", sid=sid, nonce=nonce, expires_at_unix=expiry)


def test_a_bearers_link_needs_no_session() -> None:
    world = driver(FILES)
    sid = "0" * 32
    channel = put(world, bearer(world, sid))
    record = save(world, channel, ("a", 5))
    assert (record.sid, record.principal, record.is_bearer) == (sid, "p", True)
    assert world.said(channel)["count"] == 1
    assert refused(world, put(world, bearer(world, sid), session="other")) == (403, "session_mismatch")
    assert not world.sent[put(world, bearer(world, sid), session=sid)]
    query = bearer(world, sid, ttl_s=10.0)
    world.wait(12.0)
    assert refused(world, put(world, query)) == (403, "bad_credential")


@pytest.mark.parametrize("sid", ["1" * 32, "0" * 31 + "1"])
def test_a_bearers_link_is_for_its_own_files_only(sid: str) -> None:
    world = driver(FILES)
    query = bearer(world, "0" * 32)
    forged = sign_upload(b"x" * 32, server="f", sid=sid, nonce=query["mcp_upload_nonce"], expires_at_unix=2**33)
    assert refused(world, put(world, forged)) == (403, "bad_credential")


def test_what_is_said_of_a_body_twice_counts_once() -> None:
    """The second time, while the first is being saved, is neither read nor an error."""
    world, client = filing()
    channel = send_in(world, UploadOpening(server="f", query=ask_link(client, HELPER)))
    (order,) = world.say(channel, manifest(("a.txt", 1)))
    assert isinstance(order, Save)
    assert world.say(channel, manifest(("b.txt", 2))) == []
    assert world.say(channel, b"no manifest") == []
    world.store(order.ticket, Saved())
    reply = world.said(channel)
    assert [each["filename"] for each in reply["uploads"]] == ["a.txt"]
