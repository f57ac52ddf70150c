"""What all connections of an HTTP server share."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from email.utils import formatdate

from ..core.effects import Serve
from ..core.limits import Limits
from ..core.wire.http_headers import Headers
from ..core.wire.http_refusals import refusal
from ..core.wire.http_routes import Head, PageRoute, Refused, Route, Surface
from ..core.wire.http_server import judge, shared_headers
from .forwarding import Forwarder
from .port import FileService, Port
from .traffic import Counts

Pages = Callable[[PageRoute, bytes], Awaitable[Refused | Serve]]
"""What a page says to a request for it with this body, or the file it hands out. It is cancelled when its client hangs
up."""


@dataclass
class Listening:
    surface: Surface
    port: Port
    files: FileService
    limits: Limits
    pages: Pages
    scheme: str
    forwarder: Forwarder | None
    counts: Counts
    is_draining: bool = False
    _date: tuple[int, bytes] = field(default=(0, b""))

    def admit(self, head: Head) -> Route:
        """The route of a request, or the refusal to answer it with."""
        if len(head.method) + len(head.target) + len("  HTTP/1.1") > self.limits.head_size_max_bytes:
            return self.refuse_head(is_in_target=True)
        size = len(head.method) + len(head.target) + sum(len(name) + len(value) + 4 for name, value in head.headers)
        if size > self.limits.head_size_max_bytes:
            # h11 looks at the limit only while a head is incomplete; how it was cut up must not show.
            return self.refuse_head(is_in_target=False)
        return judge(head, self.surface, scheme=self.scheme)

    def refuse_head(self, *, is_in_target: bool) -> Refused:
        """For a head over the limit: in its request line already, or in what follows that."""
        limit = f"expected at most {self.limits.head_size_max_bytes} bytes"
        if is_in_target:
            return refusal(414, f"got a request target over the limit, {limit}")
        return refusal(431, f"got a head over the limit, {limit}")

    def shared_headers(self, head: Head) -> Headers:
        """What every response to this request carries besides its own headers."""
        return shared_headers(head, self.surface)

    def date(self) -> bytes:
        """The Date header's value, formatted once a second."""
        now = int(time.time())
        if self._date[0] != now:
            self._date = (now, formatdate(now, usegmt=True).encode())
        return self._date[1]
