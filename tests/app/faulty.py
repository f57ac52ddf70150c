"""A small MCP server on stdio with one fault, or none: `faulty.py [FAULT [FILE]]`; FILE appears when its tool runs."""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

Json = dict[str, Any]
REVISION = "2025-06-18"
TOOL = {"name": "write", "inputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}}


def answers(message: Json, fault: str, mark: str | None = None) -> list[Json]:
    """The messages that answer one message."""
    id, method = message.get("id"), message.get("method")
    if not isinstance(method, str):
        return []
    if id is None:
        return []
    result: Json | None = {}
    if method == "initialize":
        version = message["params"]["protocolVersion"]
        revision = version if fault == "version" else REVISION
        result = {
            "protocolVersion": revision,
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "f", "version": "1"},
        }
        if fault == "greeting":
            del result["capabilities"]
    elif method == "tools/list":
        result = {"tools": [TOOL]}
    elif method == "tools/call" and message.get("params", {}).get("name") == "write":
        if mark is not None:
            if fault == "terminates" and os.path.exists(mark):
                os.kill(os.getppid(), signal.SIGTERM)
            with open(mark, "w") as file:
                file.write("called")
        result = {"content": []}
    elif method != "ping":
        result = None
    if fault == "deaf" and method not in ("initialize", "ping", "tools/list"):
        return []
    if fault == "strings" and isinstance(id, str) and method == "ping":
        id = 0
    if result is None:
        code: object = "none" if fault == "code" else -32601
        return [{"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": "there is no such thing"}}]
    answer = {"jsonrpc": "2.0", "id": id, "result": result}
    return [answer, answer] if fault == "twice" and method == "tools/call" else [answer]


def serve_stdio() -> None:
    fault = sys.argv[1] if len(sys.argv) > 1 else ""
    mark = sys.argv[2] if len(sys.argv) > 2 else None
    for line in sys.stdin.buffer:
        try:
            message = json.loads(line)
        except ValueError:
            if fault == "fragile":
                return
            message = None
        if fault in ("chatty", "terminates"):
            print("received a line", flush=True)
        if not isinstance(message, dict) or "jsonrpc" not in message:
            error = {"code": -32700, "message": "that could not be read"}
            print(json.dumps({"jsonrpc": "2.0", "id": None, "error": error}), flush=True)
            continue
        for answer in answers(message, fault, mark):
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    serve_stdio()
