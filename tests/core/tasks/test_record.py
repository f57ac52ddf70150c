"""A record of a task: what an earlier version did not write is as if it had not been, and nothing is written twice."""

from __future__ import annotations

import msgspec
from isthmus.core.state.task import State
from isthmus.core.tasks.record import PREFIX, StoredTask

NEEDED = {
    "id": "t",
    "server": "s",
    "tool": "dig",
    "era": "handshake",
    "owner": "o",
    "status": "working",
    "created_at": "then",
    "updated_at": "now",
    "expires_at_unix": 1005.0,
    "ttl_ms": 5000,
    "poll_ms": 700,
}
ABSENT = {
    "payer": "",
    "sid": "",
    "message": "",
    "upstream_task": "",
    "is_remote": False,
    "upstream_session": "",
    "upstream_revision": "",
    "outcome": "",
    "is_error": False,
    "blob": None,
    "size_bytes": 0,
}


def test_what_is_not_written_is_nothing() -> None:
    """Every member that may be missing, and all that may not."""
    record = msgspec.json.decode(msgspec.json.encode(NEEDED), type=StoredTask)
    assert msgspec.structs.asdict(record) == {**NEEDED, **ABSENT, "status": State.WORKING}
    assert msgspec.json.decode(msgspec.json.encode(record)) == NEEDED


def test_a_record_has_its_own_place() -> None:
    record = msgspec.json.decode(msgspec.json.encode(NEEDED), type=StoredTask)
    assert record.key == StoredTask.key_of("t") == f"{PREFIX}t" == "task/t"
