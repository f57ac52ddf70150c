"""Tests of the language of the filter, of `isthmus tail` and of the live page, with the same cases."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from isthmus.app.terminal.filter import KEY_MAX_CHARS, FilterError, compiled

ROOT = Path(__file__).parents[3]
TABLE = json.loads((ROOT / "tests/app/watch/filters.json").read_text())

SCRIPT = """
import {readFileSync} from "node:fs";
const {compile} = await import(process.argv[1]);
const {rows, cases} = JSON.parse(readFileSync(0));
const outcome = ({filter}) => {
  const {test, error} = compile(filter);
  return test ? Object.keys(rows).filter(name => test(rows[name])) : error;
};
console.log(JSON.stringify(cases.map(outcome)));
"""


def outcome(source: str) -> list[str] | str:
    try:
        test = compiled(source)
    except FilterError as error:
        return str(error)
    return [name for name, row in TABLE["rows"].items() if test(row)]


def is_as_wanted(case: dict[str, Any], found: list[str] | str) -> bool:
    return found == case["shows"] if "shows" in case else isinstance(found, str) and case.get("near", "") in found


def test_the_filter_of_the_terminal() -> None:
    found = [(case, outcome(case["filter"])) for case in TABLE["cases"]]
    assert [pair for pair in found if not is_as_wanted(*pair)] == []
    errors = [(case["error"], message) for case, message in found if "error" in case]
    assert [message for at, message in errors if not str(message).startswith(f"character {at}: got ")] == []
    assert [message for _, message in errors if not any(each in message for each in ("expected", "did you mean"))] == []


def test_a_longer_name_is_a_text() -> None:
    assert "got" in outcome("z" * (KEY_MAX_CHARS - 1) + ":x")
    assert outcome("z" * KEY_MAX_CHARS + ":x") == []


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node.js")
def test_the_filter_of_the_page(tmp_path: Path) -> None:
    (tmp_path / "package.json").write_text('{"type": "module"}')
    module = shutil.copy(ROOT / "app/watch/static/filter.js", tmp_path)
    ran = subprocess.run(
        ["node", "--input-type=module", "--eval", SCRIPT, f"file://{module}"],
        input=json.dumps(TABLE).encode(),
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr
    found = zip(TABLE["cases"], json.loads(ran.stdout), strict=True)
    assert [pair for pair in found if not is_as_wanted(*pair)] == []
