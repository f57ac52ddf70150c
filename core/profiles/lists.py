"""The lists of a profile: those of its servers, one after another, in the order of their names.

What a server has listed is kept, for clients of one kind, and shown from then on without asking it. It is asked again
when it says that its list has changed, or when what it said is too old; what is kept is shown meanwhile. A list waits
for a server of which nothing is known, but not for long, and says which servers are missing.

Clients are told of a change if what they are shown differs: the list is read again first, some moments after the
notification of the server. A server that was missing in a list, and answers later, is a change, too.

Source: 2026-07-28 server/tools, "Listing Tools"; server/utilities/caching.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from ..base.errors import INVALID_PARAMS, METHOD_NOT_FOUND, UPSTREAM_UNAVAILABLE, RemoteProtocolError
from ..base.grants import NO_GRANTS, Grants
from ..bridge.capabilities import fingerprint
from ..bridge.request_name import sole_member
from ..downstream.responder import Responder
from ..jsonrpc import envelope
from ..jsonrpc.splice import members, remove_members, set_member
from ..state.advertised import Advertised
from ..state.context import Context
from ..state.exchange import Exchange, ExchangeKey
from ..state.ports import FileDirectory
from .client_kind import ClientKind
from .fetches import NOT_YET, Fetch, Then, Wait
from .kept import Kept, KeptSnapshots
from .legs import Front, Leg, LegReply, Legs
from .pages import page_of
from .profile import ProfileView
from .rewriting import LISTINGS, Snapshot
from .snapshots import Snapshots, StoredList

KINDS_MAX: Final = 256
"""Kinds of clients whose lists are kept. At it: those that were used least lately are dropped, and asked for again."""
CHANGE_JOIN_S: Final = 0.2
"""Seconds from a server's notification to the reading of its list. Servers often send several at once."""
INCOMPLETE_TTL_MS: Final = 1000
"""Milliseconds for which a client may keep a list in which servers are missing."""
AUTH_REQUIRED: Final = "auth_required"
"""The beginning of the reason for which a server that wants credentials is missing."""
REASONS_MAX_CHARS: Final = 1000
"""The most characters of the reasons in one error."""
_CHANGED: Final[Mapping[str, tuple[str, ...]]] = {
    "notifications/tools/list_changed": ("tools/list",),
    "notifications/prompts/list_changed": ("prompts/list",),
    "notifications/resources/list_changed": ("resources/list", "resources/templates/list"),
}
_CHANGES: Final = {listing: method for method, listings in _CHANGED.items() for listing in listings}


Place = tuple[ClientKind, str, str]
"""A kind of clients, a server, and the method of the list."""


