"""Answers clients while the process of their server starts, with what the server said before (`answers_early`).

A process takes seconds to start, and each session has one of its own. Meanwhile its client gets the result of
`initialize` or `server/discover`, and complete lists, from an earlier process. All other requests wait, and so does a
list that comes after a call. The handshake goes on with the client's own params.

The specification makes a server's introduction an answer to the revision and the capabilities that the client names.
`clientInfo` is for display, and servers "SHOULD NOT use it to change their behavior" (2026-07-28 schema). A process is
told nothing else of its client, neither headers nor credentials. So an answer is given again only where all of this is
equal: the server as it is configured, the era, all members of the params but `clientInfo`, and the audience. The
audience is the principal, or the headers of a client without one. What the proxy's own sessions were told, which are
nobody's, is for everybody.

A client without sessions gets the introduction even if an earlier client named other capabilities or another revision:
`server/discover` is not an agreement with one client, and nothing holds its result to be true for the next request. Its
lists wait.

A list is learned from a process that was sent no call yet: any call may change it. It is kept as the server sent it,
and is handed in below all rules of access, names and definitions, so that they hold for each caller. A list of several
pages is not learned: cursors are of one session (2025-11-25 server/utilities/pagination). Neither is an answer with a
path of its session's folders. A server of 2026-07-28 says how long its results are fresh and for whom. That holds here,
too.

What the clients were given is compared with what the server says once it is ready:

- Its introduction is kept for the next session. Requests of this one are translated from the revision that the client
  has to the one that the server chose, as after any restart of a server.
- Each list that was given early is requested. If the server's differs, those clients are notified that it has changed
  whose server declared `listChanged`. No other client was promised that its list stays true: it sees another one when
  it lists again.
- A server that cannot be started loses all that was learned of it. What waits gets the error of the start, and later
  clients wait for `initialize` again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

import msgspec

from ..base.errors import RemoteProtocolError
from ..base.methods import SAFE_TO_REPEAT
from ..base.plan import ServerPlan
from ..base.revisions import LATEST_MODERN, Era
from ..bridge.capabilities import fingerprint
from ..bridge.discovery import to_discover_result
from ..bridge.request_meta import KEYS, OF_A_REQUEST, RequestMeta, add
from ..downstream.responder import Responder
from ..jsonrpc.envelope import Frame, encode_notification, encode_result, member_of
from ..jsonrpc.equality import is_same
from ..jsonrpc.splice import members, set_member, take
from ..state.context import Context
from ..state.early_start import EarlyKey, Introduction, ShownList
from ..state.exchange import Exchange, ExchangeInput
from ..state.interceptor import Interceptor
from ..state.link import Link, OwnRequest
from ..state.session import Session
from ..upstream.filtering import LISTS
from ..upstream.processes import STARTING
from ..upstream.writer import UpstreamWriter
from .hints import hints_of
from .learned import EVERYBODY, Learned, LearnedAnswers

PURPOSE: Final = "early list"
"""The purpose of our requests for lists that clients were given early."""
_TIMER: Final = "early lists"
_CHANGED: Final[Mapping[str, tuple[str, ...]]] = {
    "notifications/tools/list_changed": ("tools/list",),
    "notifications/prompts/list_changed": ("prompts/list",),
    "notifications/resources/list_changed": ("resources/list", "resources/templates/list"),
}
_METHODS: Final = {Era.HANDSHAKE: "initialize", Era.STATELESS: "server/discover"}
_USUAL: Final = frozenset(KEYS) | OF_A_REQUEST
"""The members of `_meta` on which a list does not depend, or only through the client's revision and capabilities."""


