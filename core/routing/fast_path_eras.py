"""How plain calls get across, where their client and their server do not talk in one way with sessions.

A ferry belongs to a link and its upstream session. It says what a request is that goes up, and what a result is that
comes down, in a step each; or that it does not know: then all who may have a say are asked (`crossings`, `calling`,
`legwork`). What it does know comes to the same.
"""

from __future__ import annotations

import msgspec

from ..base.effects import Headers
from ..base.memoize import remembered
from ..bridge import plain, request_meta
from ..bridge.content import TRACE
from ..bridge.discovery import server_info_of
from ..jsonrpc.splice import compact_members
from ..state.exchange import Exchange
from ..state.link import Crossed, Ferry, Link, Said
from ..state.session import Session
from ..upstream.task_offers import tool_of, without_extension
from ..wire.http.mcp_headers import Named, named

_info_of = remembered(server_info_of)


def ferry_for(link: Link) -> Ferry | None:
    """The one for the session of a link that is ready; None where something else has a say in each call."""
    if link.is_shared or link.has_files or link.is_filtered or link.abilities.calls or link.plan.owns_roots:
        return None
    if link.session.affinity is None:
        return ToStateless() if link.is_stateless else None
    return Straight() if link.is_stateless else ToSession()


class ToStateless:
    """From a client with a session to a server without."""

    def __init__(self) -> None:
        self._told: tuple[object, ...] = ()
        self._metas: dict[bool, bytes] = {}

    def up(self, link: Link, session: Session, method: str, params: bytes | None, said: Said | None) -> Crossed | None:
        spans = None if params is None else compact_members(params)
        if params is None or spans is None:
            return None
        mirrored: Headers = ()
        if not link.is_pipe:
            what = named(method, params, spans)
            if what is None or _has_mirrors(link, method, what):
                return None
            mirrored = what.headers
        meta = self._meta(link, session, is_call=method == "tools/call")
        return Crossed(plain.with_envelope(params, spans, meta), mirrored)

    def _meta(self, link: Link, session: Session, *, is_call: bool) -> bytes:
        """What goes with each of its requests, made anew when that has changed."""
        told = (session.client, session.level, link.upstream.revision)
        if told != self._told:
            self._told, self._metas = told, {}
        meta = self._metas.get(is_call)
        if meta is None:
            revision, able = link.upstream.revision, session.client.capabilities
            assert revision is not None
            able = without_extension(able) if is_call else able
            who = msgspec.structs.replace(session.client, revision=revision, log_level=session.level, capabilities=able)
            meta = self._metas[is_call] = request_meta.add(None, who)[len(b'{"_meta":') : -1]
        return meta

    def down(self, link: Link, session: Session, exchange: Exchange, result: bytes) -> bytes | None:
        if _may_go_on(result) or (link.wrapped and tool_of(exchange) in link.wrapped):
            return None
        return plain.to_legacy(exchange.method, result, session.features)


class Straight:
    """From a client without a session to a server without."""

    def up(self, link: Link, session: Session, method: str, params: bytes | None, said: Said | None) -> Crossed | None:
        assert said is not None
        if link.is_pipe:
            return Crossed(params)
        return None if _has_mirrors(link, method, said.named) else Crossed(params, said.named.headers)

    def down(self, link: Link, session: Session, exchange: Exchange, result: bytes) -> bytes | None:
        return None if _may_go_on(result) or TRACE in result else result


class ToSession:
    """From a client without a session to a server with sessions."""

    def up(self, link: Link, session: Session, method: str, params: bytes | None, said: Said | None) -> Crossed | None:
        assert said is not None
        return Crossed(plain.without_envelope(said.params, said.spans, said.rest))

    def down(self, link: Link, session: Session, exchange: Exchange, result: bytes) -> bytes | None:
        greeting = session.greeting
        return plain.to_modern(exchange.method, result, None if greeting is None else _info_of(greeting))


def _has_mirrors(link: Link, method: str, what: Named) -> bool:
    """Whether arguments of a call are to be in headers as well, or nobody knows."""
    return method == "tools/call" and (link.mirrors is None or bool(link.mirrors.get(what.name)))


def _may_go_on(result: bytes) -> bool:
    """Whether it may be a question or a task, and no result. Escapes may hide either word."""
    return b"input_required" in result or b'"task"' in result or b"\\u" in result
