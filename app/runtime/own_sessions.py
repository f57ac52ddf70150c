"""Sessions of our own with the servers, for whoever asks without having one: through the engine, as any client's.

Any number of requests may be under way in one; how many the engine takes is its own limit. What the server asks or
tells meanwhile is for clients with people or models behind them: it is refused, or dropped.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager

import anyio
import msgspec
from anyio.abc import TaskGroup, TaskStatus

from ...core.base.effects import PipeOpening
from ...core.base.errors import INTERNAL_ERROR, METHOD_NOT_FOUND, UPSTREAM_UNAVAILABLE, RemoteProtocolError
from ...core.base.limits import Limits
from ...core.base.revisions import LATEST_LEGACY
from ...core.jsonrpc import envelope
from ...core.jsonrpc.envelope import Frame
from ...core.jsonrpc.splice import members
from ...transports.base.port import Port
from ...transports.memory import MemoryClient

CLOSED = "the session was closed before it answered"


class Refusal(Exception):
    """The server, or the engine in its place, answered with an error: that of JSON-RPC."""

    def __init__(self, message: str, code: int = INTERNAL_ERROR, data: object = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data

    @property
    def status(self) -> int:
        """The HTTP status that the server refused with; 0 if it did otherwise."""
        status = self.data.get("httpStatus") if isinstance(self.data, dict) else None
        return status if isinstance(status, int) else 0

    @property
    def stage(self) -> str:
        """How far a server came that could not be started, as the engine says."""
        return str(self.data.get("stage", "")) if isinstance(self.data, dict) else ""


class _Awaited:
    """An answer, once it is there."""

    def __init__(self) -> None:
        self.is_there = anyio.Event()
        self.result = b""
        self.refusal: Refusal | None = None


class Conversation:
    """One session, from `run`'s beginning to its end.

    Args:
        sees_hidden: what a filter hides from clients is shown to this one.

    Attributes:
        is_over: nothing can be asked any more.
        is_kept: nobody ends it for being idle.
        tool_names: those of its tools, as long as they are known.
        used_at: when somebody last used it, on the event loop's clock.
    """

    def __init__(
        self, port: Port, server: str, version: str, *, is_kept: bool = False, sees_hidden: bool = False
    ) -> None:
        self.is_over = False
        self.is_kept = is_kept
        self.tool_names: frozenset[str] | None = None
        self.used_at = anyio.current_time()
        self._opening = PipeOpening(server=server, sees_hidden=sees_hidden, is_own=True)
        self._version = version
        self._peer = MemoryClient(port)
        self._last_id = 0
        self._awaited: dict[int, _Awaited] = {}
        self._hello = _Awaited()
        self._users = 0
        self._is_retired = False

    async def run(self) -> None:
        """Speak until either side hangs up. Then whoever waits for an answer learns that there will be none."""
        info = {"name": "isthmus", "version": self._version}
        hello = {"protocolVersion": LATEST_LEGACY, "capabilities": {}, "clientInfo": info}
        try:
            self._peer.open(self._opening)
            self._send("initialize", msgspec.json.encode(hello), self._hello)
            while True:
                self._receive(envelope.decode(await self._peer.receive()))
        except (anyio.EndOfStream, anyio.BrokenResourceError, Refusal, RemoteProtocolError):
            pass
        finally:
            self.leave()
            for awaited in [self._hello, *self._awaited.values()]:
                if not awaited.is_there.is_set():
                    awaited.refusal = Refusal(CLOSED)
                    awaited.is_there.set()

    def leave(self) -> None:
        """Hang up."""
        self.is_over = True
        self._peer.leave()

    def retire(self) -> None:
        """Hang up when nobody uses it any more."""
        self._is_retired = True
        if not self._users:
            self.leave()

    @contextlib.contextmanager
    def used(self) -> Iterator[Conversation]:
        """While it lasts, the conversation neither idles nor retires."""
        self._users += 1
        try:
            yield self
        finally:
            self._users -= 1
            self.used_at = anyio.current_time()
            if self._is_retired:
                self.retire()

    @property
    def is_used(self) -> bool:
        return self._users > 0

    async def greeting(self) -> bytes:
        """The JSON of the server's answer to `initialize`.

        Raises:
            Refusal: it did not greet us.
        """
        return await self._answer(self._hello)

    async def has_tools(self) -> bool:
        """Whether the server declared tools. Raises as `greeting` does."""
        declared = envelope.member_of(await self.greeting(), "capabilities")
        return declared is not None and declared.startswith(b"{") and "tools" in members(declared)

    async def request(self, method: str, params: bytes) -> bytes:
        """The JSON of the result; `params` are JSON as well. Cancelling this cancels the request.

        Raises:
            Refusal: it was answered with an error, or not at all.
        """
        await self.greeting()
        awaited = _Awaited()
        id = self._send(method, params, awaited)
        try:
            return await self._answer(awaited)
        finally:
            self._forget(id, is_answered=awaited.is_there.is_set())

    async def _answer(self, awaited: _Awaited) -> bytes:
        await awaited.is_there.wait()
        if awaited.refusal is not None:
            raise awaited.refusal
        return awaited.result

    def _send(self, method: str, params: bytes, awaited: _Awaited) -> int:
        self._last_id += 1
        self._awaited[self._last_id] = awaited
        try:
            self._peer.say(envelope.encode_request(b"%d" % self._last_id, method, params))
        except anyio.BrokenResourceError:
            del self._awaited[self._last_id]
            raise Refusal(CLOSED, UPSTREAM_UNAVAILABLE) from None
        return self._last_id

    def _forget(self, id: int, *, is_answered: bool) -> None:
        self._awaited.pop(id, None)
        if not is_answered and not self._peer.is_closed:
            self._peer.say(envelope.encode_notification("notifications/cancelled", b'{"requestId":%d}' % id))

    def _receive(self, frame: Frame) -> None:
        if frame.is_request:
            assert frame.id_raw is not None
            if frame.method == "ping":
                self._peer.say(envelope.encode_result(frame.id_raw, b"{}"))
            else:
                text = f"this client has no {frame.method}"
                self._peer.say(envelope.encode_error(frame.id_raw, METHOD_NOT_FOUND, text))
        elif frame.is_notification:
            if frame.method == "notifications/tools/list_changed":
                self.tool_names = None
        else:
            self._receive_answer(frame)

    def _receive_answer(self, frame: Frame) -> None:
        number = None if frame.id_raw is None else envelope.number_of(frame.id_raw)
        awaited = None if number is None else self._awaited.pop(number, None)
        if awaited is None:
            return
        if frame.error is not None:
            error = msgspec.json.decode(frame.error)
            awaited.refusal = Refusal(error["message"], error["code"], error.get("data"))
        else:
            awaited.result = frame.result or b"{}"
            if awaited is self._hello:
                self._peer.say(envelope.encode_notification("notifications/initialized", None))
        awaited.is_there.set()
        if awaited is self._hello and awaited.refusal is not None:
            self.leave()


class Conversations:
    """At most one conversation with each server, begun when it is asked for. It ends when it has not been used for
    `Limits.page_session_idle_ttl_s`, unless it is to be kept."""

    def __init__(self, port: Port, limits: Limits, version: str) -> None:
        self._port = port
        self._limits = limits
        self._version = version
        self._current: dict[str, Conversation] = {}
        self._tasks: TaskGroup

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Work until cancelled."""
        async with anyio.create_task_group() as self._tasks:
            task_status.started()
            await anyio.sleep_forever()

    def using(self, server: str) -> AbstractContextManager[Conversation]:
        """The conversation to ask in. Whether the server greets us shows when it is asked."""
        found = self._current.get(server)
        if found is None or found.is_over:
            found = self._current[server] = self._begin(server, is_kept=False)
        return found.used()

    async def renew(self, server: str) -> None:
        """Begin another one, to be kept; what is asked in the one before is still answered.

        Raises:
            Refusal: the server did not greet us. All is as before.
        """
        conversation = self._begin(server, is_kept=True)
        try:
            await conversation.greeting()
        except BaseException:
            conversation.leave()
            raise
        before = self._current.get(server)
        self._current[server] = conversation
        if before is not None:
            before.retire()

    def end(self, server: str) -> None:
        """Hang up, if there is anyone to hang up on."""
        conversation = self._current.pop(server, None)
        if conversation is not None:
            conversation.leave()

    def _begin(self, server: str, *, is_kept: bool) -> Conversation:
        conversation = Conversation(self._port, server, self._version, is_kept=is_kept)
        self._tasks.start_soon(self._live, conversation)
        return conversation

    async def _live(self, conversation: Conversation) -> None:
        async with anyio.create_task_group() as tasks:
            if not conversation.is_kept:
                tasks.start_soon(self._end_when_idle, conversation)
            await conversation.run()
            tasks.cancel_scope.cancel()

    async def _end_when_idle(self, conversation: Conversation) -> None:
        ttl_s = self._limits.page_session_idle_ttl_s
        while True:
            await anyio.sleep_until(conversation.used_at + ttl_s)
            if conversation.is_used:
                conversation.used_at = anyio.current_time()
            elif anyio.current_time() >= conversation.used_at + ttl_s:
                conversation.leave()
                return
