"""An MCP server on stdio for tests, with a tool for each outcome: `well`, `badly` (a result that is an error) and `not`
(an error)."""

from __future__ import annotations

import json
import sys

TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("well", "badly", "not")]


def answer(method: str, params: dict) -> dict:
    if method == "initialize":
        info = {"name": "outcomes", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": params["name"]}], "isError": params["name"] == "badly"}
    return {}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message and "method" in message:
        params = message.get("params", {})
        if params.get("name") == "not":
            made: dict = {"error": {"code": -32001, "message": "it does not"}}
        else:
            made = {"result": answer(message["method"], params)}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **made}), flush=True)
