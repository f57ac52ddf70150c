"""Tests of resumable uploads in the engine: their links, offsets, responses, and ends."""

from __future__ import annotations

import json

import pytest
from driving import ask_link, connect, driver, send_in
from isthmus.core.base.errors import LocalProtocolError
from isthmus.core.base.events import Cause, Checksum, End, RawFile, UploadOpening, Verb
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import FileScope
from isthmus.core.base.storage import Append, Cease, Discard, Forget, Halt, Receive, Save, Saved, StorageFailed
from isthmus.core.files.transfer.resumable import WAITING_MAX
from resumable_clients import FILES, HASH, HELPER, ResumableClient, resumable_world, room, upload_count
from upload_links import bearer

# --- Normal uploads ---------------------------------------------------------------------------------------------------


def test_a_file_comes_in_pieces_and_is_an_upload_at_the_end() -> None:
    world, client, tus = resumable_world()
    metadata = "filename YS50eHQ="
    location = tus.begin(10, metadata=metadata)
    assert location.startswith(f"http://here/upload/f/tus/{tus.upload}?mcp_tus_exp=")
    first = tus.append(0, 4, checksum=Checksum("sha1", "00" * 20))
    order = world.only(Append)
    assert (order.offset, order.size_bytes, order.checksum) == (0, 10, Checksum("sha1", "00" * 20))
    assert not world.sent[first]
    tus.tell(first, 4)
    sent = tus.reply(first)
    assert (sent.status, sent.message) == (204, b"")
    assert dict(sent.headers)["Upload-Offset"] == "4"
    looked = dict(tus.reply(tus.open(Verb.RESUME)).headers)
    assert (looked["Upload-Offset"], looked["Upload-Length"], looked["Cache-Control"]) == ("4", "10", "no-store")
    assert looked["Upload-Metadata"] == metadata
    assert looked["Upload-Expires"].endswith(" GMT")
    shown = json.loads(tus.reply(tus.open(Verb.LOOK)).message)
    assert (shown["offset"], shown["length"], shown["is_complete"]) == (4, 10, False)
    last = tus.append(4, 6)
    assert world.last(Append).blob == order.blob
    headers = dict(tus.complete(last).headers)
    assert headers["Upload-Offset"] == "10"
    handle = headers["Upload-Handle"]
    reply = json.loads(tus.reply(tus.open(Verb.LOOK)).message)
    assert (reply["upload_handle"], reply["upload"]["filename"], reply["upload"]["size_bytes"]) == (handle, "a.txt", 10)
    assert reply["upload"]["sha256"] == HASH
    again = dict(tus.reply(tus.open(Verb.RESUME)).headers)
    assert (again["Upload-Offset"], again["Upload-Handle"]) == ("10", handle), (
        "a client that missed the response can ask"
    )
    assert "Upload-Expires" not in again
    assert tus.reply(tus.append(10, 0)).status == 204
    channel = client.request("1", "tools/call", json.dumps({"name": "eat", "arguments": {"path": handle}}))
    assert not world.sent[channel], "it is found"


@pytest.mark.parametrize(
    "report", [b"", b"{}", b'{"size_bytes":-1}', b'{"size_bytes":11}', b'{"sha256":"\xff"}', b"[" * 100_000]
)
def test_an_invalid_report_is_a_mistake_of_the_driver(report: bytes) -> None:
    """The driver gets an exception, and the upload is unchanged."""
    world, _, tus = resumable_world()
    tus.begin(10)
    channel = tus.append(0, 5)
    with pytest.raises(LocalProtocolError, match=r"got (no report|a draft)"):
        world.engine.receive_message(channel, report, world.now)
    tus.tell(channel, 5)
    assert tus.offset() == 5


