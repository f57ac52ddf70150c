"""What all connections of an HTTP server share."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Final

from ...core.base.effects import Serve
from ...core.base.limits import Limits
from ...core.wire.headers import Headers
from ...core.wire.http.dates import format_date
from ...core.wire.http.error_responses import refusal
from ...core.wire.http.routes import Head, McpRoute, PageRoute, Refused, Route, Surface
from ...core.wire.http.server import judge, shared_headers
from ...core.wire.http1.events import RequestHead
from ..base.port import FileService, Port
from ..base.traffic import Counts
from ..http1.server import ServerCodec
from ..reverse_proxy.forwarder import Forwarder

Pages = Callable[[PageRoute, bytes], Awaitable[Refused | Serve]]
"""What a page says to a request for it with this body, or the file it hands out. It is cancelled when its client hangs
up."""


LENGTH_MAX_BYTES: Final = len(b"18446744073709551615")
"""Of a Content-Length's value, in a head that is remembered."""


DATED_MAX: Final = 64
"""Sets of headers that replies of one second share. They differ in the type of what is said, and in what a page of
another site is told."""


class Admitted:
    """What a request's head came to. A client that asks again in the same words need not be judged again.

    Attributes:
        head: the last that came to this.
        may_be_kept: nothing else than these words decided, and the client may well use them again.
    """

    __slots__ = ("_named", "head", "may_be_kept", "route", "shared_headers")

    def __init__(self, head: RequestHead, route: Route, shared_headers: Headers, *, may_be_kept: bool) -> None:
        self.route = route
        self.shared_headers = shared_headers
        self.may_be_kept = may_be_kept
        self.head = head
        self._named: Headers | None = None  # its headers but the length, once they were asked for

    def fits(self, head: RequestHead) -> bool:
        """Whether `head` says the same: only how long the body is may differ."""
        known = self.head
        if head is known:  # a codec knew it again
            return True
        if self._named is None:
            self._named = _without_length(known.headers)
        if (
            head.target != known.target
            or head.method != known.method
            or head.version != known.version
            or len(head.headers) != len(known.headers)
            or _without_length(head.headers) != self._named
        ):
            return False
        self.head = head
        return True


def _without_length(headers: Headers) -> Headers:
    return tuple([header for header in headers if header[0] != b"content-length"])


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
    only_h11: bool = False
    is_draining: bool = False
    make_codec: Callable[[], ServerCodec] = field(init=False)
    _date: tuple[int, bytes] = field(default=(0, b""))
    _dated: dict[tuple[Headers, Headers], Headers] = field(default_factory=dict)  # of this second

    def __post_init__(self) -> None:
        size_max = self.limits.head_size_max_bytes
        self.make_codec = partial(ServerCodec, head_size_max_bytes=size_max, only_h11=self.only_h11)

    def admit(self, head: RequestHead) -> Admitted:
        """The route of a request, or the refusal to answer it with; and what every response to it carries."""
        judged = Head(head.method, head.target, head.headers, head.version)
        shared = shared_headers(judged, self.surface)
        limit = self.limits.head_size_max_bytes
        line_size = len(head.method) + len(head.target)
        if line_size + len("  HTTP/1.1") > limit:
            return Admitted(head, self.refuse_head(is_in_target=True), shared, may_be_kept=False)
        size = line_size + sum(map(len, chain.from_iterable(head.headers))) + len(": \r\n") * len(head.headers)
        if size > limit:
            # h11 looks at the limit only while a head is incomplete; how it was cut up must not show.
            return Admitted(head, self.refuse_head(is_in_target=False), shared, may_be_kept=False)
        route = judge(judged, self.surface, scheme=self.scheme)
        may_be_kept = isinstance(route, McpRoute) and route.is_posted and size + LENGTH_MAX_BYTES <= limit
        return Admitted(head, route, shared, may_be_kept=may_be_kept)

    def refuse_head(self, *, is_in_target: bool) -> Refused:
        """For a head over the limit: in its request line already, or in what follows that."""
        limit = f"expected at most {self.limits.head_size_max_bytes} bytes"
        if is_in_target:
            return refusal(414, f"got a request target over the limit, {limit}")
        return refusal(431, f"got a head over the limit, {limit}")

    def date(self) -> bytes:
        """The Date header's value, formatted once a second."""
        now = int(time.time())
        if self._date[0] != now:
            self._date = (now, format_date(now).encode())
            self._dated.clear()
        return self._date[1]

    def dated(self, headers: Headers, shared: Headers) -> Headers:
        """A reply's headers, what all replies to its request carry, and the date: for equal ones, the same object as
        long as the date is the same."""
        date = self.date()
        found = self._dated.get((headers, shared))
        if found is None:
            if len(self._dated) >= DATED_MAX:
                self._dated.clear()
            dates = () if any(name == b"date" for name, _ in headers) else ((b"date", date),)
            found = self._dated[headers, shared] = (*headers, *shared, *dates)
        return found
