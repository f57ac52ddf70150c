"""Which arguments of a server's tools are to be said in headers too, learned from its own list of tools.

A server without sessions that is reached over HTTP may mark arguments so, and refuses a call whose headers lack them.
Clients that speak as it does say them themselves; for the others the list is read, once, before the first call.

Source: 2026-07-28 server/tools, "x-mcp-header", and basic/transports/streamable-http.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from ..base.errors import RemoteProtocolError
from ..bridge.request_meta import add
from ..bridge.task_support import read_support
from ..jsonrpc import envelope
from ..jsonrpc.envelope import Frame
from ..jsonrpc.splice import set_member
from ..state.context import Desk
from ..state.exchange import Exchange
from ..state.link import Link
from ..state.session import Audience, Session
from ..wire.http.param_headers import Mirror, read_tools
from .writer import Uplink

NOTED_MAX: Final = 8
"""So many tools that are left out are named."""


class Pupil(Protocol):
    """Who else reads the lists of tools that come by."""

    def learn(self, link: Link, result: bytes, *, is_first: bool) -> None: ...


class Schooling:
    """
    Attributes:
        advertised: the same for clients who speak HTTP to us, by whom it was shown to and tool: what their headers must
            agree with. Who was shown a list longest ago is forgotten first.

    Args:
        write: sends a request up that has waited.
    """

    def __init__(self, desk: Desk, uplink: Uplink, write: Callable[[Link, Exchange], None]) -> None:
        self.files: Pupil
        self._desk = desk
        self._uplink = uplink
        self._write = write
        self.advertised: dict[Audience, dict[str, tuple[Mirror, ...]]] = {}

    def wants(self, link: Link, session: Session, exchange: Exchange) -> bool:
        """Whether the list must be read before a request goes up. It waits then, if it is not refused."""
        if link.is_pipe or not link.is_stateless or exchange.method != "tools/call" or link.mirrors is not None:
            return False
        return not exchange.mirrored  # its client has read the list, and says them itself

    def begin(self, link: Link, exchange: Exchange) -> None:
        """Read the list; the request goes up afterwards."""
        link.learning.append(exchange)
        if len(link.learning) == 1:
            link.pages_read, link.page_read = 0, None
            self._ask(link, b"{}", link.session_of(exchange))

    def _ask(self, link: Link, params: bytes, session: Session) -> None:
        link.pages_read += 1
        if link.is_stateless:
            revision = link.upstream.revision
            assert revision is not None, "found by asking for it"
            params = add(params, msgspec.structs.replace(session.client, revision=revision))
        self._uplink.run(link, "schemas", "tools/list", params)
        self._desk.timers.set(("schemas", link.id), self._desk.now + self._desk.limits.lookup_s, "list of tools")

    def handle_schemas(self, link: Link) -> None:
        """It takes too long."""
        self._uplink.give_up(link, "schemas")
        self.receive_end(link)

    def receive_page(self, link: Link, frame: Frame) -> None:
        """A page of the list, or the failure to get it: then calls go as they can."""
        cursor = None
        if frame.result is not None:
            try:
                is_first = link.pages_read == 1
                self.learn_support(link, frame.result, is_first=is_first)
                if link.is_stateless:
                    self.learn(link, None, frame.result, is_first=is_first)
                if link.has_files:
                    self.files.learn(link, frame.result, is_first=is_first)
                cursor = envelope.member_of(frame.result, "nextCursor")
            except RemoteProtocolError as error:
                self._desk.note("warning", f"its list of tools cannot be read: {error.message}", link.plan.id)
        if cursor not in (None, b"null", link.page_read) and link.pages_read < self._desk.limits.schema_pages_max:
            waiting = next((exchange for exchange in link.learning if not exchange.is_over), None)
            if waiting is not None:
                link.page_read = cursor
                self._ask(link, set_member(b"{}", "cursor", cursor), link.session_of(waiting))
                return
        self.receive_end(link)

    def receive_end(self, link: Link) -> None:
        """There is no more to learn."""
        self._desk.timers.cancel(("schemas", link.id))
        if link.mirrors is None and link.is_stateless:
            link.mirrors = {}
        link.knows_supports = True
        if link.hints is None:
            link.hints = {}
        waiting, link.learning = link.learning, []
        for exchange in waiting:
            if not exchange.is_over:
                self._write(link, exchange)

    def learn_support(self, link: Link, result: bytes, *, is_first: bool) -> None:
        """A list of tools, or a part of one, came by: which are to be called as tasks.

        Raises:
            RemoteProtocolError: it cannot be read.
        """
        if link.is_stateless or not link.abilities.calls:
            return
        known = {} if is_first else dict(link.supports)
        found = read_support(result)
        if len(known) + len(found) <= self._desk.limits.tools_known_max:
            link.supports = known | found
        link.knows_supports = envelope.member_of(result, "nextCursor") in (None, b"null")

    def learn(self, link: Link, session: Session | None, result: bytes, *, is_first: bool) -> bytes:
        """A list of tools came by. Returns it without those that cannot be called, for their marks are broken.

        Args:
            session: whose client it goes to, if it was one that asked.
            is_first: it is the first page, which holds for all that was read before.

        Raises:
            RemoteProtocolError: it cannot be read.
        """
        shown, faults = self._read(link, session, result, is_first=is_first)
        for fault in faults[:NOTED_MAX]:
            self._desk.note("warning", f"a tool is left out: {fault}", link.plan.id)
        return shown

    def advertise(self, link: Link, session: Session, result: bytes, *, is_first: bool) -> None:
        """A list of tools goes to a client that says arguments in headers, from a server that reads none: who shows
        such a tool over HTTP has to compare them all the same.

        Raises:
            RemoteProtocolError: it cannot be read.
        """
        self._read(link, session, result, is_first=is_first)

    def _read(self, link: Link, session: Session | None, result: bytes, *, is_first: bool) -> tuple[bytes, list[str]]:
        known = link.mirrors or {}
        if b"x-mcp-header" not in result and not (is_first and known):
            return result, []
        shown, mirrors, faults = read_tools(result)
        link.mirrors = mirrors if is_first else {**known, **mirrors}
        if len(link.mirrors) > self._desk.limits.tools_known_max:
            link.mirrors = mirrors
        if session is not None and session.affinity is not None:
            self.advertised.pop(session.affinity.audience, None)
            self.advertised[session.affinity.audience] = link.mirrors
            if len(self.advertised) > self._desk.limits.audiences_max:
                del self.advertised[next(iter(self.advertised))]
        return shown, faults

    def forget(self, link: Link) -> None:
        """The list has changed."""
        link.mirrors = link.hints = None
        link.knows_supports = False
        for session in link.sessions.values():
            if session.affinity is not None:
                self.advertised.pop(session.affinity.audience, None)
