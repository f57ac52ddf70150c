"""Requests that add to a draft and are gone without a report: what becomes of it, and of those that wait for it."""

from __future__ import annotations

import json

import pytest
from draft_clients import HASH, Tus, drafting, room
from driving import Driver
from isthmus.core.base.effects import Append, Cause, Cease, Discard, End, Halt, Saved, Send, Verb
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits

GONE = Cause(End.BROKEN, "gone")
TIMES = Limits(upload_draft_ttl_s=100.0, upload_draft_max_s=300.0)


def waiting(tus: Tus) -> list[ChannelId]:
    """One of each that can wait, the last of which ends the draft, and one that comes too late."""
    return [tus.open(Verb.RESUME), tus.append(4, 3), tus.open(Verb.END), tus.open(Verb.RESUME)]


def statuses(world: Driver, channels: list[ChannelId]) -> list[int]:
    """Of those that are answered."""
    return [sent.status for channel in channels for sent in world.sent[channel]]


def is_gone(world: Driver, tus: Tus, free: int) -> bool:
    """Whether nothing is left of a draft: its link leads nowhere, and its room is free."""
    return tus.offset() is None and room(world, tus.sid) == free and len(world.engine._drafts) == 0


# --- Of each state ----------------------------------------------------------------------------------------------------


def test_who_waits_is_served_in_turn_when_the_request_before_is_gone() -> None:
    """Each from where the draft was, and the next that adds is stopped for those behind it."""
    world, _, tus = drafting()
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


def test_who_waits_for_one_that_nobody_wants_any_more_is_told_once_its_request_is_gone() -> None:
    """Not sooner: it is gone then, and its room is free, whoever ended it."""
    world, _, tus = drafting(limits=TIMES)
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


def test_one_that_its_session_took_along_goes_with_its_request() -> None:
    """Though its client was never told of it: it is discarded once."""
    world, client, tus = drafting()
    channel = tus.create(10, size_bytes=10)
    client.delete()
    assert world.every(Cease) == [Cease(channel=channel)]
    assert [type(effect) for effect in world.end(channel, GONE)] == [Discard]
    assert len(world.engine._drafts) == 0


def test_one_that_nobody_was_told_of_is_gone_with_its_room() -> None:
    world, _, tus = drafting()
    free = room(world, tus.sid)
    channel = tus.create(10, size_bytes=10)
    assert room(world, tus.sid) == free - 10
    assert [type(effect) for effect in world.end(channel, GONE)] == [Discard]
    assert room(world, tus.sid) == free
    assert len(world.engine._drafts) == 0


def test_one_that_is_being_saved_is_an_upload_though_its_client_is_gone() -> None:
    """Who waits is told of it once that is written. Nobody is stopped, and nothing is said to who is gone."""
    world, _, tus = drafting()
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
def test_a_request_that_is_over_changes_nothing_by_going(is_complete: bool) -> None:
    """What it brought is known, and counted from its report: the time of the draft does not begin anew."""
    world, _, tus = drafting(limits=TIMES)
    tus.begin(10)
    channel = tus.append(0, 10)
    if is_complete:
        tus.complete(channel)
    else:
        tus.tell(channel, 7, halt=Halt.BROKEN)
    assert len(world.engine._drafts) == 1
    world.wait(60.0)
    if not is_complete:
        assert world.end(channel, GONE) == []
    world.wait(39.0)
    assert len(world.engine._drafts) == 1
    world.wait(2.0)
    assert len(world.engine._drafts) == 0


@pytest.mark.parametrize("is_asked", [True, False])
def test_a_request_that_is_over_takes_nothing_from_the_one_after_it(is_asked: bool) -> None:
    """Its connection goes while another adds; who waits, waits on."""
    world, _, tus = drafting()
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
def test_its_time_starts_anew_when_its_request_is_gone(waited_s: float, left_s: float) -> None:
    """But for the longest that any may take."""
    world, _, tus = drafting(limits=TIMES)
    tus.begin(10)
    channel = tus.append(0, 10)
    world.wait(waited_s)
    assert world.end(channel, GONE) == []
    world.wait(left_s - 0.5)
    assert len(world.engine._drafts) == 1
    world.wait(1.0)
    assert len(world.engine._drafts) == 0
    assert len(world.every(Discard)) == 1


def test_who_waited_in_vain_is_passed_over() -> None:
    """The next is served, and nobody is stopped for one that is gone."""
    world, _, tus = drafting()
    tus.begin(10)
    first = tus.append(0, 10)
    second, third = tus.append(0, 5), tus.append(0, 6)
    world.end(second, GONE)
    effects = world.end(first, GONE)
    assert effects == [Append(third, world.last(Append).blob, 0, 10, None, "")]
    assert world.every(Cease) == [Cease(channel=first)]


def test_each_request_is_stopped_anew() -> None:
    """That the one before was told to stop does not count for the next."""
    world, _, tus = drafting()
    tus.begin(10)
    channels = [tus.append(0, 10)]
    for _ in range(3):
        channels.append(tus.append(0, 10))
        world.end(channels[-2], GONE)
    assert world.every(Cease) == [Cease(channel=channel) for channel in channels[:-1]]
    assert [order.channel for order in world.every(Append)] == channels
