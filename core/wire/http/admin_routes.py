"""The pages beside the protocol: health, the servers behind this proxy, their tools, tasks and files, in plain JSON,
and what can be counted.

Which pages there are is a table. Those that look after servers, tasks and files are for operators: with a token for
whoever shows it, and without one only for programs on this machine that reach it by a loopback name, since a name of
another page's choosing, or a proxy in front, would make anybody one of these. To everyone else they are not there. The
name of a task or of a file is a secret, where nothing else tells its client from others: nobody else may read it here.
"""

from __future__ import annotations

import enum
import hashlib
import hmac
from typing import Final

import msgspec

from ..headers import Headers, is_loopback


class Page(enum.Enum):
    HEALTH = "health"  # the process runs
    READY = "ready"  # and so do its servers, as far as they are needed
    INFO = "info"  # what this is
    SERVERS = "servers"  # how every server fares
    SERVER = "server"
    START = "start"
    STOP = "stop"
    RESTART = "restart"
    TOOLS = "tools"  # a server's tools
    CALL = "call"  # of one of them
    TASKS = "tasks"  # of all servers
    TASK = "task"
    CANCEL = "cancel"  # a task
    FILES = "files"  # uploads and artifacts of all servers
    FILE = "file"
    CONTENT = "content"  # of a file
    DELETE = "delete"  # a file
    METRICS = "metrics"  # all this as numbers, for Prometheus


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
"""All others are read."""
DELETED: Final = {Page.FILE: Page.DELETE}
"""What can be deleted where it is read, and the page of that."""
_SERVERS: Final = frozenset({Page.SERVERS, Page.SERVER, Page.START, Page.STOP, Page.RESTART})
_TASKS: Final = frozenset({Page.TASKS, Page.TASK, Page.CANCEL})
_FILES: Final = frozenset({Page.FILES, Page.FILE, Page.CONTENT, Page.DELETE})
MANAGEMENT: Final = _SERVERS | _TASKS | _FILES | {Page.METRICS}
USE: Final = frozenset({Page.TOOLS, Page.CALL})
"""These use a server as its clients do, and are whose clients' it is."""

_FORWARDED: Final = frozenset({b"forwarded", b"via", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip"})
"""Who stands in front of us, on this machine perhaps, says in one of these that it speaks for others."""


class Management(msgspec.Struct, frozen=True):
    """Who may look after servers, tasks and files.

    Attributes:
        token_sha256: the digest of the secret that operators show; None: none is needed, on this machine.
    """

    token_sha256: bytes | None = None

    @classmethod
    def with_token(cls, token: str) -> Management:
        return cls(hashlib.sha256(token.encode()).digest())


class Access(enum.Enum):
    GRANTED = "granted"
    HIDDEN = "hidden"  # as if there were nothing
    DENIED = "denied"  # without the token, or with another one


def find_page(path: str) -> tuple[Page, str] | None:
    """The page at a path, and the id in it as it was written ("" if there is none)."""
    parts = tuple(path[1:].split("/"))
    if parts in PATHS and EACH not in parts:
        return PATHS[parts], ""
    page = PATHS.get((parts[0], EACH, *parts[2:])) if len(parts) > 1 and parts[1] else None
    return None if page is None else (page, parts[1])


def access(headers: Headers, host: str, management: Management | None) -> Access:
    """Whether a request may see the pages of `MANAGEMENT`.

    Args:
        host: the Host it named, port included.
        management: None if nobody may.
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
    """Whether a browser says that it asks for a page of another site: such a request need not have an Origin.

    Source: W3C Fetch Metadata, "Sec-Fetch-Site".
    """
    return any(name == b"sec-fetch-site" and value.lower() == b"cross-site" for name, value in headers)
