"""Checks of the handshake: it comes first and once, agrees on a revision that both support, and precedes other
requests."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ..base.revisions import is_known_modern
from .book import WireState
from .methods import V5
from .observations import Role
from .seen import Finding, Frame, JsonObject, MessageKind, shown
from .watch import Checker, breach


class HandshakeChecker(Checker):
    """Checks `initialize`, its result, `notifications/initialized`, and the order of other messages.

    Args:
        client: revisions that the client supports; None: unknown.
        server: revisions that the server supports; None: unknown.
    """

    def __init__(self, book: WireState, client: Collection[str] | None, server: Collection[str] | None) -> None:
        super().__init__(book)
        self._client, self._server = client, server
        self._has_reported_missing = False
        self._has_reported_version = False

    def frame(self, frame: Frame) -> Iterator[Finding]:
        if frame.revision == V5:
            return
        if frame.kind in (MessageKind.RESULT, MessageKind.ERROR):
            if frame.request is not None and frame.request is self.book.hello and frame.kind is MessageKind.RESULT:
                yield from self._initialize_result(frame)
        elif frame.sender is Role.CLIENT:
            yield from self._client_message(frame)
        elif (
            not self.book.is_ready
            and not self._has_reported_missing
            and frame.kind is MessageKind.REQUEST
            and frame.method != "ping"
        ):
            # A client that sends requests without the notification is ready as well.
            yield breach(frame, "server-early", f"got {frame.method} before notifications/initialized")

    def _client_message(self, frame: Frame) -> Iterator[Finding]:
        if frame.method == "initialize":
            yield from self._initialize(frame)
        elif frame.method == "ping":
            pass
        elif self.book.hello is None:
            yield breach(frame, "initialize-first", f"got {frame.method} before initialize")
        elif frame.kind is MessageKind.REQUEST and not self.book.is_greeted:
            yield breach(frame, "client-early", f"got {frame.method} before initialize was answered")
        elif frame.kind is MessageKind.REQUEST and not self.book.is_ready and not self._has_reported_missing:
            self._has_reported_missing = True
            yield breach(frame, "initialized-missing", f"got {frame.method} before notifications/initialized")
        yield from self._continued(frame)

    def _initialize(self, frame: Frame) -> Iterator[Finding]:
        if self.book.hello is not None:
            yield breach(frame, "initialize-first", "got initialize a second time", self.book.hello.index)
        wanted = {"protocolVersion": str, "capabilities": dict, "clientInfo": dict}
        yield from self._members(frame, "initialize-params", frame.params, wanted)

    def _initialize_result(self, frame: Frame) -> Iterator[Finding]:
        wanted = {"protocolVersion": str, "capabilities": dict, "serverInfo": dict}
        yield from self._members(frame, "initialize-result", frame.result, wanted)
        answered, asked = frame.result.get("protocolVersion"), self.book.offered
        if not isinstance(answered, str):
            return
        if is_known_modern(answered):
            yield breach(frame, "version-answered", f"got {shown(answered)}, which has no handshake")
        elif self._server is not None and answered != asked and (asked in self._server or answered not in self._server):
            text = f"got {shown(answered)} for {shown(asked)} from a server of {', '.join(self._server)}"
            yield breach(frame, "version-answered", text)

    def _continued(self, frame: Frame) -> Iterator[Finding]:
        version = self.book.negotiated
        if self._client is None or version is None or version in self._client or self._has_reported_version:
            return
        self._has_reported_version = True
        yield breach(
            frame, "version-unsupported", f"goes on with {shown(version)}, and supports {', '.join(self._client)}"
        )

    def _members(
        self, frame: Frame, rule: str, fields: JsonObject, wanted: Mapping[str, type[Any]]
    ) -> Iterator[Finding]:
        wrong = [name for name, kind in wanted.items() if not isinstance(fields.get(name), kind)]
        for name in ("clientInfo", "serverInfo"):
            info = fields.get(name)
            if isinstance(info, dict) and not all(isinstance(info.get(part), str) for part in ("name", "version")):
                wrong.append(f"name and version in {name}")
        if wrong:
            yield breach(frame, rule, f"expected {', '.join(wrong)}")
