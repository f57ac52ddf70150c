"""Subscriptions: notifications that were asked for arrive after the acknowledgment, under the subscription's id, and
none is missed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from isthmus.core.base.errors import INVALID_PARAMS, OVERLOADED, LocalProtocolError, RemoteProtocolError
from isthmus.core.state.listen import Listen, ListenState
from isthmus.core.state.listen_filter import (
    ACKNOWLEDGED,
    LISTS,
    SUBSCRIPTION_ID,
    TASK,
    UPDATED,
    Change,
    ListenFilter,
    format_filter,
    parse_filter,
    recipients,
    subject_of,
    tagged,
    untagged,
)

URIS = st.sampled_from(["file:///a", "file:///a/", "file:///a/b", "file:///a/b/c", "file:///ab", "x:y", ""])
FILTERS = st.builds(
    ListenFilter,
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.frozensets(URIS),
    st.frozensets(st.sampled_from(["t1", "t2"])),
)
METHODS = st.sampled_from([*LISTS, UPDATED, TASK, "notifications/message"])
SUBJECTS = st.one_of(st.none(), URIS, st.sampled_from(["t1", "t2"]))

# --- Filters --------------------------------------------------------------------------------------------------------


@given(one=FILTERS, other=FILTERS, method=METHODS, subject=SUBJECTS)
def test_a_union_covers_what_either_covers(
    one: ListenFilter, other: ListenFilter, method: str, subject: str | None
) -> None:
    assert (one | other).covers(method, subject) == (one.covers(method, subject) or other.covers(method, subject))


@given(one=FILTERS, other=FILTERS, method=METHODS, subject=SUBJECTS)
def test_an_intersection_covers_what_both_cover(
    one: ListenFilter, other: ListenFilter, method: str, subject: str | None
) -> None:
    if (one & other).covers(method, subject):
        assert one.covers(method, subject)
        assert other.covers(method, subject)


@given(one=FILTERS, other=FILTERS)
def test_filters_are_sets(one: ListenFilter, other: ListenFilter) -> None:
    """The laws of union, intersection and difference."""
    assert one | other == other | one
    assert one & other == other & one
    assert one & (one | other) == one == one | (one & other)
    assert (one - other) | (one & other) == one
    assert not (one - other) & other
    assert bool(one) == (one != ListenFilter())


@given(one=FILTERS)
def test_a_filter_is_read_back_as_it_was_written(one: ListenFilter) -> None:
    params = b'{"notifications":%b}' % format_filter(one)
    assert parse_filter(params, names_max=len(one.uris) + len(one.tasks)) == one


def test_a_filter_is_written_as_the_specification_has_it() -> None:
    """Members that are not wanted are omitted. Source: 2026-07-28 basic/patterns/subscriptions, "Notification
    Filter"."""
    wanted = ListenFilter(tools=True, uris=frozenset({"file:///b", "file:///a"}))
    assert format_filter(wanted) == b'{"toolsListChanged":true,"resourceSubscriptions":["file:///a","file:///b"]}'
    assert format_filter(ListenFilter()) == b"{}"


@pytest.mark.parametrize(
    "raw",
    [
        b"{}",
        b'{"toolsListChanged":false,"resourceSubscriptions":[]}',
        b'{"promptsListChanged":null,"resourceSubscriptions":null,"taskIds":null}',
        b'{"other":7,"more":{"a":1,"a":2}}',
    ],
    ids=["empty", "false", "null", "unknown"],
)
def test_params_without_a_filter_want_nothing(raw: bytes) -> None:
    assert parse_filter(b'{"notifications":%b}' % raw, names_max=0) == ListenFilter()


@pytest.mark.parametrize(
    "params",
    [
        None,
        b"{}",
        b"[]",
        b'{"notifications":null}',
        b'{"notifications":[]}',
        b'{"notifications":{"toolsListChanged":1}}',
        b'{"notifications":{"toolsListChanged":"true"}}',
        b'{"notifications":{"resourceSubscriptions":"file:///a"}}',
        b'{"notifications":{"resourceSubscriptions":[1]}}',
        b'{"notifications":{"resourceSubscriptions":["\\ud800"]}}',
        b'{"notifications":{"toolsListChanged":true,"toolsListChanged":false}}',
        b'{"notifications":{},"notifications":{}}',
        b'{"notifications":{"taskIds":{}}}',
    ],
    ids=repr,
)
def test_a_malformed_filter_is_refused(params: bytes | None) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        parse_filter(params, names_max=9)
    assert caught.value.rpc_code == INVALID_PARAMS


