"""A small MCP server on stdio: each call of its tool `ring` is announced as a change of its tools before the answer."""

from __future__ import annotations

import json
import sys

TOOLS = [{"name": "ring", "inputSchema": {"type": "object"}}]


def send(**members: object) -> None:
    print(json.dumps({"jsonrpc": "2.0", **members}), flush=True)


def answer(method: str, params: dict) -> dict:
    if method == "initialize":
        capabilities, info = {"tools": {"listChanged": True}}, {"name": "bell", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": capabilities, "serverInfo": info}
    if method == "tools/call":
        send(method="notifications/tools/list_changed")
        return {"content": [{"type": "text", "text": "ding"}]}
    return {"tools": TOOLS} if method == "tools/list" else {}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message and "method" in message:
        send(id=message["id"], result=answer(message["method"], message.get("params", {})))
