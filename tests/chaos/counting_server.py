"""An MCP server whose tools leave a mark: each execution first appends the caller's key to a journal.

    counting_server.py JOURNAL NAME              serves stdin and stdout
    counting_server.py JOURNAL NAME --port PORT  Streamable HTTP on /mcp, HTTP+SSE on /sse, WebSocket on /ws

Its Streamable HTTP has sessions, event ids and Last-Event-ID. It imports no part of the product. Its tools, each called
with a `key` that no other call has:

- `count` returns the key;
- `slow` reports `steps` steps of progress, `pause` seconds apart, and returns the key;
- `poll` does the same, and on Streamable HTTP ends its event stream after the first step, so that the client resumes
it;
- `big` returns the key and `size` characters;
- `ask` asks the client for its key, and returns the answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any

Json = dict[str, Any]
Say = Callable[[Json], None]
Peer = Any  # h11 and wsproto are loaded for HTTP only, so that a child starts at once

TOOLS = ("count", "slow", "poll", "big", "ask")
QUESTION_S = 3.0
"""The time after which a question is given up."""
LINE_MAX = 64 * 1024 * 1024
RETRY_MS = 100
"""The SSE retry time for a client that polls."""

JOURNAL = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def write_down(key: str) -> None:
    """Appends one line with one write. Whatever happens next, the line is in the file."""
    os.write(JOURNAL, key.encode() + b"\n")


class Session:
    """The session of one client: its open requests, and the questions to it.

    Args:
        say: sends messages that belong to no request of the client; None if that is impossible.
    """

    def __init__(self, say: Say | None) -> None:
        self.say = say
        self.asked: dict[str, asyncio.Future[Json]] = {}
        self.running: dict[object, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def receive(self, message: Json, say: Say, release: Callable[[], None], done: Callable[[], None]) -> None:
        """Takes one message. Its answer is given to `say`, and then `done` is called."""
        if "method" not in message:
            waiting = self.asked.pop(str(message.get("id")), None)
            if waiting is not None and not waiting.done():
                waiting.set_result(message)
            done()
        elif "id" not in message:
            if message["method"] == "notifications/cancelled":
                task = self.running.get(message["params"]["requestId"])
                if task is not None:
                    task.cancel()
            done()
        else:
            task = asyncio.get_running_loop().create_task(self._answer(message, say, release, done))
            self.running[message["id"]] = task
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def end(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _answer(self, message: Json, say: Say, release: Callable[[], None], done: Callable[[], None]) -> None:
        id = message["id"]
        try:
            result = await self._do(message["method"], message.get("params", {}), say, release)
            say({"jsonrpc": "2.0", "id": id, "result": result})
        finally:
            self.running.pop(id, None)
            done()

    async def _do(self, method: str, params: Json, say: Say, release: Callable[[], None]) -> Json:
        if method == "initialize":
            info = {"name": "counting", "version": "1"}
            return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
        if method == "tools/list":
            return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]}
        if method == "tools/call":
            return await self._call(params["name"], params["arguments"], params.get("_meta", {}), say, release)
        return {}

    async def _call(self, name: str, arguments: Json, meta: Json, say: Say, release: Callable[[], None]) -> Json:
        key = arguments["key"]
        write_down(key)
        text, is_error = key, False
        if name in ("slow", "poll"):
            for step in range(1, arguments["steps"] + 1):
                params = {"progressToken": meta["progressToken"], "progress": step, "message": key}
                say({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
                if name == "poll" and step == 1:
                    release()
                await asyncio.sleep(arguments["pause"])
        elif name == "big":
            text += " " + "x" * arguments["size"]
        elif name == "ask":
            text, is_error = await self._ask(key, say)
        return {"content": [{"type": "text", "text": text}], "isError": is_error}

    async def _ask(self, key: str, say: Say) -> tuple[str, bool]:
        id = f"ask-{key}"
        answer = self.asked[id] = asyncio.get_running_loop().create_future()
        schema = {"type": "object", "properties": {"key": {"type": "string"}}}
        params = {"message": key, "requestedSchema": schema}
        say({"jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": params})
        try:
            async with asyncio.timeout(QUESTION_S):
                response = await answer
        except TimeoutError:
            say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}})
            return f"{key} unanswered", True
        finally:
            self.asked.pop(id, None)
        if "error" in response:
            return f"{key} refused", True
        return f"{response['result']['content']['key']}", False


def nothing() -> None:
    """Does nothing, for messages after which nothing is to be done."""


# --- stdio ------------------------------------------------------------------------------------------------------------


def write_line(message: Json) -> None:
    """Writes a line, blocking as most servers do: a client that does not read holds up everything."""
    data = json.dumps(message).encode() + b"\n"
    while data:
        data = data[os.write(1, data) :]


async def serve_stdio() -> None:
    reader = asyncio.StreamReader(limit=LINE_MAX)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    session = Session(write_line)
    while line := await reader.readline():
        session.receive(json.loads(line), write_line, nothing, nothing)


# --- HTTP -------------------------------------------------------------------------------------------------------------


class Stream:
    """An event stream that outlives its connections. Event `n` has the id `NUMBER-n`."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.events: list[Json] = []
        self.is_over = False
        self.releases = 0
        self.changed = asyncio.Event()

    def say(self, message: Json) -> None:
        self.events.append(message)
        self._change()

    def release(self) -> None:
        """Ends the connection, not the stream."""
        self.releases += 1
        self._change()

    def finish(self) -> None:
        self.is_over = True
        self._change()

    def _change(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


class HttpSession(Session):
    """A session of Streamable HTTP, with all its streams. The GET stream is number 0."""

    def __init__(self) -> None:
        self.streams = [Stream(0)]
        super().__init__(self.streams[0].say)

    def new_stream(self) -> Stream:
        self.streams.append(Stream(len(self.streams)))
        return self.streams[-1]


SESSIONS: dict[str, HttpSession] = {}
PIPES: dict[str, tuple[Session, asyncio.Queue[Json]]] = {}


async def cancelled(task: asyncio.Future[Any]) -> None:
    """Cancels the task, and returns once it has released the reader, of which there can be one."""
    task.cancel()
    await asyncio.wait({task})


class Connection:
    """The HTTP/1.1 connection of one client."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        import h11

        self._h11 = h11
        self._reader = reader
        self._writer = writer
        self._http = h11.Connection(h11.SERVER)

    async def run(self) -> None:
        with contextlib.suppress(OSError, EOFError, self._h11.RemoteProtocolError, self._h11.LocalProtocolError):
            while await self._serve_one():
                if self._http.our_state is not self._h11.DONE or self._http.their_state is not self._h11.DONE:
                    break
                self._http.start_next_cycle()
        with contextlib.suppress(OSError):
            self._writer.close()

    async def _next_event(self) -> Any:
        while (event := self._http.next_event()) is self._h11.NEED_DATA:
            self._http.receive_data(await self._reader.read(65536))
        return event

    async def _serve_one(self) -> bool:
        request = await self._next_event()
        if not isinstance(request, self._h11.Request):
            return False
        headers = {name.decode(): value.decode() for name, value in request.headers}
        if "upgrade" in headers:
            await self._serve_socket(request)
            return False
        body = b""
        while isinstance(event := await self._next_event(), self._h11.Data):
            body += bytes(event.data)
        if not isinstance(event, self._h11.EndOfMessage):
            return False
        method, target = request.method.decode(), request.target.decode()
        path, _, query = target.partition("?")
        if path == "/mcp":
            await self._serve_mcp(method, headers, body)
        elif path == "/sse" and method == "GET":
            await self._serve_event_pipe()
        elif path == "/messages" and method == "POST":
            await self._take_message(query.removeprefix("s="), json.loads(body))
        else:
            await self._reply(404)
        return True

    # Streamable HTTP

    async def _serve_mcp(self, method: str, headers: dict[str, str], body: bytes) -> None:
        id = headers.get("mcp-session-id")
        session = None if id is None else SESSIONS.get(id)
        message = json.loads(body) if body else {}
        if message.get("method") == "initialize":
            id = secrets.token_hex(8)
            session = SESSIONS[id] = HttpSession()
        if session is None:
            await self._reply(404)
        elif method == "DELETE":
            session.end()
            SESSIONS.pop(str(id), None)
            await self._reply(204)
        elif method == "GET":
            number, _, last = headers.get("last-event-id", "0-0").partition("-")
            if int(number) < len(session.streams):
                await self._send_events(session.streams[int(number)], int(last), {})
            else:
                await self._reply(400)
        elif "id" not in message or "method" not in message:
            session.receive(message, session.streams[0].say, nothing, nothing)
            await self._reply(202)
        elif message["method"] != "tools/call" or message["params"]["name"] in ("count", "big"):
            await self._send_document(session, message, {"mcp-session-id": str(id)})
        else:
            stream = session.new_stream()
            session.receive(message, stream.say, stream.release, stream.finish)
            await self._send_events(stream, 0, {})

    async def _send_document(self, session: HttpSession, message: Json, headers: dict[str, str]) -> None:
        answers: list[Json] = []
        done = asyncio.Event()
        session.receive(message, answers.append, nothing, done.set)
        await done.wait()
        body = json.dumps(answers[0]).encode() if answers else b""
        await self._reply(200 if answers else 500, {"content-type": "application/json", **headers}, body)

    async def _send_events(self, stream: Stream, seen: int, headers: dict[str, str]) -> None:
        """Sends the events after `seen`, then new ones, until the stream is over or released, or the client is gone."""
        releases = stream.releases
        await self._begin(200, {"content-type": "text/event-stream", **headers})
        await self._send_data(f"retry: {RETRY_MS}\n\n".encode())
        gone = asyncio.ensure_future(self._reader.read(1))  # clients send nothing before the reply is over
        try:
            while not gone.done():
                for message in stream.events[seen:]:
                    seen += 1
                    data = f"id: {stream.number}-{seen}\ndata: {json.dumps(message)}\n\n"
                    await self._send_data(data.encode())
                if stream.is_over and seen >= len(stream.events):
                    break
                if stream.releases != releases:
                    break
                changed = asyncio.ensure_future(stream.changed.wait())
                await asyncio.wait({changed, gone}, return_when=asyncio.FIRST_COMPLETED)
                changed.cancel()
            else:
                raise ConnectionError
        finally:
            await cancelled(gone)
        await self._end()

    # HTTP+SSE

    async def _serve_event_pipe(self) -> None:
        token, outbox = secrets.token_hex(8), asyncio.Queue[Json]()
        session = Session(outbox.put_nowait)
        PIPES[token] = session, outbox
        gone = asyncio.ensure_future(self._reader.read(1))
        try:
            await self._begin(200, {"content-type": "text/event-stream"})
            await self._send_data(f"event: endpoint\ndata: /messages?s={token}\n\n".encode())
            while True:
                getting = asyncio.ensure_future(outbox.get())
                await asyncio.wait({getting, gone}, return_when=asyncio.FIRST_COMPLETED)
                if not getting.done():
                    getting.cancel()
                    raise ConnectionError
                await self._send_data(f"event: message\ndata: {json.dumps(getting.result())}\n\n".encode())
        finally:
            await cancelled(gone)
            del PIPES[token]
            session.end()

    async def _take_message(self, token: str, message: Json) -> None:
        session, outbox = PIPES.get(token, (None, None))
        if session is not None and outbox is not None:
            session.receive(message, outbox.put_nowait, nothing, nothing)
        await self._reply(404 if session is None else 202)

    # WebSocket

    async def _serve_socket(self, request: Peer) -> None:
        import wsproto
        import wsproto.events as events

        socket = wsproto.WSConnection(wsproto.ConnectionType.SERVER)
        socket.initiate_upgrade_connection(list(request.headers), request.target.decode())
        socket.receive_data(self._http.trailing_data[0])

        def write_text(message: Json) -> None:
            with contextlib.suppress(wsproto.utilities.LocalProtocolError):  # the connection is closing
                self._writer.write(socket.send(events.TextMessage(data=json.dumps(message))))

        session = Session(write_text)
        text = ""
        try:
            while True:
                for event in socket.events():
                    if isinstance(event, events.Request):
                        offered = event.subprotocols
                        accept = events.AcceptConnection(subprotocol="mcp" if "mcp" in offered else None)
                        self._writer.write(socket.send(accept))
                    elif isinstance(event, events.TextMessage):
                        text += event.data
                        if event.message_finished:
                            message, text = json.loads(text), ""
                            session.receive(message, write_text, nothing, nothing)
                    elif isinstance(event, events.Ping):
                        self._writer.write(socket.send(event.response()))
                    elif isinstance(event, events.CloseConnection):
                        with contextlib.suppress(wsproto.utilities.LocalProtocolError):
                            self._writer.write(socket.send(event.response()))
                        return
                data = await self._reader.read(65536)
                if not data:
                    return
                socket.receive_data(data)
        except wsproto.utilities.RemoteProtocolError:
            return
        finally:
            session.end()

    # Writing

    async def _send(self, event: Any) -> None:
        self._writer.write(self._http.send(event) or b"")
        await self._writer.drain()

    async def _begin(self, status: int, headers: dict[str, str]) -> None:
        await self._send(self._h11.Response(status_code=status, headers=list(headers.items())))

    async def _send_data(self, data: bytes) -> None:
        await self._send(self._h11.Data(data=data))

    async def _end(self) -> None:
        await self._send(self._h11.EndOfMessage())

    async def _reply(self, status: int, headers: dict[str, str] | None = None, body: bytes = b"") -> None:
        length = {} if status == 204 else {"content-length": str(len(body))}
        await self._begin(status, {**(headers or {}), **length})
        if body:
            await self._send_data(body)
        await self._end()


async def serve_http(port: int) -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await Connection(reader, writer).run()

    server = await asyncio.start_server(handle, "127.0.0.1", port, limit=1024 * 1024, backlog=512)
    print(f"listening on 127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await asyncio.get_running_loop().create_future()


def main() -> None:
    is_http = "--port" in sys.argv
    serving: Awaitable[None] = serve_http(int(sys.argv[-1])) if is_http else serve_stdio()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    asyncio.run(serving)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
