"""A crowd of sessions before one process: whose doing it is, who hears of it, and what all of them together want."""

from __future__ import annotations

import itertools
import json

import pytest
from isthmus.core.base.errors import RemoteProtocolError
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.base.log_levels import LEVELS
from isthmus.core.base.methods import MAY_ASK
from isthmus.core.base.plan import Kind, ServerPlan
from isthmus.core.state.exchange import Exchange, ExchangeKey, Reply
from isthmus.core.state.link import Errand, Link
from isthmus.core.state.session import Session
from isthmus.core.state.stream import Stream
from isthmus.core.upstream.shared_process import GHOSTS_MAX, NEEDED, Crowd, Share, greeting


def session(sid: str) -> Session:
    return Session(id=f"id of {sid}", sid=sid, workspace="w", server="s", principal="p", pipe=None, base_url="")


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


def crowd(*sids: str, capabilities: str = "{}") -> tuple[Crowd, Link]:
    link = Link("l", ServerPlan(id="s", kind=Kind.PIPE), "w", b"{}", Limits())
    made = Crowd(link)
    for sid in sids:
        made.shares[sid] = Share(session(sid), b'{"capabilities":%b}' % capabilities.encode())
    return made, link


def sids(sessions: list[Session]) -> str:
    return "".join(each.sid for each in sessions)


# --- What is fixed ----------------------------------------------------------------------------------------------------


def test_a_shared_process_is_greeted_as_any_client_could_be() -> None:
    """All that clients can have, in the newest revision with a handshake."""
    assert json.loads(greeting("1.2")) == {
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
def test_who_cannot_is_not_asked(method: str, needed: str | None, capability: str) -> None:
    made, _ = crowd("a", capabilities=json.dumps({capability: {}}))
    assert made.can_be_asked(made.shares["a"].session, method) is (needed in (None, capability))
    assert set(NEEDED) == {"sampling/createMessage", "elicitation/create", "roots/list"}


def test_in_the_course_of_which_requests_servers_ask() -> None:
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
def test_what_a_client_can_do_is_what_it_declared(initialize: bytes, found: set[str] | None) -> None:
    if found is None:
        with pytest.raises(RemoteProtocolError):
            Share(session("a"), initialize)
        return
    share = Share(session("a"), initialize)
    assert (share.capabilities, share.level, share.subscriptions) == (found, None, {})


# --- Whose it is ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pending", "ghosts", "remotes", "asker"),
    [(*three, None) for three in itertools.product(("", "ab"), ("", "ab"), ("", "ab")) if any(three)]
    + [("a", "", "", "a"), ("", "a", "", "a"), ("", "", "a", "a"), ("aa", "a", "a", "a")]
    + [("a", "b", "", None), ("a", "", "b", None), ("", "a", "b", None), ("", "", "", None), ("x", "", "", None)],
)
def test_whoever_alone_is_served_is_who_is_asked(pending: str, ghosts: str, remotes: str, asker: str | None) -> None:
    """By a request that is open, one that was cancelled, or a task. Requests of our own are nobody's."""
    made, link = crowd("a", "b", "c")
    link.pending[99] = Errand("schemas", 1)
    for number, sid in enumerate(pending):
        link.pending[number] = exchange(sid)
    for number, sid in enumerate(ghosts):
        made.remember_ghost(exchange(sid, number=number), 10.0)
    link.remotes = {f"t{number}": exchange(sid) for number, sid in enumerate(remotes)}
    found = made.asker(0.0)
    assert (None if found is None else found.sid) == asker
    assert made.is_quiet is not bool(pending or ghosts or remotes)


def test_the_only_one_there_is_asked_without_any_request() -> None:
    alone, link = crowd("a")
    found = alone.asker(0.0)
    assert found is not None and found.sid == "a"
    link.pending[1] = exchange("b")
    assert alone.asker(0.0) is None, "it is for one that has left"
    assert crowd()[0].asker(0.0) is None


@pytest.mark.parametrize("now", [4.9, 5.0, 5.1])
def test_a_cancelled_request_is_somebodys_for_a_while(now: float) -> None:
    """Until then, or until it is answered late, or its process is gone."""
    made, _ = crowd("a", "b")
    made.remember_ghost(exchange("a", number=1), 5.0)
    made.remember_ghost(exchange("b", number=2), 6.0)
    found = made.asker(now)
    assert (None if found is None else found.sid) == ("b" if now >= 5.0 else None)
    made.forget_ghost(2)
    made.forget_ghost(77)
    found = made.asker(now)
    assert (None if found is None else found.sid) == ("a" if now < 5.0 else None)
    made.forget_ghosts()
    assert made.asker(now) is None
    assert made.is_quiet


def test_so_many_cancelled_requests_are_remembered() -> None:
    """The oldest is forgotten first."""
    assert GHOSTS_MAX == 256
    made, _ = crowd("a", "b")
    made.remember_ghost(exchange("b", number=0), 5.0)
    for number in range(1, GHOSTS_MAX):
        made.remember_ghost(exchange("a", number=number), 5.0)
    assert made.asker(0.0) is None
    made.remember_ghost(exchange("a", number=GHOSTS_MAX), 5.0)
    found = made.asker(0.0)
    assert found is not None and found.sid == "a"


