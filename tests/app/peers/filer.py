"""A small MCP server on stdio whose tools take paths, write to given paths and return given texts."""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgYGBgAAAABQABpfZFQAAAAABJRU5ErkJggg=="
)
OPEN = {"type": "object", "properties": {"path": {"type": "string", "description": "A path."}, "options": {}}}
TOOLS = (
    "see",
    "see_uri",
    "see_deep",
    "write",
    "say",
    "tell",
    "tell_deep",
    "show",
    "read",
    "plain",
    "secret",
    "internal_wipe",
)


def call(name: str, arguments: dict) -> dict:
    if name.startswith("see") or name in ("plain", "secret"):
        return {"content": [{"type": "text", "text": json.dumps(arguments)}], "_meta": {"seen": name}}
    if name == "read":
        return {"content": [{"type": "text", "text": Path(arguments["options"]["deep"][0]).read_text()}]}
    if name == "show":
        image = {"type": "image", "data": base64.b64encode(PIXEL).decode(), "mimeType": "image/png"}
        return {"content": [{"type": "text", "text": "shown"}, image]}
    at = arguments.get("at")
    if at:
        Path(at).parent.mkdir(parents=True, exist_ok=True)
        Path(at).write_text(arguments.get("text", "written"))
    text = arguments.get("say", "done")
    result = {"content": [{"type": "text", "text": text}]}
    if name.startswith("tell"):
        result["structuredContent"] = {"file": {"path": text}}
    return result


def main() -> None:
    for raw in sys.stdin:
        message = json.loads(raw)
        id, method, params = message.get("id"), message.get("method"), message.get("params") or {}
        if id is None:
            continue
        result: dict = {}
        if method == "initialize":
            result = {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}, "resources": {}},
                "serverInfo": {"name": "filer", "version": "1"},
            }
        elif method == "tools/list":
            tool = {"description": "Does it.", "inputSchema": OPEN, "annotations": {"readOnlyHint": True}}
            result = {"tools": [{"name": name, **tool} for name in TOOLS]}
        elif method == "resources/list":
            result = {"resources": [{"uri": "file:///own", "name": "own"}]}
        elif method == "tools/call":
            result = call(params["name"], params.get("arguments") or {})
        print(json.dumps({"jsonrpc": "2.0", "id": id, "result": result}), flush=True)


main()
