"""A small MCP client that makes one call, with one fault, or none: `FAULT URL`, `FAULT sse+URL`, `FAULT ws://…`, or
`FAULT COMMAND ARG…`.

It exits with 1 where its server leaves it nothing else.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

Json = dict[str, Any]
REVISIONS = ("2025-06-18", "2025-11-25")
HELLO = {"protocolVersion": "2025-06-18", "capabilities": {"roots": {}}, "clientInfo": {"name": "f", "version": "1"}}


class Client:
    """The client on any transport. `exchange` sends a request and yields messages until it is answered."""

    def __init__(self, fault: str, send: Callable[[Json], None], exchange: Callable[[Json], Iterator[bytes]]) -> None:
        self.fault = fault
        self.send = send
        self.exchange = exchange
        self.count = 0

    def run(self) -> None:
        hello = {name: value for name, value in HELLO.items() if self.fault != "greeting" or name != "clientInfo"}
        result = self.request("initialize", hello)
        if result.get("protocolVersion") not in REVISIONS:
            sys.exit(1)
        if self.fault != "eager":
            self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        if isinstance(result.get("capabilities"), dict) and "tools" in result["capabilities"]:
            if self.fault.startswith("tasks"):
                self.call_as_task()
            else:
                self.request("tools/call", {"name": "write", "arguments": {}, "_meta": {"progressToken": "p"}})
        if self.fault == "sleepy":
            time.sleep(60)

    def call_as_task(self) -> None:
        task = self.request("tools/call", {"name": "write", "arguments": {}, "task": {"ttl": 60000}})["task"]
        while task["status"] == "working":
            if self.fault != "tasks-hasty":
                time.sleep(task["pollInterval"] / 1000)
            task = self.request("tasks/get", {"taskId": task["taskId"]})
        self.request("tasks/result", {"taskId": task["taskId"]})

    def request(self, method: str, params: Json) -> Json:
        self.count += self.fault != "same"
        request = {"jsonrpc": "2.0", "id": self.count, "method": method, "params": params}
        for line in self.exchange(request):
            try:
                message = json.loads(line)
            except ValueError:
                continue
            if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
                continue
            if "method" in message:
                self.answer(message)
            elif message.get("id") == self.count:
                if not isinstance(message.get("result"), dict):
                    sys.exit(1)
                return dict(message["result"])
        sys.exit(1)

    def answer(self, question: Json) -> None:
        id, method = question.get("id"), question.get("method")
        if not isinstance(id, str | int) or self.fault == "deaf":
            return
        answer: Json = {"jsonrpc": "2.0", "id": id}
        if method in ("ping", "roots/list"):
            answer["result"] = {} if method == "ping" else {"roots": []}
        else:
            answer["error"] = {"code": -32601, "message": "there is no such method"}
        self.send(answer)
        if self.fault == "twice":
            self.send(answer)


def over_pipe(fault: str, command: list[str]) -> None:
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin is not None and server.stdout is not None
        stdin, stdout = server.stdin, server.stdout

        def send(message: Json) -> None:
            stdin.write(json.dumps(message).encode() + b"\n")
            stdin.flush()

        def exchange(request: Json) -> Iterator[bytes]:
            send(request)
            while line := stdout.readline():
                yield line

        Client(fault, send, exchange).run()
        stdin.close()


def over_http(fault: str, url: str) -> None:
    place = urlsplit(url)
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}

    def post(message: Json) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=30)
        connection.request("POST", place.path, json.dumps(message), headers)
        reply = connection.getresponse()
        if reply.status >= 300:
            sys.exit(1)
        return reply

    def exchange(request: Json) -> Iterator[bytes]:
        reply = post(request)
        if request["method"] == "initialize":
            if fault != "forgetful" and (session := reply.getheader("Mcp-Session-Id")):
                headers["Mcp-Session-Id"] = session
            headers["MCP-Protocol-Version"] = HELLO["protocolVersion"] if fault != "old" else "2024-11-05"
        if reply.getheader("Content-Type", "").startswith("text/event-stream"):
            yield from (line[6:] for line in reply if line.startswith(b"data: "))
        else:
            yield reply.read()

    def send(message: Json) -> None:
        post(message).read()

    Client(fault, send, exchange).run()


def over_events(fault: str, url: str) -> None:
    place = urlsplit(url)
    stream = http.client.HTTPConnection(place.hostname or "", place.port, timeout=30)
    stream.request("GET", place.path, headers={"Accept": "text/event-stream"})
    events = stream.getresponse()
    if events.status != 200:
        sys.exit(1)
    address = next(line[6:].strip().decode() for line in events if line.startswith(b"data: "))

    def send(message: Json) -> None:
        connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=30)
        connection.request("POST", address, json.dumps(message), {"Content-Type": "application/json"})
        if connection.getresponse().status >= 300:
            sys.exit(1)

    def exchange(request: Json) -> Iterator[bytes]:
        send(request)
        yield from (line[6:] for line in events if line.startswith(b"data: "))

    Client(fault, send, exchange).run()


def over_socket(fault: str, url: str) -> None:
    """Speaks WebSocket with hand-made frames, as this client starts without packages: short ones, or of 16 bits of
    length."""
    place = urlsplit(url)
    peer = socket.create_connection((place.hostname or "", place.port or 0), 30)
    lines = peer.makefile("rb")
    fields = ("Connection: Upgrade", "Upgrade: websocket", f"Sec-WebSocket-Key: {'A' * 22}==")
    more = ("Sec-WebSocket-Version: 13", "Sec-WebSocket-Protocol: mcp", f"Host: {place.netloc}")
    peer.sendall("\r\n".join((f"GET {place.path} HTTP/1.1", *fields, *more, "", "")).encode())
    if b" 101 " not in lines.readline():
        sys.exit(1)
    while lines.readline().strip():
        pass

    def send(message: Json) -> None:
        text = json.dumps(message).encode()
        is_short = len(text) < 126
        size = struct.pack(">B", 0x80 | len(text)) if is_short else struct.pack(">BH", 0x80 | 126, len(text))
        peer.sendall(b"\x81" + size + bytes(4) + text)  # a mask of zeros changes nothing

    def exchange(request: Json) -> Iterator[bytes]:
        send(request)
        while (head := lines.read(2)) and head[0] == 0x81:
            size = head[1] if head[1] < 126 else int.from_bytes(lines.read(2 if head[1] == 126 else 8), "big")
            yield lines.read(size)

    Client(fault, send, exchange).run()
    with contextlib.suppress(OSError):  # the server has hung up
        peer.sendall(b"\x88\x80" + bytes(4))
        while lines.read(4096):  # RFC 6455, 7.1.1: it is for the server to hang up
            pass


if __name__ == "__main__":
    fault, *target = sys.argv[1:]
    if fault == "over-http":
        over_http(fault, target[0])
    elif target[0].startswith("sse+"):
        over_events(fault, target[0].removeprefix("sse+"))
    elif target[0].startswith("ws://"):
        over_socket(fault, target[0])
    elif target[0].startswith("http://"):
        over_http(fault, target[0])
    else:
        over_pipe(fault, target)
