"""A small MCP server on stdio that records its calls: `recorder.py FILE`. Each line of the file is the number of a call
and the id of the process."""

from __future__ import annotations

import json
import os
import sys

FILE = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
TOOLS = [{"name": "count", "inputSchema": {"type": "object"}}]

for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    result: dict = {}
    if message["method"] == "initialize":
        version = message["params"]["protocolVersion"]
        info = {"name": "recorder", "version": "1"}
        result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
    elif message["method"] == "tools/list":
        result = {"tools": TOOLS}
    elif message["method"] == "tools/call":
        os.write(FILE, b"%d %d\n" % (message["params"]["arguments"]["number"], os.getpid()))
        result = {"content": [{"type": "text", "text": "counted"}]}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
