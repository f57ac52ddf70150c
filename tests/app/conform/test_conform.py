"""Tests of `isthmus conform`: the violations of a server are found, minimized, reported and replayed, and a good
server passes."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from xml.etree import ElementTree

import pytest
from conforming import FAULTY, KNOWN, QUICK, Run, on_stdio, over_http
from isthmus.app.conform.clients.targets import Target
from isthmus.app.conform.generate.conversations import conversations
from isthmus.app.conform.generate.moves import MOVES, MoveContext, moves_for
from isthmus.app.conform.script.arguments import arguments_of
from isthmus.app.conform.script.schema import WHAT_TO_INSTALL
from isthmus.app.conform.script.steps import REVISIONS, Conversation, Json, decoded, request
from isthmus.app.conform.script.survey import Played, Survey, Tool
from isthmus.app.conform.search.search import Search
from isthmus.app.conform.search.server_trial import server_trial
from isthmus.app.conform.search.trial import Effort, run
from isthmus.app.conform.verdict.report import decode_record
from isthmus.app.conform.verdict.servers import CHANCES, SERVER_RULES, judge
from isthmus.core.oracle import (
    PIPE_CHANNEL,
    AnyObservation,
    Ended,
    Head,
    Opened,
    Role,
    Said,
    Severity,
    Transport,
    Verb,
    Violation,
)

# --- Servers --------------------------------------------------------------------------------------------------------


def test_a_good_server_on_stdio_passes(conform: Run) -> None:
    code, out, _ = conform(*QUICK, *on_stdio())
    assert code == 0, out
    assert "no rules broken" in out
    assert "unanswered " in out


def test_a_good_server_over_http_passes(conform: Run) -> None:
    with over_http() as url:
        code, out, _ = conform("--examples", "60", url)
    assert code == 0, out
    assert "session-revived " in out
    assert "no rules broken" in out


@pytest.mark.parametrize("fault, rule", [("chatty", "not-json"), ("twice", "response-twice")])
def test_a_fault_on_stdio_is_found_and_made_small(fault: str, rule: str, conform: Run) -> None:
    code, out, _ = conform("--only", rule, *QUICK, "--record", "found.jsonl", *on_stdio(fault))
    assert code == 1, out
    (record,) = decode_record(Path("found.jsonl").read_bytes(), Conversation)
    assert record.rule == rule
    assert record.clause in out
    assert len(record.conversation.steps) <= 4, "a handshake, what shows it, and what ends a conversation"


def test_a_server_that_falls_owes_answers(conform: Run) -> None:
    """A server that ends still owes the answers to earlier requests."""
    record = {"revision": "2025-06-18", "steps": [{"body": "{"}, {"body": '{"jsonrpc":"2.0","id":1,"method":"ping"}'}]}
    line = {"rule": "unanswered", "text": "", "clause": "", "conversation": record}
    Path("found.jsonl").write_text(json.dumps(line))
    assert conform("--replay", "found.jsonl", *on_stdio("fragile"))[0] == 1
    assert conform("--replay", "found.jsonl", *on_stdio())[0] == 0


@pytest.mark.parametrize(
    "fault, rule",
    [
        ("greeting", "initialize-result"),
        ("code", "error-shape"),
        ("status", "accepted-status"),
        ("spaces", "session-id-form"),
    ],
)
def test_a_fault_over_http_is_found_and_made_small(fault: str, rule: str, conform: Run) -> None:
    with over_http(fault) as url:
        code, out, _ = conform("--only", rule, "--examples", "60", "--record", "found.jsonl", *KNOWN, url)
    assert code == 1, out
    assert f"{rule} (MUST)" in out
    (record,) = decode_record(Path("found.jsonl").read_bytes(), Conversation)
    assert len(record.conversation.steps) <= 6


def test_safe_calls_nothing_that_may_write(conform: Run, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    command = ("--", sys.executable, "-S", FAULTY, "none", str(mark))
    assert conform("--safe", *QUICK, *command)[0] == 0
    assert not mark.exists()
    assert conform(*QUICK, *command)[0] == 0
    assert mark.exists()


# --- Output and files -----------------------------------------------------------------------------------------------


def test_a_record_is_played_again(conform: Run) -> None:
    with over_http("spaces") as url:
        assert conform("--only", "session-id-form", *QUICK, "--record", "f.jsonl", url)[0] == 1
        code, out, _ = conform("--replay", "f.jsonl", url)
    assert (code, "1 rule broken" in out) == (1, True)
    with over_http() as url:
        code, out, _ = conform("--replay", "f.jsonl", url)
    assert (code, "session-id-form: not broken any more" in out) == (0, True)
    Path("f.jsonl").write_text("{}\n")
    code, _, err = conform("--replay", "f.jsonl", *on_stdio())
    assert code == 2
    assert "line 1" in err


def test_the_same_seed_finds_the_same(conform: Run) -> None:
    for name in ("a", "b"):
        conform("--only", "not-json", *QUICK, "--seed", "3", "--record", name, *on_stdio("chatty"))
    assert Path("a").read_bytes() == Path("b").read_bytes() != b""


def test_files_for_machines(conform: Run) -> None:
    files = ("--json", "r.json", "--junit", "r.xml")
    with over_http("spaces") as url:
        conform("--examples", "60", "--ignore", "unanswered", *files, *KNOWN, url)
    report = json.loads(Path("r.json").read_bytes())
    states = {each["rule"]: each["state"] for each in report["rules"]}
    assert states["session-id-form"] == "broken"
    assert states["error-shape"] == "kept"
    assert states["log-stream"] == "not exercised"
    assert "unanswered" not in states
    broken = next(each for each in report["rules"] if each["rule"] == "session-id-form")
    assert any("initialize" in line for line in broken["exchange"])
    suite = ElementTree.fromstring(Path("r.xml").read_text())
    failed = [case.get("name") for case in suite if case.find("failure") is not None]
    assert failed == ["session-id-form"]
    assert suite.get("failures") == "1"
    assert suite.get("tests") == str(len(report["rules"])) == str(len(suite))


@pytest.mark.parametrize(
    "arguments, complaint",
    [
        ((), "got nothing to test, expected a URL, or -- COMMAND ARG…"),
        (("http://h/", "--", "c"), "got both a URL and a command to test"),
        (("unix:///h",), "got the URL unix:///h, expected http://… or https://… or sse+http://…"),
        (("--transport", "sse", "ws://h/"), "got the URL ws://h/, expected http://… or https://… or sse+http://…"),
        (("--transport", "sse", "--", "c"), "got --header or --transport with a command"),
        (("--only", "no-such-rule", "--", "c"), "got --only 'no-such-rule', expected one of"),
        (("--revision", "1999", "--", "c"), "got --revision '1999', expected one of 2024-11-05"),
        (("--examples", "0", "--", "c"), "got --examples 0, expected more than 0"),
        (("--header", "a: b", "--", "c"), "got --header or --transport with a command"),
        (("--env", "A=b", "http://h/"), "got --env, --inherit-env or --cwd with a URL"),
        (("--env", "secret", "--", "c"), "got --env without a =, and no variable of that name is set"),
        (
            ("--header", "X: ${UNSET_4711}", "http://h/"),
            "got --header X with a ${…}, expected the environment variable",
        ),
        (("--replay", "nowhere", "--", "c"), "nowhere cannot be read"),
        (("--replay", "f", "--safe", "--", "c"), "got --safe with --replay"),
        (("--replay", "f", "--junit", "x", "--", "c"), "got --junit with --replay"),
    ],
)
def test_wrong_use_is_reported(arguments: tuple[str, ...], complaint: str, conform: Run) -> None:
    code, out, err = conform(*arguments)
    assert (code, out) == (2, "")
    assert complaint in err
    assert "secret" not in err


@pytest.mark.parametrize(
    "arguments, complaint",
    [
        (("--", "/no/such/program"), "the server cannot be started"),
        (("--", sys.executable, "-c", "raise SystemExit('gone')"), "the server ended at once, and said: gone"),
        (("http://127.0.0.1:1/",), "the server cannot be reached"),
        (("--timeout", "0.1", *KNOWN, "--", "sleep", "9"), "asked for 2025-06-18 it answers: nothing"),
        (("--timeout", "2", *KNOWN, "--", "echo", "Welcome"), "asked for 2025-06-18 it answers: Welcome"),
        (("--timeout", "1", "--seconds", "0.5", "--", "sleep", "9"), "the server has said nothing so far"),
        (("--seconds", "0.001", *on_stdio()), "more --seconds are needed"),
    ],
)
def test_an_untestable_peer_is_reported(arguments: tuple[str, ...], complaint: str, conform: Run) -> None:
    code, _, err = conform(*arguments)
    assert code == 1
    assert complaint in err


@pytest.mark.parametrize("status", [401, 500])
def test_a_server_that_refuses_is_quoted(status: int, conform: Run) -> None:
    """The cause may be a missing header, which the response would name."""
    with over_http(f"refuses {status}") as url:
        code, _, err = conform(*KNOWN, url)
    assert code == 1
    assert f"asked for 2025-06-18 it answers: HTTP status {status} with application/json" in err


@pytest.mark.parametrize("count", range(1, 6))
def test_nothing_begins_once_the_time_is_over(count: int) -> None:
    """Findings are neither minimized nor confirmed then."""
    played: list[Conversation] = []

    def play(conversation: Conversation) -> Played:
        played.append(conversation)
        return Played([(0, Said(0, Role.SERVER, b"{"))])

    violation = Violation("not-json", Role.SERVER, Severity.MUST, "", "", ())
    trial = server_trial(Target("server", play, Transport.PIPE))._replace(judge=lambda *_: [violation])
    search = Search(trial, Effort(), ["not-json"], print, lambda: len(played) >= count)
    outcome = search.run(conversations([Survey(REVISIONS[-1], is_http=False)]))
    assert len(played) == count
    assert [finding.violation for finding in outcome.findings] == [violation]


@pytest.mark.parametrize("package", ["hypothesis", "jsonschema"])
def test_a_missing_package_of_the_extra_is_reported(
    package: str, conform: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("isthmus.app.conform.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    code, _, err = conform(*on_stdio())
    assert code == 1
    assert WHAT_TO_INSTALL in err


# --- Moves and rules ------------------------------------------------------------------------------------------------


def surveys() -> Iterator[Survey]:
    schema: dict[str, Any] = {"required": ["a"], "properties": {"a": {"type": "string"}}}
    for revision in REVISIONS:
        for is_http in (False, True):
            yield Survey(revision, is_http)
            tools = (Tool("t", schema, True),)
            everything = {"tools": {}, "prompts": {}, "resources": {}, "logging": {}}
            yield Survey(revision, is_http, True, everything, tools, ({"name": "p"},), ("u:///",))


def test_every_move_has_a_place_and_can_be_made() -> None:
    """Each move can be made for some server, and each request of a conversation has an id of its own, except in the
    move about ids."""
    used = set()
    for survey in surveys():
        for name, move in MOVES.items():
            if move not in moves_for(survey):
                continue
            used.add(name)
            steps = move.make(MoveContext(survey, lambda values: values[0]))
            assert steps
            ids = [
                message["id"]
                for step in steps
                for message in decoded(step.body)
                if "method" in message and "id" in message
            ]
            assert len(ids) == len(set(map(repr, ids))) or name == "id used before"
    assert used == set(MOVES)


def test_every_rule_of_the_table_is_one_of_the_server_s() -> None:
    assert {rule for rules in CHANCES.values() for rule in rules} <= set(SERVER_RULES)


def talkative(conversation: Conversation) -> Played:
    """A server in this process that answers everything, and sends log messages without having declared them."""
    seen: list[tuple[int, AnyObservation]] = []
    for step in conversation.steps:
        seen.append((0, Said(PIPE_CHANNEL, Role.CLIENT, step.body.encode())))
        for message in decoded(step.body):
            answers: list[Json] = []
            if "id" in message and "method" in message:
                info = {"name": "t", "version": "1"}
                hello = {"protocolVersion": conversation.revision, "capabilities": {}, "serverInfo": info}
                is_hello = message["method"] == "initialize"
                answers = [{"jsonrpc": "2.0", "id": message["id"], "result": hello if is_hello else {}}]
            if message.get("method") == "ping":
                answers.append({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info"}})
            seen += [(0, Said(PIPE_CHANNEL, Role.SERVER, json.dumps(answer).encode())) for answer in answers]
    return Played(seen)


@pytest.mark.parametrize("seed", range(2))
def test_a_finding_is_a_must_if_it_can_be_and_has_no_needless_step(seed: int) -> None:
    """Older revisions say only that capabilities SHOULD be kept to. A ping shows the violation, or the one before
    the handshake."""
    target = SimpleNamespace(name="talkative", reach=lambda: (talkative, Transport.PIPE))
    rule = "capability-undeclared"
    effort = Effort(examples=30, seed=seed)
    revisions, outcome = run(server_trial(cast(Target, target)), effort, {rule}, lambda line: None)
    assert len(revisions) == 4
    (finding,) = outcome.findings
    assert (finding.violation.rule, finding.violation.severity) == (rule, Severity.MUST)
    assert finding.conversation.revision == "2025-11-25"
    assert len(finding.conversation.steps) == 3


@pytest.mark.parametrize("event_id, rules", [("e1", []), (None, ["unanswered"])])
def test_what_can_be_fetched_is_not_missing(event_id: str | None, rules: list[str]) -> None:
    """A server may end a stream, and keep the rest for a client that resumes with the id of its last event."""
    step = request("2025-11-25", 1, "ping")
    seen: list[AnyObservation] = [
        Opened(0, Verb.POST, revision="2025-11-25", accept="application/json, text/event-stream"),
        Said(0, Role.CLIENT, step.body.encode()),
        Head(0, 200, "text/event-stream"),
        Said(0, Role.SERVER, b"", event_id=event_id),
        Ended(0, Role.SERVER),
    ]
    if event_id is None:
        del seen[3:]  # the stream goes on without messages
    found = judge(Conversation("2025-11-25", (step,)), Played([(0, each) for each in seen]), Transport.HTTP)
    assert [each.rule for each in found] == rules


def test_arguments_have_what_is_required_and_end() -> None:
    endless: dict[str, Any] = {"type": "object", "required": ["a"], "properties": {}}
    endless["properties"]["a"] = endless
    made = arguments_of(endless, lambda values: values[0])
    assert made.keys() == {"a"}
    assert json.dumps(made).count("{") <= 6
