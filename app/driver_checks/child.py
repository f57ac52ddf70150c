"""A server on stdio for the checks: `child.py FOLDER [deaf|bytes]`. It runs by itself, with the standard library alone.

`deaf` reads nothing more after `initialize`, and `bytes` writes each byte by itself. What happens to it stands in the
file FOLDER/PID, a line for each event. The process ends by itself after `LIFE_S`, whatever a faulty driver does.

Tools: `echo` returns its text, `pid` the process id, `hang` never answers, `exit` ends the process, `torn` ends it
within a line, `long` answers with so many bytes, `late` answers once `count` calls of it have come, the last one first,
and `pour` reports progress `count` times, with so many bytes each.
"""

import json
import os
import sys
import threading
import time
from typing import Any

LIFE_S = 120.0


class Child:
    def __init__(self, folder: str, mode: str) -> None:
        self.mode = mode
        self.log = open(os.path.join(folder, str(os.getpid())), "a", buffering=1)  # noqa: SIM115
        self.late: list[tuple[object, str]] = []

    def say(self, **members: object) -> None:
        line = json.dumps({"jsonrpc": "2.0", **members}, ensure_ascii=False).encode() + b"\n"
        for at in range(0, len(line), 1 if self.mode == "bytes" else len(line)):
            piece = line[at : at + 1] if self.mode == "bytes" else line
            while piece:
                piece = piece[os.write(1, piece) :]
            if self.mode == "bytes":
                time.sleep(0.001)  # so that the reader sees it alone, mostly

    def answer(self, id: object, text: str) -> None:
        self.say(id=id, result={"content": [{"type": "text", "text": text}]})

    def call(self, id: object, name: str, arguments: dict[str, Any], token: object) -> None:
        self.log.write(f"call {name}\n")
        if name == "echo":
            self.answer(id, arguments["text"])
        elif name == "pid":
            self.answer(id, str(os.getpid()))
        elif name == "exit":
            os._exit(7)
        elif name == "torn":
            os.write(1, b'{"jsonrpc":"2.0","id":')
            os._exit(7)
        elif name == "long":
            self.answer(id, "x" * arguments["size"])
        elif name == "pour":
            for number in range(1, arguments["count"] + 1):
                text = "x" * arguments["size"]
                params = {"progressToken": token, "progress": number, "message": text}
                self.say(method="notifications/progress", params=params)
                self.log.write(f"poured {number}\n")
            self.answer(id, f"poured {arguments['count']}")
        elif name == "late":
            self.late.append((id, arguments["text"]))
            if len(self.late) == arguments["count"]:
                while self.late:
                    self.answer(*self.late.pop())

    def receive(self, message: dict[str, Any]) -> None:
        method, id, params = message.get("method"), message.get("id"), message.get("params", {})
        if method == "initialize":
            info = {"name": "child", "version": str(os.getpid())}
            result = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
            self.say(id=id, result=result)
            if self.mode == "deaf":
                self.log.write("deaf\n")
                time.sleep(LIFE_S)
        elif method == "tools/call":
            self.call(id, params["name"], params["arguments"], params.get("_meta", {}).get("progressToken"))
        elif method == "tools/list":
            self.say(id=id, result={"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]})
        elif method == "notifications/cancelled":
            self.log.write("cancelled\n")
        elif method is not None and id is not None:
            self.say(id=id, error={"code": -32601, "message": "the child has no such method"})


def end_after_life() -> None:
    time.sleep(LIFE_S)
    os._exit(1)


def main() -> None:
    child = Child(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "")
    child.log.write("started\n")
    threading.Thread(target=end_after_life, daemon=True).start()
    for line in sys.stdin.buffer:
        child.receive(json.loads(line))
    child.log.write("ended\n")


if __name__ == "__main__":
    main()
