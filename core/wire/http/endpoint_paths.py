"""The two paths of each endpoint: `/mcp/ID`, and `/ID/mcp` for clients that expect a path to end in `/mcp` or `/sse`.

A path of the second form stands for the one of the first, and everything that holds there holds here. A path that is
something else wins: `/files/mcp` is an operator page, so a server with the id `files` has `/mcp/files` alone.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote

from .admin_routes import EACH, PATHS

AREAS: Final = frozenset({"mcp", "sse", "ws", "messages"})
FIXED: Final = AREAS | {"upload", "artifacts"} | {parts[0] for parts in PATHS if len(parts) == 2 and parts[1] == EACH}
"""Ids whose endpoints have no second path."""


def usual_path(path: str) -> str:
    """Returns `/mcp/ID` for `/ID/mcp`, and so on; any other path as it is. A slash at the end does not count."""
    parts = path.split("/", 4)
    if not (len(parts) == 3 or (len(parts) == 4 and not parts[3])) or parts[2] not in AREAS or not has_second(parts[1]):
        return path
    return f"/{parts[2]}/{parts[1]}"


def second_path(area: str, id: str) -> str:
    """Returns the path that `usual_path` takes for `/area/id`."""
    return f"/{id}/{area}"


def has_second(id: str) -> bool:
    """True if the endpoints of a server or profile, whose id is percent-encoded or not, have a second path."""
    return bool(id) and unquote(id, errors="replace") not in FIXED
