"""The requests to issuers that say who a caller is: keys, metadata and introspection."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

import anyio
from anyio.abc import TaskGroup, TaskStatus

from ...core.access.issuer_answers import Reply, Wanted
from ...core.access.issuer_documents import REFETCH_PAUSE_S
from ...core.access.issuers import Issuers
from ..web_fetch import FetchFailed, FetchSettings, fetch

_log: Final = logging.getLogger("isthmus.access")

DUE_EVERY_S: Final = 30.0
"""Seconds between looks at what is about to expire. It is renewed ahead of need, so that no caller waits for it."""


class IssuerRequests:
    """Sends the requests of `Issuers`. Callers whose requests are equal wait for the same response.

    Args:
        settings_of: returns the settings of requests to an issuer, by its URL.
    """

    def __init__(self, issuers: Issuers, settings_of: Callable[[str], FetchSettings]) -> None:
        self._issuers = issuers
        self._settings_of = settings_of
        self._sent: dict[Wanted, anyio.Event] = {}
        self._tasks: TaskGroup
        self._is_over = False

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Sends requests until cancelled. They do not end with the callers that wait for them."""
        try:
            async with anyio.create_task_group() as self._tasks:
                task_status.started()
                while True:
                    for wanted in self._issuers.due(time.time()):
                        self._begin(wanted)
                    await anyio.sleep(DUE_EVERY_S)
        finally:
            self._is_over = True

    async def wait(self, wanted: Wanted) -> None:
        """Returns when the request is answered, or has failed. At the end of `run` every request fails."""
        if self._is_over:
            self._issuers.failed(wanted, time.time(), "the proxy is stopping")
            return
        await self._begin(wanted).wait()

    async def wait_for_documents(self) -> None:
        """Returns when the documents of each issuer were read, or could not be read, for the first time."""
        while wanted := self._issuers.first_requests(time.time()):
            await self.wait(wanted[0])

    def _begin(self, wanted: Wanted) -> anyio.Event:
        done = self._sent.get(wanted)
        if done is None:
            done = self._sent[wanted] = anyio.Event()
            self._tasks.start_soon(self._send, wanted, done)
        return done

    async def _send(self, wanted: Wanted, done: anyio.Event) -> None:
        settings = self._settings_of(wanted.issuer)
        try:
            pause_s = min(wanted.not_before - time.time(), REFETCH_PAUSE_S)  # less, should the clock be set back
            if pause_s > 0:
                await anyio.sleep(pause_s)
            try:
                fetched = await fetch(wanted.method, wanted.url, wanted.headers, wanted.body, settings=settings)
            except FetchFailed as error:
                _log.warning("the issuer %s does not answer: %s", wanted.issuer, error)
                self._issuers.failed(wanted, time.time(), str(error))
            except Exception:  # a fault of ours must not end the requests of others
                _log.exception("a request to the issuer %s failed", wanted.issuer)
                self._issuers.failed(wanted, time.time(), "the request failed")
            else:
                self._issuers.fetched(wanted, Reply(fetched.status, fetched.headers, fetched.body), time.time())
        finally:
            del self._sent[wanted]
            done.set()
