"""Tests of requests that add to a resumable upload and end without a report: the effects on the upload and on waiting
requests."""

from __future__ import annotations

import json

import pytest
from driving import Driver
from isthmus.core.base.effects import Send
from isthmus.core.base.events import Cause, End, Verb
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import FileScope
from isthmus.core.base.storage import Append, Cease, Discard, Halt, Saved
from resumable_clients import HASH, ResumableClient, resumable_world, room, upload_count

GONE = Cause(End.BROKEN, "gone")
TIMES = Limits(upload_draft_ttl_s=100.0, upload_draft_max_s=300.0)


def waiting(tus: ResumableClient) -> list[ChannelId]:
    """Opens one request of each kind that can wait, of which the third ends the upload and the last comes too late."""
    return [tus.open(Verb.RESUME), tus.append(4, 3), tus.open(Verb.END), tus.open(Verb.RESUME)]


def statuses(world: Driver, channels: list[ChannelId]) -> list[int]:
    """The statuses of the responses that were sent."""
    return [sent.status for channel in channels for sent in world.sent[channel]]


def is_gone(world: Driver, tus: ResumableClient, free: int) -> bool:
    """True if nothing is left of the upload: its link is unknown, and its room is free."""
    return tus.offset() is None and room(world, tus.sid) == free and upload_count(world) == 0


# --- States -----------------------------------------------------------------------------------------------------------


def test_waiting_requests_are_served_in_turn_after_the_current_one() -> None:
    """Each request continues at the upload's offset. The next that adds is stopped for those behind it."""
    world, _, tus = resumable_world()
    free = room(world, tus.sid)
    tus.begin(10)
    tus.add(0, 4)
    first = tus.append(4, 6)
    resume, second, end, late = waiting(tus)
    assert world.every(Cease) == [Cease(channel=first)]
    effects = world.end(first, GONE)
    assert [type(effect) for effect in effects] == [Send, Append, Cease]
    assert dict(tus.reply(resume).headers)["Upload-Offset"] == "4"
    assert effects[1] == Append(second, world.every(Append)[0].blob, 4, 10, None, "")
    assert effects[2] == Cease(channel=second)
    assert statuses(world, [second, end, late]) == []
    effects = world.end(second, GONE)
    assert [type(effect) for effect in effects] == [Discard, Send, Send]
    assert statuses(world, [first, second, end, late]) == [204, 404]
    assert is_gone(world, tus, free)


def test_requests_that_wait_for_an_ended_upload_are_answered_after_the_current_one() -> None:
    """The upload is discarded and its room free only then, whatever ended it."""
    world, _, tus = resumable_world(limits=TIMES)
    free = room(world, tus.sid)
    tus.begin(10)
    tus.add(0, 4)
    first = tus.append(4, 6)
    world.wait(299.0)
    channels = waiting(tus)
    world.wait(2.0)
    assert statuses(world, channels) == []
    assert world.every(Discard) == []
    assert room(world, tus.sid) == free - 10
    effects = world.end(first, GONE)
    assert [type(effect) for effect in effects] == [Discard, *[Send] * 4]
    assert statuses(world, channels) == [404] * 4
    assert {json.loads(tus.reply(channel).message)["code"] for channel in channels} == {"not_found"}
    assert world.sent[first] == []
    assert is_gone(world, tus, free)


def test_an_upload_of_an_ended_session_is_discarded_with_its_request() -> None:
    """The upload is discarded once, though its creation was never answered."""
    world, client, tus = resumable_world(file_scope=FileScope.SESSION)
    channel = tus.create(10, size_bytes=10)
    client.delete()
    assert world.every(Cease) == [Cease(channel=channel)]
    assert [type(effect) for effect in world.end(channel, GONE)] == [Discard]
    assert upload_count(world) == 0


def test_an_upload_without_a_response_to_its_creation_frees_its_room() -> None:
    world, _, tus = resumable_world()
    free = room(world, tus.sid)
    channel = tus.create(10, size_bytes=10)
    assert room(world, tus.sid) == free - 10
    assert [type(effect) for effect in world.end(channel, GONE)] == [Discard]
    assert room(world, tus.sid) == free
    assert upload_count(world) == 0


