"""Notices through PUBLISH and SUBSCRIBE of Redis."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any

from .interface import StorageError
from .keys import check_key
from .notices import Listener, listen
from .redis import RedisRecords


class RedisNotices:
    """Notices among all openers of one prefix. See `Notices`.

    A subscriber has a connection of its own, beside those of the records. Redis closes the connection of a subscriber
    that takes nothing, as `client-output-buffer-limit` says.

    Args:
        records: the opener; its connections publish, and not after it is closed.
    """

    def __init__(self, records: RedisRecords) -> None:
        self._records = records
        self._channel = f"{records.tag}:notices"

    async def publish(self, topic: str) -> None:
        check_key(topic)

        def publish() -> None:
            self._records.client.publish(self._channel, topic)

        await self._records.calls.run(self._records.call, publish)

    def subscribe(self) -> AbstractAsyncContextManager[AsyncIterator[str]]:
        return listen(self._connect)

    def _connect(self) -> Listener:
        return RedisListener(self._records, self._channel)


class RedisListener:
    """A connection that has subscribed to a channel. See `Listener`."""

    def __init__(self, records: RedisRecords, channel: str) -> None:
        self._records = records
        self._early: list[str] = []
        self._feed: Any = records.client.pubsub()
        try:
            records.call(lambda: self._feed.subscribe(channel))
            while (message := self._next(records.answer_timeout_s)) is None or message["type"] != "subscribe":
                if message is None:
                    raise StorageError("the records cannot be used: Redis does not answer")
        except BaseException:
            self.close()
            raise

    def read(self, timeout_s: float) -> list[str]:
        topics, self._early = self._early, []
        message = self._next(0 if topics else timeout_s)
        while message is not None:
            if message["type"] == "message":
                topics.append(message["data"].decode())
            message = self._next(0)
        return topics

    def ask(self) -> None:
        self._records.call(self._feed.ping)
        message = self._next(self._records.answer_timeout_s)
        if message is None:
            raise StorageError("the records cannot be used: Redis does not answer")
        if message["type"] == "message":
            self._early.append(message["data"].decode())

    def close(self) -> None:
        with suppress(StorageError):
            self._records.call(self._feed.close)

    def _next(self, timeout_s: float) -> dict[str, Any] | None:
        message = self._records.call(lambda: self._feed.get_message(timeout=timeout_s))
        assert message is None or isinstance(message, dict)
        return message
