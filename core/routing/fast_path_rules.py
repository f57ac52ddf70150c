"""Calls that nothing here has a say in: they go up as they came, and what is answered comes down as it is.

Most servers are spoken to in the era and with the features of their clients, have no adapters, no filter and no tasks,
and are nobody else's. That is found out once, when a call meets its server ready, and not asked again of each module by
each call. What a call itself may want is asked each time.
"""

from __future__ import annotations

from typing import Final

from ..base.revisions import features_of
from ..bridge.content import TRACE
from ..bridge.results import is_older
from ..jsonrpc.envelope import Frame
from ..state.exchange import Exchange
from ..state.link import Link
from .fast_path_eras import ferry_for

METHODS: Final = frozenset({"tools/call", "prompts/get", "resources/read", "completion/complete"})
"""Requests whose answers teach nothing about the server, and set nothing in it."""


def may_go_up(link: Link, exchange: Exchange) -> bool:
    """Whether a request for a server that is ready goes up as it is. It may want to be a task: then it does not."""
    if link.is_plain is None:
        link.is_plain = _is_plain(link)
        link.ferry = None if link.is_plain else ferry_for(link)
    if not link.is_plain or exchange.method not in METHODS:
        return False
    params = exchange.params
    exchange.is_plain = params is None or (b"task" not in params and b"\\u" not in params)
    return exchange.is_plain


def may_come_down(link: Link, exchange: Exchange, frame: Frame) -> bool:
    """Whether the answer to a request that went up so is its client's, as it is."""
    return (
        exchange.is_plain
        and link.is_plain is True
        and exchange.lacking is None
        and frame.result is not None
        and TRACE not in frame.result
    )


def _is_plain(link: Link) -> bool:
    if link.is_stateless or link.is_shared or link.has_files or link.is_filtered or link.abilities.calls:
        return False
    client, server = link.session.features, features_of(link.upstream.revision)
    return link.session.affinity is None and not is_older(client, server)
