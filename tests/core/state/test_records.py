"""Tests of task records: absent members have their defaults, and defaults are not written."""

from __future__ import annotations

import msgspec
from isthmus.core.state.records import TASK_PREFIX, StoredTask
from isthmus.core.state.task import TaskState

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
    "upstream_address": "",
    "outcome": "",
    "is_error": False,
    "blob": None,
    "size_bytes": 0,
    "replica": "",
}


def test_absent_members_have_their_defaults() -> None:
    """The tables list the required members and those that may be missing."""
    record = msgspec.json.decode(msgspec.json.encode(NEEDED), type=StoredTask)
    assert msgspec.structs.asdict(record) == {**NEEDED, **ABSENT, "status": TaskState.WORKING}
    assert msgspec.json.decode(msgspec.json.encode(record)) == NEEDED


def test_the_key_of_a_record() -> None:
    record = msgspec.json.decode(msgspec.json.encode(NEEDED), type=StoredTask)
    assert record.key == StoredTask.key_of("t") == f"{TASK_PREFIX}t" == "task/t"
