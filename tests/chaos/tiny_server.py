"""The least MCP server on stdio, which starts in 20 ms. It returns `text`, and never answers a call of `hang`."""

import json
import sys

for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message or "method" not in message:
        continue
    result = {}
    if message["method"] == "initialize":
        revision = message["params"]["protocolVersion"]
        info = {"name": "tiny", "version": "1"}
        result = {"protocolVersion": revision, "capabilities": {"tools": {}}, "serverInfo": info}
    elif message["method"] == "tools/call":
        if message["params"]["name"] == "hang":
            continue
        result = {"content": [{"type": "text", "text": message["params"]["arguments"]["key"]}]}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
