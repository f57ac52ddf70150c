"""Tests of trace contexts that go through an engine: parents, what servers get, and what makes no difference."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from dialogue import Dialogue
from driving import LATEST, Client, Driver, SentMessage, connect, driver, request
from inside import Inside
from isthmus.core.base.effects import Emit
from isthmus.core.base.events import Cause, End, EventPipeOpening, Headers, MessageOpening, PostOpening
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.plan import Kind, Offer, Profile, ProfileServer, ServerPlan
from isthmus.core.base.revisions import Era
from isthmus.core.base.telemetry import (
    RequestAnswered,
    RequestEnded,
    RequestSent,
    RequestStarted,
    SpanIds,
    TaskGiven,
    Tracing,
)
from isthmus.core.state.exchange import TRACE_LINKS_MAX
from isthmus.core.tracing.carrying import FIELDS
from isthmus.core.tracing.context import TraceContext, format_parent, parse_context
from stateless_driving import (
    ACCEPT,
    bridge,
    modern,
    respond,
    served,
    start_legacy_server,
    start_stateless_server,
    suspended,
)
from task_scenes import scene

ONE = TraceContext("1" * 32, "1" * 16, 1)
TWO = TraceContext("2" * 32, "2" * 16, 1)
UNSAMPLED = TraceContext("3" * 32, "3" * 16, 0)
STATE, BAGGAGE = "vendor=1", "user=ann"
RECORDED = Tracing(is_recorded=True, ratio=1.0)
BRIDGED = Tracing()


def header(context: TraceContext, *more: tuple[str, str]) -> Headers:
    return (("traceparent", format_parent(context)), *more)


def call(meta: dict[str, Any] | None = None) -> str:
    params: dict[str, Any] = {"name": "echo", "arguments": {}}
    return json.dumps(params if meta is None else params | {"_meta": meta}, separators=(",", ":"))


def carried(context: TraceContext, **more: str) -> dict[str, str]:
    return {"traceparent": format_parent(context), **more}


def post(client: Client, message: bytes, trace_context: Headers) -> ChannelId:
    world = client.driver
    channel = world.engine.new_channel()
    opening = PostOpening(client.server, session=client.session, headers=client.headers, trace_context=trace_context)
    world.open(channel, opening)
    world.send(channel, message)
    return channel


def told(world: Driver, kind: type[Any]) -> list[Any]:
    found = (effect.event for effect in world.every(Emit))
    return [one for one in found if isinstance(one, kind) and getattr(one, "method", "") != "initialize"]


def spans(world: Driver) -> list[SpanIds]:
    return [one.span for kind in (RequestStarted, RequestSent) for one in told(world, kind)]


def meta_of(sent: SentMessage) -> dict[str, Any]:
    found = sent.frame.get("params", {}).get("_meta", {})
    assert isinstance(found, dict)
    return found


def headers_of(sent: SentMessage) -> dict[str, str]:
    assert sent.post is not None
    assert len(dict(sent.post.headers)) == len(sent.post.headers)
    return dict(sent.post.headers)


def parent_in(fields: dict[str, str]) -> tuple[str, str]:
    context = parse_context(fields["traceparent"], fields.get("tracestate", ""))
    assert context is not None
    return context.trace_id, context.span_id


# --- The bridge -------------------------------------------------------------------------------------------------------


def test_a_header_becomes_meta_for_a_pipe() -> None:
    world = driver(tracing=BRIDGED)
    client = connect(world, "http", "pipe")
    post(client, request("1", "tools/call", call()), header(ONE, ("tracestate", STATE), ("baggage", BAGGAGE)))
    sent = world.take_sent("tools/call")
    assert meta_of(sent) == carried(ONE, tracestate=STATE, baggage=BAGGAGE)
    assert world.every(Emit) == []


@pytest.mark.parametrize("down", ["pipe", "http"])
def test_meta_becomes_a_header(down: str) -> None:
    world = driver(tracing=BRIDGED)
    client = connect(world, down, "http")
    meta = carried(ONE, tracestate=STATE, baggage=BAGGAGE)
    client.request("1", "tools/call", call(meta))
    sent = world.take_sent("tools/call")
    assert headers_of(sent) == meta
    assert sent.frame["params"] == json.loads(call(meta))


def test_a_header_stays_a_header_between_http_and_http() -> None:
    world = driver(tracing=BRIDGED)
    client = connect(world, "http", "http", headers=(("X-Team", "a"), ("Traceparent", "old")))
    post(client, request("1", "tools/call", call()), header(ONE))
    sent = world.take_sent("tools/call")
    assert headers_of(sent) == {"X-Team": "a", **carried(ONE)}
    assert "_meta" not in sent.frame["params"]


def test_meta_wins_over_the_header() -> None:
    world = driver(tracing=BRIDGED)
    post(connect(world, "http", "http"), request("1", "tools/call", call(carried(ONE))), header(TWO))
    assert parent_in(headers_of(world.take_sent("tools/call"))) == (ONE.trace_id, ONE.span_id)


@pytest.mark.parametrize("tracing", [None, BRIDGED])
def test_without_a_context_nothing_changes(tracing: Tracing | None) -> None:
    for up in ("pipe", "http"):
        world = driver(tracing=tracing)
        connect(world, "http", up).request("1", "tools/call", call())
        sent = world.take_sent("tools/call")
        assert sent.raw == b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":%b}' % (sent.id, call().encode())
        assert sent.post is None or sent.post.headers == ()


def test_with_tracing_off_contexts_pass_untouched() -> None:
    world = driver()
    post(connect(world, "http", "pipe"), request("1", "tools/call", call({"traceparent": "?"})), header(ONE))
    assert meta_of(world.take_sent("tools/call")) == {"traceparent": "?"}


# --- Spans ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("up", ["pipe", "http"])
@pytest.mark.parametrize("down", ["pipe", "http"])
def test_a_server_gets_a_context_under_the_span_of_its_request(down: str, up: str) -> None:
    world = driver(tracing=RECORDED)
    client = connect(world, down, up)
    client.request("1", "tools/call", call(carried(ONE, tracestate=STATE)))
    sent = world.take_sent("tools/call")
    outer, inner = spans(world)
    assert (outer.trace_id, outer.parent_id, outer.state) == (ONE.trace_id, ONE.span_id, STATE)
    assert (inner.trace_id, inner.parent_id, inner.state) == (ONE.trace_id, outer.span_id, STATE)
    assert parent_in(meta_of(sent)) == (inner.trace_id, inner.span_id)
    if sent.post is not None:
        assert headers_of(sent) == meta_of(sent)
    world.answer(sent, '{"content":[]}')
    assert [one.request for kind in (RequestAnswered, RequestEnded) for one in told(world, kind)] == (
        [told(world, RequestStarted)[0].request] * 2
    )


def test_a_request_without_a_context_begins_a_trace() -> None:
    world = driver(tracing=RECORDED)
    connect(world, "http", "pipe").request("1", "tools/call", call())
    outer, inner = spans(world)
    assert outer.parent_id == ""
    assert parent_in(meta_of(world.take_sent("tools/call"))) == (outer.trace_id, inner.span_id)


def test_a_request_without_a_span_passes_the_context_of_its_client_on() -> None:
    """The client has decided that nothing is recorded. What the server records is under the client's span."""
    world = driver(tracing=RECORDED)
    post(connect(world, "http", "pipe"), request("1", "tools/call", call()), header(UNSAMPLED))
    assert meta_of(world.take_sent("tools/call")) == carried(UNSAMPLED)
    assert told(world, RequestStarted) == []


