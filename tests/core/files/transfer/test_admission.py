"""Tests of the admission of uploads: which are accepted, what is recorded of them, and the exact refusals."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from driving import UNIX_AT_ZERO, Driver, ask_link, connect, driver, manifest, send_in
from isthmus.core.base.effects import Note
from isthmus.core.base.events import UploadOpening
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import FileScope, Kind, ServerPlan
from isthmus.core.base.storage import (
    Conflicted,
    Discard,
    Forget,
    Receive,
    Save,
    Saved,
    StorageFailed,
    StoredFile,
    UploadManifest,
)
from isthmus.core.files.store.store import StoredUpload
from isthmus.core.files.transfer import admission
from isthmus.core.files.transfer.admission import GONE, USED
from resumable_clients import FILES, HELPER
from upload_links import bearer, file_world, put

PLAIN = ServerPlan(id="plain", kind=Kind.PIPE)
AGAIN = f"call the tool {HELPER} for a new one"


def answer(world: Driver, channel: ChannelId) -> tuple[int, dict[str, Any]]:
    (sent,) = world.sent[channel]
    assert sent.is_last
    body = json.loads(sent.message)
    assert isinstance(body, dict)
    return sent.status, body


def refusal(world: Driver, channel: ChannelId) -> tuple[int, str, str]:
    """The HTTP status, code and text of a refusal."""
    status, body = answer(world, channel)
    return status, body["code"], body["detail"]


def post(world: Driver, query: dict[str, str], *, to: str = "f", session: str | None = None) -> ChannelId:
    return send_in(world, UploadOpening(server=to, query=query, session=session))


# --- Links ------------------------------------------------------------------------------------------------------------


def test_a_link_is_for_a_server_that_takes_files() -> None:
    world = driver(FILES, PLAIN)
    query = ask_link(connect(world, "http", "f"), HELPER)
    assert refusal(world, post(world, query, to="no'where")) == (
        404,
        "unknown_server",
        'there is no server "no\'where"',
    )
    text = "server 'plain' takes no uploads"
    assert refusal(world, post(world, query, to="plain")) == (403, "uploads_disabled", text)
    off = driver(FILES, uploads_enabled=False)
    assert refusal(off, post(off, query)) == (403, "uploads_disabled", "server 'f' takes no uploads")


def test_the_refusal_of_an_invalid_link_says_what_to_do() -> None:
    """The link is unknown, forged or too old. The last two are noted."""
    world, client = file_world(limits=Limits(upload_link_ttl_s=60.0))
    query = ask_link(client, HELPER)
    forged = {"grant": query["grant"][:-22] + "0" * 22}
    for strange, fault in (({}, "missing"), ({"grant": "x"}, "malformed"), (forged, "signature")):
        assert refusal(world, post(world, strange)) == (403, "bad_credential", f"this link is not valid: {AGAIN}")
        note = world.last(Note)
        assert (note.level, note.server, note.text) == ("warning", "f", f"upload refused: link {fault}")
    assert not world.sent[post(world, query)]


@pytest.mark.parametrize(("late_s", "is_taken"), [(-1.0, True), (1.5, False)])
def test_a_link_is_good_until_its_time_is_over(late_s: float, is_taken: bool) -> None:
    world, client = file_world(limits=Limits(upload_link_ttl_s=60.0))
    query = ask_link(client, HELPER)
    world.wait(60.0 + late_s)
    channel = post(world, query)
    assert bool(world.sent[channel]) is not is_taken
    if not is_taken:
        status, code, detail = refusal(world, channel)
        assert (status, code) == (403, "bad_credential")
        assert detail in (f"this link has expired: {AGAIN}", f"this link was used already: {AGAIN}")


def test_a_link_belongs_to_an_open_session() -> None:
    """Files are of their session here. The session header is optional, and must name the
    link's session if it is present."""
    world, client = file_world(file_scope=FileScope.SESSION)
    other = connect(world, "http", "f")
    query = ask_link(client, HELPER)
    text = "Mcp-Session-Id names another session than the link"
    for name in (other.session, "x", ""):
        assert refusal(world, post(world, query, session=name)) == (403, "session_mismatch", text)
    for name in (client.session, None):
        assert not world.sent[post(world, query, session=name)]
    client.delete()
    gone = (409, "session_gone", "the session this link belongs to has ended")
    assert refusal(world, post(world, query)) == gone
    assert refusal(world, post(world, query, session=other.session)) == gone


def test_a_link_is_good_after_its_session_and_beside_any_other() -> None:
    """The name of a session that comes with it is not read: the link may be used in another one."""
    world, client = file_world()
    other = connect(world, "http", "f")
    query = ask_link(client, HELPER)
    client.delete()
    for name in (other.session, client.session, "x", None):
        assert not world.sent[post(world, query, session=name)]


