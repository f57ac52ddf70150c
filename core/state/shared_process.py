"""One server process shared by several sessions: attributes its messages, and merges what the sessions want of it.

A shared process has one log level, one set of subscriptions and one set of client capabilities. It is set to the most
that any session wants, and each session gets what it asked for. A message of the server that names no request belongs
to the session with a request in flight. If several sessions have one, the message is not attributed to any.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

import msgspec

from ..base.log_levels import LEVELS
from ..base.revisions import LATEST_LEGACY
from ..jsonrpc import envelope
from ..jsonrpc.splice import members, set_member, take
from .exchange import Exchange
from .link import Link
from .session import Session

NEEDED: Final = {
    "sampling/createMessage": "sampling",
    "elicitation/create": "elicitation",
    "roots/list": "roots",
}
"""The client capability that each server request needs."""

CANCELLED_MAX: Final = 256
"""The bound on cancelled requests that are remembered, since the server may still ask in their course. At it: the
oldest is forgotten, and what its server asks counts for the calls that are open."""


def shared_initialize_params(name: str, version: str) -> bytes:
    """Returns the `initialize` params for a shared process, with the capabilities that any client could have, and with
    the name and version of the proxy.

    A client that lacks the capability of a server request is not asked.
    """
    return msgspec.json.encode(
        {
            "protocolVersion": LATEST_LEGACY,
            "capabilities": {
                "roots": {"listChanged": True},
                "sampling": {},
                "elicitation": {"form": {}, "url": {}},
            },
            "clientInfo": {"name": name, "version": version},
        }
    )


class Member:
    """One session of a shared process, and its settings.

    Attributes:
        capabilities: the names of its client's capabilities.
        level: index in `LEVELS` of the least severe log message it wants; None: the server's default.
        subscriptions: the URIs it has subscribed to.
    """

    __slots__ = ("capabilities", "level", "revision", "session", "subscriptions")

    def __init__(self, session: Session, initialize: bytes) -> None:
        """Raises RemoteProtocolError if the params are no object, or have a member twice."""
        spans = members(initialize)
        self.session = session
        declared = take(initialize, spans.get("capabilities"))
        self.capabilities = frozenset(members(declared) if declared is not None and declared.startswith(b"{") else ())
        self.level: int | None = None
        self.subscriptions = session.subscriptions


class SharedProcess:
    """The sessions of one shared process.

    Args:
        principal: the principal of all of them.

    Attributes:
        members: the sessions, by their public names.
        turn: with serial sharing, the request in progress.
    """

    def __init__(self, principal: str = "") -> None:
        self.principal = principal
        self.members: dict[str, Member] = {}
        self.turn: Exchange | None = None
        self._waiting: OrderedDict[Exchange, None] = OrderedDict()
        self._cancelled: OrderedDict[int, tuple[str, float]] = OrderedDict()  # number → session, until when

    # --- Attribution ------------------------------------------------------------------------------------------------

    def remember_cancelled(self, exchange: Exchange, until: float) -> None:
        """Remembers a cancelled request until a time: the server may still send requests in its course."""
        assert exchange.upstream_id is not None
        self._cancelled[exchange.upstream_id] = exchange.sid, until
        if len(self._cancelled) > CANCELLED_MAX:
            self._cancelled.popitem(last=False)

    def forget_cancelled(self, number: int) -> None:
        """Forgets a cancelled request that was answered after all."""
        self._cancelled.pop(number, None)

    def receive_lost(self) -> list[Exchange]:
        """Handles the end of the process: forgets the cancelled requests. Returns those that waited for their turn."""
        self._cancelled.clear()
        self.turn = None
        waiting = list(self._waiting)
        self._waiting.clear()
        return waiting

    def asker(self, link: Link, now: float) -> Session | None:
        """Returns the session that a server message belongs to, if the message itself does not tell; None if that is
        unknown.

        It is the session of all requests in flight and of all tasks, if they are of one session; with none of either,
        the only session of the process.
        """
        while self._cancelled and next(iter(self._cancelled.values()))[1] <= now:
            self._cancelled.popitem(last=False)
        sids = {entry.sid for entry in link.pending.values() if isinstance(entry, Exchange)}
        sids |= {sid for sid, _ in self._cancelled.values()} | {call.sid for call in link.upstream_tasks.values()}
        if not sids and len(self.members) == 1:
            sids = set(self.members)
        member = self.members.get(sids.pop()) if len(sids) == 1 else None
        return None if member is None else member.session

    def is_quiet(self, link: Link) -> bool:
        """True if no request or task is in progress: the server's messages are then for no session in particular."""
        is_asked = any(isinstance(entry, Exchange) for entry in link.pending.values())
        return not is_asked and not self._cancelled and not link.upstream_tasks

    def can_be_asked(self, session: Session, method: str) -> bool:
        needed = NEEDED.get(method)
        return needed is None or needed in self.members[session.sid].capabilities

    def hearers(self, method: str, params: bytes | None, asker: Session | None, *, is_anyones: bool) -> list[Session]:
        """Returns the sessions that get a notification which names no request.

        Args:
            asker: the session whose request or task it is about, if that is known.
            is_anyones: it is about no request or task.
        """
        members = list(self.members.values())
        if method == "notifications/resources/updated":
            uri = envelope.text_of(envelope.member_of(params, "uri"))
            exact = [member for member in members if uri in member.subscriptions]
            return [member.session for member in exact or (member for member in members if member.subscriptions)]
        if method.endswith("/list_changed"):
            return [member.session for member in members]
        meant = members if is_anyones else [member for member in members if member.session is asker]
        if method == "notifications/message":
            level = _index(envelope.text_of(envelope.member_of(params, "level")))
            meant = [member for member in meant if member.level is None or level is None or level >= member.level]
        return [member.session for member in meant]

    # --- Turns ------------------------------------------------------------------------------------------------------

    def take_turn(self, exchange: Exchange) -> bool:
        """True if a request may be sent now, with serial sharing. If not, it is queued until the ones before it are
        answered."""
        if self.turn is not None:
            self._waiting[exchange] = None
            return False
        self.turn = exchange
        return True

    def end_turn(self, done: Exchange) -> bool:
        """True if `done` was the request in progress: the next may be sent."""
        if self.turn is not done:
            return False
        self.turn = None
        return True

    def next_waiting(self) -> Exchange | None:
        """Removes and returns the request to be sent next; None if there is none, or one is in progress."""
        return self._waiting.popitem(last=False)[0] if self._waiting and self.turn is None else None

    def withdraw(self, exchange: Exchange) -> None:
        """Removes a cancelled request from the queue, if it is there."""
        self._waiting.pop(exchange, None)

    # --- Settings ---------------------------------------------------------------------------------------------------

    def receive_setting(self, exchange: Exchange) -> bool:
        """Takes the log level, the subscription or the unsubscription of a session.

        True if the server need not be told: the result is empty. A log level is replaced in the params by the least
        severe of all sessions.

        Raises:
            RemoteProtocolError: the params have a member twice.
        """
        member = self.members[exchange.sid]
        if exchange.method == "logging/setLevel":
            wanted = _index(envelope.text_of(envelope.member_of(exchange.params, "level")))
            if wanted is None or exchange.params is None:
                return False  # the server refuses it with an error of its own
            before = self._least_level()
            member.level = wanted
            least = self._least_level()
            assert least is not None
            exchange.replace_params(set_member(exchange.params, "level", msgspec.json.encode(LEVELS[least])))
            return least == before
        if exchange.method not in ("resources/subscribe", "resources/unsubscribe"):
            return False
        uri = envelope.text_of(envelope.member_of(exchange.params, "uri"))
        if uri is None:
            return False
        if exchange.method == "resources/subscribe":
            member.subscriptions[uri] = None
            return False
        member.subscriptions.pop(uri, None)
        return self._is_wanted(uri)

    def join(self, member: Member) -> None:
        """Adds a session."""
        self.members[member.session.sid] = member

    def subscribe(self, session: Session, uris: Iterable[str]) -> None:
        """Adds resources to those that a session is notified of. Nothing happens once the session has left."""
        if (member := self.members.get(session.sid)) is not None:
            member.subscriptions.update(dict.fromkeys(uris))

    def unsubscribe(self, session: Session, uri: str) -> bool:
        """Removes a resource from those that a session is notified of. True if no other session is subscribed to
        it."""
        if (member := self.members.get(session.sid)) is not None:
            member.subscriptions.pop(uri, None)
        return not self._is_wanted(uri)

    def leave(self, session: Session) -> list[str]:
        """Removes a session that is over. Returns the URIs to which no other session is subscribed."""
        member = self.members.pop(session.sid)
        return sorted(uri for uri in member.subscriptions if not self._is_wanted(uri))

    def _is_wanted(self, uri: str) -> bool:
        return any(uri in member.subscriptions for member in self.members.values())

    def want_level(self, session: Session, level: str) -> str:
        """Takes the log level of one request, of a session without a log level of its own.

        Returns the level that the server must be set to, so that no session gets less than before.
        """
        member, wanted = self.members[session.sid], LEVELS.index(level)
        member.level = wanted if member.level is None else min(member.level, wanted)
        least = self._least_level()
        assert least is not None
        return LEVELS[least]

    def _least_level(self) -> int | None:
        return min((member.level for member in self.members.values() if member.level is not None), default=None)


def _index(level: str | None) -> int | None:
    return LEVELS.index(level) if level in LEVELS else None
