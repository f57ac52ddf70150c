"""Where a client and its server talk in different ways: what is done to requests before they go up, and to answers.

Requests that only one side knows are answered here, or made into what the other side has for them: a log level told
once and one told with each request, subscriptions of a session and subscriptions by name, a handshake and a discovery.
What is left are the same requests with other metadata, for which `bridge` has the rules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol

import msgspec

from ..base.effects import Headers
from ..base.errors import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    UNSUPPORTED_VERSION,
    URL_REQUIRED,
    RemoteProtocolError,
)
from ..base.log_levels import LEVELS
from ..base.methods import MAY_ASK
from ..base.revisions import features_of
from ..bridge import errors, request_meta, results
from ..bridge.input_requests import is_input_required
from ..input_required.replay import Replays
from ..input_required.rounds import Rounds
from ..jsonrpc import envelope
from ..jsonrpc.envelope import Frame
from ..jsonrpc.splice import remove_member
from ..state.context import Desk
from ..state.exchange import Exchange
from ..state.exchange import Input as ExchangeInput
from ..state.exchange import State as ExchangeState
from ..state.link import Link
from ..state.session import Session
from ..state.upstream_session import REMEMBERED
from ..subscriptions.client_listens import Listens
from ..subscriptions.server_listens import News
from ..tasks.upstream_tasks import Tasked
from ..upstream.shared_process import Crowd
from ..upstream.task_offers import shown_tools
from ..upstream.tool_discovery import Schooling
from ..upstream.writer import Uplink
from ..wire.http.mcp_headers import headers_for

ONLY_STATELESS: Final = frozenset({"server/discover", "subscriptions/listen"})
"""Requests that no client with a session can mean."""


class Visits(Protocol):
    """Who asks clients without sessions to visit pages."""

    def receive_visits(self, link: Link, exchange: Exchange, error: bytes) -> bool:
        """A call was refused until pages are visited. False if its client cannot be asked to."""

    def forget(self, session: Session, exchange: Exchange) -> None:
        """The call is over, or goes on."""


class Calling(Protocol):
    """What servers are told of tasks with each call."""

    def params_to_legacy(self, exchange: Exchange, params: bytes | None) -> bytes | None: ...

    def capabilities_up(self, exchange: Exchange, capabilities: bytes) -> bytes: ...

    def must_repeat(self, link: Link, exchange: Exchange, error: bytes) -> bool: ...


class Finish(Protocol):
    def finish(self, link: Link, exchange: Exchange, message: bytes) -> None: ...

    def resend(self, link: Link, exchange: Exchange) -> None: ...

    def renegotiate(self, link: Link, exchange: Exchange, *, for_tasks: bool = False) -> None: ...


class Crossings:
    """
    Args:
        crowds: of links that several sessions share, by the links' ids.
        write: sends a request up that has waited here.
    """

    def __init__(
        self,
        desk: Desk,
        uplink: Uplink,
        rounds: Rounds,
        news: News,
        listens: Listens,
        tasked: Tasked,
        crowds: Mapping[str, Crowd],
        *,
        write: Callable[[Link, Exchange], None],
    ) -> None:
        self.onward: Finish
        self.visits: Visits
        self.calling: Calling
        self.schooling = Schooling(desk, uplink, write)
        self.replays = Replays(desk.limits)
        self._desk = desk
        self._uplink = uplink
        self._rounds = rounds
        self._news = news
        self._listens = listens
        self._tasked = tasked
        self._crowds = crowds
        self._write = write

    # --- Up ---------------------------------------------------------------------------------------------------------

    def receive_request(self, link: Link, exchange: Exchange) -> bool:
        """A request is about to go up. True if it is answered here, or waits."""
        session = link.session_of(exchange)
        if session.is_stateless:
            return self._receive_stateless(link, session, exchange)
        return link.is_stateless and self._receive_wish(link, session, exchange)

    def _receive_stateless(self, link: Link, session: Session, exchange: Exchange) -> bool:
        if exchange.method == "server/discover":
            assert session.greeting is not None
            exchange.is_native = True
            self._finish(link, exchange, session.greeting)
            return True
        if exchange.method == "subscriptions/listen":
            exchange.step(ExchangeInput.SEND)
            self._listens.begin(link, session, exchange)
            return True
        if link.is_stateless:
            return self._must_learn(link, session, exchange)
        state = envelope.member_of(exchange.params, "requestState")  # its params were read when it came
        if state not in (None, b"null"):  # it was none of ours that could still be honoured
            self._refuse(
                link, exchange, INVALID_PARAMS, "Invalid or expired requestState", {"reason": "invalid_request_state"}
            )
            return True
        return self._must_level(link, session, exchange)

    def _receive_wish(self, link: Link, session: Session, exchange: Exchange) -> bool:
        method = exchange.method
        if method == "logging/setLevel":
            self._set_level(link, session, exchange)
        elif method in ("resources/subscribe", "resources/unsubscribe"):
            exchange.step(ExchangeInput.SEND)
            self._news.receive_wish(link, session, exchange)
        elif method in ONLY_STATELESS:
            self._refuse(link, exchange, METHOD_NOT_FOUND, f"Method not found: {method[:100]}")
        else:
            return self._must_learn(link, session, exchange)
        return True

    def _set_level(self, link: Link, session: Session, exchange: Exchange) -> None:
        """From now on each request of the session says it."""
        try:
            level = envelope.text_of(envelope.member_of(exchange.params, "level"))
        except RemoteProtocolError:
            level = None
        if link.upstream.capabilities is None or "logging" not in link.upstream.capabilities:
            self._refuse(link, exchange, METHOD_NOT_FOUND, "the server does not log")
        elif level not in LEVELS:
            self._refuse(link, exchange, INVALID_PARAMS, f"got no known log level, expected one of {', '.join(LEVELS)}")
        else:
            session.level = level
            if not link.is_shared:
                link.upstream.remember(exchange.method, exchange.params)
            self._finish(link, exchange, b"{}")

    def receive_set(self, link: Link, exchange: Exchange) -> None:
        """A server with sessions has set something: should it come back without them, it is wanted all the same."""
        session = link.session_of(exchange)
        if link.is_shared or session.is_stateless or exchange.method not in REMEMBERED:
            return
        name = "level" if exchange.method == "logging/setLevel" else "uri"
        value = envelope.text_of(envelope.member_of(exchange.params, name))
        if value is None:
            return
        if exchange.method == "logging/setLevel":
            session.level = value if value in LEVELS else session.level
        elif exchange.method == "resources/unsubscribe":
            session.subscriptions.pop(value, None)
        elif len(session.subscriptions) < self._desk.limits.subscriptions_per_session_max:
            session.subscriptions[value] = None

    def _must_learn(self, link: Link, session: Session, exchange: Exchange) -> bool:
        if not self.schooling.wants(link, session, exchange):
            return False
        self.schooling.begin(link, exchange)
        return True

    def _must_level(self, link: Link, session: Session, exchange: Exchange) -> bool:
        """A server with sessions is told once what it is to log: before the first request that wants so much."""
        wanted = None if exchange.leg is None else exchange.leg.log_level
        declared = link.upstream.capabilities or frozenset()
        if wanted is None or "logging" not in declared:
            return False
        if session.level is not None and LEVELS.index(session.level) <= LEVELS.index(wanted):
            return False
        if link.levelling is not None:
            link.levelling[1].append(exchange)
            return True
        crowd = self._crowds.get(link.id)
        if crowd is not None:
            wanted = crowd.want_level(session, wanted)
        link.levelling = (wanted, [exchange])
        self._uplink.run(link, "level", "logging/setLevel", msgspec.json.encode({"level": wanted}))
        self._desk.timers.set(("level", link.id), self._desk.now + self._desk.limits.lookup_s, "log level")
        return True

    def receive_levelled(self, link: Link, *, is_done: bool) -> None:
        """The server was told what to log, or could not be."""
        assert link.levelling is not None
        self._desk.timers.cancel(("level", link.id))
        (level, waiting), link.levelling = link.levelling, None
        for session in link.sessions.values():
            if session.is_stateless:
                session.level = level if is_done else LEVELS[0]  # not to be tried again with each request
        if is_done:
            link.upstream.remember("logging/setLevel", msgspec.json.encode({"level": level}))
        for exchange in waiting:
            if not exchange.is_over:
                self._write(link, exchange)

    def handle_level(self, link: Link) -> None:
        """It takes too long: its clients go without the log rather than without an answer."""
        self._uplink.give_up(link, "level")
        self.receive_levelled(link, is_done=False)

    def params_up(self, link: Link, exchange: Exchange) -> bytes | None:
        """The params of a request as its server is to have them.

        Raises:
            RemoteProtocolError: they cannot be brought there: they are no object, or have a member twice.
        """
        session = link.session_of(exchange)
        if not link.is_stateless:
            params = request_meta.strip_retry(exchange.params) if session.is_stateless else exchange.params
            return self.calling.params_to_legacy(exchange, params)
        revision = link.upstream.revision
        assert revision is not None
        if session.is_stateless:
            if exchange.leg is None:
                return exchange.params
            able = exchange.leg.capabilities
            if link.plan.owns_roots:
                able = remove_member(able, "roots")  # they are paths of another machine
            able = self.calling.capabilities_up(exchange, able)
            if able is exchange.leg.capabilities:
                return exchange.params
            return request_meta.add(exchange.params, msgspec.structs.replace(exchange.leg, capabilities=able))
        params = exchange.params
        if params is not None and b'"task"' in params:
            params = remove_member(params, "task")  # it has another word for it
        able = self.calling.capabilities_up(exchange, session.client.capabilities)
        who = msgspec.structs.replace(session.client, revision=revision, log_level=session.level, capabilities=able)
        return request_meta.add(params, who)

    def mirrored_up(self, link: Link, exchange: Exchange, params: bytes | None) -> Headers:
        """What of a request its server wants in headers too.

        Raises:
            RemoteProtocolError: something of it fits into no header, or could be read in two ways.
        """
        if not link.is_stateless or link.is_pipe:
            return ()
        tool = envelope.text_of(envelope.member_of(params, "name")) if exchange.method == "tools/call" else None
        mirrors = (link.mirrors or {}).get(tool or "", ())
        own = headers_for(exchange.method, params, mirrors)
        names = {name.lower() for name, _ in own}
        # 2026-07-28 basic/transports/streamable-http: whoever stands between passes on what it does not know.
        return own + tuple(pair for pair in exchange.mirrored if pair[0].lower() not in names)

    # --- Down -------------------------------------------------------------------------------------------------------

    def receive_answer(self, link: Link, exchange: Exchange, frame: Frame) -> bool:
        """A server answered a request. True if that is not the end of it, or was dealt with here."""
        session = link.session_of(exchange)
        if frame.result is not None and self._tasked.receive_created(link, exchange, frame.result):
            return True
        if frame.error is not None:
            return self._receive_error(link, session, exchange, envelope.usable_error(frame.error))
        if not link.is_stateless:
            return exchange.lacking is not None and self._lack(link, exchange, result=frame.result)
        if frame.result is None or not is_input_required(frame.result):
            return False
        if exchange.method not in MAY_ASK:
            text = f"got input_required for {exchange.method}, expected it for {', '.join(sorted(MAY_ASK))} only"
            raise RemoteProtocolError(text, clause="2026-07-28 basic/patterns/mrtr, Supported Requests")
        if exchange.state is ExchangeState.TASKED:
            text = "got input_required for what a task came to, expected its result"
            raise RemoteProtocolError(text, clause="extension io.modelcontextprotocol/tasks, Task Creation")
        if not session.is_stateless or exchange.task is not None:
            self._rounds.receive_questions(link, exchange, frame.result)
            return True
        exchange.is_native = True
        exchange.step(ExchangeInput.REPLY)
        self._finish(link, exchange, frame.result)
        return True

    def _receive_error(self, link: Link, session: Session, exchange: Exchange, error: bytes) -> bool:
        code = envelope.error_code(error)
        if not link.is_stateless:
            if self.calling.must_repeat(link, exchange, error):
                exchange.step(ExchangeInput.REQUEUE)
                self.onward.renegotiate(link, exchange, for_tasks=True)
                return True
            if exchange.lacking is not None:
                return self._lack(link, exchange, error=error)
            may_ask = session.is_stateless and exchange.task is None
            return may_ask and code == URL_REQUIRED and self.visits.receive_visits(link, exchange, error)
        if exchange.state is ExchangeState.SENT and self._repeat(link, exchange, code, error):
            return True  # what a task came to is no word on how it was called
        if code in (HEADER_MISMATCH, UNSUPPORTED_VERSION):
            exchange.step(ExchangeInput.REPLY)
            text = "the server does not accept how it was asked, which is a fault of this proxy or of the server"
            self._refuse(link, exchange, INTERNAL_ERROR, text, {"dev.isthmus/originalCode": code})
            return True
        if session.is_stateless:
            exchange.is_native = True
            return False
        result = errors.to_tool_result(exchange.method, error)
        if result is None:
            return False
        exchange.step(ExchangeInput.REPLY)
        self._finish(link, exchange, result)
        return True

    def _repeat(self, link: Link, exchange: Exchange, code: int | None, error: bytes) -> bool:
        """A server refused a request for how it was sent. True if it is sent once more, in another way."""
        if code == HEADER_MISMATCH and exchange.attempts <= 1 and not link.is_pipe:
            # Its tools may have changed since they were listed.
            self.schooling.forget(link)
            exchange.mirrored = ()
            exchange.step(ExchangeInput.REQUEUE)
            self.onward.resend(link, exchange)
            return True
        if code == UNSUPPORTED_VERSION and exchange.attempts <= 1:
            exchange.step(ExchangeInput.REQUEUE)
            self.onward.renegotiate(link, exchange)
            return True
        if self.calling.must_repeat(link, exchange, error):
            exchange.step(ExchangeInput.REQUEUE)
            self.onward.resend(link, exchange)
            return True
        return False

    def _lack(self, link: Link, exchange: Exchange, *, error: bytes | None = None, result: bytes | None = None) -> bool:
        """The server answered after it had asked in vain. True if that was why it failed, as far as can be told."""
        assert exchange.lacking is not None
        instead = errors.to_missing_capability(exchange.lacking, error=error, result=result)
        if instead is None:
            return False
        exchange.is_native = True
        exchange.step(ExchangeInput.REPLY)
        self.onward.finish(link, exchange, envelope.encode_error_raw(exchange.id_raw, instead))
        return True

    def error_down(self, link: Link, exchange: Exchange, error: bytes) -> bytes:
        """An error of a server, as a client with a session may see it; others are shown theirs at the very end."""
        if link.is_stateless and not link.session_of(exchange).is_stateless:
            return errors.to_legacy(exchange.method, exchange.params, error)
        return error

    def result_down(self, link: Link, exchange: Exchange, result: bytes) -> bytes:
        """A result likewise.

        Raises:
            RemoteProtocolError: it cannot be read.
        """
        session = link.session_of(exchange)
        if exchange.method == "tools/list":
            result = self._listed(link, session, exchange, result)
        if session.is_stateless:
            exchange.is_native = link.is_stateless
            return result
        is_wrapped = False
        if link.wrapped and exchange.method == "tools/call":
            is_wrapped = envelope.text_of(envelope.member_of(exchange.params, "name")) in link.wrapped
        server = features_of(link.upstream.revision)
        shown = results.to_legacy(
            exchange.method, result, client=session.features, server=server, is_wrapped=is_wrapped
        )
        return shown_tools(link, session, shown) if exchange.method == "tools/list" else shown

    def _listed(self, link: Link, session: Session, exchange: Exchange, result: bytes) -> bytes:
        """A list of tools, or a part of one: what it says of how they are called is remembered."""
        is_first = envelope.member_of(exchange.params, "cursor") in (None, b"null")
        self.schooling.learn_support(link, result, is_first=is_first)
        if link.is_stateless and not link.is_pipe:
            result = self.schooling.learn(link, session, result, is_first=is_first)
        elif session.is_stateless:
            self.schooling.advertise(link, session, result, is_first=is_first)
        if link.is_stateless:
            wrapped = results.wrapped_tools(result)
            has_room = len(link.wrapped) + len(wrapped) <= self._desk.limits.tools_known_max
            link.wrapped = link.wrapped | wrapped if has_room and not is_first else wrapped
        elif session.affinity is not None:
            self.replays.learn(session.affinity.audience, result, is_first=is_first)
        return result

    # --- Ends -------------------------------------------------------------------------------------------------------

    def forget(self, link: Link | None, session: Session, exchange: Exchange) -> None:
        """A request is over, however it ended."""
        if link is not None and exchange.remote is not None:
            self._tasked.forget(link, exchange)
        if session.is_stateless:
            self.visits.forget(session, exchange)
        if exchange.round is not None:
            self._rounds.forget(session, exchange)
        if exchange.key in session.listens:
            self._listens.forget(link, session, exchange)

    def let_go(self, link: Link) -> list[Exchange]:
        """The server is lost. Returns the requests that waited here, and have not been sent."""
        waiting = link.learning + ([] if link.levelling is None else link.levelling[1]) + link.subscribing
        for exchange in link.subscribing:
            if not exchange.is_over:
                self._uplink.expect_none(exchange)
                exchange.step(ExchangeInput.REQUEUE)
        link.learning, link.levelling, link.subscribing = [], None, []
        for session in link.sessions.values():
            if session.is_stateless:
                session.level = None
        return [exchange for exchange in waiting if not exchange.is_over]

    def _finish(self, link: Link, exchange: Exchange, result: bytes) -> None:
        self.onward.finish(link, exchange, envelope.encode_result(exchange.id_raw, result))

    def _refuse(self, link: Link, exchange: Exchange, code: int, text: str, data: object = None) -> None:
        self.onward.finish(link, exchange, envelope.encode_error(exchange.id_raw, code, text, data))
