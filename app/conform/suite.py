"""The tests that the pytest fixtures in `pytest_plugin` run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ...transports.stdio.server_process import ChildSpec
from ..base.errors import ConfigError, Failed
from ..config.settings import Transport as Named
from .clients.targets import ANSWER_S, TRANSPORTS, by_command, by_url
from .script.behaviour import Behaviour
from .script.steps import REVISIONS, Conversation
from .search.client_trial import CLIENT_ANSWER_S, ClientTarget, client_trial
from .search.server_trial import server_trial
from .search.trial import STOPPED, Effort, Trial, run
from .verdict import report
from .verdict.findings import C, Outcome
from .verdict.servers import is_severe

EXAMPLES, SECONDS = 100, 60.0


def server_of(command: tuple[str, ...], options: dict[str, Any]) -> Trial[Conversation]:
    """Returns the trial of a server. Removes from `options` those that say which server to test.

    Raises:
        ConfigError: they name no server, or contradict each other.
        Failed: the server cannot be reached.
    """
    url, headers = options.pop("url", None), dict(options.pop("headers", None) or {})
    is_safe, revision, timeout_s = options.pop("safe", False), _revision(options), options.pop("timeout", ANSWER_S)
    if (url is None) == (not command):
        raise ConfigError("expected a command, or a url")
    spec, transport = _spec(command, options), _transport(options)
    if url is None and transport != "auto":
        raise ConfigError(f"got the transport {transport} with a command, expected it with a url only")
    target = by_command(spec, timeout_s) if url is None else by_url(url, headers, timeout_s, transport)
    return server_trial(target, is_safe=is_safe, revision=revision)


def client_of(command: tuple[str, ...], options: dict[str, Any]) -> Trial[Behaviour]:
    """Returns the trial of a client. Removes from `options` those that say which client to test."""
    if not command:
        raise ConfigError("expected a command, with {url} or {server} in it")
    revision, timeout_s = _revision(options), options.pop("timeout", CLIENT_ANSWER_S)
    transport = _transport(options)
    return client_trial(ClientTarget(_spec(command, options), revision, timeout_s, transport))


def _spec(command: tuple[str, ...], options: dict[str, Any]) -> ChildSpec:
    env, inherit_env, cwd = options.pop("env", None), options.pop("inherit_env", False), options.pop("cwd", None)
    return ChildSpec(tuple(map(str, command)), dict(env or {}), None if cwd is None else str(cwd), inherit_env)


def _revision(options: dict[str, Any]) -> str | None:
    revision: str | None = options.pop("revision", None)
    if revision not in (None, *REVISIONS):
        raise ConfigError(f"got the revision {revision!r}, expected one of {', '.join(REVISIONS)}")
    return revision


def _transport(options: dict[str, Any]) -> Named:
    transport: Named = options.pop("transport", "auto")
    if transport not in TRANSPORTS:
        raise ConfigError(f"got the transport {transport!r}, expected one of {', '.join(TRANSPORTS)}")
    return transport


def test(config: pytest.Config, begin: Callable[[], Trial[C]], options: dict[str, Any]) -> frozenset[str]:
    """Runs a test, and fails it if a rule is broken. Returns the rules that were kept.

    Raises:
        TypeError, ConfigError: an option is unknown or invalid.
    """
    __tracebackhide__ = True
    try:
        trial = begin()
        only, ignored, is_strict = (options.pop(name, ()) for name in ("only", "ignore", "strict"))
        effort = _effort(config, options)
        if options:
            raise TypeError(f"got {', '.join(options)}, which no test of {trial.role.value}s has")
        if unknown := {*only, *ignored} - trial.rules.keys():
            raise ConfigError(f"got the rule {', '.join(sorted(unknown))}, expected one of {', '.join(trial.rules)}")
        rules = trial.chosen(only, ignored)
        _, outcome = run(trial, effort, rules, print)
    except Failed as error:
        pytest.fail(str(error), pytrace=False)
    if outcome.stopped == STOPPED:
        raise KeyboardInterrupt
    _record(config, outcome)
    failures = [
        report.describe(each) for each in outcome.findings if is_severe(each.violation, is_strict=bool(is_strict))
    ]
    failures += [outcome.stopped] if outcome.stopped else []
    if failures:
        pytest.fail("\n\n".join(failures), pytrace=False)
    broken = {finding.violation.rule for finding in outcome.findings}
    return frozenset(outcome.tried & set(rules) - broken)


def _effort(config: pytest.Config, options: dict[str, Any]) -> Effort:
    """Returns the bounds of a test; options on the command line of pytest take precedence."""
    examples, seconds = options.pop("examples", EXAMPLES), options.pop("seconds", SECONDS)
    given_examples, given_seconds = config.getoption("mcp_conform_examples"), config.getoption("mcp_conform_seconds")
    return Effort(
        examples if given_examples is None else given_examples,
        seconds if given_seconds is None else given_seconds,
        config.getoption("mcp_conform_seed"),
    )


def _record(config: pytest.Config, outcome: Outcome[C]) -> None:
    path = config.getoption("mcp_conform_record")
    if path is not None and outcome.findings:
        with Path(path).open("ab") as file:
            file.write(report.encode_record(outcome.findings))
