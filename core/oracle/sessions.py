"""Checks of the headers of Streamable HTTP: sessions, versions, and headers that repeat parts of the body."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from typing import Any, Final

from ..base.revisions import is_known_modern
from .book import WireState
from .methods import NAMED, V5
from .observations import Headers, Role, Verb
from .seen import VERSION, Finding, Frame, JsonObject, Memory, MessageKind, Stream, shown
from .watch import Checker, breach

_NAME: Final = re.compile(r"[!-~]{1,64}")
_BEGIN, _END = "=?base64?", "?="
_ACCEPTED: Final = {
    Verb.POST: ("application/json", "text/event-stream"),
    Verb.GET: ("text/event-stream",),
    Verb.DELETE: (),
}


class SessionChecker(Checker):
    """Checks the session id and the version in the heads of both sides."""

    def __init__(self, book: WireState) -> None:
        super().__init__(book)
        self._ended_index: int | None = None
        """The observation that showed the end of the session: a 404, or a success for DELETE."""
        self._not_found_index: int | None = None
        """The 404 that told the client of the end. Requests that the client sends after its own DELETE break nothing
        before it."""
        self._has_listened = False

    def opened(self, stream: Stream) -> Iterator[Finding]:
        if stream.verb is not Verb.POST:
            yield from self._head(stream, self.book.revision_of_head(stream), None)

    def frame(self, frame: Frame) -> Iterator[Finding]:
        if frame.sender is Role.CLIENT and frame.is_first and frame.stream.verb is Verb.POST:
            yield from self._head(frame.stream, frame.revision, frame)

    def headed(self, stream: Stream, index: int, session: str | None) -> Iterator[Finding]:
        revision = stream.requests[0].revision if stream.requests else self.book.revision_of_head(stream)
        is_current = stream.session is not None and stream.session == self.book.session
        if (
            self._ended_index is not None
            and is_current
            and stream.index > self._ended_index
            and (stream.status or 0) < 300
        ):
            text = f"got {stream.status} for a session that is over, expected 404"
            yield Finding("session-revived", Role.SERVER, text, revision, (self._ended_index, stream.index, index))
        if (
            self._ended_index is not None
            and is_current
            and stream.index > self._ended_index
            and self._is_misnamed(stream)
        ):
            text = "got 400 for a session that is over, expected 404"
            yield Finding("session-end-status", Role.SERVER, text, revision, (self._ended_index, stream.index, index))
        if is_current and self._ends(stream):
            self._ended_index = index if self._ended_index is None else self._ended_index
            if self._not_found_index is None and stream.status == 404:
                self._not_found_index = index
        if session is not None:
            yield from (
                Finding(rule, Role.SERVER, text, revision, (stream.index, index))
                for rule, text in self._session_header(stream, session)
            )
        if session is not None and self._answers_initialize(stream):
            self.book.note_session(session)
            self._ended_index = self._not_found_index = None

    def _is_misnamed(self, stream: Stream) -> bool:
        """True if a request is refused with 400 although its head shows no other fault than the session id."""
        assert stream.verb is not None
        is_accepted = stream.accept is not None and all(kind in stream.accept for kind in _ACCEPTED[stream.verb])
        has_version = stream.revision is None or stream.revision == self.book.negotiated
        return stream.status == 400 and is_accepted and has_version

    def _ends(self, stream: Stream) -> bool:
        """True if a response shows that the session has ended.

        A server without event streams may answer any GET with 404, so a GET counts only after one has succeeded.
        """
        self._has_listened |= stream.verb is Verb.GET and stream.status == 200
        if stream.status == 404:
            return stream.verb is not Verb.GET or self._has_listened
        return stream.verb is Verb.DELETE and 200 <= (stream.status or 0) < 300

    @staticmethod
    def _answers_initialize(stream: Stream) -> bool:
        return (stream.status or 0) < 300 and any(request.method == "initialize" for request in stream.requests)

    def _session_header(self, stream: Stream, session: str) -> Iterator[tuple[str, str]]:
        if stream.requests and stream.requests[0].revision == V5:
            if stream.revision is not None and is_known_modern(
                stream.revision
            ):  # otherwise the request may be taken for one of the handshake era
                yield "session-stateless", "got an Mcp-Session-Id header"
            return
        if not session or not all("!" <= each <= "~" for each in session):
            yield "session-id-form", f"got {shown(session)}"
        if not self._answers_initialize(stream) and session != self.book.session and (stream.status or 0) < 400:
            yield "session-id-given", "got a session's id with a response that is not that to initialize"

    def _head(self, stream: Stream, revision: str, frame: Frame | None) -> Iterator[Finding]:
        def found(rule: str, text: str) -> Finding:
            numbers = (stream.index,) if frame is None else (stream.index, frame.index)
            return Finding(rule, Role.CLIENT, text, revision, numbers)

        assert stream.verb is not None
        missing = [kind for kind in _ACCEPTED[stream.verb] if stream.accept is not None and kind not in stream.accept]
        if missing:
            yield found("accept", f"got Accept {shown(stream.accept)}, expected {' and '.join(missing)} as well")
        is_initialize = frame is not None and frame.method == "initialize"
        if revision == V5:
            value = None if frame is None else frame.meta.get(VERSION)
            if stream.revision is None:
                yield found("version-header-missing", "got no MCP-Protocol-Version header")
            elif value is not None and value != stream.revision:
                text = f"got {shown(stream.revision)}, and {shown(value)} in the body"
                stream.receive_contradiction(text)
                yield found("version-header", text)
            return
        if self._not_found_index is not None and stream.index > self._not_found_index and stream.session is not None:
            yield found("session-id-lost", "got the id of a session that is over")
        if is_initialize or not self.book.is_greeted:
            return
        if self.book.session is not None and stream.session != self.book.session:
            what = "no Mcp-Session-Id header" if stream.session is None else "another session's id"
            yield found("session-id-missing", f"got {what}")
        if not _NAME.fullmatch(self.book.negotiated or ""):
            return  # the server named a version that a header cannot carry
        if stream.revision is None:
            yield found("version-header-missing", "got no MCP-Protocol-Version header")
        elif stream.revision != self.book.negotiated:
            text = f"got {shown(stream.revision)}, and {shown(self.book.negotiated)} was negotiated"
            yield found("version-header", text)


class HeaderChecker(Checker):
    """Checks the headers by which a request of 2026-07-28 repeats its body; arguments, for tools whose list was
    seen."""

    def __init__(self, book: WireState) -> None:
        super().__init__(book)
        self._tools: Memory[str, dict[str, tuple[str, ...]]] = book.memory()
        """Headers and the paths of their arguments, by tool."""

    def frame(self, frame: Frame) -> Iterator[Finding]:
        if frame.request is not None and frame.request.method == "tools/list" and frame.kind is MessageKind.RESULT:
            self._learn(frame.result)
        if frame.stream.mirrored is None or frame.sender is Role.SERVER or not frame.method or frame.revision != V5:
            return
        for found in self._differences(frame, frame.stream.mirrored):
            frame.stream.receive_contradiction(found.text)
            yield found

    def _differences(self, frame: Frame, mirrored: Headers) -> Iterator[Finding]:
        lines: dict[str, list[str]] = {}
        for name, value in mirrored:
            lines.setdefault(name.lower(), []).append(value)
        if frame.kind is MessageKind.REQUEST:
            yield from self._compare(frame, "mirrored-method", "Mcp-Method", lines, frame.method, is_plain=True)
            named = NAMED.get(frame.method)
            if named is not None and isinstance(frame.params.get(named), str):
                yield from self._compare(frame, "mirrored-name", "Mcp-Name", lines, frame.params[named])
        if frame.method == "tools/call":
            yield from self._arguments(frame, lines)

    def _arguments(self, frame: Frame, lines: dict[str, list[str]]) -> Iterator[Finding]:
        name = frame.params.get("name")
        wanted = self._tools.get(name, {}) if isinstance(name, str) else {}
        for header, path in wanted.items():
            value: Any = frame.params.get("arguments")
            for step in path:
                value = value.get(step) if isinstance(value, dict) else None
            full = f"Mcp-Param-{header}"
            if value is not None:
                yield from self._compare(frame, "mirrored-argument", full, lines, value)
            elif full.lower() in lines:
                yield breach(frame, "mirrored-argument", f"got {full}, and there is no such argument")

    def _compare(
        self, frame: Frame, rule: str, header: str, lines: dict[str, list[str]], wanted: Any, *, is_plain: bool = False
    ) -> Iterator[Finding]:
        got = lines.get(header.lower(), [])
        if len(got) != 1:
            yield breach(frame, rule, f"got {len(got)} {header} headers, expected one")
            return
        value = got[0] if is_plain else _unwrapped(got[0])
        if value is None or not _is_same(value, wanted):
            yield breach(frame, rule, f"got {header} {shown(got[0])}, and {shown(wanted)} in the body")

    def _learn(self, result: JsonObject) -> None:
        listed = result.get("tools")
        for tool in listed if isinstance(listed, list) else ():
            if isinstance(tool, dict) and isinstance(tool.get("name"), str):
                self._tools[tool["name"]] = dict(_mirrored_in(tool.get("inputSchema"), ()))


def _mirrored_in(schema: Any, path: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yields (header, path) of each argument that a schema maps to a header: those reached through `properties`
    alone."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    for name, below in properties.items() if isinstance(properties, dict) else ():
        if isinstance(below, dict) and isinstance(below.get("x-mcp-header"), str):
            yield below["x-mcp-header"], (*path, name)
        yield from _mirrored_in(below, (*path, name))


def _unwrapped(value: str) -> str | None:
    """Returns the decoded value of a header; None if it is marked as Base64 and is not."""
    if not (value.startswith(_BEGIN) and value.endswith(_END)):
        return value.strip()
    try:
        return base64.b64decode(value[len(_BEGIN) : -len(_END)], validate=True).decode("utf-8")
    except (binascii.Error, ValueError):
        return None


def _is_same(value: str, wanted: Any) -> bool:
    """True if a header has the value of an argument: a text, true or false, or a number, which is compared as one."""
    if isinstance(wanted, bool):
        return value == ("true" if wanted else "false")
    if isinstance(wanted, int | float):
        try:
            return float(value) == float(wanted)
        except ValueError:
            return False
    return bool(value == wanted)