def test_a_file_may_come_with_its_creation() -> None:
    world, _, tus = resumable_world()
    channel = tus.create(10, size_bytes=4)
    tus.tell(channel, 4)
    sent = tus.reply(channel)
    tus.go_to(sent)
    assert dict(sent.headers)["Upload-Offset"] == "4"
    assert tus.offset() == 4
    other = tus.create(10, size_bytes=10)
    headers = dict(tus.complete(other).headers)
    assert {"Location", "Upload-Handle"} <= set(headers)
    assert world.last(Save).key.startswith("upload/")


def test_an_empty_file_is_complete_when_it_begins() -> None:
    world, _, tus = resumable_world()
    channel = tus.create(0)
    assert world.only(Append).size_bytes == 0
    assert tus.complete(channel, 0).status == 201


# --- Breaks -----------------------------------------------------------------------------------------------------------


def test_bytes_before_a_break_are_kept() -> None:
    world, _, tus = resumable_world()
    tus.begin(10)
    channel = tus.append(0, 10)
    tus.tell(channel, 3, is_over=False)
    assert json.loads(tus.reply(tus.open(Verb.LOOK)).message)["offset"] == 3, "it can be watched"
    tus.tell(channel, 4, halt=Halt.BROKEN)
    assert not world.sent[channel]
    world.end(channel, Cause(End.GONE))
    assert tus.offset() == 4
    assert tus.refused(tus.append(0, 5)) == (409, "offset_mismatch")
    assert tus.add(4, 2).status == 204


def test_a_new_request_interrupts_an_old_connection() -> None:
    world, _, tus = resumable_world()
    tus.begin(10)
    old = tus.append(0, 10)
    head = tus.open(Verb.RESUME)
    more = tus.append(4, 6)
    assert world.every(Cease) == [Cease(channel=old)], "once"
    assert not world.sent[head] and not world.sent[more]
    tus.tell(old, 4, halt=Halt.CEASED)
    assert tus.refused(old) == (409, "interrupted")
    assert dict(tus.reply(head).headers)["Upload-Offset"] == "4"
    assert world.last(Append).offset == 4
    assert tus.complete(more).status == 204


def test_looking_at_an_upload_interrupts_no_request() -> None:
    world, _, tus = resumable_world()
    tus.begin(10)
    channel = tus.append(0, 10)
    assert json.loads(tus.reply(tus.open(Verb.LOOK)).message)["offset"] == 0
    assert not world.every(Cease)
    assert tus.complete(channel).status == 204


def test_the_number_of_waiting_requests_is_bounded() -> None:
    world, _, tus = resumable_world()
    tus.begin(10)
    old = tus.append(0, 10)
    waiting = [tus.open(Verb.RESUME) for _ in range(WAITING_MAX)]
    assert tus.refused(tus.open(Verb.RESUME)) == (423, "locked")
    world.end(waiting[0], Cause(End.GONE))
    tus.tell(old, 2, halt=Halt.CEASED)
    assert [tus.reply(channel).status for channel in waiting[1:]] == [200] * (WAITING_MAX - 1)
    assert not world.sent[waiting[0]]


@pytest.mark.parametrize(
    "halt, size, status, is_left",
    [
        (Halt.CHECKSUM, 2, 460, True),
        (Halt.TOO_LARGE, 2, 413, True),
        (Halt.FULL, 3, 507, True),
        (Halt.MISMATCH, 0, 400, False),
        (Halt.FAILED, 2, 503, False),
    ],
)
def test_each_failure_of_a_body_has_its_response(halt: Halt, size: int, status: int, is_left: bool) -> None:
    world, _, tus = resumable_world()
    tus.begin(10)
    tus.add(0, 2)
    channel = tus.append(2, 8)
    effects = tus.tell(channel, size, halt=halt)
    assert tus.reply(channel).status == status
    assert any(isinstance(effect, Discard) for effect in effects) != is_left
    assert tus.offset() == (size if is_left else None)
    again = tus.open(Verb.CREATE, query=tus.link, draft="", length=1)
    assert tus.reply(again).status == 201, "the link is not used up"
    assert room(world, tus.sid) == Limits().session_storage_max_bytes - 1 - (10 if is_left else 0)


