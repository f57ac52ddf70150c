"""The value types of HTTP routing: the head of a request, what a listener serves, and the routes to it."""

from __future__ import annotations

from typing import Final

import msgspec

from ...access.identity import ANONYMOUS, Identity
from ...access.issuer_answers import Wanted
from ...base.errors import LocalProtocolError
from ...base.events import (
    DeleteOpening,
    DownloadOpening,
    DraftOpening,
    EventPipeOpening,
    GetOpening,
    MessageOpening,
    PipeOpening,
    PostOpening,
    UploadOpening,
)
from ...base.plan import AccessRules
from ...base.setting_names import KEYS, SettingNames
from ..headers import Headers
from ..websocket import Upgrade
from .admin_routes import POSTED, Management, Page
from .forwarded_for import TrustedProxies
from .header_forwarding import ForwardedNames
from .reverse_proxy_target import ForwardTarget


class Head(msgspec.Struct, frozen=True):
    """A request line and its headers: `target` as it was sent, names in lower case, values without leading or trailing
    blanks.

    Attributes:
        target: path and query (`raw_path` and `query_string` of ASGI).
        headers: pairs of bytes.
        root: the path at which this application is mounted, without a slash at the end (`root_path` of ASGI,
            `SCRIPT_NAME` of WSGI). `target` may begin with it or not.
    """

    method: str
    target: str
    headers: Headers
    version: str = "1.1"
    root: str = ""


AREAS: Final = frozenset({"mcp", "sse", "messages", "ws", "upload", "artifacts", "pages", "ui"})
"""The first parts of paths, and `pages` for all that `admin_routes` knows, besides those of `ui`."""


class Surface(msgspec.Struct, frozen=True):
    """The servers and pages of an HTTP listener, and the names under which they may be reached.

    Attributes:
        servers: the ids under `/mcp`, `/ws`, `/upload` and `/artifacts`: `/mcp/ID`, and for a single one `/mcp`, too.
        hosts: acceptable hosts, lower case, without port, IPv6 in brackets. The caller includes the loopback names:
            `localhost`, `127.0.0.1` and `[::1]`.
        origins: acceptable Origins besides those whose host is in `hosts`: `scheme://host[:port]`, lower case.
        any_host: every well-formed Host is acceptable. Origins are checked all the same.
        public_origin: the origin of the URL that clients use, in lower case, if a reverse proxy in front has another.
        prefix: the path prefix that clients use, if a reverse proxy in front strips one.
        management: the access rule of the admin pages; None: no access.
        passes: for each server, the request headers that are forwarded to it.
        required: for each server, the headers that every request for it must have.
        reads_traces: openings have the trace context of their requests.
        areas: those of `AREAS` that are served: `mcp` (Streamable HTTP), `sse` and `messages` (HTTP+SSE), `ws`,
            `upload`, `artifacts`, `pages`, and `ui` (the live page). Paths in others do not exist.

    Raises:
        LocalProtocolError: an area that there is not, a host with a port or in upper case, or a text in place of a set.
    """

    servers: tuple[str, ...]
    hosts: frozenset[str]
    origins: frozenset[str]
    any_host: bool = False
    public_origin: str = ""
    prefix: str = ""
    transparent: dict[str, ForwardTarget] = {}
    """The transparent servers, whose requests are forwarded unread, and their targets."""
    management: Management | None = None
    passes: dict[str, ForwardedNames] = {}
    upload_size_max_bytes: int | None = None
    """The largest file that is announced to clients; None: no limit is announced."""
    required: dict[str, tuple[str, ...]] = {}
    areas: frozenset[str] = AREAS - {"ui"}
    access: dict[str, AccessRules] = {}
    """The access rules of servers. A server whose rule names groups does not exist for callers in none of them."""
    profiles: dict[str, tuple[str, ...]] = {}
    """The servers of each profile, by its id. A profile has endpoints of its own, as a server has them."""
    default: str = ""
    """The id of the profile at `/mcp`, `/sse` and `/ws`; "": the only server is there, if there is one only."""
    aliases: dict[str, str] = {}
    """Further paths, without a slash at the end, and the path that each stands for."""
    names: SettingNames = KEYS
    """The names of settings in refusals."""
    trusted_proxies: TrustedProxies = TrustedProxies()
    """The proxies in front that say which address a request came from."""
    reads_traces: bool = False

    def __post_init__(self) -> None:
        for name in ("servers", "hosts", "origins", "areas"):
            if isinstance(found := getattr(self, name), str):
                raise LocalProtocolError(f"got the text {found!r} as {name}, expected several texts")
        if unknown := sorted(set(self.areas) - AREAS):
            raise LocalProtocolError(f"got the area {unknown[0]!r}, expected some of {', '.join(sorted(AREAS))}")
        for host in self.hosts:
            if host != host.lower() or (":" in host and not host.endswith("]")):
                raise LocalProtocolError(f"got the host {host!r}, expected it in lower case, without port, IPv6 in []")
        if self.default and self.default not in self.profiles:
            raise LocalProtocolError(f"got the default {self.default!r}, expected the id of a profile")

    @property
    def unnamed(self) -> str:
        """The id of the endpoint at `/mcp`, `/sse` and `/ws`; "" if there is none."""
        return self.default or (self.servers[0] if len(self.servers) == 1 else "")


