"""Tests of a process that several sessions share: which session a server request is for, which sessions get a
notification, and what the server is asked for on behalf of all."""

from __future__ import annotations

import itertools
import json

import pytest
from isthmus.core.base.errors import RemoteProtocolError
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.log_levels import LEVELS
from isthmus.core.base.methods import MAY_ASK
from isthmus.core.state.exchange import Exchange, ExchangeKey, Reply
from isthmus.core.state.link import Link, OwnRequest
from isthmus.core.state.session import Session
from isthmus.core.state.shared_process import CANCELLED_MAX, NEEDED, Member, SharedProcess, shared_initialize_params
from isthmus.core.state.stream import Stream
from parts import lone_link, lone_session


def session(sid: str) -> Session:
    return lone_session(sid)


def exchange(sid: str, method: str = "tools/call", params: bytes | None = b"{}", number: int | None = 1) -> Exchange:
    channel = ChannelId(1)
    made = Exchange(
        ExchangeKey(channel, 0),
        Reply(Stream(channel), ends_channel=True, can_stream=True),
        sid=sid,
        id_raw=b"1",
        id_key=("n", 1),
        method=method,
        params=params,
        token_raw=None,
    )
    made.upstream_id = number
    return made


def shared(*sids: str, capabilities: str = "{}") -> tuple[SharedProcess, Link]:
    made = SharedProcess()
    link = lone_link(shared_process=made)
    for sid in sids:
        made.members[sid] = Member(session(sid), b'{"capabilities":%b}' % capabilities.encode())
    return made, link


def sids(sessions: list[Session]) -> str:
    return "".join(each.sid for each in sessions)


# --- What is fixed ----------------------------------------------------------------------------------------------------


def test_a_shared_process_is_initialized_with_all_capabilities() -> None:
    """The revision is the newest one with a handshake."""
    assert json.loads(shared_initialize_params("isthmus", "1.2")) == {
        "protocolVersion": "2025-11-25",
        "capabilities": {"roots": {"listChanged": True}, "sampling": {}, "elicitation": {"form": {}, "url": {}}},
        "clientInfo": {"name": "isthmus", "version": "1.2"},
    }


@pytest.mark.parametrize("capability", ["sampling", "elicitation", "roots"])
@pytest.mark.parametrize(
    ("method", "needed"),
    [
        ("sampling/createMessage", "sampling"),
        ("elicitation/create", "elicitation"),
        ("roots/list", "roots"),
        ("ping", None),
    ],
)
def test_a_client_without_the_capability_cannot_be_asked(method: str, needed: str | None, capability: str) -> None:
    made, _ = shared("a", capabilities=json.dumps({capability: {}}))
    assert made.can_be_asked(made.members["a"].session, method) is (needed in (None, capability))
    assert set(NEEDED) == {"sampling/createMessage", "elicitation/create", "roots/list"}


def test_servers_may_ask_during_these_requests() -> None:
    assert {"tools/call", "prompts/get", "resources/read"} == MAY_ASK


@pytest.mark.parametrize(
    ("initialize", "found"),
    [
        (b'{"capabilities":{"roots":{},"x":1}}', {"roots", "x"}),
        (b'{"capabilities":{}}', set()),
        (b'{"capabilities":["roots"]}', set()),
        (b'{"capabilities":null}', set()),
        (b"{}", set()),
        (b"[]", None),
        (b'{"capabilities":{},"capabilities":{}}', None),
        (b'{"capabilities":{"a":1,"a":2}}', None),
    ],
)
def test_the_capabilities_of_a_member_are_those_it_declared(initialize: bytes, found: set[str] | None) -> None:
    if found is None:
        with pytest.raises(RemoteProtocolError):
            Member(session("a"), initialize)
        return
    member = Member(session("a"), initialize)
    assert (member.capabilities, member.level, member.subscriptions) == (found, None, {})


