"""An MCP server on stdio that starts in 20 ms.

Its tools: `echo` returns `text`, `hang` never answers, `die` exits with code 7, `pour` reports progress `count` times
with `size_bytes` each, and writes the number sent so far into `tally`.
"""

import json
import os
import sys


def say(**members):
    print(json.dumps({"jsonrpc": "2.0", **members}), flush=True)


def pour(token, count, size_bytes, tally):
    for number in range(1, count + 1):
        text = "x" * size_bytes
        say(method="notifications/progress", params={"progressToken": token, "progress": number, "message": text})
        with open(tally, "w") as file:
            file.write(str(number))
    return f"poured {count}"


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message or "method" not in message:
        continue
    result = {}
    if message["method"] == "initialize":
        revision = message["params"]["protocolVersion"]
        info = {"name": "blunt", "version": str(os.getpid())}
        result = {"protocolVersion": revision, "capabilities": {"tools": {}}, "serverInfo": info}
    elif message["method"] == "tools/call":
        name, arguments = message["params"]["name"], message["params"]["arguments"]
        if name == "hang":
            continue
        if name == "die":
            sys.exit(7)
        if name == "pour":
            text = pour(message["params"]["_meta"]["progressToken"], **arguments)
        else:
            text = arguments["text"]
        result = {"content": [{"type": "text", "text": text}]}
    say(id=message["id"], result=result)
