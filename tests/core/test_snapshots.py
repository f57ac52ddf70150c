"""Tests of the snapshots: each belongs to a test, holds all inputs and effects, and differs when they do."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest
import snapshot
from driving import connect, driver
from isthmus.core.base.errors import LocalProtocolError
from isthmus.core.bulk import BulkEngine

FILES = sorted(snapshot.FOLDER.rglob("*.jsonl"))
IDS = [path.relative_to(snapshot.FOLDER).with_suffix("").as_posix() for path in FILES]


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_each_snapshot_belongs_to_an_existing_test(path: Path) -> None:
    place = Path(__file__).parent / path.relative_to(snapshot.FOLDER)
    source = place.with_name(f"test_{place.stem}.py").read_text(encoding="utf-8")
    names = {node.name for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)}
    kept = {name.partition("[")[0] for name in snapshot.read(path)}
    assert kept
    assert kept <= names, "snapshots of tests that are gone or renamed"


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_a_file_is_as_it_would_be_written(path: Path) -> None:
    """The table of contents is right, and each line is JSON; a snapshot begins with an input."""
    found = snapshot.read(path)
    text = path.read_text(encoding="utf-8")
    assert snapshot.formatted(path, found) == text
    lines = text.splitlines()
    for at, name in re.findall(r"^# +(\d+) +\d+  (.*)$", text, re.MULTILINE):
        assert lines[int(at) - 1] == f"== {name}"
    for name, kept in found.items():
        parsed = [json.loads(line) for line in kept]
        assert "in" in parsed[0], name
        assert all(len({"in", "out", "due", "at rest", "refused"} & line.keys()) == 1 for line in parsed), name


def test_many_tests_have_snapshots() -> None:
    assert sum(len(snapshot.read(path)) for path in FILES) > 400


def test_a_snapshot_that_is_written_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "FOLDER", tmp_path)
    path, name = snapshot.place_of("tests/core/test_some.py::test_a[b c]")
    assert (path, name) == (tmp_path / "some.jsonl", "test_a[b c]")
    assert snapshot.read(path) == {}
    snapshot.write(path, name, ['{"in":"handle_timeout"}'])
    snapshot.read.cache_clear()
    assert snapshot.read(path) == {name: ['{"in":"handle_timeout"}']}


def test_each_effect_is_recorded_once() -> None:
    """An input that calls another input is recorded as one."""
    with snapshot.recorded() as found:
        world = driver()
        client = connect(world, "http", "pipe")
        client.request("1", "tools/list")
        world.answer(world.take_sent("tools/list"), '{"tools":[]}')
    lines = [json.loads(line) for line in found.lines]
    assert sum("out" in line for line in lines) == len(world.log)
    assert [name for line in lines if "out" in line for name in line["out"]] == [
        type(each).__name__ for each in world.log
    ]
    assert {"receive_open", "receive_message"} == {line["in"] for line in lines if "in" in line}
    assert any("due" in line for line in lines)
    assert lines[-1]["at rest"] == "report"


def test_a_refused_input_is_recorded() -> None:
    with snapshot.recorded() as found, pytest.raises(LocalProtocolError):
        world = driver()
        world.engine.receive_drain(100.0)
        world.engine.receive_drain(99.0)
    lines = [json.loads(line) for line in found.lines]
    at = next(at for at, line in enumerate(lines) if "refused" in line)
    assert lines[at - 1] == {"in": "receive_drain", "told": [99.0]}
    assert lines[at]["refused"].startswith("LocalProtocolError")


def test_the_methods_of_engines_are_restored_afterwards() -> None:
    before = {name: getattr(BulkEngine, name) for name in snapshot.INPUTS}
    with pytest.raises(ZeroDivisionError), snapshot.recorded():
        raise ZeroDivisionError
    assert before == {name: getattr(BulkEngine, name) for name in snapshot.INPUTS}


def test_every_input_of_an_engine_is_recorded() -> None:
    inputs = {name for name in dir(BulkEngine) if name.startswith(("receive_", "handle_"))}
    assert inputs == set(snapshot.INPUTS)


def test_messages_are_shown_as_they_were_written() -> None:
    assert snapshot.shown(b'{"a": 1}').__class__.__name__ == "Raw"
    assert snapshot.shown(b'{"a": 1') == '{"a": 1'
    assert snapshot.shown(b"\xff{") == "\\xff{"
    long = snapshot.shown(b"x" * (snapshot.TEXT_MAX + 1))
    assert long.startswith("x" * 200 + "…")
    assert long != snapshot.shown(b"x" * snapshot.TEXT_MAX + b"y"), "the digest covers the rest"


def test_a_difference_shows_the_changed_lines() -> None:
    assert snapshot.difference(["a", "b"], ["a", "b"]) == ""
    assert "+c" in snapshot.difference(["a", "b"], ["a", "c"])
    many = snapshot.difference([], [str(number) for number in range(1000)])
    assert many.endswith("more lines")
    assert many.count("\n") == snapshot.LINES_SHOWN_MAX
