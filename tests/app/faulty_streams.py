"""The server of `faulty` over HTTP+SSE and on a WebSocket, in this process."""

from __future__ import annotations

import contextlib
import json
import queue
import socket
import socketserver
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TypeVar

from faulty import answers
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, CloseConnection, Ping, RejectConnection, Request, TextMessage

Reply = AcceptConnection | RejectConnection | TextMessage | Ping | CloseConnection
S = TypeVar("S", "Events", "Sockets")


def replies_to(text: str | bytes, fault: str) -> list[str]:
    """The messages that answer a message, valid or not."""
    try:
        message = json.loads(text)
    except ValueError:
        message = None
    if isinstance(message, dict) and "jsonrpc" in message:
        return [json.dumps(answer) for answer in answers(message, "version" if fault == "on-post" else fault)]
    error = {"code": -32700, "message": "that could not be read"}
    return [json.dumps({"jsonrpc": "2.0", "id": None, "error": error})]


class Events(ThreadingHTTPServer):
    """An HTTP+SSE server with a fault. Besides those of `faulty`: "on-post" answers pings in the reply to the POST,
    and speaks every revision; "elsewhere" names an address of another origin; "nowhere" names none; "falls" ends the
    stream after the first answer."""

    daemon_threads = True
    path = "/sse"

    def __init__(self, fault: str) -> None:
        super().__init__(("127.0.0.1", 0), EventsHandler)
        self.fault = fault
        self.streams: list[queue.Queue[str | None]] = []


class EventsHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Events

    def do_GET(self) -> None:
        stream = queue.Queue[str | None]()
        self.server.streams.append(stream)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        host = "http://example.com" if self.server.fault == "elsewhere" else ""
        if self.server.fault != "nowhere":
            self.event("endpoint", f"{host}/post?{len(self.server.streams) - 1}")
        count = 0
        while (text := stream.get()) is not None and not (self.server.fault == "falls" and count):
            count += 1
            with contextlib.suppress(OSError):
                self.event("message", text)
        self.close_connection = True

    def event(self, name: str, data: str) -> None:
        self.wfile.write(f"event: {name}\ndata: {data}\n\n".encode())

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        path, _, number = self.path.partition("?")
        if path != "/post":
            self.reply(405)
            return
        replies = replies_to(body, self.server.fault)
        is_on_post = self.server.fault == "on-post" and b"ping" in body
        self.reply(202, "\n".join(replies) if is_on_post else "")
        for text in [] if is_on_post else replies:
            self.server.streams[int(number)].put(text)

    def reply(self, status: int, text: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


class Sockets(socketserver.ThreadingTCPServer):
    """A WebSocket server with a fault. Besides those of `faulty`: "refuses" takes no WebSocket; "falls" closes after
    the first answer; "pings" pings before each answer, and cuts it into frames."""

    daemon_threads = True
    allow_reuse_address = True
    path = "/ws"

    def __init__(self, fault: str) -> None:
        super().__init__(("127.0.0.1", 0), SocketHandler)
        self.fault = fault
        self.pongs = 0
        self.subprotocols: set[str] = set()

    @property
    def server_port(self) -> int:
        port = self.server_address[1]
        assert isinstance(port, int)
        return port


class SocketHandler(socketserver.BaseRequestHandler):
    server: Sockets
    request: socket.socket

    def handle(self) -> None:
        wire = WSConnection(ConnectionType.SERVER)
        self.begun = ""
        while data := self.request.recv(65536):
            wire.receive_data(data)
            for event in wire.events():
                for piece in self.replies(event):
                    self.request.sendall(wire.send(piece))
                if isinstance(event, CloseConnection):
                    return

    def replies(self, event: object) -> list[Reply]:
        fault = self.server.fault
        if isinstance(event, Request):
            self.server.subprotocols.update(event.subprotocols)
            return [RejectConnection(status_code=403)] if fault == "refuses" else [AcceptConnection(subprotocol="mcp")]
        if isinstance(event, CloseConnection):
            return [event.response()]
        if not isinstance(event, TextMessage):
            self.server.pongs += 1
            return []
        self.begun += event.data
        if not event.message_finished:
            return []
        messages = [TextMessage(text) for text in replies_to(self.begun, fault)]
        self.begun = ""
        if fault == "falls":
            return [*messages, CloseConnection(1011)]
        if fault != "pings":
            return [*messages]
        cut: list[Reply] = []
        for message in messages:
            cut += [Ping(b"p"), TextMessage(message.data[:5], message_finished=False), TextMessage(message.data[5:])]
        return cut


@contextlib.contextmanager
def serving(server: S) -> Iterator[S]:
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        for stream in server.streams if isinstance(server, Events) else ():
            stream.put(None)
        server.shutdown()
        server.server_close()
        thread.join()
