"""Adapts requests and responses between a client and a server of different eras.

Requests that only one side has are answered here, or turned into the other side's equivalent. `logging/setLevel` is
sent once in the handshake era, while in the stateless era each request carries the log level. `resources/subscribe`
corresponds to `subscriptions/listen`, and `initialize` to `server/discover`. All other requests differ in their
metadata only, for which `bridge` has the rules.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ..base.errors import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    UNSUPPORTED_VERSION,
    URL_REQUIRED,
    RemoteProtocolError,
)
from ..base.events import Headers
from ..base.log_levels import LEVELS
from ..base.methods import LISTEN
from ..base.revisions import features_of
from ..bridge import errors, request_meta, results
from ..bridge.results import is_older
from ..jsonrpc import envelope
from ..jsonrpc.envelope import Frame
from ..jsonrpc.splice import remove_member
from ..state.context import Context
from ..state.exchange import Exchange, ExchangeInput, ExchangeState
from ..state.interceptor import Interceptor
from ..state.link import Link, OwnRequest
from ..state.session import Session
from ..state.upstream_session import REMEMBERED
from ..subscriptions.subscriptions import Subscriptions
from ..upstream.task_offers import capabilities_up, params_to_legacy, shown_tools
from ..upstream.upstream import Upstream
from ..wire.http.mcp_headers import headers_for

ONLY_STATELESS: Final = frozenset({"server/discover", LISTEN})
"""Requests of the stateless era, which are unknown to a client with a session."""


class EraAdapter(Interceptor):
    """The adaptation of all requests and responses."""

    name = "eras"
    purposes = frozenset({"level"})

    def __init__(self, context: Context, upstream: Upstream, subscriptions: Subscriptions) -> None:
        self._tool_discovery = upstream.tool_discovery
        self._context = context
        self._writer = upstream.writer
        self._server_listens = subscriptions.server_listens
        self._client_listens = subscriptions.client_listens
        self._passed_listens = subscriptions.passed_listens

    def has_say(self, link: Link) -> bool:
        return link.is_stateless or any(
            session.is_stateless or is_older(session.features, features_of(link.upstream.revision))
            for session in link.sessions.values()
        )

    # --- Up ---------------------------------------------------------------------------------------------------------

    def prepare(self, link: Link, exchange: Exchange) -> bool:
        """Handles a request that is about to be sent to its server. True if it is answered here, or waits."""
        session = link.session_of(exchange)
        if session.is_stateless:
            return self._receive_stateless(link, session, exchange)
        return link.is_stateless and self._receive_legacy(link, session, exchange)

    def _receive_stateless(self, link: Link, session: Session, exchange: Exchange) -> bool:
        if exchange.method == "server/discover":
            assert session.greeting is not None
            exchange.mark_native()
            self._finish(link, exchange, session.greeting)
            return True
        if exchange.method == LISTEN:
            return self._client_listens.begin(link, session, exchange)
        if link.is_stateless:
            return self._must_read_tools(link, session, exchange)
        state = envelope.member_of(exchange.params, "requestState")  # cannot raise: the params were read on arrival
        if state not in (None, b"null"):  # valid ones of ours were removed before, and the server knows none
            self._refuse(
                link, exchange, INVALID_PARAMS, "Invalid or expired requestState", {"reason": "invalid_request_state"}
            )
            return True
        return self._must_set_level(link, session, exchange)

    def _receive_legacy(self, link: Link, session: Session, exchange: Exchange) -> bool:
        """Handles a request of a client with a session to a stateless server."""
        method = exchange.method
        if method == "logging/setLevel":
            self._set_level(link, session, exchange)
        elif method in ("resources/subscribe", "resources/unsubscribe"):
            exchange.step(ExchangeInput.SEND)
            self._server_listens.receive_setting(link, session, exchange)
        elif method in ONLY_STATELESS:
            self._refuse(link, exchange, METHOD_NOT_FOUND, f"Method not found: {method[:100]}")
        else:
            return self._must_read_tools(link, session, exchange)
        return True

    def _set_level(self, link: Link, session: Session, exchange: Exchange) -> None:
        """Records the log level of a session, which each later request will carry."""
        try:
            level = envelope.text_of(envelope.member_of(exchange.params, "level"))
        except RemoteProtocolError:
            level = None
        if link.upstream.capabilities is None or "logging" not in link.upstream.capabilities:
            self._refuse(link, exchange, METHOD_NOT_FOUND, "the server does not log")
        elif level not in LEVELS:
            self._refuse(link, exchange, INVALID_PARAMS, f"got no known log level, expected one of {', '.join(LEVELS)}")
        else:
            session.set_level(level)
            if not link.is_shared:
                link.upstream.remember(exchange.method, exchange.params)
            self._finish(link, exchange, b"{}")

    def _receive_set(self, link: Link, session: Session, exchange: Exchange) -> None:
        """Records a setting that a server with sessions accepted, in case the server comes back without sessions."""
        if link.is_shared or session.is_stateless or exchange.method not in REMEMBERED:
            return
        name = "level" if exchange.method == "logging/setLevel" else "uri"
        value = envelope.text_of(envelope.member_of(exchange.params, name))
        if value is None:
            return
        if exchange.method == "logging/setLevel":
            session.set_level(value if value in LEVELS else session.level)
        elif exchange.method == "resources/unsubscribe":
            session.unsubscribe(value)
        else:
            session.subscribe(value, self._context.limits)

    def _must_read_tools(self, link: Link, session: Session, exchange: Exchange) -> bool:
        if not self._tool_discovery.wants(link, session, exchange):
            return False
        self._tool_discovery.begin(link, exchange)
        return True

    def _must_set_level(self, link: Link, session: Session, exchange: Exchange) -> bool:
        """True if the request waits until a server with sessions has taken a log level. The level is set once, before
        the first request that wants so much."""
        wanted = None if exchange.request is None else exchange.request.log_level
        declared = link.upstream.capabilities or frozenset()
        if wanted is None or "logging" not in declared:
            return False
        if session.level is not None and LEVELS.index(session.level) <= LEVELS.index(wanted):
            return False
        if link.wait_for_level(exchange):
            return True
        if link.shared_process is not None:
            wanted = link.shared_process.want_level(session, wanted)
        link.set_level(wanted, exchange)
        self._writer.run(link, "level", "logging/setLevel", msgspec.json.encode({"level": wanted}))
        self._context.timers.set(("level", link.id), self._context.now + self._context.limits.lookup_s, "log level")
        return True

    def receive_own_response(self, link: Link, own_request: OwnRequest, frame: Frame) -> None:
        self._receive_levelled(link, is_done=frame.error is None)

    def _receive_levelled(self, link: Link, *, is_done: bool) -> None:
        """Handles the outcome of `logging/setLevel`, and sends the requests that waited for it."""
        self._context.timers.cancel(("level", link.id))
        level, waiting = link.take_level()
        for session in link.sessions.values():
            if session.is_stateless:
                session.set_level(level if is_done else LEVELS[0])  # the lowest, so that it is not tried again
        if is_done:
            link.upstream.remember("logging/setLevel", msgspec.json.encode({"level": level}))
        for exchange in waiting:
            if not exchange.is_over:
                link.router.send(link, exchange)

    def handle_level(self, link: Link) -> None:
        """Gives up on `logging/setLevel` after a time limit: the clients get their responses without the log."""
        self._writer.give_up(link, "level")
        self._receive_levelled(link, is_done=False)

    def params_up(self, link: Link, exchange: Exchange) -> bytes | None:
        """Returns the params of a request for its server.

        Raises:
            RemoteProtocolError: they cannot be translated: they are no object, or have a member twice.
        """
        session = link.session_of(exchange)
        if not link.is_stateless:
            params = request_meta.strip_retry(exchange.params) if session.is_stateless else exchange.params
            return params_to_legacy(exchange, params, self._context.limits)
        revision = link.upstream.revision
        assert revision is not None
        if session.is_stateless:
            if exchange.request is None:
                return exchange.params
            able = exchange.request.capabilities
            if link.plan.owns_roots:
                able = remove_member(able, "roots")  # they are paths of another machine
            able = capabilities_up(exchange, able)
            if able is exchange.request.capabilities:
                return exchange.params
            return request_meta.add(exchange.params, msgspec.structs.replace(exchange.request, capabilities=able))
        params = exchange.params
        if params is not None and b'"task"' in params:
            params = remove_member(params, "task")  # the stateless era declares an extension instead
        able = capabilities_up(exchange, session.client.capabilities)
        who = msgspec.structs.replace(
            session.client, revision=revision, log_level=link.log_level_for(session), capabilities=able
        )
        return request_meta.add(params, who)

    def mirrored_up(self, link: Link, exchange: Exchange, params: bytes | None) -> Headers:
        """Returns the headers in which the server wants parts of a request repeated.

        Raises:
            RemoteProtocolError: a value fits into no header, or could be read in two ways.
        """
        if not link.is_stateless or link.is_pipe:
            return ()
        tool = envelope.text_of(envelope.member_of(params, "name")) if exchange.method == "tools/call" else None
        mirrors = (link.tools.mirrors or {}).get(tool or "", ())
        own = headers_for(exchange.method, params, mirrors)
        names = {name.lower() for name, _ in own}
        # 2026-07-28 basic/transports/streamable-http: intermediaries forward headers that they do not know.
        return own + tuple(pair for pair in exchange.mirrored if pair[0].lower() not in names)

    # --- Down -------------------------------------------------------------------------------------------------------

    def receive_response(self, link: Link, exchange: Exchange, frame: Frame) -> bool:
        """Handles an error of a stateless server. True if the request is sent once more, or was finished here."""
        if not link.is_stateless or frame.error is None:
            return False
        session, error = link.session_of(exchange), envelope.usable_error(frame.error)
        code = envelope.error_code(error)
        if exchange.state is ExchangeState.SENT and self._repeat(link, exchange, code):
            return True  # the error of a finished task (state TASKED) does not concern the way it was called
        if code in (HEADER_MISMATCH, UNSUPPORTED_VERSION):
            exchange.step(ExchangeInput.REPLY)
            text = "the server does not accept how it was asked, which is a fault of this proxy or of the server"
            self._refuse(link, exchange, INTERNAL_ERROR, text, {"dev.isthmus/originalCode": code})
            return True
        if session.is_stateless:
            exchange.mark_native()
            return False
        if code == URL_REQUIRED and session.opens_pages:
            return False
        result = errors.to_tool_result(exchange.method, error)
        if result is None:
            return False
        exchange.step(ExchangeInput.REPLY)
        self._finish(link, exchange, result)
        return True

    def _repeat(self, link: Link, exchange: Exchange, code: int | None) -> bool:
        """Handles a refusal that concerns the form of a request. True if the request is sent once more, in another
        form."""
        if code == HEADER_MISMATCH and exchange.attempts <= 1 and not link.is_pipe:
            # Its tools may have changed since they were listed.
            self._tool_discovery.forget(link)
            exchange.drop_mirrored()
            exchange.requeue()
            link.router.resend(link, exchange)
            return True
        if code == UNSUPPORTED_VERSION and exchange.attempts <= 1:
            exchange.requeue()
            link.router.renegotiate(link, exchange)
            return True
        return False

    def receive_error(self, link: Link, exchange: Exchange, error: bytes) -> bytes:
        """Returns a server's error for a client with a session. Clients without sessions get theirs translated in
        `StatelessResponder`."""
        session = link.session_of(exchange)
        if not link.is_stateless or session.is_stateless:
            return error
        if envelope.error_code(error) == URL_REQUIRED and session.opens_pages:
            return error
        return errors.to_legacy(exchange.method, exchange.params, error)

    def receive_result(self, link: Link, exchange: Exchange, result: bytes) -> bytes | None:
        """Returns a server's result for a client with a session. Clients without sessions get theirs translated in
        `StatelessResponder`.

        Raises:
            RemoteProtocolError: it cannot be read.
        """
        if exchange.method == LISTEN:
            self._passed_listens.receive_result(link, exchange, result)
            return None
        session = link.session_of(exchange)
        if not link.upstream.remember(exchange.method, exchange.params):
            text = f"{exchange.method} is not set again if the server is lost: too many are remembered"
            self._context.note("warning", text, link.plan.id)
        self._receive_set(link, session, exchange)
        if exchange.method == "tools/list":
            result = self._learn_listed(link, session, exchange, result)
        if session.is_stateless:
            exchange.mark_native(link.is_stateless)
            return result
        is_wrapped = False
        if link.tools.wrapped and exchange.method == "tools/call":
            is_wrapped = envelope.text_of(envelope.member_of(exchange.params, "name")) in link.tools.wrapped
        server = features_of(link.upstream.revision)
        shown = results.to_legacy(
            exchange.method, result, client=session.features, server=server, is_wrapped=is_wrapped
        )
        return shown_tools(link, session, shown) if exchange.method == "tools/list" else shown

    def _learn_listed(self, link: Link, session: Session, exchange: Exchange, result: bytes) -> bytes:
        """Records what a page of `tools/list` says about the way tools are called. Returns the page for the client."""
        is_first = envelope.member_of(exchange.params, "cursor") in (None, b"null")
        self._tool_discovery.learn_support(link, result, is_first=is_first)
        if link.is_stateless and not link.is_pipe:
            result = self._tool_discovery.learn(link, session, result, is_first=is_first)
        elif session.is_stateless:
            self._tool_discovery.advertise(link, session, result, is_first=is_first)
        if link.is_stateless:
            tools_max = self._context.limits.tools_known_max
            link.tools.learn_wrapped(results.wrapped_tools(result), is_first=is_first, tools_max=tools_max)
        return result

    # --- Ends -------------------------------------------------------------------------------------------------------

    def forget(self, link: Link | None, session: Session, exchange: Exchange) -> None:
        if exchange.key in session.listens:
            self._client_listens.forget(link, session, exchange)

    def receive_ready(self, link: Link) -> None:
        self._client_listens.receive_ready(link)

    def receive_lost(self, link: Link, reason: str) -> None:
        for exchange in self._let_go(link):
            link.enqueue(exchange)
        self._client_listens.receive_lost(link)
        self._passed_listens.receive_lost(link)

    def _let_go(self, link: Link) -> list[Exchange]:
        """Handles the loss of a server. Returns the requests that waited here and were not sent."""
        subscribing = link.subscriptions.take_waiting()
        _, levelling = link.take_level()
        waiting = [*link.tools.take_waiting(), *levelling, *subscribing]
        for exchange in subscribing:
            if not exchange.is_over:
                self._writer.expect_none(exchange)
                exchange.requeue()
        for session in link.sessions.values():
            if session.is_stateless:
                session.set_level(None)
        return [exchange for exchange in waiting if not exchange.is_over]

    def _finish(self, link: Link, exchange: Exchange, result: bytes) -> None:
        link.router.finish(link, exchange, envelope.encode_result(exchange.id_raw, result))

    def _refuse(self, link: Link, exchange: Exchange, code: int, text: str, data: object = None) -> None:
        link.router.finish(link, exchange, envelope.encode_error(exchange.id_raw, code, text, data))
