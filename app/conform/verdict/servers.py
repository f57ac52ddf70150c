"""Judges a server: the rules that it broke, and the rules that it had occasion to break."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from ....core.oracle import RULES, Oracle, Rule, Severity, Transport, Violation
from ....core.oracle.observations import AnyObservation, Ended, Head, Opened, Role, Said, Verb
from ..script.schema import fault_of
from ..script.steps import REVISIONS, VERSION_HEADER, Conversation, Json, decoded, headers_of
from ..script.survey import Played

SERVER_RULES: Final[dict[str, Rule]] = {id: rule for id, rule in RULES.items() if Role.SERVER in rule.who}

HANGS: Final = Rule(
    "hangs",
    "A client that is owed nothing ends, or says something.",
    (Role.CLIENT,),
    dict.fromkeys(REVISIONS, 'no clause says so, but see basic/lifecycle, "Timeouts"'),
    frozenset(REVISIONS),
)
"""A rule of ours and not of the specification, so its severity is SHOULD."""

CLIENT_RULES: Final[dict[str, Rule]] = {id: rule for id, rule in RULES.items() if Role.CLIENT in rule.who} | {
    HANGS.id: HANGS
}

REPORTED_RULES: Final = {**RULES, HANGS.id: HANGS}
"""The rules that can appear in a report."""

CHANCES: Final[dict[str, tuple[str, ...]]] = {
    "message": ("not-json", "not-jsonrpc"),
    "response": ("response-shape", "response-unknown", "response-twice", "unanswered"),
    "result": (
        "result-type",
        "result-kind-leaked",
        "result-kind-missing",
        "result-kind-unknown",
        "server-info",
        "schema",
    ),
    "error": ("error-shape", "error-without-id", "error-code-withdrawn", "error-code-reserved"),
    "call": ("method-foreign", "method-direction", "method-kind", "capability-undeclared"),
    "question": ("id-type", "id-reused", "server-early"),
    "notifications/progress": ("progress-unknown", "progress-late", "progress-stands"),
    "notifications/message": ("log-unasked", "log-stream"),
    "notifications/cancelled": ("cancel-unknown", "cancel-by-server", "cancel-of-task"),
    "initialize": ("initialize-result", "version-answered"),
    "meta": ("meta-reserved",),
    "list": ("cache-hints",),
    "stateless": ("request-by-server", "batch-unknown"),
    "post": ("content-type", "response-stream"),
    "stateless-post": ("session-stateless", "error-status"),
    "notice": ("accepted-status",),
    "events": ("stream-goes-on", "stream-ended-early", "unrelated-on-stream"),
    "get": ("response-on-get",),
    "session": ("session-id-form", "session-id-given"),
    "gone": ("session-revived", "session-end-status"),
    "odd-version": ("version-refused",),
    "mismatch": ("mismatch-refused",),
    "input_required": (
        "input-required-method",
        "input-required-empty",
        "input-request-kind",
        "input-request-undeclared",
    ),
    "elicitation/create": ("elicitation-mode", "elicitation-id"),
    "sampling/createMessage": ("sampling-tools",),
    "event-pipe": ("endpoint-first", "message-on-post"),
    "event-id": ("event-id-reused", "replay-stream"),
    "notifications/subscriptions/acknowledged": ("listen-first", "listen-acknowledged", "subscription-id"),
}
"""Kind of observation → the rules that it could have broken. A rule in no row counts as tried only if broken."""


def judge(conversation: Conversation, played: Played, transport: Transport) -> list[Violation]:
    """Returns the server's violations, each rule once, in order."""
    return violations_of(played, conversation.revision if conversation.is_stateless else None, transport, Role.SERVER)


def violations_of(
    played: Played,
    revision: str | None,
    transport: Transport,
    who: Role,
    client_revisions: Collection[str] | None = None,
) -> list[Violation]:
    """Returns the violations of one side, each rule once, in order. Each session has an oracle of its own."""

    def check(revision: str, sender: Role, method: str, message: Json) -> str | None:
        # The other side is scripted, and incorrect on purpose.
        return fault_of(revision, sender, method, message) if sender is who else None

    oracles: dict[int, Oracle] = {}
    found: list[Violation] = []
    for wire, seen in played.seen:
        if wire not in oracles:
            oracles[wire] = Oracle(revision, transport, client_revisions=client_revisions, check=check)
        found += oracles[wire].receive(seen)
    if not played.is_cut:
        for wire, oracle in oracles.items():
            of_session = [seen for number, seen in played.seen if number == wire]
            found += [each for each in oracle.finish() if not _may_be_fetched(each, of_session)]
    first: dict[str, Violation] = {}
    for violation in found:
        if violation.who is who:
            first.setdefault(violation.rule, violation)
    return list(first.values())


