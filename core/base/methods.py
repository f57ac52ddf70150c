"""Sets of MCP methods that several rules rest on."""

from __future__ import annotations

from typing import Final

LISTEN: Final = "subscriptions/listen"
"""Opens a subscription: it has no response before its end."""

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
        LISTEN,
    }
)
"""Requests that read, or set something to a value: running one twice is the same as once. Tool calls are not among
them: one whose outcome is unknown is never repeated."""

MAY_ASK: Final = frozenset({"tools/call", "prompts/get", "resources/read"})
"""Requests during which a server may send requests to its client. With serial sharing, only one of them runs at a
time."""

HANDSHAKE_NOTIFICATIONS: Final = frozenset(
    {
        "notifications/initialized",
        "notifications/cancelled",
        "notifications/progress",
        "notifications/roots/list_changed",
        "notifications/tasks/status",
    }
)
"""Notifications of clients that only revisions with a handshake have, but for `notifications/cancelled` on a pipe. All
others are a vendor's own."""

CHANGE_NOTIFICATIONS: Final = frozenset(
    {
        "notifications/tools/list_changed",
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
        "notifications/resources/updated",
    }
)
"""Notifications that tell a client to read something again. A waiting one makes an equal one after it superfluous, but
none may be lost. A client without sessions gets them on its subscriptions."""
