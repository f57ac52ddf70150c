"""The upstream of `isthmus demo`: a small MCP server on stdio that thinks in local paths, as many real ones do.

It knows nothing of the proxy: one tool opens a path it is given, the other writes to a path it is given.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

PATH = {"type": "string", "description": "A path on this machine."}
TOOLS = [
    {
        "name": "count_words",
        "description": "Counts the words of a text file.",
        "inputSchema": {"type": "object", "properties": {"path": PATH}, "required": ["path"]},
    },
    {
        "name": "write_report",
        "description": "Writes a report about a text file to a file.",
        "inputSchema": {
            "type": "object",
            "properties": {"path": PATH, "output": PATH},
            "required": ["path", "output"],
        },
    },
]


def main() -> None:
    for line in sys.stdin.buffer:
        message = msgspec.json.decode(line)
        if "id" in message and "method" in message:
            reply = {"jsonrpc": "2.0", "id": message["id"], **_answer(message["method"], message.get("params", {}))}
            sys.stdout.buffer.write(msgspec.json.encode(reply) + b"\n")
            sys.stdout.buffer.flush()


def _answer(method: str, params: dict[str, object]) -> dict[str, object]:
    if method == "initialize":
        info = {"name": "demo-server", "version": "1.0"}
        result = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
        return {"result": result}
    if method == "tools/list":
        return {"result": {"tools": TOOLS}}
    if method == "tools/call":
        return {"result": _call(str(params["name"]), params["arguments"])}
    return {"error": {"code": -32601, "message": f"Method not found: {method}"}}


def _call(name: str, arguments: object) -> dict[str, object]:
    assert isinstance(arguments, dict)
    path = Path(arguments["path"])
    print(f"called: {name} {arguments}", file=sys.stderr, flush=True)
    try:
        words = path.read_text().split()
    except OSError as error:
        return {"content": [{"type": "text", "text": f"cannot open {path}: {error.strerror}"}], "isError": True}
    text = f"{path.name} has {len(words)} words"
    if name == "write_report":
        Path(arguments["output"]).write_text(f"# Report\n\n{text}, the longest is {max(words, key=len)!r}.\n")
        text = f"report written to {arguments['output']}"
    return {"content": [{"type": "text", "text": text}]}


if __name__ == "__main__":
    main()