# --- Who hears of it --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_anyones", [False, True])
@pytest.mark.parametrize("asker", ["", "a", "b"])
@pytest.mark.parametrize("method", ["notifications/tools/list_changed", "notifications/x", "notifications/message"])
def test_who_is_told_of_what_names_no_request(method: str, asker: str, is_anyones: bool) -> None:
    made, _ = crowd("a", "b")
    whose = made.shares[asker].session if asker else None
    expected = "ab" if is_anyones or method.endswith("/list_changed") else asker
    assert sids(made.hearers(method, None, whose, is_anyones=is_anyones)) == expected


@pytest.mark.parametrize(
    ("uri", "told"), [("x", "ac"), ("y", "b"), ("z", "abc"), (None, "abc")], ids=["two", "one", "none", "unsaid"]
)
def test_of_a_resource_those_are_told_who_subscribed(uri: str | None, told: str) -> None:
    """Or, where it is named as nobody named it, all who subscribed to any."""
    made, _ = crowd("a", "b", "c", "d")
    for sid, wanted in (("a", "x"), ("b", "y"), ("c", "x")):
        made.shares[sid].subscriptions[wanted] = None
    params = json.dumps({} if uri is None else {"uri": uri}).encode()
    assert sids(made.hearers("notifications/resources/updated", params, None, is_anyones=False)) == told


@pytest.mark.parametrize("level", [*LEVELS, "unheard-of", None])
def test_of_messages_those_are_told_who_want_so_little(level: str | None) -> None:
    made, _ = crowd("a", "b", "c")
    made.shares["a"].level, made.shares["b"].level = 0, 4
    params = json.dumps({} if level is None else {"level": level}).encode()
    expected = "ac" if level in LEVELS[:4] else "abc"
    assert sids(made.hearers("notifications/message", params, None, is_anyones=True)) == expected


# --- Wishes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "wanted", "told", "is_known"),
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
def test_the_server_is_told_the_least_that_any_wants(
    before: dict[str, int], wanted: str, told: str, is_known: bool
) -> None:
    """Where that is as before, it need not hear of it."""
    made, _ = crowd("a", "b")
    for sid, level in before.items():
        made.shares[sid].level = level
    wish = exchange("a", "logging/setLevel", b'{"level":"%b","x":1}' % wanted.encode())
    assert made.receive_wish(wish) is is_known
    assert made.shares["a"].level == LEVELS.index(wanted)
    assert json.loads(wish.params or b"") == {"level": told, "x": 1}


@pytest.mark.parametrize("params", [None, b"{}", b'{"level":"loud"}', b'{"level":3}'])
def test_a_level_that_is_none_is_the_servers_to_refuse(params: bytes | None) -> None:
    made, _ = crowd("a")
    wish = exchange("a", "logging/setLevel", params)
    assert made.receive_wish(wish) is False
    assert (wish.params, made.shares["a"].level) == (params, None)


def test_a_subscription_ends_for_the_server_with_the_last_that_has_it() -> None:
    made, _ = crowd("a", "b")
    for sid in "ab":
        assert made.receive_wish(exchange(sid, "resources/subscribe", b'{"uri":"x"}')) is False
    assert made.receive_wish(exchange("a", "resources/unsubscribe", b'{"uri":"x"}')) is True
    assert made.receive_wish(exchange("a", "resources/unsubscribe", b'{"uri":"never"}')) is False
    assert made.receive_wish(exchange("b", "resources/unsubscribe", b'{"uri":"x"}')) is False
    assert [made.shares[sid].subscriptions for sid in "ab"] == [{}, {}]
    for method in ("resources/subscribe", "resources/unsubscribe", "tools/call"):
        assert made.receive_wish(exchange("a", method, b"{}")) is False
        assert made.receive_wish(exchange("a", method, b'{"uri":7}')) is False
    assert made.receive_wish(exchange("a", "tools/call", b'{"uri":"y"}')) is False
    assert made.shares["a"].subscriptions == {}


def test_who_leaves_takes_what_only_it_wanted() -> None:
    """In order, so that equal seeds give equal histories."""
    made, _ = crowd("a", "b")
    made.shares["a"].subscriptions.update(dict.fromkeys("zxy"))
    made.shares["b"].subscriptions["x"] = None
    gone = made.shares["a"].session
    assert made.leave(gone) == ["y", "z"]
    assert list(made.shares) == ["b"]
    assert made.leave(made.shares["b"].session) == ["x"]


@pytest.mark.parametrize(
    ("own", "others", "wanted", "told", "kept"),
    [
        (None, None, "error", "error", 4),
        (None, 2, "error", "notice", 4),
        (6, None, "error", "error", 4),
        (2, None, "error", "notice", 2),
        (2, 0, "error", "debug", 2),
    ],
)
def test_a_request_wants_no_less_than_any_before_it(
    own: int | None, others: int | None, wanted: str, told: str, kept: int
) -> None:
    made, _ = crowd("a", "b")
    made.shares["a"].level, made.shares["b"].level = own, others
    assert made.want_level(made.shares["a"].session, wanted) == told
    assert made.shares["a"].level == kept
