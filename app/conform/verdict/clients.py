"""Judges a client: the rules that it broke, and the rules that it had occasion to break."""

from __future__ import annotations

from typing import Final

from ....core.base.revisions import is_known_modern
from ....core.oracle import Transport, Violation
from ....core.oracle.methods import AUGMENTED
from ....core.oracle.observations import AnyObservation, Head, Opened, Role, Said, Verb
from ..script.behaviour import Behaviour
from ..script.steps import META, REVISIONS, Json, decoded
from ..script.survey import Played
from .servers import CLIENT_RULES, HANGS, violations_of

CLIENT_CHANCES: Final[dict[str, tuple[str, ...]]] = {
    "message": ("not-json", "not-jsonrpc", "schema", "batch-unknown", HANGS.id),
    "call": ("method-foreign", "method-direction", "method-kind", "capability-undeclared", "progress-token"),
    "question": ("id-type", "id-reused", "progress-token-reused"),
    "later": ("initialize-first", "client-early", "initialized-missing"),
    "initialize": ("initialize-params",),
    "asked": ("unanswered",),
    "answered": ("response-shape", "response-unknown", "response-twice"),
    "result": ("result-type",),
    "error": ("error-shape", "error-without-id", "error-code-reserved", "error-code-withdrawn"),
    "notifications/cancelled": ("cancel-unknown", "cancel-initialize", "cancel-over-http"),
    "notifications/progress": ("progress-unknown", "progress-late", "progress-stands"),
    "meta": ("meta-reserved",),
    "post": ("accept",),
    "session-post": ("session-id-missing",),
    "lost": ("session-id-lost",),
    "version-post": ("version-header-missing", "version-header"),
    "stateless": ("meta-missing", "client-info"),
    "stateless-post": ("mirrored-method", "mirrored-name"),
    "retry": ("state-changed", "state-elsewhere", "retry-id", "retry-incomplete"),
    "odd-version": ("version-unsupported",),
    "tasks/get": ("task-polled-early", "related-task-needless"),
    "asked-as-task": ("task-uncreated", "task-shape", "task-begins"),
    "asked-plainly": ("task-unasked",),
}
"""Kind of observation → the rules that the client could have broken. A rule in no row counts as tried if broken."""


def judge_client(behaviour: Behaviour, played: Played, transport: Transport) -> list[Violation]:
    """Returns the client's violations, each rule once, in order.

    A response that is missing when the client ends is no violation; one that never came within the timeout is.
    """
    found = violations_of(played, None, transport, Role.CLIENT, REVISIONS)
    if not played.vain or behaviour.is_stateless:  # a modern server sends no requests, so none can be unanswered
        found = [violation for violation in found if violation.rule != "unanswered"]
    if played.is_hung and not _is_owed(played, transport):
        clause = f"{behaviour.revision} {HANGS.clauses[behaviour.revision]}"
        text = "the client was still there, said nothing, and was owed nothing"
        found.append(Violation(HANGS.id, Role.CLIENT, HANGS.severity(behaviour.revision), text, clause, ()))
    return found


def _is_owed(played: Played, transport: Transport) -> bool:
    """True if the server has left a request unanswered, so that the client may wait."""
    return any(violation.rule == "unanswered" for violation in violations_of(played, None, transport, Role.SERVER))


def chances_of_client(behaviour: Behaviour, played: Played, transport: Transport) -> set[str]:
    """Returns the rules that the client could have broken and that hold in the server's revision."""
    facts: set[str] = set()
    session = False
    for _, seen in played.seen:
        if isinstance(seen, Head):
            session |= seen.session is not None
            facts |= {"lost"} if seen.status == 404 and session else set()
        else:
            facts |= _facts(behaviour, seen, has_session=session)
    if transport is not Transport.HTTP:
        facts.discard("post")
    if {"initialize", "call"} <= facts and "1999-01-01" in str(behaviour.deeds):
        facts.add("odd-version")
    rules = {rule for fact in facts for rule in CLIENT_CHANCES.get(fact, ())}
    return {rule for rule in rules if behaviour.revision in CLIENT_RULES[rule].clauses}


def _facts(behaviour: Behaviour, seen: AnyObservation, *, has_session: bool) -> set[str]:
    if isinstance(seen, Opened):
        facts = {"post"} if seen.verb is Verb.POST else set()
        facts |= {"session-post"} if has_session else set()
        facts |= {"version-post"} if has_session or behaviour.is_stateless else set()
        return facts | ({"stateless-post"} if seen.revision is not None and is_known_modern(seen.revision) else set())
    if not isinstance(seen, Said):
        return set()
    if seen.sender is Role.SERVER:
        asked = [each for each in decoded(seen.message) if "method" in each and "id" in each]
        facts = {"asked"} if asked else set()
        for each in asked:
            if each["method"] in AUGMENTED and isinstance(each.get("params"), dict):
                facts.add("asked-as-task" if "task" in each["params"] else "asked-plainly")
        return facts
    return {"message"}.union(*(_of_message(each) for each in decoded(seen.message)))


def _of_message(message: Json) -> set[str]:
    if "method" not in message:
        return {"answered", "result" if "result" in message else "error"}
    params = message.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    facts = {"call", str(message["method"])} | ({"question"} if "id" in message else set())
    facts |= {"later"} if message["method"] not in ("initialize", "ping") else set()
    if isinstance(meta, dict):
        facts |= {"meta"} | ({"stateless"} if META + "protocolVersion" in meta else set())
    if isinstance(params, dict) and {"inputResponses", "requestState"} & params.keys():
        facts.add("retry")
    return facts
