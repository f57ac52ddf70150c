"""What a subscription is called where it is refused, and what is told of at its edges."""

from __future__ import annotations

import json
from typing import Any

import pytest
from isthmus.core.base.errors import INVALID_PARAMS, OVERLOADED, LocalProtocolError, RemoteProtocolError
from isthmus.core.state.listen import (
    ACKNOWLEDGED,
    TASK,
    UPDATED,
    Change,
    Filter,
    Input,
    Listen,
    State,
    format_filter,
    hearers,
    parse_filter,
    tagged,
    untagged,
)

ID = "io.modelcontextprotocol/subscriptionId"
TOOLS = "notifications/tools/list_changed"
PROMPTS = "notifications/prompts/list_changed"
RESOURCES = "notifications/resources/list_changed"
ALL = Filter(True, True, True, frozenset({"a:b", "a:c"}), frozenset({"t1", "t2"}))
WRITTEN = {
    "toolsListChanged": True,
    "promptsListChanged": True,
    "resourcesListChanged": True,
    "resourceSubscriptions": ["a:b", "a:c"],
    "taskIds": ["t1", "t2"],
}


def opened(wanted: Filter = ALL, queue_max: int = 9) -> Listen:
    return Listen(b"7", wanted, queue_max=queue_max)


def read(changes: list[Change]) -> list[tuple[str, Any]]:
    """As the client reads it: under its id."""
    found = []
    for method, params in changes:
        assert params is not None
        told = json.loads(params)
        assert told.pop("_meta") == {ID: 7}
        found.append((method, told))
    return found


def test_every_name_is_that_of_the_specification() -> None:
    """2026-07-28 basic/patterns/subscriptions; the tasks extension."""
    listen = opened()
    assert json.loads(format_filter(ALL)) == WRITTEN
    assert parse_filter(json.dumps({"notifications": WRITTEN}).encode(), names_max=4) == ALL
    told = read(listen.receive_acknowledged(ALL))
    assert told == [("notifications/subscriptions/acknowledged", {"notifications": WRITTEN})]
    assert (ACKNOWLEDGED, UPDATED, TASK) == (
        "notifications/subscriptions/acknowledged",
        "notifications/resources/updated",
        "notifications/tasks",
    )
    for method, params in (
        (TOOLS, {}),
        (PROMPTS, {}),
        (RESOURCES, {}),
        ("notifications/resources/updated", {"uri": "a:b"}),
        ("notifications/tasks", {"taskId": "t1", "status": "working"}),
    ):
        assert read(listen.receive_change(method, json.dumps(params).encode())) == [(method, params)]
    assert ALL.changes() == [
        Change(TOOLS),
        Change(PROMPTS),
        Change(RESOURCES),
        Change("notifications/resources/updated", b'{"uri":"a:b"}'),
        Change("notifications/resources/updated", b'{"uri":"a:c"}'),
    ]


WISHES = {
    Input.ACKNOWLEDGE: lambda listen: listen.receive_acknowledged(ALL),
    Input.LOSE: lambda listen: listen.receive_lost(),
    Input.RECOVER: lambda listen: listen.receive_recovered(),
    Input.CLOSE: lambda listen: listen.receive_close(),
}
WAYS = {
    State.OPENING: [],
    State.LIVE: [Input.ACKNOWLEDGE],
    State.STALE: [Input.ACKNOWLEDGE, Input.LOSE],
    State.CLOSED: [Input.CLOSE],
}
REFUSED = {
    State.OPENING: ["lose", "recover"],
    State.LIVE: ["acknowledge", "recover"],
    State.STALE: ["acknowledge", "lose"],
    State.CLOSED: ["acknowledge", "lose", "recover", "close"],
}


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("wish", Input)
def test_a_step_out_of_turn_is_refused_by_name(state: State, wish: Input) -> None:
    """And nothing has changed; whatever else is possible there."""
    listen = opened()
    for step in WAYS[state]:
        WISHES[step](listen)
    assert listen.state is state
    name = wish.name.lower()
    if name in REFUSED[state]:
        with pytest.raises(LocalProtocolError, match=f"Listen is {state.name.lower()}: {name} is not possible there"):
            WISHES[wish](listen)
        assert listen.state is state
    else:
        WISHES[wish](listen)
        assert listen.state is not state


@pytest.mark.parametrize("method", [TOOLS, UPDATED, TASK])
@pytest.mark.parametrize("is_wanted", [False, True])
@pytest.mark.parametrize("state", State)
def test_a_change_is_told_kept_or_dropped(state: State, method: str, is_wanted: bool) -> None:
    """It is told where it is wanted and live, kept where it is wanted and not acknowledged yet, and dropped else."""
    params = {TOOLS: {}, UPDATED: {"uri": "a:b"}, TASK: {"taskId": "t1"}}[method]
    listen = opened(ALL if is_wanted else Filter(prompts=True))
    for step in WAYS[state]:
        WISHES[step](listen)
    told = listen.receive_change(method, json.dumps(params).encode())
    assert read(told) == ([(method, params)] if is_wanted and state is State.LIVE else [])
    if state is State.OPENING:
        told = listen.receive_acknowledged(ALL)
        assert read(told)[1:] == ([(method, params)] if is_wanted else [])


