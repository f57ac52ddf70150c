"""Tests of a client's headers in the engine, and of servers that refuse the credentials in them.

Source: 2025-06-18 basic/authorization: "Authorization MUST be included in every HTTP request from client to server".
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from driving import (
    FORGOTTEN,
    LATEST,
    NO_STREAM,
    Client,
    Driver,
    connect,
    driver,
    error,
    new_client,
    notification,
    request,
    result,
)
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.base.effects import Delete, Dial, Effect, Join, Listen, Note, Post, Send
from isthmus.core.base.events import Cause, Connected, End, EventPipeOpening, Headers, MessageOpening, PostOpening
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.plan import Kind, ServerPlan
from isthmus.core.base.revisions import LATEST_MODERN, Era
from isthmus.core.wire.http.request import request_for
from isthmus.core.wire.http.routes import Head, McpRoute, Surface
from isthmus.core.wire.http.server import judge

OLD: Headers = (("Authorization", "Bearer old"),)
NEW: Headers = (("Authorization", "Bearer new"),)
CHALLENGE = 'Bearer resource_metadata="https://far/.well-known/oauth-protected-resource"'


def denied(status: int, body: bytes = b"") -> Cause:
    return Cause(End.REFUSED, "got HTTP status", status, body, challenge=CHALLENGE)


def headers_of(world: Driver, kind: type[Post | Listen | Delete]) -> list[Headers]:
    """The headers of every order of that kind, the oldest first."""
    return [dial.target.headers for dial in world.dials if isinstance(dial.target, kind)]


def post_headers(world: Driver, method: str) -> Headers:
    received = world.take_sent(method)
    assert received.post is not None
    return received.post.headers


# --- Headers of upstream requests -------------------------------------------------------------------------------------


def test_the_handshake_and_the_stream_have_the_headers_of_initialize() -> None:
    world = driver()
    connect(world, "http", "http", headers=OLD)
    assert headers_of(world, Post) == [OLD, OLD]
    assert headers_of(world, Listen) == [OLD]


def test_a_request_takes_its_own_headers_up() -> None:
    """A request without headers has none upstream either: no client must be taken for another."""
    world = driver()
    client = connect(world, "http", "http", headers=OLD)
    for headers in (NEW, (), OLD):
        client.headers = headers
        client.request("1", "tools/call", '{"name":"t"}')
        assert post_headers(world, "tools/call") == headers


@pytest.mark.parametrize("headers", [NEW, ()])
def test_notifications_and_answers_go_with_the_headers_they_came_with(headers: Headers) -> None:
    world = driver()
    client = new_client(world, "http", "http", headers=OLD)
    init = client.initialize()
    stream = world.start_server(listens=True)
    assert stream is not None
    client.session = world.sent[init][-1].session
    client.notify("notifications/initialized")
    client.listen()
    client.request("1", "tools/call", '{"name":"t"}')
    world.take_sent("tools/call")
    world.send(stream, request('"q"', "sampling/createMessage"))
    client.headers = headers
    client.notify("notifications/roots/list_changed")
    assert post_headers(world, "notifications/roots/list_changed") == headers
    client.send(result("1"))
    assert post_headers(world, "") == headers
    client.notify("notifications/cancelled", '{"requestId":1}')
    assert post_headers(world, "notifications/cancelled") == headers


def test_a_notification_that_waits_keeps_its_headers() -> None:
    world = driver()
    client = new_client(world, "http", "http", headers=OLD)
    init = client.initialize()
    world.answer(world.take_sent("initialize"), '{"protocolVersion":"2025-11-25","capabilities":{}}', session="S1")
    client.session = world.sent[init][-1].session
    client.headers = ()
    client.notify("notifications/roots/list_changed")
    client.headers = OLD
    client.request("1", "tools/list")
    world.acknowledge(world.take_sent("notifications/initialized"))
    world.end(world.last_dial(Listen).channel, NO_STREAM)
    assert post_headers(world, "notifications/roots/list_changed") == ()
    assert post_headers(world, "tools/list") == OLD


def test_the_proxys_own_requests_have_the_sessions_latest_headers() -> None:
    """The headers of a new handshake, the stream, replayed settings and DELETE are the latest; a request that is sent
    again keeps its own."""
    world = driver()
    client = connect(world, "http", "http", headers=OLD)
    client.request("1", "logging/setLevel", '{"level":"debug"}')
    world.answer(world.take_sent("logging/setLevel"))
    client.request("2", "tools/list")
    call = world.take_sent("tools/list")
    client.headers = NEW
    client.request("3", "ping")
    client.headers = ()
    client.request("4", "ping")
    before = len(world.dials)
    world.end(call.channel, FORGOTTEN)
    world.start_server(session="S2")
    assert [dial.target.headers for dial in world.dials[before:]] == [NEW, NEW, NEW, NEW]
    world.answer(world.take_sent("logging/setLevel"))
    assert post_headers(world, "tools/list") == OLD
    client.delete()
    assert headers_of(world, Delete) == [NEW]


@pytest.mark.parametrize("method", ["listen", "delete"])
def test_every_request_renews_the_sessions_headers(method: str) -> None:
    world = driver()
    client = connect(world, "http", "http", headers=OLD)
    client.headers = NEW
    getattr(client, method)()
    client.headers = ()
    if method == "listen":
        client.delete()
    assert headers_of(world, Delete) == [NEW]


def test_a_reply_is_resumed_with_the_latest_headers() -> None:
    """Credentials may have expired since the reply began."""
    world = driver()
    client = connect(world, "http", "http", headers=OLD)
    client.request("1", "tools/call", '{"name":"t"}')
    call = world.take_sent("tools/call")
    world.open(call.channel, Connected())
    client.headers = NEW
    client.request("2", "ping")
    world.end(call.channel, Cause(End.DONE, last_event_id="7"))
    world.wait(5)
    assert headers_of(world, Listen)[-1] == NEW


@pytest.mark.parametrize("up", ["http", "socket"])
def test_a_pipe_has_the_headers_it_was_opened_with(up: str) -> None:
    kind = Kind.HTTP if up == "http" else Kind.SOCKET
    world = driver(ServerPlan(id=up, kind=kind))
    client = connect(world, "pipe", up, headers=OLD)
    client.request("1", "tools/list")
    if up == "socket":
        assert world.last_dial(Join).target == Join(up, OLD)
    else:
        assert post_headers(world, "tools/list") == OLD


def test_posts_of_an_event_pipe_have_their_own_headers() -> None:
    world = driver()
    pipe = world.engine.new_channel()
    world.open(pipe, EventPipeOpening("http", endpoint="/m", headers=OLD))
    token = world.messages(pipe)[0].decode().partition("=")[2]

    def send(message: bytes, headers: Headers) -> None:
        channel = world.engine.new_channel()
        world.open(channel, MessageOpening("http", token, headers=headers))
        world.send(channel, message)

    hello = '{"protocolVersion":"2024-11-05","capabilities":{}}'
    send(request("0", "initialize", hello), NEW)
    world.start_server(revision="2024-11-05")
    assert headers_of(world, Post) == [NEW, NEW]
    send(notification("notifications/initialized"), OLD)
    for number, headers in enumerate((NEW, OLD, ())):
        send(request(str(number), "tools/list"), headers)
        assert post_headers(world, "tools/list") == headers
    world.end(pipe, Cause(End.GONE))
    assert headers_of(world, Delete) == [OLD]


def test_an_event_pipe_whose_first_message_brings_none_has_those_of_its_stream() -> None:
    world = driver()
    pipe, channel = world.engine.new_channel(), world.engine.new_channel()
    world.open(pipe, EventPipeOpening("http", endpoint="/m", headers=OLD))
    world.open(channel, MessageOpening("http", world.messages(pipe)[0].decode().partition("=")[2]))
    world.send(channel, request("0", "initialize", '{"protocolVersion":"2024-11-05","capabilities":{}}'))
    assert post_headers(world, "initialize") == OLD


# --- Unlisted headers -------------------------------------------------------------------------------------------------

SURFACE = Surface(("http", "pipe"), frozenset({"localhost"}), frozenset(), passes={"http": (("x-listed", "X-Listed"),)})
SECRETS = {"authorization": "Bearer 4711", "cookie": "sid=4712", "x-api-key": "4713", "proxy-authorization": "4714"}
BODIES = {
    "call": request("1", "tools/call", '{"name":"t"}'),
    "note": notification("notifications/roots/list_changed"),
    "cancel": notification("notifications/cancelled", '{"requestId":1}'),
    "garbage": b"{",
}
EVENTS = st.sampled_from([*BODIES, "GET", "DELETE", "answer", "forget", "deny", "wait"])
STEPS = st.tuples(EVENTS, st.sets(st.sampled_from([*SECRETS])))


@given(steps=st.lists(STEPS, max_size=12), server=st.sampled_from(["http", "pipe"]))
def test_no_byte_of_an_unlisted_header_leaves(steps: list[tuple[str, set[str]]], server: str) -> None:
    """Unlisted headers appear in no effect and no upstream request, whatever happens after the request's head."""
    world = driver()
    session: list[str] = []

    def send(method: str, secrets: set[str]) -> None:
        fields = {"host": "localhost", "content-type": "application/json", "x-listed": "yes"}
        fields |= {name: SECRETS[name] for name in secrets}
        if session:
            fields["mcp-session-id"] = session[0]
        head = Head(method, f"/mcp/{server}", tuple((n.encode(), v.encode()) for n, v in fields.items()))
        route = judge(head, SURFACE)
        assert isinstance(route, McpRoute)
        channel = world.engine.new_channel()
        world.open(channel, route.opening)
        if method == "POST":
            body = BODIES.get(step, request("0", "initialize", '{"protocolVersion":"2025-11-25","capabilities":{}}'))
            world.send(channel, body)

    step = "initialize"
    send("POST", set(SECRETS))
    world.start_server()
    session += [send.session for send in world.every(Send) if send.session]
    assert session
    for step, secrets in steps:
        if step in BODIES:
            send("POST", secrets)
        elif step in ("GET", "DELETE"):
            send(step, secrets)
        elif step == "wait":
            world.wait(3)
        elif world.unread:
            received = world.unread.pop(0)
            if step == "answer" and received.frame.get("id") is not None:
                world.answer(received)
            elif received.channel not in world.over:
                world.end(received.channel, denied(401) if step == "deny" else FORGOTTEN)
    visible = msgspec.json.encode(world.log)
    for dial in world.dials:
        if isinstance(dial.target, Post | Listen | Delete):
            visible += repr(request_for(dial.target)).encode()
    assert not any(secret.encode() in visible for secret in ("4711", "4712", "4713", "4714"))
    if server == "http":
        assert b'"X-Listed","yes"' in visible, "a listed header is sent, so the search finds something"


