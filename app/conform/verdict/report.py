"""Formats findings: for people, as JSON, as JUnit XML, and as a record in JSON Lines for `--replay`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Generic
from xml.etree import ElementTree

import msgspec

from ....core.oracle import Ended, Head, Opened, Role, Said
from ...base import output
from ..script.survey import Played
from .findings import C, Finding, Outcome
from .servers import REPORTED_RULES, is_severe

SHOWN_MAX_CHARS: Final = 400
"""Characters of a message that are printed; the record has all of it."""


WHOLE: Final = "all was tried"
"""Name of the JUnit test case that fails if a run ended early."""


class Recorded(msgspec.Struct, Generic[C]):
    """One line of a record."""

    rule: str
    text: str
    clause: str
    conversation: C


class _Kind(msgspec.Struct):
    conversation: dict[str, msgspec.Raw]


_kinds: Final = msgspec.json.Decoder(_Kind)


def encode_record(findings: Sequence[Finding[C]]) -> bytes:
    return b"".join(
        msgspec.json.encode(
            Recorded(each.violation.rule, each.violation.text, each.violation.clause, each.conversation)
        )
        + b"\n"
        for each in findings
    )


def is_of_client(text: bytes) -> bool:
    """True if a record is of a test of a client, by its first line; false also if it is no record."""
    try:
        first = _kinds.decode(text.partition(b"\n")[0])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return "steps" not in first.conversation


def decode_record(text: bytes, kind: type[C]) -> list[Recorded[C]]:
    """Decodes a record.

    Args:
        kind: the type of its conversations.

    Raises:
        ValueError: it is no record; the message names the line.
    """
    records = msgspec.json.Decoder(Recorded[kind])  # type: ignore[valid-type]
    found: list[Recorded[C]] = []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            found.append(records.decode(line))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ValueError(f"line {number}: {error}") from None
    return found


def state_of(rule: str, outcome: Outcome[C]) -> str:
    """Returns the state of a rule: "kept", "broken", "broken at times", or "not exercised"."""
    for finding in outcome.findings:
        if finding.violation.rule == rule:
            return "broken at times" if finding.is_flaky else "broken"
    return "kept" if rule in outcome.tried else "not exercised"


def describe(finding: Finding[C]) -> str:
    """Formats a finding and its messages for people."""
    violation = finding.violation
    flaky = "; not each time that the same was said" if finding.is_flaky else ""
    lines = [
        f"{violation.rule} ({violation.severity.value.upper()}{flaky}): {REPORTED_RULES[violation.rule].says}",
        f"  seen: {output.plain(violation.text)}",
        f"  clause: {violation.clause}",
        *(f"  {line}" for line in exchange(finding.played)),
    ]
    return "\n".join(lines)


def exchange(played: Played) -> list[str]:
    """Formats observations, a line each, with an arrow for the direction."""
    lines = []
    for wire, seen in played.seen:
        where = f"[{wire}.{seen.channel}] " if isinstance(seen, Opened | Head | Ended) or seen.channel else ""
        if isinstance(seen, Opened):
            named = (("session", seen.session), ("version", seen.revision), ("accept", seen.accept))
            about = " ".join([seen.verb.value, *(f"{name}={value}" for name, value in named if value)])
            lines.append(f"-> {where}{about}")
        elif isinstance(seen, Head):
            lines.append(f"<- {where}{seen.status} {seen.content_type or ''}".rstrip())
        elif isinstance(seen, Said):
            arrow = "->" if seen.sender is Role.CLIENT else "<-"
            text = seen.message.decode(errors="replace")
            cut = "…" if len(text) > SHOWN_MAX_CHARS else ""
            lines.append(f"{arrow} {where}{text[:SHOWN_MAX_CHARS]}{cut}")
    return [output.plain(line) for line in lines]


def table(outcome: Outcome[C], rules: Sequence[str]) -> str:
    """Formats the state of each rule that was tried, and the names of the others."""
    states = {rule: state_of(rule, outcome) for rule in rules}
    width = max((len(rule) for rule, state in states.items() if state != "not exercised"), default=0)
    lines = [f"{rule:{width}}  {state}" for rule, state in states.items() if state != "not exercised"]
    untried = [rule for rule, state in states.items() if state == "not exercised"]
    if untried:
        lines.append(f"not exercised: {', '.join(untried)}")
    return "\n".join(lines)


def to_json(target: str, seed: int, revisions: Sequence[str], outcome: Outcome[C], rules: Sequence[str]) -> bytes:
    by_rule = {finding.violation.rule: finding for finding in outcome.findings}
    entries: list[dict[str, Any]] = []
    for rule in rules:
        about: dict[str, Any] = {"rule": rule, "says": REPORTED_RULES[rule].says, "state": state_of(rule, outcome)}
        if rule in by_rule:
            violation = by_rule[rule].violation
            about |= {"severity": violation.severity.value, "text": violation.text, "clause": violation.clause}
            about |= {"conversation": by_rule[rule].conversation, "exchange": exchange(by_rule[rule].played)}
        entries.append(about)
    document = {
        "target": target,
        "seed": seed,
        "revisions": list(revisions),
        "conversations": outcome.count,
        "stopped": outcome.stopped,
        "rules": entries,
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


def to_junit(target: str, outcome: Outcome[C], rules: Sequence[str], *, is_strict: bool) -> bytes:
    """Formats the outcome as JUnit XML, with a test case for each rule.

    A broken rule that does not make the run fail is no failure. A run that ended early has one more test case, which is
    an error.
    """
    by_rule = {finding.violation.rule: finding for finding in outcome.findings}
    suite = ElementTree.Element("testsuite", name=f"isthmus conform {_printable(target)}")
    for rule in rules:
        case = ElementTree.SubElement(suite, "testcase", classname="mcp", name=rule)
        finding = by_rule.get(rule)
        if finding is not None and is_severe(finding.violation, is_strict=is_strict):
            failure = ElementTree.SubElement(case, "failure", message=_printable(finding.violation.text))
            failure.text = _printable(describe(finding))
        elif finding is not None:
            ElementTree.SubElement(case, "system-out").text = _printable(describe(finding))
        elif rule not in outcome.tried:
            ElementTree.SubElement(case, "skipped", message="not exercised")
    if outcome.stopped:
        case = ElementTree.SubElement(suite, "testcase", classname="mcp", name=WHOLE)
        ElementTree.SubElement(case, "error", message=_printable(outcome.stopped))
    suite.set("errors", str(len(suite.findall("testcase/error"))))
    for name in ("failure", "skipped"):
        plural = "failures" if name == "failure" else name
        suite.set(plural, str(len(suite.findall(f"testcase/{name}"))))
    suite.set("tests", str(len(suite)))
    text: bytes = ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _printable(text: str) -> str:
    """Replaces characters that XML does not allow."""
    return "".join(character if character.isprintable() or character == "\n" else " " for character in text)