def _may_be_fetched(violation: Violation, seen: Sequence[AnyObservation]) -> bool:
    """True if a missing response could still be fetched by resuming the stream, which our clients never do.

    The server has closed the stream after an event with an id (2025-11-25 basic/transports, "Sending Messages to the
    Server").
    """
    if violation.rule != "unanswered":
        return False
    own = [each for each in seen if each.channel == seen[violation.observations[0]].channel]
    has_event_id = any(isinstance(each, Said) and each.event_id is not None for each in own)
    return has_event_id and Ended(own[0].channel, Role.SERVER) in own


def chances(conversation: Conversation, played: Played, transport: Transport) -> set[str]:
    """Returns the rules that the server could have broken in a conversation and that hold in its revision."""
    facts = {fact for _, seen in played.seen for fact in _facts(seen)}
    facts |= _by_http(conversation, played) if transport is Transport.HTTP else set()
    facts |= {"event-pipe"} if transport is Transport.EVENTS else set()
    if conversation.is_stateless:
        facts |= {"stateless"} | ({"stateless-post"} if "post" in facts else set())
    rules = {rule for fact in facts for rule in CHANCES.get(fact, ())}
    return {rule for rule in rules if conversation.revision in SERVER_RULES[rule].clauses}


def _facts(seen: AnyObservation) -> list[str]:
    if isinstance(seen, Head):
        return ["session"] if seen.session else []
    if not isinstance(seen, Said) or seen.sender is Role.CLIENT:
        return []
    facts = ["message", "shape"] + (["event-id"] if seen.event_id is not None else [])
    for message in decoded(seen.message):
        if "method" in message:
            facts += ["call", str(message["method"])] + (["question"] if "id" in message else [])
            continue
        facts += ["response", "result" if "result" in message else "error"]
        result = message.get("result")
        if isinstance(result, dict):
            facts += ["initialize"] if "serverInfo" in result else []
            facts += ["input_required"] if result.get("resultType") == "input_required" else []
            facts += ["meta"] if "_meta" in result else []
            facts += ["list"] if {"tools", "prompts", "resources", "contents", "supportedVersions"} & {*result} else []
    return facts


def _by_http(conversation: Conversation, played: Played) -> set[str]:
    facts: set[str] = set()
    opened: dict[tuple[int, int], Verb] = {}
    heads: dict[tuple[int, int], Json] = {}
    asking: set[tuple[int, int]] = set()
    for wire, seen in played.seen:
        at = (wire, seen.channel)
        if isinstance(seen, Opened):
            opened[at] = seen.verb
            heads[at] = {**dict(seen.mirrored or ()), VERSION_HEADER: seen.revision or ""}
            facts |= {"odd-version"} if seen.revision not in (None, *REVISIONS) else set()
        elif isinstance(seen, Said) and seen.sender is Role.CLIENT:
            for message in decoded(seen.message) if conversation.is_stateless else ():
                expected = headers_of(conversation.revision, message)
                facts |= {"mismatch"} if any(heads[at].get(name) != expected[name] for name in expected) else set()
            if any("method" in message and "id" in message for message in decoded(seen.message)):
                asking.add(at)
        elif isinstance(seen, Head):
            if opened.get(at) is Verb.POST:
                facts.add("post" if at in asking else "notice")
                facts |= {"gone"} if seen.status == 404 else set()
                facts |= {"events"} if seen.content_type == "text/event-stream" else set()
            elif opened.get(at) is Verb.DELETE and seen.status < 300:
                facts.add("gone")
            elif opened.get(at) is Verb.GET and seen.status < 300:
                facts.add("get")
    return facts


def is_severe(violation: Violation, *, is_strict: bool) -> bool:
    """True if the violation makes a run fail."""
    return is_strict or violation.severity is Severity.MUST
