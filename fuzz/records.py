"""An earlier run or a disk has left any bytes in a record: an engine starts with it, and the record expires in time.

The first byte says what kind of record the rest is: an artifact's, an upload's or a task's. Accepted outcomes: a record
that cannot be read is removed; any other is listed until it expires, and not after that.
"""

from __future__ import annotations

import asyncio
import logging
import random

from isthmus.app.disk.restore import restore
from isthmus.core.base.effects import Send
from isthmus.core.base.events import Cause, DownloadOpening, End
from isthmus.core.base.plan import ArtifactProducer, Kind, Plan, ServerPlan
from isthmus.core.base.storage import Load, Loaded, Serve
from isthmus.core.bulk import BulkEngine
from isthmus.core.files.store.links import sign_download
from isthmus.storage.memory import MemoryRecords

LOOP = asyncio.new_event_loop()
KEY = b"the key of this target"
PLAN = Plan(
    servers=(ServerPlan(id="ops", kind=Kind.PIPE, producers=(ArtifactProducer(tools=("*",)),)),), link_keys=(KEY,)
)
NOW_UNIX = 1_000_000_000.0
FOREVER_S = 1e12
SID, AID = "0123456789abcdef" * 2, "fedcba9876543210" * 2
LOG = logging.getLogger("isthmus.app.disk.restore")


def test_one_input(data: bytes) -> None:
    kind, value = (data[0] if data else 0) % 3, data[1:]
    LOG.disabled = True  # each record that is removed is logged
    try:
        check_start(("artifact", "upload", "task")[kind], value)
    finally:
        LOG.disabled = False
    check_download(value)


def check_start(kind: str, value: bytes) -> None:
    records = MemoryRecords(lambda: NOW_UNIX)
    LOOP.run_until_complete(records.save(f"{kind}/{SID}", value))
    left = LOOP.run_until_complete(restore(records, upload_ttl_s=60.0))
    count = sum(map(len, left))
    assert LOOP.run_until_complete(records.load(f"{kind}/{SID}")) is not None, "what cannot be read is left alone"
    engine = BulkEngine(
        PLAN,
        entropy=random.Random(1).randbytes,
        unix_at_zero=NOW_UNIX,
        has_storage=True,
        stored=left.artifacts,
        stored_tasks=left.tasks,
        stored_uploads=left.uploads,
    )
    assert len(engine.files()) + len(engine.tasks()) <= count
    now = 0.0
    for _ in range(100):
        due = engine.next_timeout()
        if due is None or due.at > FOREVER_S:
            break
        now = max(now, due.at)
        engine.handle_timeout(now)
        later = engine.next_timeout()
        assert later is None or later.at > now
    engine.receive_stop(now)


def check_download(value: bytes) -> None:
    """Checks a record that is loaded because of a signed link to its artifact."""
    engine = BulkEngine(PLAN, entropy=random.Random(1).randbytes, unix_at_zero=NOW_UNIX, has_storage=True)
    query = sign_download(KEY, server="ops", sid=SID, artifact=AID, filename="a", expires_at_unix=int(NOW_UNIX) + 9)
    channel = engine.new_channel()
    loads = engine.receive_open(channel, DownloadOpening("ops", SID, AID, "a", query), 0.0)
    answers = []
    for load in loads:
        assert isinstance(load, Load)
        answers += engine.receive_answer(load.ticket, Loaded(value), 1.0)
    assert sum(isinstance(answer, Send | Serve) for answer in answers) == 1
    engine.receive_close(channel, Cause(End.DONE), 2.0)
