"""A stdio MCP server that does to files exactly what its arguments say, so that a test decides what it answers.

Every tool does the following, in this order, as far as its arguments say so:

- `write`: a list of {path, text}, `link`: of {path, to}, `fifo`: of paths. All are relative to its folder.
- `output`: a path to write `text` to, or to make a link to `output_link` at.
- `wait_for`: a path. The server waits until there is a file.
- `reply`: the result, sent unchanged.

Without `reply` the result is one text block of JSON with what the server got: `arguments`, the content of every file
that they name under `files`, and its own `pid`, `cwd`, `tmp` and `roots`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import unquote

TOOLS = {
    "by_argument": {"output": {"type": "string"}},
    "by_regex": {},
    "by_usual_regex": {},
    "by_structure": {},
    "embedded": {},
    "required": {},
    "with_content": {},
    "unlisted": {},
    "not_kept": {},
    "plain": {},
    "take_one": {"file": {"type": "string", "description": "A file."}},
    "take_many": {"files": {"type": "array", "items": {"type": "string"}}},
    "take_nested": {"request": {"type": "object", "properties": {"source": {"type": "object"}}}},
    "take_uri": {"uri": {"type": "string"}},
}


def main() -> None:
    server = Server()
    while message := server.read():
        if "method" in message and "id" in message:
            server.answer(message)


class Server:
    def __init__(self) -> None:
        self.roots: list[str] = []
        self._has_roots = False

    def read(self) -> dict[str, Any] | None:
        line = sys.stdin.buffer.readline()
        return json.loads(line) if line else None

    def write(self, message: dict[str, Any]) -> None:
        sys.stdout.buffer.write(json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=False).encode() + b"\n")
        sys.stdout.buffer.flush()

    def answer(self, message: dict[str, Any]) -> None:
        method, params = message["method"], message.get("params", {})
        if method == "initialize":
            self._has_roots = "roots" in params["capabilities"]
            result: dict[str, Any] = {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "echo-files", "version": "1"},
            }
        elif method == "tools/list":
            result = {"tools": [{"name": name, "inputSchema": schema(TOOLS[name])} for name in TOOLS]}
        elif method == "tools/call":
            result = self.act(params.get("arguments") or {})
        else:
            self.write({"id": message["id"], "error": {"code": -32601, "message": f"no method {method}"}})
            return
        self.write({"id": message["id"], "result": result})

    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        for file in arguments.get("write", []):
            put(Path(file["path"]), file["text"])
        for link in arguments.get("link", []):
            os.symlink(link["to"], link["path"])
        for path in arguments.get("fifo", []):
            os.mkfifo(path)
        if isinstance(arguments.get("output"), str) and "text" in arguments:
            put(Path(arguments["output"]), arguments["text"])
        if "output_link" in arguments:
            os.symlink(arguments["output_link"], arguments["output"])
        while "wait_for" in arguments and not os.path.exists(arguments["wait_for"]):
            time.sleep(0.01)
        if "reply" in arguments:
            return dict(arguments["reply"])
        reported = {
            "arguments": arguments,
            "files": {path: Path(path).read_text(errors="replace") for path in paths_in(arguments)},
            "pid": os.getpid(),
            "cwd": os.getcwd(),
            "tmp": os.environ.get("TMPDIR"),
            "roots": self.ask_roots(),
        }
        return {"content": [{"type": "text", "text": json.dumps(reported)}]}

    def ask_roots(self) -> list[str]:
        if self._has_roots and not self.roots:
            self.write({"id": "roots", "method": "roots/list"})
            while (message := self.read()) is not None and message.get("id") != "roots":
                pass  # no call is made while one is open
            self.roots = [root["uri"] for root in (message or {})["result"]["roots"]]
        return self.roots


def schema(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def paths_in(value: object) -> list[str]:
    """Yields every file that the value names by absolute path or URI."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [path for item in value for path in paths_in(item)]
    if not isinstance(value, str):
        return []
    path = unquote(value.removeprefix("file://")) if value.startswith("file://") else value
    return [path] if path.startswith("/") and os.path.isfile(path) else []


if __name__ == "__main__":
    main()
