"""`isthmus conform`: from what the command line says to an exit code."""

from __future__ import annotations

import argparse
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Final

from ...core.oracle import Transport
from .. import logs, screen
from ..config import ConfigError
from ..errors import Failed
from . import report
from .findings import Finding, Outcome, chosen, replayed
from .judging import SERVER_RULES, is_severe
from .steps import REVISIONS
from .survey import Play, Survey, survey
from .targets import target_of

WHAT_TO_INSTALL: Final = "isthmus conform needs Hypothesis: pip install 'isthmus[conform]'"


def conform(options: argparse.Namespace, command: list[str]) -> bool:
    """Do what `options` say. False if a rule is broken that must be kept.

    Raises:
        ConfigError: the options do not go together. Nothing was done.
        Failed: the server cannot be tested, or not to the end, or a signal asked it to stop. What was found is told.
        KeyboardInterrupt: a signal asked it to stop before anything was tried. No child is left.
    """
    _check(options)
    target = target_of(options, command)
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        play, transport = target.reach()
        if options.replay is not None:
            return _replay(options, play, transport)
        return _search(options, play, transport, target.name)
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _check(options: argparse.Namespace) -> None:
    for option in ("only", "ignore"):
        for rule in getattr(options, option):
            if rule not in SERVER_RULES:
                raise ConfigError(f"got --{option} {rule!r}, expected one of {', '.join(SERVER_RULES)}")
    if options.revision not in (None, *REVISIONS):
        raise ConfigError(f"got --revision {options.revision!r}, expected one of {', '.join(REVISIONS)}")
    for option, is_right in (
        ("examples", options.examples >= 1),
        ("timeout", options.timeout > 0),
        ("seconds", options.seconds is None or options.seconds > 0),
    ):
        if not is_right:
            raise ConfigError(f"got --{option} {getattr(options, option)}, expected more than 0")


def _search(options: argparse.Namespace, play: Play, transport: Transport, target: str) -> bool:
    try:
        from .searching import Search  # what it needs is needed by no other command
    except ModuleNotFoundError as error:
        if error.name != "hypothesis":
            raise
        raise Failed(WHAT_TO_INSTALL) from error
    surveys = survey(play, transport, is_safe=options.safe, only=options.revision)
    if not surveys:
        raise Failed(f"the server speaks none of {options.revision or ', '.join(REVISIONS)}")
    rules = chosen(options.only, options.ignore)
    logs.say(f"seed {options.seed}; the server speaks {', '.join(each.revision for each in surveys)}")
    search = Search(
        play,
        transport,
        examples=options.examples,
        seconds=options.seconds,
        seed=options.seed,
        rules=rules,
        tell=logs.say,
    )
    outcome = search.run(surveys)
    _tell(options, target, surveys, outcome, [rule for rule in SERVER_RULES if rule in rules])
    if outcome.stopped:
        raise Failed(outcome.stopped)
    return not _fails(outcome.findings, options.strict)


def _tell(
    options: argparse.Namespace, target: str, surveys: Sequence[Survey], outcome: Outcome, rules: Sequence[str]
) -> None:
    revisions = [each.revision for each in surveys]
    unwritten: list[str] = []
    for path, content in (
        (options.json, lambda: report.to_json(target, options.seed, revisions, outcome, rules)),
        (options.junit, lambda: report.to_junit(target, outcome, rules, is_strict=options.strict)),
        (options.record, lambda: report.encode_record(outcome.findings)),
    ):
        if path is not None:
            unwritten += _write(path, content)
    for finding in outcome.findings:
        screen.say(report.describe(finding) + "\n")
    screen.say(report.table(outcome, rules))
    screen.say(f"{outcome.count} conversations, {_rules(len(outcome.findings))} broken")
    if outcome.stopped and outcome.last is not None:
        screen.say("\n".join(["it ended early, after this:", *(f"  {each}" for each in report.exchange(outcome.last))]))
    if unwritten:
        raise Failed("; ".join(unwritten))


def _rules(count: int) -> str:
    return f"{count or 'no'} rule{'' if count == 1 else 's'}"


def _write(path: str, content: Callable[[], bytes]) -> list[str]:
    """What went wrong; findings are told first."""
    try:
        Path(path).write_bytes(content())
    except OSError as error:
        return [f"{path} cannot be written: {error.strerror or error}"]
    return []


def _replay(options: argparse.Namespace, play: Play, transport: Transport) -> bool:
    try:
        records = report.decode_record(Path(options.replay).read_bytes())
    except OSError as error:
        raise ConfigError(f"{options.replay} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise ConfigError(f"{options.replay} is no record of `isthmus conform`: {error}") from error
    rules = chosen(options.only, options.ignore)
    findings: list[Finding] = []
    for record in records:
        if record.rule not in rules:
            continue
        finding = replayed(record.conversation, record.rule, play, transport)
        if finding is None:
            screen.say(f"{screen.plain(record.rule)}: not broken any more")
        else:
            screen.say(report.describe(finding) + "\n")
            findings.append(finding)
    screen.say(f"{_rules(len(findings))} broken")
    return not _fails(findings, options.strict)


def _fails(findings: Sequence[Finding], is_strict: bool) -> bool:
    return any(is_severe(finding.violation, is_strict=is_strict) for finding in findings)
