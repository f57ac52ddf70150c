"""A small MCP client that makes one call, with one fault, or none: `FAULT URL`, or `FAULT COMMAND ARG…`.

It exits with 1 where its server leaves it nothing else.
"""

from __future__ import annotations

import http.client
import json
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
    """What is said, whatever carries it: `ask` sends a request and yields what comes until it is answered."""

    def __init__(self, fault: str, send: Callable[[Json], None], hear: Callable[[Json], Iterator[bytes]]) -> None:
        self.fault = fault
        self.send = send
        self.hear = hear
        self.count = 0

    def run(self) -> None:
        hello = {name: value for name, value in HELLO.items() if self.fault != "greeting" or name != "clientInfo"}
        told = self.ask("initialize", hello)
        if told.get("protocolVersion") not in REVISIONS:
            sys.exit(1)
        if self.fault != "eager":
            self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        if isinstance(told.get("capabilities"), dict) and "tools" in told["capabilities"]:
            self.ask("tools/call", {"name": "write", "arguments": {}, "_meta": {"progressToken": "p"}})
        if self.fault == "sleepy":
            time.sleep(60)

    def ask(self, method: str, params: Json) -> Json:
        self.count += self.fault != "same"
        request = {"jsonrpc": "2.0", "id": self.count, "method": method, "params": params}
        for line in self.hear(request):
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

        def hear(request: Json) -> Iterator[bytes]:
            send(request)
            while line := stdout.readline():
                yield line

        Client(fault, send, hear).run()
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

    def hear(request: Json) -> Iterator[bytes]:
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

    Client(fault, send, hear).run()


if __name__ == "__main__":
    fault, *target = sys.argv[1:]
    if target[0].startswith("http://"):
        over_http(fault, target[0])
    else:
        over_pipe(fault, target)
