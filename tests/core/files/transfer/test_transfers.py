"""Uploads when the proxy stops: they are waited for, and who is not through by then is told."""

from __future__ import annotations

import json

from draft_clients import HELPER, drafting, filing, room
from driving import Driver, ask_link, manifest, send_in
from isthmus.core.base.effects import Append, Cease, Discard, Halt, Save, Saved, UploadOpening
from isthmus.core.base.ids import ChannelId


def put(world: Driver, query: dict[str, str]) -> ChannelId:
    return send_in(world, UploadOpening(server="f", query=query))


def answer(world: Driver, channel: ChannelId) -> tuple[int, str]:
    """Status, and code if it is an error."""
    (sent,) = world.sent[channel]
    return sent.status, json.loads(sent.message).get("code", "")


def test_an_upload_is_something_to_wait_for() -> None:
    """From its permission to its answer, the time in which it is written down included."""
    world, client = filing()
    assert world.engine.exchange_count == 0
    channel = put(world, ask_link(client, HELPER))
    assert world.engine.exchange_count == 1
    (save,) = world.say(channel, manifest(("a", 5)))
    assert isinstance(save, Save)
    assert world.engine.exchange_count == 1
    world.store(save.ticket, Saved())
    world.end(channel)
    assert world.engine.exchange_count == 0


def test_a_part_of_an_upload_is_something_to_wait_for() -> None:
    world, _, tus = drafting()
    tus.begin(10)
    assert world.engine.exchange_count == 0
    channel = tus.append(0, 5)
    assert world.engine.exchange_count == 1
    tus.tell(channel, 5)
    world.end(channel)
    assert world.engine.exchange_count == 0


def test_an_upload_that_is_not_through_is_told_of_the_stop() -> None:
    world, client = filing()
    channel = put(world, ask_link(client, HELPER))
    world.stop()
    assert answer(world, channel) == (503, "shutting_down")
    world.end(channel)
    assert world.engine.exchange_count == 0


def test_an_upload_that_is_being_written_down_is_not_told_twice() -> None:
    world, client = filing()
    channel = put(world, ask_link(client, HELPER))
    (save,) = world.say(channel, manifest(("a", 5)))
    world.stop()
    assert not world.sent[channel]
    world.store(save.ticket, Saved())
    assert answer(world, channel) == (409, "session_gone")


def test_drafts_end_with_the_proxy() -> None:
    """One at rest goes at once; one that is added to is told to cease, and its client of the end."""
    world, _, tus = drafting()
    free = room(world, tus.sid)
    tus.begin(10)
    channel = tus.append(0, 5)
    world.stop()
    assert world.only(Cease).channel == channel
    assert world.every(Discard) == []
    tus.tell(channel, 3, halt=Halt.CEASED)
    assert answer(world, channel) == (410, "ended")
    assert world.only(Discard).blob == world.only(Append).blob
    assert room(world, tus.sid) == free
