"""The rules for plain calls: requests that are sent to the server unchanged, and whose results are returned unchanged.

Most servers use the era and the features of their client, have no adapters, no filter and no tasks, and are not shared.
That no interceptor has a say (`Interceptor.has_say`) is determined once for each upstream session, when the first call
meets a server that is ready. A plain call then skips all of them, as none would change it. Only what differs from call
to call is checked each time: the method, and words in the params or the result that could mean a task or need
translation. `tests/core/routing/test_fast_path_rules.py` tests which calls are plain, and
`tests/core/engine/test_passthrough.py` that their messages pass byte for byte.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ..base.events import Headers
from ..jsonrpc.splice import Outlined
from ..state.exchange import Exchange, Plain
from ..state.link import Link
from ..upstream.writer import UpstreamWriter
from .fast_path_eras import translation_for

METHODS: Final = frozenset({"tools/call", "prompts/get", "resources/read", "completion/complete"})
"""Requests whose responses teach the proxy nothing about the server, and which set nothing in it."""


def may_go_up(link: Link, exchange: Exchange) -> bool:
    """True if a request for a server that is ready is sent unchanged. A request that may want to be a task is not; JSON
    escapes could hide the word, so they count as well."""
    if link.is_plain is None:
        is_plain = _is_plain(link, exchange)
        link.decide_plain(is_plain=is_plain, translation=None if is_plain else translation_for(link))
    if not link.is_plain or exchange.method not in METHODS or exchange.trace is not None:
        return False
    params = exchange.params
    if params is not None:
        words = params.outline if isinstance(params, Outlined) else params
        if b"task" in words or b"\\u" in words:
            return False
    exchange.mark_plain()
    return True


class LinkWay(msgspec.Struct, frozen=True):
    """The way of a plain call on a link.

    Attributes:
        params: the params in the form for the server.
        mirrored: the headers that go with them.
    """

    writer: UpstreamWriter
    link: Link
    plain: Plain
    params: bytes | None
    mirrored: Headers = ()

    def send(self, exchange: Exchange) -> None:
        self.writer.write(self.link, exchange, self.params, self.mirrored)


def _is_plain(link: Link, exchange: Exchange) -> bool:
    if link.is_shared or (exchange.request is not None and link.session.has_handle):
        return False
    return not any(each.has_say(link) for each in link.interceptors.ordered)
