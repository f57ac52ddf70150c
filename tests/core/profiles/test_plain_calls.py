"""Tests of plain calls through a profile: each has equal effects and deadlines on its fast path and without it."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inside import Inside
from isthmus.core.base.governance import Cleaning
from isthmus.core.base.name_filter import NameFilter
from isthmus.core.base.plan import AccessRules, Kind, Sharing
from isthmus.core.base.revisions import Era
from isthmus.core.profiles import plain_calls
from pairs import ANSWERS, COMBINATIONS, METHODS, ODD_HEADERS, OPERATIONS, PARAMS, SENDERS, Pair, play

PLAIN: Final = (
    ("tools/call", b'{"name":"echo","arguments":{"text":"a"}}'),
    ("tools/call", b'{"name":"echo"}'),
    ("prompts/get", '{"name":"echo","arguments":{"name":"é"}}'.encode()),
    ("resources/read", b'{"uri":"memo:a"}'),
)
"""Calls that the fast path takes."""
UNUSUAL: Final = (
    ("tools/call", b'{"name":"echo","Name":"b"}'),
    ("tools/call", b'{"name":"echo","name":"echo"}'),
    ("tools/call", b'{"name":"echo","arguments":{},"more":1}'),
    ("tools/call", b'{"name": "echo"}'),
    ("tools/call", b'{"name":7}'),
    ("tools/call", b'{"name":"with a-space"}'),
    ("tools/call", b'{"name":"shown-as-abcdef"}'),
    ("tools/call", b'{"name":"%b"}' % (b"n" * 600)),
    ("prompts/get", b'{"name":"echo","arguments":{"x":"task"}}'),
    ("completion/complete", b'{"ref":{"type":"ref/prompt","name":"echo"},"argument":{"name":"a","value":"b"}}'),
)
"""Calls that it leaves, each for one oddity."""
LINKS: Final = (
    b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"resource_link","uri":"memo:a","name":"a"}]}}',
    b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"resource_link","\\u0075ri":"memo:a","name":"a"}]}}',
    b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"a","uri":"memo:a"}]}}',
    b'{"jsonrpc":"2.0","id":%d,"result":{"contents":[{"uri":"memo:a","text":"a"}]}}',
    b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"' + b"x" * 70_000 + b'"}]}}',
)
"""Answers with URIs, in a place for one and elsewhere, and a large one."""


def taken(pair: Pair) -> int:
    assert pair.halves[1].taken == 0
    return pair.halves[0].taken


@pytest.mark.parametrize(("kind", "client", "server"), COMBINATIONS)
@settings(deadline=None, max_examples=15)
@given(operations=st.lists(OPERATIONS, max_size=14))
def test_the_fast_path_has_the_same_effects_as_the_slow_one(
    kind: Kind, client: Era, server: Era, operations: list[tuple[Any, ...]]
) -> None:
    pair = Pair(kind, client, server, "s")
    for name, *given_ in operations:
        play(pair, name, *given_)


@pytest.mark.parametrize(("kind", "client", "server"), COMBINATIONS)
def test_unusual_calls_and_answers_have_the_same_effects(kind: Kind, client: Era, server: Era) -> None:
    def exchange(
        method: str, params: bytes, answer: bytes, sender: dict[str, Any] | None = None, odd: str | None = None
    ) -> None:
        nonlocal pair
        pair.call(method, params, 1, sender or {}, odd)
        if not pair.is_at_rest(answer, is_streamed=len(pair.posts) % 2 == 0 and kind is Kind.HTTP):
            pair = Pair(kind, client, server, alias)

    alias = "s" if kind is Kind.HTTP else ""
    pair = Pair(kind, client, server, alias)
    for answer in (*ANSWERS, *LINKS):
        for method, params in (PLAIN[0], PLAIN[3]):
            exchange(method, params, answer)
    others = ("resources/read", b'{"uri":"artifact://a"}'), ("tools/call", b'{"arguments":{},"name":"echo"}')
    for method, params in (
        *others,
        *UNUSUAL,
        *PLAIN,
        *((method, params) for method in METHODS[:2] for params in PARAMS),
    ):
        exchange(method, params, ANSWERS[0])
    if client is Era.STATELESS:
        for sender, odd in [(sender, None) for sender in SENDERS] + [({}, odd) for odd in ODD_HEADERS]:
            exchange(*PLAIN[0], ANSWERS[0], sender, odd)


@pytest.mark.parametrize(("kind", "client", "server"), COMBINATIONS)
def test_plain_calls_and_their_answers_take_the_fast_path(kind: Kind, client: Era, server: Era) -> None:
    """Each is taken by it: the tests above would compare the slow path with itself otherwise."""
    pair = Pair(kind, client, server, "s")
    for method, params in PLAIN:
        before = taken(pair)
        pair.call(method, params, 2, {}, None)
        assert taken(pair) == before + 1, params
        pair.answer(0, ANSWERS[server is Era.STATELESS])
        assert taken(pair) == before + 2, params
    for method, params in UNUSUAL:
        before = taken(pair)
        pair.call(method, params, 2, {}, None)
        assert taken(pair) == before, params
        pair.is_at_rest(ANSWERS[0], is_streamed=False)


OFF: Final[tuple[dict[str, Any], ...]] = (
    {"tools": NameFilter(("echo",))},
    {"access": AccessRules()},
    {"clean": Cleaning.BLOCK},
    {"tool_time_limits": (("echo", 5.0),)},
    {"sharing": Sharing.CONCURRENT},
    {"idle_stop_s": 60.0},
)
"""Settings of a server under which it takes no plain calls on a path of its own."""


@pytest.mark.parametrize("more", OFF, ids=lambda more: next(iter(more)))
def test_what_turns_the_fast_path_off_does_so_at_a_profile(more: dict[str, Any]) -> None:
    for alias in (None, "s"):
        pair = Pair(Kind.PIPE, Era.HANDSHAKE, Era.HANDSHAKE, alias, **more)
        before = taken(pair)
        pair.call("tools/call", PARAMS[0], 2, {}, None)
        assert taken(pair) == before


def test_no_more_calls_are_taken_than_may_be_open() -> None:
    pair = Pair(Kind.HTTP, Era.HANDSHAKE, Era.HANDSHAKE, "s")
    before = taken(pair)
    for id in range(1, 6):
        pair.call("tools/call", PARAMS[0], id, {}, None)
    assert taken(pair) == before + 3


def test_an_answer_ends_a_question_that_its_client_was_asked() -> None:
    """A client without sessions is asked in the response to its call, which has its answer kept from then on."""
    question = b'{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"m","requestedSchema":{}}}'
    able = {"capabilities": {"elicitation": {}}}
    pair = Pair(Kind.PIPE, Era.STATELESS, Era.HANDSHAKE, "s")
    for _ in range(2):
        pair.call("tools/call", PARAMS[0], 2, able, None)
        while not pair.dials or pair.dials[-1][2] != "tools/call":
            pair.introduce()
        pair.answer(-1, ANSWERS[0])
    before = taken(pair)
    pair.call("tools/call", PARAMS[0], 2, able, None)
    assert taken(pair) == before + 1
    pair.both("receive_messages", pair.child, [question])
    play(pair, "wait", 0.5)
    assert pair.halves[0].engine.exchange_count == 2  # that of the client and that on the leg
    shown = pair.sent_bytes[pair.posts[-1]]
    pair.answer(-1, ANSWERS[0])
    assert shown and pair.sent_bytes[pair.posts[-1]] == shown


@pytest.mark.parametrize(("kind", "client", "server"), COMBINATIONS)
def test_a_call_that_is_lost_fails_as_any_other(kind: Kind, client: Era, server: Era) -> None:
    pair = Pair(kind, client, server, "s")
    before = taken(pair)
    pair.call("completion/complete" if client is server else "tools/call", PARAMS[0], 2, {}, None)
    pair.call("tools/call", PARAMS[0], 2, {}, None)
    assert taken(pair) > before
    play(pair, "break", 0)
    play(pair, "wait", 31.0)


def test_no_more_is_kept_of_calls_than_routes(monkeypatch: pytest.MonkeyPatch) -> None:
    """One more name takes the place of another. Nothing is kept of a call that is over, and a leg has no idle time."""
    monkeypatch.setattr(plain_calls, "ROUTES_MAX", 2)
    pair = Pair(Kind.HTTP, Era.HANDSHAKE, Era.HANDSHAKE, "s")
    for name in (b"a", b"b", b"c", b"a"):
        pair.call("tools/call", b'{"name":"%b"}' % name, 2, {}, None)
        assert pair.is_at_rest(ANSWERS[0], is_streamed=False)
    inside = Inside(pair.halves[0].engine)
    front, leg = inside.sessions.sessions.values()
    router: Any = front.router
    assert router.plain_way.__self__._route.cache_info().currsize == 2
    assert not router._fronts[front.sid].sent_on
    assert ("idle", front.sid) in inside.context.timers._live
    assert ("idle", leg.sid) not in inside.context.timers._live
