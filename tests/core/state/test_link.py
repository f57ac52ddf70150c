"""What a link knows before anything was said, and what it says of those that it stands between."""

from __future__ import annotations

from typing import Any

import pytest
from isthmus.core.base.effects import Cause, Delete, End
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, Selection, ServerPlan, Sharing
from isthmus.core.base.revisions import Era
from isthmus.core.bridge.task_support import Abilities
from isthmus.core.state.exchange import Exchange, ExchangeKey, Reply
from isthmus.core.state.link import (
    NO_QUEUE,
    NOTHING,
    ChildRole,
    Ear,
    Errand,
    FarewellRole,
    Link,
    Notice,
    Passage,
    UpPostRole,
    UpStreamRole,
)
from isthmus.core.state.listen import Filter
from isthmus.core.state.session import Session
from isthmus.core.state.stream import Stream
from isthmus.core.state.upstream_session import Input, State

INITIALIZE = b'{"protocolVersion":"2025-11-25","capabilities":{}}'


def link(kind: Kind = Kind.PIPE, **plan: Any) -> Link:
    return Link("l", ServerPlan(id="s", kind=kind, **plan), "w", INITIALIZE, Limits(restart_backoff_s=4.0))


def session(sid: str = "a", **rest: Any) -> Session:
    made = Session(id=f"i{sid}", sid=sid, workspace="w", server="s", principal="p", pipe=None, base_url="")
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


def test_of_a_server_that_nothing_was_heard_of_nothing_is_known() -> None:
    fresh = link()
    assert (fresh.id, fresh.workspace, fresh.plan.id) == ("l", "w", "s")
    assert fresh.upstream.state is State.IDLE
    assert (fresh.era, fresh.is_stateless) == (Era.HANDSHAKE, False)
    empty: dict[str, Any] = {
        "sessions": {},
        "posts": {},
        "cut": {},
        "pending": {},
        "tried": {},
        "learning": [],
        "ears": {},
        "subscribing": [],
        "supports": {},
        "remotes": {},
        "tokens": {},
        "orphans": {},
        "dialled_with": (),
        "missed": Filter(),
        "abilities": Abilities(calls=False, cancels=False, lists=False),
        "queue": NO_QUEUE,
        "wrapped": NOTHING,
        "parting": NOTHING,
        "leaving": NOTHING,
        "babble": "",
    }
    assert {name: getattr(fresh, name) for name in empty} == empty
    numbers = ("children", "noise", "notices", "last_id", "replaying", "listen_failures", "listen_idle", "pages_read")
    assert {name: getattr(fresh, name) for name in numbers} == dict.fromkeys(numbers, 0)
    facts = (
        "has_files",
        "is_filtered",
        "has_listened",
        "is_asked_again",
        "knows_supports",
        "is_furnished",
        "is_left",
        "is_lent",
    )
    assert {name: getattr(fresh, name) for name in facts} == dict.fromkeys(facts, False)
    unknown = (
        "channel",
        "stream",
        "denial",
        "listen_event_id",
        "is_plain",
        "ferry",
        "refusal",
        "handshake",
        "answered",
        "refused",
        "hints",
        "mirrors",
        "page_read",
        "levelling",
    )
    assert {name: getattr(fresh, name) for name in unknown} == dict.fromkeys(unknown)


@pytest.mark.parametrize("name", ["tools", "prompts", "resources"])
def test_a_plan_that_shows_less_of_anything_filters(name: str) -> None:
    assert link(**{name: Selection(("a",))}).is_filtered
    assert not link(**{name: Selection()}).is_filtered
    assert not link().is_filtered


@pytest.mark.parametrize(("kind", "is_pipe"), [(Kind.PIPE, True), (Kind.SOCKET, True), (Kind.HTTP, False)])
def test_whatever_is_no_http_is_a_pipe(kind: Kind, is_pipe: bool) -> None:
    assert link(kind).is_pipe is is_pipe


@pytest.mark.parametrize("era", Era)
def test_to_be_spoken_to_in_another_way_ends_the_session(era: Era) -> None:
    one = link()
    one.upstream.session = "S1"
    one.speak(era)
    assert (one.era, one.is_stateless, one.upstream.session) == (era, era is Era.STATELESS, None)


def test_numbers_are_counted_from_one() -> None:
    one = link()
    assert [one.next_id() for _ in range(3)] == [1, 2, 3]


