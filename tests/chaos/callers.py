"""Clients for each transport, which enter everything that they receive into the ledger as it comes.

A caller is one session. `call` returns when the call has ended in whatever way, with its outcome in the ledger.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final

import anyio
import anyio.abc
import h11
import wsproto
import wsproto.events
from anyio.abc import ByteStream, TaskGroup
from ledger import Call, Json, Ledger, Outcome
from principals import ANYBODY, FOREIGN, NEEDS_SCOPES, Principal

LOST: Final = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, OSError)
RESUMES_MAX: Final = 60
RESUME_PAUSE_S: Final = 0.1
OVERLOAD: Final = (429, 503)
"""HTTP statuses of a proxy at one of its limits. The request has had no effect, and may be sent again."""


class Cut(Exception):
    """Raised when the connection ended before the expected data."""


class Refused(Exception):
    """Raised for an HTTP status that is no success."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"HTTP {status}: {body[:300].decode(errors='replace')}")
        self.status = status
        self.body = body


def hello(revision: str) -> Json:
    info = {"name": "caller", "version": "0"}
    params = {"protocolVersion": revision, "capabilities": {"elicitation": {}}, "clientInfo": info}
    return {"jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": params}


INITIALIZED: Final[Json] = {"jsonrpc": "2.0", "method": "notifications/initialized"}


class Caller(ABC):
    """One session.

    Args:
        revision: the protocol revision that it offers.
        principal: shows who it is with each request.
    """

    def __init__(self, ledger: Ledger, tasks: TaskGroup, *, revision: str, principal: Principal = ANYBODY) -> None:
        self.ledger = ledger
        self.principal = principal
        self.tasks = tasks
        self.revision = revision
        self.open: dict[object, Call] = {}
        """Open calls, by their ids. Where ids are reused, by their keys."""
        self.made: list[Call] = []
        self.is_over = False
        self._last_id = 0

    @abstractmethod
    async def start(self) -> None:
        """Begins the session. Raises Cut or Refused."""

    @abstractmethod
    async def call(self, call: Call) -> None: ...

    @abstractmethod
    async def cancel(self, call: Call) -> None: ...

    @abstractmethod
    async def leave(self) -> None:
        """Ends the session in order."""

    @abstractmethod
    def drop(self) -> None:
        """Ends the session abruptly."""

    def next_id(self) -> int:
        self._last_id += 1
        return self._last_id


# --- HTTP -------------------------------------------------------------------------------------------------------------


class Response:
    """An HTTP response. Every read raises Cut if the connection is lost."""

    def __init__(self, stream: ByteStream, http: h11.Connection) -> None:
        self._stream = stream
        self._http = http
        self.status = 0
        self.headers: dict[str, str] = {}

    async def _event(self) -> Any:
        try:
            while (event := self._http.next_event()) is h11.NEED_DATA:
                try:
                    self._http.receive_data(await self._stream.receive(65536))
                except anyio.EndOfStream:
                    self._http.receive_data(b"")
        except (*LOST, h11.RemoteProtocolError) as error:
            raise Cut(repr(error)) from error
        if isinstance(event, h11.ConnectionClosed) or event is h11.PAUSED:
            raise Cut("closed")
        return event

    async def read_head(self) -> None:
        event = await self._event()
        self.status = event.status_code
        self.headers = {name.decode(): value.decode() for name, value in event.headers}

    async def pieces(self) -> AsyncIterator[bytes]:
        while not isinstance(event := await self._event(), h11.EndOfMessage):
            yield bytes(event.data)

    async def body(self) -> bytes:
        return b"".join([piece async for piece in self.pieces()])

    @property
    def is_stream(self) -> bool:
        return self.headers.get("content-type", "").startswith("text/event-stream")

    async def events(self) -> AsyncIterator[tuple[str | None, str, bytes]]:
        """Yields (id, type, data) of each complete event."""
        text, id, type, data = b"", None, "message", list[bytes]()
        async for piece in self.pieces():
            text += piece
            *lines, text = text.split(b"\n")
            for line in lines:
                line = line.removesuffix(b"\r")
                name, _, value = line.partition(b":")
                value = value.removeprefix(b" ")
                if not line:
                    if data or id is not None:
                        yield id, type, b"\n".join(data)
                    id, type, data = None, "message", []
                elif name == b"id":
                    id = value.decode()
                elif name == b"event":
                    type = value.decode()
                elif name == b"data":
                    data.append(value)


