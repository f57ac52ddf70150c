"""Tests of progress that comes in groups: one read of a server's stream is one input, and its progress leaves as one
order. Clients get the same as if each message had come alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from driving import Client, Driver, connect, driver
from hypothesis import given, settings
from hypothesis import strategies as st
from isthmus.core.base.effects import Close, Effect, Note, Pause, Resume, Send, SendEvents
from isthmus.core.base.events import Connected
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, ServerPlan, Sharing
from isthmus.core.upstream.progress import METHOD_STOP_MAX, row_at, value_of, with_token
from stateless_driving import served, suspended
from streaming import Call, call_of

PLAIN = '{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{},"progress":{}}}}}'
ODD = [
    '{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken": {},"progress":{}}}}}',
    '{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":"{}","progress":{}}}}}',
    '{{"method":"notifications/progress","params":{{"progressToken":{},"progress":{}}},"jsonrpc":"2.0"}}',
    '{{"method":"notifications/progress","jsonrpc":"2.0","params":{{"progress":1,"total":2,"progressToken":{0}}}}}',
    '{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{},"progress":{},"message":"é"}}}}',
    '{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{},"progress":{},"message":"\\""}}}}',
    '{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{},"progress":{},"total":null}}}}',
    '{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{},"progress":{},"_meta":{{}}}}}}',
    '{{"jsonrpc":"2.0","method":"notifications/progress",\n"params":{{"progressToken":{},"progress":{}}}}}',
    '{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":1.5,"progressToken":{},"x":{}}}}}',
    '{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{0},"progressToken":{0}}}}}',
    '{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{},"progress":1,"progress":{}}}}}',
    '{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{},"progress":"{}"}}}}',
    '{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{},"progress":{}}}',
    '{{"jsonrpc":"2.0","method":"notifications/message","params":{{"data":"\\"progressToken\\":{}","x":{}}}}}',
    '{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{},"progress":{},"message":"\\n"}}}}',
    '{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progress\\u0054oken":{},"progress":{}}}}}',
    '{{"jsonrpc":"2.0","id":"q{1}","method":"elicitation/create","params":{{"q":{0}}}}}',
]
"""Messages that are like progress in its plainest form. Some of them count as that form, others must not."""


def flat(effects: list[Effect]) -> Iterator[Effect]:
    """The effects with each group of events split into single messages."""
    for effect in effects:
        if not isinstance(effect, SendEvents):
            yield effect
            continue
        assert len(effect.event_ids) in (0, len(effect.messages))
        for index, message in enumerate(effect.messages):
            yield Send(effect.channel, message, event_id=effect.event_ids[index] if effect.event_ids else None)


def shown(effects: list[Effect]) -> list[Any]:
    """The effects without white space and member order, in which the envelopes may differ."""
    out: list[Any] = []
    for effect in flat(effects):
        if isinstance(effect, Send):
            frame = json.loads(effect.message) if effect.message else None
            out.append((effect.channel, frame, effect.event_id, effect.retry_ms, effect.is_last))
        elif not isinstance(effect, Pause | Resume):
            out.append(effect)
    return out


class World:
    """A client with two calls under way at one server."""

    def __init__(self, down: str, server: str, limits: Limits) -> None:
        self.driver: Driver = driver(limits=limits, stores_events=False)
        self.client: Client = connect(self.driver, down, server)
        self.calls: list[Call] = [call_of(self.driver, self.client, id_raw) for id_raw in ("1", "2")]

    def messages(self, groups: list[tuple[int, int, int]]) -> list[bytes]:
        """The messages of groups of (call, form, count)."""
        forms = [PLAIN, *ODD]
        tokens = [call.received.id for call in self.calls] + [99]
        steps = [(index, form) for index, form, count in groups for _ in range(count)]
        return [forms[form].format(tokens[index], at).encode() for at, (index, form) in enumerate(steps)]

    def resumed(self, call: Call) -> list[Any]:
        """The events that a client gets after it has seen the first event of a call's stream only."""
        self.driver.end(call.channel)
        channel = self.client.resume(f"{self.calls.index(call) + 1}-1")
        return [(send.event_id, json.loads(send.message)) for send in self.driver.sent[channel]]


