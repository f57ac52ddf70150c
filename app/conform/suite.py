"""A test of a server or a client as pytest runs it: what the fixtures of `pytest_plugin` do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ...transports.stdio.server_process import ChildSpec
from ..base.errors import Failed
from ..config.load import ConfigError
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


def server_of(command: tuple[str, ...], wishes: dict[str, Any]) -> Trial[Conversation]:
    """Takes from `wishes` what says which server is tested, and leaves what says how.

    Raises:
        ConfigError: that is none.
        Failed: it cannot be reached.
    """
    url, headers = wishes.pop("url", None), dict(wishes.pop("headers", None) or {})
    is_safe, revision, timeout_s = wishes.pop("safe", False), _revision(wishes), wishes.pop("timeout", ANSWER_S)
    if (url is None) == (not command):
        raise ConfigError("expected a command, or a url")
    spec, transport = _spec(command, wishes), _transport(wishes)
    if url is None and transport != "auto":
        raise ConfigError(f"got the transport {transport} with a command, expected it with a url only")
    target = by_command(spec, timeout_s) if url is None else by_url(url, headers, timeout_s, transport)
    return server_trial(target, is_safe=is_safe, revision=revision)


def client_of(command: tuple[str, ...], wishes: dict[str, Any]) -> Trial[Behaviour]:
    """As `server_of`, of a client."""
    if not command:
        raise ConfigError("expected a command, with {url} or {server} in it")
    revision, timeout_s = _revision(wishes), wishes.pop("timeout", CLIENT_ANSWER_S)
    transport = _transport(wishes)
    return client_trial(ClientTarget(_spec(command, wishes), revision, timeout_s, transport))


def _spec(command: tuple[str, ...], wishes: dict[str, Any]) -> ChildSpec:
    env, inherit_env, cwd = wishes.pop("env", None), wishes.pop("inherit_env", False), wishes.pop("cwd", None)
    return ChildSpec(tuple(map(str, command)), dict(env or {}), None if cwd is None else str(cwd), inherit_env)


def _revision(wishes: dict[str, Any]) -> str | None:
    revision: str | None = wishes.pop("revision", None)
    if revision not in (None, *REVISIONS):
        raise ConfigError(f"got the revision {revision!r}, expected one of {', '.join(REVISIONS)}")
    return revision


def _transport(wishes: dict[str, Any]) -> Named:
    transport: Named = wishes.pop("transport", "auto")
    if transport not in TRANSPORTS:
        raise ConfigError(f"got the transport {transport!r}, expected one of {', '.join(TRANSPORTS)}")
    return transport


def test(config: pytest.Config, begin: Callable[[], Trial[C]], wishes: dict[str, Any]) -> frozenset[str]:
    """Run a test, and fail it if something is broken. Returns the rules that were kept.

    Raises:
        TypeError, ConfigError: a wish is none that can be had.
    """
    __tracebackhide__ = True
    try:
        trial = begin()
        only, ignored, is_strict = (wishes.pop(name, ()) for name in ("only", "ignore", "strict"))
        effort = _effort(config, wishes)
        if wishes:
            raise TypeError(f"got {', '.join(wishes)}, which no test of {trial.role.value}s has")
        if unknown := {*only, *ignored} - trial.rules.keys():
            raise ConfigError(f"got the rule {', '.join(sorted(unknown))}, expected one of {', '.join(trial.rules)}")
        rules = trial.chosen(only, ignored)
        _, outcome = run(trial, effort, rules, print)
    except Failed as error:
        pytest.fail(str(error), pytrace=False)
    if outcome.stopped == STOPPED:
        raise KeyboardInterrupt
    _record(config, outcome)
    told = [report.describe(each) for each in outcome.findings if is_severe(each.violation, is_strict=bool(is_strict))]
    told += [outcome.stopped] if outcome.stopped else []
    if told:
        pytest.fail("\n\n".join(told), pytrace=False)
    broken = {finding.violation.rule for finding in outcome.findings}
    return frozenset(outcome.tried & set(rules) - broken)


def _effort(config: pytest.Config, wishes: dict[str, Any]) -> Effort:
    """The command line says more than the test does."""
    examples, seconds = wishes.pop("examples", EXAMPLES), wishes.pop("seconds", SECONDS)
    asked, patience = config.getoption("mcp_conform_examples"), config.getoption("mcp_conform_seconds")
    return Effort(
        examples if asked is None else asked,
        seconds if patience is None else patience,
        config.getoption("mcp_conform_seed"),
    )


def _record(config: pytest.Config, outcome: Outcome[C]) -> None:
    path = config.getoption("mcp_conform_record")
    if path is not None and outcome.findings:
        with Path(path).open("ab") as file:
            file.write(report.encode_record(outcome.findings))