def test_a_creation_that_failed_leaves_nothing() -> None:
    """The client does not know its location."""
    for halt in (Halt.CHECKSUM, Halt.TOO_LARGE, Halt.BROKEN, Halt.FULL):
        world, _, tus = resumable_world()
        channel = tus.create(10, size_bytes=10)
        assert isinstance(tus.tell(channel, 0, halt=halt)[0], Discard)
        assert upload_count(world) == 0
        assert len(world.sent[channel]) == (0 if halt is Halt.BROKEN else 1)


def test_a_request_that_had_not_begun_leaves_the_upload_unchanged() -> None:
    """The client disconnected before the driver came to the request, and asks for the offset again."""
    world, _, tus = resumable_world()
    tus.begin(10)
    tus.tell(tus.append(0, 4), 4)
    assert world.end(tus.append(4, 5), Cause(End.BROKEN)) == []
    assert tus.offset() == 4
    tus.tell(tus.append(4, 6), 10, sha256=HASH)
    assert [order.offset for order in world.every(Append)] == [0, 4, 4]


def test_the_type_follows_from_the_first_request() -> None:
    _, _, tus = resumable_world()
    tus.begin(10)
    tus.tell(tus.append(0, 8), 8, head=b"\x89PNG\r\n\x1a\n")
    channel = tus.append(8, 2)
    (save,) = tus.tell(channel, 10, sha256=HASH, head=b"\0\0")
    assert json.loads(save.value)["mime_type"] == "image/png"


@pytest.mark.parametrize("kept", [3, 0])
def test_the_first_bytes_may_come_with_several_requests(kept: int) -> None:
    """The bytes of a request that failed come again."""
    _, _, tus = resumable_world()
    tus.begin(10)
    tus.tell(tus.append(0, 3), kept, head=b"\x89PN")
    tus.tell(tus.append(kept, 2), 5, head=b"\x89PNG\r"[kept:])
    (save,) = tus.tell(tus.append(5, 5), 10, sha256=HASH, head=b"\n\x1a\n\0\0")
    assert json.loads(save.value)["mime_type"] == "image/png"


def test_an_upload_without_a_response_to_its_creation_ends_with_that_request() -> None:
    world, _, tus = resumable_world()
    channel = tus.create(10, size_bytes=4)
    assert [type(effect) for effect in world.end(channel, Cause(End.BROKEN))] == [Discard]


def test_a_record_that_cannot_be_written_leaves_nothing() -> None:
    world, _, tus = resumable_world()
    tus.begin(10)
    channel = tus.append(0, 10)
    (save,) = tus.tell(channel, 10, sha256=HASH)
    effects = world.store(save.ticket, StorageFailed(reason="the disk is full", is_full=True))
    assert effects[:2] == [Forget(key=save.key), Discard(blob=world.only(Append).blob)]
    assert tus.refused(channel) == (507, "storage_failed")
    assert tus.offset() is None
    assert tus.begin(10)


# --- Links ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mcp_tus_exp", "mcp_tus_sig"])
@pytest.mark.parametrize("how", ["missing", "changed", "nonsense"])
@pytest.mark.parametrize("verb", [Verb.RESUME, Verb.LOOK, Verb.APPEND, Verb.END])
def test_a_forged_link_is_refused(verb: Verb, name: str, how: str) -> None:
    world, _, tus = resumable_world()
    tus.begin(10)
    query = dict(tus.query)
    original = query.pop(name)
    if how != "missing":
        query[name] = original[:-1] + ("1" if original[-1] == "0" else "0") if how == "changed" else "x\n"
    assert tus.refused(tus.open(verb, query=query)) == (403, "bad_credential")
    assert not world.every(Append)
    assert not any(value in note for value in tus.query.values() for note in world.notes("warning"))


