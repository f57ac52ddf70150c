"""The server of `isthmus demo`: a small MCP server on stdio that works with local paths, as many real ones do.

The server knows nothing of the proxy: one tool opens a path that it is given, the other writes to such a path.
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
        return {"result": _call(str(params.get("name")), params.get("arguments"))}
    return {"error": {"code": -32601, "message": f"Method not found: {method}"}}


def _call(name: str, arguments: object) -> dict[str, object]:
    print(f"called: {name} {arguments}", file=sys.stderr, flush=True)
    if name not in (tool["name"] for tool in TOOLS):
        return _content(f"there is no tool {name}, expected count_words or write_report", is_error=True)
    try:
        text = _run(name, msgspec.convert(arguments, dict[str, str]))
    except msgspec.ValidationError:
        return _content("got other arguments than this tool takes, expected paths as text", is_error=True)
    except KeyError as error:
        return _content(f"got no argument {error}, expected a path", is_error=True)
    except UnicodeDecodeError:
        return _content("got a file that is not UTF-8 text, expected text", is_error=True)
    except OSError as error:
        return _content(f"cannot open {error.filename}: {error.strerror}", is_error=True)
    return _content(text)


def _run(name: str, arguments: dict[str, str]) -> str:
    path = Path(arguments["path"])
    words = path.read_text(encoding="utf-8").split()
    text = f"{path.name} has {len(words)} words"
    if name == "write_report":
        output = Path(arguments["output"])
        longest = max(words, key=len, default="")
        output.write_text(f"# Report\n\n{text}, the longest is {longest!r}.\n", encoding="utf-8")
        text = f"report written to {output}"
    return text


def _content(text: str, *, is_error: bool = False) -> dict[str, object]:
    return {"content": [{"type": "text", "text": text}], **({"isError": True} if is_error else {})}


if __name__ == "__main__":
    main()
