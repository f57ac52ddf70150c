"""The legs of sessions with a profile: for each server that is needed, a session of its own with that server.

A leg is opened as a client opens a session, with the client's own description, and its answers go to the session with
the profile (the front). So all that holds for a session with one server holds for a leg.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import msgspec

from ..base.errors import UPSTREAM_UNAVAILABLE, RemoteProtocolError
from ..base.events import Headers
from ..base.ids import ChannelId
from ..base.plan import ProfileServer
from ..downstream.responder import Responder
from ..downstream.sessions import Sessions
from ..jsonrpc import envelope
from ..jsonrpc.envelope import Frame
from ..jsonrpc.splice import members
from ..state.context import Context
from ..state.exchange import Exchange, ExchangeKey, Reply
from ..state.ports import SessionRouter
from ..state.session import PendingQuestion, Session
from ..state.stream import Stream
from .client_kind import ClientKind

NO_CHANNEL = ChannelId(0)
_NO_STREAM: Final = Stream(None)
"""The stream of all replies on legs, which travel on none."""


class LegReply(Reply):
    """The reply to a request that is sent on a leg: its response goes to `receive`, with this reply."""

    stream = _NO_STREAM
    ends_channel = True
    can_stream = False

    def __init__(self, receive: Callable[[LegReply, bytes], None]) -> None:
        self.remaining = 0  # what else a reply has is the same for all
        self._receive = receive

    def take(self, message: bytes | None) -> tuple[bytes | None, bool]:
        self.remaining -= 1
        if message is not None:
            self._receive(self, message)
        return None, False


class Leg:
    """A session with one server of a profile.

    Attributes:
        server: the id of the server.
        session: the session.
        is_open: its handshake is done.
        is_introduced: the server has introduced itself.
        opened_at: when the leg was opened.
        is_left: its front is closing.
        waiting: the requests that wait for the handshake.
        refusal: why the handshake failed.
        needs_headers: its server is of use only to clients that send certain headers.
    """

    def __init__(self, member: ProfileServer, session: Session, *, is_open: bool, opened_at: float) -> None:
        self.server = member.id
        self._member = member
        self.needs_headers = bool(member.required_headers)
        self.opened_at = opened_at
        self.session = session
        self.is_open = is_open
        self.is_introduced = False
        self.is_left = False
        self._capabilities: frozenset[str] | None = None
        self.waiting: list[Exchange] = []
        self.refusal = ""

    def receive_introduction(self, introduction: bytes) -> None:
        """Takes the introduction of the server."""
        self.is_introduced = True
        try:
            declared = envelope.member_of(introduction, "capabilities")
            self._capabilities = None if declared is None else frozenset(members(declared))
        except RemoteProtocolError:
            self._capabilities = None

    def passed(self, headers: Headers) -> Headers:
        """Returns those headers of a client of the profile that go on to the server, under its names."""
        return _passed(self._member, headers)

    def leave(self) -> None:
        """Handles the coming end of its front."""
        self.is_left = True

    def lists(self, method: str) -> bool:
        """False if the server has not declared that it has such a list. Some have it, and others never answer."""
        return self._capabilities is None or _LISTS.get(method, "") in {"", *self._capabilities}


_LISTS: Final[Mapping[str, str]] = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resources",
}
"""The capability of each list."""


def _passed(member: ProfileServer, headers: Headers) -> Headers:
    names = dict(member.headers) if headers else {}
    return tuple((names[name.lower()], value) for name, value in headers if name.lower() in names)


def _missing_header(member: ProfileServer, session: Session) -> str:
    """Returns a header that the requests of an HTTP client lack for a server; "" if there is none."""
    if not member.required_headers or session.pipe is not None:
        return ""
    names = {name.lower() for name, _ in session.headers}
    return next((name for name in member.required_headers if name not in names), "")


class Front:
    """A session with a profile.

    Attributes:
        session: the session.
        initialize: the params of its client's `initialize`; b"" for a client without sessions.
        legs: its legs, by server.
        sent_on: its requests that are sent on, by their keys: the leg, and the request there.
        listed: its client's latest request for each list, by method, with the kind of client that it came from.
        is_closing: it has no legs any more.
        level: the params of its client's `logging/setLevel`; None if it sent none.
    """

    def __init__(self, session: Session, initialize: bytes = b"") -> None:
        self.session = session
        self.initialize = initialize
        self.legs: dict[str, Leg] = {}
        self.sent_on: dict[ExchangeKey, tuple[Leg, Exchange]] = {}
        self.listed: dict[str, tuple[Exchange, ClientKind]] = {}
        self.level: bytes | None = None
        self.is_closing = False

    def send_on(self, exchange: Exchange, leg: Leg, inner: Exchange) -> None:
        """Records that a request is sent on."""
        self.sent_on[exchange.key] = leg, inner

    def take_sent(self, exchange: Exchange) -> tuple[Leg, Exchange] | None:
        """Removes and returns the leg that a request was sent on, and the request there; None if it was not."""
        return self.sent_on.pop(exchange.key, None)

    def close(self) -> None:
        """Drops the legs, and takes no others."""
        self.is_closing = True
        for leg in self.legs.values():
            leg.leave()
        self.legs.clear()

    def record_list(self, exchange: Exchange, kind: ClientKind) -> None:
        """Records a request for a list."""
        self.listed[exchange.method] = exchange, kind

    def set_level(self, params: bytes) -> None:
        """Takes the params of the client's `logging/setLevel`."""
        self.level = params

    def exchange_of(self, inner: Exchange | None) -> Exchange | None:
        """Returns the client's request that a request on a leg was sent for."""
        found = None if inner is None else self.sent_on.get(inner.key)
        return None if found is None or found[1] is not inner else self.session.exchanges.get(found[1].key)


