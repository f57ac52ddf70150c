"""A small MCP server on stdio whose lists are read from a file with each request: `changing.py FILE`.

The file is JSON: tools, prompts, resources and resourceTemplates. With the first request after it has changed, the
server says so before it answers.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

FILE = Path(sys.argv[1])
LISTS = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}


def send(**members: object) -> None:
    print(json.dumps({"jsonrpc": "2.0", **members}), flush=True)


def answer(method: str, params: dict[str, Any], lists: dict[str, Any]) -> dict[str, Any] | None:
    if method == "initialize":
        able = {name: {"listChanged": True} for name in ("tools", "prompts", "resources")}
        info = {"name": "changing", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": able, "serverInfo": info}
    if method in LISTS:
        return {LISTS[method]: lists.get(LISTS[method], [])}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": f"{params['name']} ran"}]}
    if method == "prompts/get":
        return {"messages": []}
    if method == "resources/read":
        return {"contents": [{"uri": params["uri"], "text": "read"}]}
    return None


def main() -> None:
    seen = FILE.read_text()
    for line in sys.stdin:
        message = json.loads(line)
        text = FILE.read_text()
        if text != seen:
            seen = text
            for name in ("tools", "prompts", "resources"):
                send(method=f"notifications/{name}/list_changed")
        if "id" not in message or "method" not in message:
            continue
        result = answer(message["method"], message.get("params", {}), json.loads(text))
        if result is None:
            send(id=message["id"], error={"code": -32601, "message": "no"})
        else:
            send(id=message["id"], result=result)


if __name__ == "__main__":
    main()