def test_an_upload_that_is_being_saved_survives_its_request() -> None:
    """Waiting requests are answered when it is saved. No request is stopped, and the closed one gets no response."""
    world, _, tus = resumable_world()
    tus.begin(10)
    channel = tus.append(0, 10)
    resume = tus.open(Verb.RESUME)
    (save,) = tus.tell(channel, 10, sha256=HASH)
    again = tus.append(10, 0)
    assert world.end(channel, GONE) == []
    assert statuses(world, [resume, again]) == []
    world.store(save.ticket, Saved())
    assert world.sent[channel] == []
    assert statuses(world, [resume, again]) == [200, 204]
    assert "Upload-Handle" in dict(tus.reply(resume).headers)
    assert world.every(Discard) == []
    assert tus.offset() == 10


@pytest.mark.parametrize("is_complete", [True, False])
def test_the_end_of_a_finished_request_has_no_effect(is_complete: bool) -> None:
    """The time of the upload counts from the report, and does not begin anew."""
    world, _, tus = resumable_world(limits=TIMES)
    tus.begin(10)
    channel = tus.append(0, 10)
    if is_complete:
        tus.complete(channel)
    else:
        tus.tell(channel, 7, halt=Halt.BROKEN)
    assert upload_count(world) == 1
    world.wait(60.0)
    if not is_complete:
        assert world.end(channel, GONE) == []
    world.wait(39.0)
    assert upload_count(world) == 1
    world.wait(2.0)
    assert upload_count(world) == 0


@pytest.mark.parametrize("is_asked", [True, False])
def test_the_end_of_a_finished_request_does_not_affect_the_next(is_asked: bool) -> None:
    """The connection of the finished request ends while another adds, and waiting requests wait on."""
    world, _, tus = resumable_world()
    tus.begin(10)
    old = tus.append(0, 5)
    tus.tell(old, 5, halt=Halt.BROKEN)
    new = tus.append(5, 5)
    resume = [tus.open(Verb.RESUME)] if is_asked else []
    assert world.end(old, GONE) == []
    assert statuses(world, resume) == []
    assert tus.complete(new).status == 204
    assert statuses(world, resume) == [200] * is_asked


# --- Times ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("waited_s", "left_s"), [(0.0, 100.0), (150.0, 100.0), (250.0, 50.0)])
def test_the_time_of_an_upload_begins_anew_when_its_request_ends(waited_s: float, left_s: float) -> None:
    """The time is bounded by the longest that any upload may take."""
    world, _, tus = resumable_world(limits=TIMES)
    tus.begin(10)
    channel = tus.append(0, 10)
    world.wait(waited_s)
    assert world.end(channel, GONE) == []
    world.wait(left_s - 0.5)
    assert upload_count(world) == 1
    world.wait(1.0)
    assert upload_count(world) == 0
    assert len(world.every(Discard)) == 1


def test_a_closed_waiting_request_is_skipped() -> None:
    """The next request is served, and none is stopped for a closed one."""
    world, _, tus = resumable_world()
    tus.begin(10)
    first = tus.append(0, 10)
    second, third = tus.append(0, 5), tus.append(0, 6)
    world.end(second, GONE)
    effects = world.end(first, GONE)
    assert effects == [Append(third, world.last(Append).blob, 0, 10, None, "")]
    assert world.every(Cease) == [Cease(channel=first)]


def test_each_request_is_stopped_by_an_order_of_its_own() -> None:
    """A stop of the request before does not count for the next."""
    world, _, tus = resumable_world()
    tus.begin(10)
    channels = [tus.append(0, 10)]
    for _ in range(3):
        channels.append(tus.append(0, 10))
        world.end(channels[-2], GONE)
    assert world.every(Cease) == [Cease(channel=channel) for channel in channels[:-1]]
    assert [order.channel for order in world.every(Append)] == channels
