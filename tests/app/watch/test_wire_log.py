"""Tests of the wire log: it is bounded, and leaves nothing behind."""

from __future__ import annotations

import pytest
from driving import Driver, connect, driver
from isthmus.app.watch import wire_log
from isthmus.app.watch.wire_log import Message, WireLog
from isthmus.core.base.telemetry import Detail

PING = '{"jsonrpc":"2.0","id":"%s","method":"ping"}'


def logged(world: Driver) -> WireLog:
    log = WireLog(world.engine, lambda: world.now)
    log.attach()
    return log


def bodies(log: WireLog) -> list[bytes]:
    return [entry.body for entry in log.take(10_000)[0] if isinstance(entry, Message)]


def test_a_detached_log_leaves_the_engine_as_it_was() -> None:
    world = driver(telemetry=Detail.STEPS)
    log = logged(world)
    client = connect(world, "http", "http")
    assert bodies(log)
    log.detach()
    client.request("1", "ping")
    assert not bodies(log)
    assert "receive_message" not in vars(world.engine)
    log.attach()
    client.request("2", "ping")
    assert b'"ping"' in bodies(log)[0]


@pytest.mark.parametrize(("limit", "most"), [("WAITING_MAX", 6), ("WAITING_MAX_BYTES", 200)])
def test_what_nobody_reads_is_counted_only(limit: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire_log, limit, most)
    world = driver()
    client = connect(world, "pipe", "pipe")
    log = logged(world)
    for number in range(20):
        client.request(str(number), "ping")
    entries, dropped = log.take(2)
    assert (len(entries), b'"id":0' in entries[0].body, dropped) == (2, True, 17)  # type: ignore[union-attr]
    client.request("20", "ping")
    assert log.take(100)[1] == 1, "not enough was read"
    client.request("21", "ping")
    assert b'"id":21' in bodies(log)[0]


def test_a_message_in_parts_is_kept_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire_log, "SHOWN_MAX_BYTES", 100)
    world = driver()
    client = connect(world, "http", "http")
    client.request("7", "tools/call", '{"name":"x"}')
    sent = world.take_sent("tools/call")
    log = logged(world)
    answer = b'{"jsonrpc":"2.0","id":%d,"result":{"content":"%b"}}' % (sent.id, b"x" * 3_000_000)
    assert world.engine.passes(sent.channel, answer[:1000], len(answer))
    world.send_part(sent.channel, answer[:1000], size_bytes=len(answer))
    world.send_part(sent.channel, answer[1000:1_500_000])
    world.send_part(sent.channel, answer[1_500_000:], is_last=True)
    received, sent_on = (entry for entry in log.take(100)[0] if isinstance(entry, Message))
    assert (received.size_bytes, received.body) == (len(answer), answer[:100])
    assert sent_on.size_bytes - len(answer) in (-1, 0, 1) and len(sent_on.body) == 100


def test_entries_of_one_turn_are_taken_together() -> None:
    world = driver(telemetry=Detail.STEPS)
    log = logged(world)
    connect(world, "http", "http")
    while entries := log.take(1)[0]:
        assert len({entry.turn for entry in entries}) == 1
        rest = log.take(1)[0]
        assert not rest or rest[0].turn != entries[-1].turn
