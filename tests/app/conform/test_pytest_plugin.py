"""Tests of the fixtures `mcp_conform` and `mcp_conform_client` in a user's test suite."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from isthmus.app.conform import pytest_plugin
from isthmus.app.conform.script.steps import Conversation
from isthmus.app.conform.verdict.report import decode_record

pytest_plugins = ["pytester"]
ROOT = Path(__file__).parents[3]
FAULTY = (sys.executable, "-S", str(Path(__file__).parents[1] / "faulty.py"))
CLIENT = (sys.executable, "-S", str(Path(__file__).parents[1] / "faulty_client.py"))
Run = Callable[..., pytest.RunResult]


@pytest.fixture
def run(pytester: pytest.Pytester, pytestconfig: pytest.Config) -> Run:
    """Runs a suite of one test, in this process."""
    is_installed = pytestconfig.pluginmanager.has_plugin("mcp_conform")
    plugin = () if is_installed else ("-p", pytest_plugin.__name__)

    def call(fixture: str, call: str, *options: str) -> pytest.RunResult:
        pytester.makepyfile(f"def test_mine({fixture}):\n    print(sorted({fixture}({call})))\n")
        return pytester.runpytest_inprocess(*plugin, "-p", "no:cacheprovider", "-p", "no:xdist", *options)

    return call


def test_a_good_server_passes_and_what_it_kept_is_returned(run: Run) -> None:
    result = run("mcp_conform", f"*{FAULTY}, revision='2025-06-18', examples=3", "-s")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*'not-json'*'unanswered'*"])


def test_a_broken_rule_fails_with_its_clause_and_conversation(run: Run, pytester: pytest.Pytester) -> None:
    arguments = "only=['not-json'], revision='2025-06-18', examples=50, safe=True"
    result = run(
        "mcp_conform", f"*{FAULTY}, 'chatty', {arguments}", "--mcp-conform-examples=1", "--mcp-conform-record=r.jsonl"
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "not-json (MUST): A message is JSON in UTF-8.",
            "*clause: 2025-06-18*",
            "*-> {*initialize*",
            "*<- received a line*",
        ]
    )
    assert "suite.py" not in result.stdout.str(), "no traceback of ours"
    (record,) = decode_record((pytester.path / "r.jsonl").read_bytes(), Conversation)
    assert record.rule == "not-json"


def test_a_client_is_tested_likewise(run: Run) -> None:
    arguments = "'{server}', only=['initialize-params'], revision='2025-06-18', examples=1, seconds=None"
    run("mcp_conform_client", f"*{CLIENT}, 'none', {arguments}").assert_outcomes(passed=1)
    result = run("mcp_conform_client", f"*{CLIENT}, 'greeting', {arguments}")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["initialize-params (MUST)*"])


@pytest.mark.parametrize(
    "fixture, arguments, complaint",
    [
        ("mcp_conform", "'/no/such/program'", "the server cannot be started*"),
        (
            "mcp_conform",
            "'sh', '-c', r'printf \"\\033[8mhidden\" >&2; exit 7'",
            r"the server ended at once, and said: \x1b[[]8mhidden",
        ),
        ("mcp_conform", "", "*expected a command, or a url"),
        ("mcp_conform", "'c', revision='1999'", "*got the revision '1999', expected one of 2024-11-05*"),
        ("mcp_conform", "'c', only=['no-such-rule']", "*got the rule no-such-rule, expected one of*"),
        ("mcp_conform", "'c', quick=True", "*got quick, which no test of servers has"),
        ("mcp_conform_client", "", "*expected a command, with {url} or {server} in it"),
        ("mcp_conform_client", "'c', safe=True", "*got safe, which no test of clients has"),
    ],
)
def test_what_cannot_be_tested_fails(fixture: str, arguments: str, complaint: str, run: Run) -> None:
    result = run(fixture, arguments)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([complaint])


def test_an_unused_plugin_loads_nothing() -> None:
    """The plugin loads no Hypothesis and none of our other modules."""
    code = "import sys, pytest; before = set(sys.modules); import isthmus.app.conform.pytest_plugin; "
    code += "print(*sorted(set(sys.modules) - before))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert set(loaded) <= {"isthmus", "isthmus.app", "isthmus.app.conform", "isthmus.app.conform.pytest_plugin"}


def test_the_plugin_is_registered_with_pytest() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"mcp_conform": pytest_plugin.__name__}