def test_events_of_other_requests_are_not_emitted() -> None:
    """Spans alone ask for no event of a request that has none."""
    world = driver(tracing=Tracing(is_recorded=True, ratio=0.0))
    connect(world, "http", "http").request("1", "tools/call", call())
    world.answer(world.take_sent("tools/call"))
    assert world.every(Emit) == []


def test_unsampled_calls_take_the_fast_path() -> None:
    for tracing, up in ((Tracing(is_recorded=True, ratio=0.0), "http"), (BRIDGED, "pipe")):
        world = driver(tracing=tracing)
        client = connect(world, "http", up)
        for number in ("1", "2"):  # the link learns with the first that it is plain
            channel = client.request(number, "tools/call", call())
            world.answer(world.take_sent("tools/call"))
        client.request("3", "tools/call", call())
        (exchange,) = Inside(world.engine).sessions.sessions[client.session or ""].exchanges.values()
        assert exchange.is_plain
        assert channel


def test_a_question_of_a_server_has_the_context_of_its_call() -> None:
    for up in ("pipe", "http"):
        world = driver(tracing=RECORDED)
        client = connect(world, "pipe", up)
        client.request("1", "tools/call", call())
        sent = world.take_sent("tools/call")
        world.send(sent.channel, request("8", "sampling/createMessage", '{"messages":[]}'))
        assert client.pipe is not None
        question = json.loads(world.messages(client.pipe)[-1])
        outer, _ = spans(world)
        assert parent_in(question["params"]["_meta"]) == (outer.trace_id, outer.span_id)
        own = request("9", "sampling/createMessage", json.dumps({"messages": [], "_meta": carried(TWO)}))
        world.send(sent.channel, own)
        assert json.loads(world.messages(client.pipe)[-1])["params"]["_meta"] == carried(TWO)