# --- Refused credentials ----------------------------------------------------------------------------------------------

OWN = ServerPlan(id="far", kind=Kind.HTTP)
CLIENTS = ServerPlan(id="far", kind=Kind.HTTP, passes_authorization=True)


def answer_on(world: Driver, channel: ChannelId) -> tuple[Send, dict[str, Any]]:
    (send,) = world.sent[channel]
    failure = json.loads(send.message)["error"]
    assert isinstance(failure, dict)
    return send, failure


def assert_no_challenge(effects: list[Effect]) -> None:
    assert b"resource_metadata" not in msgspec.json.encode([e for e in effects if not isinstance(e, Dial)])


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize("body", [b"", CHALLENGE.encode(), error("null", '{"code":-1,"message":"resource_metadata"}')])
@pytest.mark.parametrize("down", ["http", "pipe"])
def test_the_error_says_that_the_proxys_credentials_are_refused(status: int, body: bytes, down: str) -> None:
    world = driver(OWN)
    client = connect(world, down, "far")
    channel = client.request("1", "tools/call", '{"name":"t"}')
    world.end(world.take_sent("tools/call").channel, denied(status, body))
    send, failure = answer_on(world, channel)
    assert (send.status, send.challenge) == (200, "")
    assert failure["code"] == -31004
    assert failure["data"] == {"httpStatus": status}
    for part in ("far", str(status), "upstream.headers", "pass_headers"):
        assert part in failure["message"]
    assert_no_challenge(world.log)
    assert world.engine.session_count == 1


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_handshake_closes_the_half_open_session(status: int) -> None:
    world = driver(OWN)
    channel = new_client(world, "http", "far").initialize()
    world.end(world.take_sent("initialize").channel, denied(status))
    send, failure = answer_on(world, channel)
    assert (send.status, failure["code"], failure["data"]) == (200, -31004, {"httpStatus": status})
    assert_no_challenge(world.log)
    assert world.engine.session_count == 0


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize("method", ["initialize", "tools/call", "tools/list"])
def test_a_client_that_is_to_authenticate_gets_status_and_challenge(status: int, method: str) -> None:
    world = driver(CLIENTS)
    if method == "initialize":
        channel = new_client(world, "http", "far", headers=OLD).initialize()
    else:
        channel = connect(world, "http", "far", headers=OLD).request("1", method, '{"name":"t"}')
    world.end(world.take_sent(method).channel, denied(status))
    send, failure = answer_on(world, channel)
    assert (send.status, send.challenge, send.is_last) == (status, CHALLENGE, True)
    assert (failure["code"], failure["data"]) == (-31004, {"httpStatus": status})
    assert world.engine.session_count == (method != "initialize")


