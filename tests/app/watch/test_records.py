"""Tests of the records that are kept, and of their bounds."""

from __future__ import annotations

import pytest
from isthmus.app.watch import digest as digest_module
from isthmus.app.watch import records as records_module
from isthmus.app.watch.digest import Digest
from isthmus.app.watch.records import Kept, MessageRecord, NoteRecord, Records, RequestRecord
from isthmus.app.watch.redaction import Redactor
from isthmus.app.watch.wire_log import Entry, Happened, Message, Noted
from isthmus.core.base.telemetry import Outcome, RequestEnded, RequestStarted, SessionEnded, SessionStarted
from isthmus.core.status import ChannelStatus


def message(size_bytes: int = 10) -> tuple[MessageRecord, Kept]:
    record = MessageRecord(
        leg="client",
        way="in",
        channel=1,
        session="",
        server="s",
        kind="request",
        id="1",
        method="ping",
        bytes=size_bytes,
    )
    return record, Kept(b"x" * size_bytes, None, b"")


def digested(*entries: Entry) -> tuple[Records, Digest]:
    records = Records()
    digest = Digest(records, Redactor(), has_bodies=True)
    digest.add(entries)
    return records, digest


@pytest.mark.parametrize(("limit", "most"), [("RECORDS_MAX", 4), ("MESSAGES_MAX", 4), ("BODIES_MAX_BYTES", 40)])
def test_the_oldest_records_are_dropped(limit: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records_module, limit, most)
    records = Records()
    for _ in range(3000):
        records.add(*message())
    assert [record.n for record in records.after(0, 100)] == [2997, 2998, 2999, 3000]
    assert (records.first, records.last, len(records)) == (2997, 3000, 4)
    assert records.message(2996) is None and records.message(2997) is not None
    assert (records.message_count, records.body_bytes) == (4, 40)


def test_a_record_that_has_changed_comes_once_and_last() -> None:
    records = Records()
    first, second = NoteRecord(level="", server="", text="1"), NoteRecord(level="", server="", text="2")
    records.add(first)
    records.add(second)
    assert list(records.after(0, 10)) == [first, second]
    records.add(first)
    assert list(records.after(0, 10)) == [second, first]
    assert list(records.after(2, 10)) == [first]
    records.skip(5)
    records.add(second)
    assert (second.n, records.last) == (9, 9)
    assert list(records.after(0, 1)) == [first]


def who(session: str) -> tuple[str, str, str, str, str, bool]:
    return "s", session, "c 1", "2025-11-25", "", True


def test_tables_and_texts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digest_module, "KNOWN_MAX", 10)
    monkeypatch.setattr(digest_module, "ENDED_SESSIONS_MAX", 3)
    started = [
        Happened(n, n, RequestStarted(*who(f"s{n}"), (n, 0), b"%d" % n, "tools/call", "x", None)) for n in range(50)
    ]
    _, digest = digested(*started)
    for table in (digest._requests, digest._ids, digest._sessions):
        assert len(table) == 10
    ended = [Happened(99, 99, SessionEnded(*who(f"e{n}"), "over")) for n in range(9)]
    _, digest = digested(Happened(0, 0, SessionStarted(*who("open"))), *ended)
    assert [one.state for one in digest.sessions()] == ["open", "over", "over", "over"]
    records, _ = digested(Noted(0, 0, "stderr", "s", "x" * 9000))
    assert len(next(records.after(0, 9)).text) == digest_module.TEXT_MAX_CHARS  # type: ignore[union-attr]
    peer = ChannelStatus(False, "s", "name")
    long_id = b'{"jsonrpc":"2.0","id":"%b","method":"%b"}' % (b"i" * 900, b"m" * 900)
    records, _ = digested(Message(0, 0, peer, 1, long_id, is_received=True))
    found = next(records.after(0, 9))
    assert isinstance(found, MessageRecord)
    assert (len(found.id), len(found.method)) == (digest_module.ID_MAX_CHARS, 80)


def test_a_request_whose_beginning_is_forgotten_is_shown_with_its_end() -> None:
    """An answer may come hours later, as that of a task does."""
    ended = RequestEnded(*who("s"), (7, 0), "tools/call", "dig", Outcome.RESULT, 7200.0, 10, 20)
    records, _ = digested(Happened(9, 10_000.0, ended))
    (found,) = (record for record in records.after(0, 9) if isinstance(record, RequestRecord))
    assert (found.at, found.ms, found.state, found.target) == (2800.0, 7_200_000.0, "over", "dig")


def test_a_message_of_any_bytes_is_shown() -> None:
    """Invalid UTF-8, members given twice, large numbers, batches, what is no JSON: bytes stay as they came."""
    peer = ChannelStatus(True, "s", "name")
    cases = [
        (b"\xff\xfe", ["unreadable"]),
        (b'{"jsonrpc":"2.0","id":1,"result":{"a":1,"a":12345678901234567890}}', ["response"]),
        (b'[{"jsonrpc":"2.0","method":"a"},{"jsonrpc":"2.0","id":2,"error":{}}]', ["notification", "response"]),
        (b"[]", []),
        (b'{"id":1}', ["unreadable"]),
        (b'{"jsonrpc":"2.0","id":7,"result":{"cut', ["response"]),
        (b"[" * 5000, ["unreadable"]),
    ]
    for body, kinds in cases:
        records, _ = digested(Message(0, 0, peer, 1, body, is_received=True))
        found = [record for record in records.after(0, 9) if isinstance(record, MessageRecord)]
        assert [record.kind for record in found] == kinds
        if len(found) == 1:
            kept = records.message(found[0].n)
            assert kept is not None and kept[1].data == body


def test_requests_whose_end_nobody_saw_are_over_with_an_unknown_outcome() -> None:
    started = Happened(0, 5, RequestStarted(*who("s"), (1, 0), b"1", "tools/call", "x", None))
    records, digest = digested(started)
    digest.forget_open()
    found = [record for record in records.after(0, 9) if isinstance(record, RequestRecord)]
    assert [(record.state, record.outcome) for record in found] == [("over", "unknown")]
    digest.forget_open()
    assert [record.n for record in records.after(found[0].n, 9)] == [], "each is settled once"
