"""`isthmus conform`: from what the command line says to an exit code."""

from __future__ import annotations

import argparse
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType

from ...core.oracle import Rule
from ...transports.stdio import ChildSpec
from .. import logs, screen
from ..config import ConfigError
from ..errors import Failed
from . import report
from .findings import C, Finding
from .judging import CLIENT_RULES, SERVER_RULES, is_severe
from .server_trial import server_trial
from .steps import REVISIONS
from .targets import ANSWER_S, CLIENT_ANSWER_S, ClientTarget, ServerTarget
from .trials import Effort, Trial, run


def conform(options: argparse.Namespace, command: list[str]) -> bool:
    """Do what `options` say. False if a rule is broken that must be kept.

    Raises:
        ConfigError: the options do not go together. Nothing was done.
        Failed: the server or client cannot be tested.
        KeyboardInterrupt: a signal asked it to stop. No child is left.
    """
    if options.client:
        from .client_trial import client_trial  # what it needs is needed by no test of a server

        _check(options, CLIENT_RULES)
        return _conform(options, client_trial(_client(options, command)))
    _check(options, SERVER_RULES)
    return _conform(options, server_trial(_server(options, command)))


def _conform(options: argparse.Namespace, trial: Trial[C]) -> bool:
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        return _replay(options, trial) if options.replay is not None else _search(options, trial)
    finally:
        signal.signal(signal.SIGTERM, before)


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


def _server(options: argparse.Namespace, command: list[str]) -> ServerTarget:
    url = options.target
    if (url is None) == (not command):
        said = "nothing" if url is None else "both a URL and a command"
        raise ConfigError(f"got {said} to test, expected a URL, or -- COMMAND ARG…")
    if url is None and options.header:
        raise ConfigError("got --header with a command, expected it with a URL only")
    if url is not None and (options.env or options.cwd or options.inherit_env):
        raise ConfigError("got --env, --inherit-env or --cwd with a URL, expected them with a command only")
    headers = _pairs(options.header, ":", "--header")
    return ServerTarget(
        url=url,
        spec=_spec(options, command),
        headers=headers,
        is_safe=options.safe,
        revision=options.revision,
        timeout_s=options.timeout or ANSWER_S,
    )


def _client(options: argparse.Namespace, command: list[str]) -> ClientTarget:
    if options.target is not None or not command:
        raise ConfigError("got no command with --client, expected -- COMMAND ARG…, with {url} or {server} in it")
    if options.header or options.safe:
        raise ConfigError("got --header or --safe with --client, expected them with a server only")
    return ClientTarget(_spec(options, command), options.revision, options.timeout or CLIENT_ANSWER_S)


def _spec(options: argparse.Namespace, command: list[str]) -> ChildSpec:
    return ChildSpec(tuple(command), _pairs(options.env, "=", "--env"), options.cwd, options.inherit_env)


def _pairs(texts: Sequence[str], separator: str, option: str) -> dict[str, str]:
    """What a text says is not repeated: it may be a secret."""
    pairs = [text.partition(separator) for text in texts]
    if not all(found and name.strip() for name, found, _ in pairs):
        raise ConfigError(f"got {option} without a name and a {separator}")
    return {name.strip(): value.strip() for name, _, value in pairs}


def _search(options: argparse.Namespace, trial: Trial[C]) -> bool:
    rules = trial.chosen(options.only, options.ignore)
    effort = Effort(options.examples, options.seconds, options.seed)
    revisions, outcome = run(trial, effort, rules, logs.say)
    for path, content in (
        (options.json, lambda: report.to_json(trial.target, options.seed, revisions, outcome, rules)),
        (options.junit, lambda: report.to_junit(trial.target, outcome, rules, is_strict=options.strict)),
        (options.record, lambda: report.encode_record(outcome.findings)),
    ):
        if path is not None:
            _write(path, content)
    for finding in outcome.findings:
        screen.say(report.describe(finding) + "\n")
    screen.say(report.table(outcome, rules))
    screen.say(f"{outcome.count} conversations, {_rules(len(outcome.findings))} broken")
    return not _fails(outcome.findings, options.strict)


def _rules(count: int) -> str:
    return f"{count or 'no'} rule{'' if count == 1 else 's'}"


def _write(path: str, content: Callable[[], bytes]) -> None:
    try:
        Path(path).write_bytes(content())
    except OSError as error:
        raise Failed(f"{path} cannot be written: {error.strerror or error}") from error


def _replay(options: argparse.Namespace, trial: Trial[C]) -> bool:
    try:
        records = report.decode_record(Path(options.replay).read_bytes(), trial.kind)
    except OSError as error:
        raise ConfigError(f"{options.replay} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise ConfigError(f"{options.replay} is no record of `isthmus conform`: {error}") from error
    rules = trial.chosen(options.only, options.ignore)
    findings: list[Finding[C]] = []
    for record in records:
        if record.rule not in rules:
            continue
        finding = trial.replayed(record.conversation, record.rule)
        if finding is None:
            screen.say(f"{screen.plain(record.rule)}: not broken any more")
        else:
            screen.say(report.describe(finding) + "\n")
            findings.append(finding)
    screen.say(f"{_rules(len(findings))} broken")
    return not _fails(findings, options.strict)


def _fails(findings: Sequence[Finding[C]], is_strict: bool) -> bool:
    return any(is_severe(finding.violation, is_strict=is_strict) for finding in findings)