def test_a_link_is_for_one_resumable_upload_of_one_server() -> None:
    _, client, tus = resumable_world(file_scope=FileScope.SESSION)
    tus.begin(10)
    other = ResumableClient(tus.world, ask_link(client, HELPER))
    other.begin(10)
    assert tus.refused(tus.open(Verb.LOOK, draft=other.upload)) == (403, "bad_credential")
    assert tus.refused(tus.open(Verb.LOOK, server="g")) == (403, "bad_credential")
    assert tus.refused(tus.open(Verb.LOOK, query=tus.link)) == (403, "bad_credential")
    assert tus.refused(tus.open(Verb.LOOK, session="other")) == (403, "session_mismatch")
    assert tus.reply(tus.open(Verb.LOOK, session=client.session)).status == 200
    assert tus.refused(tus.open(Verb.CREATE, query=tus.query, draft="", length=1)) == (403, "bad_credential")


def test_an_upload_link_is_used_up_by_the_first_complete_upload() -> None:
    """Other uploads that were begun with it end."""
    world, _, tus = resumable_world()
    tus.begin(10)
    first = tus.upload, tus.query
    tus.begin(10)
    busy = ResumableClient(world, tus.link)
    busy.begin(10)
    under_way = busy.append(0, 5)
    tus.complete(tus.append(0, 10))
    assert tus.refused(tus.open(Verb.LOOK, draft=first[0], query=first[1])) == (404, "not_found")
    assert world.every(Cease) == [Cease(channel=under_way)]
    busy.tell(under_way, 2, halt=Halt.CEASED)
    assert busy.refused(under_way) == (410, "ended")
    assert tus.refused(tus.create(1)) == (403, "bad_credential")
    form = send_in(world, UploadOpening(server="f", query=tus.link))
    assert tus.refused(form) == (403, "bad_credential")


def test_a_form_with_the_link_comes_before_a_later_complete_upload() -> None:
    world, _, tus = resumable_world()
    tus.begin(10)
    form = send_in(world, UploadOpening(server="f", query=tus.link, raw=RawFile("x")))
    (save,) = world.send(form, b'{"files":[{"filename":"x","size_bytes":1,"sha256":"%s"}]}' % HASH.encode())
    assert isinstance(save, Save)
    world.store(save.ticket, Saved())
    channel = tus.append(0, 10)
    effects = tus.tell(channel, 10, sha256=HASH)
    assert tus.refused(channel) == (403, "bad_credential")
    assert Discard(blob=world.only(Append).blob) in effects


def test_a_resumable_upload_of_a_bearer_needs_no_session() -> None:
    world = driver(FILES)
    tus = ResumableClient(world, bearer(world, "0" * 32))
    tus.begin(10)
    assert tus.complete(tus.append(0, 10)).status == 204


# --- Bounds and ends --------------------------------------------------------------------------------------------------


def test_an_upload_that_does_not_fit_is_refused_at_its_creation() -> None:
    limits = Limits(upload_size_max_bytes=100, session_storage_max_bytes=150, upload_drafts_per_session_max=2)
    world, _, tus = resumable_world(limits=limits)
    assert tus.refused(tus.create(101)) == (413, "file_too_large")
    assert tus.refused(tus.create(10, size_bytes=11)) == (413, "request_too_large")
    tus.begin(100)
    assert tus.refused(tus.create(51)) == (413, "request_too_large")
    assert tus.refused(tus.append(0, 101)) == (413, "request_too_large")
    tus.begin(50)
    assert tus.refused(tus.create(1)) == (429, "too_many_uploads")
    tus.open(Verb.END)
    assert tus.refused(tus.create(51)) == (413, "request_too_large")
    tus.begin(50)
    assert not world.every(Append) and not world.every(Receive)


