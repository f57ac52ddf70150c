"""Tests of resumable uploads while they are saved: their status meanwhile, and their lifetime afterwards."""

from __future__ import annotations

import json

from driving import UNIX_AT_ZERO
from isthmus.core.base.events import Verb
from isthmus.core.base.limits import Limits
from isthmus.core.base.storage import Discard, Saved, StorageFailed
from isthmus.core.wire.http.dates import format_date
from resumable_clients import HASH, resumable_world, upload_count
from stateless_driving import tables

LIMITS = Limits(upload_draft_ttl_s=5.0, upload_draft_max_s=8.0, storage_timeout_s=100.0)


def test_an_upload_that_is_being_saved_is_not_complete_yet() -> None:
    """The status is available until the link expires. The upload is kept beyond that, because the storage may still
    succeed."""
    world, _, tus = resumable_world(limits=LIMITS)
    tus.begin(10)
    ends_at = world.now + 8.0
    (save,) = tus.tell(tus.append(0, 10), 10, sha256=HASH)
    world.wait(7.9)
    looked = tus.reply(tus.open(Verb.LOOK))
    assert dict(looked.headers)["Upload-Expires"] == format_date(UNIX_AT_ZERO + ends_at)
    status = json.loads(looked.message)
    assert (status["offset"], status["length"], status["is_complete"]) == (10, 10, False)
    world.wait(20.0)
    assert upload_count(world) == 1
    world.store(save.ticket, Saved())
    assert not world.every(Discard)


def test_an_upload_that_could_not_be_saved_is_gone() -> None:
    """Waiting requests are answered with "not found"."""
    world, _, tus = resumable_world(limits=LIMITS)
    tus.begin(10)
    channel = tus.append(0, 10)
    (save,) = tus.tell(channel, 10, sha256=HASH)
    waiting = tus.open(Verb.RESUME)
    world.store(save.ticket, StorageFailed(reason="full"))
    assert tus.reply(channel).status >= 500
    assert tus.refused(waiting) == (404, "not_found")
    assert upload_count(world) == 0
    assert not [purpose for purpose, _ in tables(world.engine)["timers"] if purpose == "draft"]
