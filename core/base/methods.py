"""Sets of MCP methods that several rules rest on."""

from __future__ import annotations

from typing import Final

SAFE_TO_REPEAT: Final = frozenset(
    {
        "tools/list",
        "prompts/list",
        "prompts/get",
        "resources/list",
        "resources/templates/list",
        "resources/read",
        "resources/subscribe",
        "resources/unsubscribe",
        "completion/complete",
        "logging/setLevel",
    }
)
"""Requests that read, or set something to a value: running one twice is the same as once. A tool call is not among
them: one whose fate is unknown is never repeated."""

MAY_ASK: Final = frozenset({"tools/call", "prompts/get", "resources/read"})
"""Requests in the course of which servers ask their client; with serial sharing, one of them is under way at a time."""
