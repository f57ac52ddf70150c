"""An MCP server on stdio that does with files what each call orders, and trusts every root it is given.

Raw JSON-RPC lines, the standard library only, one request at a time. Its tools:

- `act(steps, text, result)`: each step is `[what, …]`, see `do`. The answer is `result`, or else `text` with the
outcomes of the steps: `{0}`, `{1}`, … in either stand for an outcome, and `{cwd}` for the working directory.
- `read(path)`: the content of a file, if the roots it was given allow it.
- `save(path)`: writes "saved" there; `hidden` is one that its operator may want to hide.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from urllib.parse import unquote, urlsplit

TOOLS = [
    {"name": name, "inputSchema": {"type": "object", "properties": {arg: {"type": kind} for arg, kind in args.items()}}}
    for name, args in {
        "act": {"steps": "array", "text": "string", "result": "object"},
        "read": {"path": "string"},
        "save": {"path": "string"},
        "hidden": {"path": "string"},
    }.items()
]
roots: list[str] = []
calls: list[str] = []


def send(**members: object) -> None:
    print(json.dumps({"jsonrpc": "2.0", **members}), flush=True)


def do(what: str, *args: object) -> str:
    path = os.path.join(os.getcwd(), str(args[0])) if args else ""
    match what:
        case "write":
            os.makedirs(os.path.dirname(path), exist_ok=True)
            Path(path).write_text(str(args[1]))
            return path
        case "read":
            return Path(path).read_text()
        case "link":
            os.symlink(str(args[1]), path)
            return path
        case "many":  # a folder of that many files
            os.makedirs(path, exist_ok=True)
            for number in range(int(str(args[1]))):
                with open(f"{path}/{number}.txt", "w") as file:
                    file.write("x")
            return path
        case "deep":  # folders within folders, a file at the bottom
            here = os.getcwd()
            for _ in range(int(str(args[1]))):
                os.mkdir("d")
                os.chdir("d")
            Path("bottom.txt").write_text("x")
            os.chdir(here)
            return path
        case "list":
            return json.dumps(sorted(os.listdir(path)))
        case "wait":  # wait until a file is there
            give_up_at = time.monotonic() + 20
            while not os.path.exists(path) and time.monotonic() < give_up_at:
                time.sleep(0.005)
            return path
        case "count":
            return str(len(calls))
        case "roots":
            return json.dumps(roots)
    raise ValueError(what)


def filled(value: object, results: list[str]) -> object:
    if isinstance(value, str):
        for number, one in enumerate(results):
            value = value.replace(f"{{{number}}}", one)
        return value.replace("{cwd}", os.getcwd())
    if isinstance(value, list):
        return [filled(item, results) for item in value]
    if isinstance(value, dict):
        return {name: filled(item, results) for name, item in value.items()}
    return value


def is_allowed(path: str) -> bool:
    real = os.path.realpath(path)
    return any(root == "/" or real == root or real.startswith(root + "/") for root in map(os.path.realpath, roots))


def call(name: str, arguments: dict) -> dict:
    calls.append(name)
    if name == "read":
        path = arguments["path"]
        if not is_allowed(path):
            return {"content": [{"type": "text", "text": f"{path} is outside of {roots}"}], "isError": True}
        return {"content": [{"type": "text", "text": Path(path).read_text()}]}
    if name in ("save", "hidden"):
        do("write", arguments["path"], "saved")
        return {"content": [{"type": "text", "text": f"Saved to {arguments['path']}"}]}
    results: list[str] = []
    for step in arguments.get("steps", []):
        try:
            results.append(do(*filled(step, results)))
        except OSError as error:
            results.append(f"failed: {error.strerror}")
    if "result" in arguments:
        return filled(arguments["result"], results)
    return {"content": [{"type": "text", "text": filled(arguments.get("text") or json.dumps(results), results)}]}


def answer(method: str, params: dict) -> dict:
    if method == "initialize":
        capabilities = {"tools": {}}
        info = {"name": "puppet", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": capabilities, "serverInfo": info}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        return call(params["name"], params.get("arguments", {}))
    return {}


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("method") == "notifications/initialized":
            send(id="roots", method="roots/list")
        elif message.get("id") == "roots":
            roots[:] = [unquote(urlsplit(root["uri"]).path) for root in message.get("result", {}).get("roots", [])]
        elif "id" in message and "method" in message:
            send(id=message["id"], result=answer(message["method"], message.get("params", {})))


main()
