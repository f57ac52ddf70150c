"""Checks of methods and capabilities: each method in its revisions, and no use of an undeclared capability."""

from __future__ import annotations

from collections.abc import Iterator

from .book import WireState
from .methods import AUGMENTED, METHODS, V4, V5, declares, senders, takes_mode
from .observations import Role, Transport
from .seen import LOG_LEVEL, Finding, Frame, JsonObject, Memory, MessageKind, key_of, shown
from .watch import Checker, breach

_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


class CapabilityChecker(Checker):
    """Checks that each method is used in its revision, by its sender, after the capability it needs was declared."""

    def __init__(self, book: WireState) -> None:
        super().__init__(book)
        self._elicitations: Memory[str, None] = book.memory()

    def frame(self, frame: Frame) -> Iterator[Finding]:
        if frame.kind is MessageKind.ERROR:
            self._keep_elicitations(frame)
        if frame.method not in METHODS:
            return
        yield from self._method(frame)
        if frame.sender in senders(frame.method, frame.revision):
            yield from self._capability(frame)
        if frame.sender is Role.CLIENT:
            return
        if frame.method == "elicitation/create":
            yield from self._elicitation(frame)
        elif frame.method == "sampling/createMessage":
            yield from self._sampling(frame)
        elif frame.method == "notifications/elicitation/complete":
            yield from self._elicitation_complete(frame)
        elif frame.method == "notifications/message" and frame.revision == V5:
            yield from self._log(frame)

    def _method(self, frame: Frame) -> Iterator[Finding]:
        use = METHODS[frame.method]
        if frame.revision == V5 and frame.sender is Role.SERVER and frame.kind is MessageKind.REQUEST:
            yield breach(frame, "request-by-server", f"got the request {frame.method}")
        elif frame.revision not in use.revisions:
            yield breach(frame, "method-foreign", f"got {frame.method}, which {frame.revision} does not have")
        elif frame.sender not in senders(frame.method, frame.revision):
            yield breach(frame, "method-direction", f"got {frame.method} from the {frame.sender.value}")
        if use.is_request != (frame.kind is MessageKind.REQUEST):
            what = "without" if use.is_request else "with"
            yield breach(frame, "method-kind", f"got {frame.method} {what} an id")

    # --- Capabilities -----------------------------------------------------------------------------------------------

    def _capability(self, frame: Frame) -> Iterator[Finding]:
        use = METHODS[frame.method]
        if not use.needs or frame.revision not in use.needs_in:
            return
        owner = use.of or frame.sender.other
        declared = self.book.capabilities[owner]
        if declared is not None and not declares(declared, use.needs):
            text = f"got {frame.method}, and the {owner.value} has not declared {use.needs}"
            yield breach(frame, "capability-undeclared", text)
        path = AUGMENTED.get(frame.method)
        if "task" in frame.params and path is not None and frame.revision == V4:
            receiver = self.book.capabilities[frame.sender.other]
            if receiver is not None and not declares(receiver, path):
                text = f"got {frame.method} with a task, and {path} is not declared"
                yield breach(frame, "capability-undeclared", text)

    @property
    def _client(self) -> JsonObject:
        return self.book.capabilities[Role.CLIENT] or {}

    def _elicitation(self, frame: Frame) -> Iterator[Finding]:
        mode = frame.params.get("mode", "form")
        if declares(self._client, "elicitation") and not takes_mode(self._client["elicitation"], mode):
            yield breach(frame, "elicitation-mode", f"got the mode {shown(mode)}, which the client has not declared")
        self._keep_elicitation(frame.params)

    def _sampling(self, frame: Frame) -> Iterator[Finding]:
        uses = [name for name in ("tools", "toolChoice") if name in frame.params]
        if uses and not declares(self._client, "sampling.tools"):
            yield breach(frame, "sampling-tools", f"got {' and '.join(uses)}, and sampling.tools is not declared")

    def _keep_elicitation(self, params: JsonObject) -> None:
        id = params.get("elicitationId")
        if isinstance(id, str):
            self._elicitations[id] = None

    def _keep_elicitations(self, frame: Frame) -> None:
        """Remembers the elicitations in an error -32042, which lists the pages that the user has to visit."""
        error = frame.message["error"]
        detail = error.get("data") if isinstance(error, dict) else None
        listed = detail.get("elicitations") if isinstance(detail, dict) else None
        for each in listed if isinstance(listed, list) else ():
            if isinstance(each, dict):
                self._keep_elicitation(each)

    def _elicitation_complete(self, frame: Frame) -> Iterator[Finding]:
        id = frame.params.get("elicitationId")
        is_known = isinstance(id, str) and id in self._elicitations
        if not is_known and not self._elicitations.has_forgotten:
            yield breach(frame, "elicitation-id", f"got the elicitation {shown(id)}, which there was not")

    # --- Log messages in the stateless era --------------------------------------------------------------------------

    def _log(self, frame: Frame) -> Iterator[Finding]:
        requests = frame.stream.origin.requests
        if (
            self.book.transport is not Transport.HTTP
        ):  # all messages share one channel, so any open request may have asked for it
            requests = [request for request in self.book.open_requests() if request.sender is Role.CLIENT]
        elif any(request.method == "subscriptions/listen" for request in requests):
            yield breach(frame, "log-stream", "got a log message on the stream of subscriptions/listen")
            return
        wanted = [key_of(request.meta.get(LOG_LEVEL)) for request in requests if request.revision == V5]
        lowest = min((_LEVELS.index(level) for level in wanted if level in _LEVELS), default=len(_LEVELS))
        level = frame.params.get("level")
        if lowest == len(_LEVELS) or (level in _LEVELS and _LEVELS.index(level) < lowest):
            text = f"got a log message of level {shown(level)}, and "
            text += f"{_LEVELS[lowest]} was asked for" if lowest < len(_LEVELS) else "none was asked for"
            yield breach(frame, "log-unasked", text)
