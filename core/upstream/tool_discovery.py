"""Reads `tools/list` of a server to learn which arguments must be mirrored in `Mcp-Param-*` headers.

A server without sessions that is reached over HTTP may mark arguments with `x-mcp-header`, and refuses a call whose
headers lack them. Clients of the stateless era send these headers themselves. For other clients the list is read, once,
before their first call. It also tells which tools support tasks, and where a tool takes files.

Source: 2026-07-28 server/tools, "x-mcp-header", and basic/transports/streamable-http.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ..base.errors import RemoteProtocolError
from ..bridge.request_meta import add
from ..bridge.task_support import read_support
from ..jsonrpc import envelope
from ..jsonrpc.envelope import Frame
from ..jsonrpc.splice import set_member
from ..state.advertised import Advertised
from ..state.context import Context
from ..state.exchange import Exchange
from ..state.link import Link
from ..state.session import Session
from ..wire.http.param_headers import read_tools
from .writer import UpstreamWriter

NOTED_MAX: Final = 8
"""The bound on notes for each list about tools that are left out."""


class ToolDiscovery:
    """The tool lists of all links.

    Attributes:
        advertised: the marked arguments of tools that HTTP clients were shown.
    """

    def __init__(self, context: Context, writer: UpstreamWriter) -> None:
        self._context = context
        self._writer = writer
        self.advertised = Advertised(context.limits.audiences_max)

    def wants(self, link: Link, session: Session, exchange: Exchange) -> bool:
        """True if the list must be read before a request is sent, since its arguments may have to be mirrored."""
        if link.is_pipe or not link.is_stateless or exchange.method != "tools/call" or link.tools.mirrors is not None:
            return False
        return not exchange.mirrored  # a client that sends the headers has read the list

    def begin(self, link: Link, exchange: Exchange) -> None:
        """Queues the request, and reads the list for it."""
        if link.tools.wait(exchange):
            self._ask(link, None, link.session_of(exchange))

    def _ask(self, link: Link, cursor: bytes | None, session: Session) -> None:
        link.tools.request_page(cursor)
        params = b"{}" if cursor is None else set_member(b"{}", "cursor", cursor)
        if link.is_stateless:
            revision = link.upstream.revision
            assert revision is not None, "found by asking for it"
            params = add(params, msgspec.structs.replace(session.client, revision=revision))
        self._writer.run(link, "schemas", "tools/list", params)
        self._context.timers.set(
            ("schemas", link.id), self._context.now + self._context.limits.lookup_s, "list of tools"
        )

    def handle_schemas(self, link: Link) -> None:
        """Gives up reading the list after `Limits.lookup_s`."""
        self._writer.give_up(link, "schemas")
        self.receive_end(link)

    def receive_page(self, link: Link, frame: Frame) -> None:
        """Handles a page of the list, or the error in its place; then calls are sent with what is known."""
        cursor = None
        if frame.result is not None:
            try:
                is_first = link.tools.pages_read == 1
                self.learn_support(link, frame.result, is_first=is_first)
                if link.is_stateless:
                    self.learn(link, None, frame.result, is_first=is_first)
                for read_tools in link.interceptors.read_tools:
                    read_tools(link, frame.result, is_first=is_first)
                cursor = envelope.member_of(frame.result, "nextCursor")
            except RemoteProtocolError as error:
                self._context.note("warning", f"its list of tools cannot be read: {error.message}", link.plan.id)
        # A server that repeats a cursor would otherwise be asked for the same page again and again.
        if (
            cursor not in (None, b"null", link.tools.page_read)
            and link.tools.pages_read < self._context.limits.schema_pages_max
        ):
            waiting = next((exchange for exchange in link.tools.waiting if not exchange.is_over), None)
            if waiting is not None:
                self._ask(link, cursor, link.session_of(waiting))
                return
        self.receive_end(link)

    def receive_end(self, link: Link) -> None:
        """Ends the reading of the list, and sends the requests that waited for it."""
        self._context.timers.cancel(("schemas", link.id))
        link.tools.receive_end(is_stateless=link.is_stateless)
        for exchange in link.tools.take_waiting():
            if not exchange.is_over:
                link.router.send(link, exchange)

    def learn_support(self, link: Link, result: bytes, *, is_first: bool) -> None:
        """Reads the task support of tools from a list, or from a page of one.

        Raises:
            RemoteProtocolError: the list cannot be read.
        """
        if link.is_stateless or not link.abilities.calls:
            return
        found, is_last = read_support(result), envelope.member_of(result, "nextCursor") in (None, b"null")
        tools_max = self._context.limits.tools_known_max
        link.tools.learn_supports(found, is_first=is_first, is_last=is_last, tools_max=tools_max)

    def learn(self, link: Link, session: Session | None, result: bytes, *, is_first: bool) -> bytes:
        """Reads the marked arguments from a list of tools. Returns the list without the tools whose marks are broken.

        Args:
            session: the session whose client asked for the list, if one did.
            is_first: the first page, which replaces all that was read before.

        Raises:
            RemoteProtocolError: the list cannot be read.
        """
        shown, faults = self._read(link, session, result, is_first=is_first)
        for fault in faults[:NOTED_MAX]:
            self._context.note("warning", f"a tool is left out: {fault}", link.plan.id)
        return shown

    def advertise(self, link: Link, session: Session, result: bytes, *, is_first: bool) -> None:
        """Reads the marked arguments from the list of a server that does not read headers, for a client that sends
        them.

        A proxy that shows such a tool over HTTP must compare headers and arguments itself.

        Raises:
            RemoteProtocolError: the list cannot be read.
        """
        self._read(link, session, result, is_first=is_first)

    def _read(self, link: Link, session: Session | None, result: bytes, *, is_first: bool) -> tuple[bytes, list[str]]:
        if b"x-mcp-header" not in result and not (is_first and link.tools.mirrors):
            return result, []
        shown, mirrors, faults = read_tools(result)
        known = link.tools.learn_mirrors(mirrors, is_first=is_first, tools_max=self._context.limits.tools_known_max)
        if session is not None:
            self.advertised.tell(session, known)
        return shown, faults

    def forget(self, link: Link) -> None:
        """Drops all that is known of a link's tools, since the list has changed."""
        link.tools.receive_change()
        for session in link.sessions.values():
            self.advertised.forget(session)
