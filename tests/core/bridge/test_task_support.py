"""Who has tasks: servers and clients in their capabilities, and tool by tool."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.base.errors import RemoteProtocolError
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
from isthmus.core.bridge.tasks import TASKS

NOTHING = Abilities(False, False, False)
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
        (legacy({"requests": {"tools": {"call": {}}}}), Abilities(True, False, False)),
        (legacy({"cancel": {}, "requests": {"tools": {}}}), Abilities(False, True, False)),
        (legacy({"list": {"x": 1}}), Abilities(False, False, True)),
        (declare_legacy(b"{}"), Abilities(True, True, True)),
        (declare_modern(b"{}"), NOTHING),
        (TWICE, NOTHING),
    ],
)
def test_what_a_server_with_sessions_declares(capabilities: bytes | None, expected: Abilities) -> None:
    """Part by part, each an object; what cannot be read declares nothing."""
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
def test_what_peers_without_sessions_declare(capabilities: bytes | None, expected: bool) -> None:
    """One word for servers and clients; it has no list."""
    assert declares(capabilities) == expected
    assert server_abilities(capabilities, is_stateless=True) == Abilities(expected, expected, False)


OTHERS = st.dictionaries(st.sampled_from(["tools", "extensions ", "x"]), st.sampled_from([{}, None, 1.0]))
EXTENSIONS = st.dictionaries(st.sampled_from(["a/b", TASKS]), st.sampled_from([{}, {"x": 1}]))


@given(others=OTHERS, extensions=st.none() | st.just(7) | EXTENSIONS)
def test_what_is_declared_is_read_and_nothing_else_is_touched(others: dict[str, object], extensions: object) -> None:
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
def test_broken_capabilities_are_not_declared_anew(broken: bytes) -> None:
    """Nothing can be added to what cannot be read."""
    for declare in (declare_modern, declare_legacy):
        with pytest.raises(RemoteProtocolError):
            declare(broken)


# --- Tools ----------------------------------------------------------------------------------------------------------

SAID = {"required": Support.REQUIRED, "optional": Support.OPTIONAL, "forbidden": Support.FORBIDDEN}
WORDS = st.sampled_from([*SAID, "sometimes", None, 5])
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


def said(tool: dict[str, object]) -> Support | None:
    """What a tool says, read the slow way."""
    execution = tool.get("execution")
    word = execution.get("taskSupport") if isinstance(execution, dict) else None
    return None if word is None else SAID.get(str(word), Support.FORBIDDEN)


def is_known(execution: object) -> bool:
    """Whether nothing has to be changed for it to say what it says."""
    return not isinstance(execution, dict) or execution.get("taskSupport", "required") in SAID


@given(tools=TOOLS)
def test_support_is_read_tool_by_tool(tools: list[dict[str, object]]) -> None:
    """A tool that says nothing is not named; a word nobody knows forbids."""
    expected = {str(tool["name"]): support for tool in tools if (support := said(tool)) is not None}
    assert read_support(listed(tools)) == expected


@given(tools=TOOLS, decisions=DECISIONS, space=st.sampled_from(["", " "]))
def test_what_is_shown_is_what_was_decided(
    tools: list[dict[str, object]], decisions: dict[str, Support | None], space: str
) -> None:
    """Each tool is asked about with what it said; showing the same again changes no byte, and other members stay."""
    asked: dict[str, Support | None] = {}

    def decide(name: str, support: Support | None) -> Support | None:
        asked[name] = support
        return decisions[name]

    result = listed(tools, space)
    shown = show_support(result, decide)
    assert asked == {str(tool["name"]): said(tool) for tool in tools}
    assert read_support(shown) == {name: support for name in asked if (support := decisions[name]) is not None}
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
def test_what_is_decided_as_it_was_stays_byte_for_byte(tools: list[dict[str, object]], space: str) -> None:
    """A list whose words everybody knows is shown as it came."""
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
def test_what_is_no_tool_is_left_alone(result: bytes) -> None:
    """And so is a tool that says so already, however it is spelled."""
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
def test_odd_tools_say_what_was_decided(tool: bytes, shown: bytes) -> None:
    """A name that is cut, or an `execution` that is no object, is no reason to keep silent."""
    made = show_support(b'{"tools":[ %b ]}' % tool, lambda name, support: Support.REQUIRED)
    assert made == b'{"tools":[ %b ]}' % shown


def test_of_two_tools_with_one_name_the_first_counts() -> None:
    """Whichever is called, it is the one whose name was seen first."""
    tools = [{"name": "a", "execution": {"taskSupport": word}} for word in ("required", "forbidden")]
    assert read_support(json.dumps({"tools": tools}).encode()) == {"a": Support.REQUIRED}


KEYS = st.sampled_from(["tools", "name", "execution", "taskSupport", "tasks", "requests", "call", "extensions", TASKS])
JSONS = st.recursive(
    st.none() | st.booleans() | st.sampled_from([1, "", "a", "required", "\ud800"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(data=JSONS.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=30))
def test_whatever_arrives_declares_something_or_nothing(data: bytes) -> None:
    """Who only reads never raises; who writes raises the one error."""
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
def test_a_tool_that_cannot_be_called_or_says_nothing_is_not_named(tool: object) -> None:
    """Nor does it hide the one after it."""
    named = {"name": "a", "execution": {"taskSupport": "optional"}}
    assert read_support(json.dumps({"tools": [tool, named]}).encode()) == {"a": Support.OPTIONAL}
