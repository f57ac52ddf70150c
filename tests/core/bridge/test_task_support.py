"""Task support: the capabilities of servers and clients, and each tool's own."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.base.errors import RemoteProtocolError
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
from isthmus.core.bridge.tasks import TASKS

NOTHING = TaskAbilities(False, False, False)
TWICE = b'{"tasks":{"cancel":{},"cancel":{}},"extensions":{"a":1,"a":1,"io.modelcontextprotocol/tasks":{}}}'


def legacy(tasks: object) -> bytes:
    return json.dumps({"tools": {}, "tasks": tasks}).encode()


# --- Capabilities ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [
        (None, NOTHING),
        (b"[]", NOTHING),
        (b"", NOTHING),
        (b"{", NOTHING),
        (b"{}", NOTHING),
        (legacy({}), NOTHING),
        (legacy(True), NOTHING),
        (legacy({"cancel": True, "list": None, "requests": {"tools": {"call": True}}}), NOTHING),
        (legacy({"requests": {"sampling": {"createMessage": {}}}}), NOTHING),
        (legacy({"requests": {"tools": {"call": {}}}}), TaskAbilities(True, False, False)),
        (legacy({"cancel": {}, "requests": {"tools": {}}}), TaskAbilities(False, True, False)),
        (legacy({"list": {"x": 1}}), TaskAbilities(False, False, True)),
        (declare_legacy(b"{}"), TaskAbilities(True, True, True)),
        (declare_modern(b"{}"), NOTHING),
        (TWICE, NOTHING),
    ],
)
def test_the_abilities_of_a_server_with_sessions(capabilities: bytes | None, expected: TaskAbilities) -> None:
    """Each ability is an object; an unreadable declaration declares nothing."""
    assert server_abilities(capabilities, is_stateless=False) == expected


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [
        (None, False),
        (b"[]", False),
        (b"{", False),
        (b"{}", False),
        (b'{"extensions":{}}', False),
        (b'{"extensions":{"io.modelcontextprotocol/tasks":true}}', False),
        (b'{"extensions":["io.modelcontextprotocol/tasks"]}', False),
        (b'{"io.modelcontextprotocol/tasks":{}}', False),
        (b'{"extensions":{"io.modelcontextprotocol\\/tasks":{"x":1}}}', True),
        (declare_modern(b"{}"), True),
        (declare_legacy(b"{}"), False),
        (TWICE, False),
    ],
)
def test_the_abilities_of_stateless_peers(capabilities: bytes | None, expected: bool) -> None:
    """One extension declares all, for servers and clients; it has no list."""
    assert declares(capabilities) == expected
    assert server_abilities(capabilities, is_stateless=True) == TaskAbilities(expected, expected, False)


OTHERS = st.dictionaries(st.sampled_from(["tools", "extensions ", "x"]), st.sampled_from([{}, None, 1.0]))
EXTENSIONS = st.dictionaries(st.sampled_from(["a/b", TASKS]), st.sampled_from([{}, {"x": 1}]))


@given(others=OTHERS, extensions=st.none() | st.just(7) | EXTENSIONS)
def test_a_declaration_is_read_and_touches_nothing_else(others: dict[str, object], extensions: object) -> None:
    """Other capabilities and other extensions stay; declaring twice changes nothing."""
    capabilities = json.dumps(others | {"extensions": extensions, "tasks": {"old": {}}}).encode()
    modern = json.loads(declare_modern(capabilities))
    kept = extensions if isinstance(extensions, dict) else {}
    assert modern == others | {"extensions": kept | {TASKS: {}}, "tasks": {"old": {}}}
    assert json.loads(declare_legacy(capabilities)) == others | {
        "extensions": extensions,
        "tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}},
    }
    for declare in (declare_modern, declare_legacy):
        once = declare(capabilities)
        assert declare(once) == once


@pytest.mark.parametrize("broken", [b"[]", b"null", b'{"x":1,"x":1}', b"{"])
def test_broken_capabilities_are_refused(broken: bytes) -> None:
    """Unreadable capabilities cannot be extended."""
    for declare in (declare_modern, declare_legacy):
        with pytest.raises(RemoteProtocolError):
            declare(broken)


# --- Tools ----------------------------------------------------------------------------------------------------------

BY_WORD = {"required": Support.REQUIRED, "optional": Support.OPTIONAL, "forbidden": Support.FORBIDDEN}
WORDS = st.sampled_from([*BY_WORD, "sometimes", None, 5])
EXECUTIONS = st.fixed_dictionaries({}, optional={"taskSupport": WORDS, "x": st.just(1.0)}) | st.none() | st.just([1])
TOOLS = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from("abcde")}, optional={"execution": EXECUTIONS, "title": st.just("")}),
    max_size=5,
    unique_by=lambda tool: str(tool["name"]),
)
DECISIONS = st.fixed_dictionaries(dict.fromkeys("abcde", st.none() | st.sampled_from(Support)))


def listed(tools: list[dict[str, object]], space: str = "") -> bytes:
    separators = ("," + space, ":" + space)
    return json.dumps({"tools": tools, "nextCursor": "n"}, separators=separators).encode()


def support_of(tool: dict[str, object]) -> Support | None:
    """The support that a tool declares, read the slow way."""
    execution = tool.get("execution")
    word = execution.get("taskSupport") if isinstance(execution, dict) else None
    return None if word is None else BY_WORD.get(str(word), Support.FORBIDDEN)


def is_known(execution: object) -> bool:
    """True if the declaration need not change to keep its meaning."""
    return not isinstance(execution, dict) or execution.get("taskSupport", "required") in BY_WORD


@given(tools=TOOLS)
def test_support_is_read_tool_by_tool(tools: list[dict[str, object]]) -> None:
    """A tool without a declaration is left out; an unknown word forbids."""
    expected = {str(tool["name"]): support for tool in tools if (support := support_of(tool)) is not None}
    assert read_support(listed(tools)) == expected


@given(tools=TOOLS, decisions=DECISIONS, space=st.sampled_from(["", " "]))
def test_each_tool_shows_the_decided_support(
    tools: list[dict[str, object]], decisions: dict[str, Support | None], space: str
) -> None:
    """The decision gets each tool's own support; showing the result again changes no byte, and other members stay."""
    received: dict[str, Support | None] = {}

    def decide(name: str, support: Support | None) -> Support | None:
        received[name] = support
        return decisions[name]

    result = listed(tools, space)
    shown = show_support(result, decide)
    assert received == {str(tool["name"]): support_of(tool) for tool in tools}
    assert read_support(shown) == {name: support for name in received if (support := decisions[name]) is not None}
    assert show_support(shown, decide) == shown
    for old, new in zip(tools, json.loads(shown)["tools"], strict=True):
        check_execution(old.pop("execution", None), new.pop("execution", None), decisions[str(old["name"])])
        assert new == old