def test_resumable_uploads_are_bounded_and_finished_ones_make_room() -> None:
    world, client, tus = resumable_world(limits=Limits(upload_drafts_max=2))
    tus.begin(10)
    tus.complete(tus.append(0, 10))
    other = ResumableClient(world, ask_link(client, HELPER))
    other.begin(1)
    assert tus.offset() == 10
    other.begin(1)
    assert tus.offset() is None, "the finished one made room"
    assert other.refused(other.create(1)) == (429, "too_many_uploads")


def test_a_hash_can_be_demanded() -> None:
    world, _, tus = resumable_world(require_sha256=True)
    assert tus.refused(tus.create(1)) == (400, "sha256_required")
    tus.begin(1, file=RawFile("a", None, HASH))
    tus.append(0, 1)
    assert world.only(Append).sha256 == HASH


def test_a_resumable_upload_expires_unless_it_grows() -> None:
    world, _, tus = resumable_world(
        limits=Limits(upload_draft_ttl_s=100.0, upload_draft_max_s=300.0, session_idle_ttl_s=50.0)
    )
    tus.begin(10)
    world.wait(99.0)
    assert tus.add(0, 2).status == 204, "its session was kept for it"
    channel = tus.append(2, 2)
    world.wait(150.0)
    tus.tell(channel, 4)
    assert tus.reply(channel).status == 204
    world.wait(40.0)
    assert tus.offset() == 4
    world.wait(12.0)
    assert tus.refused(tus.open(Verb.RESUME)) == (403, "bad_credential"), "its link is over, and so is it"
    assert upload_count(world) == 0
    assert world.only(Discard).blob == world.last(Append).blob


def test_an_expired_resumable_upload_frees_its_room() -> None:
    world, client, tus = resumable_world(limits=Limits(upload_draft_ttl_s=100.0, session_storage_max_bytes=10))
    tus.begin(10)
    fresh = ResumableClient(world, ask_link(client, HELPER))
    assert fresh.refused(fresh.create(1)) == (507, "storage_full")
    world.wait(101.0)
    assert tus.refused(tus.open(Verb.RESUME)) == (404, "not_found")
    fresh = ResumableClient(world, ask_link(client, HELPER))
    fresh.begin(10)


@pytest.mark.parametrize("comes", [True, False])
def test_files_are_evicted_only_when_the_upload_is_complete(comes: bool) -> None:
    """An announced file may never come, and then nothing is evicted for it."""
    world, client, tus = resumable_world(limits=Limits(session_storage_max_bytes=15))
    tus.begin(10)
    before = dict(tus.complete(tus.append(0, 10)).headers)["Upload-Handle"]
    key = world.only(Save).key
    world.wait(1.0)
    later = ResumableClient(world, ask_link(client, HELPER))
    later.begin(10)
    later.add(0, 9)
    assert not world.every(Forget)
    if comes:
        later.complete(later.append(9, 1))
    else:
        assert later.reply(later.open(Verb.END)).status == 204
    assert [order.key for order in world.every(Forget)] == [key] * comes
    channel = client.request("1", "tools/call", json.dumps({"name": "eat", "arguments": {"path": before}}))
    assert bool(world.sent[channel]) is comes, "what is gone is refused, and what is there is on its way"


def test_a_resumable_upload_that_takes_too_long_is_stopped() -> None:
    world, _, tus = resumable_world(limits=Limits(upload_draft_max_s=300.0))
    tus.begin(10)
    channel = tus.append(0, 10)
    world.wait(301.0)
    assert world.only(Cease).channel == channel
    effects = tus.tell(channel, 5, halt=Halt.CEASED)
    assert isinstance(effects[0], Discard)
    assert tus.refused(channel) == (410, "ended")


def test_a_resumable_upload_that_takes_too_long_ends_with_a_request_that_had_not_begun() -> None:
    world, _, tus = resumable_world(limits=Limits(upload_draft_max_s=300.0))
    tus.begin(10)
    channel = tus.append(0, 10)
    world.wait(301.0)
    assert [type(effect) for effect in world.end(channel, Cause(End.BROKEN))] == [Discard]
    assert tus.offset() is None