def test_an_error_in_the_refusal_goes_to_the_client() -> None:
    world = driver(CLIENTS)
    channel = connect(world, "http", "far", headers=OLD).request("1", "tools/list")
    body = error("null", '{"code":-1,"message":"token expired"}')
    world.end(world.take_sent("tools/list").channel, denied(401, body))
    assert answer_on(world, channel)[1] == {"code": -1, "message": "token expired"}


def test_refused_credentials_on_a_pipe_or_in_a_batch_set_no_status() -> None:
    """A client that read 401 as the fate of a whole batch would send all of it again."""
    world = driver(CLIENTS)
    channel = connect(world, "pipe", "far", headers=OLD).request("1", "tools/list")
    world.end(world.take_sent("tools/list").channel, denied(401))
    assert answer_on(world, channel)[0].status == 200
    client = connect(world, "http", "far", revision="2025-03-26")
    batch = client.send(b"[" + request("1", "tools/list") + b"," + request("2", "tools/list") + b"]")
    for cause in (denied(401), denied(403)):
        world.end(world.take_sent("tools/list").channel, cause)
    (send,) = world.sent[batch]
    assert (send.status, send.challenge) == (200, "")
    assert [one["error"]["data"]["httpStatus"] for one in json.loads(send.message)] == [401, 403]


