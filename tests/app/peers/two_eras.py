"""A stdio server that knows one era or both, as its arguments say; the first request to a process decides its era."""

from __future__ import annotations

import json
import sys
from typing import Any

ERAS = sys.argv[1:]
INFO = {"name": "two-eras", "version": "1"}
TOOLS = {"tools": {"listChanged": True}}
STATELESS: dict[str, Any] = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
PREFIX = "io.modelcontextprotocol"


def answer(method: str, era: str) -> dict[str, Any] | None:
    if method == "initialize" and era == "handshake":
        return {"protocolVersion": "2025-06-18", "capabilities": {**TOOLS, "logging": {}}, "serverInfo": INFO}
    if method == "server/discover" and era == "stateless":
        meta = {f"{PREFIX}/serverInfo": INFO}
        capabilities = {**TOOLS, "completions": {}}
        return {**STATELESS, "supportedVersions": ["2026-07-28"], "capabilities": capabilities, "_meta": meta}
    if method == "tools/list":
        return {"tools": []} | (STATELESS if era == "stateless" else {})
    return None


chosen = ""
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    era = "stateless" if f"{PREFIX}/protocolVersion" in message.get("params", {}).get("_meta", {}) else "handshake"
    result = answer(message["method"], era) if era in ERAS and chosen in ("", era) else None
    if result is not None:
        chosen = era
    outcome = {"error": {"code": -32601, "message": "unknown method"}} if result is None else {"result": result}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **outcome}), flush=True)
