"""Checks of self-contained requests (2026-07-28): their `_meta`, the kinds of their results, and rounds of
questions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import NamedTuple

from .book import WireState
from .methods import CACHEABLE, INTERACTIVE, QUESTIONS, TASKS_EXTENSION, V4, V5, declares, takes_mode
from .observations import Role
from .seen import (
    CAPABILITIES,
    CLIENT_INFO,
    LOG_LEVEL,
    PREFIX,
    RELATED_TASK,
    SERVER_INFO,
    SUBSCRIPTION,
    VERSION,
    Finding,
    Frame,
    Id,
    JsonObject,
    Memory,
    MessageKind,
    Request,
    key_of,
    shown,
)
from .watch import Checker, breach

_COMPLETE, _INPUT, _TASK = "complete", "input_required", "task"
_KNOWN = {
    V4: (RELATED_TASK,),
    V5: (RELATED_TASK, VERSION, CAPABILITIES, CLIENT_INFO, LOG_LEVEL, SERVER_INFO, SUBSCRIPTION),
}
_NEEDED = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots"}


class Round(NamedTuple):
    """An `input_required` result that may be answered by a retry.

    Attributes:
        id: the id of the request that it answers.
        request: the digest of that request.
        keys: the keys of its questions.
        state: its `requestState`.
        seen: the number of its observation.
    """

    id: Id
    request: str
    keys: frozenset[str]
    state: str | None
    seen: int


def _digest_of(frame: Frame) -> str:
    """Returns a digest of a request, the same for each round: of the method and all params except those of the
    round."""
    content = {
        name: value for name, value in frame.params.items() if name not in ("inputResponses", "requestState", "_meta")
    }
    text = json.dumps([frame.method, content], sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class MetaChecker(Checker):
    """Checks the members that every request and every result must have."""

    def frame(self, frame: Frame) -> Iterator[Finding]:
        yield from self._leaks(frame)
        if frame.revision != V5:
            return
        if frame.kind is MessageKind.REQUEST and frame.sender is Role.CLIENT:
            yield from self._request(frame)
        elif (
            frame.kind is MessageKind.RESULT
            and frame.sender is Role.SERVER
            and isinstance(frame.message["result"], dict)
        ):
            yield from self._result(frame)

    def _leaks(self, frame: Frame) -> Iterator[Finding]:
        known = _KNOWN.get(frame.revision, ())
        unknown = [name for name in frame.meta if name.startswith(PREFIX) and name not in known]
        if unknown:
            yield breach(frame, "meta-reserved", f"got {', '.join(map(shown, unknown))} in _meta")
        by_server = frame.kind is MessageKind.RESULT and frame.sender is Role.SERVER
        if by_server and frame.result.get("resultType") in (_INPUT, _TASK):
            yield breach(frame, "result-kind-leaked", f"got the resultType {shown(frame.result['resultType'])}")

    def _request(self, frame: Frame) -> Iterator[Finding]:
        wanted = {VERSION: str, CAPABILITIES: dict}
        missing = [name for name, kind in wanted.items() if not isinstance(frame.meta.get(name), kind)]
        if missing:
            yield breach(frame, "meta-missing", f"{frame.method} has no {' and no '.join(missing)}")
        if not isinstance(frame.meta.get(CLIENT_INFO), dict):
            yield breach(frame, "client-info", f"{frame.method} has no {CLIENT_INFO}")

    def _result(self, frame: Frame) -> Iterator[Finding]:
        kind, request = frame.result.get("resultType"), frame.request
        if request is not None and VERSION not in request.meta and not self.book.is_stateless:
            return  # both eras are spoken here, and the request named neither: it may be answered in either
        if not isinstance(frame.meta.get(SERVER_INFO), dict):
            yield breach(frame, "server-info", f"got a result without {SERVER_INFO}")
        if kind is None:
            yield breach(frame, "result-kind-missing", "got a result without resultType")
            return
        extensions = {} if request is None else request.capabilities.get("extensions")
        has_extensions = isinstance(extensions, dict) and bool(extensions)
        # The kinds of other extensions are unknown here: if one is declared, any kind may belong to it.
        if kind not in (_COMPLETE, _INPUT, _TASK) and not has_extensions:
            yield breach(frame, "result-kind-unknown", f"got the resultType {shown(kind)}")
        if request is not None and not request.is_doubled and kind == _COMPLETE and request.method in CACHEABLE:
            ttl, scope = frame.result.get("ttlMs"), frame.result.get("cacheScope")
            if (
                not isinstance(ttl, int | float)
                or isinstance(ttl, bool)
                or ttl < 0
                or scope not in ("public", "private")
            ):
                text = f"{request.method} is answered with the ttlMs {shown(ttl)} and the cacheScope {shown(scope)}"
                yield breach(frame, "cache-hints", text)


class InputRoundChecker(Checker):
    """Checks questions in results, and the retries that answer them."""

    def __init__(self, book: WireState) -> None:
        super().__init__(book)
        self._digests: Memory[Request, str] = book.memory()
        self._by_state: Memory[str, Round] = book.memory()
        self._stateless: Memory[str, Round] = book.memory()
        """Rounds without `requestState`, by the digest of the request."""

    def frame(self, frame: Frame) -> Iterator[Finding]:
        if frame.revision != V5:
            return
        if frame.kind is MessageKind.REQUEST and frame.method in INTERACTIVE and frame.sender is Role.CLIENT:
            yield from self._request(frame)
        elif (
            frame.kind is MessageKind.RESULT
            and frame.sender is Role.SERVER
            and frame.result.get("resultType") == _INPUT
        ):
            yield from self._input_required(frame)

    # --- Questions of the server ------------------------------------------------------------------------------------

    def _input_required(self, frame: Frame) -> Iterator[Finding]:
        request, state, questions = frame.request, frame.result.get("requestState"), frame.result.get("inputRequests")
        listed: JsonObject = questions if isinstance(questions, dict) else {}
        if request is not None and request.method not in INTERACTIVE and not request.is_doubled:
            yield breach(
                frame, "input-required-method", f"{request.method} is answered with input_required", request.index
            )
        if questions is None and state is None:
            yield breach(frame, "input-required-empty", "got neither inputRequests nor requestState")
        for name, question in listed.items():
            yield from self._question(frame, name, question)
        if request is not None:
            digest = self._digests.get(request, "")
            known = Round(request.id, digest, frozenset(listed), state if isinstance(state, str) else None, frame.index)
            if known.state is not None:
                self._by_state[known.state] = known
            else:
                self._stateless[digest] = known

    def _question(self, frame: Frame, name: str, question: object) -> Iterator[Finding]:
        entry: JsonObject = question if isinstance(question, dict) else {}
        method, params = entry.get("method"), entry.get("params")
        if method not in QUESTIONS:
            yield breach(frame, "input-request-kind", f"{shown(name)} asks {shown(method)}")
            return
        if frame.request is None:
            return
        capability = _NEEDED[method]
        mode = params.get("mode", "form") if isinstance(params, dict) else "form"
        declared = frame.request.capabilities
        is_declared = declares(declared, capability)
        if capability == "elicitation" and is_declared:
            is_declared = isinstance(declared[capability], dict) and takes_mode(declared[capability], mode)
        if not is_declared:
            how = f" ({mode})" if capability == "elicitation" else ""
            text = f"{shown(name)} asks {method}{how}, which is not declared"
            yield breach(frame, "input-request-undeclared", text, frame.request.index)

    # --- Retries of the client --------------------------------------------------------------------------------------

    def _request(self, frame: Frame) -> Iterator[Finding]:
        digest = _digest_of(frame)
        state, answers = frame.params.get("requestState"), frame.params.get("inputResponses")
        if state is not None or answers is not None:
            yield from self._retry(frame, digest, state, answers)
        self._digests[self._key(frame)] = digest

    def _key(self, frame: Frame) -> Request:
        """Returns the entry that the book will have for the request, once all checkers have run."""
        assert frame.made is not None
        return frame.made

    def _retry(self, frame: Frame, digest: str, state: object, answers: object) -> Iterator[Finding]:
        if state is not None:
            known = self._by_state.get(state) if isinstance(state, str) else None
            if (
                known is None
            ):  # it may come from an earlier connection, unless this very request was given another state
                yield from self._has_state(frame, digest, "got a requestState that was not given")
                return
        else:
            known = self._stateless.get(digest)
            if known is None:
                yield from self._has_state(frame, digest, "got a retry without its requestState")
                return
        if known.request != digest:
            yield breach(frame, "state-elsewhere", f"{frame.method} is not what was asked first", known.seen)
        if key_of(known.id) == frame.id:
            yield breach(frame, "retry-id", f"got the id {shown(frame.id)} again", known.seen)
        unanswered = known.keys - (answers.keys() if isinstance(answers, dict) else frozenset())
        if unanswered:
            yield breach(frame, "retry-incomplete", f"no answer to {', '.join(sorted(unanswered))[:80]}", known.seen)

    def _has_state(self, frame: Frame, digest: str, text: str) -> Iterator[Finding]:
        """Reports a retry with a wrong state, if the same request was answered with a state before."""
        given = [each for each in self._by_state.values() if each.request == digest]
        if given:
            yield breach(frame, "state-changed", text, given[-1].seen)


class ExtensionChecker(Checker):
    """Checks that only tool calls whose client declares the extension are answered with tasks."""

    def frame(self, frame: Frame) -> Iterator[Finding]:
        request = frame.request
        if frame.revision != V5 or request is None or frame.result.get("resultType") != _TASK:
            return
        if request.method in ("tasks/get", "tasks/update", "tasks/cancel"):
            yield breach(
                frame, "task-shape", f"{request.method} is answered with the resultType task, expected complete"
            )
            return
        extensions = request.capabilities.get("extensions")
        if not isinstance(extensions, dict) or TASKS_EXTENSION not in extensions:
            text = f"{request.method} is answered with a task, and its client has not declared {TASKS_EXTENSION}"
            yield breach(frame, "task-unasked", text, request.index)
        elif request.method != "tools/call":
            yield breach(frame, "task-unasked", f"{request.method} is answered with a task", request.index)