# --- Records ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_bearer", [False, True])
def test_the_record_of_an_upload(is_bearer: bool) -> None:
    """Each field is compared. The record is stored as long as the file may be used."""
    world = driver(FILES, limits=Limits(upload_ttl_s=500.0))
    if is_bearer:
        query = bearer(world, "7" * 32)
    else:
        query = ask_link(connect(world, "http", "f", principal="ann"), HELPER)
    world.wait(3.0)
    channel = put(world, query)
    (order,) = world.send(channel, manifest(("../x/a b.txt", 5)))
    assert isinstance(order, Save)
    record = msgspec.json.decode(order.value, type=StoredUpload)
    now_unix = UNIX_AT_ZERO + world.now
    assert record == StoredUpload(
        server="f",
        sid="7" * 32 if is_bearer else record.sid,
        uid=record.uid,
        principal="p" if is_bearer else "ann",
        blob=world.only(Receive).blobs[0],
        filename="a b.txt",
        mime_type="text/plain",
        size_bytes=5,
        sha256="0" * 64,
        is_bearer=is_bearer,
        stored_at_unix=now_unix,
        expires_at_unix=now_unix + 500.0,
    )
    assert (order.key, order.expires_at_unix) == (record.key, now_unix + 500.0)
    world.store(order.ticket, Saved())
    status, body = answer(world, channel)
    assert status in (200, 201)
    assert (body["server_id"], body["session_id"], body["count"]) == ("f", record.sid, 1)
    assert body["upload_handles"] == [f"upload://sessions/{record.sid}/{record.uid}"]
    (shown,) = body["uploads"]
    kept = ("filename", "mime_type", "size_bytes", "sha256")
    assert {name: shown[name] for name in kept} == {name: getattr(record, name) for name in kept}
    assert shown["upload_id"] == record.uid
    assert [file.id for file in world.engine.files()] == [record.uid]


def test_a_file_without_a_name_gets_one() -> None:
    world, client = file_world()
    channel = post(world, ask_link(client, HELPER))
    (order,) = world.send(channel, manifest(("", 5)))
    assert isinstance(order, Save)
    assert msgspec.json.decode(order.value, type=StoredUpload).filename.startswith("upload")


@pytest.mark.parametrize("failed", [(0,), (1,), (0, 1)])
def test_the_files_of_one_request_are_all_kept_or_none(failed: tuple[int, ...]) -> None:
    """Written records are removed, and the link may be tried again. The last reason is the answer."""
    world, client = file_world()
    query = ask_link(client, HELPER)
    channel = post(world, query)
    orders = [order for order in world.send(channel, manifest(("a", 1), ("b", 1))) if isinstance(order, Save)]
    blobs = world.last(Receive).blobs
    effects: list[Any] = []
    for number, order in enumerate(orders):
        effects = world.store(order.ticket, StorageFailed(f"full {number}") if number in failed else Saved())
    assert effects[:4] == [
        *(Forget(key=order.key) for order in orders),
        *(Discard(blob=blob) for blob in blobs[:2]),
    ]
    assert refusal(world, channel) == (503, "storage_failed", f"full {failed[-1]}")
    assert world.engine.files() == ()
    again = post(world, query)
    for order in world.send(again, manifest(("a", 1))):
        assert isinstance(order, Save)
        world.store(order.ticket, Saved())
    assert answer(world, again)[1]["count"] == 1
    used = f"this link was used already: {AGAIN}"
    assert refusal(world, post(world, query)) == (403, "bad_credential", used)


@pytest.mark.parametrize("is_bearer", [False, True])
def test_a_file_whose_session_ends_while_it_is_saved_is_not_kept(is_bearer: bool) -> None:
    """Files are of their session here. One of a client without sessions is kept."""
    world, client = file_world(file_scope=FileScope.SESSION)
    channel = post(world, bearer(world, "7" * 32) if is_bearer else ask_link(client, HELPER))
    (order,) = world.send(channel, manifest(("a", 1)))
    assert isinstance(order, Save)
    client.delete()
    effects = world.store(order.ticket, Saved())
    if is_bearer:
        assert answer(world, channel)[1]["count"] == 1
        assert len(world.engine.files()) == 1
    else:
        assert effects[:2] == [Forget(key=order.key), Discard(blob=world.last(Receive).blobs[0])]
        assert refusal(world, channel) == (409, "session_gone", GONE.text)
        assert world.engine.files() == ()


@pytest.mark.parametrize(
    ("name", "head", "mime_type"),
    [
        ("a.bin", b"\x93\x00\xfe", "application/octet-stream"),
        ("a.bin", b"plain words", "text/plain"),
        ("a.txt", b"\x89PNG\r\n\x1a\n", "image/png"),
        ("a.csv", b"1,2", "text/csv"),
    ],
)
def test_the_type_of_an_upload_follows_from_its_first_bytes(name: str, head: bytes, mime_type: str) -> None:
    world, client = file_world()
    channel = post(world, ask_link(client, HELPER))
    (order,) = world.send(channel, msgspec.json.encode(UploadManifest((StoredFile(name, 11, "0" * 64, head=head),))))
    world.store(order.ticket, Saved())
    assert answer(world, channel)[1]["upload"]["mime_type"] == mime_type


