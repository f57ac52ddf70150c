"""What all connections of an HTTP server share."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from email.utils import formatdate

from ..core.limits import Limits
from ..core.wire.http_server import (
    DownloadRoute,
    Head,
    McpRoute,
    PageRoute,
    Refused,
    SocketRoute,
    Surface,
    UploadRoute,
    judge,
    not_found,
    refusal,
)
from .port import FileService, Port

Pages = Callable[[str], "tuple[int, str, bytes] | None"]
"""Status, content type and body of the page at a path; None if there is none."""


@dataclass
class Listening:
    surface: Surface
    port: Port
    files: FileService
    limits: Limits
    pages: Pages
    scheme: str
    is_draining: bool = False
    _date: tuple[int, bytes] = field(default=(0, b""))

    def admit(self, head: Head) -> McpRoute | UploadRoute | DownloadRoute | SocketRoute | Refused:
        """The route of a request, or what is to be answered at once: a refusal, or a page."""
        size = len(head.method) + len(head.target) + sum(len(name) + len(value) + 4 for name, value in head.headers)
        if size > self.limits.head_size_max_bytes:
            # h11 looks at the limit only while a head is incomplete; how it was cut up must not show.
            return refusal(431, f"got a head of {size} bytes, expected at most {self.limits.head_size_max_bytes}")
        route = judge(head, self.surface, scheme=self.scheme)
        return self._page(route.path) if isinstance(route, PageRoute) else route

    def date(self) -> bytes:
        """The Date header's value, formatted once a second."""
        now = int(time.time())
        if self._date[0] != now:
            self._date = (now, formatdate(now, usegmt=True).encode())
        return self._date[1]

    def _page(self, path: str) -> Refused:
        page = self.pages(path)
        if page is None:
            return not_found(path, self.surface)
        status, content_type, body = page
        headers = (
            (b"content-type", content_type.encode()),
            (b"content-length", str(len(body)).encode()),
            (b"cache-control", b"no-store"),
            (b"x-content-type-options", b"nosniff"),
        )
        return Refused(status, body, headers)