Notify = Callable[[Front, Leg, str, bytes, Exchange | None], None]
"""Handles a notification of a server: its method, its message, and the client's request that it belongs to."""
Introduce = Callable[[Front, Leg, bytes], None]
"""Handles the introduction of a server: the result of `initialize` or `server/discover` that its leg was given."""
Open = Callable[[Front, Leg], None]
"""Handles a leg that was opened."""
Ask = Callable[[Front, Leg, PendingQuestion, bytes | None, Exchange | None], None]
"""Handles a server request: the question, whose number is its id on the leg, its params, and the client's request that
it belongs to."""


class _Replies:
    """The replies of one leg to its client, which is the front (`StatelessReplies`)."""

    def __init__(
        self,
        responder: Responder,
        notify: Notify,
        ask: Ask,
        introduce: Introduce,
        front: Front,
        server: str,
    ) -> None:
        self._responder = responder
        self._introduce = introduce
        self._notify = notify
        self._ask = ask
        self._front = front
        self._server = server

    def holds(self, session: Session) -> bool:
        return True  # a leg lasts as long as its front

    def keeps(self, session: Session, exchange: Exchange, message: bytes) -> bool:
        return False

    def shown(self, session: Session, exchange: Exchange, message: bytes) -> bytes:
        return message  # the front translates it

    def server_info(self, session: Session) -> bytes | None:
        front = self._front.session
        return None if front.replies is None else front.replies.server_info(front)

    def deliver(self, session: Session, method: str, message: bytes, related: Exchange | None) -> None:
        leg = self._front.legs.get(self._server)
        if leg is not None:
            self._notify(self._front, leg, method, message, self._front.exchange_of(related))

    def tell_progress(self, session: Session, exchange: Exchange, message: bytes) -> None:
        asked = self._front.exchange_of(exchange)
        if asked is not None:
            self._responder.tell_progress(self._front.session, asked, message)

    def ask(self, session: Session, question: PendingQuestion, params: bytes | None, related: Exchange | None) -> None:
        leg = self._front.legs.get(self._server)
        if leg is None:
            return
        # A question of a task has a number already, and is asked once more for each `tasks/result`.
        question = question._replace(stream=Stream(None))
        if question.number:
            session.replace_question(question)
        number = question.number or session.record_question(question)
        recorded = session.questions[number]
        self._ask(self._front, leg, recorded, params, self._front.exchange_of(related))

    def cancel_question(self, session: Session, number: int) -> None:
        session.settle_question(number)
        name = question_name(self._server, number)
        for shown, question in list(self._front.session.questions.items()):
            if question.id_raw == name:
                self._responder.cancel_question(self._front.session, shown, None)

    def cancel(self, session: Session, exchange: Exchange) -> None:
        pass

    def release(self, exchange: Exchange) -> None:
        pass

    def receive_settled(self, session: Session) -> None:
        front, leg = self._front.session, self._front.legs.get(self._server)
        if leg is not None and not leg.is_introduced and session.greeting is not None:
            self._introduce(self._front, leg, session.greeting)
        if front.replies is not None and not self._front.is_closing:
            front.replies.receive_settled(front)

    def close_session(self, session: Session) -> None:
        leg = self._front.legs.get(self._server)
        if leg is not None and leg.session is session:
            del self._front.legs[self._server]


def question_name(server: str, number: int) -> bytes:
    """Returns the id that a question of a leg has on its front, as JSON."""
    return msgspec.json.encode(f"{number}:{server}")


def question_of(id_raw: bytes) -> tuple[str, int]:
    """Returns server and number of a question; the inverse of `question_name`."""
    number, _, server = msgspec.json.decode(id_raw, type=str).partition(":")
    return server, int(number)


