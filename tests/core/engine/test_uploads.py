"""Tests of uploads of one raw file, and of links that need no session."""

from __future__ import annotations

import json

import msgspec
import pytest
from driving import LINK_KEY, UNIX_AT_ZERO, Driver, ask_link, driver, manifest, send_in
from isthmus.core.base.errors import LocalProtocolError
from isthmus.core.base.events import DownloadOpening, RawFile, UploadOpening
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.base.storage import Load, Loaded, Receive, Save, Saved
from isthmus.core.files.store.links import UploadGrant, read_upload, sign_download, sign_upload
from isthmus.core.files.store.store import StoredUpload
from resumable_clients import FILES, HASH, HELPER
from upload_links import bearer, file_world, put


def refused(world: Driver, channel: ChannelId) -> tuple[int, str]:
    (sent,) = world.sent[channel]
    return sent.status, json.loads(sent.message)["code"]


def save(world: Driver, channel: ChannelId, *files: tuple[str, int]) -> StoredUpload:
    (order,) = world.send(channel, manifest(*files))
    assert isinstance(order, Save)
    world.store(order.ticket, Saved())
    return msgspec.json.decode(order.value, type=StoredUpload)


def test_a_raw_file_is_one_upload() -> None:
    world, client = file_world()
    channel = put(world, ask_link(client, HELPER), sha256=HASH)
    order = world.only(Receive)
    assert (len(order.blobs), order.raw) == (1, RawFile("a b.txt", "text/plain", HASH))
    assert order.total_size_max_bytes == 5
    record = save(world, channel, ("a b.txt", 5))
    assert world.only_message(channel)["upload"]["filename"] == "a b.txt"
    assert world.only_message(channel)["upload_handle"] == f"upload://sessions/{record.sid}/{record.uid}"
    assert not record.is_bearer


@pytest.mark.parametrize("message", [b"", b"{}", b'{"files":"\xff"}', b"[" * 100_000, manifest(("a", 1), ("b", 1))])
def test_an_invalid_manifest_raises(message: bytes) -> None:
    """`LocalProtocolError` is raised, and the upload is unchanged."""
    world, client = file_world()
    channel = put(world, ask_link(client, HELPER))
    with pytest.raises(LocalProtocolError, match="manifest"):
        world.engine.receive_message(channel, message, world.now)
    assert save(world, channel, ("a", 5)).size_bytes == 5


@pytest.mark.parametrize("value", [b"", b"{}", b'{"blob":"\xff"}', b"[" * 100_000])
def test_an_unreadable_record_has_no_file(value: bytes) -> None:
    """A link to it gets the error of an expired link."""
    world, _ = file_world()
    sid, aid = "1" * 32, "2" * 32
    expires_at_unix = int(UNIX_AT_ZERO) + 1000
    query = sign_download(LINK_KEY, server="f", sid=sid, artifact=aid, filename="a", expires_at_unix=expires_at_unix)
    channel = send_in(world, DownloadOpening("f", sid, aid, "a", query))
    world.store(world.last(Load).ticket, Loaded(value))
    assert refused(world, channel) == (404, "not_found")


def test_an_upload_over_the_limits_is_refused_before_its_body() -> None:
    world, client = file_world(
        limits=Limits(upload_size_max_bytes=10, session_storage_max_bytes=15), require_sha256=True
    )
    query = ask_link(client, HELPER)
    assert refused(world, put(world, query, 5)) == (400, "sha256_required")
    assert refused(world, put(world, query, 11, sha256=HASH)) == (413, "file_too_large")
    first = put(world, query, 10, sha256=HASH)
    assert refused(world, put(world, query, 6, sha256=HASH)) == (413, "request_too_large")
    assert not world.sent[put(world, query, 5, sha256=HASH)]
    assert refused(world, put(world, query, 1, sha256=HASH)) == (507, "storage_full")
    save(world, first, ("a", 10))
    assert refused(world, put(world, query, 1, sha256=HASH)) == (403, "bad_credential")


def test_a_stateless_link_needs_no_session() -> None:
    world = driver(FILES)
    sid = "0" * 32
    channel = put(world, bearer(world, sid))
    record = save(world, channel, ("a", 5))
    assert (record.sid, record.principal, record.is_bearer) == (sid, "p", True)
    assert world.only_message(channel)["count"] == 1
    assert not world.sent[put(world, bearer(world, sid), session=sid)]
    query = bearer(world, sid, ttl_s=10.0)
    world.wait(12.0)
    assert refused(world, put(world, query)) == (403, "bad_credential")


@pytest.mark.parametrize("sid", ["1" * 32, "0" * 31 + "1"])
def test_a_stateless_link_is_for_its_own_files_only(sid: str) -> None:
    world = driver(FILES)
    query = bearer(world, "0" * 32)
    grant = read_upload([LINK_KEY], query, server="f", now_unix=0)
    assert isinstance(grant, UploadGrant)
    forged = sign_upload(b"x" * 32, server="f", grant=msgspec.structs.replace(grant, sid=sid))
    assert refused(world, put(world, forged)) == (403, "bad_credential")


def test_a_duplicate_manifest_is_ignored() -> None:
    """The second manifest, while the record is being saved, is neither read nor an error."""
    world, client = file_world()
    channel = send_in(world, UploadOpening(server="f", query=ask_link(client, HELPER)))
    (order,) = world.send(channel, manifest(("a.txt", 1)))
    assert isinstance(order, Save)
    assert world.send(channel, manifest(("b.txt", 2))) == []
    assert world.send(channel, b"no manifest") == []
    world.store(order.ticket, Saved())
    reply = world.only_message(channel)
    assert [each["filename"] for each in reply["uploads"]] == ["a.txt"]
