"""What servers say, read and given to whom it is for: answers to requests of ours, and all else to `asking`."""

from __future__ import annotations

from typing import Final, Protocol

import msgspec

from ..base.errors import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, RemoteProtocolError
from ..base.ids import ChannelId
from ..files.calls.linked_resources import PURPOSE as LINKED
from ..jsonrpc import envelope
from ..jsonrpc.envelope import Frame
from ..state.context import Desk
from ..state.exchange import Exchange
from ..state.exchange import Input as ExchangeInput
from ..state.exchange import State as ExchangeState
from ..state.link import SUBSCRIPTION, ChildRole, Errand, Link, UpPostRole, UpStreamRole
from ..state.upstream_session import State
from ..subscriptions.client_listens import Listens
from ..subscriptions.server_listens import News
from ..tasks.upstream_tasks import PURPOSES, Tasked
from ..upstream import filtering
from ..upstream.failures import Losses
from ..upstream.handshake import Handshakes
from ..upstream.resumption import Resuming
from ..upstream.server_messages import Asking
from ..upstream.writer import Uplink
from ..wire.oversize import owner_of
from . import fast_path_rules
from .era_adapter import Crossings

UpRole = ChildRole | UpPostRole | UpStreamRole

NOISE_NOTED: Final = 8
"""So many lines of noise are noted one by one."""

GREETINGS: Final = ("initialize", "server/discover")
"""What only a client asks. From a server that was asked just that it is an echo: of a program that copies its input, as
`cat` does, or of a terminal. An answer to it would come back too, and count as the server's."""

REFUSALS: Final = frozenset({METHOD_NOT_FOUND, INVALID_PARAMS, INVALID_REQUEST})
"""Codes of errors that a request meets every time."""

TAIL_BYTES: Final = 4096
"""How much of an unreadable message's end is searched for its id."""


class Results(Protocol):
    """What the file plane decides about results."""

    def receive_result(self, link: Link, exchange: Exchange, result: bytes) -> bool:
        """A result came. True if the file plane answers it, now or later."""

    def wants_again(self, link: Link, exchange: Exchange, result: bytes) -> bool:
        """Whether the request is to be sent once more, with its files told of in another way."""

    def receive_errand(self, errand: Errand, frame: Frame) -> None:
        """A resource was read, or could not be."""


