"""HTTP/1.1 to upstream servers: requests on pooled connections, responses handed on as they are read.

A connection is two tasks that live as long as it does. The reader always reads, request or none: so a server that
closes an idle connection is noticed at once, and one that answers before it has taken the whole body is heard. The
writer waits for a request to be put into its hands. A request therefore costs no task, no cancel scope and no timer.

Whoever holds a connection decides what its bytes mean: an exchange (they are its reply), nobody for the moment (the
rest of a reply that has told all it had to; read and dropped, within bounds), or nobody at all (idle: any byte, and
the end of the stream, ends it). No time limit on a reply is kept here, and none on silence: that is the engine's.
"""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final

import anyio
import h11
from anyio.abc import ByteStream, TaskGroup, TaskStatus
from anyio.streams.tls import TLSStream

from ..core.effects import Cause, Close, Connected, Delete, End, Listen, Post, Send
from ..core.errors import LocalProtocolError
from ..core.ids import ChannelId
from ..core.limits import Limits
from ..core.wire.http_client import PROTOCOL_HEADERS, Arrived, Opened, ReplyEvent, ReplyReader, request_for
from .clock import loop_clock
from .port import Outlet, Port

Headers = list[tuple[bytes, bytes]]

WRITE_SIZE_BYTES: Final = 256 * 1024
"""One write of a large body. Smaller bodies leave in one write together with the head."""

DRAIN_MAX_BYTES: Final = 64 * 1024
"""A reply that has told all it had to is read on for so long, to keep the connection; a longer one is not worth it."""

LINGER_S: Final = 1.0
"""How long a connection that takes no more bytes may still deliver the response that says why."""

_LOST: Final = (
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
    anyio.EndOfStream,
    anyio.BusyResourceError,  # the TLS layer wants to write from both tasks at once
    OSError,  # TimeoutError and ssl.SSLError among them
)
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_FRAMING_HEADERS: Final = frozenset(
    {b"host", b"content-length", b"transfer-encoding", b"connection", b"keep-alive", b"expect", b"upgrade", b"te"}
)


@dataclass(frozen=True, slots=True)
class Address:
    """Where an `Endpoint` lies: whom to connect to, what to say for Host, and what to ask for."""

    scheme: str
    host: str
    port: int
    authority: bytes
    target: bytes


@dataclass(frozen=True)
class Endpoint:
    """An upstream server's URL, and how to speak to it.

    Args:
        url: http or https, without user-info. Path and query are sent as written; a fragment is not sent.
        headers: sent with every request; credentials belong here.
        verify_tls: whether an https server must prove that it is the host of the URL.
        ca_file: a PEM file of the certificate authorities to trust instead of the system's.

    Raises:
        ValueError: the URL or a header cannot be used. The message says which and why, and repeats no header's value.
    """

    url: str
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    verify_tls: bool = True
    ca_file: str | None = None

    def __post_init__(self) -> None:
        self.address()
        for name, value in self.headers:
            if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name):
                raise ValueError(f"got header name {name!r}, expected letters, digits and hyphens")
            if name.lower().encode() in PROTOCOL_HEADERS | _FRAMING_HEADERS:
                raise ValueError(f"got header {name}, which is set for each request; expected others only")
            if not re.fullmatch(r"([!-~\x80-\xff]([ \t!-~\x80-\xff]*[!-~\x80-\xff])?)?", value):
                raise ValueError(f"the value of header {name} has characters that no header can carry")

    def address(self) -> Address:
        """The URL in parts."""
        found = re.fullmatch(r"(?i:(https?))://([^/?#]*)([^#]*)(?s:#.*)?", self.url)
        if found is None:
            raise ValueError("got a URL that does not begin with http:// or https://, expected one of these")
        scheme, authority, target = found[1].lower(), found[2], found[3]
        if "@" in authority:
            raise ValueError("got a URL with user-info, expected credentials in a header")
        if not re.fullmatch(r"[!-~]*", authority + target):
            raise ValueError("got a URL with a space or a non-ASCII character, expected them percent-encoded")
        parts = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]:]+))(?::([0-9]{0,5}))?", authority)
        port = _DEFAULT_PORTS[scheme] if parts is None or not parts[3] else int(parts[3])
        if parts is None or not 1 <= port <= 65535:
            raise ValueError(f"got {authority!r} between // and the path, expected HOST or HOST:PORT")
        host = parts[1] or parts[2]
        shown = f"[{host}]" if ":" in host else host
        if port != _DEFAULT_PORTS[scheme]:
            shown += f":{port}"
        target = target if target.startswith("/") else "/" + target
        return Address(scheme, host, port, shown.encode(), target.encode())


