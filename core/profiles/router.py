"""Routes the requests of sessions with a profile: each to the server that its name or URI stands for, and lists to all.

A request is sent on a leg (`legs`), under the same id. Its response, and all that the server says on the way, come back
in the words of the profile (`rewriting`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from ..access.policy import may_see
from ..base.errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    OVERLOADED,
    UPSTREAM_UNAVAILABLE,
    RemoteProtocolError,
)
from ..base.events import Headers
from ..base.grants import NO_GRANTS, Grants
from ..base.log_levels import LEVELS
from ..base.methods import LISTEN
from ..base.plan import Profile
from ..base.revisions import LATEST_LEGACY, features_of, is_known_legacy
from ..bridge import errors
from ..bridge.discovery import introduction
from ..bridge.request_name import name_in
from ..bridge.tasks import is_task, methods_of
from ..jsonrpc import envelope
from ..jsonrpc.envelope import Frame
from ..jsonrpc.splice import set_member
from ..state.context import Context
from ..state.exchange import Exchange, ExchangeInput, ExchangeState
from ..state.feature import TimerHandler
from ..state.link import Link
from ..state.listen_filter import LISTS as LIST_CHANGES
from ..state.listen_filter import ListenFilter
from ..state.session import PendingQuestion, Session
from .legs import Front, Leg, LegReply, Legs, question_name, question_of
from .listens import Listens
from .lists import Lists
from .names import Route
from .plain_calls import PlainCalls
from .profile import ProfileView
from .rewriting import LISTINGS, NAMING, Addressed, unknown_name
from .search_surface import SEARCHABLE, SearchSurface
from .services import Services
from .snapshots import Snapshots
from .task_routing import TaskRouting

if TYPE_CHECKING:
    pass

OF_RESOURCES: Final = frozenset({"resources/read", "resources/subscribe", "resources/unsubscribe"})
NO_VALUES = b'{"completion":{"values":[]}}'
"""The completion of a server that completes nothing."""


class ProfileRouter:
    """Routes the requests of all sessions with one profile (`SessionRouter`)."""

    def __init__(self, context: Context, services: Services, profile: Profile) -> None:
        downstream, router, tasks, files = services.downstream, services.router, services.tasks, services.files
        self._context = context
        self._sessions = downstream.sessions
        self._responder = downstream.responder
        self._router = router
        self._files = files
        self._visits = services.visits
        rules = () if tasks is None else [context.servers[one.id].tasks for one in profile.servers]
        self._view = ProfileView(profile, context.plan.version, rules)
        self._legs = Legs(
            context,
            downstream.sessions,
            downstream.responder,
            router,
            self._receive_notification,
            self._receive_question,
            lambda front, leg: self._listens.join(front, leg),
            lambda front, leg, introduction: self._view.instructions.learn(
                front.session.principal, leg.server, introduction
            ),
            lambda server, tool: self._view.names.expose(server, "tools", tool),
            {server.id: server for server in profile.servers},
        )
        self._lists = Lists(
            context,
            downstream.responder,
            Snapshots(context, services.storage_orders, profile),
            self._view,
            self._legs,
            files,
            services.advertised,
            self._shows,
            self._tell_change,
        )
        self._task_routing = TaskRouting(downstream.responder, self._view, tasks, self._shows, self._send_to)
        self._surface = SearchSurface(downstream.responder, self._view, self._lists, tasks, self._shows)
        changing = ListenFilter(tools=not profile.has_search, prompts=True, resources=True)
        receive_change = self._lists.receive_change
        self._listens = Listens(
            context, services.client_listens, self._legs, self._view.rewriter, files, receive_change, changing
        )
        self._fronts: dict[str, Front] = {}
        plain_calls = PlainCalls(downstream.responder, self._view.rewriter, self._fronts, self._receive_answer)
        self.plain_way = plain_calls.way_of
        self.timers: Mapping[str, TimerHandler] = {
            "profile list": self._lists.handle_wait,
            "profile change": self._handle_change,
            "profile ack": self._listens.handle_ack,
            "profile relisten": self._listens.handle_retry,
        }

    def _shows(self, server: str, grants: Grants) -> bool:
        rules = self._context.servers[server].access
        return rules is None or may_see(rules.server, grants)

    # --- Sessions ---------------------------------------------------------------------------------------------------

    def begin(self, session: Session, initialize: bytes) -> None:
        """Opens a session at once: no server is needed for that."""
        try:
            limit = self._context.limits.initialize_size_max_bytes
            if len(initialize) > limit:
                text = f"got params of {len(initialize)} bytes, expected at most {limit}"
                raise RemoteProtocolError(text, rpc_code=INVALID_PARAMS)
            if not session.room.take(2 * len(initialize)):
                raise RemoteProtocolError("open sessions keep too many bytes: try again later", rpc_code=OVERLOADED)
            session.introduce(introduction(initialize))
        except RemoteProtocolError as error:
            text = f"initialize: {error.message}"
            self._sessions.refuse_session(session, envelope.error_object(error.rpc_code, text))
            return
        wanted = session.client.revision
        features = features_of(wanted if is_known_legacy(wanted) else LATEST_LEGACY)
        front = self._fronts[session.sid] = Front(session, initialize)
        instructions = self._instructions_for(front, session.opener)
        self._sessions.accept_session(session, self._view.handshake(features, instructions), features.revision)

    def begin_stateless(self, session: Session) -> None:
        self._fronts[session.sid] = Front(session)
        session.receive_greeting(self._view.discovery())

    def _instructions_for(self, front: Front, exchange: Exchange | None) -> str:
        grants = NO_GRANTS if exchange is None else self._lists.kind_of(front, exchange).grants
        known = self._view.instructions
        return known.text(front.session.principal, self._view.servers, lambda server: self._shows(server, grants))

    def has_room(self, session: Session) -> bool:
        front = self._fronts.get(session.sid)
        return front is None or all(self._router.has_room(leg.session) for leg in front.legs.values())

    def is_used(self, session: Session) -> bool:
        front = self._fronts.get(session.sid)
        legs = [] if front is None else [leg.session for leg in front.legs.values()]
        # A client without sessions comes back for its tasks, and others may wait for a list that is read for it.
        is_busy = session.is_stateless and any(leg.exchanges for leg in legs)
        return is_busy or any(self._router.is_used(one) for one in (session, *legs))

    def keeps_state(self, session: Session) -> bool:
        front = self._fronts.get(session.sid)
        return front is not None and any(self._router.keeps_state(leg.session) for leg in front.legs.values())

    def close_session(self, session: Session) -> None:
        """Handles the coming end of a session: its legs end."""
        front = self._fronts.get(session.sid)
        if front is not None:
            for exchange in list(session.exchanges.values()):
                self._listens.withdraw(front, exchange)
            self._legs.close(front, "the session is over")
        self._router.close_session(session)

    def end(self, session: Session, questions: list[PendingQuestion]) -> None:
        self._fronts.pop(session.sid, None)
        self._router.end(session, [])

    def is_live(self, sid: str) -> bool:
        return sid in self._fronts

    # --- Requests ---------------------------------------------------------------------------------------------------

    def request(self, session: Session, exchange: Exchange) -> None:
        """Sends a client's request to the servers that it is for."""
        front, method = self._fronts[session.sid], exchange.method
        if self._view.has_search and method in SEARCHABLE:
            params = self._surface.receive(front, exchange)
            if params is not None:
                self._send_on(front, exchange, params)
        elif method in LISTINGS:
            self._lists.request(front, exchange)
        elif method in NAMING:
            self._send_on(front, exchange, exchange.params)
        elif method.startswith("tasks/") and method in methods_of(is_stateless=session.is_stateless):
            self._task_routing.request(front, exchange, self._lists.kind_of(front, exchange).grants)
        elif method == LISTEN and session.is_stateless:
            self._listen(front, exchange)
        elif method == "logging/setLevel" and not session.is_stateless:
            self._set_level(front, exchange)
        elif method == "server/discover" and session.is_stateless:
            result = self._view.discovery(self._instructions_for(front, exchange))
            exchange.mark_native()
            self._responder.answer(session, exchange, envelope.encode_result(exchange.id_raw, result))
        else:
            self._responder.fail(session, exchange, METHOD_NOT_FOUND, f"Method not found: {method[:100]}")

    def _send_on(
        self, front: Front, exchange: Exchange, params: bytes | None, *, are_files_known: bool = False
    ) -> None:
        session = front.session

        def go_on(problem: str) -> None:
            if exchange.state is not ExchangeState.PREPARING:
                return  # the client has left meanwhile
            if problem:
                self._responder.fail(session, exchange, INTERNAL_ERROR, problem)
            else:
                self._send_on(front, exchange, params, are_files_known=True)

        try:
            kind = self._lists.kind_of(front, exchange)
            found = self._view.rewriter.address(exchange.method, params, self._lists.snapshots(kind))
            if found is None and self._files is not None and exchange.method in OF_RESOURCES:
                if not are_files_known and self._files.wait_for_files(params, go_on):
                    return
                uri = name_in(exchange.method, params) or ""
                found = Addressed(self._files.server_of(session, uri), uri, params or b"{}")
            if found is None or not self._shows(found.server, kind.grants):
                raise unknown_name(exchange.method, params)
        except RemoteProtocolError as error:
            self._responder.fail(session, exchange, error.rpc_code, error.message, error.data)
            return
        self._send_to(front, exchange, found.server, found.params)

    def _send_to(self, front: Front, exchange: Exchange, server: str, params: bytes | None) -> None:
        session = front.session
        leg = self._legs.open(front, server)
        if isinstance(leg, str):
            self._responder.fail(session, exchange, UPSTREAM_UNAVAILABLE, leg)
            return
        visits = self._visits if session.is_stateless else None
        retry = None if visits is None else visits.read_retry(leg.session, exchange.method, params)
        reply = LegReply(partial(self._receive_answer, front, leg, exchange))
        inner = Exchange(
            exchange.key,
            reply,
            sid=leg.session.sid,
            id_raw=exchange.id_raw,
            id_key=exchange.id_key,
            method=exchange.method,
            params=params if retry is None else retry.params,
            token_raw=exchange.token_raw,
            headers=leg.passed(exchange.headers),
            request=exchange.request,
            mirrored=exchange.mirrored,
            trace=exchange.trace,
        )
        exchange.step(ExchangeInput.PREPARED)
        exchange.receive_written(0, None)
        front.send_on(exchange, leg, inner)
        if visits is None or retry is None:
            self._legs.send(leg, inner)
        else:
            self._legs.add(leg, inner)
            visits.resume(leg.session, inner, retry.claims, retry.responses)

    def _receive_answer(self, front: Front, leg: Leg, exchange: Exchange, reply: LegReply, message: bytes) -> None:
        """Gives a client's request the response that came on a leg."""
        sent = front.take_sent(exchange)
        if sent is None or exchange.is_over:
            return
        _, inner = sent
        frame = envelope.decode(message)
        instead = None if exchange.lacking is None else _lacking(exchange.lacking, frame)
        if instead is not None:
            exchange.mark_native()
            self._responder.answer(front.session, exchange, envelope.encode_error_raw(exchange.id_raw, instead))
            return
        if frame.result is not None:
            result = self._view.rewriter.result(leg.server, exchange.method, frame.result)
            if result is not frame.result:
                message = envelope.encode_result(exchange.id_raw, result)
        elif exchange.method == "completion/complete" and envelope.error_code(frame.error or b"{}") == METHOD_NOT_FOUND:
            message = envelope.encode_result(exchange.id_raw, NO_VALUES)
        if exchange.reply.ends_channel and exchange.reply.gathered is None:
            exchange.reply.refuse(reply.status, reply.challenge)
            exchange.reply.add_headers(reply.headers)
        # The handle of a task is in the client's era already.
        exchange.mark_native(inner.is_native or _is_handle(exchange, frame.result))
        self._responder.answer(front.session, exchange, message)

    def _listen(self, front: Front, exchange: Exchange) -> None:
        kind = self._lists.kind_of(front, exchange)
        snapshots = self._lists.snapshots(kind)

        def route_uri(uri: str) -> Route | None:
            route = self._view.rewriter.route_uri(uri, snapshots)
            return route if route is not None and self._shows(route.server, kind.grants) else None

        def server_of(id: str) -> str | None:
            return self._task_routing.server_of(front.session, id, kind.grants)

        try:
            self._listens.begin(front, exchange, route_uri, server_of)
        except RemoteProtocolError as error:
            self._responder.fail(front.session, exchange, error.rpc_code, error.message, error.data)

    def _set_level(self, front: Front, exchange: Exchange) -> None:
        try:
            level = envelope.text_of(envelope.member_of(exchange.params, "level"))
        except RemoteProtocolError:
            level = None
        if level not in LEVELS or exchange.params is None:
            text = f"got no known log level, expected one of {', '.join(LEVELS)}"
            self._responder.fail(front.session, exchange, INVALID_PARAMS, text)
            return
        front.set_level(exchange.params)
        for leg in front.legs.values():
            if leg.is_open:
                self._legs.tell(leg, "logging/setLevel", exchange.params)
        self._responder.answer(front.session, exchange, envelope.encode_result(exchange.id_raw, b"{}"))

    def repeat(self, session: Session, exchange: Exchange) -> None:
        found = self._fronts[session.sid].sent_on.get(exchange.key)
        if found is not None:
            self._router.repeat(found[0].session, found[1])

    def expect_reply(self, session: Session, exchange: Exchange) -> None:
        found = self._fronts[session.sid].sent_on.get(exchange.key)
        if found is not None:
            self._router.expect_reply(found[0].session, found[1])

    def withdraw(self, session: Session, exchange: Exchange, params: bytes | None, headers: Headers) -> None:
        front = self._fronts.get(session.sid)
        if front is None:
            return
        self._lists.withdraw(front, exchange)
        self._listens.withdraw(front, exchange)
        found = front.take_sent(exchange)
        if found is not None:
            self._legs.cancel(*found, params, headers)

    # --- Other messages of clients ----------------------------------------------------------------------------------

    def notify(self, session: Session, method: str, params: bytes | None, headers: Headers) -> None:
        front = self._fronts[session.sid]
        if method != "notifications/progress":
            for leg in front.legs.values():
                if leg.is_open:
                    self._router.notify(leg.session, method, params, leg.passed(headers))
            return
        try:
            token = envelope.member_of(params, "progressToken")
        except RemoteProtocolError:
            return
        number = None if token is None else envelope.number_of(token)
        question = None if number is None else session.questions.get(number)
        found = None if question is None else self._leg_of(front, question)
        if found is not None and number is not None and params is not None:
            leg, asked = found
            self._responder.expect_answer(session, number)
            self._router.notify(
                leg.session, method, set_member(params, "progressToken", b"%d" % asked), leg.passed(headers)
            )

    def reply(self, session: Session, question: PendingQuestion, answer: Frame, headers: Headers) -> None:
        """Gives a client's response to the server that has asked."""
        found = self._leg_of(self._fronts[session.sid], question)
        if found is None:
            return
        leg, number = found
        asked = self._responder.take_question(leg.session, b"%d" % number)
        if asked is not None:
            self._router.reply(leg.session, asked, answer, leg.passed(headers))

    def tick(self, session: Session, question: PendingQuestion, count: int) -> None:
        found = self._leg_of(self._fronts[session.sid], question)
        asked = None if found is None else found[0].session.questions.get(found[1])
        if found is not None and asked is not None:
            self._router.tick(found[0].session, asked, count)

    def _leg_of(self, front: Front, question: PendingQuestion) -> tuple[Leg, int] | None:
        """Returns the leg on which a question came, and its number there; None if the leg is over."""
        server, number = question_of(question.id_raw)
        leg = front.legs.get(server)
        return None if leg is None else (leg, number)

    # --- From servers -----------------------------------------------------------------------------------------------

    def _receive_notification(
        self, front: Front, leg: Leg, method: str, message: bytes, related: Exchange | None
    ) -> None:
        if method in LIST_CHANGES and not self._lists.receive_change(front, leg.server, method):
            return
        if self._view.is_constant(method):
            return
        if method in LIST_CHANGES and not self._responder.may_announce(front.session, method):
            return
        params = envelope.decode(message).params
        if params is not None:
            shown = self._view.rewriter.message(leg.server, method, params)
            if method == "notifications/message":
                shown = self._with_logger(leg.server, params)
            if shown is not params:
                message = envelope.encode_notification(method, shown)
        self._responder.deliver(front.session, method, message, related)

    def _tell_change(self, front: Front, method: str) -> None:
        """Tells a client that a list has changed."""
        if self._fronts.get(front.session.sid) is front and not self._view.is_constant(method):
            self._responder.announce(front.session, method)

    def _handle_change(self, sid: str, change: tuple[str, str]) -> None:
        front = self._fronts.get(sid)
        if front is not None:
            self._lists.read_again(front, *change)

    def _receive_question(
        self, front: Front, leg: Leg, question: PendingQuestion, params: bytes | None, related: Exchange | None
    ) -> None:
        if params is not None:
            params = self._view.rewriter.message(leg.server, question.method, params)
        id_raw = question_name(leg.server, question.number)
        if any(known.id_raw == id_raw for known in front.session.questions.values()):
            return  # a question of a task, which is put for each `tasks/result`
        shown = PendingQuestion(id_raw, question.token_raw, question.method, 0, None)
        self._responder.ask(front.session, shown, params, related)

    def _with_logger(self, server: str, params: bytes) -> bytes:
        """Returns the params of a log message whose logger says which server it is of."""
        try:
            logger = envelope.text_of(envelope.member_of(params, "logger"))
        except RemoteProtocolError:
            return params
        name = f"{server}/{logger}" if logger else server
        return set_member(params, "logger", msgspec.json.encode(name))

    # --- Links: only legs have any ----------------------------------------------------------------------------------

    def link_of(self, exchange: Exchange) -> Link | None:
        return None

    def earlier_link_of(
        self, session: Session, exchange: Exchange, upstream: str, revision: str, address: str = ""
    ) -> Link:
        raise AssertionError("a front has no tasks")

    def server_of(self, session: Session, exchange: Exchange) -> tuple[str, bytes | None]:
        found = self._fronts[session.sid].sent_on.get(exchange.key)
        return ("", None) if found is None else (found[0].server, found[1].params)

    def session_with(self, session: Session) -> tuple[str, str, str]:
        return "", "", ""

    def leave(self, session: Session, exchange: Exchange) -> None:
        pass


