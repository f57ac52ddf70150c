"""Tests of `isthmus pin`, as a person uses it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from command import run

PEER = str(Path(__file__).parents[1] / "peers" / "changing.py")
SEARCH = {"name": "search code", "description": "Searches.\nWell.", "inputSchema": {"type": "object"}}
DELETE = {"name": "delete", "description": "Deletes.", "inputSchema": {"type": "object"}}


def given(folder: Path, *ids: str, tools: Any = (SEARCH, DELETE), **settings: Any) -> None:
    servers = [{"id": id, "upstream": {"command": [sys.executable, PEER, str(folder / f"{id}.json")]}} for id in ids]
    (folder / "isthmus.json").write_text(json.dumps({"servers": servers, **settings}))
    for id in ids:
        lists(folder, id, tools=list(tools))


def lists(folder: Path, id: str, **what: Any) -> None:
    (folder / f"{id}.json").write_text(json.dumps(what))


def test_a_lock_is_written_compared_and_approved(tmp_path: Path) -> None:
    given(tmp_path, "a", "b")
    lock = tmp_path / "isthmus.lock"
    code, said, _ = run("pin", cwd=tmp_path)
    assert (code, said) == (0, f"a: is pinned: 2 tools\nb: is pinned: 2 tools\nwrote {lock}")
    first = lock.read_text()
    assert '[servers.a.tools."search code"]\nsha256 = "' in first
    assert 'description = """\nSearches.\nWell."""\n' in first
    before = os.stat(lock)
    assert run("pin", cwd=tmp_path)[:2] == (0, "a: as it was approved\nb: as it was approved")
    assert os.stat(lock).st_ino == before.st_ino

    lists(tmp_path, "a", tools=[SEARCH | {"description": "Searches.\nEvil\u200b."}, {"name": "new", "inputSchema": {}}])
    code, said, _ = run("pin", "isthmus.json", "--diff", cwd=tmp_path)
    assert (code, lock.read_text()) == (1, first)
    assert said.splitlines()[0] == "a/delete: tools: gone"
    assert "a/search code: tools: description changed" in said
    assert "  -Well." in said
    assert r"  +Evil\u200b." in said
    assert "a/new: tools: new" in said

    code, said, _ = run("pin", "--approve", "a/search code", cwd=tmp_path)
    assert code == 1
    assert "a/search code: tools: description changed: approved" in said
    assert "a: 2 not approved: `isthmus pin --diff` shows them, `isthmus pin --approve` accepts them" in said
    code, said, _ = run("pin", "--approve", cwd=tmp_path)
    assert code == 0
    assert "servers.a.tools.delete" not in lock.read_text()
    assert "servers.b.tools.delete" in lock.read_text()
    assert run("pin", "--diff", cwd=tmp_path)[0] == 0


def test_a_new_server_is_pinned_and_one_that_is_gone_is_named(tmp_path: Path) -> None:
    given(tmp_path, "a")
    run("pin", cwd=tmp_path)
    given(tmp_path, "b")
    code, said, _ = run("pin", cwd=tmp_path)
    assert code == 0
    assert "b: is pinned: 2 tools\na: is in the lock, but is no server: `isthmus pin --approve a` removes it" in said
    assert "a: is removed" in run("pin", "--approve", "a", cwd=tmp_path)[1]
    assert "servers.a" not in (tmp_path / "isthmus.lock").read_text()


def test_a_server_that_cannot_be_asked_keeps_its_lock(tmp_path: Path) -> None:
    given(tmp_path, "a", "b")
    run("pin", cwd=tmp_path)
    (tmp_path / "a.json").unlink()
    code, said, _ = run("pin", "--approve", cwd=tmp_path)
    assert code == 1
    assert "a: cannot be asked: " in said
    assert "servers.a.tools.delete" in (tmp_path / "isthmus.lock").read_text()


def test_a_definition_that_can_be_read_in_two_ways_is_left_out(tmp_path: Path) -> None:
    given(tmp_path, "a", tools=[SEARCH | {"Description": "Evil."}, DELETE])
    code, said, _ = run("pin", cwd=tmp_path)
    assert code == 1
    assert "a: left out: tools: got a definition with the member description in two spellings" in said
    assert "search" not in (tmp_path / "isthmus.lock").read_text()


def test_what_is_ignored_does_not_differ(tmp_path: Path) -> None:
    given(tmp_path, "a", pins={"ignore": ["a/description"], "file": "pins/lock.toml"})
    (tmp_path / "pins").mkdir()
    run("pin", cwd=tmp_path)
    lists(tmp_path, "a", tools=[SEARCH | {"description": "Today."}, DELETE])
    assert run("pin", cwd=tmp_path)[:2] == (0, "a: as it was approved")
    assert (tmp_path / "pins" / "lock.toml").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--approve", "z"), "got --approve z, expected ID or ID/NAME with one of a"),
        (("--approve", "a/z"), "got --approve a/z, and a lists nothing of that name"),
        (("--diff", "--approve"), "not allowed with argument"),
        (("--", "x"), "got a command after --, which `isthmus pin` does not take"),
    ],
)
def test_a_wrong_word_is_named(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    given(tmp_path, "a")
    code, _, error = run("pin", *arguments, cwd=tmp_path)
    assert (code, said in error) == (2, True), error


def test_a_lock_with_a_conflict_is_named(tmp_path: Path) -> None:
    given(tmp_path, "a")
    (tmp_path / "isthmus.lock").write_text("<<<<<<< ours\n")
    for command in ("pin", "check", "serve"):
        code, _, error = run(command, cwd=tmp_path)
        assert code == 2
        assert "isthmus.lock: got text that is no TOML: " in error
        assert "(at line 1, column 1)" in error