def check_execution(old: object, new: object, decision: Support | None) -> None:
    rest = {key: value for key, value in old.items() if key != "taskSupport"} if isinstance(old, dict) else {}
    if decision is not None:
        assert new == rest | {"taskSupport": decision.value}
    elif isinstance(old, dict) and "taskSupport" in old:
        assert new == (rest or None)
    else:
        assert new == old


@given(tools=TOOLS, space=st.sampled_from(["", " "]))
def test_unchanged_support_leaves_the_list_unchanged(tools: list[dict[str, object]], space: str) -> None:
    """A list of known words passes byte for byte."""
    known = [tool for tool in tools if is_known(tool.get("execution"))]
    result = listed(known, space)
    assert show_support(result, lambda name, support: support) is result


@pytest.mark.parametrize(
    "result",
    [
        b"{}",
        b'{"tools":null}',
        b'{"tools":[1,[],{"title":"no name","execution":{"taskSupport":"optional"}}]}',
        b'{"tools":[{"name":"a","execution":{"taskSupport":"\\u0072equired"}}]}',
    ],
)
def test_an_entry_that_is_no_tool_is_left_alone(result: bytes) -> None:
    """A tool that declares the decided support already is left alone, too, however it is spelled."""
    assert show_support(result, lambda name, support: Support.REQUIRED) is result


@pytest.mark.parametrize(
    ("tool", "shown"),
    [
        (b'{"name":"half \\ud83d"}', b'{"name":"half \\ud83d","execution":{"taskSupport":"required"}}'),
        (
            b'{ "name":"a", "execution":null, "x":1.0 }',
            b'{ "name":"a", "execution":{"taskSupport":"required"}, "x":1.0 }',
        ),
    ],
)
def test_odd_tools_show_the_decided_support(tool: bytes, shown: bytes) -> None:
    """A cut name, or an `execution` that is no object, does not prevent it."""
    made = show_support(b'{"tools":[ %b ]}' % tool, lambda name, support: Support.REQUIRED)
    assert made == b'{"tools":[ %b ]}' % shown


def test_of_two_tools_with_one_name_the_first_counts() -> None:
    """A call reaches the first of the two."""
    tools = [{"name": "a", "execution": {"taskSupport": word}} for word in ("required", "forbidden")]
    assert read_support(json.dumps({"tools": tools}).encode()) == {"a": Support.REQUIRED}


KEYS = st.sampled_from(["tools", "name", "execution", "taskSupport", "tasks", "requests", "call", "extensions", TASKS])
JSONS = st.recursive(
    st.none() | st.booleans() | st.sampled_from([1, "", "a", "required", "\ud800"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(data=JSONS.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=30))
def test_any_input_is_read_or_refused(data: bytes) -> None:
    """Readers never raise, and writers raise one error."""
    server_abilities(data, is_stateless=False)
    server_abilities(data, is_stateless=True)
    read_support(data)
    for write in (declare_legacy, declare_modern):
        with suppress(RemoteProtocolError):
            write(data)
    with suppress(RemoteProtocolError):
        show_support(data, lambda name, support: Support.OPTIONAL)


@pytest.mark.parametrize(
    "tool",
    [
        {"execution": {"taskSupport": "required"}},
        {"name": None, "execution": {"taskSupport": "required"}},
        {"name": 7, "execution": {"taskSupport": "required"}},
        {"name": "b"},
        {"name": "b", "execution": None},
        {"name": "b", "execution": {}},
        {"name": "b", "execution": {"taskSupport": None}},
        "b",
        None,
    ],
    ids=str,
)
def test_a_tool_without_a_name_or_a_declaration_is_left_out(tool: object) -> None:
    """The tool does not hide the one after it."""
    named = {"name": "a", "execution": {"taskSupport": "optional"}}
    assert read_support(json.dumps({"tools": [tool, named]}).encode()) == {"a": Support.OPTIONAL}