class Lists:
    """The lists of one profile.

    Args:
        legs: opens legs to servers.
        files: the files of all servers; None if this copy has none.
        advertised: the arguments that clients are told to repeat in headers.
        shows: returns whether a server exists for a caller with these grants.
        changed: tells the client of a session that a list has changed, by the method of the notification.
    """

    def __init__(
        self,
        context: Context,
        responder: Responder,
        snapshots: Snapshots,
        view: ProfileView,
        legs: Legs,
        files: FileDirectory | None,
        advertised: Advertised,
        shows: Callable[[str, Grants], bool],
        changed: Callable[[Front, str], None],
    ) -> None:
        self._context = context
        self._responder = responder
        self._stored = snapshots
        self._view = view
        self._legs = legs
        self._files = files
        self._advertised = advertised
        self._shows = shows
        self._changed = changed
        self._kept: dict[ClientKind, dict[tuple[str, str], Kept]] = {}
        self._fetches: dict[Place, Fetch] = {}
        self._loading: dict[Place, list[Wait]] = {}
        self._waits: dict[tuple[str, ExchangeKey], Wait] = {}
        self._last_fetch = 0

    # --- From clients -----------------------------------------------------------------------------------------------

    def request(self, front: Front, exchange: Exchange, then: Then | None = None) -> None:
        """Answers a request for a list, now or when its servers have answered. With `then`, that gets what it has."""
        try:
            members(exchange.params or b"{}")
        except RemoteProtocolError as error:
            self._responder.fail(front.session, exchange, INVALID_PARAMS, error.message)
            return
        kind = self.kind_of(front, exchange)
        front.record_list(exchange, kind)
        kept = self._of_kind(kind)
        wait = Wait(front, exchange, kind, then)
        for server in self._view.servers:
            place = kind, server, exchange.method
            if not self._shows(server, kind.grants):
                continue
            is_known = (server, exchange.method) in kept
            if place in self._loading or (not is_known and self._stored.is_untried(*place)):
                wait.expect(server)
                self._load(place, wait)
            else:
                self._ask(wait, server)
        if not wait.missing:
            self._answer(wait)
            return
        self._waits[front.session.sid, exchange.key] = wait
        at = self._context.now + self._view.list_wait_s
        self._context.timers.set(("profile list", (front.session.sid, exchange.key)), at, "lists of servers")

    def _load(self, place: Place, wait: Wait) -> None:
        """Reads the stored list of a server, before that is asked."""
        waiting = self._loading.get(place)
        if waiting is not None:
            waiting.append(wait)
            return
        self._loading[place] = [wait]
        self._stored.load(*place, lambda stored: self._receive_stored(place, stored))

    def _receive_stored(self, place: Place, stored: StoredList | None) -> None:
        kind, server, method = place
        if stored is not None:
            entries = {name: bytes(entry) for name, entry in stored.entries.items()}
            self._of_kind(kind).setdefault((server, method), Kept(entries, stored.raws, self._context.now))
        for wait in self._loading.pop(place):
            if self._is_open(wait):
                wait.settle(server)
                self._ask(wait, server)
                self._answer_if_complete(wait)

    def _ask(self, wait: Wait, server: str) -> None:
        """Asks a server for its list, if nothing is known of it, or what is known is too old."""
        found = self._of_kind(wait.kind).get((server, wait.exchange.method))
        if found is not None and found.expires_at > self._context.now:
            return
        fetch = self._fetch(wait.front, wait.exchange, wait.kind, server)
        if found is not None:
            if not isinstance(fetch, str):
                fetch.watch(wait.front)
        elif isinstance(fetch, str):
            wait.settle(server, fetch)
        elif fetch.problem:
            wait.settle(server, fetch.problem)
        elif fetch.problem is None:
            fetch.add(wait)
            leg = wait.front.legs.get(server)
            is_late = leg is not None and self._context.now >= leg.opened_at + self._view.list_wait_s
            if leg is not None and is_late and not leg.is_introduced:
                wait.settle(server, NOT_YET)  # it has not even begun a session: it is waited for once
            elif leg is None or leg.lists(wait.exchange.method):
                wait.expect(server)

    def _is_open(self, wait: Wait) -> bool:
        return self._waits.get((wait.front.session.sid, wait.exchange.key)) is wait

    def _answer_if_complete(self, wait: Wait) -> None:
        if not wait.missing:
            self.withdraw(wait.front, wait.exchange)
            self._answer(wait)

    def handle_wait(self, sid: str, key: ExchangeKey) -> None:
        """Answers a list with what is there."""
        wait = self._waits.pop((sid, key), None)
        if wait is not None:
            self._answer(wait)

    def withdraw(self, front: Front, exchange: Exchange) -> None:
        """Drops a request that is over. What is being read is read to its end, for the next one."""
        if self._waits.pop((front.session.sid, exchange.key), None) is not None:
            self._context.timers.cancel(("profile list", (front.session.sid, exchange.key)))

    def snapshots(self, kind: ClientKind) -> Mapping[str, Snapshot]:
        """Returns what is known of the names of servers that clients of a kind may see."""
        return KeptSnapshots(
            self._view.servers, lambda server: self._shows(server, kind.grants), self._kept.get(kind, {})
        )

    def entry(self, kind: ClientKind, method: str, name: str) -> bytes | None:
        """Returns an entry as clients of a kind were last shown it; None if its list has changed since."""
        found = (kept for (_, listed), kept in self._kept.get(kind, {}).items() if listed == method)
        return next((kept.entries[name] for kept in found if name in kept.entries and not kept.is_changed), None)

    def kind_of(self, front: Front, exchange: Exchange) -> ClientKind:
        """Returns the kind of the client that sent a request."""
        session = front.session
        opening = getattr(self._context.role_of(exchange.key.channel), "opening", None)
        grants = getattr(opening, "grants", NO_GRANTS)
        abilities = session.client.capabilities if exchange.request is None else exchange.request.capabilities
        headers = () if session.principal else session.headers
        return ClientKind(
            session.principal,
            headers,
            session.is_stateless,
            session.features.revision,
            fingerprint(abilities),
            grants,
        )

    def _of_kind(self, kind: ClientKind) -> dict[tuple[str, str], Kept]:
        kept = self._kept.pop(kind, None)
        if kept is None:
            kept = {}
            if len(self._kept) >= KINDS_MAX:
                del self._kept[next(iter(self._kept))]
        self._kept[kind] = kept
        return kept

    # --- From servers -----------------------------------------------------------------------------------------------

    def receive_change(self, front: Front, server: str, method: str) -> bool:
        """Handles a notification that lists of a server have changed. True if the client is to be told now; else it is
        told if what it is shown differs."""
        for kind, kept in self._kept.items():
            if kind.principal == front.session.principal:
                for changed in _CHANGED.get(method, ()):
                    found = kept.get((server, changed))
                    if found is not None:
                        kept[server, changed] = found._replace(expires_at=self._context.now, is_changed=True)
        if self._read_anew(front, server, method):
            return False
        # Rules of access need the grants of a request that is still open.
        if self._context.servers[server].access is not None or not self._shown_lists(front, server, method):
            return True
        at = self._context.now + CHANGE_JOIN_S
        self._context.timers.set(("profile change", (front.session.sid, (server, method))), at, "changed lists")
        return False

    def _read_anew(self, front: Front, server: str, method: str) -> bool:
        """Has a list that is being read for the client's first request for it read once more. True if the client's
        response has the change in it then: there is nothing to tell. A list that changes again is not waited for."""
        if front.session.is_stateless or method in front.session.lists.known:
            return False
        asked = [(listing, front.listed[listing][1]) for listing in _CHANGED.get(method, ()) if listing in front.listed]
        found = [self._fetches.get((kind, server, listing)) for listing, kind in asked]
        fetches = [fetch for fetch in found if fetch is not None and self._is_awaited(fetch, front)]
        if not fetches or any(fetch.is_again for fetch in fetches):
            return False
        for fetch in fetches:
            fetch.outdate()
        return True

    def _is_awaited(self, fetch: Fetch, front: Front) -> bool:
        return any(wait.front is front and self._is_open(wait) for wait in fetch.waiting)

    def _shown_lists(self, front: Front, server: str, method: str) -> list[tuple[Exchange, ClientKind]]:
        """Returns the client's latest requests for those of the lists in which it was shown the server."""
        listed = [front.listed[listing] for listing in _CHANGED.get(method, ()) if listing in front.listed]
        return [(exchange, kind) for exchange, kind in listed if (server, exchange.method) in self._kept.get(kind, {})]

    def read_again(self, front: Front, server: str, method: str) -> None:
        """Reads lists again that have changed, to tell the client of it if they differ."""
        for exchange, kind in self._shown_lists(front, server, method):
            running = self._fetches.get((kind, server, exchange.method))
            if running is not None:
                running.outdate()
            fetch = running or self._fetch(front, exchange, kind, server)
            if isinstance(fetch, str):
                self._changed(front, method)
            else:
                fetch.watch(front)

    def _fetch(self, front: Front, exchange: Exchange, kind: ClientKind, server: str) -> Fetch | str:
        """Begins to read a list, unless it is being read. Returns what reads it, or why it cannot be read."""
        place = kind, server, exchange.method
        fetch = self._fetches.get(place)
        if fetch is not None:
            return fetch
        leg = self._legs.open(front, server)
        if isinstance(leg, str):
            return leg
        fetch = self._fetches[place] = Fetch(
            self._view, kind, server, exchange.method, remove_members(exchange.params or b"{}", {"cursor"})
        )
        self._read(fetch, place, leg, exchange, fetch.params)
        return fetch

    def _read(self, fetch: Fetch, place: Place, leg: Leg, exchange: Exchange, params: bytes) -> None:
        id_key = envelope.id_key(b"1")
        assert id_key is not None
        self._last_fetch += 1
        inner = Exchange(
            ExchangeKey(exchange.key.channel, -self._last_fetch),
            LegReply(partial(self._receive_page, fetch, place, leg, exchange)),
            sid=leg.session.sid,
            id_raw=b"1",
            id_key=id_key,
            method=fetch.method,
            params=params,
            headers=leg.passed(exchange.headers),
            request=exchange.request,
            trace=exchange.trace,
        )
        self._legs.send(leg, inner)

    def _receive_page(
        self, fetch: Fetch, place: Place, leg: Leg, exchange: Exchange, reply: LegReply, message: bytes
    ) -> None:
        frame = envelope.decode(message)
        if frame.result is None:
            error = envelope.usable_error(frame.error or b"{}")
            is_absent = envelope.error_code(error) == METHOD_NOT_FOUND
            self._end(fetch, place, leg, exchange, "" if is_absent else _reason_of(error))
            return
        try:
            cursor = fetch.receive_page(frame.result)
        except RemoteProtocolError as fault:
            self._end(fetch, place, leg, exchange, f"its list cannot be read: {fault.message}")
            return
        if cursor is not None:
            self._read(fetch, place, leg, exchange, set_member(fetch.params, "cursor", cursor))
            return
        if fetch.is_cut:
            self._context.note("warning", f"the rest of its {fetch.method} is left out: it is too long", leg.server)
        self._end(fetch, place, leg, exchange, "")

    def _end(self, fetch: Fetch, place: Place, leg: Leg, exchange: Exchange, problem: str) -> None:
        if fetch.is_outdated and not problem:
            fetch.begin_again()
            self._read(fetch, place, leg, exchange, fetch.params)
            return
        kind, server, method = place
        del self._fetches[place]
        kept_before, differs = self._of_kind(kind).get((server, method)), False
        if not problem:
            kept = self._of_kind(kind)[server, method] = fetch.kept(self._context.now)
            differs = kept_before is None or kept_before.entries != kept.entries
            if differs and fetch.faults:
                text = f"left out of its {method}, as clients refuse such a list: {'; '.join(fetch.faults)}"
                self._context.note("warning", text[:REASONS_MAX_CHARS], server)
            if differs:
                self._stored.save(*place, kept.entries, kept.raws)
        fetch.end(problem)
        if problem and leg.is_left:
            self._ask_again(fetch, server)
            return
        for wait in fetch.waiting:
            wait.settle(server, problem)
            if self._is_open(wait):
                self._answer_if_complete(wait)
            elif not problem:
                fetch.watch(wait.front)  # its list was answered without that of the server
        for front in fetch.watching.values() if differs else ():
            self._changed(front, _CHANGES[method])

    def _ask_again(self, fetch: Fetch, server: str) -> None:
        """Lets the requests that waited for a list ask for it themselves: the session that read it has ended."""
        for wait in fetch.waiting:
            if self._is_open(wait) and not wait.front.is_closing:
                wait.settle(server)
                self._ask(wait, server)
                self._answer_if_complete(wait)

    # --- Answers ----------------------------------------------------------------------------------------------------

    def _answer(self, wait: Wait) -> None:
        exchange, session, method = wait.exchange, wait.front.session, wait.exchange.method
        if exchange.is_over:
            return
        kept = self._of_kind(wait.kind)
        by_server = {
            server: found for server in self._view.servers if (found := kept.get((server, method))) is not None
        }
        lists, absent = list(by_server.values()), wait.failed | wait.missing
        if wait.then is not None:
            wait.then(wait.kind, {server: one.entries for server, one in by_server.items()}, absent)
            return
        if absent and not lists:
            text = f"no server of {self._view.id} can be asked: " + "; ".join(
                f"{id}: {why}" for id, why in absent.items()
            )
            self._responder.fail(session, exchange, UPSTREAM_UNAVAILABLE, text[:1000], {"servers": absent})
            return
        entries: dict[str, bytes] = {}
        for one in lists:
            for name, entry in one.entries.items():
                entries.setdefault(name, entry)
        artifacts = None
        if method == "resources/list" and self._files is not None:
            artifacts = self._files.entries_of(session)
            entries |= artifacts or {}
        ttl_ms = None
        if session.is_stateless:
            if method == "tools/list":
                self._advertised.tell_of_tools(session, entries.values())
            ends = [one.expires_at for one in lists] if artifacts is None else []  # artifacts come at any time
            left_s = min(ends, default=self._context.now) - self._context.now
            ttl_ms = INCOMPLETE_TTL_MS if absent else max(int(left_s * 1000), 0)
        try:
            result = page_of(LISTINGS[method].array, entries, exchange.params, absent, ttl_ms)
        except RemoteProtocolError as error:
            self._responder.fail(session, exchange, error.rpc_code, error.message)
            return
        self._responder.answer(session, exchange, envelope.encode_result(exchange.id_raw, result))


def _reason_of(error: bytes) -> str:
    """Returns why a server has no list, of its error. A program can tell by the beginning that a login is wanted."""
    text = envelope.text_of(envelope.member_of(error, "message")) or "it answered with an error"
    status = sole_member(sole_member(error, "data"), "httpStatus")
    return f"{AUTH_REQUIRED}: {text}" if status == b"401" else text