GROUPS = st.tuples(st.integers(0, 2), st.just(0), st.integers(1, 6)) | st.tuples(
    st.integers(0, 2), st.integers(0, len(ODD)), st.just(1)
)


@given(
    down=st.sampled_from(["pipe", "http"]),
    server=st.sampled_from(["pipe", "http"]),
    batches=st.lists(st.lists(GROUPS, min_size=1, max_size=4), max_size=6),
    limits=st.sampled_from(
        [Limits(), Limits(events_max=3), Limits(events_per_session_max_bytes=300), Limits(events_max_bytes=400)]
    ),
)
@settings(deadline=None)
def test_messages_that_come_at_once_have_the_effects_of_single_ones(
    down: str, server: str, batches: list[list[tuple[int, int, int]]], limits: Limits
) -> None:
    together, apart = World(down, server, limits), World(down, server, limits)
    for batch in batches:
        received = together.calls[0].received.channel
        messages = together.messages(batch)
        engine, world = together.driver.engine, together.driver
        grouped = engine.receive_messages(received, messages, world.now)
        singly: list[Effect] = []
        for message in messages:
            singly += apart.driver.engine.receive_message(received, message, apart.driver.now)
        assert shown(grouped) == shown(singly)
        assert engine.next_timeout() == apart.driver.engine.next_timeout()
    if down == "http" and any(batches):
        for one, other in zip(together.calls, apart.calls, strict=True):
            assert together.resumed(one) == apart.resumed(other)


def plain(token: int, count: int, size: int = 0, first: int = 0) -> list[bytes]:
    text = PLAIN.removesuffix("}}}}") + ',"message":"{}"}}}}'
    return [text.format(token, step, "x" * size).encode() for step in range(first, first + count)]


def test_a_group_is_one_order_and_all_of_it_can_be_resumed() -> None:
    world = driver()
    client = connect(world, "http", "http")
    call = call_of(world, client)
    steps = plain(call.received.id, 10)
    effects = world.engine.receive_messages(call.received.channel, steps, world.now)
    first, rest = effects
    assert isinstance(first, Send) and isinstance(rest, SendEvents)
    assert (first.event_id, *rest.event_ids) == tuple(f"1-{number}" for number in range(1, 11))
    wanted = [step.replace(b'"progressToken":%d' % call.received.id, b'"progressToken":"t"') for step in steps]
    assert list(rest.messages) == wanted[1:]
    world.end(call.channel)
    channel = client.resume("1-4")
    assert world.messages(channel) == wanted[4:]


def test_events_that_were_dropped_take_no_room() -> None:
    world = driver(limits=Limits(events_max=3, events_per_session_max_bytes=2000))
    client = connect(world, "http", "http")
    call = call_of(world, client)
    call.progress()
    for turn in range(50):
        steps = plain(call.received.id, 5, first=1 + 5 * turn)
        effects = world.engine.receive_messages(call.received.channel, steps, world.now)
        assert [type(effect) for effect in effects] == [SendEvents], "there is room, so one look is enough"
    world.end(call.channel)
    assert world.event_ids(client.resume("1-1")) == ["1-249", "1-250", "1-251"]


@pytest.mark.parametrize("is_at_once", [True, False])
@pytest.mark.parametrize("up", ["pipe", "http"])
@pytest.mark.parametrize(
    "received",
    [
        ["0", "0", "2", "1", "2", "2.5", "2.5", "2.25", "3"],
        ["-3", "-4", "-2.5e0", "-2.6", "0"],
        ["9007199254740992", "9007199254740993", "9007199254740993"],
        ["1e400", "2e400", "5"],
    ],
)
def test_progress_that_does_not_increase_passes_as_it_came(received: list[str], up: str, is_at_once: bool) -> None:
    world = driver()
    call = call_of(world, connect(world, "http", up))
    messages = [PLAIN.format(call.received.id, each).encode() for each in received]
    if is_at_once:
        effects = world.engine.receive_messages(call.received.channel, messages, world.now)
    else:
        effects = [e for each in messages for e in world.engine.receive_message(call.received.channel, each, world.now)]
    frames = [json.loads(effect.message) for effect in flat(effects) if isinstance(effect, Send)]
    assert [frame["params"]["progress"] for frame in frames] == list(map(json.loads, received))


