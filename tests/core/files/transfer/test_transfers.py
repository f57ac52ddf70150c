"""Tests of uploads during a stop of the proxy: it waits for them, and an unfinished upload is told."""

from __future__ import annotations

import json

from driving import Driver, ask_link, manifest, send_in
from isthmus.core.base.events import UploadOpening
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.storage import Append, Cease, Discard, Halt, Save, Saved
from resumable_clients import HELPER, resumable_world, room, upload_world


def put(world: Driver, query: dict[str, str]) -> ChannelId:
    return send_in(world, UploadOpening(server="f", query=query))


def answer(world: Driver, channel: ChannelId) -> tuple[int, str]:
    """The status of a response, and the code of an error."""
    (sent,) = world.sent[channel]
    return sent.status, json.loads(sent.message).get("code", "")


def test_an_upload_counts_as_an_exchange() -> None:
    """The upload counts as an exchange from its permission to its response, while it is saved too."""
    world, client = upload_world()
    assert world.engine.exchange_count == 0
    channel = put(world, ask_link(client, HELPER))
    assert world.engine.exchange_count == 1
    (save,) = world.send(channel, manifest(("a", 5)))
    assert isinstance(save, Save)
    assert world.engine.exchange_count == 1
    world.store(save.ticket, Saved())
    world.end(channel)
    assert world.engine.exchange_count == 0


def test_a_part_of_a_resumable_upload_counts_as_an_exchange() -> None:
    world, _, tus = resumable_world()
    tus.begin(10)
    assert world.engine.exchange_count == 0
    channel = tus.append(0, 5)
    assert world.engine.exchange_count == 1
    tus.tell(channel, 5)
    world.end(channel)
    assert world.engine.exchange_count == 0


def test_an_unfinished_upload_is_refused_at_the_stop() -> None:
    world, client = upload_world()
    channel = put(world, ask_link(client, HELPER))
    world.stop()
    assert answer(world, channel) == (503, "shutting_down")
    world.end(channel)
    assert world.engine.exchange_count == 0


def test_an_upload_that_is_being_saved_gets_one_response() -> None:
    world, client = upload_world()
    channel = put(world, ask_link(client, HELPER))
    (save,) = world.send(channel, manifest(("a", 5)))
    world.stop()
    assert not world.sent[channel]
    world.store(save.ticket, Saved())
    assert world.only_message(channel)["count"] == 1


def test_resumable_uploads_end_with_the_proxy() -> None:
    """An idle upload is discarded at once. A request that adds is stopped, and its client gets an error."""
    world, _, tus = resumable_world()
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
