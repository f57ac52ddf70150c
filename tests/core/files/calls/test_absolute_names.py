"""Tests of relative names that a tool refuses because it takes absolute paths only."""

from __future__ import annotations

from typing import Any

import pytest
from driving import error
from file_scenes import Scene, artifacts, texts
from isthmus.core.base.plan import AutoFiles, Kind, ServerPlan, SharedFolder
from isthmus.core.files.calls import absolute_names

TOOLS = '{"tools":[{"name":"t"},{"name":"look","annotations":{"readOnlyHint":true}}]}'


def scene(**plan: Any) -> Scene:
    files = Scene(ServerPlan(id="s", kind=Kind.PIPE, auto_files=AutoFiles(), **plan))
    files.client.request('"tools"', "tools/list")
    files.world.answer(files.world.take_sent("tools/list"), TOOLS)
    return files


def below(depth: int) -> Any:
    """Returns a name so many levels deep."""
    return {"path": below(depth - 1)} if depth else "a.xlsx"


def refuse(files: Scene, text: str) -> dict[str, Any] | None:
    """Refuses the call under way. Returns the arguments that it is sent again with, if it is."""
    content = f'{{"content":[{{"type":"text","text":"{text}"}}],"isError":true}}'
    files.world.answer(files.received, content)
    files.disk.settle()
    if not files.world.was_sent("tools/call"):
        return None
    files.received = files.world.take_sent("tools/call")
    arguments: dict[str, Any] = files.received.frame["params"]["arguments"]
    return arguments


@pytest.mark.parametrize(
    ("arguments", "refusal", "expected"),
    [
        ({"path": "a/b.xlsx", "n": 1}, "Path 'a/b.xlsx' is not absolute", {"path": "WS/a/b.xlsx", "n": 1}),
        ({"file": "b.xlsx", "as": "S"}, "file must be an absolute path", {"file": "WS/b.xlsx", "as": "S"}),
        ({"name": "report"}, "'report': expected an absolute path", {"name": "WS/report"}),
        ({"to": [{"f": ["a.txt", "b.txt"]}]}, "a.txt: not absolute", {"to": [{"f": ["WS/a.txt", "WS/b.txt"]}]}),
        ({"路径": "表.xlsx"}, "路径必须是绝对路径", {"路径": "WS/表.xlsx"}),
    ],
)
def test_a_refused_name_is_made_absolute(arguments: dict[str, Any], refusal: str, expected: dict[str, Any]) -> None:
    files = scene()
    channel, got = files.begin("t", **arguments)
    assert got == arguments
    again = refuse(files, refusal)
    assert str(again).replace(files.ws, "WS") == str(expected)
    files.disk.write(f"{files.ws}/out.txt", b"x")
    assert len(artifacts(files.end(channel, "done"))) == 1
    _, got = files.begin("t", **arguments)
    assert got == again, "it is learned for the next call"


@pytest.mark.parametrize(
    ("arguments", "refusal"),
    [
        ({"path": "a.xlsx"}, "a.xlsx was not found"),
        ({"path": "a.xlsx"}, "an absolute mess"),
        ({"path": "../a.xlsx"}, "path: ../a.xlsx is not absolute"),
        ({"path": "/x/a.xlsx"}, "path must be absolute"),
        ({"name": "S"}, "Some Sheet is not absolute"),
        ({"url": "https://x/a.txt"}, "url is not absolute"),
        ({"path": "a.xlsx"}, "path must be absolute " + "x" * absolute_names.REFUSAL_MAX_CHARS),
        ({"path": "a" * absolute_names.NAME_MAX_CHARS + ".txt"}, "path must be absolute"),
        ({"a": below(absolute_names.DEPTH_MAX)}, "a.xlsx must be absolute"),
    ],
)
def test_a_refusal_of_another_kind_passes(arguments: dict[str, Any], refusal: str) -> None:
    files = scene()
    channel, _ = files.begin("t", **arguments)
    assert refuse(files, refusal) is None
    assert texts(files.only_message(channel)).startswith(refusal)


def test_a_name_that_is_not_quoted_waits_for_a_tool_that_may_be_repeated() -> None:
    """The tool may have done a part of its work before it noticed."""
    files = scene()
    files.begin("t", path="a.xlsx")
    assert refuse(files, "this must be absolute") is None
    files = scene()
    files.begin("look", path="a.xlsx")
    assert refuse(files, "this must be absolute") == {"path": f"{files.ws}/a.xlsx"}


def test_it_is_sent_again_once() -> None:
    files = scene()
    channel, _ = files.begin("t", path="a.xlsx")
    assert refuse(files, "path must be absolute") is not None
    assert refuse(files, "path must be absolute") is None
    assert "absolute" in texts(files.only_message(channel))


def test_an_error_is_a_refusal_too() -> None:
    files = scene(shared=(SharedFolder("/w", "/mnt/w"),))
    files.begin("t", path="a.xlsx")
    message = '{"code":-32602,"message":"path is not absolute"}'
    files.world.reply(files.received, error(str(files.received.id), message))
    files.disk.settle()
    files.received = files.world.take_sent("tools/call")
    assert files.received.frame["params"]["arguments"] == {"path": f"/mnt{files.ws}/a.xlsx"}


def test_nothing_is_made_absolute_where_the_working_directory_is_unknown() -> None:
    files = scene(cwd="here")
    files.begin("t", path="a.xlsx")
    assert refuse(files, "path must be absolute") is None


def test_only_so_many_arguments_are_looked_at() -> None:
    files = scene()
    names = [f"{number}.txt" for number in range(absolute_names.ENTRIES_MAX)]
    files.begin("t", paths=names)
    again = refuse(files, "0.txt must be absolute")
    assert again is not None
    changed = [name for name in again["paths"] if name.startswith("/")]
    assert len(changed) == absolute_names.ENTRIES_MAX - 2, "the object of arguments and the list count, too"


def test_at_the_bound_the_oldest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(absolute_names, "LEARNED_MAX", 1)
    files = scene()
    for name in ("a", "b"):
        channel, _ = files.begin("t", **{name: "x.txt"})
        assert refuse(files, f"{name} must be absolute") is not None
        files.end(channel, "done")
    assert files.begin("t", b="x.txt")[1] == {"b": f"{files.ws}/x.txt"}
    assert files.begin("t", a="x.txt")[1] == {"a": "x.txt"}
