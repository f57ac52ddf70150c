"""`isthmus conform`: runs the test that the options describe, prints and writes what was found."""

from __future__ import annotations

import argparse
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Final

from ...core.oracle import Rule
from ..base import logs, output
from ..base.errors import ConfigError, Failed
from .clients.targets import spec_of, target_of
from .script.steps import REVISIONS
from .search.server_trial import server_trial
from .search.trial import Effort, Trial, run
from .verdict import report
from .verdict.findings import C, Finding, Outcome
from .verdict.servers import CLIENT_RULES, SERVER_RULES, is_severe

TOLD: Final = "what is played again is told on stdout only"
UNPLAYED: Final = {
    "safe": "a conversation is played as it is, with the calls that it has",
    "json": TOLD,
    "junit": TOLD,
    "record": TOLD,
}
"""Options that cannot be used with --replay → why."""


def conform(options: argparse.Namespace, command: list[str]) -> bool:
    """Runs the test. Returns False if a rule is broken that must be kept.

    Raises:
        ConfigError: the options contradict each other. Nothing was done.
        Failed: the target cannot be tested, or not to the end, or a signal stopped it. Findings so far were printed.
        KeyboardInterrupt: a signal stopped it before anything was tried. No child process is left.
    """
    for option in UNPLAYED if options.replay is not None else ():
        if getattr(options, option):
            raise ConfigError(f"got --{option} with --replay, expected it without: {UNPLAYED[option]}")
    if options.replay is not None and not options.client:
        options.client = report.is_of_client(_content(options.replay))
    _check(options, CLIENT_RULES if options.client else SERVER_RULES)
    previous = signal.signal(signal.SIGTERM, _interrupt)
    try:
        if options.client:
            return _test_client(options, command)
        target = target_of(options, command)
        return _test(options, server_trial(target, is_safe=options.safe, revision=options.revision))
    finally:
        signal.signal(signal.SIGTERM, previous)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _check(options: argparse.Namespace, rules: Mapping[str, Rule]) -> None:
    for option in ("only", "ignore"):
        for rule in getattr(options, option):
            if rule not in rules:
                raise ConfigError(f"got --{option} {rule!r}, expected one of {', '.join(rules)}")
    if options.revision not in (None, *REVISIONS):
        raise ConfigError(f"got --revision {options.revision!r}, expected one of {', '.join(REVISIONS)}")
    for option, is_right in (
        ("examples", options.examples >= 1),
        ("timeout", options.timeout is None or options.timeout > 0),
        ("seconds", options.seconds is None or options.seconds > 0),
    ):
        if not is_right:
            raise ConfigError(f"got --{option} {getattr(options, option)}, expected more than 0")


def _test_client(options: argparse.Namespace, command: list[str]) -> bool:
    from .search.client_trial import (  # late: a test of a server does not need it
        CLIENT_ANSWER_S,
        ClientTarget,
        client_trial,
    )

    if options.target is not None or not command:
        raise ConfigError("got no command with --client, expected -- COMMAND ARG…, with {url} or {server} in it")
    if options.header or options.safe:
        raise ConfigError("got --header or --safe with --client, expected them with a server only")
    spec, timeout_s = spec_of(options, command), options.timeout or CLIENT_ANSWER_S
    target = ClientTarget(spec, options.revision, timeout_s, options.transport)
    return _test(options, client_trial(target))


def _test(options: argparse.Namespace, trial: Trial[C]) -> bool:
    return _replay(options, trial) if options.replay is not None else _search(options, trial)


def _search(options: argparse.Namespace, trial: Trial[C]) -> bool:
    rules = trial.chosen(options.only, options.ignore)
    try:
        revisions, outcome = run(trial, Effort(options.examples, options.seconds, options.seed), rules, logs.say)
    except Failed as error:  # nothing was tried: write the files all the same, in place of those of an earlier run
        untried: Outcome[C] = Outcome(stopped=str(error))
        raise Failed("; ".join((str(error), *_write_files(options, trial.target, (), untried, rules)))) from None
    _print_outcome(options, trial.target, revisions, outcome, rules)
    if outcome.stopped:
        raise Failed(outcome.stopped)
    return not _fails(outcome.findings, options.strict)


def _print_outcome(
    options: argparse.Namespace, target: str, revisions: Sequence[str], outcome: Outcome[C], rules: Sequence[str]
) -> None:
    unwritten = _write_files(options, target, revisions, outcome, rules)
    for finding in outcome.findings:
        output.say(report.describe(finding) + "\n")
    output.say(report.table(outcome, rules))
    output.say(f"{outcome.count} conversations, {_rules(len(outcome.findings))} broken")
    if outcome.stopped and outcome.last is not None:
        output.say("\n".join(["it ended early, after this:", *(f"  {each}" for each in report.exchange(outcome.last))]))
    if unwritten:
        raise Failed("; ".join(unwritten))


def _write_files(
    options: argparse.Namespace, target: str, revisions: Sequence[str], outcome: Outcome[C], rules: Sequence[str]
) -> list[str]:
    """Writes the files that the options ask for. Returns the errors."""
    unwritten: list[str] = []
    for path, content in (
        (options.json, lambda: report.to_json(target, options.seed, revisions, outcome, rules)),
        (options.junit, lambda: report.to_junit(target, outcome, rules, is_strict=options.strict)),
        (options.record, lambda: report.encode_record(outcome.findings)),
    ):
        if path is not None:
            unwritten += _write(path, content)
    return unwritten


def _rules(count: int) -> str:
    return f"{count or 'no'} rule{'' if count == 1 else 's'}"


def _write(path: str, content: Callable[[], bytes]) -> list[str]:
    """Writes a file. Returns errors and does not raise them, so that the findings are printed first."""
    try:
        Path(path).write_bytes(content())
    except OSError as error:
        return [f"{path} cannot be written: {error.strerror or error}"]
    return []


def _replay(options: argparse.Namespace, trial: Trial[C]) -> bool:
    try:
        records = report.decode_record(_content(options.replay), trial.kind)
    except ValueError as error:
        raise ConfigError(f"{options.replay} is no record of `isthmus conform`: {output.plain(str(error))}") from error
    rules = trial.chosen(options.only, options.ignore)
    findings: list[Finding[C]] = []
    for record in records:
        if record.rule not in rules:
            continue
        finding = trial.replayed(record.conversation, record.rule)
        if finding is None:
            output.say(f"{output.plain(record.rule)}: not broken any more")
        else:
            output.say(report.describe(finding) + "\n")
            findings.append(finding)
    output.say(f"{_rules(len(findings))} broken")
    return not _fails(findings, options.strict)


def _content(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from error


def _fails(findings: Sequence[Finding[C]], is_strict: bool) -> bool:
    return any(is_severe(finding.violation, is_strict=is_strict) for finding in findings)
