"""Subscriptions at their bounds: names, refused steps, the queue's limit and malformed filters."""

from __future__ import annotations

import json
from typing import Any

import pytest
from isthmus.core.base.errors import INVALID_PARAMS, OVERLOADED, LocalProtocolError, RemoteProtocolError
from isthmus.core.state.listen import Listen, ListenInput, ListenState
from isthmus.core.state.listen_filter import (
    ACKNOWLEDGED,
    TASK,
    UPDATED,
    Change,
    ListenFilter,
    format_filter,
    parse_filter,
    recipients,
    tagged,
    untagged,
)

ID = "io.modelcontextprotocol/subscriptionId"
TOOLS = "notifications/tools/list_changed"
PROMPTS = "notifications/prompts/list_changed"
RESOURCES = "notifications/resources/list_changed"
ALL = ListenFilter(True, True, True, frozenset({"a:b", "a:c"}), frozenset({"t1", "t2"}))
WRITTEN = {
    "toolsListChanged": True,
    "promptsListChanged": True,
    "resourcesListChanged": True,
    "resourceSubscriptions": ["a:b", "a:c"],
    "taskIds": ["t1", "t2"],
}


def opened(wanted: ListenFilter = ALL, queue_max: int = 9) -> Listen:
    return Listen(b"7", wanted, queue_max=queue_max)


def read(changes: list[Change]) -> list[tuple[str, Any]]:
    """Changes as the client reads them, under the subscription's id."""
    found = []
    for method, params in changes:
        assert params is not None
        sent = json.loads(params)
        assert sent.pop("_meta") == {ID: 7}
        found.append((method, sent))
    return found


def test_every_name_is_that_of_the_specification() -> None:
    """Source: 2026-07-28 basic/patterns/subscriptions; the tasks extension."""
    listen = opened()
    assert json.loads(format_filter(ALL)) == WRITTEN
    assert parse_filter(json.dumps({"notifications": WRITTEN}).encode(), names_max=4) == ALL
    sent = read(listen.receive_acknowledged(ALL))
    assert sent == [("notifications/subscriptions/acknowledged", {"notifications": WRITTEN})]
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


RECEIVERS = {
    ListenInput.ACKNOWLEDGE: lambda listen: listen.receive_acknowledged(ALL),
    ListenInput.LOSE: lambda listen: listen.receive_lost(),
    ListenInput.RECOVER: lambda listen: listen.receive_recovered(),
    ListenInput.CLOSE: lambda listen: listen.receive_close(),
}
PATHS = {
    ListenState.OPENING: [],
    ListenState.LIVE: [ListenInput.ACKNOWLEDGE],
    ListenState.STALE: [ListenInput.ACKNOWLEDGE, ListenInput.LOSE],
    ListenState.CLOSED: [ListenInput.CLOSE],
}
REFUSED = {
    ListenState.OPENING: ["lose", "recover"],
    ListenState.LIVE: ["acknowledge", "recover"],
    ListenState.STALE: ["acknowledge", "lose"],
    ListenState.CLOSED: ["acknowledge", "lose", "recover", "close"],
}


@pytest.mark.parametrize("state", ListenState)
@pytest.mark.parametrize("given", ListenInput)
def test_an_input_out_of_turn_is_refused_by_name(state: ListenState, given: ListenInput) -> None:
    """A refused input changes nothing."""
    listen = opened()
    for step in PATHS[state]:
        RECEIVERS[step](listen)
    assert listen.state is state
    name = given.name.lower()
    if name in REFUSED[state]:
        with pytest.raises(LocalProtocolError, match=f"Listen is {state.name.lower()}: {name} is not possible there"):
            RECEIVERS[given](listen)
        assert listen.state is state
    else:
        RECEIVERS[given](listen)
        assert listen.state is not state


@pytest.mark.parametrize("method", [TOOLS, UPDATED, TASK])
@pytest.mark.parametrize("is_wanted", [False, True])
@pytest.mark.parametrize("state", ListenState)
def test_a_change_is_sent_kept_or_dropped(state: ListenState, method: str, is_wanted: bool) -> None:
    """A wanted change is sent when live and kept before the acknowledgment; all others are dropped."""
    params = {TOOLS: {}, UPDATED: {"uri": "a:b"}, TASK: {"taskId": "t1"}}[method]
    listen = opened(ALL if is_wanted else ListenFilter(prompts=True))
    for step in PATHS[state]:
        RECEIVERS[step](listen)
    sent = listen.receive_change(method, json.dumps(params).encode())
    assert read(sent) == ([(method, params)] if is_wanted and state is ListenState.LIVE else [])
    if state is ListenState.OPENING:
        sent = listen.receive_acknowledged(ALL)
        assert read(sent)[1:] == ([(method, params)] if is_wanted else [])


