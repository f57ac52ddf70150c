"""Task support, word by word: the words of tools and servers, and their translations."""

from __future__ import annotations

import json
from typing import Any

import pytest
from each_row import each_row
from isthmus.core.bridge.task_support import (
    Support,
    TaskAbilities,
    declare_legacy,
    declare_modern,
    declares,
    read_support,
    server_abilities,
    show_support,
)

WORDS: list[tuple[Any, Support | None]] = [
    ("required", Support.REQUIRED),
    ("optional", Support.OPTIONAL),
    ("forbidden", Support.FORBIDDEN),
    ("always", Support.FORBIDDEN),
    ("", Support.FORBIDDEN),
    (5, Support.FORBIDDEN),
    ({}, Support.FORBIDDEN),
    (None, None),
    ("absent", None),
]
TASKS = "io.modelcontextprotocol/tasks"


def tool(word: Any, **more: Any) -> dict[str, Any]:
    execution = more | ({} if word == "absent" else {"taskSupport": word})
    return {"name": "t"} | ({"execution": execution} if execution else {})


def packed(value: Any) -> bytes:
    return json.dumps(value).encode()


@pytest.mark.parametrize(("word", "support"), WORDS)
def test_the_support_that_a_word_means(word: Any, support: Support | None) -> None:
    """An unknown word forbids; an absent one declares nothing."""
    listed = packed({"tools": [tool(word)]})
    assert read_support(listed) == ({} if support is None else {"t": support})
    received = []
    show_support(listed, lambda name, declared: received.append((name, declared)))  # type: ignore[func-returns-value]
    assert received == [("t", support)]


@each_row("more", [{}, {"x": 1}])
@each_row("wanted", [None, *Support])
@each_row(("word", "support"), WORDS)
def test_the_support_that_a_tool_is_given(
    word: Any, support: Support | None, wanted: Support | None, more: dict[str, int]
) -> None:
    """Other members of its `execution` stay; one without members is removed."""
    found = json.loads(show_support(packed({"tools": [tool(word, **more)]}), lambda name, declared: wanted))
    kept = more if wanted is None else more | {"taskSupport": wanted.value}
    assert found == {"tools": [{"name": "t"} | ({"execution": kept} if kept else {})]}


@pytest.mark.parametrize("execution", [None, 5, [], "x"])
def test_a_malformed_execution_is_replaced(execution: Any) -> None:
    raw = packed({"tools": [{"name": "t", "execution": execution}]})
    assert read_support(raw) == {}
    assert show_support(raw, lambda name, declared: None) == raw
    shown = json.loads(show_support(raw, lambda name, declared: Support.OPTIONAL))
    assert shown == {"tools": [{"name": "t", "execution": {"taskSupport": "optional"}}]}


@pytest.mark.parametrize(
    "raw",
    [
        b'{ "tools" : [ { "name" : "t" , "execution" : { "taskSupport" : "optional" } } ] , "x" : 1.0 }',
        b'{"tools":[5,{"title":"no name","execution":{"taskSupport":"always"}},{"name":5}]}',
        b'{"x":1}',
    ],
)
def test_a_tool_that_needs_no_change_is_left_alone(raw: bytes) -> None:
    assert show_support(raw, lambda name, declared: declared) == raw


def test_of_two_tools_with_one_name_the_first_counts() -> None:
    assert read_support(packed({"tools": [tool("required"), tool("optional")]})) == {"t": Support.REQUIRED}


PARTS: list[Any] = [{}, None, True, [], "absent"]


@each_row("calls", PARTS)
@each_row("cancels", PARTS)
@each_row("lists", PARTS)
def test_the_abilities_of_a_server_with_sessions(calls: Any, cancels: Any, lists: Any) -> None:
    """Each ability is an object; the extension does not count."""
    tasks: dict[str, Any] = {"cancel": cancels, "list": lists, "requests": {"tools": {"call": calls}}}
    if calls == "absent":
        tasks["requests"] = {"tools": {}}
    tasks = {key: value for key, value in tasks.items() if value != "absent"}
    expected = TaskAbilities(calls == {}, cancels == {}, lists == {})
    assert server_abilities(packed({"tasks": tasks}), is_stateless=False) == expected
    assert server_abilities(packed({"tasks": tasks}), is_stateless=True) == TaskAbilities(False, False, False)


@pytest.mark.parametrize(
    ("capabilities", "names"),
    [
        (None, False),
        ({}, False),
        ({"extensions": {}}, False),
        ({"extensions": {TASKS: {}}}, True),
        ({"extensions": {TASKS: {"x": 1}}}, True),
        ({"extensions": {TASKS: True}}, False),
        ({"extensions": {TASKS + "Q": {}}}, False),
        ({TASKS: {}}, False),
        ({"extensions": 5}, False),
        ([], False),
    ],
)
def test_the_extension_is_recognized(capabilities: Any, names: bool) -> None:
    raw = None if capabilities is None else packed(capabilities)
    assert declares(raw) is names
    assert server_abilities(raw, is_stateless=True) == TaskAbilities(names, names, False)
    assert server_abilities(raw, is_stateless=False) == TaskAbilities(False, False, False)


@pytest.mark.parametrize("before", [{}, {"tasks": {}}, {"tasks": 5, "tools": {}}])
def test_tasks_are_declared_in_full(before: dict[str, Any]) -> None:
    found = json.loads(declare_legacy(packed(before)))
    assert found == before | {"tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}}


@pytest.mark.parametrize("extensions", ["absent", 5, {}, {"a/b": {"x": 1}}, {TASKS: {"x": 1}}])
def test_the_extension_is_declared_beside_others(extensions: Any) -> None:
    before = {"tools": {}} | ({} if extensions == "absent" else {"extensions": extensions})
    kept = extensions if isinstance(extensions, dict) else {}
    assert json.loads(declare_modern(packed(before))) == {"tools": {}, "extensions": {**kept, TASKS: {}}}
