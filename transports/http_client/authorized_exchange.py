"""One request to a server that wants tokens: it waits for one, and is sent once more with another one after a refusal.

A refusal is read by a reader of its own, so that the caller's reader sees one response only. Meanwhile the connection
is let go, as after any response, and the exchange is in no queue.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import anyio
import msgspec

from ...core.base.effects import Close, Delete, Listen, Post
from ...core.base.events import Cause, End
from ...core.base.ids import ChannelId
from ...core.wire.headers import Headers
from ...core.wire.http.coded_response import Reader
from ...core.wire.http.response import Ended, ReplyEvent, ResponseReader
from ..base.port import Port
from ..base.tokens import Authorization, UpstreamTokens
from .exchange import Exchange, Route, stopped

_log: Final = logging.getLogger("isthmus.http")


class AuthorizedExchange(Exchange):
    """See `Exchange`. It waits for its token after it was made if `is_waiting`, and after a refusal."""

    __slots__ = (
        "_authorization",
        "_caller_reader",
        "_endpoint_route",
        "_is_refused",
        "_scope",
        "_was_queued",
        "is_waiting",
    )

    def __init__(
        self,
        route: Route,
        target: Post | Listen | Delete,
        channel: ChannelId,
        port: Port,
        reader: Reader | None,
        path: bytes | None,
        tokens: UpstreamTokens,
    ) -> None:
        self._authorization = Authorization(tokens)
        self._endpoint_route = route
        self._caller_reader = reader
        self._is_refused = False  # the response is one, and its own reader reads it
        self._was_queued = False  # and that was reported
        self._scope: anyio.CancelScope | None = None  # of the wait
        self.is_waiting = self._authorization.value is None
        super().__init__(route, target, channel, port, reader, path)

    def _encode(self) -> None:
        # Without a token, this checks the order, whose faults are reported by the call that makes the exchange.
        self._forms = self._endpoint_route.forms_with(self._authorization.value or b"")
        super()._encode()

    async def authorize(self) -> None:
        """Waits for the first token, then sends the request or ends."""
        await self._wait(self._authorization.prepare)

    def close(self, order: Close) -> None:
        if not self.is_waiting:
            super().close(order)
        elif not self.is_abandoned:
            self.is_abandoned = True
            if self._scope is not None:
                self._scope.cancel()

    def pause(self) -> None:
        self.is_paused = self.is_waiting or not self.is_over

    def receive_head(self, status: int, headers: Headers) -> list[ReplyEvent] | None:
        is_challenged = any(name == b"www-authenticate" for name, _ in headers)
        if self._authorization.may_ask(status, is_challenged=is_challenged):
            self._is_refused = True
            self._reader = ResponseReader(self._order, self._pool.client.limits)
        return super().receive_head(status, headers)

    def end(self, cause: Cause) -> None:
        if self.is_over or self.is_abandoned or cause.end is not End.REFUSED:
            super().end(cause)
        elif not self._is_refused:
            super().end(self._authorization.explain(cause))
        else:
            if self.coded is not None:
                self.coded.release()
            self.give_up_place()
            self.is_over = self.is_waiting = True  # over for its connection, which serves others meanwhile
            if self.connection is not None:
                self.connection.let_go()
            self._pool.client.start_task(partial(self._wait, partial(self._renew, cause)))

    async def report_queued(self) -> None:
        if not self._was_queued and self in self._pool.client.queued:
            self._was_queued = True
            await super().report_queued()

    async def _renew(self, refusal: Cause) -> Cause | None:
        cause = await self._authorization.renew(refusal)
        return self._reported(cause) if cause is not None and cause.status == refusal.status else cause

    def _reported(self, refusal: Cause) -> Cause:
        """Returns the end that the caller's reader makes of a refusal, which is final now."""
        reader = self._caller_reader
        if reader is None:
            return refusal
        challenge = refusal.challenge.encode("latin-1")
        facts = reader.receive_head(refusal.status, ((b"www-authenticate", challenge),) if challenge else ())
        if refusal.body:
            facts += reader.receive_body(refusal.body)
        (ended,) = facts + reader.receive_eof(is_complete=True)
        assert isinstance(ended, Ended)
        return msgspec.structs.replace(ended.cause, detail=refusal.detail, login=refusal.login)

    async def _wait(self, ask: Callable[[], Awaitable[Cause | None]]) -> None:
        """Waits for a token, then sends the request, or ends it with the cause that `ask` returns."""
        cause: Cause | None = stopped(is_unsent=self.is_unsent)
        try:
            with anyio.CancelScope() as self._scope:
                if not self.is_abandoned:
                    cause = await ask()
        except Exception:  # the failure of one request must not end the others
            _log.exception("there is no token for a server")
            cause = Cause(End.BROKEN, "internal error")
        finally:
            self._scope = None
            self.is_over = self.is_waiting = self._is_refused = False
            self._reader, self.coded = self._caller_reader, None
            if cause is None and not self.is_abandoned:
                self.start_over()
                self._encode()
                self._pool.client.admit(self, self._order, self._reader)
            else:
                super().end(cause or Cause(End.DONE))