def test_a_client_can_end_a_resumable_upload() -> None:
    world, _, tus = resumable_world()
    tus.begin(10)
    tus.add(0, 5)
    assert tus.reply(tus.open(Verb.END)).status == 204
    assert world.only(Discard).blob == world.last(Append).blob
    assert tus.refused(tus.open(Verb.END)) == (404, "not_found")
    tus.begin(10)
    busy = tus.append(0, 5)
    end, late = tus.open(Verb.END), tus.open(Verb.RESUME)
    tus.tell(busy, 3, halt=Halt.CEASED)
    assert [tus.reply(channel).status for channel in (busy, end, late)] == [409, 204, 404]


def test_an_upload_that_is_being_saved_is_not_ended() -> None:
    world, _, tus = resumable_world()
    tus.begin(10)
    channel = tus.append(0, 10)
    (save,) = tus.tell(channel, 10, sha256=HASH)
    end = tus.open(Verb.END)
    assert not world.sent[end]
    world.store(save.ticket, Saved())
    assert (tus.reply(channel).status, tus.reply(end).status) == (204, 204)
    assert not world.every(Discard), "the complete upload stays"


def test_resumable_uploads_end_with_their_session_where_files_are_of_it() -> None:
    world, client, tus = resumable_world(file_scope=FileScope.SESSION)
    tus.begin(10)
    tus.add(0, 5)
    busy = ResumableClient(world, tus.link)
    busy.begin(10)
    channel = busy.append(0, 5)
    client.delete()
    assert world.only(Discard).blob == world.every(Append)[0].blob
    busy.tell(channel, 2, halt=Halt.CEASED)
    assert busy.refused(channel) == (410, "ended")
    assert len(world.every(Discard)) == 2
    assert upload_count(world) == 0
    assert room(world, tus.sid) == Limits().session_storage_max_bytes


def test_a_resumable_upload_is_finished_after_its_session() -> None:
    """The session has ended before the upload began, or while a request adds to it."""
    world, client, tus = resumable_world()
    tus.begin(10)
    later = ResumableClient(world, ask_link(client, HELPER))
    channel = tus.append(0, 5)
    client.delete()
    assert not world.every(Cease)
    tus.tell(channel, 5)
    assert tus.offset() == 5
    assert tus.complete(tus.append(5, 5), 10).status == 204
    later.begin(3)
    assert later.complete(later.append(0, 3), 3).status == 204
    assert {file.session for file in world.engine.files()} == {tus.sid}


def test_an_owner_has_half_of_all_resumable_uploads_and_those_of_ended_sessions_give_way() -> None:
    world, client, _ = resumable_world(limits=Limits(upload_drafts_max=4))
    ann, later = (connect(world, "http", "f", principal="ann") for _ in range(2))
    first, second, third = (ResumableClient(world, ask_link(each, HELPER)) for each in (ann, ann, later))
    first.begin(10)
    second.begin(10)
    assert third.refused(third.create(10)) == (429, "too_many_uploads"), "that session is open"
    other = ResumableClient(world, ask_link(client, HELPER))
    other.begin(10)
    world.wait(1.0)
    first.add(0, 5)
    ann.delete()
    third.begin(10)
    assert (first.offset(), second.offset(), other.offset()) == (5, None, 0), "the one that has waited for longest"


# --- Waiting requests -------------------------------------------------------------------------------------------------


def test_a_waiting_request_is_interrupted_by_the_one_behind_it() -> None:
    world, _, tus = resumable_world()
    tus.begin(10)
    first = tus.append(0, 10)
    second, third = tus.append(2, 8), tus.append(4, 6)
    tus.tell(first, 2, halt=Halt.CEASED)
    assert [cease.channel for cease in world.every(Cease)] == [first, second]
    assert not world.sent[third]
    tus.tell(second, 4, halt=Halt.CEASED)
    assert tus.refused(second) == (409, "interrupted")
    assert len(world.every(Cease)) == 2, "nobody waits for the last"
    assert tus.complete(third).status == 204