def test_what_waits_is_kept_in_its_order_and_of_one_link_alone() -> None:
    """The queue that all share is never written to."""
    one, other = link(), link()
    entries = [exchange(), Notice(b"n", ()), exchange()]
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
def test_a_server_is_awaited_by_who_wants_to_hear_of_changes(
    is_subscribed: bool, rest: dict[str, Any], is_awaited: bool
) -> None:
    one = link(sharing=Sharing.CONCURRENT)
    one.sessions = {"a": session("a"), "b": session("b", **rest)}
    if is_subscribed:
        one.upstream.remember("resources/subscribe", b'{"uri":"a:b"}')
    assert one.is_awaited is is_awaited


def test_who_shares_a_server_sends_it_nobodys_headers() -> None:
    """One that is a session's alone has those of its client."""
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


def test_a_call_goes_by_its_own_link_and_what_belongs_to_none_by_that_of_its_session() -> None:
    own, lent = link(), link()
    lent.is_lent = True
    plain, carried = exchange(), exchange()
    carried.link = "l"
    assert [own.carries(one) for one in (None, plain, carried)] == [True, True, False]
    assert [lent.carries(one) for one in (None, plain, carried)] == [False, False, True]


def test_with_other_credentials_than_were_refused_there_is_no_pause() -> None:
    one = link_with(session("a", headers=(("authorization", "a"),)))
    one.upstream.receive_need()
    one.upstream.receive_lost("no", 100.0, is_forgotten=False)
    assert one.pause_left(100.0) == 4.0
    assert one.pause_left(101.0) == 3.0
    one.dialled_with = (("authorization", "b"),)
    assert one.pause_left(101.0) == 3.0, "it was not the credentials"
    one.denial = Cause(End.REFUSED, status=401)
    assert one.pause_left(101.0) == 0.0
    one.dialled_with = one.headers
    assert one.pause_left(101.0) == 3.0


# --- What is dialled ------------------------------------------------------------------------------------------------


def test_each_channel_knows_what_it_was_dialled_for() -> None:
    one = link(sharing=Sharing.CONCURRENT)
    plain = UpPostRole(one, 7)
    assert (plain.number, plain.own, plain.incarnation, plain.era) == (7, None, one.upstream.incarnation, Era.HANDSHAKE)
    assert (plain.is_confirmation, plain.is_repeated, plain.is_resumed, plain.names_session) == (False,) * 4
    assert (plain.has_begun, plain.has_spoken, plain.problem) == (False, False, "")
    assert (plain.failures, plain.idle, plain.dialled_at) == (0, 0, float("-inf"))
    assert (plain.last_event_id, plain.retry_ms, plain.passage, plain.channel) == (None,) * 4
    one.upstream.session = "S1"
    own = Notice(b"n", ())
    odd = UpPostRole(one, None, own=own, is_confirmation=True, is_repeated=True, is_resumed=True)
    assert (odd.own, odd.is_confirmation, odd.is_repeated, odd.is_resumed, odd.names_session) == (own, *[True] * 4)
    stream = UpStreamRole(one, 5.0)
    assert (stream.dialled_at, stream.has_spoken, stream.is_repeated, stream.names_session) == (5.0, False, False, True)
    assert UpStreamRole(one, 5.0, is_repeated=True).is_repeated
    child = ChildRole(one, is_process=True)
    assert (child.is_process, child.is_repeated, child.feeds_many) == (True, False, True)
    assert not ChildRole(link(), is_process=False).feeds_many
    target = Delete("s", "S1", None, (), ())
    assert (FarewellRole(target).target, FarewellRole(target).is_repeated) == (target, False)
    assert FarewellRole(target, is_repeated=True).is_repeated


def test_what_we_ask_ourselves_says_what_for() -> None:
    errand = Errand("subscribe", 3)
    assert (errand.purpose, errand.incarnation, errand.about, errand.exchange) == ("subscribe", 3, "", None)
    ear = Ear(4, Filter(tools=True))
    assert (ear.number, ear.wanted, ear.granted) == (4, Filter(tools=True), None)
    passage = Passage(ChannelId(2), session(), 10, heard_at=5.0)
    assert (passage.sink, passage.left_bytes, passage.heard_at) == (2, 10, 5.0)


def test_a_server_can_be_told_of_things_while_it_is_ready() -> None:
    one = link()
    assert one.can_be_told is False
    for step in (one.upstream.receive_need, lambda: one.upstream.step(Input.CONNECTED)):
        step()
        assert one.can_be_told is False
    one.upstream.receive_initialized(INITIALIZE)
    one.upstream.step(Input.CONFIRMED)
    one.upstream.step(Input.LISTENED)
    assert one.can_be_told is False
    one.upstream.receive_replayed(1.0)
    assert one.can_be_told is True
    one.upstream.receive_lost("no", 2.0, is_forgotten=False)
    assert one.can_be_told is False