def test_a_filter_has_a_bound_of_names() -> None:
    params = b'{"notifications":{"resourceSubscriptions":["a","b"],"taskIds":["t"]}}'
    assert parse_filter(params, names_max=3) == ListenFilter(uris=frozenset("ab"), tasks=frozenset("t"))
    for names_max in range(3):
        with pytest.raises(RemoteProtocolError) as caught:
            parse_filter(params, names_max=names_max)
        assert caught.value.rpc_code == OVERLOADED


# --- Recipients -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("uri", "changed", "is_covered"),
    [
        ("file:///a", "file:///a", True),
        ("file:///a", "file:///a/b", True),
        ("file:///a", "file:///a/b/c", True),
        ("file:///a/", "file:///a/b/c", True),
        ("file:///a/", "file:///a", False),
        ("file:///a", "file:///ab", False),
        ("file:///a/b", "file:///a", False),
        ("file:///A", "file:///a", False),
        ("file:///a", "file:///a?b", False),
        ("x:y", "x:y/z", True),
    ],
)
def test_a_subscription_covers_sub_resources(uri: str, changed: str, is_covered: bool) -> None:
    """An update may be of a sub-resource, but not of a URI that merely begins alike, nor of a parent."""
    assert ListenFilter(uris=frozenset({uri})).covers(UPDATED, changed) == is_covered


@given(filters=st.dictionaries(st.integers(0, 5), FILTERS), method=METHODS, subject=SUBJECTS)
def test_every_subscriber_of_a_uri_gets_its_update(
    filters: dict[int, ListenFilter], method: str, subject: str | None
) -> None:
    """Every subscriber of a URI gets its update, exact ones first; none gets a kind it did not ask for."""
    received = recipients(filters, method, subject)
    for key, one in filters.items():
        is_exact = method == UPDATED and subject in one.uris
        if is_exact or (method != UPDATED and one.covers(method, subject)):
            assert key in received
        if method == UPDATED:
            assert key not in received or one.uris
        elif key in received:
            assert one.covers(method, subject)
    if method == UPDATED and any(one.uris for one in filters.values()):
        assert received


def test_an_update_goes_to_the_nearest_subscribers() -> None:
    filters = {
        name: ListenFilter(uris=frozenset({uri}))
        for name, uri in [("leaf", "x:/a/b"), ("above", "x:/a"), ("off", "y:")]
    }
    filters["lists"] = ListenFilter(tools=True)
    assert recipients(filters, UPDATED, "x:/a/b") == ["leaf"]
    assert recipients(filters, UPDATED, "x:/a/b/c") == ["leaf", "above"]
    assert recipients(filters, UPDATED, "x:/a/c") == ["above"]
    assert recipients(filters, UPDATED, "z:") == ["leaf", "above", "off"]
    assert recipients(filters, "notifications/tools/list_changed") == ["lists"]


# --- Ids ------------------------------------------------------------------------------------------------------------

IDS = st.sampled_from([b"1", b'"1"', b"1.0", b"-7", b'""', b'"\\u0061"', b"9007199254740993"])


@given(
    rest=st.dictionaries(st.sampled_from(["uri", "a", "z"]), st.integers() | st.text(max_size=3)),
    meta=st.none() | st.dictionaries(st.sampled_from(["a", "b"]), st.integers(), min_size=1),
    place=st.integers(0, 3),
    id_raw=IDS,
)
def test_an_id_comes_off_as_it_was_put_on(
    rest: dict[str, Any], meta: dict[str, int] | None, place: int, id_raw: bytes
) -> None:
    """The id keeps its exact type ("1" is not 1), and all other bytes stay as they were."""
    pairs = list(rest.items())
    if meta is not None:
        pairs.insert(place, ("_meta", meta))
    params = json.dumps(dict(pairs), separators=(",", ":")).encode()
    with_id = tagged(params, id_raw)
    assert json.loads(with_id)["_meta"] == {**(meta or {}), SUBSCRIPTION_ID: json.loads(id_raw)}
    assert id_raw in with_id
    without, seen = untagged(with_id)
    assert seen == id_raw
    assert without == (params if pairs else None)


def test_one_id_replaces_another() -> None:
    """The ids of one hop never show on the other."""
    assert untagged(tagged(tagged(b'{"uri":"a"}', b"1"), b'"2"')) == (b'{"uri":"a"}', b'"2"')


@pytest.mark.parametrize(
    "params", [None, b"{}", b'{"_meta":{}}', b'{"_meta":7}', b'{"_meta":{"a":1},"uri":"a"}', b"[]"]
)
def test_params_without_an_id_stay_as_they_are(params: bytes | None) -> None:
    assert untagged(params) == (params, None)