# --- Server requests --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pending", "cancelled", "tasks", "asker"),
    [(*three, None) for three in itertools.product(("", "ab"), ("", "ab"), ("", "ab")) if any(three)]
    + [("a", "", "", "a"), ("", "a", "", "a"), ("", "", "a", "a"), ("aa", "a", "a", "a")]
    + [("a", "b", "", None), ("a", "", "b", None), ("", "a", "b", None), ("", "", "", None), ("x", "", "", None)],
)
def test_the_only_session_that_is_served_is_asked(pending: str, cancelled: str, tasks: str, asker: str | None) -> None:
    """A session is served by an open request, a cancelled one, or a task. Requests of our own belong to no session."""
    made, link = shared("a", "b", "c")
    link.pending[99] = OwnRequest("schemas", 1)
    for number, sid in enumerate(pending):
        link.pending[number] = exchange(sid)
    for number, sid in enumerate(cancelled):
        made.remember_cancelled(exchange(sid, number=number), 10.0)
    link.upstream_tasks = {f"t{number}": exchange(sid) for number, sid in enumerate(tasks)}
    found = made.asker(link, 0.0)
    assert (None if found is None else found.sid) == asker
    assert made.is_quiet(link) is not bool(pending or cancelled or tasks)


def test_the_only_member_is_asked_without_any_request() -> None:
    alone, alone_link = shared("a")
    found = alone.asker(alone_link, 0.0)
    assert found is not None and found.sid == "a"
    alone_link.pending[1] = exchange("b")
    assert alone.asker(alone_link, 0.0) is None, "the request is of a session that has left"
    assert SharedProcess().asker(lone_link(), 0.0) is None


@pytest.mark.parametrize("now", [4.9, 5.0, 5.1])
def test_a_cancelled_request_counts_for_a_while(now: float) -> None:
    """A cancelled request counts until its time is over, until it is answered late, or until its process is gone."""
    made, link = shared("a", "b")
    made.remember_cancelled(exchange("a", number=1), 5.0)
    made.remember_cancelled(exchange("b", number=2), 6.0)
    found = made.asker(link, now)
    assert (None if found is None else found.sid) == ("b" if now >= 5.0 else None)
    made.forget_cancelled(2)
    made.forget_cancelled(77)
    found = made.asker(link, now)
    assert (None if found is None else found.sid) == ("a" if now < 5.0 else None)
    assert made.receive_lost() == []
    assert made.asker(link, now) is None
    assert made.is_quiet(link)


def test_so_many_cancelled_requests_are_remembered() -> None:
    """The oldest is forgotten first."""
    assert CANCELLED_MAX == 256
    made, link = shared("a", "b")
    made.remember_cancelled(exchange("b", number=0), 5.0)
    for number in range(1, CANCELLED_MAX):
        made.remember_cancelled(exchange("a", number=number), 5.0)
    assert made.asker(link, 0.0) is None
    made.remember_cancelled(exchange("a", number=CANCELLED_MAX), 5.0)
    found = made.asker(link, 0.0)
    assert found is not None and found.sid == "a"


# --- Notifications ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_anyones", [False, True])
@pytest.mark.parametrize("asker", ["", "a", "b"])
@pytest.mark.parametrize("method", ["notifications/tools/list_changed", "notifications/x", "notifications/message"])
def test_a_notification_without_a_request_goes_to_the_asker_or_to_all(
    method: str, asker: str, is_anyones: bool
) -> None:
    made, _ = shared("a", "b")
    asked = made.members[asker].session if asker else None
    expected = "ab" if is_anyones or method.endswith("/list_changed") else asker
    assert sids(made.hearers(method, None, asked, is_anyones=is_anyones)) == expected


@pytest.mark.parametrize(
    ("uri", "receivers"), [("x", "ac"), ("y", "b"), ("z", "abc"), (None, "abc")], ids=["two", "one", "none", "missing"]
)
def test_an_update_of_a_resource_goes_to_its_subscribers(uri: str | None, receivers: str) -> None:
    """An update of a URI that no session subscribed to, or without one, goes to all sessions with any subscription."""
    made, _ = shared("a", "b", "c", "d")
    for sid, wanted in (("a", "x"), ("b", "y"), ("c", "x")):
        made.members[sid].subscriptions[wanted] = None
    params = json.dumps({} if uri is None else {"uri": uri}).encode()
    assert sids(made.hearers("notifications/resources/updated", params, None, is_anyones=False)) == receivers