@contextlib.asynccontextmanager
async def requested(
    port: int, method: str, path: str, headers: Mapping[str, str], body: bytes = b""
) -> AsyncIterator[Response]:
    """Sends one request on a connection of its own. Yields its response once the head is there. Raises Cut."""
    fields = {"host": f"127.0.0.1:{port}", **headers}
    if body or method == "POST":
        fields |= {"content-type": "application/json", "content-length": str(len(body))}
    http = h11.Connection(h11.CLIENT)
    try:
        stream = await anyio.connect_tcp("127.0.0.1", port)
    except OSError as error:
        raise Cut(repr(error)) from error
    async with stream:
        response = Response(stream, http)
        out = http.send(h11.Request(method=method, target=path, headers=list(fields.items()))) or b""
        out += (http.send(h11.Data(data=body)) or b"") if body else b""
        try:
            await stream.send(out + (http.send(h11.EndOfMessage()) or b""))
        except LOST as error:
            raise Cut(repr(error)) from error
        await response.read_head()
        yield response


class HttpCaller(Caller):
    """A client of Streamable HTTP.

    Args:
        reuses_ids: gives all calls the same id, as some clients do.
        listens: opens a GET stream, and again whenever it ends.
    """

    def __init__(
        self,
        ledger: Ledger,
        tasks: TaskGroup,
        *,
        port: Callable[[], int],
        path: str,
        revision: str,
        principal: Principal = ANYBODY,
        reuses_ids: bool = False,
        listens: bool = True,
    ) -> None:
        super().__init__(ledger, tasks, revision=revision, principal=principal)
        self._port = port
        self._path = path
        self._reuses_ids = reuses_ids
        self._listens = listens
        self._id: str | None = None
        self._last_event_id: str | None = None
        self._scope = anyio.CancelScope()
        self.resumes = 0

    def _headers(self, call: Call | None = None, **others: str) -> dict[str, str]:
        shown = self.principal.show()
        fields = shown.fields if call is None else call.show(shown)
        headers = {"accept": "application/json, text/event-stream", **fields, **others}
        if self._id is not None:
            headers |= {"mcp-session-id": self._id, "mcp-protocol-version": self.revision}
        return headers

    async def start(self) -> None:
        body = json.dumps(hello(self.revision)).encode()
        async with requested(self._port(), "POST", self._path, self._headers(), body) as response:
            if response.status != 200:
                raise Refused(response.status, await response.body())
            answer = json.loads(await response.body())
            if "error" in answer:
                raise Refused(200, json.dumps(answer).encode())
            self._id = response.headers["mcp-session-id"]
            self.revision = answer["result"]["protocolVersion"]
        await self._post_message(INITIALIZED)
        if self._listens:
            self.tasks.start_soon(self._listen)

    async def _post_message(self, message: Json) -> None:
        """Sends a notification or a response. Sending it twice does no harm."""
        for _ in range(5):
            with contextlib.suppress(Cut):
                body = json.dumps(message).encode()
                async with requested(self._port(), "POST", self._path, self._headers(), body) as response:
                    if response.status in OVERLOAD:
                        await anyio.sleep(RESUME_PAUSE_S)
                        continue
                    if response.status not in (202, 404):
                        self.ledger.wrong(f"{message} was answered with {response.status} {await response.body()!r}")
                return

    async def call(self, call: Call) -> None:
        id = 1 if self._reuses_ids else self.next_id()
        call.arguments["n"] = id
        self.open[call.key] = call
        self.made.append(call)
        try:
            await self._follow(call, id)
        finally:
            del self.open[call.key]

    def request_for(self, call: Call) -> bytes:
        """Returns the whole request, for a caller that sends it by other means."""
        body = json.dumps(call.message(1)).encode()
        length = {"content-type": "application/json", "content-length": str(len(body))}
        fields = {"host": "127.0.0.1", **self._headers(call, **length)}
        lines = [f"POST {self._path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
        return "\r\n".join([*lines, "", ""]).encode() + body

    async def _follow(self, call: Call, id: int) -> None:
        """POSTs the call, and resumes the reply as often as it is cut."""
        body = json.dumps(call.message(id)).encode()
        method, headers, last_event_id = "POST", self._headers(call), None
        for _ in range(RESUMES_MAX):
            try:
                async with requested(self._port(), method, self._path, headers, body) as response:
                    if response.status != 200:
                        await self._refuse(call, response, is_resumed=last_event_id is not None)
                        return
                    if not response.is_stream:
                        self._take(call, id, json.loads(await response.body()))
                    else:
                        async for event_id, _, data in response.events():
                            if event_id is not None:
                                last_event_id = self._last_event_id = event_id
                            if data:
                                self._take(call, id, json.loads(data))
                    if call.outcome is not None:
                        return
                    if last_event_id is None and call.is_cancelled:
                        self.ledger.end(call, Outcome.CANCELLED)
                        return
                    if last_event_id is None:
                        self.ledger.wrong("its reply ended in order, without an answer", call)
                        self.ledger.end(call, Outcome.CUT)
                        return
                    call.story.append(f"ended after {last_event_id}")
            except Cut as cut:
                call.story.append(f"cut after {last_event_id}: {cut}")
                if call.outcome is not None:
                    return
                if last_event_id is None:
                    self.ledger.end(call, Outcome.CUT)
                    return
            self.resumes += 1
            method, body = "GET", b""
            headers = self._headers(**{"last-event-id": last_event_id})
            await anyio.sleep(RESUME_PAUSE_S)
        self.ledger.wrong(f"not resumed in {RESUMES_MAX} attempts", call)
        self.ledger.end(call, Outcome.CUT)

    async def _refuse(self, call: Call, response: Response, *, is_resumed: bool) -> None:
        text = await response.body()
        call.story.append(f"HTTP {response.status} {text[:200]!r}")
        if response.status == 404:
            self.is_over = True
            self.ledger.end(call, Outcome.CUT if is_resumed else Outcome.NOT_EXECUTED)
        elif response.status in OVERLOAD and not is_resumed:
            self.ledger.end(call, Outcome.NOT_EXECUTED)
        elif response.status == 403 and not is_resumed:
            self.ledger.refuse(call, NEEDS_SCOPES)
        else:
            self.ledger.wrong(f"refused with {response.status}", call)
            self.ledger.end(call, Outcome.CUT)

    def _take(self, call: Call | None, id: object, message: Json) -> None:
        """Takes a message from the stream of `call`, or from one that belongs to no call."""
        if message.get("method") == "notifications/progress":
            if call is None:
                self.ledger.late_progress(message["params"])
            else:
                self.ledger.progress(message["params"], [call])
        elif message.get("method") == "elicitation/create":
            # On a stream that was cut, or while the call is cancelled, the answer may come after the call has ended.
            result = self.ledger.question(message["params"], self.made)
            self.tasks.start_soon(self._post_message, {"jsonrpc": "2.0", "id": message["id"], "result": result})
        elif "method" in message:
            pass  # cancelled questions
        elif call is None or message.get("id") != id:
            self.ledger.wrong(
                f"an answer with the id {message.get('id')} where {id} was due: {str(message)[:200]}", call
            )
        else:
            self.ledger.answer(call, message)

    async def _listen(self) -> None:
        """Reads the GET stream, and resumes it as long as the session lasts."""
        with self._scope:
            last_event_id: str | None = None
            while not self.is_over:
                headers = self._headers(**({"last-event-id": last_event_id} if last_event_id else {}))
                try:
                    async with requested(self._port(), "GET", self._path, headers) as response:
                        if response.status != 200 and response.status not in OVERLOAD:
                            text = await response.body()
                            if response.status != 404:
                                self.ledger.wrong(f"GET was refused with {response.status}: {text!r}")
                            return
                        async for event_id, _, data in response.events():
                            last_event_id = event_id or last_event_id
                            if data:
                                self._take(None, None, json.loads(data))
                except Cut:
                    pass
                await anyio.sleep(RESUME_PAUSE_S)

    async def cancel(self, call: Call) -> None:
        if self._reuses_ids:
            return
        call.is_cancelled = True
        params = {"requestId": call.arguments["n"]}
        await self._post_message({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})

    async def leave(self) -> None:
        self.is_over = True
        self._scope.cancel()
        for _ in range(5):
            with contextlib.suppress(Cut):
                async with requested(self._port(), "DELETE", self._path, self._headers()) as response:
                    if response.status not in (204, 404):
                        self.ledger.wrong(f"DELETE was answered with {response.status}")
                return

    def drop(self) -> None:
        self.is_over = True
        self._scope.cancel()

    async def steal(self, victim: HttpCaller, call: Call, method: str) -> None:
        """Uses the session of another principal, which must not be known to this one.

        Args:
            call: what is called there, with POST.
            method: POST, GET to resume a stream of the victim, or DELETE.
        """
        call.verdict = FOREIGN
        session = {"mcp-session-id": victim._id or "", "mcp-protocol-version": victim.revision}
        last = {"last-event-id": victim._last_event_id} if victim._last_event_id and method == "GET" else {}
        fields = {"accept": "application/json, text/event-stream", **self.principal.show().fields, **session, **last}
        body = json.dumps(call.message(1)).encode() if method == "POST" else b""
        with contextlib.suppress(Cut):
            async with requested(self._port(), method, victim._path, fields, body) as response:
                if response.status != 404 and response.status not in OVERLOAD:
                    self.ledger.wrong(f"{method} in the session of another was answered {response.status}", call)
        self.ledger.end(call, Outcome.NOT_EXECUTED)


# --- Two-way streams --------------------------------------------------------------------------------------------------


class PipeCaller(Caller):
    """A client whose session is one connection for both directions."""

    def __init__(self, ledger: Ledger, tasks: TaskGroup, *, revision: str, principal: Principal = ANYBODY) -> None:
        super().__init__(ledger, tasks, revision=revision, principal=principal)
        self._shown = principal.show()
        self._ended: dict[str, anyio.Event] = {}
        self._greeted = anyio.Event()
        self._refusal: Json | None = None
        self._has_ended = anyio.Event()
        self._scope = anyio.CancelScope()
        self._reading = anyio.Event()
        self._reading.set()

    def stall(self) -> None:
        """Stops reading for good."""
        self._reading = anyio.Event()

    async def wait_end(self) -> None:
        await self._has_ended.wait()

    @abstractmethod
    async def say(self, message: Json) -> None:
        """Sends the message. Raises Cut."""

    @abstractmethod
    async def _carry(self, ready: anyio.Event) -> None:
        """Connects and reads until the end. Sets `ready` once messages can be sent. Raises Cut or Refused."""

    async def start(self) -> None:
        ready = anyio.Event()
        self.tasks.start_soon(self._run, ready)
        await self._or_end(ready)
        await self.say(hello(self.revision))
        await self._or_end(self._greeted)
        if self._refusal is not None:
            self.drop()
            raise Refused(200, json.dumps(self._refusal).encode())
        await self.say(INITIALIZED)

    async def _or_end(self, event: anyio.Event) -> None:
        async with anyio.create_task_group() as tasks:

            async def end() -> None:
                await self._has_ended.wait()
                tasks.cancel_scope.cancel()

            tasks.start_soon(end)
            await event.wait()
            tasks.cancel_scope.cancel()
        if not event.is_set():
            raise Cut("the connection ended")

    async def _run(self, ready: anyio.Event) -> None:
        try:
            with self._scope:
                await self._carry(ready)
        except (Cut, Refused) as error:
            for call in self.open.values():
                call.story.append(f"connection: {error}")
        finally:
            self.is_over = True
            self._has_ended.set()
            for call in list(self.open.values()):
                self.ledger.end(call, Outcome.CUT)
                self._end(call)
            self.open.clear()

    async def call(self, call: Call) -> None:
        ended = await self.begin(call)
        await ended.wait()

    async def begin(self, call: Call) -> anyio.Event:
        """Sends the call without waiting. The returned event is set when the call has ended."""
        id = call.arguments["n"] = self.next_id()
        call.show(self._shown)
        ended = anyio.Event()
        if self.is_over:
            self.ledger.end(call, Outcome.NOT_EXECUTED)
            ended.set()
            return ended
        self.open[id] = call
        self.made.append(call)
        self._ended[call.key] = ended
        with contextlib.suppress(Cut):
            await self.say(call.message(id))
            call.is_sent = True
        return ended

    def _end(self, call: Call) -> None:
        self._ended.pop(call.key).set()

    def take(self, data: bytes | str) -> None:
        if self.is_over:
            return  # a client that has left reads nothing
        message = json.loads(data)
        if message.get("method") == "notifications/progress":
            self.ledger.progress(message["params"], self.open.values())
        elif message.get("method") == "elicitation/create":
            result = self.ledger.question(message["params"], self.made)
            self.tasks.start_soon(self._answer, {"jsonrpc": "2.0", "id": message["id"], "result": result})
        elif "method" in message:
            pass
        elif message.get("id") == "hello":
            self._refusal = message if "error" in message else None
            self._greeted.set()
        elif message.get("id") in self.open:
            call = self.open.pop(message["id"])
            if call.tool != "ping":
                self.ledger.answer(call, message)
            self._end(call)
        else:
            known = next((call for call in self.made if call.arguments["n"] == message.get("id")), None)
            self.ledger.wrong(f"{type(self).__name__}: an answer to what is not open: {str(message)[:200]}", known)

    async def _answer(self, message: Json) -> None:
        with contextlib.suppress(Cut):
            await self.say(message)

    async def cancel(self, call: Call) -> None:
        """Cancels a call. No answer comes to a cancelled request on these transports."""
        id = call.arguments["n"]
        if self.open.get(id) is not call or not call.is_sent:  # otherwise the notification could overtake the request
            return
        call.is_cancelled = True
        params = {"requestId": id}
        try:
            await self.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
            # Messages in flight are read before the following ones.
            await self._ping()
        except Cut:
            self.drop()  # messages from before the cut may still be readable, the answer among them
        if self.open.get(id) is call:
            del self.open[id]
            self.ledger.end(call, Outcome.CANCELLED)
            self._end(call)

    async def _ping(self) -> None:
        id = f"ping-{self.next_id()}"
        self.open[id] = Call(id, "ping", {}, "")
        ended = self._ended[id] = anyio.Event()
        await self.say({"jsonrpc": "2.0", "id": id, "method": "ping"})
        await ended.wait()

    async def leave(self) -> None:
        self.drop()

    def drop(self) -> None:
        self.is_over = True
        self._scope.cancel()


class SocketCaller(PipeCaller):
    """A client on a WebSocket."""

    def __init__(
        self,
        ledger: Ledger,
        tasks: TaskGroup,
        *,
        port: Callable[[], int],
        path: str,
        revision: str,
        principal: Principal = ANYBODY,
    ) -> None:
        super().__init__(ledger, tasks, revision=revision, principal=principal)
        self._port = port
        self._path = path
        self._socket = wsproto.WSConnection(wsproto.ConnectionType.CLIENT)
        self._stream: ByteStream
        self._lock = anyio.Lock()

    async def say(self, message: Json) -> None:
        await self._write(wsproto.events.TextMessage(data=json.dumps(message)))

    async def _write(self, event: wsproto.events.Event) -> None:
        async with self._lock:
            try:
                await self._stream.send(self._socket.send(event))
            except (*LOST, wsproto.utilities.LocalProtocolError) as error:
                raise Cut(repr(error)) from error

    async def _carry(self, ready: anyio.Event) -> None:
        try:
            stream = await anyio.connect_tcp("127.0.0.1", self._port())
        except OSError as error:
            raise Cut(repr(error)) from error
        async with stream:
            self._stream = stream
            host = f"127.0.0.1:{self._port()}"
            fields = [(name.encode(), value.encode()) for name, value in self._shown.fields.items()]
            request = wsproto.events.Request(host=host, target=self._path, subprotocols=["mcp"], extra_headers=fields)
            await self._write(request)
            text = ""
            try:
                while True:
                    await self._reading.wait()
                    self._socket.receive_data(await stream.receive(65536))
                    for event in self._socket.events():
                        if isinstance(event, wsproto.events.AcceptConnection):
                            ready.set()
                        elif isinstance(event, wsproto.events.TextMessage):
                            text += event.data
                            if event.message_finished:
                                self.take(text)
                                text = ""
                        elif isinstance(event, wsproto.events.Ping):
                            await self._write(event.response())
                        elif isinstance(event, wsproto.events.RejectConnection):
                            raise Refused(event.status_code, b"")
                        elif isinstance(event, wsproto.events.CloseConnection):
                            raise Cut(f"closed with {event.code} {event.reason}")
            except (*LOST, wsproto.utilities.RemoteProtocolError) as error:
                raise Cut(repr(error)) from error


class EventPipeCaller(PipeCaller):
    """A client of HTTP+SSE."""

    def __init__(
        self,
        ledger: Ledger,
        tasks: TaskGroup,
        *,
        port: Callable[[], int],
        path: str,
        revision: str,
        principal: Principal = ANYBODY,
    ) -> None:
        super().__init__(ledger, tasks, revision=revision, principal=principal)
        self._port = port
        self._path = path
        self._endpoint = ""

    async def say(self, message: Json) -> None:
        """Sends the message. A request whose POST is cut may have arrived or not, and the stream may never tell. So the
        whole session is given up."""
        body = json.dumps(message).encode()
        try:
            async with requested(self._port(), "POST", self._endpoint, self._shown.fields, body) as response:
                if response.status == 202:
                    return
                text = await response.body()
                if response.status not in (404, 503):
                    self.ledger.wrong(f"a POST was refused with {response.status}: {text!r}")
                raise Cut(f"HTTP {response.status}")
        except Cut:
            self.drop()
            raise

    async def _carry(self, ready: anyio.Event) -> None:
        headers = {"accept": "text/event-stream", **self._shown.fields}
        async with requested(self._port(), "GET", self._path, headers) as response:
            if response.status != 200:
                raise Refused(response.status, await response.body())
            async for _, type, data in response.events():
                await self._reading.wait()
                if type == "endpoint":
                    self._endpoint = "/" + data.decode().removeprefix("http://").partition("/")[2]
                    if data.startswith(b"/"):
                        self._endpoint = data.decode()
                    ready.set()
                elif data:
                    self.take(data)
        raise Cut("the stream ended")


class StdioCaller(PipeCaller):
    """A client with a proxy process of its own, on stdin and stdout.

    Args:
        command: starts the proxy.
        env: its environment.
        log: the file for its stderr.
    """

    def __init__(
        self,
        ledger: Ledger,
        tasks: TaskGroup,
        *,
        command: list[str],
        env: Mapping[str, str],
        log: str,
        revision: str,
    ) -> None:
        super().__init__(ledger, tasks, revision=revision)
        self._command = command
        self._env = {**os.environ, **env}
        self._log = log
        self._process: anyio.abc.Process | None = None
        self._is_killed = False

    async def say(self, message: Json) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            await self._process.stdin.send(json.dumps(message).encode() + b"\n")
        except LOST as error:
            raise Cut(repr(error)) from error

    async def _carry(self, ready: anyio.Event) -> None:
        with open(self._log, "ab") as log:
            self._process = process = await anyio.open_process(
                self._command, stderr=log, env=self._env, start_new_session=True
            )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            ready.set()
            text = b""
            try:
                async for piece in process.stdout:
                    text += piece
                    *lines, text = text.split(b"\n")
                    for line in lines:
                        self.take(line)
            except LOST as error:
                raise Cut(repr(error)) from error
            raise Cut("stdout ended")
        finally:
            with anyio.CancelScope(shield=True):
                with contextlib.suppress(*LOST):
                    await process.stdin.aclose()
                with contextlib.suppress(*LOST):
                    await process.stdout.aclose()
                with anyio.move_on_after(30) as waiting:
                    code = await process.wait()
                if waiting.cancelled_caught:
                    self.ledger.wrong("a stdio proxy did not end with its client")
                    process.kill()
                elif code != (-signal.SIGKILL if self._is_killed else 0):
                    self.ledger.wrong(f"a stdio proxy ended with exit code {code}; see {self._log}")

    def kill(self) -> None:
        """Kills the proxy itself. Its child processes must die with it."""
        if self._process is not None and self._process.returncode is None:
            self._is_killed = True
            self._process.kill()
        self.drop()
