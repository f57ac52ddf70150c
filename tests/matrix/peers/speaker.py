"""An MCP server that follows a table byte for byte, on the transport that its arguments name.

    speaker.py stdio|http|sse|ws LOG_FOLDER [OPENING]

Over HTTP it picks a port, prints its URL, and stops when its stdin ends. Each message it receives is written to a file
of its own in the folder, a JSON line each: the session's number in this process, and the message. OPENING (a Python
bytes literal) is written to stdout before anything else.

It uses the standard library and wsproto, and no part of the product. The table is in `behaviour.py`.
"""

from __future__ import annotations

import ast
import hashlib
import itertools
import json
import os
import queue
import socket
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Protocol

from behaviour import AskClient, Gather, Send, SendOnSession, WaitCancelled, ops_for
from slices import Parts, member, parts, replaced

BIG = 64 * 1024
PATIENCE_S = 30.0
NUMBERS = itertools.count(1)


class Log:
    def __init__(self, folder: str) -> None:
        self._file = Path(folder, f"{os.getpid()}.jsonl").open("a")  # noqa: SIM115
        self._lock = threading.Lock()

    def write(self, session: int, message: bytes) -> None:
        """Writes a message to the log. Long params are replaced by their size and hash."""
        if len(message) > BIG:
            params = parts(message).params or b""
            hashed = b'{"size":%d,"sha256":"%b"}' % (len(params), hashlib.sha256(params).hexdigest().encode())
            message = replaced(message, ("params",), hashed)
        entry = json.dumps({"session": session, "message": message.decode("latin-1")})
        with self._lock:
            self._file.write(entry + "\n")
            self._file.flush()


class Writer(Protocol):
    """A stream that messages can be written to."""

    def write(self, message: bytes, style: str) -> None: ...


class Session:
    """The session of one client. `main` is its stream for messages that belong to no request."""

    def __init__(self, log: Log, main: Writer) -> None:
        self.main = main
        self._number = next(NUMBERS)
        self._log = log
        self._answers: dict[str, queue.Queue[bytes]] = {}
        self._cancelled: dict[str, threading.Event] = {}
        self._lock = threading.Lock()
        self._turns: list[threading.Event] = []

    def receive(self, message: bytes, reply: Writer, done: Callable[[], None] = lambda: None) -> None:
        """Logs a message and follows the table. Calls `done` when all is sent."""
        with self._lock:
            self._log.write(self._number, message)
        found = parts(message)
        if found.is_answer:
            assert found.id is not None
            self._answer_queue(found.id).put(b"")
            done()
            return
        if found.method == "notifications/cancelled":
            self._cancellation(member(found.params, "requestId") or b"null").set()
        ops = ops_for(found)
        if any(isinstance(op, AskClient | Gather | WaitCancelled) for op in ops):
            threading.Thread(target=self._carry_out, args=(found, ops, reply, done), daemon=True).start()
        else:
            self._carry_out(found, ops, reply, done)

    def _carry_out(self, found: Parts, ops: list[Any], reply: Writer, done: Callable[[], None]) -> None:
        token = member(found.params, "_meta", "progressToken")
        values = {b"$ID": found.id, b"$TOKEN": token, b"$PARAMS": found.params}
        for op in ops:
            match op:
                case Send(template, style, fill):
                    reply.write(filled(template, values, fill), style)
                case SendOnSession(template, style):
                    self.main.write(filled(template, values, 0), style)
                case AskClient(template):
                    number = parts(template).id
                    assert number is not None
                    answers = self._answer_queue(number)
                    reply.write(template, "")
                    answers.get(timeout=PATIENCE_S)
                case WaitCancelled():
                    assert found.id is not None
                    assert self._cancellation(found.id).wait(PATIENCE_S)
                case Gather(count):
                    self._gather(count)
        done()
        if any(isinstance(op, Gather) for op in ops):
            with self._lock:
                self._turns.pop()
                if self._turns:
                    self._turns[-1].set()

    def _gather(self, count: int) -> None:
        """Waits until `count` requests are here. They continue one by one, the last first."""
        mine = threading.Event()
        with self._lock:
            self._turns.append(mine)
            if len(self._turns) == count:
                mine.set()
        assert mine.wait(PATIENCE_S)

    def _answer_queue(self, number: bytes) -> queue.Queue[bytes]:
        with self._lock:
            return self._answers.setdefault(key(number), queue.Queue())

    def _cancellation(self, number: bytes) -> threading.Event:
        with self._lock:
            return self._cancelled.setdefault(key(number), threading.Event())


def key(number: bytes) -> str:
    """Returns an id by value: two spellings of a text are one."""
    return repr(json.loads(number))