def test_progress_that_does_not_increase_restarts_the_reply_timeout() -> None:
    """The reply timeout begins anew with it."""
    world = driver(limits=Limits(reply_timeout_s=10.0))
    call = call_of(world, connect(world, "http", "http"))
    for _ in range(3):
        world.wait(9.0)
        call.progress()
    assert [frame.get("method") for frame in world.frames(call.channel)] == ["notifications/progress"] * 3


def test_a_group_in_a_call_without_event_ids() -> None:
    world = driver()
    call = call_of(world, connect(world, "http", "pipe", revision="2024-11-05"))
    (effect,) = world.engine.receive_messages(call.received.channel, plain(call.received.id, 3), world.now)
    assert isinstance(effect, SendEvents)
    assert (len(effect.messages), effect.event_ids) == (3, ())


def test_a_call_that_did_not_ask_for_progress_gets_none() -> None:
    world = driver()
    client = connect(world, "http", "pipe")
    call = call_of(world, client)
    client.request("2", "tools/call", "{}")
    other = world.take_sent("tools/call")
    steps = [*plain(call.received.id, 2), *plain(other.id, 2), *plain(call.received.id, 2, first=2)]
    effects = world.engine.receive_messages(call.received.channel, steps, world.now)
    sent = [effect for effect in flat(effects) if isinstance(effect, Send)]
    assert [effect.channel for effect in sent] == 4 * [call.channel]


@pytest.mark.parametrize("is_suspended", [False, True])
@pytest.mark.parametrize("up", ["pipe", "http"])
def test_clients_without_sessions_get_the_same_as_one_by_one(up: str, is_suspended: bool) -> None:
    """Progress of a suspended call is kept for the client's next request."""
    sent: list[list[Any]] = []
    for at_once in (True, False):
        world, client, _ = served(up)
        if is_suspended:
            received, _, _ = suspended(world, client, token="t")
        else:
            client.call(token="t")
            received = world.take_sent("tools/call")
            if received.post is not None:
                world.open(received.channel, Connected())
        steps = plain(received.id, 3)
        if at_once:
            effects = world.engine.receive_messages(received.channel, steps, world.now)
            assert len(effects) == (not is_suspended)
        else:
            effects = [e for step in steps for e in world.engine.receive_message(received.channel, step, world.now)]
        sent.append(shown(effects))
    assert sent[0] == sent[1]
    assert len(sent[0]) == (0 if is_suspended else 3)


def test_messages_after_the_end_of_a_channel_are_dropped() -> None:
    world = driver()
    call = call_of(world, connect(world, "http", "pipe"))
    world.engine.receive_stop(world.now)
    assert world.engine.receive_messages(call.received.channel, plain(call.received.id, 3), world.now) == []


@pytest.mark.parametrize("count", [2, 40])
def test_a_slow_client_pauses_its_server(count: int) -> None:
    limits = Limits(outbox_high_bytes=1000, outbox_low_bytes=500)
    world = driver(limits=limits)
    call = call_of(world, connect(world, "http", "http"))
    steps = plain(call.received.id, count, size=1000)
    effects = world.engine.receive_messages(call.received.channel, steps, world.now)
    assert [effect for effect in effects if isinstance(effect, Pause)] == [Pause(channel=call.received.channel)]
    unsent = sum(len(effect.message) for effect in flat(effects) if isinstance(effect, Send))
    assert world.engine.receive_sent(call.channel, unsent - 501, world.now) == []
    assert world.engine.receive_sent(call.channel, 1, world.now) == [Resume(channel=call.received.channel)]