McpOpening = PostOpening | GetOpening | DeleteOpening | EventPipeOpening | MessageOpening


class McpRoute(msgspec.Struct, frozen=True):
    """A request to an MCP endpoint.

    Attributes:
        identity: the caller, whose principal is in the opening.
    """

    opening: McpOpening
    identity: Identity = ANONYMOUS

    @property
    def is_posted(self) -> bool:
        """True if the body of the request is a message."""
        return isinstance(self.opening, PostOpening | MessageOpening)


class UploadRoute(msgspec.Struct, frozen=True):
    """An upload. `content_type` is the header as it was sent, for the parser of the body."""

    opening: UploadOpening | DraftOpening
    content_type: str


class DownloadRoute(msgspec.Struct, frozen=True):
    """A download of an artifact. `head_only` for HEAD."""

    opening: DownloadOpening
    head_only: bool


class SocketRoute(msgspec.Struct, frozen=True):
    """A granted upgrade to a WebSocket. `identity` is as in `McpRoute`."""

    opening: PipeOpening
    upgrade: Upgrade
    identity: Identity = ANONYMOUS


class ForwardRoute(msgspec.Struct, frozen=True):
    """A request to a transparent server. `target` is the request target upstream, `host` the `Host` that the client
    sent."""

    server: str
    target: bytes
    host: str
    identity: Identity = ANONYMOUS


class PageRoute(msgspec.Struct, frozen=True):
    """A valid request for an admin page.

    Attributes:
        id: the id in the path, of a server, a task or a file; "" if the path has none. The page responds with an
            error if nothing with that id exists.
        shows_all: the `Host` header names this server, and the caller is let in. Only pages of `PROBED` answer other
            requests, with less.
        identity: the caller.
        cookie: the header `Cookie` of a request for a page of `BROWSED`.
    """

    page: Page
    id: str = ""
    query: dict[str, str] = {}
    shows_all: bool = True
    identity: Identity = ANONYMOUS
    cookie: str = ""

    @property
    def is_posted(self) -> bool:
        """True if the page is requested by POST."""
        return self.page in POSTED


class Refused(msgspec.Struct, frozen=True):
    """A response of the proxy itself: a refusal, or that of a page.

    Attributes:
        body: JSON, text or empty, as `headers` say.
        denied: why the caller is not let in, for the audit log; "" if that is not the reason.
    """

    status: int
    body: bytes
    headers: Headers
    denied: str = ""


class Undecided(msgspec.Struct, frozen=True):
    """A request whose caller is not known before a request to an issuer is answered. It is routed again then."""

    wanted: Wanted


class NotAllowed(Exception):
    """The path exists, and `method` is not one of those `allowed` there."""

    def __init__(self, method: str, allowed: tuple[str, ...]) -> None:
        super().__init__(method)
        self.method = method
        self.allowed = allowed


Route = McpRoute | UploadRoute | DownloadRoute | SocketRoute | ForwardRoute | PageRoute | Refused | Undecided
