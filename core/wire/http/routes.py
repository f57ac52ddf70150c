"""What an HTTP listener's requests and answers are about: the head of a request, what there is to reach, and the routes
there.
"""

from __future__ import annotations

import msgspec

from ...base.effects import (
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
from ..headers import Headers
from ..websocket import Upgrade
from .admin_routes import POSTED, Management, Page
from .header_forwarding import Passes
from .reverse_proxy_target import ForwardTarget


class Head(msgspec.Struct, frozen=True):
    """A request line and its headers: `target` as it stood there, names in lower case, values without edge blanks."""

    method: str
    target: str
    headers: Headers
    version: str = "1.1"


class Surface(msgspec.Struct, frozen=True):
    """What exists, and under which names it may be reached.

    Attributes:
        servers: the ids under `/mcp`, `/ws`, `/upload` and `/artifacts`.
        hosts: acceptable hosts, lower case, without port, IPv6 in brackets. The caller puts the loopback names in.
        origins: acceptable Origins besides those whose host is in `hosts`: `scheme://host[:port]`, lower case.
        any_host: whether every well-formed Host is acceptable. Origins are checked all the same.
        prefix: the path under which clients reach all this, if a server in front of it takes one away.
        management: who may look after the servers; None: nobody.
        passes: for each server, which headers of a request for it go on.
        required: for each server, which headers every request for it must have.
    """

    servers: tuple[str, ...]
    hosts: frozenset[str]
    origins: frozenset[str]
    any_host: bool = False
    prefix: str = ""
    transparent: dict[str, ForwardTarget] = {}
    """Of the servers, those whose requests are passed on as they are, and where to."""
    management: Management | None = None
    passes: dict[str, Passes] = {}
    upload_size_max_bytes: int | None = None
    """What clients are told that a file may have at most; None: they are told nothing."""
    required: dict[str, tuple[str, ...]] = {}
    aliases: dict[str, str] = {}
    """Further paths, without a slash at the end, and for which of ours each stands."""


McpOpening = PostOpening | GetOpening | DeleteOpening | EventPipeOpening | MessageOpening


class McpRoute(msgspec.Struct, frozen=True):
    opening: McpOpening

    @property
    def is_posted(self) -> bool:
        """Whether its body is a message."""
        return isinstance(self.opening, PostOpening | MessageOpening)


class UploadRoute(msgspec.Struct, frozen=True):
    """`content_type` is the header as it came, for whoever parses the body."""

    opening: UploadOpening | DraftOpening
    content_type: str


class DownloadRoute(msgspec.Struct, frozen=True):
    opening: DownloadOpening
    head_only: bool


class SocketRoute(msgspec.Struct, frozen=True):
    """An upgrade to a WebSocket, granted."""

    opening: PipeOpening
    upgrade: Upgrade


class ForwardRoute(msgspec.Struct, frozen=True):
    """`target` is the upstream's request target, `host` our own name as the client wrote it."""

    server: str
    target: bytes
    host: str


class PageRoute(msgspec.Struct, frozen=True):
    """One of the pages beside the protocol, asked for as it must be.

    Attributes:
        id: the one in its path, of a server, a task or a file, "" if there is none. There is such a one, or the page
            says that there is not.
    """

    page: Page
    id: str = ""
    query: dict[str, str] = {}

    @property
    def is_posted(self) -> bool:
        return self.page in POSTED


class Refused(msgspec.Struct, frozen=True):
    """The answer to send instead, or that of a page: `body` is JSON, text or empty, as `headers` say."""

    status: int
    body: bytes
    headers: Headers


class NotAllowed(Exception):
    """There is something at this path, and `method` is none of those that are `allowed` there."""

    def __init__(self, method: str, allowed: tuple[str, ...]) -> None:
        super().__init__(method)
        self.method = method
        self.allowed = allowed


Route = McpRoute | UploadRoute | DownloadRoute | SocketRoute | ForwardRoute | PageRoute | Refused