class Hearing:
    def __init__(
        self,
        desk: Desk,
        uplink: Uplink,
        resuming: Resuming,
        asking: Asking,
        handshakes: Handshakes,
        losses: Losses,
        crossings: Crossings,
        news: News,
        listens: Listens,
        tasked: Tasked,
    ) -> None:
        self.files: Results
        self._crossings = crossings
        self._news = news
        self._listens = listens
        self._tasked = tasked
        self._desk = desk
        self._uplink = uplink
        self._resuming = resuming
        self._asking = asking
        self._handshakes = handshakes
        self._losses = losses

    def receive_message(self, role: UpRole, channel: ChannelId, message: bytes) -> None:
        """One message, or a batch of them."""
        link = role.link
        if not isinstance(role, ChildRole):
            role.has_spoken = True
        if link.upstream.is_over:
            return
        if not envelope.is_batch(message):
            self._receive_part(link, role, message)
            return
        try:
            parts = envelope.split_batch(message)
        except RemoteProtocolError as error:
            self._receive_garbage(link, role, message, error)
            return
        for part in parts:
            if link.upstream.state is State.CLOSED or not self._desk.is_open(channel):
                return  # which an earlier part may have brought about
            self._receive_part(link, role, part)

    def _receive_part(self, link: Link, role: UpRole, part: bytes) -> None:
        try:
            frame = envelope.decode(part)
        except RemoteProtocolError as error:
            self._receive_garbage(link, role, part, error)
        else:
            self._receive_frame(link, role, frame)

    def _receive_garbage(self, link: Link, role: UpRole, message: bytes, error: RemoteProtocolError) -> None:
        """What asks is answered; a broken answer whose request is known ends that request; noise is dropped."""
        self._note_noise(link, message, error)
        id_raw, shape = error.id_raw, error.shape
        if shape == "call":
            if id_raw is not None and not link.is_stateless and (isinstance(role, ChildRole) or is_current(role)):
                self._uplink.tell(link, envelope.encode_error(id_raw, error.rpc_code, error.message))
            return
        if not shape and (id_raw := owner_of(message, message[-TAIL_BYTES:])) is not None:
            shape = "reply"
        text = f"the server's answer could not be read: {error.message}"
        number = None if id_raw is None else envelope.number_of(id_raw)
        if number is None and isinstance(role, UpPostRole):
            role.problem = text  # the end of its reply decides what becomes of the request
            number = role.number if shape == "reply" else None
        if number is not None and number in link.pending:
            answer = msgspec.json.encode({"code": INTERNAL_ERROR, "message": text})
            self._receive_reply(link, role, Frame(error=answer), number)

    def _note_noise(self, link: Link, message: bytes, error: RemoteProtocolError) -> None:
        """Say it a few times, then more and more rarely. What looks like a message may be payload: it is not shown."""
        link.noise += 1
        is_text = not message.lstrip().startswith((b"{", b"["))
        beginning = repr(message[:40].decode(errors="replace"))
        if is_text and not link.babble and link.upstream.state is State.INITIALIZING:
            link.babble = beginning
        if link.noise > NOISE_NOTED and link.noise & (link.noise - 1):
            return
        text = f"server sent what is no message: {error.message}"
        if is_text:
            text += f"; it begins {beginning}"
        if link.noise > NOISE_NOTED:
            text += f" ({link.noise} times by now)"
        self._desk.note("warning", text, link.plan.id)

    def _receive_frame(self, link: Link, role: UpRole, frame: Frame) -> None:
        related = related_of(role)
        if frame.is_notification:
            self._receive_notification(link, frame, related)
        elif not frame.is_request:
            number = _number_of(frame, role)
            if number is not None:
                self._receive_reply(link, role, frame, number)
        elif frame.method in GREETINGS and link.upstream.state is State.INITIALIZING:
            self._losses.lose(link, f"it sends back what it is sent, expected an answer to {frame.method}")
        elif link.is_stateless:
            self._desk.note("warning", f"{frame.method} dropped: a server without sessions asks nothing", link.plan.id)
        elif isinstance(role, ChildRole) or is_current(role):
            self._asking.receive_request(link, frame, related)
        else:
            self._desk.note("debug", f"{frame.method} dropped: its session is lost, so is its answer", link.plan.id)

    def _receive_notification(self, link: Link, frame: Frame, related: Exchange | None) -> None:
        if frame.method == "notifications/tools/list_changed":
            self._crossings.schooling.forget(link)
        try:
            if self._tasked.receive_notification(link, frame):
                return
        except RemoteProtocolError as error:
            self._desk.note("warning", f"server sent a broken {frame.method}: {error.message}", link.plan.id)
            return
        if not link.is_stateless:
            self._asking.receive_notification(link, frame, related)
            return
        try:
            self._news.receive_notification(link, frame, related)
        except RemoteProtocolError as error:
            self._desk.note("warning", f"server sent a broken {frame.method}: {error.message}", link.plan.id)

    def _receive_reply(self, link: Link, role: UpRole, frame: Frame, number: int) -> None:
        entry = link.pending.pop(number, None)
        self._resuming.forget(link, number)
        if isinstance(role, UpPostRole) and role.number == number:
            self._uplink.receive_settled(role)
        if entry is None:
            self._tasked.receive_orphan(link, number, frame)
            crowd = self._handshakes.crowds.get(link.id)
            if crowd is not None:
                crowd.forget_ghost(number)
            self._desk.note("debug", "server answered what nobody waits for: dropped", link.plan.id)
        elif isinstance(entry, Errand):
            self._receive_errand(link, role, entry, frame, number)
        else:
            self.receive_answer(link, entry, frame)
            self._handshakes.advance(link, entry)

    def _receive_errand(self, link: Link, role: UpRole, errand: Errand, frame: Frame, number: int) -> None:
        if errand.incarnation != link.upstream.incarnation:
            return
        if self.receive_errand(link, errand, frame, number):
            return
        if errand.purpose == "replay":
            self.receive_replay(link, errand, is_done=frame.error is None)
        elif errand.purpose == "initialize":
            self._handshakes.receive_handshake(link, frame)

    def receive_replay(self, link: Link, errand: Errand, *, is_done: bool) -> None:
        """A setting of the lost session was made again, or could not be."""
        self._listens.receive_set_again(link, errand.about, is_done=is_done)
        self._handshakes.receive_replayed(link)

    def receive_errand(self, link: Link, errand: Errand, frame: Frame, number: int) -> bool:
        """The answer to a request of ours, or an error for none. False if it is for a handshake with sessions."""
        is_done = frame.error is None
        if errand.purpose == "discover":
            self._handshakes.receive_discovery(link, frame)
        elif errand.purpose == SUBSCRIPTION:
            is_refused = frame.error is not None and envelope.error_code(frame.error) in REFUSALS
            self._news.receive_end(link, number, is_refused=is_refused)
        elif errand.purpose == "schemas":
            self._crossings.schooling.receive_page(link, frame)
        elif errand.purpose == "level":
            self._crossings.receive_levelled(link, is_done=is_done)
        elif errand.purpose in PURPOSES:
            self._tasked.receive_errand(link, errand, frame)
        elif errand.purpose == LINKED:
            self.files.receive_errand(errand, frame)
        elif errand.purpose == "subscribe":
            self._listens.receive_subscribed(link, errand.about, is_done=is_done)
        elif errand.purpose == "unsubscribe":
            self._listens.receive_unsubscribed(link, errand.about)
        else:
            return False
        return True

    def receive_answer(self, link: Link, exchange: Exchange, frame: Frame) -> None:
        """The answer to a client's request."""
        self._uplink.expect_none(exchange)
        link.upstream.receive_proof()
        self._handshakes.health[link.plan.id].receive_proof()
        if fast_path_rules.may_come_down(link, exchange, frame):
            assert frame.result is not None
            exchange.step(ExchangeInput.REPLY)
            self._losses.finish(link, exchange, envelope.encode_result(exchange.id_raw, frame.result))
            return
        try:
            if self._crossings.receive_answer(link, exchange, frame):
                return
        except RemoteProtocolError as fault:
            frame = Frame(
                error=envelope.error_object(INTERNAL_ERROR, f"the server's answer is broken: {fault.message}")
            )
        if link.has_files and exchange.state is ExchangeState.SENT and self._must_repeat(link, exchange, frame):
            return
        exchange.step(ExchangeInput.REPLY)
        if frame.error is not None:
            error = self._crossings.error_down(link, exchange, envelope.usable_error(frame.error))
            self._losses.finish(link, exchange, envelope.encode_error_raw(exchange.id_raw, error))
            return
        assert frame.result is not None
        try:
            if not link.upstream.remember(exchange.method, exchange.params):
                text = f"{exchange.method} is not set again if the server is lost: too many are remembered"
                self._desk.note("warning", text, link.plan.id)
            self._crossings.receive_set(link, exchange)
            result = self._crossings.result_down(link, exchange, frame.result)
            if link.is_filtered:
                result = filtering.shown(link, exchange, result)
            if link.has_files and self.files.receive_result(link, exchange, result):
                return
        except RemoteProtocolError as fault:
            text = f"the server's answer could not be read: {fault.message}"
            self._losses.finish(link, exchange, envelope.encode_error(exchange.id_raw, INTERNAL_ERROR, text))
            return
        self._losses.finish(link, exchange, envelope.encode_result(exchange.id_raw, result))

    def _must_repeat(self, link: Link, exchange: Exchange, frame: Frame) -> bool:
        if frame.result is None or not self.files.wants_again(link, exchange, frame.result):
            return False
        exchange.step(ExchangeInput.REQUEUE)
        self._crossings.onward.resend(link, exchange)
        return True


def is_current(role: UpPostRole | UpStreamRole) -> bool:
    """Whether it was dialled in the upstream session that there is now."""
    return role.incarnation == role.link.upstream.incarnation and role.link.upstream.state is not State.IDLE


def related_of(role: UpRole) -> Exchange | None:
    """The request on whose stream a message came, if that is known."""
    if not isinstance(role, UpPostRole) or role.number is None:
        return None
    entry = role.link.pending.get(role.number)
    return entry.exchange if isinstance(entry, Errand) else entry


def _number_of(frame: Frame, role: UpRole) -> int | None:
    """Which of our requests is answered. Some servers echo the number as a string; an error without an id belongs to
    the POST that carried it."""
    if frame.id_raw is None:
        return role.number if isinstance(role, UpPostRole) else None
    number = envelope.number_of(frame.id_raw)
    if number is None and frame.error is not None and isinstance(role, UpPostRole):
        return role.number
    return number
