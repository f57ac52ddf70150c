"""The handles by which anonymous clients without sessions come back to the session of an earlier request.

With `Affinity.REQUEST` each request has a session with its server of its own. Where that server may remember something
of it, the result has a handle in `_meta`, and a request that brings the handle runs in the same session. A client that
will do so says `"new"` in place of a handle with its first request: its session is kept for as long as any other. One
that says nothing may know no handles. Its session is kept for a short time, and for one call of an owner at a server:
each may be a process.

A handle is signed, and good for one server and one principal. It names a session that exists: a session is never begun
for one, so that no client takes the state of a new session for the state that it had.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from ..base.errors import INVALID_PARAMS, RemoteProtocolError
from ..base.events import PostOpening
from ..base.plan import Kind, ServerPlan
from ..jsonrpc import envelope
from ..jsonrpc.append import add_items, add_members, readable_members, readable_text
from ..jsonrpc.outline import outline_of
from ..jsonrpc.splice import members, remove_members, set_member, take
from ..state.context import Context
from ..state.exchange import Exchange
from ..state.session import Affinities, Session

if TYPE_CHECKING:
    from ..downstream.sessions import Sessions
    from .affinity_table import AffinityTable

KEY: Final = "dev.isthmus/affinity"
"""The member of `_meta` with the handle, in results and in requests."""
NEW: Final = "new"
"""The value in a request that wants a session which is kept."""
PREFIX: Final = "isa1."
_TAG_CHARS: Final = 32
_TOLD: Final = frozenset({"tools/call", "server/discover"})
"""Requests of a client that may not know handles whose results tell of them."""

LOST: Final = (
    f'got a handle in _meta["{KEY}"] whose session has ended, or which is of another client or server. Nothing was'
    f' run. Send "{NEW}" in its place: a session begins, with nothing in it that an earlier one had'
)
ALONE: Final = "This server starts fresh for each call: what this call opened or set is gone in the next one."
FILES_STAY: Final = " Files stay: pass the artifact:// URI that a result gives to the next call."
KEPT: Final = f' A client that sends _meta["{KEY}"] of a result with its next requests keeps what is open.'


class InvalidAffinity(RemoteProtocolError):
    """A handle was refused."""

    def __init__(self) -> None:
        super().__init__(LOST, rpc_code=INVALID_PARAMS, data={"reason": "invalid_affinity"})


class Given(NamedTuple):
    """The handle of a session.

    Attributes:
        id: the part of the handle that names the session.
        is_claimed: the client has shown that it knows handles.
    """

    id: str
    is_claimed: bool


class AffinityHandles:
    """The handles of all sessions that have one.

    Args:
        by_affinity: the sessions of clients without sessions.
    """

    def __init__(self, context: Context, sessions: Sessions, by_affinity: AffinityTable) -> None:
        self._context = context
        self._sessions = sessions
        self._by_affinity = by_affinity
        self._given: dict[str, Given] = {}  # by the session's public name
        self._unclaimed: dict[tuple[str, str], Session] = {}  # by owner and server

    # --- Requests ---------------------------------------------------------------------------------------------------

    def read(self, opening: PostOpening, params: bytes | None, *, is_stateless: bool) -> str | None:
        """Returns `NEW`, or what the handle of a request names; None if the request brings neither.

        Args:
            is_stateless: the server has no sessions. One with a URL may run behind a proxy of this kind: what the
                request brings is for that.

        Raises:
            InvalidAffinity: the handle is not ours, or of another server or principal.
        """
        text = None if params is None or not _may_bring_one(params) else _text_in(params)
        plan = self._context.servers.get(opening.server)  # None: it is a profile
        if text is None or (is_stateless and plan is not None and plan.kind is Kind.HTTP):
            return None
        if text == NEW:
            return text
        id, _, tag = text.removeprefix(PREFIX).partition(".")
        expected = self._tag(id, opening.server, opening.principal)
        if text.startswith(PREFIX) and hmac.compare_digest(tag.encode(), expected.encode()):
            return id
        raise InvalidAffinity

    def strip(self, session: Session, params: bytes | None) -> bytes | None:
        """Returns the params of a request of that session without the handle, which is no server's business."""
        meta = None if params is None or session.sid not in self._given else envelope.member_of(params, "_meta")
        if params is None or meta is None:
            return params
        kept = remove_members(meta, {KEY})
        return set_member(params, "_meta", kept) if members(kept) else remove_members(params, {"_meta"})

    def claim(self, session: Session) -> None:
        """Handles a request for a session whose client knows its handle."""
        given = self._given.get(session.sid)
        self._given[session.sid] = Given(self._context.mint() if given is None else given.id, is_claimed=True)
        self._forget_unclaimed(session)

    # --- Results ----------------------------------------------------------------------------------------------------

    def shown(self, session: Session, exchange: Exchange, result: bytes) -> bytes:
        """Returns a result with the handle of its session, if that has one or gets one now.

        The model is told of it in the instructions of the server, once for a conversation. Where the proxy has a say in
        results anyway, as with files, the first result says it too.
        """
        given, method = self._given.get(session.sid), exchange.method
        if given is None and (method not in _TOLD or not self._by_affinity.is_for_one(session)):
            return result
        if exchange.task is not None or not session.router.keeps_state(session):
            return result
        plan = self._context.servers.get(session.server)
        if method == "server/discover":
            result = _with_instructions(result, _text_for(plan))
        if given is None and method != "tools/call":
            return result
        if given is None:
            given = self._given[session.sid] = Given(self._context.mint(), is_claimed=False)
            is_first = (session.owner, session.server) not in self._unclaimed
            if is_first and plan is not None and plan.auto_files is not None:
                result = add_items(result, "content", [msgspec.json.encode({"type": "text", "text": _text_for(plan)})])
        if self._by_affinity.is_for_one(session):
            assert session.affinity is not None
            self._by_affinity.move(session, affinity_of_handle(session.affinity, given.id))
        handle = f"{PREFIX}{given.id}.{self._tag(given.id, session.server, session.principal)}"
        return add_members(result, "_meta", {KEY: msgspec.json.encode(handle)})

    # --- Sessions ---------------------------------------------------------------------------------------------------

    def receive_settled(self, session: Session) -> None:
        """Handles the end of the last open request of a session. One whose client may not know handles waits for a
        short time."""
        given = self._given.get(session.sid)
        if given is None or given.is_claimed:
            return
        limits = self._context.limits
        at = self._context.now + min(limits.unclaimed_session_ttl_s, limits.session_idle_ttl_s)
        self._context.timers.set(("idle", session.sid), at, "session whose client may not come back")
        key = session.owner, session.server
        before = self._unclaimed.get(key)
        self._unclaimed[key] = session
        if before not in (None, session) and not before.router.is_used(before):
            self._sessions.close_session(before, "its client did not come back")

    def close_session(self, session: Session) -> None:
        """Handles the coming end of a session."""
        self._given.pop(session.sid, None)
        self._forget_unclaimed(session)

    def _forget_unclaimed(self, session: Session) -> None:
        key = session.owner, session.server
        if self._unclaimed.get(key) is session:
            del self._unclaimed[key]

    def _tag(self, id: str, server: str, principal: str) -> str:
        text = b"isthmus affinity 1\n" + msgspec.json.encode((id, server, principal))
        return hmac.new(self._context.plan.link_key, text, hashlib.sha256).hexdigest()[:_TAG_CHARS]


def affinity_of_handle(affinity: Affinities, id: str) -> Affinities:
    """Returns the affinity of requests that bring a handle, for that of a request which has a session of its own."""
    return affinity._replace(group=0, is_for_one=False, handle=id)


def _text_for(plan: ServerPlan | None) -> str:
    return ALONE + (FILES_STAY if plan is not None and plan.has_files else "") + KEPT


def _with_instructions(result: bytes, text: str) -> bytes:
    """Returns a `DiscoverResult` with a text at the end of its instructions."""
    before = readable_text(take(result, readable_members(result).get("instructions")))
    return set_member(result, "instructions", msgspec.json.encode(f"{before}\n\n{text}" if before else text))


def _may_bring_one(params: bytes) -> bool:
    """True if there may be a handle in the params. Only an escape can hide the word."""
    words = outline_of(params)
    return b"isthmus" in words or b"\\u" in words


def _text_in(params: bytes) -> str | None:
    """Returns the text in place of a handle, "" if it is no text; None if there is none."""
    meta = envelope.member_of(params, "_meta")
    raw = None if meta is None or not meta.startswith(b"{") else envelope.member_of(meta, KEY)
    return None if raw is None else envelope.text_of(raw) or ""