class EarlyAnswers(Interceptor):
    """The early answers of all servers."""

    name = "early answers"
    purposes = frozenset({PURPOSE})

    def __init__(self, context: Context, responder: Responder, writer: UpstreamWriter) -> None:
        self._context = context
        self._responder = responder
        self._writer = writer
        self._learned = LearnedAnswers()

    def is_for(self, plan: ServerPlan) -> bool:
        return plan.answers_early

    def has_say(self, link: Link) -> bool:
        return False

    # --- While the server starts ------------------------------------------------------------------------------------

    def introduce(self, link: Link) -> bool:
        assert link.early is not None
        link.early.begin()
        takers = [session for session in link.sessions.values() if session.takes_early]
        if not takers:
            return False
        key = _introduction_key(link)
        found = None if key is None else self._learned.find(key, self._context.now)
        if found is None and key is not None and all(session.is_stateless for session in takers):
            found = self._found_for_discovery(link, key)
        if found is None or found.introduction is None:
            return False
        link.presume(found.introduction._replace(shown=self._aged(found)))
        self._context.note("debug", "its clients get what it said of itself before, while it starts", link.plan.id)
        return True

    def _found_for_discovery(self, link: Link, key: EarlyKey) -> Learned | None:
        """Returns what a server said in answer to other capabilities, for clients without sessions. It may have said so
        in the other era, if it is not known yet whether it speaks theirs."""
        found = self._learned.find_alike(key, self._context.now)
        if found is not None or key.era is Era.HANDSHAKE or link.is_shared:
            return found
        other = key._replace(era=Era.HANDSHAKE, method=_METHODS[Era.HANDSHAKE])
        found = self._learned.find_alike(other, self._context.now)
        if found is None or found.introduction is None:
            return None
        try:
            shown = to_discover_result(found.introduction.shown, has_push=link.is_pipe)
        except RemoteProtocolError:
            return None
        introduction = found.introduction._replace(shown=shown, revision=LATEST_MODERN)
        return Learned(shown, found.expires_at, introduction)

    def receive_waiting(self, link: Link, exchange: Exchange) -> None:
        assert link.early is not None
        if exchange.is_over or not link.early.speaks_for(link.era) or link.upstream.state not in STARTING:
            return  # its session may be over, too
        session = link.session_of(exchange)
        if not session.takes_early or any(_may_change(entry) for entry in link.queue):
            return
        if exchange.method == "server/discover" and session.greeting is not None:
            link.withdraw(exchange)
            exchange.mark_native()
            link.router.finish(link, exchange, encode_result(exchange.id_raw, session.greeting))
        elif exchange.method in LISTS:
            self._answer(link, session, exchange)

    def _answer(self, link: Link, session: Session, exchange: Exchange) -> None:
        """Answers a request for a list with what an earlier process listed, if that is known."""
        assert link.early is not None
        key = _list_key(link, session, exchange)
        found = None if key is None else self._learned.find(key, self._context.now)
        if key is None or found is None:
            return
        who = exchange.request or session.client
        is_promised = session.is_stateless or _declares_changes(link, exchange.method)
        link.early.show(key, found.result, who, session.sid, is_promised=is_promised)
        link.withdraw(exchange)
        exchange.step(ExchangeInput.SEND)
        link.router.receive_kept(link, exchange, Frame(result=self._aged(found)))

    def _aged(self, learned: Learned) -> bytes:
        """Returns an answer with the rest of the time for which it is fresh, if its server named one."""
        if hints_of(learned.result) is None:
            return learned.result
        left_ms = int((learned.expires_at - self._context.now) * 1000)
        return set_member(learned.result, "ttlMs", b"%d" % left_ms)

    # --- Learns -----------------------------------------------------------------------------------------------------

    def receive_ready(self, link: Link) -> None:
        assert link.early is not None
        link.early.receive_ready(link.last_id)
        key, shown, upstream = _introduction_key(link), link.handshake.result, link.upstream
        if key is not None and shown is not None:
            introduction = Introduction(shown, upstream.revision, upstream.capabilities, link.abilities)
            self._keep(link, key, shown, introduction)
        for name, one in list(link.early.shown.items()):
            self._compare(link, name, one)

    def receive_sent(self, link: Link, exchange: Exchange) -> None:
        assert link.early is not None
        if exchange.method in SAFE_TO_REPEAT and exchange.upstream_id is not None:
            link.early.receive_safe_request(exchange.upstream_id)

    def receive_response(self, link: Link, exchange: Exchange, frame: Frame) -> bool:
        assert link.early is not None
        is_written = exchange.upstream_id is not None  # else it is an answer of ours, given again
        if frame.result is not None and exchange.method in LISTS and is_written:
            key = _list_key(link, link.session_of(exchange), exchange)
            if key is not None and link.early.is_untouched(link.last_id):
                self._keep(link, key, frame.result)
        return False

    def _keep(self, link: Link, key: EarlyKey, result: bytes, introduction: Introduction | None = None) -> None:
        """Keeps an answer, unless its server forbids that, it names the folders of its session, or it is a part of a
        list."""
        expires_at = float("inf")
        if link.workspace.encode() in result:
            self._learned.drop(key)
            return
        if key.era is Era.STATELESS:
            hints = hints_of(result)
            if hints is None or (key.audience == EVERYBODY and not hints.is_public):
                self._learned.drop(key)
                return
            expires_at = self._context.now + min(hints.ttl_ms / 1000, self._context.limits.cache_ttl_max_s)
        try:
            is_whole = member_of(result, "nextCursor") in (None, b"null")
        except RemoteProtocolError:
            return  # it is judged on its way to the client
        if is_whole:
            self._learned.keep(key, Learned(result, expires_at, introduction))
        else:
            self._learned.drop(key)

    def receive_notification(self, link: Link, frame: Frame, related: Exchange | None) -> bool:
        if methods := _CHANGED.get(frame.method or ""):
            self._learned.drop_methods(link.plan.id, methods)
        return False

    def receive_lost(self, link: Link, reason: str) -> None:
        assert link.early is not None
        if not link.early.is_ready:  # the server as it is now does not start
            self._learned.forget(link.plan.id)
        link.early.receive_lost()

    # --- Compares ---------------------------------------------------------------------------------------------------

    def _compare(self, link: Link, name: str, shown: ShownList) -> None:
        """Requests a list that clients were given early."""
        assert link.early is not None
        if shown.key.era is not link.era:
            link.early.take_shown(name)
            self._tell(link, shown)
            return
        params = b"{}"
        if link.is_stateless:
            assert link.upstream.revision is not None, "found by asking for it"
            params = add(params, msgspec.structs.replace(shown.who, revision=link.upstream.revision))
        link.early.receive_safe_request(self._writer.run(link, PURPOSE, shown.key.method, params, about=name))
        at = self._context.now + self._context.limits.lookup_s
        self._context.timers.set((_TIMER, link.id), at, "lists that clients have already")

    def receive_own_response(self, link: Link, own_request: OwnRequest, frame: Frame) -> None:
        assert link.early is not None
        shown = link.early.take_shown(own_request.about)
        if not link.early.shown:
            self._context.timers.cancel((_TIMER, link.id))
        if shown is None:
            return
        is_equal = frame.result is not None and _is_same_list(shown, frame.result)
        if frame.result is not None and (is_equal or link.early.is_untouched(link.last_id)):
            self._keep(link, shown.key, frame.result)
        else:
            self._learned.drop_methods(link.plan.id, (shown.key.method,))
        if not is_equal:
            self._tell(link, shown)

    def _tell(self, link: Link, shown: ShownList) -> None:
        """Notifies the clients that were given a list that their server has another one."""
        method = f"notifications/{LISTS[shown.key.method].kind}/list_changed"
        if method == "notifications/tools/list_changed":
            link.tools.receive_change()
        self._context.note("info", f"{shown.key.method} differs from what clients got while it started", link.plan.id)
        for sid in shown.sids if shown.is_promised else ():
            if (session := link.sessions.get(sid)) is not None:
                self._responder.deliver(session, method, encode_notification(method, None), None)

    def handle_timeout(self, link: Link) -> None:
        """Gives up comparing after `Limits.lookup_s`."""
        assert link.early is not None
        self._writer.give_up(link, PURPOSE)
        link.early.drop_shown()