@pytest.mark.parametrize("level", [*LEVELS, "unheard-of", None])
def test_a_log_message_goes_to_sessions_that_want_its_level(level: str | None) -> None:
    made, _ = shared("a", "b", "c")
    made.members["a"].level, made.members["b"].level = 0, 4
    params = json.dumps({} if level is None else {"level": level}).encode()
    expected = "ac" if level in LEVELS[:4] else "abc"
    assert sids(made.hearers("notifications/message", params, None, is_anyones=True)) == expected


# --- Settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "wanted", "sent", "is_known"),
    [
        ({}, "error", "error", False),
        ({"b": 4}, "error", "error", True),
        ({"b": 3}, "error", "warning", True),
        ({"b": 5}, "error", "error", False),
        ({"a": 0}, "error", "error", False),
        ({"a": 4}, "error", "error", True),
        ({"a": 0, "b": 2}, "error", "notice", False),
    ],
)
def test_the_server_gets_the_most_detailed_level_that_any_session_wants(
    before: dict[str, int], wanted: str, sent: str, is_known: bool
) -> None:
    """The request is answered without the server if its level does not change."""
    made, _ = shared("a", "b")
    for sid, level in before.items():
        made.members[sid].level = level
    request = exchange("a", "logging/setLevel", b'{"level":"%b","x":1}' % wanted.encode())
    assert made.receive_setting(request) is is_known
    assert made.members["a"].level == LEVELS.index(wanted)
    assert json.loads(request.params or b"") == {"level": sent, "x": 1}


@pytest.mark.parametrize("params", [None, b"{}", b'{"level":"loud"}', b'{"level":3}'])
def test_an_invalid_level_is_left_to_the_server_to_refuse(params: bytes | None) -> None:
    made, _ = shared("a")
    request = exchange("a", "logging/setLevel", params)
    assert made.receive_setting(request) is False
    assert (request.params, made.members["a"].level) == (params, None)


def test_a_subscription_ends_with_its_last_session() -> None:
    made, _ = shared("a", "b")
    for sid in "ab":
        assert made.receive_setting(exchange(sid, "resources/subscribe", b'{"uri":"x"}')) is False
    assert made.receive_setting(exchange("a", "resources/unsubscribe", b'{"uri":"x"}')) is True
    assert made.receive_setting(exchange("a", "resources/unsubscribe", b'{"uri":"never"}')) is False
    assert made.receive_setting(exchange("b", "resources/unsubscribe", b'{"uri":"x"}')) is False
    assert [made.members[sid].subscriptions for sid in "ab"] == [{}, {}]
    for method in ("resources/subscribe", "resources/unsubscribe", "tools/call"):
        assert made.receive_setting(exchange("a", method, b"{}")) is False
        assert made.receive_setting(exchange("a", method, b'{"uri":7}')) is False
    assert made.receive_setting(exchange("a", "tools/call", b'{"uri":"y"}')) is False
    assert made.members["a"].subscriptions == {}


def test_leaving_ends_the_subscriptions_of_that_session_alone() -> None:
    """The URIs are sorted, so that equal seeds give equal traces."""
    made, _ = shared("a", "b")
    made.members["a"].subscriptions.update(dict.fromkeys("zxy"))
    made.members["b"].subscriptions["x"] = None
    gone = made.members["a"].session
    assert made.leave(gone) == ["y", "z"]
    assert list(made.members) == ["b"]
    assert made.leave(made.members["b"].session) == ["x"]


@pytest.mark.parametrize(
    ("own", "others", "wanted", "sent", "kept"),
    [
        (None, None, "error", "error", 4),
        (None, 2, "error", "notice", 4),
        (6, None, "error", "error", 4),
        (2, None, "error", "notice", 2),
        (2, 0, "error", "debug", 2),
    ],
)
def test_the_level_of_a_request_never_lowers_the_detail(
    own: int | None, others: int | None, wanted: str, sent: str, kept: int
) -> None:
    made, _ = shared("a", "b")
    made.members["a"].level, made.members["b"].level = own, others
    assert made.want_level(made.members["a"].session, wanted) == sent
    assert made.members["a"].level == kept
