"""An MCP server on stdio with arguments of each type, a question, an image, a tool that hangs, prompts and resources.

Raw JSON-RPC lines, the standard library only. What cancels a call is written to the file that `SEEN` in the environment
names; so is `hang` when that tool is called.
"""

from __future__ import annotations

import json
import os
import sys

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgYGBgAAAABQABpfZFQAAAAABJRU5ErkJggg=="
BOOK = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "description": "Where to stay."},
        "nights": {"type": "integer", "default": 1},
        "room": {"enum": ["single", "double"]},
    },
    "required": ["city"],
}
TOOLS = [
    {"name": "book", "description": "Books a room. It takes a while.", "inputSchema": BOOK},
    {"name": "ask", "description": "Asks who you are.", "inputSchema": {"type": "object", "properties": {}}},
    {"name": "draw", "inputSchema": {"type": "object"}},
    {"name": "hang", "inputSchema": {"type": "object"}},
]
FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
PROMPTS = [{"name": "greet", "description": "A greeting.", "arguments": [{"name": "guest", "required": True}]}]
RESOURCES = [{"uri": "hotel://rules", "name": "rules"}, {"uri": "hotel://logo", "name": "logo"}]


def send(**members: object) -> None:
    print(json.dumps({"jsonrpc": "2.0", **members}), flush=True)


def see(word: str) -> None:
    with open(os.environ["SEEN"], "a") as file:
        file.write(f"{word}\n")


def text(said: str, **more: object) -> dict:
    return {"content": [{"type": "text", "text": said}], **more}


def call(name: str, arguments: dict, token: object) -> dict | None:
    if name == "draw":
        return {"content": [{"type": "image", "data": PIXEL, "mimeType": "image/png"}]}
    if name == "hang":
        see("hang")
        return None
    if name == "ask":
        send(id="q", method="elicitation/create", params={"message": "Who are you?", "requestedSchema": FORM})
        for line in sys.stdin:
            if (reply := json.loads(line)).get("id") == "q":
                return text(json.dumps(reply["result"]))
    send(method="notifications/progress", params={"progressToken": token, "progress": 1, "total": 2})
    send(method="notifications/message", params={"level": "info", "logger": "desk", "data": "looking"})
    if arguments["city"] == "Atlantis":
        return text("there is no hotel", isError=True)
    return text(json.dumps(arguments))


def answer(method: str, params: dict) -> dict | None:
    if method == "initialize":
        capabilities: dict = {"tools": {}, "prompts": {}, "resources": {}, "logging": {}}
        info = {"name": "hotel", "version": "3"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": capabilities, "serverInfo": info}
    if method == "tools/call":
        return call(params["name"], params.get("arguments", {}), params["_meta"]["progressToken"])
    if method == "prompts/get":
        content = {"type": "text", "text": f"Welcome, {params['arguments']['guest']}!"}
        return {"messages": [{"role": "user", "content": content}]}
    if method == "resources/read":
        uri = params["uri"]
        blob = {"uri": uri, "mimeType": "image/png", "blob": PIXEL}
        return {"contents": [blob if uri == "hotel://logo" else {"uri": uri, "text": "no pets"}]}
    lists = {"tools/list": TOOLS, "prompts/list": PROMPTS, "resources/list": RESOURCES, "resources/templates/list": []}
    key = {"resources/templates/list": "resourceTemplates"}.get(method, method.partition("/")[0])
    return {key: lists[method]} if method in lists else {}


for line in sys.stdin:
    message = json.loads(line)
    if message.get("method") == "notifications/cancelled":
        see("cancelled")
    if "id" in message and "method" in message:
        result = answer(message["method"], message.get("params", {}))
        if result is not None:
            send(id=message["id"], result=result)