def test_a_profile_has_one_span_for_both_its_legs() -> None:
    plan = ServerPlan(id="alpha", kind=Kind.PIPE, era=Era.HANDSHAKE)
    play = Dialogue(plan, profiles=(Profile("all", (ProfileServer("alpha", ""),)),), tracing=BRIDGED)
    alpha, alice = play.server, play.client("alice", server="all")
    alice.is_answered(alice.greets(), ...)
    alice.notifies("notifications/initialized")
    call = alice.asks("tools/call", {"name": "echo", "_meta": carried(ONE)})
    alpha.starts()
    sent = alpha.is_asked("tools/call", {"name": "echo", "_meta": carried(ONE)})
    alpha.answers(sent, {"content": []})
    alice.is_answered(call, {"content": []})


@pytest.mark.parametrize("server", ["legacy", "modern"])
@pytest.mark.parametrize("up", ["pipe", "http"])
def test_a_client_without_sessions_is_traced_with_servers_of_both_eras(up: str, server: str) -> None:
    """A client whose other requests take the fast path is one, too."""
    world = bridge(tracing=Tracing(is_recorded=True, spans_per_second_max=100))
    client = modern(world, up, "http")
    for number in range(3):
        client.request("tools/call", name="echo", arguments={})
        if not number:
            start_legacy_server(world) if server == "legacy" else start_stateless_server(world)
        if world.was_sent("tools/list"):
            respond(world, world.take_sent("tools/list"), '{"tools":[{"name":"echo","inputSchema":{}}]}')
        respond(world, world.take_sent("tools/call"))
    body = json.loads(client.body("tools/call", name="echo", arguments={}))
    body["params"]["_meta"] |= carried(ONE, tracestate=STATE)
    for _ in range(2):  # without spaces, as the fast path reads them
        client.send(msgspec.json.encode(body))
        sent = world.take_sent("tools/call")
        inner = spans(world)[-1]
        assert inner.trace_id == ONE.trace_id
        assert {name: value for name, value in meta_of(sent).items() if name in FIELDS} == {
            "traceparent": format_parent(TraceContext(inner.trace_id, inner.span_id, 1)),
            "tracestate": STATE,
        }
        respond(world, sent)


