"""Tests of the feeds of changes: in one process, and between openers on real servers, which go away and come back."""

from __future__ import annotations

import itertools
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
import pytest
from anyio import to_thread
from isthmus.storage import notices
from isthmus.storage.interface import EVERYTHING, Notices, StorageError
from isthmus.storage.notices import Inbox, MemoryNotices
from isthmus.storage.postgres_connections import PostgresListener
from isthmus.storage.redis_notices import RedisListener
from record_servers import RecordServer

_names = itertools.count()

IMPATIENT = {"answer_timeout_s": 1.0, "turn_timeout_s": 1.0}


@asynccontextmanager
async def feeds(server: RecordServer, count: int = 1, **options: float) -> AsyncIterator[list[Notices]]:
    """Feeds of several openers of one store. A server that takes longer than `options` say counts as away."""
    name = f"n{next(_names)}"
    openers = [server.records(name, **options) for _ in range(count)]
    try:
        yield [server.notices(records) for records in openers]
    finally:
        for records in openers:
            await records.aclose()


async def all_hear_all(one: Notices, other: Notices) -> None:
    """Each subscriber of each opener first gets `EVERYTHING`, and then what any of them publishes, in its order."""
    async with one.subscribe() as first, other.subscribe() as second, other.subscribe() as third:
        subscribers = (first, second, third)
        for topics in subscribers:
            assert await anext(topics) == EVERYTHING
        for number, feed in enumerate((one, other, one, one)):
            await feed.publish(f"files/{number}")
            for topics in subscribers:
                assert await anext(topics) == f"files/{number}"
        for number in range(5):
            await other.publish(f"tasks/{number}")
        for topics in subscribers:
            assert [await anext(topics) for _ in range(5)] == [f"tasks/{number}" for number in range(5)]


async def topics_are_written_like_keys(one: Notices, other: Notices) -> None:
    for topic in ("", EVERYTHING, "a b", "a//b", "k" * 129):
        with pytest.raises(ValueError, match="expected segments"):
            await one.publish(topic)


async def a_subscriber_that_leaves_hears_no_more(one: Notices, other: Notices) -> None:
    """A subscriber leaves by an error, or is cancelled while it waits. Others are not affected."""
    async with one.subscribe() as kept:
        assert await anext(kept) == EVERYTHING
        with pytest.raises(ZeroDivisionError):
            async with other.subscribe() as topics:
                assert await anext(topics) == EVERYTHING
                raise ZeroDivisionError
        with anyio.CancelScope() as scope:
            async with other.subscribe() as topics:
                assert await anext(topics) == EVERYTHING
                scope.cancel()
                await anext(topics)
        assert scope.cancelled_caught
        await other.publish("a")
        assert await anext(kept) == "a"


LAWS = (all_hear_all, topics_are_written_like_keys, a_subscriber_that_leaves_hears_no_more)


@pytest.mark.anyio
@pytest.mark.parametrize("law", LAWS)
async def test_law_in_one_process(law: Callable[[Notices, Notices], Awaitable[None]]) -> None:
    feed = MemoryNotices()
    with anyio.fail_after(10):
        await law(feed, feed)
    assert not feed._inboxes


@pytest.mark.real
@pytest.mark.anyio
@pytest.mark.parametrize("law", LAWS)
async def test_law_between_openers(
    law: Callable[[Notices, Notices], Awaitable[None]], faulty_server: RecordServer
) -> None:
    """The law holds, and no connection is left behind."""
    before = await to_thread.run_sync(faulty_server.connections)
    with anyio.fail_after(60):
        async with feeds(faulty_server, 2) as (one, other):
            await law(one, other)
        while await to_thread.run_sync(faulty_server.connections) > before:  # noqa: ASYNC110 (the server notices later)
            await anyio.sleep(0.01)


@pytest.mark.anyio
async def test_topics_that_wait_are_bounded_and_stand_once() -> None:
    """One topic beyond `TOPICS_MAX` becomes `EVERYTHING`, which stands for all that waited and all that comes until it
    is taken."""
    inbox = Inbox()
    for number in range(notices.TOPICS_MAX):
        inbox.put(f"{number}")
    inbox.put("0")
    assert [await inbox.take() for _ in range(3)] == ["0", "1", "2"]
    for number in range(3):
        inbox.put(f"more/{number}")
    inbox.put("one/too/many")
    inbox.put("after")
    assert await inbox.take() == EVERYTHING
    inbox.put("last")
    assert await inbox.take() == "last"
    with anyio.move_on_after(0.01):
        raise AssertionError(await inbox.take())


@pytest.mark.real
@pytest.mark.anyio
async def test_a_feed_goes_on_after_its_server_has_died(
    faulty_server: RecordServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Publishing fails while the server is away. A subscriber gets `EVERYTHING` when it hears again, and then
    topics."""
    monkeypatch.setattr(notices, "RECONNECT_S", 0.1)
    with anyio.fail_after(120):
        async with feeds(faulty_server, **IMPATIENT) as (feed,), feed.subscribe() as topics:
            assert await anext(topics) == EVERYTHING
            await to_thread.run_sync(faulty_server.kill)
            with pytest.raises(StorageError, match="cannot be used"):
                await feed.publish("lost")
            await to_thread.run_sync(faulty_server.start)
            assert await anext(topics) == EVERYTHING
            await feed.publish("heard")
            assert await anext(topics) == "heard"


@pytest.mark.real
@pytest.mark.anyio
async def test_a_server_that_falls_silent_is_given_up(
    faulty_server: RecordServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A subscriber that hears nothing asks its server, goes on if that answers, and connects again if not."""
    monkeypatch.setattr(notices, "SILENCE_MAX_S", notices.STEP_S)
    given_up = anyio.Event()
    wait = anyio.sleep

    async def sleep(seconds: float) -> None:
        given_up.set()
        await wait(seconds)

    monkeypatch.setattr(notices, "sleep", sleep)
    for kind in (PostgresListener, RedisListener):
        ask = kind.ask

        def asking(listener: PostgresListener | RedisListener, ask: Callable[..., None] = ask) -> None:
            ask(listener)
            answered.append(listener)

        monkeypatch.setattr(kind, "ask", asking)
    answered: list[object] = []
    with anyio.fail_after(120):
        async with feeds(faulty_server, **IMPATIENT) as (feed,), feed.subscribe() as topics:
            assert await anext(topics) == EVERYTHING
            while len(answered) < 2:  # noqa: ASYNC110 (it is a thread that asks)
                await anyio.sleep(0.05)
            await feed.publish("heard")
            assert await anext(topics) == "heard"
            pids = faulty_server.pids()
            faulty_server.signal_all(signal.SIGSTOP)
            try:
                await given_up.wait()
            finally:
                for pid in pids:
                    faulty_server.send(pid, signal.SIGCONT)
            assert await anext(topics) == EVERYTHING
            await feed.publish("again")
            assert await anext(topics) == "again"