def test_a_client_of_a_shared_server_that_reads_nothing_is_dropped() -> None:
    limits = Limits(outbox_high_bytes=500, outbox_low_bytes=500, outbox_max_bytes=2000)
    world = driver(ServerPlan(id="pipe", kind=Kind.PIPE, sharing=Sharing.CONCURRENT), limits=limits)
    call = call_of(world, connect(world, "http", "pipe"))
    for turn in range(3):
        world.engine.receive_messages(call.received.channel, plain(call.received.id, 3, 500, 3 * turn), world.now)
    effects = world.engine.receive_messages(call.received.channel, plain(call.received.id, 3, 500, 9), world.now)
    assert not [effect for effect in effects if isinstance(effect, Pause)]
    assert not [effect for effect in effects if isinstance(effect, SendEvents)], "it was dropped already"


def test_progress_puts_off_the_reply_timeout() -> None:
    world = driver(limits=Limits(reply_timeout_s=10.0))
    call = call_of(world, connect(world, "http", "http"))
    world.wait(9.0)
    world.engine.receive_messages(call.received.channel, plain(call.received.id, 3), world.now)
    world.wait(9.0)
    assert not world.sent[call.channel]
    world.wait(1.0)
    assert "said nothing for 10 s" in world.only_message(call.channel)["error"]["message"]


@pytest.mark.parametrize("form", range(len(ODD)))
def test_only_an_unambiguous_message_is_grouped(form: int) -> None:
    """A message is grouped only if every JSON reader finds the same in it. All other messages are decoded in full."""
    message = ODD[form].format(7, 1).encode()
    row = row_at([message], 0)
    passed = None if row is None else with_token(row, b'"t"')
    if form in (2, 3, 4, 15):
        assert passed == [message.replace(b'"progressToken":7', b'"progressToken":"t"')]
    else:
        assert passed is None


def test_a_method_name_after_so_many_bytes_is_not_searched_for() -> None:
    padded = b" " * METHOD_STOP_MAX + PLAIN.format(7, 1).encode()
    assert row_at([padded], 0) is None
    assert row_at([PLAIN.format(7, 1).encode(), padded], 0) is not None


@given(texts=st.lists(st.text(max_size=6), min_size=1, max_size=4), token=st.integers(0, 120))
@settings(deadline=None)
def test_a_text_is_not_taken_for_a_token(texts: list[str], token: int) -> None:
    """The token of a message is replaced, and nothing else, whatever text the message contains."""
    frames = [
        {
            "jsonrpc": "2.0",
            "method": "notifications/progress",
            "params": {"progressToken": token, "progress": step, "message": f'{text}"progressToken":{token}'},
        }
        for step, text in enumerate(texts)
    ]
    plainer = [
        {**frame, "params": {**frame["params"], "message": text}} for frame, text in zip(frames, texts, strict=True)
    ]
    for variant in (frames, plainer):
        messages = [json.dumps(frame, separators=(",", ":"), ensure_ascii=False).encode() for frame in variant]
        row = row_at(messages, 0)
        passed = None if row is None else with_token(row, b'"t"')
        if passed is not None:
            renamed = [message.replace(b'n":%d,' % token, b'n":"t",', 1) for message in messages]
            assert [json.loads(message) for message in passed] == [json.loads(message) for message in renamed]


def test_notes_about_invalid_messages_are_the_same() -> None:
    together, apart = driver(), driver()
    one, other = (call_of(world, connect(world, "http", "http")) for world in (together, apart))
    garbage = [b"no message", b"[]", *plain(one.received.id, 2), b"{", b'{"jsonrpc":"2.0","id":99,"result":{}}']
    grouped = together.engine.receive_messages(one.received.channel, garbage, together.now)
    singly = [
        effect
        for message in garbage
        for effect in apart.engine.receive_message(other.received.channel, message, apart.now)
    ]
    assert [e for e in grouped if isinstance(e, Note | Close)] == [e for e in singly if isinstance(e, Note | Close)]
    assert [e for e in grouped if isinstance(e, Note)]


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b"2", 2),
        (b"-1.5", -1.5),
        (b"1e400", float("inf")),
        (b'"2"', None),
        (b"null", None),
        (b"{}", None),
        (None, None),
    ],
)
def test_the_value_of_progress_is_a_number(raw: bytes | None, value: float | None) -> None:
    assert value_of(raw) == value
