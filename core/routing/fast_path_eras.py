"""One-step translations of plain calls between the eras of client and server.

A translation belongs to a link and its upstream session. It makes the params for the server in one step, and the result
for the client in another. Skipped are all modules that could have a say in a call: `era_adapter`, `augmentation` and
`stateless_responder`. That comes to the same, because `translation_for` returns a translation only for links where none
of them changes more than the metadata, and because each step returns None for a message that is not plainly written or
could be a task, a question or part of a round; those go through the full translation.
`tests/core/engine/test_fast_path.py` compares both ways.
"""

from __future__ import annotations

import msgspec

from ..base.events import Headers
from ..base.plan import ServerPlan
from ..bridge import plain, request_meta
from ..bridge.content import TRACE
from ..jsonrpc.outline import outline_of
from ..jsonrpc.splice import compact_members
from ..state.exchange import Exchange
from ..state.link import Link, PlainTranslation, StatelessParams, TranslatedParams
from ..state.session import Session
from ..upstream.task_offers import tool_of, without_extension
from ..wire.http.mcp_headers import Named, named


def translation_for(link: Link) -> PlainTranslation | None:
    """Returns the translation for a link that is ready; None if client and server are of the same era, or if files,
    filters, tasks, roots, sharing or a handle of the session have a say in each call."""
    if link.is_shared or any(each.has_say(link) for each in link.interceptors.ordered if each.name != "eras"):
        return None
    if link.session.affinity is None:
        return LegacyToModern() if link.is_stateless else None
    if link.session.has_handle:
        return None
    return ModernToModern(link.plan) if link.is_stateless else ModernToLegacy()


class LegacyToModern:
    """The translation for a client with a session and a stateless server."""

    def __init__(self) -> None:
        self._told: tuple[object, ...] = ()
        self._metas: dict[bool, bytes] = {}

    def up(
        self, link: Link, session: Session, method: str, params: bytes | None, stateless_params: StatelessParams | None
    ) -> TranslatedParams | None:
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
        return TranslatedParams(plain.with_envelope(params, spans, meta), mirrored)

    def _meta(self, link: Link, session: Session, *, is_call: bool) -> bytes:
        """Returns the members of `_meta` that go with each request, made anew when the client's description, log level
        or revision has changed."""
        told = (session.client, session.level, link.upstream.revision, link.upstream.capabilities)
        if told != self._told:
            self._told, self._metas = told, {}
        meta = self._metas.get(is_call)
        if meta is None:
            revision, able = link.upstream.revision, session.client.capabilities
            assert revision is not None
            able = without_extension(able) if is_call else able
            level = link.log_level_for(session)
            who = msgspec.structs.replace(session.client, revision=revision, log_level=level, capabilities=able)
            meta = self._metas[is_call] = request_meta.add(None, who)[len(b'{"_meta":') : -1]
        return meta

    def down(self, link: Link, session: Session, exchange: Exchange, result: bytes) -> bytes | None:
        if _may_go_on(result) or (link.tools.wrapped and tool_of(exchange) in link.tools.wrapped):
            return None
        return plain.to_legacy(exchange.method, result, session.features)


class ModernToModern:
    """The translation for a client without a session and a stateless server."""

    def __init__(self, plan: ServerPlan) -> None:
        self._caches = plan.caches

    def up(
        self, link: Link, session: Session, method: str, params: bytes | None, stateless_params: StatelessParams | None
    ) -> TranslatedParams | None:
        assert stateless_params is not None
        if self._caches and method == "resources/read":
            return None  # a result that is kept may answer it
        if link.is_pipe:
            return TranslatedParams(params)
        return (
            None
            if _has_mirrors(link, method, stateless_params.named)
            else TranslatedParams(params, stateless_params.named.headers)
        )

    def down(self, link: Link, session: Session, exchange: Exchange, result: bytes) -> bytes | None:
        return None if _may_go_on(result) or TRACE in result else result


class ModernToLegacy:
    """The translation for a client without a session and a server with sessions."""

    def up(
        self, link: Link, session: Session, method: str, params: bytes | None, stateless_params: StatelessParams | None
    ) -> TranslatedParams | None:
        assert stateless_params is not None
        return TranslatedParams(
            plain.without_envelope(stateless_params.params, stateless_params.spans, stateless_params.rest)
        )

    def down(self, link: Link, session: Session, exchange: Exchange, result: bytes) -> bytes | None:
        assert session.replies is not None
        return plain.to_modern(exchange.method, result, session.replies.server_info(session))


def _has_mirrors(link: Link, method: str, what: Named) -> bool:
    """True if arguments of a call must be repeated in headers, or if that is not known."""
    return method == "tools/call" and (link.tools.mirrors is None or bool(link.tools.mirrors.get(what.name)))


def _may_go_on(result: bytes) -> bool:
    """True if the result may be `input_required` or a task. JSON escapes could hide either word, so a result with a
    Unicode escape counts as well."""
    words = outline_of(result)
    return b"input_required" in words or b'"task"' in words or b"\\u" in words