def test_params_that_cannot_carry_an_id_are_refused() -> None:
    for params in (b"[]", b'{"_meta":{},"_meta":{}}', b'{"_meta":{"a":1,"a":1}}'):
        with pytest.raises(RemoteProtocolError):
            tagged(params, b"1")


@pytest.mark.parametrize(
    ("method", "params", "subject"),
    [
        (UPDATED, b'{"uri":"a","taskId":"b"}', "a"),
        (TASK, b'{"uri":"a","taskId":"b"}', "b"),
        ("notifications/message", b'{"uri":"a"}', None),
        (UPDATED, b'{"uri":7}', None),
        (UPDATED, None, None),
    ],
)
def test_a_change_has_one_subject(method: str, params: bytes | None, subject: str | None) -> None:
    assert subject_of(method, params) == subject


# --- The machine ----------------------------------------------------------------------------------------------------

ALL = ListenFilter(True, True, True, frozenset({"file:///a", "x:y"}), frozenset({"t1"}))
TOOLS_CHANGED = "notifications/tools/list_changed"


def updated(uri: str, more: str = "") -> bytes:
    return json.dumps({"uri": uri} | ({"more": more} if more else {})).encode()


def plain(changes: list[Change]) -> list[tuple[str, Any]]:
    """The changes without the subscription id, which each of them must carry."""
    sent = []
    for change in changes:
        params, id_raw = untagged(change.params)
        assert id_raw == b'"7"'
        sent.append((change.method, None if params is None else json.loads(params)))
    return sent


def opened(wanted: ListenFilter = ALL, queue_max: int = 9) -> Listen:
    return Listen(b'"7"', wanted, queue_max=queue_max)


def test_no_notification_precedes_the_acknowledgment() -> None:
    """Earlier changes wait, equal ones as one, and those that were not granted are dropped."""
    listen = opened()
    assert listen.receive_change(UPDATED, updated("x:y", "old")) == []
    for _ in range(3):
        assert listen.receive_change(TOOLS_CHANGED, None) == []
    assert listen.receive_change(UPDATED, updated("x:y", "new")) == []
    assert listen.receive_change("notifications/prompts/list_changed", None) == []
    assert plain(listen.receive_acknowledged(ListenFilter(tools=True, uris=frozenset({"x:y"})))) == [
        (ACKNOWLEDGED, {"notifications": {"toolsListChanged": True, "resourceSubscriptions": ["x:y"]}}),
        (UPDATED, {"uri": "x:y", "more": "new"}),
        (TOOLS_CHANGED, None),
    ]


def test_no_more_is_granted_than_was_wanted() -> None:
    listen = opened(ListenFilter(tools=True))
    assert plain(listen.receive_acknowledged(ALL)) == [(ACKNOWLEDGED, {"notifications": {"toolsListChanged": True}})]
    assert listen.granted == ListenFilter(tools=True)
    assert listen.receive_change(UPDATED, updated("x:y")) == []


def test_a_full_queue_is_made_up_for() -> None:
    """Changes that wait above the bound give way to one of each kind; a task's state is kept, as it cannot be read
    anew."""
    listen = opened(queue_max=2)
    listen.receive_change(TASK, b'{"taskId":"t1","status":"completed"}')
    for n in range(5):
        listen.receive_change(UPDATED, updated(f"file:///a/{n}"))
    sent = plain(listen.receive_acknowledged(ALL))
    assert sent[1:] == [
        *((method, None) for method in LISTS),
        (UPDATED, {"uri": "file:///a"}),
        (UPDATED, {"uri": "x:y"}),
        (TASK, {"taskId": "t1", "status": "completed"}),
    ]


def test_an_outage_is_made_up_for() -> None:
    """An outage is followed by one invalidation for each thing that was acknowledged."""
    listen = opened()
    listen.receive_acknowledged(ListenFilter(prompts=True, uris=frozenset({"x:y"})))
    listen.receive_lost()
    assert listen.receive_change("notifications/prompts/list_changed", None) == []
    assert plain(listen.receive_recovered()) == [
        ("notifications/prompts/list_changed", None),
        (UPDATED, {"uri": "x:y"}),
    ]
    assert plain(listen.receive_change(UPDATED, updated("x:y"))) == [(UPDATED, {"uri": "x:y"})]


def test_a_close_has_a_result() -> None:
    """The result is empty and carries the id. Source: 2026-07-28 basic/patterns/subscriptions, "Graceful Closure"."""
    listen = opened()
    assert json.loads(listen.receive_close()) == {"resultType": "complete", "_meta": {SUBSCRIPTION_ID: "7"}}
    assert listen.is_over
    assert listen.receive_change(TOOLS_CHANGED, None) == []
    for late in (listen.receive_close, listen.receive_lost, listen.receive_recovered):
        with pytest.raises(LocalProtocolError):
            late()


