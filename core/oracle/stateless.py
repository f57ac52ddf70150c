"""Requests that say all: their `_meta`, the kinds of their results, and rounds of questions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import NamedTuple

from .book import Book
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
    Ask,
    Breach,
    Frame,
    Id,
    JsonObject,
    Kind,
    Memory,
    key_of,
    shown,
)
from .watch import Watch, breach

_COMPLETE, _INPUT, _TASK = "complete", "input_required", "task"
_KNOWN = {
    V4: (RELATED_TASK,),
    V5: (RELATED_TASK, VERSION, CAPABILITIES, CLIENT_INFO, LOG_LEVEL, SERVER_INFO, SUBSCRIPTION),
}
_NEEDED = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots"}


class Round(NamedTuple):
    """An `input_required` result that may be answered by a retry."""

    id: Id
    request: str
    keys: frozenset[str]
    state: str | None
    seen: int


def _said_by(frame: Frame) -> str:
    """A digest of what a request asks, whatever its round: of the method and all params but those of the round."""
    said = {
        name: value for name, value in frame.params.items() if name not in ("inputResponses", "requestState", "_meta")
    }
    text = json.dumps([frame.method, said], sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class Envelope(Watch):
    """What each request and each result has in it, whatever it is about."""

    def frame(self, frame: Frame) -> Iterator[Breach]:
        yield from self._leaks(frame)
        if frame.revision != V5:
            return
        if frame.kind is Kind.REQUEST and frame.sender is Role.CLIENT:
            yield from self._request(frame)
        elif frame.kind is Kind.RESULT and frame.sender is Role.SERVER and isinstance(frame.message["result"], dict):
            yield from self._result(frame)

    def _leaks(self, frame: Frame) -> Iterator[Breach]:
        known = _KNOWN.get(frame.revision, ())
        strange = [name for name in frame.meta if name.startswith(PREFIX) and name not in known]
        if strange:
            yield breach(frame, "meta-reserved", f"got {', '.join(map(shown, strange))} in _meta")
        by_server = frame.kind is Kind.RESULT and frame.sender is Role.SERVER
        if by_server and frame.result.get("resultType") in (_INPUT, _TASK):
            yield breach(frame, "result-kind-leaked", f"got the resultType {shown(frame.result['resultType'])}")

    def _request(self, frame: Frame) -> Iterator[Breach]:
        wanted = {VERSION: str, CAPABILITIES: dict}
        missing = [name for name, kind in wanted.items() if not isinstance(frame.meta.get(name), kind)]
        if missing:
            yield breach(frame, "meta-missing", f"{frame.method} has no {' and no '.join(missing)}")
        if not isinstance(frame.meta.get(CLIENT_INFO), dict):
            yield breach(frame, "client-info", f"{frame.method} has no {CLIENT_INFO}")

    def _result(self, frame: Frame) -> Iterator[Breach]:
        kind, ask = frame.result.get("resultType"), frame.ask
        if ask is not None and VERSION not in ask.meta and not self.book.is_stateless:
            return  # both eras are spoken here, and its request said neither: it may be answered in either
        if not isinstance(frame.meta.get(SERVER_INFO), dict):
            yield breach(frame, "server-info", f"got a result without {SERVER_INFO}")
        if kind is None:
            yield breach(frame, "result-kind-missing", "got a result without resultType")
            return
        extensions = {} if ask is None else ask.capabilities.get("extensions")
        has_extensions = isinstance(extensions, dict) and bool(extensions)
        # Which kinds other extensions have is not known here: with one declared, any kind may be its own.
        if kind not in (_COMPLETE, _INPUT, _TASK) and not has_extensions:
            yield breach(frame, "result-kind-unknown", f"got the resultType {shown(kind)}")
        if ask is not None and not ask.is_doubled and kind == _COMPLETE and ask.method in CACHEABLE:
            ttl, scope = frame.result.get("ttlMs"), frame.result.get("cacheScope")
            if (
                not isinstance(ttl, int | float)
                or isinstance(ttl, bool)
                or ttl < 0
                or scope not in ("public", "private")
            ):
                text = f"{ask.method} is answered with the ttlMs {shown(ttl)} and the cacheScope {shown(scope)}"
                yield breach(frame, "cache-hints", text)


class Rounds(Watch):
    """Questions in results, and the retries that answer them."""

    def __init__(self, book: Book) -> None:
        super().__init__(book)
        self._digests: Memory[Ask, str] = book.memory()
        self._by_state: Memory[str, Round] = book.memory()
        self._stateless: Memory[str, Round] = book.memory()
        """Those without state, by the digest of what was asked."""

    def frame(self, frame: Frame) -> Iterator[Breach]:
        if frame.revision != V5:
            return
        if frame.kind is Kind.REQUEST and frame.method in INTERACTIVE and frame.sender is Role.CLIENT:
            yield from self._request(frame)
        elif frame.kind is Kind.RESULT and frame.sender is Role.SERVER and frame.result.get("resultType") == _INPUT:
            yield from self._asked(frame)

    # --- The server asks --------------------------------------------------------------------------------------------

    def _asked(self, frame: Frame) -> Iterator[Breach]:
        ask, state, questions = frame.ask, frame.result.get("requestState"), frame.result.get("inputRequests")
        listed: JsonObject = questions if isinstance(questions, dict) else {}
        if ask is not None and ask.method not in INTERACTIVE and not ask.is_doubled:
            yield breach(frame, "input-required-method", f"{ask.method} is answered with input_required", ask.index)
        if questions is None and state is None:
            yield breach(frame, "input-required-empty", "got neither inputRequests nor requestState")
        for name, question in listed.items():
            yield from self._question(frame, name, question)
        if ask is not None:
            digest = self._digests.get(ask, "")
            known = Round(ask.id, digest, frozenset(listed), state if isinstance(state, str) else None, frame.index)
            if known.state is not None:
                self._by_state[known.state] = known
            else:
                self._stateless[digest] = known

    def _question(self, frame: Frame, name: str, question: object) -> Iterator[Breach]:
        asked: JsonObject = question if isinstance(question, dict) else {}
        method, params = asked.get("method"), asked.get("params")
        if method not in QUESTIONS:
            yield breach(frame, "input-request-kind", f"{shown(name)} asks {shown(method)}")
            return
        if frame.ask is None:
            return
        capability = _NEEDED[method]
        mode = params.get("mode", "form") if isinstance(params, dict) else "form"
        declared = frame.ask.capabilities
        has = declares(declared, capability)
        if capability == "elicitation" and has:
            has = isinstance(declared[capability], dict) and takes_mode(declared[capability], mode)
        if not has:
            how = f" ({mode})" if capability == "elicitation" else ""
            text = f"{shown(name)} asks {method}{how}, which is not declared"
            yield breach(frame, "input-request-undeclared", text, frame.ask.index)

    # --- The client tries again -------------------------------------------------------------------------------------

    def _request(self, frame: Frame) -> Iterator[Breach]:
        digest = _said_by(frame)
        state, answers = frame.params.get("requestState"), frame.params.get("inputResponses")
        if state is not None or answers is not None:
            yield from self._retry(frame, digest, state, answers)
        self._digests[self._key(frame)] = digest

    def _key(self, frame: Frame) -> Ask:
        """The request's entry in the book, which is made after all have looked."""
        assert frame.made is not None
        return frame.made

    def _retry(self, frame: Frame, digest: str, state: object, answers: object) -> Iterator[Breach]:
        if state is not None:
            known = self._by_state.get(state) if isinstance(state, str) else None
            if known is None:  # it may be of a connection before this one, unless the very request has another
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

    def _has_state(self, frame: Frame, digest: str, text: str) -> Iterator[Breach]:
        """A request that was answered with a state is tried again with another, or with none."""
        given = [each for each in self._by_state.values() if each.request == digest]
        if given:
            yield breach(frame, "state-changed", text, given[-1].seen)


class Extension(Watch):
    """Results that are tasks: only of tool calls whose client declares the extension."""

    def frame(self, frame: Frame) -> Iterator[Breach]:
        ask = frame.ask
        if frame.revision != V5 or ask is None or frame.result.get("resultType") != _TASK:
            return
        if ask.method in ("tasks/get", "tasks/update", "tasks/cancel"):
            yield breach(frame, "task-shape", f"{ask.method} is answered with the resultType task, expected complete")
            return
        extensions = ask.capabilities.get("extensions")
        if not isinstance(extensions, dict) or TASKS_EXTENSION not in extensions:
            text = f"{ask.method} is answered with a task, and its client has not declared {TASKS_EXTENSION}"
            yield breach(frame, "task-unasked", text, ask.index)
        elif ask.method != "tools/call":
            yield breach(frame, "task-unasked", f"{ask.method} is answered with a task", ask.index)
