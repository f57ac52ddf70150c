"""Stories are of tests that there are, tell all, and are noticed when they change."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
import stories
from driving import connect, driver
from isthmus.core.base.errors import LocalProtocolError
from isthmus.core.engine import Engine

KEPT = sorted(stories.FOLDER.rglob("*.jsonl"))


def names_of_tests(folder: str) -> set[str]:
    place = Path(__file__).parent / folder
    source = place.with_name(f"test_{place.name}.py").read_text(encoding="utf-8")
    return {node.name for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("folder", sorted({str(path.parent.relative_to(stories.FOLDER)) for path in KEPT}))
def test_each_story_is_of_a_test_that_there_is(folder: str) -> None:
    names = {
        path.name.partition("[")[0].partition("~")[0].removesuffix(".jsonl")
        for path in KEPT
        if str(path.parent.relative_to(stories.FOLDER)) == folder
    }
    assert names <= names_of_tests(folder), "stories of tests that are gone, or have another name now"


def test_stories_are_json_lines_that_say_what_was_told_before_what_it_led_to() -> None:
    assert len(KEPT) > 100
    for path in KEPT:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        assert "in" in lines[0], path
        assert all(len({"in", "out", "due", "at rest", "refused"} & line.keys()) == 1 for line in lines), path


def test_all_that_an_engine_orders_is_told_once() -> None:
    """What one input calls of another is no input of its own."""
    with stories.told() as found:
        world = driver()
        client = connect(world, "http", "pipe")
        client.request("1", "tools/list")
        world.answer(world.hear("tools/list"), '{"tools":[]}')
    lines = [json.loads(line) for line in found.lines]
    assert sum("out" in line for line in lines) == len(world.log)
    assert [name for line in lines if "out" in line for name in line["out"]] == [
        type(each).__name__ for each in world.log
    ]
    assert {"receive_open", "receive_message"} == {line["in"] for line in lines if "in" in line}
    assert any("due" in line for line in lines)
    assert lines[-1]["at rest"] == "report"


def test_what_an_engine_refuses_is_told() -> None:
    with stories.told() as found, pytest.raises(LocalProtocolError):
        world = driver()
        world.engine.receive_drain(100.0)
        world.engine.receive_drain(99.0)
    said = [json.loads(line) for line in found.lines]
    at = next(at for at, line in enumerate(said) if "refused" in line)
    assert said[at - 1] == {"in": "receive_drain", "told": [99.0]}
    assert said[at]["refused"].startswith("LocalProtocolError")


def test_engines_are_as_they_were_afterwards() -> None:
    before = {name: getattr(Engine, name) for name in stories.INPUTS}
    with pytest.raises(ZeroDivisionError), stories.told():
        raise ZeroDivisionError
    assert before == {name: getattr(Engine, name) for name in stories.INPUTS}


def test_every_input_of_an_engine_is_listened_to() -> None:
    inputs = {name for name in vars(Engine) if name.startswith(("receive_", "handle_"))}
    assert inputs == set(stories.INPUTS)


def test_messages_stand_as_they_were_written() -> None:
    assert stories.shown(b'{"a": 1}').__class__.__name__ == "Raw"
    assert stories.shown(b'{"a": 1') == '{"a": 1'
    assert stories.shown(b"\xff{") == "\\xff{"
    long = stories.shown(b"x" * (stories.TEXT_MAX + 1))
    assert long.startswith("x" * 200 + "…")
    assert long != stories.shown(b"x" * stories.TEXT_MAX + b"y"), "the rest is not forgotten"


def test_a_difference_says_where() -> None:
    assert stories.difference(["a", "b"], ["a", "b"]) == ""
    assert "+c" in stories.difference(["a", "b"], ["a", "c"])
    many = stories.difference([], [str(number) for number in range(1000)])
    assert many.endswith("more lines")
    assert many.count("\n") == stories.LINES_SHOWN_MAX
