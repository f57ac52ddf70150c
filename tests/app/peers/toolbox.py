"""A small MCP server on stdio for tests: raw JSON-RPC lines, the standard library only, one request at a time.

Started as `toolbox.py [NAME]`. Its tools return facts about their process, take their time, or misbehave.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

NAME = sys.argv[1] if len(sys.argv) > 1 else "toolbox"
TOOLS = ("echo", "ask", "progress", "wait", "environment", "die")
SCHEMAS = {name: {"type": "object"} for name in TOOLS}  # schemas without properties, except for this one:
SCHEMAS["echo"]["properties"] = {"text": {"type": "string"}}


def send(**members: object) -> None:
    print(json.dumps({"jsonrpc": "2.0", **members}), flush=True)


def receive() -> dict:
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    return json.loads(line)


def call(name: str, arguments: dict, meta: dict) -> str:
    if name == "ask":
        send(id="q1", method="sampling/createMessage", params={"messages": [], "maxTokens": 5})
        while (answer := receive()).get("id") != "q1":
            pass
        return answer["result"]["content"]["text"]
    if name == "progress":
        more = {"message": "x" * arguments["size"]} if "size" in arguments else {}
        for step in range(1, arguments.get("steps", 2) + 1):
            params = {"progressToken": meta["progressToken"], "progress": step, **more}
            send(method="notifications/progress", params=params)
        return "done"
    if name == "wait":
        Path(arguments["started"]).touch()
        give_up_at = time.monotonic() + 30
        while not Path(arguments["until"]).exists() and time.monotonic() < give_up_at:
            time.sleep(0.01)
        return "waited"
    if name == "environment":
        return json.dumps({"pid": os.getpid(), "cwd": os.getcwd(), "names": sorted(os.environ)})
    if name == "die":
        print("the toolbox fell down the stairs", file=sys.stderr, flush=True)
        sys.exit(3)
    return f"{NAME} says {arguments.get('text')}"


def answer(method: str, params: dict) -> dict:
    if method == "initialize":
        info = {"name": NAME, "version": "1.2"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": [{"name": name, "inputSchema": SCHEMAS[name]} for name in TOOLS]}
    if method == "tools/call":
        text = call(params["name"], params.get("arguments", {}), params.get("_meta", {}))
        return {"content": [{"type": "text", "text": text}]}
    return {}


def main() -> None:
    print(f"{NAME} is up", file=sys.stderr, flush=True)
    while True:
        message = receive()
        if "id" in message and "method" in message:
            send(id=message["id"], result=answer(message["method"], message.get("params", {})))


main()
