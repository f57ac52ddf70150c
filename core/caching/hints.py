"""The caching hints in a result of the stateless era."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from ..base.errors import RemoteProtocolError
from ..jsonrpc.envelope import text_of
from ..jsonrpc.splice import Span, members, take

_TTL: Final = re.compile(rb"[1-9][0-9]{0,14}")


class CacheHints(NamedTuple):
    """The uses of a result that its server allows.

    Attributes:
        ttl_ms: milliseconds for which it is fresh, at least 1.
        ttl_span: where they stand in the JSON of the result.
        is_public: the result may be given to other callers.
    """

    ttl_ms: int
    ttl_span: Span
    is_public: bool


def hints_of(result: bytes) -> CacheHints | None:
    """Returns the hints in a result; None if it may not be kept: it is not complete, or fresh for no time.

    A result without a `cacheScope` that can be read is private.

    Source: 2026-07-28 server/utilities/caching, "Cacheable Model".
    """
    try:
        spans = members(result)
    except RemoteProtocolError:
        return None  # it is judged on its way to the client
    ttl_span, ttl = spans.get("ttlMs"), take(result, spans.get("ttlMs"))
    if ttl_span is None or ttl is None or not _TTL.fullmatch(ttl):
        return None
    if text_of(take(result, spans.get("resultType"))) != "complete":
        return None
    return CacheHints(int(ttl), ttl_span, text_of(take(result, spans.get("cacheScope"))) == "public")