def test_the_queue_holds_as_many_changes_as_its_bound() -> None:
    """Up to the bound each change is sent by itself; beyond it, one of each kind is sent."""
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


def test_unwanted_changes_take_no_room_in_the_queue() -> None:
    """Any number of unwanted changes leaves the queue as it was."""
    listen = opened(ListenFilter(tools=True, uris=frozenset({"a:b"})), queue_max=1)
    for number in range(5):
        listen.receive_change(UPDATED, json.dumps({"uri": f"z:{number}"}).encode())
        listen.receive_change(PROMPTS, None)
    listen.receive_change(TOOLS, None)
    assert read(listen.receive_acknowledged(ALL))[1:] == [(TOOLS, {})]


def test_a_change_that_waited_is_sent_once() -> None:
    """An outage repeats only what can be read anew."""
    listen = opened()
    listen.receive_change(TASK, b'{"taskId":"t1"}')
    assert len(listen.receive_acknowledged(ALL)) == 2
    listen.receive_lost()
    assert [method for method, _ in listen.receive_recovered()] == [TOOLS, PROMPTS, RESOURCES, UPDATED, UPDATED]


def test_a_uri_is_below_each_prefix_that_ends_at_a_slash() -> None:
    """The slash may be the first character, too."""
    for above in ("/", "", "/a", "/a/", "/a/b", "/a/b/", "/a/b/cde"):
        assert ListenFilter(uris=frozenset({above})).covers(UPDATED, "/a/b/cde"), above
    for other in ("/a/b/cde/", "/a/b/cde/f", "/a/b/cd", "/b", "a", "a/b/"):
        assert not ListenFilter(uris=frozenset({other})).covers(UPDATED, "/a/b/cde"), other


def test_a_task_notification_goes_to_its_subscribers() -> None:
    """A resource update finds its subscribers by degrees, anything else only the exact ones."""
    filters = {
        1: ListenFilter(tasks=frozenset({"t"})),
        2: ListenFilter(uris=frozenset({"t"})),
        3: ListenFilter(tools=True),
    }
    assert recipients(filters, TASK, "t") == [1]
    assert recipients(filters, TASK, "u") == []
    assert recipients(filters, UPDATED, "t") == [2]
    assert recipients(filters, UPDATED, "u") == [2]
    assert recipients(filters, TOOLS) == [3]
    assert recipients(filters, PROMPTS) == []


@pytest.mark.parametrize(
    ("raw", "code", "message"),
    [
        ('{"resourceSubscriptions":["a","b"],"taskIds":["c","d"]}', OVERLOADED, "got 2 entries in taskIds, expected 1"),
        ('{"resourceSubscriptions":["a","b","c","d"]}', OVERLOADED, "got 4 entries in resourceSubscriptions"),
        ('{"taskIds":["a",1]}', INVALID_PARAMS, "an entry of taskIds"),
        ('{"taskIds":"a"}', INVALID_PARAMS, "another value for taskIds"),
        ('{"promptsListChanged":0}', INVALID_PARAMS, "another value for promptsListChanged, expected true or false$"),
        ("null", INVALID_PARAMS, "got no object notifications in the params of a listen, expected one$"),
    ],
)
def test_a_refusal_names_the_wrong_member(raw: str, code: int, message: str) -> None:
    with pytest.raises(RemoteProtocolError, match=message) as caught:
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
    """An existing `_meta` is kept if it is an object."""
    assert tagged(params, b"7") == with_id % ID.encode()


def test_an_id_is_removed_with_a_meta_that_held_nothing_else() -> None:
    name = ID.encode()
    assert untagged(b'{"_meta":{"%b":7}}' % name) == (None, b"7")
    assert untagged(b'{"_meta":{"%b":7},"a":1}' % name) == (b'{"a":1}', b"7")
    assert untagged(b'{"_meta":{"%b":7,"b":2}}' % name) == (b'{"_meta":{"b":2}}', b"7")