# --- Keys -----------------------------------------------------------------------------------------------------------


def _introduction_key(link: Link) -> EarlyKey | None:
    """Returns what a handshake of the link depends on; None if its params cannot be compared."""
    try:
        digest = _digest_of_initialize(link) if link.era is Era.HANDSHAKE else b""
    except RemoteProtocolError:
        return None
    own = [session for session in link.sessions.values() if session.is_own]
    # The proxy itself greets a shared process, for all clients.
    is_for_all = link.is_shared or bool(own)
    audience = EVERYBODY if is_for_all else _audience(link.session)
    return EarlyKey(link.plan.id, _METHODS[link.era], link.era, digest, audience)


def _list_key(link: Link, session: Session, exchange: Exchange) -> EarlyKey | None:
    """Returns what a list depends on; None if the request says more than is usual, or asks for a later page."""
    request = exchange.request
    if exchange.token_raw is not None or exchange.mirrored or (request is not None and request.log_level is not None):
        return None
    try:
        if not _is_usual(exchange.params):
            return None
        digest = _digest_of_client(link, session, request) if link.is_stateless else _digest_of_initialize(link)
    except RemoteProtocolError:
        return None
    audience = EVERYBODY if session.is_own and not session.principal else _audience(session)
    return EarlyKey(link.plan.id, exchange.method, link.era, digest, audience)


