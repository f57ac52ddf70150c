"""The lists of servers that are being read, page by page, and the requests of clients that wait for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ..base.errors import RemoteProtocolError
from ..jsonrpc import envelope
from ..jsonrpc.splice import elements, members, set_member, take
from ..state.exchange import Exchange
from .client_kind import ClientKind
from .kept import Kept
from .legs import Front
from .pages import entries_of
from .profile import ProfileView
from .rewriting import LISTINGS
from .shapes import mended

PAGES_MAX: Final = 64
"""Pages of one server's list that are read; servers have 50 entries or more on a page. At it: the rest is left out."""
LIST_MAX_BYTES: Final = 8 * 1024 * 1024
"""Bytes of one server's list. Four hundred tools have one. At it: the rest is left out."""
LIST_MAX_ENTRIES: Final = 10_000
"""Entries of one server's list. Servers of documents list thousands, and each takes a tenth of a millisecond. At it:
the rest is left out."""
TTL_MAX_S: Final = 300.0
"""Seconds for which a list is kept at most. After it: the server is asked again, behind the next list."""
TTL_MIN_S: Final = 1.0
"""Seconds for which a list is kept at least, whatever its server says: many say 0 for all that they list."""
NOT_YET: Final = "it has not answered yet"

Then = Callable[[ClientKind, Mapping[str, Mapping[str, bytes]], Mapping[str, str]], None]
"""Handles the lists of servers: the kind of the client, the entries by server and name, and why servers are missing."""


class Wait:
    """A client's request for a list.

    Attributes:
        then: gets what there is, in place of the client; None: the client gets it.
        missing: the servers that it waits for, with a reason for each.
        failed: the servers that cannot be asked, and why.
    """

    def __init__(self, front: Front, exchange: Exchange, kind: ClientKind, then: Then | None) -> None:
        self.front = front
        self.exchange = exchange
        self.kind = kind
        self.then = then
        self.missing: dict[str, str] = {}
        self.failed: dict[str, str] = {}

    def expect(self, server: str) -> None:
        """Waits for a server."""
        self.missing[server] = NOT_YET

    def settle(self, server: str, problem: str = "") -> None:
        """Waits for a server no more: its list is there, or there is a problem."""
        self.missing.pop(server, None)
        self.failed.pop(server, None)
        if problem:
            self.failed[server] = problem


class Fetch:
    """A list of a server that is being read.

    Attributes:
        waiting: the requests of clients that wait for it.
        watching: the sessions whose clients are told if it differs from what they were shown.
        is_outdated: the list has changed meanwhile.
        is_again: it is read once more, as it had changed.
        is_cut: there is more than is read.
        faults: the entries that are left out, each with what is wrong with it.
        problem: why it could not be read, or "" if it was; None before its end.
    """

    def __init__(self, view: ProfileView, kind: ClientKind, server: str, method: str, params: bytes) -> None:
        self.method = method
        self.params = params
        self.waiting: list[Wait] = []
        self.watching: dict[str, Front] = {}
        self.problem: str | None = None
        self.is_again = False
        self._view = view
        self._server = server
        self._is_stateless = kind.is_stateless
        self._forget()

    def _forget(self) -> None:
        self.is_outdated = self.is_cut = False
        self._entries: dict[str, bytes] = {}
        self.faults: list[str] = []
        self._raws: list[str] = []
        self._pages, self._size_bytes, self._ttl_s = 0, 0, TTL_MAX_S

    def add(self, wait: Wait) -> None:
        """Lets a request wait for it."""
        self.waiting.append(wait)

    def watch(self, front: Front) -> None:
        """Lets the client of a session be told if the list differs."""
        self.watching[front.session.sid] = front

    def outdate(self) -> None:
        """Records that the list has changed meanwhile."""
        self.is_outdated = True

    def end(self, problem: str) -> None:
        """Records that it is over."""
        self.problem = problem

    def begin_again(self) -> None:
        """Forgets what was read."""
        self.is_again = True
        self._forget()

    def receive_page(self, page: bytes) -> bytes | None:
        """Takes a page. Returns the cursor of the next one, as JSON; None if this was the last that is read.

        Raises:
            RemoteProtocolError: it is no list.
        """
        listing = LISTINGS[self.method]
        key = listing.name.path[0]
        self._pages += 1
        cursor = envelope.member_of(page, "nextCursor")
        ttl_ms = envelope.number_of(take(page, members(page).get("ttlMs")) or b"")
        if ttl_ms is not None:
            self._ttl_s = min(self._ttl_s, max(ttl_ms / 1000, TTL_MIN_S))
        page = self._bounded(page, listing.array)
        raws = [raw for raw, _ in entries_of(page, listing.array, key)]
        shown = self._view.rewriter.result(self._server, self.method, page)
        for name, entry in entries_of(shown, listing.array, key):
            try:
                self._entries.setdefault(name, mended(listing.array, entry, is_stateless=self._is_stateless))
            except RemoteProtocolError as fault:
                self.faults.append(f"{name}: {fault.message}")
        self._raws += raws
        if cursor in (None, b"null", b'""'):
            return None
        self.is_cut = self.is_cut or self._pages >= PAGES_MAX
        return None if self.is_cut else cursor

    def _bounded(self, page: bytes, array: str) -> bytes:
        """Returns a page with those of its entries for which there is room."""
        listed = take(page, members(page).get(array))
        if listed is None or not listed.startswith(b"["):
            return page
        spans = elements(listed)
        fitting = 0
        for start, stop in spans[: LIST_MAX_ENTRIES - len(self._raws)]:
            if self._size_bytes + stop - start > LIST_MAX_BYTES:
                break
            self._size_bytes += stop - start
            fitting += 1
        if fitting == len(spans):
            return page
        self.is_cut = True
        kept = listed[: spans[fitting - 1].stop] + b"]" if fitting else b"[]"
        return set_member(page, array, kept)

    def kept(self, now: float) -> Kept:
        """Returns what was read, as it is kept."""
        kind = LISTINGS[self.method].name.kind
        if kind == "tools" or kind == "prompts":
            names: Mapping[str, str] = self._view.names.catalogue(self._server, kind, self._raws)
        else:
            names = dict(zip(self._raws, self._raws, strict=True))
        return Kept(self._entries, names, now + self._ttl_s)
