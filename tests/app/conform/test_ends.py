"""Tests of runs of `isthmus conform` that are stopped, or whose server dies or hangs: the findings are reported all
the same."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from xml.etree import ElementTree

from conforming import FAULTY, KNOWN, Run, over_http
from isthmus.app.conform.script.steps import Conversation
from isthmus.app.conform.verdict.report import decode_record

FILES = ("--json", "r.json", "--junit", "r.xml", "--record", "r.jsonl")


def findings() -> tuple[str, dict[str, str], list[str]]:
    """The contents of the files: the reason of the end, each rule's state, and the recorded rules."""
    whole = json.loads(Path("r.json").read_bytes())
    suite = ElementTree.fromstring(Path("r.xml").read_text())
    assert [case.get("name") for case in suite if case.find("error") is not None] == ["all was tried"]
    assert (suite.get("errors"), suite.get("tests")) == ("1", str(len(suite)))
    recorded = [record.rule for record in decode_record(Path("r.jsonl").read_bytes(), Conversation)]
    return whole["stopped"], {each["rule"]: each["state"] for each in whole["rules"]}, recorded


def test_a_signal_stops_it_and_its_findings_are_reported(conform: Run) -> None:
    """The server sends the signal while a finding is minimized."""
    command = ("--", sys.executable, "-S", FAULTY, "terminates", "mark")
    code, out, err = conform("--only", "not-json", *KNOWN, *FILES, *command)
    assert (code, "stopped by a signal" in err) == (1, True)
    assert "not-json (MUST)" in out
    assert findings() == ("stopped by a signal", {"not-json": "broken"}, ["not-json"])


def test_a_server_that_dies_owes_answers(conform: Run) -> None:
    with over_http("dies") as url:
        code, out, err = conform("--only", "unanswered", *KNOWN, *FILES, url)
    assert (code, "the server cannot be reached" in err) == (1, True)
    assert "unanswered (MUST)" in out
    assert "it ended early, after this:" in out, out + err
    reason, states, recorded = findings()
    assert (reason in err, states, recorded) == (True, {"unanswered": "broken"}, ["unanswered"])


def test_a_server_that_hangs_is_given_up(conform: Run) -> None:
    with over_http("hangs") as url:
        code, out, err = conform("--timeout", "0.5", "--ignore", "unanswered", *KNOWN, *FILES, url)
    assert (code, "the server says nothing any more" in err) == (1, True)
    assert "no rules broken" in out
    reason, _, recorded = findings()
    assert (reason in err, recorded) == (True, [])


def test_what_cannot_be_tested_leaves_no_files_of_a_run_before(conform: Run) -> None:
    for path in FILES[1::2]:
        Path(path).write_text("of yesterday")
    with over_http("refuses 401") as url:
        code, _, err = conform(*KNOWN, *FILES, url)
    assert code == 1
    reason, states, recorded = findings()
    assert (reason in err, set(states.values()), recorded) == (True, {"not exercised"}, [])


def test_a_file_that_cannot_be_written_keeps_nothing_back(conform: Run) -> None:
    with over_http("spaces") as url:
        code, out, err = conform("--only", "session-id-form", "--examples", "5", *KNOWN, "--json", "no/such", url)
    assert (code, "no/such cannot be written" in err) == (1, True)
    assert "session-id-form (MUST)" in out