def test_a_bound_of_what_waits_is_reached_and_not_yet_exceeded() -> None:
    """Up to the bound all that waits is told, each by itself; beyond it, everything may have changed."""
    listen = opened(queue_max=2)
    for uri in ("a:b", "a:c", "a:b"):
        listen.receive_change(UPDATED, json.dumps({"uri": uri}).encode())
    assert read(listen.receive_acknowledged(ALL))[1:] == [(UPDATED, {"uri": "a:b"}), (UPDATED, {"uri": "a:c"})]
    listen = opened(queue_max=2)
    for id in ("t1", "t2"):
        listen.receive_change(TASK, json.dumps({"taskId": id}).encode())
    listen.receive_change(TOOLS, None)
    assert read(listen.receive_acknowledged(ALL))[1:] == [
        (TOOLS, {}),
        (PROMPTS, {}),
        (RESOURCES, {}),
        (UPDATED, {"uri": "a:b"}),
        (UPDATED, {"uri": "a:c"}),
        (TASK, {"taskId": "t1"}),
        (TASK, {"taskId": "t2"}),
    ]


def test_what_nobody_wants_takes_no_room_while_it_is_opening() -> None:
    """However much of it comes."""
    listen = opened(Filter(tools=True, uris=frozenset({"a:b"})), queue_max=1)
    for number in range(5):
        listen.receive_change(UPDATED, json.dumps({"uri": f"z:{number}"}).encode())
        listen.receive_change(PROMPTS, None)
    listen.receive_change(TOOLS, None)
    assert read(listen.receive_acknowledged(ALL))[1:] == [(TOOLS, {})]


def test_what_waited_is_told_once() -> None:
    """Not again after an outage, of which only what can be read anew is told."""
    listen = opened()
    listen.receive_change(TASK, b'{"taskId":"t1"}')
    assert len(listen.receive_acknowledged(ALL)) == 2
    listen.receive_lost()
    assert [method for method, _ in listen.receive_recovered()] == [TOOLS, PROMPTS, RESOURCES, UPDATED, UPDATED]


def test_a_uri_is_below_all_that_ends_at_a_slash_in_it() -> None:
    """The first character, too, may be one."""
    for above in ("/", "", "/a", "/a/", "/a/b", "/a/b/", "/a/b/cde"):
        assert Filter(uris=frozenset({above})).covers(UPDATED, "/a/b/cde"), above
    for other in ("/a/b/cde/", "/a/b/cde/f", "/a/b/cd", "/b", "a", "a/b/"):
        assert not Filter(uris=frozenset({other})).covers(UPDATED, "/a/b/cde"), other


def test_a_task_is_told_of_to_who_asked_for_it() -> None:
    """An update finds its hearers by degrees, anything else only whom it is for."""
    filters = {1: Filter(tasks=frozenset({"t"})), 2: Filter(uris=frozenset({"t"})), 3: Filter(tools=True)}
    assert hearers(filters, TASK, "t") == [1]
    assert hearers(filters, TASK, "u") == []
    assert hearers(filters, UPDATED, "t") == [2]
    assert hearers(filters, UPDATED, "u") == [2]
    assert hearers(filters, TOOLS) == [3]
    assert hearers(filters, PROMPTS) == []


@pytest.mark.parametrize(
    ("raw", "code", "said"),
    [
        ('{"resourceSubscriptions":["a","b"],"taskIds":["c","d"]}', OVERLOADED, "got 2 entries in taskIds, expected 1"),
        ('{"resourceSubscriptions":["a","b","c","d"]}', OVERLOADED, "got 4 entries in resourceSubscriptions"),
        ('{"taskIds":["a",1]}', INVALID_PARAMS, "an entry of taskIds"),
        ('{"taskIds":"a"}', INVALID_PARAMS, "another value for taskIds"),
        ('{"promptsListChanged":0}', INVALID_PARAMS, "another value for promptsListChanged, expected true or false$"),
        ("null", INVALID_PARAMS, "got no object notifications in the params of a listen, expected one$"),
    ],
)
def test_a_refusal_says_which_member_is_wrong(raw: str, code: int, said: str) -> None:
    with pytest.raises(RemoteProtocolError, match=said) as caught:
        parse_filter(b'{"notifications":%b}' % raw.encode(), names_max=3)
    assert caught.value.rpc_code == code


@pytest.mark.parametrize(
    ("params", "with_id"),
    [
        (None, b'{"_meta":{"%b":7}}'),
        (b"{}", b'{"_meta":{"%b":7}}'),
        (b'{"_meta":null}', b'{"_meta":{"%b":7}}'),
        (b'{"_meta":[1]}', b'{"_meta":{"%b":7}}'),
        (b'{"_meta":{"a":1},"b":2}', b'{"_meta":{"a":1,"%b":7},"b":2}'),
    ],
)
def test_an_id_is_put_into_the_metadata(params: bytes | None, with_id: bytes) -> None:
    """What is there is kept, if it is an object."""
    assert tagged(params, b"7") == with_id % ID.encode()


def test_an_id_is_taken_off_with_what_held_nothing_else() -> None:
    name = ID.encode()
    assert untagged(b'{"_meta":{"%b":7}}' % name) == (None, b"7")
    assert untagged(b'{"_meta":{"%b":7},"a":1}' % name) == (b'{"a":1}', b"7")
    assert untagged(b'{"_meta":{"%b":7,"b":2}}' % name) == (b'{"_meta":{"b":2}}', b"7")