def _lacking(capability: bytes, frame: Frame) -> bytes | None:
    """Returns the error that names a capability that a server has asked for and the client lacks; None if the call did
    not fail for that, as far as can be told."""
    error = None if frame.error is None else envelope.usable_error(frame.error)
    return errors.to_missing_capability(capability, error=error, result=frame.result)


def _is_handle(exchange: Exchange, result: bytes | None) -> bool:
    """True if the response to a request is the handle of a task."""
    try:
        return exchange.method == "tools/call" and result is not None and is_task(result)
    except RemoteProtocolError:
        return False


def profile_routers(context: Context, services: Services) -> dict[str, ProfileRouter]:
    """Returns the router of each profile of the plan, by id."""
    return {profile.id: ProfileRouter(context, services, profile) for profile in context.plan.profiles}


def timers_of(routers: Mapping[str, ProfileRouter]) -> dict[str, TimerHandler]:
    """Returns the handlers of the timers of all profiles, by purpose. Each ignores the timers of others."""
    all_timers = [router.timers for router in routers.values()]

    def handler(purpose: str) -> TimerHandler:
        def handle(*key: object) -> None:
            for timers in all_timers:
                timers[purpose](*key)

        return handle

    return {purpose: handler(purpose) for timers in all_timers[:1] for purpose in timers}
