"""What tools and servers say of tasks, word by word, and what is made of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from isthmus.core.bridge.task_support import (
    Abilities,
    Support,
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
def test_what_a_word_says(word: Any, support: Support | None) -> None:
    """One that nobody knows forbids; none says nothing."""
    listed = packed({"tools": [tool(word)]})
    assert read_support(listed) == ({} if support is None else {"t": support})
    heard = []
    show_support(listed, lambda name, said: heard.append((name, said)))  # type: ignore[func-returns-value]
    assert heard == [("t", support)]


@pytest.mark.parametrize("more", [{}, {"x": 1}])
@pytest.mark.parametrize("wanted", [None, *Support])
@pytest.mark.parametrize(("word", "support"), WORDS)
def test_what_a_tool_is_made_to_say(
    word: Any, support: Support | None, wanted: Support | None, more: dict[str, int]
) -> None:
    """Just that; what else is said of its execution stays, and without anything there is nothing said of it."""
    found = json.loads(show_support(packed({"tools": [tool(word, **more)]}), lambda name, said: wanted))
    kept = more if wanted is None else more | {"taskSupport": wanted.value}
    assert found == {"tools": [{"name": "t"} | ({"execution": kept} if kept else {})]}


@pytest.mark.parametrize("execution", [None, 5, [], "x"])
def test_an_execution_that_is_none_says_nothing_and_makes_room(execution: Any) -> None:
    raw = packed({"tools": [{"name": "t", "execution": execution}]})
    assert read_support(raw) == {}
    assert show_support(raw, lambda name, said: None) == raw
    shown = json.loads(show_support(raw, lambda name, said: Support.OPTIONAL))
    assert shown == {"tools": [{"name": "t", "execution": {"taskSupport": "optional"}}]}


@pytest.mark.parametrize(
    "raw",
    [
        b'{ "tools" : [ { "name" : "t" , "execution" : { "taskSupport" : "optional" } } ] , "x" : 1.0 }',
        b'{"tools":[5,{"title":"no name","execution":{"taskSupport":"always"}},{"name":5}]}',
        b'{"x":1}',
    ],
)
def test_what_says_what_it_should_is_left_alone(raw: bytes) -> None:
    assert show_support(raw, lambda name, said: said) == raw


def test_of_two_tools_with_one_name_the_first_counts() -> None:
    assert read_support(packed({"tools": [tool("required"), tool("optional")]})) == {"t": Support.REQUIRED}


PARTS: list[Any] = [{}, None, True, [], "absent"]


@pytest.mark.parametrize("calls", PARTS)
@pytest.mark.parametrize("cancels", PARTS)
@pytest.mark.parametrize("lists", PARTS)
def test_what_a_server_with_sessions_declares(calls: Any, cancels: Any, lists: Any) -> None:
    """Part by part, each as an object; the extension is not for it."""
    tasks: dict[str, Any] = {"cancel": cancels, "list": lists, "requests": {"tools": {"call": calls}}}
    if calls == "absent":
        tasks["requests"] = {"tools": {}}
    tasks = {key: value for key, value in tasks.items() if value != "absent"}
    expected = Abilities(calls == {}, cancels == {}, lists == {})
    assert server_abilities(packed({"tasks": tasks}), is_stateless=False) == expected
    assert server_abilities(packed({"tasks": tasks}), is_stateless=True) == Abilities(False, False, False)


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
def test_who_names_the_extension(capabilities: Any, names: bool) -> None:
    raw = None if capabilities is None else packed(capabilities)
    assert declares(raw) is names
    assert server_abilities(raw, is_stateless=True) == Abilities(names, names, False)
    assert server_abilities(raw, is_stateless=False) == Abilities(False, False, False)


@pytest.mark.parametrize("before", [{}, {"tasks": {}}, {"tasks": 5, "tools": {}}])
def test_tasks_are_declared_in_full(before: dict[str, Any]) -> None:
    found = json.loads(declare_legacy(packed(before)))
    assert found == before | {"tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}}


@pytest.mark.parametrize("extensions", ["absent", 5, {}, {"a/b": {"x": 1}}, {TASKS: {"x": 1}}])
def test_the_extension_is_declared_beside_others(extensions: Any) -> None:
    before = {"tools": {}} | ({} if extensions == "absent" else {"extensions": extensions})
    kept = extensions if isinstance(extensions, dict) else {}
    assert json.loads(declare_modern(packed(before))) == {"tools": {}, "extensions": {**kept, TASKS: {}}}
