"""Tests of resumable uploads in detail: their states, their times, and each refusal with status, text and code."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

import pytest
from driving import UNIX_AT_ZERO, Driver
from isthmus.core.base.events import Cause, End, RawFile, Verb
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import FileScope
from isthmus.core.base.setting_names import LARGER_FILES
from isthmus.core.base.storage import Append, Cease, Discard, Halt
from isthmus.core.files.transfer.resumable import TRANSITIONS, WAITING_MAX, ResumableUploadInput, ResumableUploadState
from resumable_clients import ResumableClient, resumable_world, room
from stateless_driving import tables


def date(at: float) -> str:
    return format_datetime(datetime.fromtimestamp(int(UNIX_AT_ZERO + at), UTC), usegmt=True)


def stamp(at: float) -> str:
    return datetime.fromtimestamp(int(UNIX_AT_ZERO + at), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def refused(tus: ResumableClient, channel: ChannelId) -> tuple[int, str, str]:
    """The status, text and code of a refusal, which has no other members."""
    sent = tus.reply(channel)
    body = json.loads(sent.message)
    assert list(body) == ["detail", "code"]
    return sent.status, body["detail"], body["code"]


def due(world: Driver) -> list[float]:
    """The seconds until resumable uploads expire."""
    live = tables(world.engine)["timers"]
    return [at - world.now for (purpose, _), (at, *_) in live.items() if purpose == "draft"]


# --- States -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", list(ResumableUploadState))
@pytest.mark.parametrize("input", list(ResumableUploadInput))
def test_the_transitions(state: ResumableUploadState, input: ResumableUploadInput) -> None:
    """An upload is open or added to. When complete it is saved. Ended while it is added to, it is gone once that
    request has stopped. Source: tus 1.0.0."""
    expected = {
        (ResumableUploadState.OPEN, ResumableUploadInput.APPEND): ResumableUploadState.APPENDING,
        (ResumableUploadState.OPEN, ResumableUploadInput.END): ResumableUploadState.ENDED,
        (ResumableUploadState.APPENDING, ResumableUploadInput.STOP): ResumableUploadState.OPEN,
        (ResumableUploadState.APPENDING, ResumableUploadInput.COMPLETE): ResumableUploadState.SAVING,
        (ResumableUploadState.APPENDING, ResumableUploadInput.END): ResumableUploadState.ENDING,
        (ResumableUploadState.ENDING, ResumableUploadInput.STOP): ResumableUploadState.ENDED,
        (ResumableUploadState.ENDING, ResumableUploadInput.COMPLETE): ResumableUploadState.ENDED,
        (ResumableUploadState.SAVING, ResumableUploadInput.SAVE): ResumableUploadState.DONE,
        (ResumableUploadState.SAVING, ResumableUploadInput.END): ResumableUploadState.ENDED,
        (ResumableUploadState.DONE, ResumableUploadInput.END): ResumableUploadState.ENDED,
    }
    assert TRANSITIONS[state].get(input) is expected.get((state, input))


# --- A request that breaks off ----------------------------------------------------------------------------------------


def test_a_request_that_ends_without_a_report_leaves_the_upload_unchanged() -> None:
    """The request had not begun: the room stays reserved, and the time begins anew."""
    world, _, tus = resumable_world()
    tus.begin(10, size_bytes=0)
    free = room(world, tus.sid)
    channel = tus.append(0)
    world.log.clear()
    world.end(channel, Cause(End.BROKEN, "gone"))
    assert world.every(Discard) == []
    assert room(world, tus.sid) == free
    assert due(world) == [Limits().upload_draft_ttl_s]
    assert tus.offset() == 0


def test_requests_that_wait_for_an_ended_upload_are_answered() -> None:
    """Each open request is answered, in order. The bytes are discarded, the room is freed, and the timer ends."""
    world, _, tus = resumable_world()
    free = room(world, tus.sid)
    tus.begin(10, size_bytes=0)
    assert room(world, tus.sid) == free - 10
    channel = tus.append(0)
    ended, *waiting = [tus.open(Verb.END), *(tus.open(Verb.RESUME) for _ in range(3))]
    assert [order.channel for order in world.every(Cease)] == [channel]
    assert not world.sent[ended]
    world.end(waiting[1])
    world.log.clear()
    world.end(channel, Cause(End.BROKEN, "gone"))
    assert tus.reply(ended).status == 204
    gone = (404, "there is no such upload any more: it was ended", "not_found")
    assert [refused(tus, waiting[0]), refused(tus, waiting[2])] == [gone, gone]
    assert not world.sent[waiting[1]]
    assert len(world.every(Discard)) == 1
    assert room(world, tus.sid) == free
    assert due(world) == []
    assert refused(tus, tus.open(Verb.LOOK)) == (
        404, "there is no such upload any more: it has expired, or was ended", "not_found",
    )  # fmt: skip


# --- Refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("halt", "refusal"),
    [
        (Halt.CEASED, (409, "another request for this upload came: ask where to go on", "interrupted")),
        (Halt.CHECKSUM, (460, "the body has not the checksum it was sent with: send it again", "checksum_mismatch")),
        (Halt.TOO_LARGE, (413, "the body is longer than what is left of the file", "request_too_large")),
        (
            Halt.MISMATCH,
            (400, "the file has not the sha256 it was announced with: begin another", "sha256_mismatch"),
        ),
        (Halt.FULL, (507, "there is no room for this upload; try again later", "storage_full")),
        (Halt.FAILED, (503, "the upload could not be stored: begin another", "storage_failed")),
    ],
)
def test_the_response_to_each_outcome_of_a_body(halt: Halt, refusal: tuple[int, str, str]) -> None:
    _, _, tus = resumable_world()
    tus.begin(10, size_bytes=0)
    channel = tus.append(0)
    tus.tell(channel, 5, halt=halt)
    assert refused(tus, channel) == refusal
    assert tus.offset() == (None if halt in (Halt.MISMATCH, Halt.FAILED) else 5)


def test_a_request_whose_upload_was_ended_is_refused() -> None:
    world, _, tus = resumable_world()
    tus.begin(10, size_bytes=0)
    channel = tus.append(0)
    tus.open(Verb.END)
    world.wait(Limits().upload_draft_max_s + 1)
    tus.tell(channel, 5)
    assert refused(tus, channel) == (410, "this upload was ended, or has expired", "ended")


@pytest.mark.parametrize(
    ("offset", "size", "refusal"),
    [
        (3, 2, (409, "got Upload-Offset 3, expected 4", "offset_mismatch")),
        (5, 2, (409, "got Upload-Offset 5, expected 4", "offset_mismatch")),
        (
            4,
            7,
            (413, "got a body of 7 bytes, expected 6 at most: that is what is left of the file", "request_too_large"),
        ),
        (4, 6, None),
        (4, None, None),
    ],
)
def test_a_body_that_does_not_fit_the_offset_is_refused(
    offset: int, size: int | None, refusal: tuple[int, str, str] | None
) -> None:
    """The refusal of a wrong offset has the right one. The rest of the file may come at once."""
    world, _, tus = resumable_world()
    tus.begin(10, size_bytes=0)
    tus.add(0, 4)
    before = len(world.every(Append))
    channel = tus.append(offset, size)
    assert (len(world.every(Append)) == before) is (refusal is not None)
    if refusal is None:
        return
    assert refused(tus, channel) == refusal
    headers = dict(tus.reply(channel).headers)
    assert headers.get("upload-offset") == ("4" if refusal[0] == 409 else None)


@pytest.mark.parametrize(
    ("length", "rest", "limits", "refusal"),
    [
        (100, {}, {"upload_size_max_bytes": 100}, None),
        (
            101,
            {},
            {"upload_size_max_bytes": 100},
            (413, f"the file has 101 bytes, and a file may have at most 100; {LARGER_FILES}", "file_too_large"),
        ),
        (10, {"size_bytes": 10}, {}, None),
        (
            10,
            {"size_bytes": 11},
            {},
            (413, "got a body of 11 bytes, expected 10 at most: that is what is left of the file", "request_too_large"),
        ),
    ],
)
def test_the_creations_that_are_accepted(
    length: int, rest: dict[str, Any], limits: dict[str, Any], refusal: tuple[int, str, str] | None
) -> None:
    """The bounds themselves are within."""
    world, _, tus = resumable_world(limits=Limits(**limits))
    channel = tus.create(length, **{"size_bytes": 0, **rest})
    if refusal is None:
        assert not world.sent[channel] or tus.reply(channel).status == 201
    else:
        assert refused(tus, channel) == refusal
        assert due(world) == []


@pytest.mark.parametrize("sha256", ["", "ab" * 32])
def test_a_required_hash(sha256: str) -> None:
    _, _, tus = resumable_world(require_sha256=True)
    channel = tus.create(10, size_bytes=0, file=RawFile("a.txt", "text/plain", sha256=sha256))
    if sha256:
        assert tus.reply(channel).status == 201
    else:
        text = "got no sha256 in Upload-Metadata, expected the file's SHA-256"
        assert refused(tus, channel) == (400, text, "sha256_required")


@pytest.mark.parametrize("name", ["upload_drafts_per_session_max", "upload_drafts_max"])
def test_the_number_of_resumable_uploads_is_bounded(name: str) -> None:
    """The bound itself is within. An ended upload makes room."""
    _, _, tus = resumable_world(limits=Limits(**{name: 2}))
    for _ in range(2):
        tus.begin(1, size_bytes=0)
    text = "too many uploads are under way: finish or end some first"
    assert refused(tus, tus.create(1, size_bytes=0)) == (429, text, "too_many_uploads")
    assert tus.reply(tus.open(Verb.END)).status == 204
    assert tus.reply(tus.create(1, size_bytes=0)).status == 201


def test_a_file_takes_the_room_there_is() -> None:
    """All of the room may be taken, and not a byte more."""
    world, _, tus = resumable_world()
    free = room(world, tus.sid)
    text = f"the file has {free + 1} bytes, and there is room for {free}"
    if free < Limits().upload_size_max_bytes:
        assert refused(tus, tus.create(free + 1, size_bytes=0)) == (413, text, "request_too_large")
    size = min(free, Limits().upload_size_max_bytes)
    assert tus.reply(tus.create(size, size_bytes=0)).status == 201
    assert room(world, tus.sid) == free - size


def test_so_many_requests_wait_behind_the_current_one() -> None:
    world, _, tus = resumable_world()
    tus.begin(10, size_bytes=0)
    tus.append(0)
    waiting = [tus.open(Verb.RESUME) for _ in range(WAITING_MAX)]
    text = "others wait for this upload already: try again later"
    assert refused(tus, tus.open(Verb.RESUME)) == (423, text, "locked")
    assert not any(world.sent[channel] for channel in waiting)
    assert len(world.every(Cease)) == 1, "it is stopped once"


def test_an_invalid_or_expired_link_is_noted_and_refused() -> None:
    world, _, tus = resumable_world()
    tus.begin(10, size_bytes=0)
    forged = {**tus.query, next(name for name in tus.query if "sig" in name): "x" * 43}
    channel = tus.open(Verb.LOOK, query=forged)
    assert refused(tus, channel) == (403, "the link of this upload is not valid: begin another", "bad_credential")
    assert world.notes("warning")[-1].startswith("upload refused: link ")
    world.wait(Limits().upload_draft_max_s + 1)
    channel = tus.open(Verb.LOOK)
    assert refused(tus, channel) == (403, "the link of this upload has expired: begin another", "bad_credential")
    assert world.notes("warning")[-1] == "upload refused: link expired"


def test_a_session_that_is_named_has_to_be_that_of_the_upload() -> None:
    _, client, tus = resumable_world(file_scope=FileScope.SESSION)
    tus.begin(10, size_bytes=0)
    text = "Mcp-Session-Id names another session than that of the upload"
    assert refused(tus, tus.open(Verb.LOOK, session="other")) == (403, text, "session_mismatch")
    assert tus.reply(tus.open(Verb.LOOK, session=client.session)).status == 200


# --- Responses --------------------------------------------------------------------------------------------------------


def test_a_resumable_upload_is_described_in_full() -> None:
    """The creation has the location and the expiry. Later responses have the offset, the length and the client's
    metadata."""
    world, _, tus = resumable_world(limits=Limits(upload_draft_ttl_s=100.0))
    channel = tus.create(10, size_bytes=0, metadata="filename YS50eHQ=")
    sent = tus.reply(channel)
    location = tus.go_to(sent)
    assert (sent.status, sent.message) == (201, b"")
    until = date(world.now + 100)
    assert sent.headers == (("Upload-Offset", "0"), ("Location", location), ("Upload-Expires", until))
    asked = tus.reply(tus.open(Verb.RESUME))
    described = (
        ("Upload-Offset", "0"), ("Upload-Length", "10"), ("Upload-Metadata", "filename YS50eHQ="),
        ("Upload-Expires", until),
    )  # fmt: skip
    assert (asked.status, asked.message) == (200, b"{}")
    assert asked.headers == (*described, ("Cache-Control", "no-store"))
    looked = tus.reply(tus.open(Verb.LOOK))
    assert looked.headers == (*described, ("Cache-Control", "no-store"))
    assert json.loads(looked.message) == {
        "offset": 0, "length": 10, "expires_at": stamp(world.now + 100), "is_complete": False,
    }  # fmt: skip
    world.wait(50)
    added = tus.add(0, 4)
    assert added.status == 204
    assert dict(added.headers) == {
        "Upload-Offset": "4", "Upload-Length": "10", "Upload-Metadata": "filename YS50eHQ=",
        "Upload-Expires": date(world.now + 100),
    }  # fmt: skip
    complete = tus.complete(tus.append(4, 6))
    headers = dict(complete.headers)
    assert list(headers) == ["Upload-Offset", "Upload-Length", "Upload-Metadata", "Upload-Handle"]
    assert headers["Upload-Offset"] == "10" and headers["Upload-Handle"].startswith("upload://")
    again = tus.append(10, 0)
    assert (tus.reply(again).status, tus.reply(again).headers) == (204, complete.headers), "it has come already"


# --- Time -------------------------------------------------------------------------------------------------------------


def test_the_times_of_a_resumable_upload() -> None:
    """An upload expires after a while, which begins anew with each body, and at the latest after a maximum, which also
    bounds a body under way."""
    world, _, tus = resumable_world(limits=Limits(upload_draft_ttl_s=100.0, upload_draft_max_s=250.0))
    tus.begin(10, size_bytes=0)
    assert due(world) == [100.0]
    world.wait(90)
    channel = tus.append(0)
    assert due(world) == [160.0]
    world.wait(10)
    tus.tell(channel, 5)
    assert due(world) == [100.0]
    world.wait(90)
    tus.add(5, 1)
    assert due(world) == [60.0], "it is no longer than that"
    world.log.clear()
    world.wait(60)
    assert len(world.every(Discard)) == 1
    assert due(world) == []


def test_a_resumable_upload_expires_exactly_at_its_time() -> None:
    world, _, tus = resumable_world(limits=Limits(upload_draft_ttl_s=100.0))
    tus.begin(10, size_bytes=0)
    world.wait(99.9)
    assert tus.offset() == 0
    world.wait(0.1)
    assert tus.offset() is None