class HttpClient:
    """Carries out `Dial`s to HTTP servers while its context is open; use it once.

    Leaving the context closes every connection and reports every channel that is still open. Memory is bounded by
    `limits` for each origin; origins are as many as the endpoints ever dialled.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.unheld: dict[_Connection, float] = {}
        """Connections that no exchange holds, with the time since when, oldest first."""
        self._routes: dict[Endpoint, _Route] = {}
        self._pools: dict[tuple[str, str, int, bool, str | None], _Pool] = {}
        self._has_unheld = anyio.Event()
        self._now: Callable[[], float]
        self._tasks: TaskGroup | None = None
        self._is_stopping = False

    async def __aenter__(self) -> HttpClient:
        self._now = loop_clock()
        tasks = anyio.create_task_group()
        await tasks.__aenter__()
        tasks.start_soon(self._close_unused)
        self._tasks = tasks
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        assert self._tasks is not None
        self._is_stopping = True
        for pool in self._pools.values():
            while pool.waiting:
                pool.waiting.popleft().end(_stopped(is_unsent=True))
        self._tasks.cancel_scope.cancel()
        try:
            return await self._tasks.__aexit__(kind, error, traceback)
        finally:
            self._tasks = None

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """The context as a task, open until it is cancelled."""
        async with self:
            task_status.started()
            await anyio.sleep_forever()

    def dial(self, endpoint: Endpoint, target: Post | Listen | Delete, channel: ChannelId, port: Port) -> Outlet:
        """Send the request for `target`; `port` hears of `channel` what comes of it, and never before this returns.

        Raises:
            LocalProtocolError: the context is not open, or `target` cannot be put into headers. Nothing was sent.
        """
        if self._tasks is None:
            raise LocalProtocolError("got a dial to an HTTP client that does not run, expected its context to be open")
        route = self._routes.get(endpoint)
        if route is None:
            route = self._routes[endpoint] = self._new_route(endpoint)
        exchange = _Exchange(route, target, channel, port, self.limits)
        if self._is_stopping:
            self.end_soon(exchange, _stopped(is_unsent=True))
        else:
            route.pool.dispatch(exchange)
        return exchange

    def start(self, connection: _Connection) -> None:
        """Let a new connection live."""
        assert self._tasks is not None
        self._tasks.start_soon(connection.run)

    def end_soon(self, exchange: _Exchange, cause: Cause) -> None:
        """Report the end from a task of its own: the caller may be in the midst of carrying out orders."""
        assert self._tasks is not None
        self._tasks.start_soon(exchange.end_later, cause)

    def note_unheld(self, connection: _Connection) -> None:
        """From now on, nobody holds `connection`; it has so long to be used again."""
        self.unheld.pop(connection, None)
        self.unheld[connection] = self._now()
        self._has_unheld.set()

    def _new_route(self, endpoint: Endpoint) -> _Route:
        address = endpoint.address()
        key = (address.scheme, address.host, address.port, endpoint.verify_tls, endpoint.ca_file)
        pool = self._pools.get(key)
        if pool is None:
            pool = self._pools[key] = _Pool(self, endpoint, address)
        headers: Headers = [(b"host", address.authority)]
        if all(name.lower() != "user-agent" for name, _ in endpoint.headers):
            headers.append((b"user-agent", b"isthmus"))
        headers += [(name.lower().encode("ascii"), value.encode("latin-1")) for name, value in endpoint.headers]
        return _Route(pool, address.target, headers)

    async def _close_unused(self) -> None:
        """One timer for all connections that nobody holds; asleep while there are none."""
        while True:
            await self._has_unheld.wait()
            oldest = next(iter(self.unheld), None)
            if oldest is None:
                self._has_unheld = anyio.Event()
                continue
            rest_s = self.unheld[oldest] + self.limits.pool_idle_timeout_s - self._now()
            if rest_s > 0:
                await anyio.sleep(rest_s)
            else:
                oldest.give_up()


@dataclass(slots=True)
class _Route:
    """What all requests to one endpoint share."""

    pool: _Pool
    target: bytes
    headers: Headers


class _Exchange:
    """One request and its response: the `Outlet` of its channel. `Port.closed` is called for it exactly once."""

    def __init__(
        self, route: _Route, target: Post | Listen | Delete, channel: ChannelId, port: Port, limits: Limits
    ) -> None:
        self.method, headers, self.body = request_for(target)
        self.target = route.target
        self.headers = route.headers + headers
        if self.method == "POST":
            self.headers.append((b"content-length", b"%d" % len(self.body)))
        self.reader = ReplyReader(target, limits)
        self.connection: _Connection | None = None
        self.is_unsent = True  # no byte of it was given to a socket
        self.is_abandoned = False
        self.is_over = False
        self._pool = route.pool
        self._channel = channel
        self._port = port
        self._resumed: anyio.Event | None = None  # while paused

    def send(self, order: Send) -> None:
        raise LocalProtocolError("got a message for a request that was sent whole, expected a dial for each message")

    def close(self, order: Close) -> None:
        if self.is_over or self.is_abandoned:
            return
        self.is_abandoned = True
        if self.connection is not None:
            self.connection.give_up()
        elif self in self._pool.waiting:
            self._pool.waiting.remove(self)
            self._pool.client.end_soon(self, Cause(End.DONE))

    def pause(self) -> None:
        if self._resumed is None and not self.is_over:
            self._resumed = anyio.Event()

    def resume(self) -> None:
        if self._resumed is not None:
            self._resumed.set()
            self._resumed = None

    async def wait_resumed(self) -> None:
        while self._resumed is not None:
            await self._resumed.wait()

    async def report(self, facts: list[ReplyEvent]) -> None:
        """Tell the port, and return when it wants to hear more: until then nothing is read."""
        if self._resumed is not None:
            await self.wait_resumed()
        for fact in facts:
            self.report_one(fact)
            if self._resumed is not None:
                await self.wait_resumed()

    def report_one(self, fact: ReplyEvent) -> None:
        if self.is_abandoned:
            self.end(Cause(End.DONE))
        elif isinstance(fact, Arrived):
            self._port.message(self._channel, fact.message)
        elif isinstance(fact, Opened):
            self._port.opened(self._channel, Connected(fact.session))
        else:
            self.end(fact.cause)

    def end(self, cause: Cause) -> None:
        if not self.is_over:
            self.is_over = True
            self._port.closed(self._channel, Cause(End.DONE) if self.is_abandoned else cause)

    async def end_later(self, cause: Cause) -> None:
        self.end(cause)


class _Pool:
    """The connections to one origin. While exchanges wait, none is idle and there are as many as may be."""

    def __init__(self, client: HttpClient, endpoint: Endpoint, address: Address) -> None:
        self.client = client
        self.address = address
        self.waiting: deque[_Exchange] = deque()
        self.idle: list[_Connection] = []  # the last used is the first used again
        self._connections = 0
        self.ca_file = endpoint.ca_file
        self._is_verified = endpoint.verify_tls
        self._tls: ssl.SSLContext | None = None

    def dispatch(self, exchange: _Exchange) -> None:
        """Find `exchange` a connection, now or later."""
        limit = self.client.limits.upstream_connections_max
        if self.idle:
            connection = self.idle.pop()
            del self.client.unheld[connection]
            connection.take(exchange)
        elif self._connections < limit:
            self._connections += 1
            connection = _Connection(self)
            connection.take(exchange)
            self.client.start(connection)
        elif len(self.waiting) < limit:
            self.waiting.append(exchange)
        else:
            detail = f"overloaded: {limit} connections to this server are busy and as many requests wait"
            self.client.end_soon(exchange, Cause(End.UNREACHABLE, detail, unsent=True))

    def take_back(self, connection: _Connection) -> bool:
        """A connection can be used again. False if there is no use for it."""
        if self.waiting:
            self.client.unheld.pop(connection, None)
            connection.take(self.waiting.popleft())
            return True
        if len(self.idle) >= self.client.limits.pool_idle_max:
            return False
        self.idle.append(connection)
        self.client.note_unheld(connection)
        return True

    def forget(self, connection: _Connection) -> None:
        """A connection cannot be used again; whether it is closed yet does not matter."""
        if connection in self.idle:
            self.idle.remove(connection)
        self.client.unheld.pop(connection, None)

    def release(self) -> None:
        """A connection is closed: another may be opened."""
        self._connections -= 1

    def dispatch_waiting(self) -> None:
        if self.waiting and self._connections < self.client.limits.upstream_connections_max:
            self.dispatch(self.waiting.popleft())

    def tls(self) -> ssl.SSLContext | None:
        """How to secure a connection to this origin; None for http.

        Raises:
            OSError: the file of certificate authorities cannot be read or used.
        """
        if self._tls is None and self.address.scheme == "https":
            context = ssl.create_default_context(cafile=self.ca_file)
            context.set_alpn_protocols(["http/1.1"])
            if not self._is_verified:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            self._tls = context
        return self._tls

    def describe_failure(self, error: Exception) -> str:
        """Why no connection came about, and what to look at."""
        cause: BaseException | None = error
        while isinstance(cause, Exception):
            error = cause
            cause = error.exceptions[0] if isinstance(error, ExceptionGroup) else error.__cause__
        where = f"{self.address.host}:{self.address.port}"
        match error:
            case ssl.SSLCertVerificationError():
                reason = f"{where} did not prove its identity: {error.verify_message}"
                return f"{reason}; check the host name, or name the authority in ca_file"
            case ssl.SSLError():
                return f"no TLS with {where}: {error.reason or error}; is it an http:// server?"
            case socket.gaierror():
                return f"cannot resolve {self.address.host}: {error.strerror}; is the host name right?"
            case TimeoutError():
                return f"no connection to {where} within {self.client.limits.connect_timeout_s:g} s"
            case ConnectionRefusedError():
                return f"connection refused by {where}; is the server running?"
            case OSError():
                return f"no connection to {where}: {error.strerror or error}"
        return f"{where} closed the connection during set-up; does it speak {self.address.scheme}?"


class _Connection:
    """One connection, from before it is made until it is closed."""

    def __init__(self, pool: _Pool) -> None:
        limits = pool.client.limits
        self._pool = pool
        self._read_size = limits.read_size_bytes
        self._head_size_max = limits.head_size_max_bytes
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=limits.head_size_max_bytes)
        self._scope = anyio.CancelScope()
        self._stream: ByteStream | None = None
        self.is_idle = False
        self._has_served = False
        self._exchange: _Exchange | None = None
        self._unsent: _Exchange | None = None  # one that came too late
        # The request at hand, also after its exchange has let go.
        self._has_request = anyio.Event()
        self._is_written = False
        self._has_head = False
        self._head_size = 0
        self._drained_size = 0

    def take(self, exchange: _Exchange) -> None:
        """Begin with `exchange`. Only for a connection that is new or idle."""
        assert self._exchange is None
        self._exchange = exchange
        exchange.connection = self
        self.is_idle = False
        self._is_written = False
        self._has_head = False
        self._head_size = 0
        self._drained_size = 0
        self._has_request.set()

    def give_up(self) -> None:
        """Close the connection, whatever it does."""
        self._pool.forget(self)
        self._scope.cancel()

    async def run(self) -> None:
        try:
            with self._scope:
                if await self._connect():
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(self._write)
                        await self._read()
                        tasks.cancel_scope.cancel()
        finally:
            self._pool.forget(self)
            if self._stream is not None:
                with anyio.CancelScope(shield=True), contextlib.suppress(*_LOST):
                    await self._stream.aclose()
            self._settle()

    async def _connect(self) -> bool:
        """Connect; if that fails, say why and return False."""
        address = self._pool.address
        assert self._exchange is not None
        try:
            tls = self._pool.tls()
        except OSError as error:
            self._exchange.end(Cause(End.UNREACHABLE, f"cannot use ca_file {self._pool.ca_file}: {error}", unsent=True))
            return False
        try:
            with anyio.fail_after(self._pool.client.limits.connect_timeout_s):
                self._stream = stream = await anyio.connect_tcp(address.host, address.port)
                if tls is not None:
                    # Not standard_compatible: HTTP's framing tells a cut from an end, and few servers say goodbye.
                    self._stream = await TLSStream.wrap(
                        stream, hostname=address.host, ssl_context=tls, standard_compatible=False
                    )
        except _LOST as error:
            detail = self._pool.describe_failure(error)
            self._exchange.end(Cause(End.UNREACHABLE, detail, unsent=True))
            return False
        return True

    async def _write(self) -> None:
        assert self._stream is not None
        while True:
            await self._has_request.wait()
            self._has_request = anyio.Event()
            exchange = self._exchange
            if exchange is None:
                return
            exchange.is_unsent = False
            body = exchange.body
            request = h11.Request(method=exchange.method, target=exchange.target, headers=exchange.headers)
            head = self._http.send(request) or b""
            if body:
                self._http.send_with_data_passthrough(h11.Data(data=body))
            self._http.send(h11.EndOfMessage())
            try:
                if len(body) <= WRITE_SIZE_BYTES:
                    await self._stream.send(head + body)
                else:
                    await self._stream.send(head)
                    for start in range(0, len(body), WRITE_SIZE_BYTES):
                        await self._stream.send(body[start : start + WRITE_SIZE_BYTES])
            except _LOST:
                # The reader learns of it too, after whatever the server may have said before.
                await anyio.sleep(LINGER_S)
                self.give_up()
                return
            self._is_written = True

    async def _read(self) -> None:
        """Read until the connection is of no more use."""
        assert self._stream is not None
        while True:
            data: bytes | None
            try:
                data = await self._stream.receive(self._read_size)
            except anyio.EndOfStream:
                data = b""
            except _LOST:
                data = None
            if self.is_idle:
                return
            if self._exchange is not None and self._exchange.is_unsent:
                # The server had closed while there was nothing to do. The writer must not come to it any more.
                self._unsent, self._exchange = self._exchange, None
                return
            try:
                if not await self._take_in(data):
                    return
            except h11.RemoteProtocolError as error:
                if (exchange := self._exchange) is None:
                    return
                if data:
                    await exchange.wait_resumed()
                    exchange.end(Cause(End.BROKEN, f"got a malformed HTTP response: {str(error)[:200]}"))
                else:
                    await exchange.report(exchange.reader.receive_eof(is_complete=False))
                return

    async def _take_in(self, data: bytes | None) -> bool:
        """Take what was received: b"" is the stream's end, None its loss. False: the connection is of no more use.

        Raises:
            h11.RemoteProtocolError: the response cannot go on like this.
        """
        if data is None:
            raise h11.RemoteProtocolError("connection lost")
        self._http.receive_data(data)
        if not self._has_head:
            self._head_size += len(data)
        while (event := self._http.next_event()) is not h11.NEED_DATA:
            exchange = self._exchange
            if isinstance(event, h11.Response):
                self._has_head = True
                if self._head_size > self._head_size_max:
                    self._check_head_size(len(self._http.trailing_data[0]))
                assert exchange is not None
                facts = exchange.reader.receive_head(event.status_code, event.headers)
            elif isinstance(event, h11.Data):
                if exchange is None:
                    self._drained_size += len(event.data)
                    if self._drained_size > DRAIN_MAX_BYTES:
                        return False
                    continue
                facts = exchange.reader.receive_body(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return await self._finish()
            else:
                continue  # an interim response
            await exchange.report(facts)
            if exchange.is_abandoned:
                return False
            if exchange.is_over:
                self._exchange = exchange.connection = None
                self._pool.client.note_unheld(self)
        if not self._has_head:
            self._check_head_size(0)
        return True

    def _check_head_size(self, behind_size: int) -> None:
        """Interim responses count as well, so that they cannot go on for ever."""
        if self._head_size - behind_size > self._head_size_max:
            raise h11.RemoteProtocolError(f"head over the limit of {self._head_size_max} bytes")

    async def _finish(self) -> bool:
        """The response is complete. The connection is free before that is told, as the news may bring a request."""
        exchange = self._exchange
        if exchange is None:
            return self._recycle()
        await exchange.wait_resumed()
        facts = exchange.reader.receive_eof(is_complete=True)
        self._exchange = exchange.connection = None
        is_usable = self._recycle()
        for fact in facts:
            exchange.report_one(fact)
        return is_usable

    def _recycle(self) -> bool:
        http = self._http
        is_reusable = http.our_state is h11.DONE and http.their_state is h11.DONE
        # Bytes behind the response were never asked for; its end may have been the stream's.
        if not is_reusable or not self._is_written or http.trailing_data != (b"", False):
            return False
        http.start_next_cycle()
        self.is_idle = self._has_served = True
        return self._pool.take_back(self)

    def _settle(self) -> None:
        """The connection is closed: whoever still held it is told, or tries another."""
        exchange = self._exchange or self._unsent
        self._pool.release()
        if exchange is not None and not exchange.is_over:
            exchange.connection = None
            where = self._pool.address.authority.decode()
            if exchange is self._unsent and self._has_served and not exchange.is_abandoned:
                self._pool.dispatch(exchange)
            elif exchange is self._unsent:
                exchange.end(Cause(End.BROKEN, f"{where} closed the connection at once", unsent=True))
            elif self._scope.cancel_called:
                exchange.end(Cause(End.BROKEN, f"{where} took no more of the request"))
            else:
                exchange.end(_stopped(exchange.is_unsent))
        self._pool.dispatch_waiting()


def _stopped(is_unsent: bool) -> Cause:
    return Cause(End.BROKEN, "shutting down", unsent=is_unsent)
