"""The handshake: first, once, with a version both know, and what may be said before it is through."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ..base.revisions import is_known_modern
from .book import Book
from .methods import V5
from .observations import Role
from .seen import Breach, Frame, JsonObject, Kind, shown
from .watch import Watch, breach


class Greeting(Watch):
    """`initialize`, its answer, `notifications/initialized`; then everything else.

    Args:
        client: revisions that the client supports; None: nobody knows.
        server: those of the server.
    """

    def __init__(self, book: Book, client: Collection[str] | None, server: Collection[str] | None) -> None:
        super().__init__(book)
        self._client, self._server = client, server
        self._has_told_missing = False
        self._has_told_version = False

    def frame(self, frame: Frame) -> Iterator[Breach]:
        if frame.revision == V5:
            return
        if frame.kind in (Kind.RESULT, Kind.ERROR):
            if frame.ask is not None and frame.ask is self.book.hello and frame.kind is Kind.RESULT:
                yield from self._answer(frame)
        elif frame.sender is Role.CLIENT:
            yield from self._client_says(frame)
        elif (
            not self.book.is_ready
            and not self._has_told_missing
            and frame.kind is Kind.REQUEST
            and frame.method != "ping"
        ):
            # A client that asks without saying so is ready as well.
            yield breach(frame, "server-early", f"got {frame.method} before notifications/initialized")

    def _client_says(self, frame: Frame) -> Iterator[Breach]:
        if frame.method == "initialize":
            yield from self._hello(frame)
        elif frame.method == "ping":
            pass
        elif self.book.hello is None:
            yield breach(frame, "initialize-first", f"got {frame.method} before initialize")
        elif frame.kind is Kind.REQUEST and not self.book.is_greeted:
            yield breach(frame, "client-early", f"got {frame.method} before initialize was answered")
        elif frame.kind is Kind.REQUEST and not self.book.is_ready and not self._has_told_missing:
            self._has_told_missing = True
            yield breach(frame, "initialized-missing", f"got {frame.method} before notifications/initialized")
        yield from self._goes_on(frame)

    def _hello(self, frame: Frame) -> Iterator[Breach]:
        if self.book.hello is not None:
            yield breach(frame, "initialize-first", "got initialize a second time", self.book.hello.index)
        wanted = {"protocolVersion": str, "capabilities": dict, "clientInfo": dict}
        yield from self._members(frame, "initialize-params", frame.params, wanted)

    def _answer(self, frame: Frame) -> Iterator[Breach]:
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

    def _goes_on(self, frame: Frame) -> Iterator[Breach]:
        version = self.book.negotiated
        if self._client is None or version is None or version in self._client or self._has_told_version:
            return
        self._has_told_version = True
        yield breach(
            frame, "version-unsupported", f"goes on with {shown(version)}, and supports {', '.join(self._client)}"
        )

    def _members(self, frame: Frame, rule: str, said: JsonObject, wanted: Mapping[str, type[Any]]) -> Iterator[Breach]:
        wrong = [name for name, kind in wanted.items() if not isinstance(said.get(name), kind)]
        for name in ("clientInfo", "serverInfo"):
            info = said.get(name)
            if isinstance(info, dict) and not all(isinstance(info.get(part), str) for part in ("name", "version")):
                wrong.append(f"name and version in {name}")
        if wrong:
            yield breach(frame, rule, f"expected {', '.join(wrong)}")