class Legs:
    """Opens legs, and sends requests on them.

    Args:
        router: routes the requests of all legs to their servers.
        notify, ask: handle what servers say unasked.
        opened: handles a new leg.
        introduce: handles the introduction of a server, once for a leg.
        tool_shown: returns the name that clients have for a tool of a server.
        members: the servers of the profile, by id.
    """

    def __init__(
        self,
        context: Context,
        sessions: Sessions,
        responder: Responder,
        router: SessionRouter,
        notify: Notify,
        ask: Ask,
        opened: Open,
        introduce: Introduce,
        tool_shown: Callable[[str, str], str],
        members: Mapping[str, ProfileServer],
    ) -> None:
        self._context = context
        self._sessions = sessions
        self._responder = responder
        self._router = router
        self._notify = notify
        self._ask = ask
        self._opened = opened
        self._introduce = introduce
        self._tool_shown = tool_shown
        self._members = members

    def open(self, front: Front, server: str) -> Leg | str:
        """Returns the leg to a server, opened now if there is none; or why it cannot be opened."""
        member = self._members[server]
        missing = _missing_header(member, front.session)
        if missing:
            return f"requests for {server} need the header {missing}"
        leg = front.legs.get(server)
        if leg is not None:
            return leg
        if front.is_closing:
            return "the session is over"
        fault = self._sessions.no_room(front.session.owner)
        if fault is not None:
            return fault
        replies = _Replies(self._responder, self._notify, self._ask, self.receive_introduction, front, server)
        shown = partial(self._tool_shown, server)
        session = self._sessions.open_leg(
            front.session,
            server,
            _passed(member, front.session.headers),
            router=self._router,
            replies=replies,
            tool_shown=shown,
        )
        leg = front.legs[server] = Leg(member, session, is_open=session.is_stateless, opened_at=self._context.now)
        if session.is_stateless:
            self._router.begin_stateless(session)
        else:
            reply = LegReply(partial(self._receive_handshake, front, leg))
            frame = Frame(id_raw=b"0", method="initialize", params=front.initialize)
            self._sessions.begin_leg(session, reply, ExchangeKey(NO_CHANNEL, 0), frame, session.headers)
            if leg.refusal:
                return leg.refusal
        self._opened(front, leg)
        return leg

    def _receive_handshake(self, front: Front, leg: Leg, reply: LegReply, message: bytes) -> None:
        frame = envelope.decode(message)
        waiting, leg.waiting = leg.waiting, []
        if frame.error is not None:
            front.legs.pop(leg.server, None)
            leg.refusal = (
                envelope.text_of(envelope.member_of(envelope.usable_error(frame.error), "message")) or "refused"
            )
            for inner in waiting:
                inner.reply.take(envelope.encode_error_raw(inner.id_raw, frame.error))
            return
        leg.is_open = True
        self.receive_introduction(front, leg, frame.result or b"{}")
        self._sessions.confirm(leg.session)
        if front.level is not None:
            self.tell(leg, "logging/setLevel", front.level)
        for inner in waiting:
            self._start(leg, inner)

    def receive_introduction(self, front: Front, leg: Leg, introduction: bytes) -> None:
        """Handles the introduction of a server."""
        leg.receive_introduction(introduction)
        self._introduce(front, leg, introduction)

    def tell(self, leg: Leg, method: str, params: bytes) -> None:
        """Sends a request whose response does not matter."""
        key = ExchangeKey(NO_CHANNEL, -1 - len(leg.session.exchanges))
        id_key = envelope.id_key(b"1")
        assert id_key is not None
        reply = LegReply(lambda _reply, _message: None)
        self.send(
            leg, Exchange(key, reply, sid=leg.session.sid, id_raw=b"1", id_key=id_key, method=method, params=params)
        )

    def send(self, leg: Leg, inner: Exchange) -> None:
        """Sends a request on a leg, as soon as that is open."""
        if leg.is_open:
            self._start(leg, inner)
        else:
            leg.waiting.append(inner)

    def add(self, leg: Leg, inner: Exchange) -> None:
        """Adds a request to a leg that is open. Its caller sends it."""
        leg.session.add(inner, inner.headers)

    def _start(self, leg: Leg, inner: Exchange) -> None:
        session = leg.session
        if session.is_over:
            error = {"code": UPSTREAM_UNAVAILABLE, "message": f"{leg.server} was left"}
            inner.reply.take(envelope.encode_error_raw(inner.id_raw, msgspec.json.encode(error)))
            return
        session.add(inner, inner.headers)
        session.router.request(session, inner)

    def cancel(self, leg: Leg, inner: Exchange, params: bytes | None, headers: Headers) -> None:
        """Cancels a request on a leg."""
        if inner in leg.waiting:
            leg.waiting.remove(inner)
        elif not inner.is_over and inner.key in leg.session.exchanges:
            self._responder.cancel(leg.session, inner, params or b"{}", leg.passed(headers))

    def close(self, front: Front, why: str) -> None:
        """Closes all legs of a front."""
        legs = list(front.legs.values())
        front.close()
        for leg in legs:
            self._sessions.close_session(leg.session, why)
