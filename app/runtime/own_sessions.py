"""Sessions of our own with servers, for operator pages and probes. They go through the engine, as any client's do.

Any number of requests may be in flight in one session, up to the engine's own limits. Server requests, such as
sampling, need a client with a person or a model behind it: they are refused, except for `ping`, unless the session has
a function that takes them. Notifications are ignored likewise, except that `notifications/tools/list_changed` clears
the known tools.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager

import anyio
import msgspec
from anyio.abc import TaskGroup, TaskStatus

from ...core.access.identity import ANONYMOUS, Identity
from ...core.base.errors import INTERNAL_ERROR, METHOD_NOT_FOUND, UPSTREAM_UNAVAILABLE, RemoteProtocolError
from ...core.base.events import PipeOpening
from ...core.base.grants import Grants
from ...core.base.limits import Limits
from ...core.base.revisions import LATEST_LEGACY
from ...core.jsonrpc import envelope
from ...core.jsonrpc.envelope import Frame
from ...core.jsonrpc.splice import members
from ...transports.base.port import Port
from ...transports.memory import MemoryClient

CLOSED = "the session was closed before it answered"


class Refusal(Exception):
    """The server, or the engine in its place, answered with a JSON-RPC error, or not at all."""

    def __init__(self, message: str, code: int = INTERNAL_ERROR, data: object = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data

    @property
    def status(self) -> int:
        """The HTTP status that the server refused with; 0 if there is none."""
        status = self.data.get("httpStatus") if isinstance(self.data, dict) else None
        return status if isinstance(status, int) else 0

    @property
    def stage(self) -> str:
        """The stage at which a server failed to start, as the engine names it; empty if it did not fail so."""
        return str(self.data.get("stage", "")) if isinstance(self.data, dict) else ""


class _Awaited:
    """A response that is waited for, and then its result or error."""

    def __init__(self) -> None:
        self.is_there = anyio.Event()
        self.result = b""
        self.refusal: Refusal | None = None


class OwnSession:
    """One session with a server. `run` drives it from its beginning to its end.

    Args:
        version: version of this proxy, for `clientInfo`.
        sees_hidden: show what a filter hides from clients.
        is_brief: only learn who the server is, as `PipeOpening` has it.
        identity: whose session it is; anonymous for the proxy's own.
        capabilities: the capabilities to declare, for a server that shows its tools by them. What it asks is refused
            all the same, unless `takes` says otherwise.
        takes: called with each request but `ping`, and each notification of the server. True if it is taken: then
            `answer` or `refuse` is to follow for a request.

    Attributes:
        is_over: the session has ended; no request can be sent.
        is_kept: the session is not ended for being idle.
        tool_names: the names of the server's tools; None if they are not known.
        used_at: time of the last use, on the event loop's clock.
    """

    def __init__(
        self,
        port: Port,
        server: str,
        version: str,
        *,
        is_kept: bool = False,
        sees_hidden: bool = False,
        is_brief: bool = False,
        identity: Identity = ANONYMOUS,
        capabilities: Mapping[str, object] = {},
        takes: Callable[[Frame], bool] = lambda frame: False,
    ) -> None:
        self.is_over = False
        self.is_kept = is_kept
        self.tool_names: frozenset[str] | None = None
        self.used_at = anyio.current_time()
        self._opening = PipeOpening(
            server=server,
            principal=identity.principal,
            sees_hidden=sees_hidden,
            is_own=True,
            is_brief=is_brief,
            grants=identity.grants,
        )
        self._version = version
        self._capabilities = capabilities
        self._takes = takes
        self._client = MemoryClient(port)
        self._last_id = 0
        self._awaited: dict[int, _Awaited] = {}
        self._handshake = _Awaited()
        self._users = 0
        self._is_retired = False

    async def run(self) -> None:
        """Opens the session and reads messages until either side closes it. Then fails all requests in flight."""
        info = {"name": "isthmus", "version": self._version}
        params = {"protocolVersion": LATEST_LEGACY, "capabilities": self._capabilities, "clientInfo": info}
        try:
            self._client.open(self._opening)
            self._send("initialize", msgspec.json.encode(params), self._handshake)
            while True:
                self._receive(envelope.decode(await self._client.receive()))
        except (anyio.EndOfStream, anyio.BrokenResourceError, Refusal, RemoteProtocolError):
            pass
        finally:
            self.leave()
            for awaited in [self._handshake, *self._awaited.values()]:
                if not awaited.is_there.is_set():
                    awaited.refusal = Refusal(CLOSED)
                    awaited.is_there.set()

    def leave(self) -> None:
        """Closes the session at once."""
        self.is_over = True
        self._client.leave()

    def retire(self) -> None:
        """Closes the session as soon as it is not in use."""
        self._is_retired = True
        if not self._users:
            self.leave()

    @contextlib.contextmanager
    def used(self) -> Iterator[OwnSession]:
        """Marks the session as in use. It is neither ended for being idle nor retired until the context is left."""
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
        """Waits for the response to `initialize`. Returns its result as JSON.

        Raises:
            Refusal: the server answered with an error, or not at all.
        """
        return await self._response(self._handshake)

    async def has_tools(self) -> bool:
        """True if the server declared tools. Raises as `greeting` does."""
        declared = envelope.member_of(await self.greeting(), "capabilities")
        return declared is not None and declared.startswith(b"{") and "tools" in members(declared)

    async def request(self, method: str, params: bytes) -> bytes:
        """Sends a request with `params` as JSON. Returns the result as JSON. Cancelling this cancels the request.

        Raises:
            Refusal: the server answered with an error, or not at all.
        """
        await self.greeting()
        awaited = _Awaited()
        id = self._send(method, params, awaited)
        try:
            return await self._response(awaited)
        finally:
            self._forget(id, is_answered=awaited.is_there.is_set())

    def answer(self, id_raw: bytes, result: bytes) -> None:
        """Answers a request of the server, unless the session is over."""
        if not self._client.is_closed:
            self._client.say(envelope.encode_result(id_raw, result))

    def refuse(self, id_raw: bytes, code: int, text: str) -> None:
        """Answers a request of the server with an error, unless the session is over."""
        if not self._client.is_closed:
            self._client.say(envelope.encode_error(id_raw, code, text))

    async def _response(self, awaited: _Awaited) -> bytes:
        await awaited.is_there.wait()
        if awaited.refusal is not None:
            raise awaited.refusal
        return awaited.result

    def _send(self, method: str, params: bytes, awaited: _Awaited) -> int:
        self._last_id += 1
        self._awaited[self._last_id] = awaited
        try:
            self._client.say(envelope.encode_request(b"%d" % self._last_id, method, params))
        except anyio.BrokenResourceError:
            del self._awaited[self._last_id]
            raise Refusal(CLOSED, UPSTREAM_UNAVAILABLE) from None
        return self._last_id

    def _forget(self, id: int, *, is_answered: bool) -> None:
        self._awaited.pop(id, None)
        if not is_answered and not self._client.is_closed:
            self._client.say(envelope.encode_notification("notifications/cancelled", b'{"requestId":%d}' % id))

    def _receive(self, frame: Frame) -> None:
        if frame.is_request:
            assert frame.id_raw is not None
            if frame.method == "ping":
                self.answer(frame.id_raw, b"{}")
            elif not self._takes(frame):
                self.refuse(frame.id_raw, METHOD_NOT_FOUND, f"this client has no {frame.method}")
        elif frame.is_notification:
            if not self._takes(frame) and frame.method == "notifications/tools/list_changed":
                self.tool_names = None
        else:
            self._receive_response(frame)

    def _receive_response(self, frame: Frame) -> None:
        number = None if frame.id_raw is None else envelope.number_of(frame.id_raw)
        awaited = None if number is None else self._awaited.pop(number, None)
        if awaited is None:
            return
        if frame.error is not None:
            error = msgspec.json.decode(frame.error)
            awaited.refusal = Refusal(error["message"], error["code"], error.get("data"))
        else:
            awaited.result = frame.result or b"{}"
            if awaited is self._handshake:
                self._client.say(envelope.encode_notification("notifications/initialized", None))
        awaited.is_there.set()
        if awaited is self._handshake and awaited.refusal is not None:
            self.leave()


class OwnSessions:
    """Holds at most one session with each server for each caller and what it may ask for, opened when it is needed.

    A session ends when it has not been used for `Limits.page_session_idle_ttl_s`, unless it is to be kept.
    """

    def __init__(self, port: Port, limits: Limits, version: str) -> None:
        self._port = port
        self._limits = limits
        self._version = version
        self._current: dict[tuple[str, str, Grants], OwnSession] = {}  # by server, principal and grants
        self._tasks: TaskGroup

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Runs the sessions until cancelled."""
        async with anyio.create_task_group() as self._tasks:
            task_status.started()
            await anyio.sleep_forever()

    def using(self, server: str, identity: Identity = ANONYMOUS) -> AbstractContextManager[OwnSession]:
        """Marks the caller's session with a server as in use, and opens one if there is none. Does not wait for
        `initialize`."""
        identity = msgspec.structs.replace(identity, issued_at=None)  # a newer token with equal grants is no other one
        whose = server, identity.principal, identity.grants
        current = self._current.get(whose)
        if current is None or current.is_over:
            for key in [key for key, session in self._current.items() if session.is_over]:
                del self._current[key]
            current = self._current[whose] = self._open(server, identity=identity, is_kept=False)
        return current.used()

    async def renew(self, server: str) -> None:
        """Opens a new session, to be kept, in place of the current one, whose requests in flight are still answered.

        Raises:
            Refusal: the server did not answer `initialize` with a result. The current session stays.
        """
        session = self._open(server, is_kept=True)
        try:
            await session.greeting()
        except BaseException:
            session.leave()
            raise
        whose = server, ANONYMOUS.principal, ANONYMOUS.grants
        previous = self._current.get(whose)
        self._current[whose] = session
        if previous is not None:
            previous.retire()

    def end(self, server: str) -> None:
        """Closes all sessions with a server."""
        for key in [key for key in self._current if key[0] == server]:
            self._current.pop(key).leave()

    def retire(self) -> None:
        """Closes all sessions, each once its requests are answered."""
        for session in self._current.values():
            session.retire()
        self._current.clear()

    def _open(self, server: str, *, is_kept: bool, identity: Identity = ANONYMOUS) -> OwnSession:
        session = OwnSession(self._port, server, self._version, is_kept=is_kept, identity=identity)
        self._tasks.start_soon(self._run_one, session)
        return session

    async def _run_one(self, session: OwnSession) -> None:
        async with anyio.create_task_group() as tasks:
            if not session.is_kept:
                tasks.start_soon(self._end_when_idle, session)
            await session.run()
            tasks.cancel_scope.cancel()

    async def _end_when_idle(self, session: OwnSession) -> None:
        ttl_s = self._limits.page_session_idle_ttl_s
        while True:
            await anyio.sleep_until(session.used_at + ttl_s)
            if session.is_used:
                session.used_at = anyio.current_time()
            elif anyio.current_time() >= session.used_at + ttl_s:
                session.leave()
                return
