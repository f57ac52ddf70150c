"""Tests of a link to a server: its state before the handshake, its channel roles, and the tables it gives back at
rest."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from driving import NO_STREAM, Client, Driver, driver, new_client
from inside import Inside
from isthmus.core.base.effects import Delete, Listen
from isthmus.core.base.events import Cause, Connected, End
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, NameFilter, ServerPlan, Sharing
from isthmus.core.base.revisions import Era
from isthmus.core.bridge.task_support import TaskAbilities
from isthmus.core.state.exchange import Exchange, ExchangeKey, Reply
from isthmus.core.state.link import NO_QUEUE, Link, OwnRequest, QueuedNotification
from isthmus.core.state.listen_filter import ListenFilter
from isthmus.core.state.server_subscriptions import UpstreamListen
from isthmus.core.state.session import Session
from isthmus.core.state.stream import Stream
from isthmus.core.state.upstream_channels import (
    DeleteRole,
    DuplexRole,
    PartialAnswer,
    UpstreamPostRole,
    UpstreamStreamRole,
)
from isthmus.core.state.upstream_session import UpstreamSessionInput, UpstreamSessionState
from isthmus.core.upstream.filtering import NameFiltering
from parts import lone_link, lone_session

INITIALIZE = b'{"protocolVersion":"2025-11-25","capabilities":{}}'


def link(kind: Kind = Kind.PIPE, **plan: Any) -> Link:
    return lone_link(
        plan=ServerPlan(id="s", kind=kind, **plan), initialize=INITIALIZE, limits=Limits(restart_backoff_s=4.0)
    )


def session(sid: str = "a", **rest: Any) -> Session:
    made = lone_session(sid)
    for name, value in rest.items():
        setattr(made, name, value)
    return made


def exchange(sid: str = "a") -> Exchange:
    reply = Reply(Stream(ChannelId(9)), ends_channel=True, can_stream=True)
    return Exchange(
        ExchangeKey(ChannelId(9), 0),
        reply,
        sid=sid,
        id_raw=b"1",
        id_key=("n", 1),
        method="m",
        params=None,
        token_raw=None,
    )


def test_a_new_link_knows_nothing_of_its_server() -> None:
    fresh = link()
    assert (fresh.id, fresh.workspace, fresh.plan.id) == ("l", "w", "s")
    assert (fresh.upstream.state, fresh.era, fresh.is_stateless) == (
        UpstreamSessionState.IDLE,
        Era.HANDSHAKE,
        False,
    )
    assert fresh.abilities == TaskAbilities(calls=False, cancels=False, lists=False)
    assert not any((fresh.sessions, fresh.posts, fresh.pending, fresh.queue, fresh.cut, fresh.parting, fresh.leaving))
    assert (fresh.channel, fresh.children, fresh.level, fresh.is_plain) == (None, 0, None, None)
    assert (fresh.handshake.result, fresh.handshake.denial, fresh.handshake.noise) == (None, None, "")
    assert (fresh.get_stream.channel, fresh.get_stream.was_granted, fresh.get_stream.failures) == (None, False, 0)
    assert (fresh.tools.hints, fresh.tools.mirrors, fresh.tools.knows_supports) == (None, None, False)
    assert (fresh.subscriptions.newest, fresh.subscriptions.missed) == (None, ListenFilter())


@pytest.mark.parametrize("name", ["tools", "prompts", "resources"])
def test_a_plan_with_a_name_filter_filters(name: str) -> None:
    assert NameFiltering().is_for(link(**{name: NameFilter(("a",))}).plan)
    assert not NameFiltering().is_for(link(**{name: NameFilter()}).plan)
    assert not NameFiltering().is_for(link().plan)


@pytest.mark.parametrize(("kind", "is_pipe"), [(Kind.PIPE, True), (Kind.SOCKET, True), (Kind.HTTP, False)])
def test_every_transport_but_http_is_a_pipe(kind: Kind, is_pipe: bool) -> None:
    assert link(kind).is_pipe is is_pipe


@pytest.mark.parametrize("era", Era)
def test_a_change_of_era_forgets_the_session(era: Era) -> None:
    one = link()
    one.upstream.session = "S1"
    one.speak(era)
    assert (one.era, one.is_stateless, one.upstream.session) == (era, era is Era.STATELESS, None)


def test_numbers_are_counted_from_one() -> None:
    one = link()
    asked = [exchange() for _ in range(3)]
    assert [one.expect(each) for each in asked] == [1, 2, 3]
    assert [one.settle(2), one.settle(2), one.settle(None)] == [asked[1], None, None]


def test_each_link_has_its_own_queue_in_order() -> None:
    """The empty queue that all links share is never written to."""
    one, other = link(), link()
    entries = [exchange(), QueuedNotification(b"n", ()), exchange()]
    for entry in entries:
        one.enqueue(entry)
    assert list(one.queue) == entries
    assert not other.queue
    assert not NO_QUEUE


@pytest.mark.parametrize(
    ("is_subscribed", "rest", "is_awaited"),
    [
        (False, {}, False),
        (True, {}, True),
        (False, {"listens": {1: None}}, True),
        (False, {"subscriptions": {"a:b": None}}, True),
    ],
)
def test_a_link_is_awaited_by_sessions_that_want_notifications(
    is_subscribed: bool, rest: dict[str, Any], is_awaited: bool
) -> None:
    one = link(sharing=Sharing.CONCURRENT)
    one.sessions = {"a": session("a"), "b": session("b", **rest)}
    if is_subscribed:
        one.upstream.remember("resources/subscribe", b'{"uri":"a:b"}')
    assert one.is_awaited is is_awaited


def test_a_shared_server_gets_no_clients_headers() -> None:
    """A link of a single session has the headers of its client."""
    for sharing, headers in ((Sharing.NONE, (("x", "1"),)), (Sharing.CONCURRENT, ()), (Sharing.SERIAL, ())):
        one = link(sharing=sharing)
        one.sessions = {"a": session("a", headers=(("x", "1"),))}
        assert one.headers == headers
        assert one.is_shared is (sharing is not Sharing.NONE)
    assert link_with(session("a")).session.sid == "a"
    assert link_with(session("a")).session_of(exchange("a")).sid == "a"


def link_with(one: Session) -> Link:
    made = link()
    made.sessions = {one.sid: one}
    return made


def test_a_link_carries_its_own_calls_and_those_of_its_session_without_a_link() -> None:
    own, lent = link(), link()
    lent.is_lent = True
    plain, carried = exchange(), exchange()
    carried.link = "l"
    assert [own.carries(one) for one in (None, plain, carried)] == [True, True, False]
    assert [lent.carries(one) for one in (None, plain, carried)] == [False, False, True]


def test_new_credentials_after_a_refusal_end_the_pause() -> None:
    one = link_with(session("a", headers=(("authorization", "a"),)))
    one.upstream.receive_need()
    one.upstream.receive_lost("no", 100.0, is_forgotten=False)
    assert one.pause_left(100.0) == 4.0
    assert one.pause_left(101.0) == 3.0
    one.handshake.begin((("authorization", "b"),))
    assert one.pause_left(101.0) == 3.0, "it was not the credentials"
    one.handshake.receive_denial(Cause(End.REFUSED, status=401))
    assert one.pause_left(101.0) == 0.0
    one.handshake.begin(one.headers)
    one.handshake.receive_denial(Cause(End.REFUSED, status=401))
    assert one.pause_left(101.0) == 3.0


# --- Channel roles --------------------------------------------------------------------------------------------------


def test_each_role_holds_what_it_was_dialled_for() -> None:
    one = link(sharing=Sharing.CONCURRENT)
    plain = UpstreamPostRole(one, 7)
    assert (plain.number, plain.notification, plain.incarnation, plain.era) == (
        7,
        None,
        one.upstream.incarnation,
        Era.HANDSHAKE,
    )
    assert (plain.is_confirmation, plain.is_repeated, plain.is_resumed, plain.names_session) == (False,) * 4
    assert (plain.has_begun, plain.has_spoken, plain.problem) == (False, False, "")
    assert (plain.failures, plain.idle, plain.dialled_at) == (0, 0, float("-inf"))
    assert (plain.last_event_id, plain.retry_ms, plain.partial_answer, plain.channel) == (None,) * 4
    one.upstream.session = "S1"
    own = QueuedNotification(b"n", ())
    odd = UpstreamPostRole(one, None, notification=own, is_confirmation=True, is_repeated=True, is_resumed=True)
    assert (odd.notification, odd.is_confirmation, odd.is_repeated, odd.is_resumed, odd.names_session) == (
        own,
        *[True] * 4,
    )
    stream = UpstreamStreamRole(one, 5.0)
    assert (stream.dialled_at, stream.has_spoken, stream.is_repeated, stream.names_session) == (5.0, False, False, True)
    assert UpstreamStreamRole(one, 5.0, is_repeated=True).is_repeated
    child = DuplexRole(one, is_process=True)
    assert (child.is_process, child.is_repeated, child.feeds_many) == (True, False, True)
    assert not DuplexRole(link(), is_process=False).feeds_many
    target = Delete("s", "S1", None, (), ())
    assert (DeleteRole(target).target, DeleteRole(target).is_repeated) == (target, False)
    assert DeleteRole(target, is_repeated=True).is_repeated


def test_own_requests_hold_their_purpose() -> None:
    request = OwnRequest("subscribe", 3)
    assert (request.purpose, request.incarnation, request.about, request.exchange) == ("subscribe", 3, "", None)
    listen = UpstreamListen(4, ListenFilter(tools=True))
    assert (listen.number, listen.wanted, listen.granted) == (4, ListenFilter(tools=True), None)
    answer = PartialAnswer(ChannelId(2), session(), 10, heard_at=5.0)
    assert (answer.sink, answer.left_bytes, answer.heard_at) == (2, 10, 5.0)


def test_a_server_takes_notifications_while_it_is_ready() -> None:
    one = link()
    assert one.can_be_told is False
    for step in (one.upstream.receive_need, lambda: one.upstream.step(UpstreamSessionInput.CONNECTED)):
        step()
        assert one.can_be_told is False
    one.upstream.receive_initialized(INITIALIZE)
    one.upstream.step(UpstreamSessionInput.CONFIRMED)
    one.upstream.step(UpstreamSessionInput.LISTENED)
    assert one.can_be_told is False
    one.upstream.receive_replayed(1.0)
    assert one.can_be_told is True
    one.upstream.receive_lost("no", 2.0, is_forgotten=False)
    assert one.can_be_told is False


# --- At rest ----------------------------------------------------------------------------------------------------------

EMPTY = sys.getsizeof({})
HELLO = '{"protocolVersion":"2025-11-25","capabilities":{}}'


def only(world: Driver) -> Link:
    (found,) = Inside(world.engine).links.links.values()
    return found


def sizes(target: Link) -> list[bool]:
    """True for each table that is no larger than an empty one."""
    return [sys.getsizeof(table) == EMPTY for table in (target.posts, target.pending)]


def greeted() -> tuple[Driver, Client, ChannelId]:
    """Returns a client whose server has answered the handshake, and the channel of the event stream asked of it."""
    world = driver()
    client = new_client(world, "http", "http")
    channel = client.initialize()
    world.answer(world.take_sent("initialize"), HELLO, session="S1")
    client.session = world.sent[channel][-1].session
    client.notify("notifications/initialized")
    world.acknowledge(world.take_sent("notifications/initialized"))
    return world, client, world.last_dial(Listen).channel


@pytest.mark.parametrize("is_open", [True, False])
def test_a_link_at_rest_gives_back_the_tables_of_the_handshake(is_open: bool) -> None:
    """The next request finds the tables it needs."""
    world, client, stream = greeted()
    target = only(world)
    assert not target.posts and not target.pending
    assert sizes(target) == [False, False]
    if is_open:
        world.open(stream, Connected())
    else:
        world.end(stream, NO_STREAM)
    assert sizes(target) == [True, True]
    channel = client.request("1", "tools/list")
    world.answer(world.take_sent("tools/list"), '{"tools":[]}')
    assert world.only_message(channel)["result"] == {"tools": []}


def test_a_table_that_is_in_use_is_kept() -> None:
    target = link()
    post, request = ChannelId(3), OwnRequest("replay", 1)
    target.posts[post], target.pending[7] = None, request
    target.rest()
    assert (target.posts, target.pending) == ({post: None}, {7: request})
    del target.posts[post]
    target.rest()
    assert (sizes(target), target.pending) == ([True, False], {7: request})
