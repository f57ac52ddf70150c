"""A draft whose upload is being kept: what is told of it meanwhile, and its time afterwards."""

from __future__ import annotations

import json

from draft_clients import HASH, drafting
from driving import UNIX_AT_ZERO
from isthmus.core.base.effects import Discard, Saved, StorageFailed, Verb
from isthmus.core.base.limits import Limits
from isthmus.core.wire.http.dates import format_date

LIMITS = Limits(upload_draft_ttl_s=5.0, upload_draft_max_s=8.0, storage_timeout_s=100.0)


def test_while_it_is_saved_a_draft_is_all_there_and_not_complete() -> None:
    """It is told of until its link ends, and kept beyond that, for the storage has the last word."""
    world, _, tus = drafting(limits=LIMITS)
    tus.begin(10)
    ends_at = world.now + 8.0
    (save,) = tus.tell(tus.append(0, 10), 10, sha256=HASH)
    world.wait(7.9)
    looked = tus.reply(tus.open(Verb.LOOK))
    assert dict(looked.headers)["Upload-Expires"] == format_date(UNIX_AT_ZERO + ends_at)
    said = json.loads(looked.message)
    assert (said["offset"], said["length"], said["is_complete"]) == (10, 10, False)
    world.wait(20.0)
    assert len(world.engine._drafts) == 1
    world.store(save.ticket, Saved())
    assert not world.every(Discard)


def test_what_could_not_be_saved_is_gone() -> None:
    """With all that waited for it."""
    world, _, tus = drafting(limits=LIMITS)
    tus.begin(10)
    channel = tus.append(0, 10)
    (save,) = tus.tell(channel, 10, sha256=HASH)
    waiting = tus.open(Verb.RESUME)
    world.store(save.ticket, StorageFailed(reason="full"))
    assert tus.reply(channel).status >= 500
    assert tus.refused(waiting) == (404, "not_found")
    assert len(world.engine._drafts) == 0
    assert not [purpose for purpose, _ in world.engine._desk.timers._live if purpose == "draft"]
