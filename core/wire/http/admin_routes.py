"""The admin pages: health, metrics, and the servers behind this proxy with their tools, tasks and files, in plain JSON.

`PATHS` is the table of pages. Pages that manage servers, tasks and files are for operators. `Management` says how one
is known without a gate: by a configured token, from anywhere, or by a *local token*, which programs of the same user
can find. A local token counts only in requests of programs on this machine that use a loopback name and no proxy: by a
DNS name of its choosing (DNS rebinding), or through a proxy in front, any client could pass for a local one. To others
the pages then do not exist (404). Being on this machine is not enough, since a browser on it may act for others: for a
web page, or for an agent that reads one. The id of a task or a file can be the only secret that separates its client
from others, so no one but operators may read it here.

A *command* is a request for a page by any method but GET, HEAD and OPTIONS. `check_command` refuses those of web pages
of other origins, even of origins that may use the MCP endpoint.
"""

from __future__ import annotations

import enum
import hashlib
import hmac
from collections.abc import Collection
from typing import Final

import msgspec

from ...access.identity import Identity
from ...base.errors import RemoteProtocolError
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
    CONNECT = "connect"  # where a caller logs in at a server, with a browser
    CONNECTED = "connected"  # where that browser comes back to
    REVOKE = "revoke"  # the credentials of a caller
    STATIC = "static"  # the live page and its files, for a browser
    OVERVIEW = "overview"  # what the live page shows, and how much of it
    EVENTS = "events"  # what has crossed since
    SESSIONS = "sessions"  # of clients
    MESSAGE = "message"  # a message, and what is known of it
    BODY = "body"  # its bytes
    REPLAY = "replay"  # a request, once more


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
    ("connect",): Page.CONNECTED,
    ("connect", EACH): Page.CONNECT,
    ("auth", "revoke"): Page.REVOKE,
    ("ui", "api", "overview"): Page.OVERVIEW,
    ("ui", "api", "events"): Page.EVENTS,
    ("ui", "api", "sessions"): Page.SESSIONS,
    ("ui", "api", "messages", EACH): Page.MESSAGE,
    ("ui", "api", "messages", EACH, "body"): Page.BODY,
    ("ui", "api", "replay"): Page.REPLAY,
    ("mcp", EACH, "tools"): Page.TOOLS,
    ("mcp", EACH, "tools", "call"): Page.CALL,
}
POSTED: Final = frozenset({Page.START, Page.STOP, Page.RESTART, Page.CANCEL, Page.CALL, Page.REVOKE, Page.REPLAY})
"""Pages requested by POST. All others are read by GET or HEAD."""
DELETED: Final = {Page.FILE: Page.DELETE}
"""Pages that accept DELETE as well as GET, and the page for the deletion."""
_SERVERS: Final = frozenset({Page.SERVERS, Page.SERVER, Page.START, Page.STOP, Page.RESTART})
_TASKS: Final = frozenset({Page.TASKS, Page.TASK, Page.CANCEL})
_FILES: Final = frozenset({Page.FILES, Page.FILE, Page.CONTENT, Page.DELETE})
_CROSSED: Final = frozenset({Page.OVERVIEW, Page.EVENTS, Page.SESSIONS, Page.MESSAGE, Page.BODY, Page.REPLAY})
WATCHED: Final = _CROSSED | {Page.STATIC}
"""The pages of the area `ui`, which show what crosses. No page of another site may have them requested."""
MANAGEMENT: Final = _SERVERS | _TASKS | _FILES | _CROSSED | {Page.METRICS, Page.REVOKE}
USE: Final = frozenset({Page.TOOLS, Page.CALL})
"""Pages that use a server as its clients do. They are open to the clients of that server, unless there is a token: a
browser that opens a URL is no client, and would start the server."""

METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
"""The media type of the page METRICS: the text format of Prometheus."""

PROBED: Final = frozenset({Page.HEALTH, Page.READY})
"""Pages that answer whatever the `Host` header is: orchestrators and balancers ask by address, or with no name."""