def lost(world: Driver) -> Client:
    """A client whose server has forgotten its session; a request waits for the new handshake."""
    client = connect(world, "http", "far", headers=OLD)
    client.request("1", "tools/list")
    world.end(world.take_sent("tools/list").channel, FORGOTTEN)
    return client


def test_a_session_goes_on_at_once_when_other_credentials_come() -> None:
    """The pause after a failed handshake is for servers that are down, not for clients that renew a token."""
    world = driver(CLIENTS)
    client = lost(world)
    world.end(world.take_sent("initialize").channel, denied(401))
    (send,) = [send for send in world.every(Send) if send.status == 401]
    assert send.challenge == CHALLENGE
    again = client.request("2", "tools/list")
    assert answer_on(world, again)[0].status == 401, "the same credentials are not tried again so soon"
    assert not world.unread
    client.headers = NEW
    channel = client.request("3", "tools/list")
    world.start_server(session="S2")
    call = world.take_sent("tools/list")
    assert call.post is not None and call.post.headers == NEW
    world.answer(call)
    assert world.messages(channel) == [result("3")]


def test_credentials_that_come_during_a_handshake_are_tried_next() -> None:
    world = driver(CLIENTS)
    client = lost(world)
    client.headers = NEW
    channel = client.request("2", "tools/list")
    world.end(world.take_sent("initialize").channel, denied(401))
    world.start_server(session="S2")
    for _ in range(2):
        world.answer(world.take_sent("tools/list"))
    assert world.messages(channel) == [result("2")]