def test_a_client_that_comes_back_with_answers_is_linked() -> None:
    world, client, _ = served(tracing=RECORDED)
    sent, questions, state = suspended(world, client)
    (started,) = [one for one in told(world, RequestStarted) if one.method == "tools/call"]
    body = json.loads(client.body("tools/call", name="ask", arguments={}))
    body["params"]["_meta"] |= carried(TWO)
    body["params"] |= {"requestState": state, "inputResponses": dict.fromkeys(questions, ACCEPT)}
    client.send(json.dumps(body).encode())
    respond(world, sent)
    (ended,) = [one for one in told(world, RequestEnded) if one.method == "tools/call"]
    assert ended.request == started.request
    assert ended.links == ((TWO.trace_id, TWO.span_id),)


def test_a_request_has_no_more_links_than_the_limit() -> None:
    world = driver(tracing=RECORDED)
    client = connect(world, "http", "http")
    client.request("1", "tools/call", call())
    (exchange,) = Inside(world.engine).sessions.sessions[client.session or ""].exchanges.values()
    for _ in range(TRACE_LINKS_MAX + 1):
        exchange.link_trace(exchange.trace)
    assert len(exchange.trace_links) == TRACE_LINKS_MAX


def test_a_header_of_a_post_is_that_of_its_message_over_http_and_sse() -> None:
    """The stream of the client is one channel, on which each message has its own."""
    world = driver(tracing=BRIDGED)
    pipe = world.engine.new_channel()
    world.open(pipe, EventPipeOpening("pipe", endpoint="/messages/pipe"))
    token = world.sent[pipe][0].message.decode().partition("=")[2]

    def send(message: bytes, context: Headers = ()) -> None:
        channel = world.engine.new_channel()
        world.open(channel, MessageOpening("pipe", token, trace_context=context))
        world.send(channel, message)

    send(request("0", "initialize", f'{{"protocolVersion":"{LATEST}","capabilities":{{}}}}'))
    world.start_server()
    send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
    for context, expected in ((header(ONE), carried(ONE)), ((), {}), (header(TWO), carried(TWO))):
        send(request("1", "tools/call", call()), context)
        sent = world.take_sent("tools/call")
        assert meta_of(sent) == expected
        world.answer(sent)


# --- Corner cases -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", ["not-w3c", format_parent(ONE).replace("00-", "ff-", 1), 7, None])
def test_corner_1_a_traceparent_that_is_none_counts_as_missing(bad: object) -> None:
    world = driver(tracing=RECORDED)
    message = request("1", "tools/call", call({"traceparent": bad, "tracestate": STATE}))
    post(connect(world, "http", "pipe"), message, header(ONE))
    outer, _ = spans(world)
    assert outer.parent_id == ONE.span_id  # the header is second
    assert "tracestate" not in meta_of(world.take_sent("tools/call"))  # it belongs to the parent that is none
    client = connect(world := driver(tracing=RECORDED), "http", "pipe")
    post(client, message, (("traceparent", "?"),))
    outer, _ = spans(world)
    assert outer.parent_id == ""


def test_corner_2_a_client_that_always_samples_makes_no_more_spans_than_the_limit() -> None:
    world = driver(tracing=Tracing(is_recorded=True, spans_per_second_max=10))
    client = connect(world, "http", "pipe")
    for number in range(50):
        client.request(str(number), "tools/call", call(carried(ONE)))
        sent = world.take_sent("tools/call")
        assert parent_in(meta_of(sent))[0] == ONE.trace_id
        world.answer(sent)
    assert len(spans(world)) == 10
    assert world.engine.spans_refused == 45


@pytest.mark.parametrize("tracing", [RECORDED, BRIDGED])
@pytest.mark.parametrize("up", ["pipe", "http"])
def test_corner_3_baggage_goes_to_no_server_where_it_is_dropped(tracing: Tracing, up: str) -> None:
    world = driver(tracing=msgspec.structs.replace(tracing, passes_baggage=False))
    client = connect(world, "http", up, headers=(("Baggage", BAGGAGE),))
    post(client, request("1", "tools/call", call({"baggage": BAGGAGE})), (("baggage", BAGGAGE),))
    post(client, request("2", "tools/call", call()), header(ONE, ("baggage", BAGGAGE)))
    for _ in range(2):
        sent = world.take_sent("tools/call")
        assert BAGGAGE.encode() not in sent.raw
        assert BAGGAGE not in str(None if sent.post is None else sent.post.headers)