def _digest_of_initialize(link: Link) -> bytes:
    """Returns a digest of the params of `initialize`, without the client's name.

    Raises:
        RemoteProtocolError: they have a member twice, or capabilities that cannot be read.
    """
    params = link.upstream.initialize
    spans = members(params)
    able = take(params, spans.get("capabilities"))
    rest = [
        (name, params[span.start : span.stop])
        for name, span in sorted(spans.items())
        if name not in ("clientInfo", "capabilities")
    ]
    return _digest((rest, None if able is None else fingerprint(able)))


def _digest_of_client(link: Link, session: Session, request: RequestMeta | None) -> bytes:
    """Returns a digest of what a request tells a server without sessions of its client, without the client's name."""
    who = request or session.client
    revision = who.revision if session.is_stateless else link.upstream.revision
    return _digest((revision, fingerprint(who.capabilities)))


def _audience(session: Session) -> bytes:
    headers = [pair for pair in session.headers if pair[0].lower() not in OF_A_REQUEST]
    return _digest(("principal", session.principal) if session.principal else ("headers", headers))


def _digest(parts: object) -> bytes:
    return hashlib.blake2b(msgspec.json.encode(parts), digest_size=16).digest()


# --- Lists ----------------------------------------------------------------------------------------------------------


def _is_usual(params: bytes | None) -> bool:
    """True if params ask for a list from its beginning, and for nothing else.

    Raises:
        RemoteProtocolError: they are no object, or have a member twice.
    """
    if params is None:
        return True
    spans = members(params)
    meta, cursor = take(params, spans.get("_meta")), take(params, spans.get("cursor"))
    if not spans.keys() <= {"_meta", "cursor"} or cursor not in (None, b"null"):
        return False
    return meta is None or members(meta).keys() <= _USUAL


def _may_change(entry: object) -> bool:
    """True if what waits for the server may change its lists."""
    return isinstance(entry, Exchange) and entry.method not in SAFE_TO_REPEAT and entry.method != "server/discover"


def _declares_changes(link: Link, method: str) -> bool:
    """True if the introduction that clients were given says that they are notified of changes of a list."""
    declared = member_of(link.handshake.result, "capabilities")
    kind = member_of(declared, LISTS[method].kind)
    return kind is not None and kind.startswith(b"{") and member_of(kind, "listChanged") == b"true"


def _is_same_list(shown: ShownList, result: bytes) -> bool:
    """True if a server lists what clients were given."""
    array = LISTS[shown.key.method].array
    try:
        is_whole = member_of(result, "nextCursor") in (None, b"null")
        one, other = member_of(shown.result, array), member_of(result, array)
    except RemoteProtocolError:
        return False
    return is_whole and one is not None and other is not None and is_same(one, other)
