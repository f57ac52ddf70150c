"""A small MCP server on stdio whose tools and results have every member that there can be.

Started as `curious.py [REFUSAL]`; with a refusal it answers `initialize` with that error message.
"""

from __future__ import annotations

import json
import sys

SCHEMA = {"type": "object", "properties": {"deep": {"type": "object", "properties": {"n": {"type": "integer"}}}}}
PAGES = {
    None: (
        [
            {
                "name": "mirror",
                "title": "Mirror",
                "description": "Says what it hears.",
                "inputSchema": SCHEMA,
                "outputSchema": {"type": "object"},
                "annotations": {"readOnlyHint": True},
                "icons": [{"src": "data:,"}],
                "_meta": {"vendor/x": 1},
            },
            {"name": "fall", "inputSchema": True},
        ],
        "page two",
    ),
    "page two": ([{"name": "err", "inputSchema": None}, {"name": "ask", "inputSchema": ["odd"]}], None),
}


def write(line: str) -> None:
    print(line, flush=True)


def send(**members: object) -> None:
    write(json.dumps({"jsonrpc": "2.0", **members}))


def call(id: object, params: dict, raw: str) -> None:
    name = params["name"]
    if name == "mirror":
        arguments = raw.partition('"arguments":')[2].rstrip()[:-2]  # arguments come last, as they were written
        content = '[{"type":"resource_link","uri":"x:y","name":"n","_meta":{"k":1.50}}]'
        write(
            f'{{"jsonrpc":"2.0","id":{id},"result":{{"content":{content},"structuredContent":{arguments},'
            '"isError":false,"_meta":{"big":123456789012345678901234567890}}}'
        )
    elif name == "fall":
        send(id=id, error={"code": -32042, "message": "it fell", "data": {"height_m": 3}})
    elif name == "err":
        send(id=id, result={"content": [{"type": "text", "text": "no"}], "isError": True})
    else:
        send(id="q", method="roots/list")
        answer = json.loads(sys.stdin.readline())
        send(id=id, result={"content": [], "structuredContent": {"error": answer["error"]["code"]}})


def main() -> None:
    for raw in sys.stdin:
        message = json.loads(raw)
        id, method, params = message.get("id"), message.get("method"), message.get("params") or {}
        if method == "initialize" and len(sys.argv) > 1:
            send(id=id, error={"code": -32000, "message": sys.argv[1]})
        elif method == "initialize":
            info = {"name": "curious", "version": "1"}
            result = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
            send(id=id, result=result)
        elif method == "tools/list":
            tools, following = PAGES[params.get("cursor")]
            send(id=id, result={"tools": tools, **({"nextCursor": following} if following else {})})
        elif method == "tools/call":
            call(id, params, raw)
        elif id is not None:
            send(id=id, result={})


main()
