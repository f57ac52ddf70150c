"""The fast path of the bridge: `request_meta` and `results` for the usual shapes of requests and results, in one step.

Each function returns the same bytes as the function that it names, or None where that function has to be called. What
is skipped is the editing member by member: the spans that `compact_members` computed show that the object has none of
the members with special rules, so the output is pieced together from slices of the input.
tests/core/bridge/test_plain.py compares both ways for all combinations of such members.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..base.errors import RemoteProtocolError
from ..base.memoize import remembered
from ..base.revisions import Features
from ..jsonrpc.splice import compact_members
from .content import TRACE, knows_all
from .results import CACHEABLE, SERVER_INFO, meta_to_legacy

_WHOLE: Final = b'"resultType":"complete"'
_FRESH: Final = b'"ttlMs":0,"cacheScope":"private"'
_KIND: Final = "resultType"
_OF_CACHES: Final = ("ttlMs", "cacheScope")

_meta_down = remembered(meta_to_legacy)


def with_envelope(params: bytes, spans: Mapping[str, slice], meta: bytes) -> bytes:
    """Does what `request_meta.add` does, for params without `_meta`.

    Args:
        spans: `compact_members` of the params.
        meta: the whole `_meta` to add.
    """
    return b'%b%b"_meta":%b}' % (params[:-1], b"," if spans else b"", meta)


def without_envelope(params: bytes, spans: Mapping[str, slice], rest: bytes) -> bytes:
    """Does what `request_meta.strip` does, for params with `_meta`.

    Args:
        spans: `compact_members` of the params.
        rest: what remains of `_meta`; if empty, `_meta` is removed.
    """
    meta = spans["_meta"]
    if rest:
        return params[: meta.start] + rest + params[meta.stop :]
    start = meta.start - len('"_meta":')
    if start > 1:
        return params[: start - 1] + params[meta.stop :]
    return b"{" + params[meta.stop :].removeprefix(b",")


def to_modern(method: str, result: bytes, server_info: bytes | None) -> bytes | None:
    """Does what `results.to_modern` does. Returns None if that has to be called."""
    spans = None if TRACE in result else compact_members(result)
    if spans is None or _KIND in spans or "_meta" in spans:
        return None
    added = _WHOLE
    if method == "tools/call":
        content, structured = spans.get("content"), spans.get("structuredContent")
        if content is None or result[content][:1] == b"n":
            return None
        if structured is not None and result[structured][:1] != b"{":
            return None
    elif method in CACHEABLE:
        if any(name in spans for name in _OF_CACHES):
            return None
        added = b"%b,%b" % (_WHOLE, _FRESH)
    if server_info is not None:
        added = b'%b,"_meta":{"%b":%b}' % (added, SERVER_INFO.encode(), server_info)
    return b"%b%b%b}" % (result[:-1], b"," if spans else b"", added)


def to_legacy(method: str, result: bytes, client: Features) -> bytes | None:
    """Does what `results.to_legacy` does for a server of 2026-07-28 and a tool whose results are not wrapped.

    Returns None if `results.to_legacy` has to be called.
    """
    spans = None if TRACE in result or not knows_all(client) else compact_members(result)
    if spans is None:
        return None
    kind = spans.get(_KIND)
    if kind is not None and result[kind] != b'"complete"':
        return None
    structured = spans.get("structuredContent")
    if structured is not None and (not client.structured or result[structured][:1] != b"{"):
        return None
    pieces: list[bytes] = []
    at = 1
    for name, span in spans.items():
        if name == "_meta":
            try:
                kept = _meta_down(result[span])
            except RemoteProtocolError:
                return None
            if kept is not None:
                pieces.append(result[at : span.start] + kept)
        elif name != _KIND and not (name in _OF_CACHES and method in CACHEABLE):
            pieces.append(result[at : span.stop])
        at = span.stop + 1
    return b"{%b}" % b",".join(pieces)