@pytest.mark.parametrize("is_live", [False, True], ids=["opening", "live"])
def test_a_change_that_cannot_be_sent_changes_nothing(is_live: bool) -> None:
    listen = opened()
    if is_live:
        listen.receive_acknowledged(ALL)
    for params in (b'{"_meta":{},"_meta":{}}', b"[]"):
        with pytest.raises(RemoteProtocolError):
            listen.receive_change(TOOLS_CHANGED, params)
    if not is_live:
        assert len(listen.receive_acknowledged(ALL)) == 1


class ListenModel(RuleBasedStateMachine):
    """Checks three properties: the acknowledgment is first; nothing is sent after the end or outside of the granted
    filter; each granted change is followed by a notification, at once, after the acknowledgment or after an outage."""

    def __init__(self) -> None:
        super().__init__()
        self.listen = opened(queue_max=2)
        self.state = ListenState.OPENING
        self.owed: set[tuple[str, str | None]] = set()
        self.granted = ListenFilter()
        self.sent_count = 0

    def take_sent(self, changes: list[Change]) -> None:
        for method, params in plain(changes):
            assert (method == ACKNOWLEDGED) == (self.sent_count == 0)
            self.sent_count += 1
            subject = (params or {}).get("uri")
            assert method == ACKNOWLEDGED or self.granted.covers(method, subject)
            self.owed = {
                (m, s) for m, s in self.owed if m != method or not (s == subject or str(s).startswith(f"{subject}/"))
            }

    @rule(method=st.sampled_from([*LISTS]))
    def change_a_list(self, method: str) -> None:
        self.change(method, None, None)

    @rule(uri=st.sampled_from(["file:///a", "file:///a/1", "file:///a/2", "x:y", "z:"]))
    def change_a_resource(self, uri: str) -> None:
        self.change(UPDATED, uri, updated(uri))

    def change(self, method: str, uri: str | None, params: bytes | None) -> None:
        if self.state is not ListenState.CLOSED:
            self.owed.add((method, uri))
        self.take_sent(self.listen.receive_change(method, params))
        self.settle()

    @precondition(lambda self: self.state is ListenState.OPENING)
    @rule(
        granted=st.builds(
            ListenFilter, st.booleans(), st.booleans(), st.just(False), st.frozensets(st.just("file:///a"))
        )
    )
    def acknowledge(self, granted: ListenFilter) -> None:
        self.state, self.granted = ListenState.LIVE, granted
        self.take_sent(self.listen.receive_acknowledged(granted))
        self.settle()

    @precondition(lambda self: self.state is ListenState.LIVE)
    @rule()
    def lose(self) -> None:
        self.state = ListenState.STALE
        self.listen.receive_lost()

    @precondition(lambda self: self.state is ListenState.STALE)
    @rule()
    def recover(self) -> None:
        self.state = ListenState.LIVE
        self.take_sent(self.listen.receive_recovered())
        self.settle()

    @precondition(lambda self: self.state is not ListenState.CLOSED)
    @rule()
    def close(self) -> None:
        self.state = ListenState.CLOSED
        self.owed = set()
        self.listen.receive_close()

    def settle(self) -> None:
        """A live subscription owes nothing that was granted."""
        assert self.listen.state is self.state
        if self.state is ListenState.LIVE:
            self.owed = {one for one in self.owed if self.granted.covers(*one)}
            assert not self.owed


TestListen = ListenModel.TestCase


WIDE = ListenFilter(tools=True, prompts=True, resources=True, uris=frozenset({"a:b"}), tasks=frozenset({"t"}))


@pytest.mark.parametrize(
    ("method", "subject", "is_covered"),
    [
        (UPDATED, "a:b", True),
        (UPDATED, "t", False),
        (UPDATED, None, False),
        (TASK, "t", True),
        (TASK, "a:b", False),
        (TASK, None, False),
        ("notifications/vendor", "a:b", False),
        ("notifications/vendor", "t", False),
        ("notifications/vendor", None, False),
        *((method, None, True) for method in LISTS),
    ],
)
def test_a_filter_covers_a_change_with_its_subject_only(method: str, subject: str | None, is_covered: bool) -> None:
    """A change without its subject, or of a kind that no subscription can name, is covered by no filter."""
    assert WIDE.covers(method, subject) is is_covered
    assert not ListenFilter().covers(method, subject)
