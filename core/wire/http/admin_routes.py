"""The admin pages: health, metrics, and the servers behind this proxy with their tools, tasks and files, in plain JSON.

`PATHS` is the table of pages. Pages that manage servers, tasks and files are for operators. With a token configured,
they are open to any client that sends it, and others get a 401. Without one, they are open only to programs on this
machine that use a loopback name and no proxy: by a DNS name of its choosing (DNS rebinding), or through a proxy in
front, any client could pass for a local one. To others the pages then do not exist (404). The id of a task or a file
can be the only secret that separates its client from others, so no one but operators may read it here.
"""

from __future__ import annotations

import enum
import hashlib
import hmac
from typing import Final

import msgspec

from ..headers import Headers
from .origin import is_loopback


class Page(enum.Enum):
    HEALTH = "health"  # the process runs
    READY = "ready"  # the required servers run too
    INFO = "info"  # name and version
    SERVERS = "servers"  # the state of every server
    SERVER = "server"
    START = "start"
    STOP = "stop"
    RESTART = "restart"
    TOOLS = "tools"  # the tools of a server
    CALL = "call"  # a call of a tool
    TASKS = "tasks"  # of all servers
    TASK = "task"
    CANCEL = "cancel"  # a task
    FILES = "files"  # uploads and artifacts of all servers
    FILE = "file"
    CONTENT = "content"  # of a file
    DELETE = "delete"  # a file
    METRICS = "metrics"  # metrics for Prometheus


EACH: Final = "*"
"""Stands for the id of a server, of a task, or of a file."""

PATHS: Final[dict[tuple[str, ...], Page]] = {
    ("health",): Page.HEALTH,
    ("healthz",): Page.HEALTH,
    ("readyz",): Page.READY,
    ("info",): Page.INFO,
    ("servers",): Page.SERVERS,
    ("servers", EACH): Page.SERVER,
    ("servers", EACH, "status"): Page.SERVER,
    ("servers", EACH, "start"): Page.START,
    ("servers", EACH, "stop"): Page.STOP,
    ("servers", EACH, "restart"): Page.RESTART,
    ("tasks",): Page.TASKS,
    ("tasks", EACH): Page.TASK,
    ("tasks", EACH, "cancel"): Page.CANCEL,
    ("files",): Page.FILES,
    ("files", EACH): Page.FILE,
    ("files", EACH, "content"): Page.CONTENT,
    ("metrics",): Page.METRICS,
    ("mcp", EACH, "tools"): Page.TOOLS,
    ("mcp", EACH, "tools", "call"): Page.CALL,
}
POSTED: Final = frozenset({Page.START, Page.STOP, Page.RESTART, Page.CANCEL, Page.CALL})
"""Pages requested by POST. All others are read by GET or HEAD."""
DELETED: Final = {Page.FILE: Page.DELETE}
"""Pages that accept DELETE as well as GET, and the page for the deletion."""
_SERVERS: Final = frozenset({Page.SERVERS, Page.SERVER, Page.START, Page.STOP, Page.RESTART})
_TASKS: Final = frozenset({Page.TASKS, Page.TASK, Page.CANCEL})
_FILES: Final = frozenset({Page.FILES, Page.FILE, Page.CONTENT, Page.DELETE})
MANAGEMENT: Final = _SERVERS | _TASKS | _FILES | {Page.METRICS}
USE: Final = frozenset({Page.TOOLS, Page.CALL})
"""Pages that use a server as its clients do. They are open to the clients of that server."""

_FORWARDED: Final = frozenset({b"forwarded", b"via", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip"})
"""Headers by which a proxy in front, perhaps on this machine, shows that it forwards requests of others."""


class Management(msgspec.Struct, frozen=True):
    """The access rule of the pages that manage servers, tasks and files.

    Attributes:
        token_sha256: the SHA-256 of the token that operators send; None: no token, and access from this machine only.
    """

    token_sha256: bytes | None = None

    @classmethod
    def with_token(cls, token: str) -> Management:
        return cls(hashlib.sha256(token.encode()).digest())


class Access(enum.Enum):
    GRANTED = "granted"
    HIDDEN = "hidden"  # respond as if the page did not exist
    DENIED = "denied"  # the token is missing or another


def find_page(path: str) -> tuple[Page, str] | None:
    """Returns the page at a path, and the id in the path as it was written ("" if there is none)."""
    parts = tuple(path[1:].split("/"))
    if parts in PATHS and EACH not in parts:
        return PATHS[parts], ""
    page = PATHS.get((parts[0], EACH, *parts[2:])) if len(parts) > 1 and parts[1] else None
    return None if page is None else (page, parts[1])


def access(headers: Headers, host: str, management: Management | None) -> Access:
    """Decides whether a request may see the pages of `MANAGEMENT`.

    Args:
        host: the `Host` of the request, port included.
        management: the access rule; None: no access.
    """
    if management is None:
        return Access.HIDDEN
    if management.token_sha256 is None:
        is_forwarded = any(name in _FORWARDED for name, _ in headers)
        return Access.GRANTED if is_loopback(host) and not is_forwarded else Access.HIDDEN
    lines = [value for name, value in headers if name == b"authorization"]
    scheme, _, token = lines[0].partition(b" ") if len(lines) == 1 else (b"", b"", b"")
    digest = hashlib.sha256(token.strip()).digest()
    is_right = hmac.compare_digest(digest, management.token_sha256) and scheme.lower() == b"bearer"
    return Access.GRANTED if is_right else Access.DENIED


def is_of_another_site(headers: Headers) -> bool:
    """True if a browser marks the request as coming from a page of another site. Such a request may lack an `Origin`.

    Source: W3C Fetch Metadata, "Sec-Fetch-Site".
    """
    return any(name == b"sec-fetch-site" and value.lower() == b"cross-site" for name, value in headers)