def test_the_second_of_two_uploads_with_one_link_is_refused() -> None:
    """The second upload is refused while the first is being saved and afterwards, and its bytes are discarded."""
    world, client = file_world()
    query = ask_link(client, HELPER)
    channels = [post(world, query) for _ in range(3)]
    blobs = [order.blobs[0] for order in world.every(Receive)]
    (order,) = world.send(channels[0], manifest(("a", 1)))
    assert isinstance(order, Save)
    used = (403, "bad_credential", "this link was used already, by another upload")
    assert world.send(channels[1], manifest(("b", 1)))[0] == Discard(blob=blobs[1])
    assert refusal(world, channels[1]) == used
    world.store(order.ticket, Saved())
    assert world.send(channels[2], manifest(("c", 1)))[0] == Discard(blob=blobs[2])
    assert refusal(world, channels[2]) == used
    assert len(world.engine.files()) == 1


# --- A link is used once ----------------------------------------------------------------------------------------------


def begun(world: Driver, query: dict[str, str]) -> tuple[ChannelId, Save]:
    """An upload whose body has come. Returns its channel, and the order that uses up its link."""
    channel = post(world, query)
    (use,) = world.send(channel, manifest(("a", 1)))
    assert isinstance(use, Save)
    assert (use.if_version, use.key.partition("/")[0]) == (0, "used")
    return channel, use


def test_of_two_processes_with_one_storage_one_takes_an_upload_with_a_link() -> None:
    """Each has the link checked; the storage decides."""
    one, client = file_world(file_scope=FileScope.PRINCIPAL)
    two = driver(FILES, seed=2)
    query = ask_link(client, HELPER)
    one.answers_uses = two.answers_uses = False
    (first, use), (second, same) = begun(one, query), begun(two, query)
    assert use.key == same.key
    assert use.expires_at_unix is not None and use.expires_at_unix >= one.now + UNIX_AT_ZERO + 60
    (save,) = one.store(use.ticket, Saved())
    assert isinstance(save, Save)
    one.store(save.ticket, Saved())
    assert answer(one, first)[1]["count"] == 1
    effects = two.store(same.ticket, Conflicted())
    assert [type(effect) for effect in effects] == [Discard, *[type(effect) for effect in effects[1:]]]
    assert not any(isinstance(effect, Save) for effect in effects)
    assert refusal(two, second) == (403, "bad_credential", USED.text)
    assert two.engine.files() == ()
    again = f"this link was used already: {AGAIN}"
    assert refusal(two, post(two, query)) == (403, "bad_credential", again), "it is known from now on"


def test_a_link_whose_use_could_not_be_saved_may_be_tried_again() -> None:
    world, client = file_world()
    query = ask_link(client, HELPER)
    world.answers_uses = False
    channel, use = begun(world, query)
    world.store(use.ticket, StorageFailed("no such luck"))
    assert refusal(world, channel) == (503, "storage_failed", "no such luck")
    assert world.last(Discard).blob == world.last(Receive).blobs[0]
    late, use = begun(world, query)
    world.wait(Limits().storage_timeout_s)
    assert refusal(world, late)[:2] == (503, "storage_failed")
    assert world.store(use.ticket, Saved()) == [Forget(key=use.key)], "it was saved after all"
    world.answers_uses = True
    put_again = post(world, query)
    (save,) = [order for order in world.send(put_again, manifest(("a", 1))) if isinstance(order, Save)]
    world.store(save.ticket, Saved())
    assert answer(world, put_again)[1]["count"] == 1


def test_the_oldest_used_link_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """An upload with it is refused all the same, when its body has come. Links go when they have expired, too."""
    monkeypatch.setattr(admission, "USED_LINKS_MAX", 2)
    world, client = file_world(limits=Limits(upload_link_ttl_s=60.0))
    links = [ask_link(client, HELPER) for _ in range(3)]
    for link in links:
        channel = post(world, link)
        (save,) = [order for order in world.send(channel, manifest(("a", 1))) if isinstance(order, Save)]
        world.store(save.ticket, Saved())
        assert answer(world, channel)[0] == 200
    first, *others = links
    for link in others:
        assert refusal(world, post(world, link))[0] == 403
    channel = post(world, first)
    assert not world.sent[channel]
    world.send(channel, manifest(("a", 1)))
    assert refusal(world, channel) == (403, "bad_credential", USED.text)
    world.wait(61.0)
    channel = post(world, fresh := ask_link(client, HELPER))
    (save,) = [order for order in world.send(channel, manifest(("a", 1))) if isinstance(order, Save)]
    world.store(save.ticket, Saved())
    assert refusal(world, post(world, fresh))[0] == 403
    assert refusal(world, post(world, others[0]))[2].startswith("this link has expired")
