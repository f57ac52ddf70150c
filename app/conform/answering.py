"""What a client without capabilities answers to a server's questions."""

from __future__ import annotations

from .steps import Json


def answer_to(message: Json) -> Json | None:
    """None for what is no request with an id that can be answered."""
    id = message.get("id")
    if not isinstance(message.get("method"), str) or isinstance(id, bool) or not isinstance(id, str | int):
        return None
    if message["method"] == "ping":
        return {"jsonrpc": "2.0", "id": id, "result": {}}
    return {"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "this client has no such method"}}