def filled(template: bytes, values: dict[bytes, bytes | None], fill: int) -> bytes:
    for name, value in values.items():
        if name in template:
            assert value is not None, (name, template)
            template = template.replace(name, value)
    return template.replace(b"$FILL", b"x" * fill)


# --- stdio ------------------------------------------------------------------------------------------------------------


class Lines:
    """Standard output, or any other file of lines."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def write(self, message: bytes, style: str) -> None:
        before, after = b"", b"\n"
        if style == "crlf":
            after = b"\r\n"
        elif style == "noise":
            before = b"ready.\n[1, 2\n{\n\n \t\n\xff\xfe\n"
        with self._lock:
            sys.stdout.buffer.write(before)
            sys.stdout.buffer.write(message)
            sys.stdout.buffer.write(after)
            sys.stdout.buffer.flush()


def speak_stdio(log: Log) -> None:
    lines = Lines()
    session = Session(log, lines)
    for line in sys.stdin.buffer:
        session.receive(line.removesuffix(b"\n"), lines)


# --- HTTP -------------------------------------------------------------------------------------------------------------


class Events:
    """An event stream, with ids or without. Messages wait in it until there is a connection."""

    def __init__(self, name: str = "") -> None:
        self._name = name
        self._count = 0
        self._queue: queue.Queue[list[bytes] | None] = queue.Queue()

    def prime(self) -> None:
        self._queue.put([f"id: {self._name}-0\nretry: 1000\ndata:\n\n".encode()])

    def write(self, message: bytes, style: str) -> None:
        self._count += 1
        number = f"id: {self._name}-{self._count}\n".encode() if self._name else b""
        event = b"event: message\n" + number + b"data: " + message.replace(b"\n", b"\ndata: ") + b"\n\n"
        if style == "crlf":
            self._queue.put([event.replace(b"\n", b"\r\n")])
        elif style == "cr":
            self._queue.put([event.replace(b"\n", b"\r")])
        elif style == "cut":
            self._queue.put(cut(message))
        elif style == "noise":
            self._queue.put([b"event: ping\ndata: x\n\n", b": hm\n\n", b"data: ready.\n\n", b"data\n\n", event])
        else:
            self._queue.put([event])

    def end(self) -> None:
        self._queue.put(None)

    def serve(self, handler: Handler, *, greeting: bytes = b"") -> None:
        """Sends the stream in chunks, until its end."""
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream; charset=utf-8")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        handler.wfile.flush()
        if greeting:
            self._chunk(handler, greeting)
        while (pieces := self._queue.get()) is not None:
            for piece in pieces:
                self._chunk(handler, piece)
        handler.wfile.write(b"0\r\n\r\n")

    def _chunk(self, handler: Handler, piece: bytes) -> None:
        handler.wfile.write(b"%x\r\n" % len(piece))
        handler.wfile.write(piece)
        handler.wfile.write(b"\r\n")
        handler.wfile.flush()


def cut(message: bytes) -> list[bytes]:
    """Splits a message into one event with comments between its many data lines and all three line ends, a few bytes at
    a time."""
    lines = [b": begun", b"event: message"]
    for number, piece in enumerate(message.split(b",")):  # splits at JSON's own commas: no text has commas here
        lines += [b"data: " + (b"," if number else b"") + piece, b":" if number % 2 else b": still here", b"unknown: 1"]
    ends = itertools.cycle([b"\r\n", b"\n", b"\r"])
    event = b"".join(line + next(ends) for line in lines) + b"\n"
    return [event[at : at + 7] for at in range(0, len(event), 7)]


class Once:
    """A reply of one JSON document."""

    def __init__(self) -> None:
        self.message = b""

    def write(self, message: bytes, style: str) -> None:
        self.message = message


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    log: Log
    sessions: dict[str, tuple[Session, Events]] = {}  # noqa: RUF012

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path.startswith("/messages"):
            session, events = self.sessions[self.path.partition("?s=")[2]]
            if not parts(body).is_request:  # a message POSTed next may overtake one whose 202 is already sent
                session.receive(body, events)
                self.answer(202, b"Accepted", "text/plain")
                return
            self.answer(202, b"Accepted", "text/plain")
            session.receive(body, events)
            return
        name = self.headers["Mcp-Session-Id"]
        if name is None:
            name, events = os.urandom(8).hex(), Events("get")
            self.sessions[name] = Session(self.log, events), events
        if name not in self.sessions:
            self.answer(404, b"")
            return
        session, _ = self.sessions[name]
        found = parts(body)
        if not found.is_request:
            session.receive(body, Once())
            self.answer(202, b"")
            return
        ops = ops_for(found)
        if len(ops) == 1 and isinstance(ops[0], Send) and not ops[0].style:
            once = Once()
            session.receive(body, once)
            self.answer(200, once.message, session=name if found.method == "initialize" else None)
            return
        reply = Events(f"post-{os.urandom(4).hex()}")
        reply.prime()

        threading.Thread(target=session.receive, args=(body, reply, reply.end), daemon=True).start()
        reply.serve(self)

    def do_GET(self) -> None:
        if self.path == "/sse":
            name, events = os.urandom(8).hex(), Events()
            self.sessions[name] = Session(self.log, events), events
            events.serve(self, greeting=f"event: endpoint\ndata: /messages?s={name}\n\n".encode())
        elif self.headers["Last-Event-ID"] is not None:
            self.answer(400, b"")  # no events are stored
        elif (found := self.sessions.get(self.headers["Mcp-Session-Id"])) is not None:
            found[1].serve(self)
        else:
            self.answer(404, b"")

    def do_DELETE(self) -> None:
        found = self.sessions.pop(self.headers["Mcp-Session-Id"], None)
        if found is not None:
            found[1].end()
        self.answer(404 if found is None else 204, b"")

    def answer(self, status: int, body: bytes, kind: str = "application/json", session: str | None = None) -> None:
        self.send_response(status)
        if session is not None:
            self.send_header("Mcp-Session-Id", session)
        if status != 204:
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def handle(self) -> None:
        try:
            super().handle()
        except ConnectionError:
            pass  # the client hung up

    def log_message(self, format: str, *args: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


def speak_http(log: Log, scheme: str, path: str) -> None:
    Handler.log = log
    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print_url(f"{scheme}://127.0.0.1:{server.server_port}{path}")


# --- WebSocket --------------------------------------------------------------------------------------------------------


class Socket:
    """One WebSocket. Frames are written by wsproto, except those that it would refuse to write."""

    def __init__(self, sock: socket.socket) -> None:
        from wsproto import ConnectionType, WSConnection

        self.sock = sock
        self.connection = WSConnection(ConnectionType.SERVER)
        self.lock = threading.Lock()

    def write(self, message: bytes, style: str) -> None:
        from wsproto.events import TextMessage

        with self.lock:
            if style == "noise":
                for noise in ("ready.", "[1, 2", "{", " "):
                    self.sock.sendall(self.connection.send(TextMessage(noise)))
            try:
                text = message.decode()
            except UnicodeDecodeError:
                self.sock.sendall(bytes([0x81, len(message)]) + message)  # not over 125 bytes
                return
            pieces = [text] if style != "cut" else [text[at : at + 7] for at in range(0, len(text), 7)]
            for number, piece in enumerate(pieces, 1):
                self.sock.sendall(self.connection.send(TextMessage(piece, message_finished=number == len(pieces))))

    def serve(self, log: Log) -> None:
        from wsproto.events import AcceptConnection, CloseConnection, Ping, Request, TextMessage

        session = Session(log, self)
        texts: list[str] = []
        while True:
            data = self.sock.recv(65536)
            with self.lock:
                self.connection.receive_data(data or None)
                events = list(self.connection.events())
            for event in events:
                if isinstance(event, Request):
                    self.sock.sendall(self.connection.send(AcceptConnection(subprotocol="mcp")))
                elif isinstance(event, TextMessage):
                    texts.append(event.data)
                    if event.message_finished:
                        message, texts = "".join(texts).encode(), []
                        session.receive(message, self)
                elif isinstance(event, Ping | CloseConnection):
                    with self.lock:
                        self.sock.sendall(self.connection.send(event.response()))
                    if isinstance(event, CloseConnection):
                        self.sock.close()
                        return
            if not data:
                self.sock.close()
                return


def speak_websocket(log: Log) -> None:
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)

    def serve(sock: socket.socket) -> None:
        try:
            Socket(sock).serve(log)
        except OSError:
            pass  # the client hung up

    def accept() -> None:
        while True:
            sock, _ = listener.accept()
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=serve, args=(sock,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    print_url(f"ws://127.0.0.1:{listener.getsockname()[1]}/any/path")


def print_url(url: str) -> None:
    print(f"listening on {url}", flush=True)
    sys.stdin.read()  # until the parent process closes it


def main() -> None:
    transport, folder, *opening = sys.argv[1:]
    log = Log(folder)
    for literal in opening:
        sys.stdout.buffer.write(ast.literal_eval(literal))
        sys.stdout.buffer.flush()
    match transport:
        case "stdio":
            speak_stdio(log)
        case "http":
            speak_http(log, "http", "/mcp")
        case "sse":
            speak_http(log, "sse+http", "/sse")
        case "ws":
            speak_websocket(log)


if __name__ == "__main__":
    main()
