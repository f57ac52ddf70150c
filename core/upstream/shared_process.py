"""Several sessions on one server process: whose each message is, and what of their wishes the server is told.

A process that many share has one log level, one set of subscriptions and one idea of its client. It is told the most
that any session wants, and each session hears what it asked for. A message of the server that names no request belongs
to whoever has a request in flight; where that could be several, nobody is guessed.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

import msgspec

from ..base.log_levels import LEVELS
from ..base.revisions import LATEST_LEGACY
from ..jsonrpc import envelope
from ..jsonrpc.splice import members, set_member, take
from ..state.exchange import Exchange
from ..state.link import Link
from ..state.session import Session

NEEDED: Final = {
    "sampling/createMessage": "sampling",
    "elicitation/create": "elicitation",
    "roots/list": "roots",
}
"""The client capability without which a question is refused in its name."""

GHOSTS_MAX: Final = 256
"""Cancelled requests remembered as possible askers."""


def greeting(version: str) -> bytes:
    """The `initialize` params a shared process gets: what any client could do. Who cannot is not asked."""
    return msgspec.json.encode(
        {
            "protocolVersion": LATEST_LEGACY,
            "capabilities": {
                "roots": {"listChanged": True},
                "sampling": {},
                "elicitation": {"form": {}, "url": {}},
            },
            "clientInfo": {"name": "isthmus", "version": version},
        }
    )


class Share:
    """What one session wants of a shared process.

    Attributes:
        capabilities: the names of what its client can do.
        level: index in `LEVELS` of the least severe message it wants; None: as the server likes.
        subscriptions: the URIs it has subscribed to.
    """

    __slots__ = ("capabilities", "level", "revision", "session", "subscriptions")

    def __init__(self, session: Session, initialize: bytes) -> None:
        """Raises RemoteProtocolError: the params are no object, or have a member twice."""
        spans = members(initialize)
        self.session = session
        declared = take(initialize, spans.get("capabilities"))
        self.capabilities = frozenset(members(declared) if declared is not None and declared.startswith(b"{") else ())
        self.level: int | None = None
        self.subscriptions = session.subscriptions


class Crowd:
    """The sessions of one shared process.

    Attributes:
        turn: with serial sharing, the request that is under way.
        waiting: those that come after it, in order.
    """

    def __init__(self, link: Link) -> None:
        self.shares: dict[str, Share] = {}
        self.turn: Exchange | None = None
        self.waiting: OrderedDict[Exchange, None] = OrderedDict()
        self._link = link
        self._ghosts: OrderedDict[int, tuple[str, float]] = OrderedDict()  # number → session, until when

    # --- Whose it is ------------------------------------------------------------------------------------------------

    def remember_ghost(self, exchange: Exchange, until: float) -> None:
        """A request was cancelled: the server may ask in its course all the same."""
        assert exchange.upstream_id is not None
        self._ghosts[exchange.upstream_id] = exchange.sid, until
        if len(self._ghosts) > GHOSTS_MAX:
            self._ghosts.popitem(last=False)

    def forget_ghost(self, number: int) -> None:
        """It was answered, late."""
        self._ghosts.pop(number, None)

    def forget_ghosts(self) -> None:
        """The process is gone, and all that it was doing."""
        self._ghosts.clear()

    def asker(self, now: float) -> Session | None:
        """Whose request makes the server speak: the session of all requests in flight and of all tasks, if they are of
        one session; without any, the only session there is."""
        while self._ghosts and next(iter(self._ghosts.values()))[1] <= now:
            self._ghosts.popitem(last=False)
        sids = {entry.sid for entry in self._link.pending.values() if isinstance(entry, Exchange)}
        sids |= {sid for sid, _ in self._ghosts.values()} | {call.sid for call in self._link.remotes.values()}
        if not sids and len(self.shares) == 1:
            sids = set(self.shares)
        share = self.shares.get(sids.pop()) if len(sids) == 1 else None
        return None if share is None else share.session

    @property
    def is_quiet(self) -> bool:
        """Whether no request is in flight, so that what the server says concerns nobody in particular."""
        is_asked = any(isinstance(entry, Exchange) for entry in self._link.pending.values())
        return not is_asked and not self._ghosts and not self._link.remotes

    def can_be_asked(self, session: Session, method: str) -> bool:
        needed = NEEDED.get(method)
        return needed is None or needed in self.shares[session.sid].capabilities

    def hearers(self, method: str, params: bytes | None, asker: Session | None, *, is_anyones: bool) -> list[Session]:
        """Who is told of a notification that names no request.

        Args:
            asker: whose request, or task, it is about, if that can be told.
            is_anyones: it is about none.
        """
        shares = list(self.shares.values())
        if method == "notifications/resources/updated":
            uri = envelope.text_of(envelope.member_of(params, "uri"))
            exact = [share for share in shares if uri in share.subscriptions]
            return [share.session for share in exact or (share for share in shares if share.subscriptions)]
        if method.endswith("/list_changed"):
            return [share.session for share in shares]
        meant = shares if is_anyones else [share for share in shares if share.session is asker]
        if method == "notifications/message":
            level = _index(envelope.text_of(envelope.member_of(params, "level")))
            meant = [share for share in meant if share.level is None or level is None or level >= share.level]
        return [share.session for share in meant]

    # --- Wishes -----------------------------------------------------------------------------------------------------

    def receive_wish(self, exchange: Exchange) -> bool:
        """A session sets its log level or subscribes. True if the server need not hear of it: the answer is empty.

        Raises:
            RemoteProtocolError: the params have a member twice.
        """
        share = self.shares[exchange.sid]
        if exchange.method == "logging/setLevel":
            wanted = _index(envelope.text_of(envelope.member_of(exchange.params, "level")))
            if wanted is None or exchange.params is None:
                return False  # the server says what is wrong with it
            before = self._least_level()
            share.level = wanted
            least = self._least_level()
            assert least is not None
            exchange.params = set_member(exchange.params, "level", msgspec.json.encode(LEVELS[least]))
            return least == before
        if exchange.method not in ("resources/subscribe", "resources/unsubscribe"):
            return False
        uri = envelope.text_of(envelope.member_of(exchange.params, "uri"))
        if uri is None:
            return False
        if exchange.method == "resources/subscribe":
            share.subscriptions[uri] = None
            return False
        share.subscriptions.pop(uri, None)
        return self._is_wanted(uri)

    def leave(self, session: Session) -> list[str]:
        """A session is over. Returns the URIs that nobody is subscribed to any more."""
        share = self.shares.pop(session.sid)
        return sorted(uri for uri in share.subscriptions if not self._is_wanted(uri))

    def _is_wanted(self, uri: str) -> bool:
        return any(uri in share.subscriptions for share in self.shares.values())

    def want_level(self, session: Session, level: str) -> str:
        """A request of a session without a log level of its own wants to hear so much. Returns what the server must be
        told, so that nobody hears less than before."""
        share, wanted = self.shares[session.sid], LEVELS.index(level)
        share.level = wanted if share.level is None else min(share.level, wanted)
        least = self._least_level()
        assert least is not None
        return LEVELS[least]

    def _least_level(self) -> int | None:
        return min((share.level for share in self.shares.values() if share.level is not None), default=None)


def _index(level: str | None) -> int | None:
    return LEVELS.index(level) if level in LEVELS else None