def test_a_refused_confirmation_is_a_refused_handshake() -> None:
    world = driver(CLIENTS)
    client = new_client(world, "http", "far", headers=OLD)
    init = client.initialize()
    world.answer(world.take_sent("initialize"), '{"protocolVersion":"2025-11-25","capabilities":{}}', session="S1")
    client.session = world.sent[init][-1].session
    channel = client.request("1", "tools/list")
    world.end(world.take_sent("notifications/initialized").channel, denied(403))
    assert answer_on(world, channel)[0].status == 403


@pytest.mark.parametrize("failure_text", ["connection refused", "did not answer"])
def test_another_failure_is_no_refusal(failure_text: str) -> None:
    """An earlier refusal does not change how a later failure is reported."""
    world = driver(CLIENTS)
    client = lost(world)
    world.end(world.take_sent("initialize").channel, denied(401))
    client.headers = NEW
    channel = client.request("2", "tools/list")
    if failure_text == "did not answer":
        world.wait(100)
    else:
        world.end(world.take_sent("initialize").channel, Cause(End.UNREACHABLE, failure_text, unsent=True))
    send, failure = answer_on(world, channel)
    assert send.status == 200
    assert failure_text in failure["message"]


def test_a_socket_that_refuses_credentials_says_so() -> None:
    world = driver(ServerPlan(id="far", kind=Kind.SOCKET, passes_authorization=True))
    channel = new_client(world, "http", "far", headers=OLD).initialize()
    world.end(world.last_dial(Join).channel, denied(401))
    assert answer_on(world, channel)[0].challenge == CHALLENGE


@pytest.mark.parametrize("has_listened", [True, False])
def test_a_stream_that_was_granted_before_is_asked_for_again(has_listened: bool) -> None:
    """A stream that was refused is dialled again only if the server granted one before."""
    world = driver(OWN)
    client = new_client(world, "http", "far", headers=OLD)
    client.initialize()
    stream = world.start_server(listens=has_listened)
    if stream is not None:
        world.end(stream, Cause(End.BROKEN))
        world.wait(2)
        world.end(world.last_dial(Listen).channel, denied(401))
    before = len(headers_of(world, Listen))
    world.wait(40)
    assert (len(headers_of(world, Listen)) > before) is has_listened


def test_notes_hold_no_challenge_and_no_header() -> None:
    world = driver(CLIENTS)
    client = lost(world)
    client.notify("notifications/roots/list_changed")
    world.end(world.take_sent("initialize").channel, denied(401))
    assert world.every(Note)
    noted = msgspec.json.encode(world.every(Note))
    assert b"Bearer" not in noted


ENVELOPE = (
    '"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}'
)


@pytest.mark.parametrize(
    ("first", "second", "is_shared"),
    [
        (OLD, OLD, True),
        ((), (), True),
        (OLD, NEW, False),
        (OLD, (), False),
        ((("X-Key", "1"),), (("X-Key", "2"),), False),
        ((*OLD, ("traceparent", "00-1")), (*OLD, ("Traceparent", "00-2")), True),
    ],
)
def test_clients_without_sessions_share_none_with_other_credentials(
    first: Headers, second: Headers, is_shared: bool
) -> None:
    """Headers that go on to the server identify the client there, except for those that identify a single request."""
    world = driver(ServerPlan(id="http", kind=Kind.HTTP, era=Era.HANDSHAKE))
    for number, headers in enumerate((first, second)):
        mirrored = (("mcp-method", "tools/list"),)
        opening = PostOpening(server="http", revision=LATEST_MODERN, headers=headers, mirrored=mirrored)
        channel = world.engine.new_channel()
        world.open(channel, opening)
        world.send(channel, request(f"{number}", "tools/list", f"{{{ENVELOPE}}}"))
    while world.was_sent("initialize"):
        world.answer(
            world.take_sent("initialize"), f'{{"protocolVersion":"{LATEST}","capabilities":{{}}}}', session="S"
        )
    begun = [json.loads(dial.target.message) for dial in world.dials if isinstance(dial.target, Post)]
    assert [one["method"] for one in begun].count("initialize") == (1 if is_shared else 2)