BROWSED: Final = frozenset({Page.CONNECT, Page.CONNECTED, Page.STATIC})
"""Pages for the browser of a person, which has no token: the link that leads there says whom it is for, or they hold
nothing."""

READING: Final = ("GET", "HEAD", "OPTIONS")
"""Methods that change nothing (RFC 9110, 9.2.1). A request for a page by another one is a command."""
COMMAND_HEADER: Final = b"x-requested-with"
"""The header, of any value, of a command without a JSON body and without a token. Web frameworks and proxies know the
name for this use."""
_OWN_SITES: Final = frozenset({b"none", b"same-origin"})

ADMIN: Final = "admin"
"""The group of the operators, who may see and use the pages of `MANAGEMENT`."""

_FORWARDED: Final = frozenset({b"forwarded", b"via", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip"})
"""Headers by which a proxy in front, perhaps on this machine, shows that it forwards requests of others."""


TOKEN_EXPECTED: Final = "the token of core.management (of isthmus wrap: ISTHMUS_TOKEN)"
ADMIN_EXPECTED: Final = f"that of a caller in the group {ADMIN}"


class Access(enum.Enum):
    GRANTED = "granted"
    HIDDEN = "hidden"  # respond as if the page did not exist
    DENIED = "denied"  # the token is missing or another
    FORBIDDEN = "forbidden"  # the caller is known, and no operator


class Management(msgspec.Struct, frozen=True):
    """The access rule of the pages for operators, for callers whom no gate has identified.

    Without a token, nobody is let in but those whom a gate identifies. `judge` knows no pages, so that a listener with
    pages of its own can use it.

    Attributes:
        token_sha256: the SHA-256 of the token that operators send; None: there is none.
        is_local: only this machine reaches the listener.
        is_local_token: the token counts on this machine alone.
        expected: says to people which token is right, and where they find it.
    """

    token_sha256: bytes | None = None
    is_local: bool = True
    is_local_token: bool = False
    expected: str = ADMIN_EXPECTED

    @classmethod
    def with_token(cls, token: str) -> Management:
        """Returns the rule of a configured token, which operators may send from anywhere."""
        return cls(hashlib.sha256(token.encode()).digest(), expected=TOKEN_EXPECTED)

    @classmethod
    def with_local_token(cls, token: str, expected: str) -> Management:
        """Returns the rule of a token that programs of this user find on this machine."""
        return cls(hashlib.sha256(token.encode()).digest(), is_local_token=True, expected=expected)

    @property
    def is_confined(self) -> bool:
        """True if the pages exist for programs on this machine alone."""
        return self.token_sha256 is None or self.is_local_token

    def is_near(self, headers: Headers, host: str) -> bool:
        """True if a program on this machine sends the request, and no proxy forwards it.

        Args:
            host: the `Host` of the request, port included.
        """
        return self.is_local and is_loopback(host) and not any(name in _FORWARDED for name, _ in headers)

    def judge(self, headers: Headers, host: str) -> Access:
        """Decides whether the sender of a request is an operator: by its token, never by its query."""
        if self.is_confined and not self.is_near(headers, host):
            return Access.HIDDEN
        if self.token_sha256 is None:
            return Access.DENIED
        lines = [value for name, value in headers if name == b"authorization"]
        scheme, _, token = lines[0].partition(b" ") if len(lines) == 1 else (b"", b"", b"")
        digest = hashlib.sha256(token.strip()).digest()
        is_right = hmac.compare_digest(digest, self.token_sha256) and scheme.lower() == b"bearer"
        return Access.GRANTED if is_right else Access.DENIED

    def explain(self, headers: Headers) -> str:
        """Says to a sender who is not let in what was seen and what is right. No token is repeated."""
        lines = [value for name, value in headers if name == b"authorization"]
        seen = "no Authorization header" if not lines else f"{len(lines)} Authorization headers"
        if len(lines) == 1:
            seen = "another token" if lines[0][:7].lower() == b"bearer " else "Authorization without Bearer"
        return f"got {seen}, expected Authorization: Bearer and {self.expected}"


def find_page(path: str) -> tuple[Page, str] | None:
    """Returns the page at a path, and the id in the path as it was written ("" if there is none)."""
    parts = tuple(path[1:].split("/"))
    if parts in PATHS and EACH not in parts:
        return PATHS[parts], ""
    if parts[0] == "ui":
        if parts[1:2] != ("api",):
            return Page.STATIC, "/".join(parts[1:])
        page = PATHS.get((*parts[:3], EACH, *parts[4:])) if len(parts) > 3 and parts[3] else None
        return None if page is None else (page, parts[3])
    page = PATHS.get((parts[0], EACH, *parts[2:])) if len(parts) > 1 and parts[1] else None
    return None if page is None else (page, parts[1])


def access(headers: Headers, host: str, management: Management | None, page: Page) -> Access:
    """Decides whether a caller whom no gate has identified may see a page.

    Args:
        host: the `Host` of the request, port included.
        management: the access rule; None: no access to the pages of `MANAGEMENT`.
    """
    if management is None:
        return Access.HIDDEN if page in MANAGEMENT else Access.GRANTED
    if page not in MANAGEMENT and (page not in USE or management.token_sha256 is None):
        return Access.GRANTED
    if page is Page.METRICS and management.is_confined and management.is_near(headers, host):
        return Access.GRANTED  # scrapers have no token, and metrics have no payload
    return management.judge(headers, host)


def access_of(identity: Identity, management: Management | None, page: Page) -> Access:
    """Decides whether a caller that the gate has identified may see a page."""
    if page not in MANAGEMENT:
        return Access.GRANTED
    if management is None:
        return Access.HIDDEN
    return Access.GRANTED if ADMIN in identity.groups else Access.FORBIDDEN


def check_command(headers: Headers, own_origins: Collection[str]) -> None:
    """Refuses a command (403) that a web page of another origin may have sent.

    Browsers mark the requests of pages with `Origin` and `Sec-Fetch-Site`. Where one of them is missing, the required
    headers decide: a form cannot set them, nor can a script of another origin whose preflight is refused. The caller
    refuses a `Content-Type` other than JSON.

    Args:
        own_origins: the origins of this listener, in lower case: by the `Host` of the request, and its public URL.

    Source: W3C Fetch Metadata, "Sec-Fetch-Site"; WHATWG Fetch, "CORS-safelisted request-header".
    """
    is_marked = False
    for name, value in headers:
        if name == b"origin" and (seen := value.decode("latin-1")).lower() not in own_origins:
            right = " or ".join(sorted(own_origins))
            raise _foreign(f"got Origin {seen[:200]!r}, expected none or {right}")
        if name == b"sec-fetch-site" and value.lower() not in _OWN_SITES:
            seen = value[:32].decode("latin-1")
            raise _foreign(f"got Sec-Fetch-Site {seen!r}, expected none or same-origin")
        is_token = name == b"authorization" and value[:7].lower() == b"bearer "
        is_marked |= is_token or name in (COMMAND_HEADER, b"content-type")
    if not is_marked:
        raise _foreign(
            "got none of the headers X-Requested-With, Content-Type: application/json and Authorization: Bearer, "
            "expected one, as with curl -H 'X-Requested-With: curl'"
        )


def _foreign(message: str) -> RemoteProtocolError:
    return RemoteProtocolError(f"{message}: web pages of other origins may not use this page", http_status=403)


def check_site(headers: Headers) -> None:
    """Refuses a request (403) that a browser marks as coming from a page of another origin, for whatever purpose.

    Source: W3C Fetch Metadata, "Sec-Fetch-Site".
    """
    for name, value in headers:
        if name == b"sec-fetch-site" and value.lower() not in _OWN_SITES:
            raise _foreign(f"got Sec-Fetch-Site {value[:32].decode('latin-1')!r}, expected none or same-origin")


def is_of_another_site(headers: Headers) -> bool:
    """True if a browser marks the request as coming from a page of another site. Such a request may lack an `Origin`.

    Source: W3C Fetch Metadata, "Sec-Fetch-Site".
    """
    return any(name == b"sec-fetch-site" and value.lower() == b"cross-site" for name, value in headers)