def test_corner_4_each_message_of_a_batch_has_its_own_parent_and_the_header_is_a_link() -> None:
    world = driver(tracing=Tracing(is_recorded=True, spans_per_second_max=1000))
    client = connect(world, "http", "http", revision="2025-03-26")
    contexts = [TraceContext(f"{n:032x}", f"{n:016x}", 1) for n in range(1, 51)]
    parts = [request(str(n), "tools/call", call(carried(one))) for n, one in enumerate(contexts)]
    post(client, b"[" + b",".join(parts) + b"]", header(TWO))
    started = [one.span for one in told(world, RequestStarted)]
    assert [(one.trace_id, one.parent_id) for one in started] == [(one.trace_id, one.span_id) for one in contexts]
    assert {one.links for one in started} == {((TWO.trace_id, TWO.span_id),)}
    assert len({one.span_id for one in started}) == 50


def test_corner_5_two_requests_with_one_id_have_a_span_each() -> None:
    world = driver(tracing=RECORDED)
    client = connect(world, "http", "http")
    post(client, request("1", "tools/call", call()), header(ONE))
    post(client, request("1", "tools/call", call()), header(TWO))
    first, second = world.take_sent("tools/call"), world.take_sent("tools/call")
    world.answer(second)
    world.answer(first)
    started, ended = told(world, RequestStarted), told(world, RequestEnded)
    assert [one.span.parent_id for one in started] == [ONE.span_id, TWO.span_id]
    assert [one.request for one in ended] == [one.request for one in reversed(started)]


def test_corner_7_a_call_that_is_sent_again_has_two_spans_under_its_own() -> None:
    world = driver(tracing=RECORDED)
    client = connect(world, "http", "http")
    client.request("1", "tools/call", call(carried(ONE)))
    first = world.take_sent("tools/call")
    world.end(first.channel, Cause(End.UNREACHABLE, "no route", unsent=True))
    world.wait(5)
    second = world.take_sent("tools/call")
    (started,), sent = told(world, RequestStarted), told(world, RequestSent)
    assert [one.attempt for one in sent] == [1, 2]
    assert {one.span.parent_id for one in sent} == {started.span.span_id}
    assert [parent_in(meta_of(one))[1] for one in (first, second)] == [one.span.span_id for one in sent]
    assert sent[0].span.span_id != sent[1].span.span_id
    assert headers_of(second) == meta_of(second)


@pytest.mark.parametrize("has_tasks", [True, False])
def test_corner_8_requests_about_a_task_are_linked_to_the_call_that_it_was_made_of(has_tasks: bool) -> None:
    world = scene(has_tasks=has_tasks, offer=Offer.ALWAYS, tracing=Tracing(is_recorded=True, ratio=1.0))
    party = world.party(Era.HANDSHAKE)
    id, work = world.begin(party, "a", "must" if has_tasks else "work")
    (started,) = [one for one in told(world.world, RequestStarted) if one.method == "tools/call"]
    assert [one.request for one in told(world.world, TaskGiven)] == [started.request]
    assert not [one for one in told(world.world, RequestEnded) if one.method == "tools/call"]
    assert world.status(party, id) == "working"
    (looked,) = [one for one in told(world.world, RequestEnded) if one.method == "tasks/get"]
    assert looked.links == ((started.span.trace_id, started.span.span_id),)
    assert work


def test_corner_9_the_outcome_of_a_large_answer_is_unread() -> None:
    world = driver(tracing=RECORDED)
    connect(world, "http", "http").request("1", "tools/call", call())
    world.answer(world.take_sent("tools/call"), json.dumps({"content": [{"type": "text", "text": "x" * 200_000}]}))
    (ended,) = told(world, RequestEnded)
    assert ended.outcome.value == "unread"