def test_a_single_waiting_request_interrupts_only_the_current_one() -> None:
    world, _, tus = resumable_world()
    tus.begin(10)
    first = tus.append(0, 10)
    second = tus.append(2, 8)
    tus.tell(first, 2, halt=Halt.CEASED)
    assert [cease.channel for cease in world.every(Cease)] == [first]
    assert tus.complete(second).status == 204


def test_reports_after_the_last_one_are_ignored() -> None:
    world, _, tus = resumable_world()
    tus.begin(10)
    channel = tus.append(0, 10)
    (save,) = tus.tell(channel, 10, sha256=HASH)
    assert tus.tell(channel, 3) == []
    assert tus.tell(channel, 11) == [], "it is not even read"
    world.store(save.ticket, Saved())
    assert dict(tus.reply(channel).headers)["Upload-Offset"] == "10"


@pytest.mark.parametrize("is_answered", [True, False])
def test_the_end_of_a_request_after_its_report_has_no_effect(is_answered: bool) -> None:
    """The bytes of the request are known, whether it was answered or not."""
    world, _, tus = resumable_world()
    tus.begin(10)
    channel = tus.append(0, 5)
    tus.tell(channel, 5, halt=Halt.NONE if is_answered else Halt.BROKEN)
    assert bool(world.sent[channel]) is is_answered
    following = tus.append(5, 5)
    world.end(channel, Cause(End.GONE))
    assert not world.every(Discard)
    assert tus.complete(following).status == 204


def test_an_upload_that_is_being_saved_does_not_expire() -> None:
    """The storage has a timeout of its own."""
    world, _, tus = resumable_world(
        limits=Limits(upload_draft_ttl_s=5.0, upload_draft_max_s=8.0, storage_timeout_s=100.0)
    )
    tus.begin(10)
    channel = tus.append(0, 10)
    (save,) = tus.tell(channel, 10, sha256=HASH)
    world.wait(30.0)
    assert not world.sent[channel] and not world.every(Discard) and not world.every(Cease)
    world.store(save.ticket, Saved())
    assert tus.reply(channel).status == 204
    assert not world.every(Discard)
    assert upload_count(world) == 1
    world.wait(5.1)
    assert upload_count(world) == 0, "its status expires like that of any other"


def test_an_upload_is_ended_only_once() -> None:
    """The session ends, and then the time of the upload, while the request that adds to it has not stopped."""
    world, client, tus = resumable_world(limits=Limits(upload_draft_max_s=300.0))
    tus.begin(10)
    channel = tus.append(0, 10)
    client.delete()
    world.wait(301.0)
    assert [cease.channel for cease in world.every(Cease)] == [channel]
    tus.tell(channel, 4, halt=Halt.CEASED)
    assert tus.refused(channel) == (410, "ended")
    assert len(world.every(Discard)) == 1
    assert upload_count(world) == 0


@pytest.mark.parametrize("is_kept", [True, False])
def test_the_reservation_becomes_the_file_or_is_released(is_kept: bool) -> None:
    """The link is no longer in use, so the session may be idle."""
    world, _, tus = resumable_world(limits=Limits(session_idle_ttl_s=50.0, upload_draft_ttl_s=10.0))
    before = room(world, tus.sid)
    tus.begin(10)
    assert room(world, tus.sid) == before - 10
    (save,) = tus.tell(tus.append(0, 10), 10, sha256=HASH)
    assert isinstance(save, Save)
    assert room(world, tus.sid) == before - 10
    world.store(save.ticket, Saved() if is_kept else StorageFailed(reason="no"))
    assert room(world, tus.sid) == (before - 10 if is_kept else before)
    world.wait(51.0)
    assert world.engine.session_count == 0
