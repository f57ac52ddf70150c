"""Tests of requests with tokens: they wait for one, and are sent once more with another after a refusal."""

from __future__ import annotations

import gzip

import anyio
import anyio.lowlevel
import pytest
from client_dialer import ANSWER, DONE, EVENTS_HEAD, LAST_CHUNK, NOW, dialer, event, reply
from client_fakes import WITH_BOTH_DRIVERS, Peer, Report, anyio_backend, in_order, serving, until
from http2_peers import Http2Peer, serving_http2
from isthmus.core.base.effects import Close, Delete, Listen, Post
from isthmus.core.base.errors import LocalProtocolError
from isthmus.core.base.events import Cause, Connected, End
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.transports.base.endpoint import Endpoint
from token_fakes import CHALLENGE, STEP_UP, WANTED, FakeTokens, authorizations, refusal, wanting

__all__ = ["anyio_backend", "in_order"]
pytestmark = [pytest.mark.anyio, WITH_BOTH_DRIVERS]

OK = [Connected(status=200), ANSWER, DONE]
LARGE = Post("s", b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":"' + b"x" * 5_000_000 + b'"}')
EXPIRED = (CHALLENGE.partition(b": ")[2]).decode()


async def answer(peer: Peer, request: bytes) -> None:
    await peer.send(reply())


def tokens_of(requests: list[bytes]) -> list[list[bytes]]:
    return [authorizations(request) for request in requests]


# --- A token that is refused ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_ready", [True, False])
async def test_a_request_refused_with_401_is_sent_once_more(is_ready: bool) -> None:
    tokens = FakeTokens(b"Bearer old", b"Bearer new", is_ready=is_ready)
    async with serving(wanting({b"Bearer new"}, answer)) as server, dialer() as dial:
        dial.tokens = tokens
        for _ in range(3):
            assert await dial.exchange(server.endpoint) == OK
        assert server.connections == 1  # the refusal leaves the connection usable
    assert tokens_of(server.requests) == [[b"Bearer old"], [b"Bearer new"], [b"Bearer new"], [b"Bearer new"]]
    assert len({request.replace(b"old", b"new") for request in server.requests}) == 1  # but for the token, the same
    assert tokens.refusals == [(b"Bearer old", EXPIRED, 401)]


async def test_a_second_401_is_final() -> None:
    tokens = FakeTokens(b"Bearer a", b"Bearer b", b"Bearer c")
    async with serving(wanting({b"Bearer c"}, answer)) as server, dialer() as dial:
        dial.tokens = tokens
        cause = (await dial.exchange(server.endpoint))[-1]
    assert cause == Cause(End.REFUSED, WANTED.message, 401, b"no", challenge=EXPIRED, login=WANTED.login)
    assert tokens_of(server.requests) == [[b"Bearer a"], [b"Bearer b"]] and len(tokens.refusals) == 1


@pytest.mark.parametrize("spare", [[], [b"Bearer another-one"]])
async def test_a_token_that_the_server_repeats_is_not_told_on(spare: list[bytes]) -> None:
    """The token is the proxy's own: no client that uses this server is to learn it. The same holds for headers of the
    configuration."""

    async def repeat(peer: Peer) -> None:
        while request := await peer.request():
            value = authorizations(request)[0]
            body = b"got " + value + b" and key-of-the-proxy"
            head = b'HTTP/1.1 401 No\r\nWWW-Authenticate: Bearer error_description="got %s"\r\n' % value
            await peer.send(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)

    async with serving(repeat) as server, dialer() as dial:
        dial.tokens = FakeTokens(b"Bearer token-of-the-proxy", *spare)
        cause = (await dial.exchange(Endpoint(server.url, (("X-Key", "key-of-the-proxy"),))))[-1]
    assert isinstance(cause, Cause)
    assert cause.body == b"got Bearer [withheld] and [withheld]"
    assert cause.challenge == 'Bearer error_description="got Bearer [withheld]"'


async def test_a_refusal_of_an_old_token_sends_the_stored_one() -> None:
    """Several requests have the token that expired: each is sent once more, and one of them renews it."""
    tokens = FakeTokens(b"Bearer old", b"Bearer new")
    refused: list[bytes] = []  # all have the old token before any is refused

    async def script(peer: Peer) -> None:
        while True:
            request = await peer.request()
            if authorizations(request) == [b"Bearer new"]:
                await peer.send(reply())
            else:
                refused.append(request)
                await until(lambda: len(refused) == 3)
                await peer.send(refusal())

    async with serving(script) as server, dialer() as dial:
        dial.tokens = tokens
        for _ in range(3):
            dial(server.endpoint)
        for channel in (1, 2, 3):
            assert await dial.port.until_closed(channel) == OK
    assert sorted(tokens_of(server.requests)) == [[b"Bearer new"]] * 3 + [[b"Bearer old"]] * 3
    assert tokens.refusals == [(b"Bearer old", "", 401)] * 3


async def test_a_token_that_expires_between_two_requests() -> None:
    tokens, accepted = FakeTokens(b"Bearer 1", b"Bearer 2", b"Bearer 3"), {b"Bearer 1"}
    async with serving(wanting(accepted, answer)) as server, dialer() as dial:
        dial.tokens = tokens
        for number in (b"1", b"2", b"3"):
            accepted.clear()
            accepted.add(b"Bearer " + number)
            for _ in range(2):
                assert await dial.exchange(server.endpoint) == OK
    assert tokens_of(server.requests) == [[b"Bearer " + n] for n in (b"1", b"1", b"1", b"2", b"2", b"2", b"3", b"3")]


async def test_the_refusal_of_a_request_without_a_token_brings_one() -> None:
    tokens = FakeTokens(b"", b"Bearer new")
    endpoint_headers = (("Authorization", "Bearer static"), ("X-Key", "k"))
    async with serving(wanting({b"Bearer new"}, answer)) as server, dialer() as dial:
        dial.tokens = tokens
        endpoint = Endpoint(server.url, endpoint_headers)
        assert await dial.exchange(endpoint) == OK
        dial.tokens = None
        assert (await dial.exchange(endpoint))[-1] != DONE  # without tokens, the header of the configuration is sent
    assert tokens_of(server.requests) == [[], [b"Bearer new"], [b"Bearer static"]]
    assert all(b"x-key: k\r\n" in request for request in server.requests)


async def test_the_header_of_a_client_replaces_no_token() -> None:
    target = Post("s", NOW.message, headers=(("Authorization", "Bearer theirs"), ("X-Trace", "7")))
    async with serving(wanting({b"Bearer new"}, answer)) as server, dialer() as dial:
        dial.tokens = FakeTokens(b"Bearer old", b"Bearer new")
        assert await dial.exchange(server.endpoint, target) == OK
    assert tokens_of(server.requests) == [[b"Bearer old"], [b"Bearer new"]]
    assert all(b"x-trace: 7\r\n" in request for request in server.requests)


@pytest.mark.parametrize("reads_all", [True, False])
async def test_a_body_of_5_mb_is_sent_again_whole(reads_all: bool) -> None:
    async def script(peer: Peer) -> None:
        if peer.number == 0 and not reads_all:
            await peer.stream.receive(100)  # refused at the head: the rest need not be sent
            await peer.send(refusal(b"401 Unauthorized"))
            while True:
                await peer.stream.receive()
        while True:
            request = await peer.request()
            await peer.send(reply() if authorizations(request) == [b"Bearer new"] else refusal())

    async with serving(script) as server, dialer() as dial:
        dial.tokens = FakeTokens(b"Bearer old", b"Bearer new")
        assert await dial.exchange(server.endpoint, LARGE) == OK
        assert server.requests[-1].endswith(b"\r\n\r\n" + LARGE.message)
        assert server.connections == (1 if reads_all else 2)


@pytest.mark.parametrize("is_lasting", [True, False])
async def test_a_stream_is_asked_for_again(is_lasting: bool) -> None:
    async def stream(peer: Peer, request: bytes) -> None:
        assert request.startswith(b"GET ") and b"last-event-id: 7\r\n" in request
        await peer.send(EVENTS_HEAD, event(b"{}"), LAST_CHUNK)

    target = Listen("s", last_event_id="7", is_of_call=not is_lasting)
    async with serving(wanting({b"Bearer new"}, stream)) as server, dialer(Limits(upstream_streams_max=1)) as dial:
        dial.tokens = FakeTokens(b"Bearer old", b"Bearer new")
        for _ in range(2):  # each gives its place up
            reports = await dial.exchange(server.endpoint, target)
            assert reports[:2] == [Connected(status=200), b"{}"]
            assert dial.client.lasting == 0
    assert tokens_of(server.requests) == [[b"Bearer old"], [b"Bearer new"], [b"Bearer new"]]


async def test_a_stream_that_is_refused_at_length_takes_one_place() -> None:
    """The refusal ends before its body does, which is longer than what is kept of one."""

    async def script(peer: Peer) -> None:
        while True:
            if authorizations(await peer.request()) == [b"Bearer new"]:
                await peer.send(EVENTS_HEAD, event(b"{}"))
                await peer.wait_gone()
            await peer.send(refusal(body=b"x" * 100_000))

    async with serving(script) as server, dialer() as dial:
        dial.tokens = FakeTokens(b"Bearer old", b"Bearer new")
        outlet = dial(server.endpoint, Listen("s"))
        await dial.port.until_reports(1, 2)
        assert dial.client.lasting == 1
        outlet.close(Close(ChannelId(1)))
        await dial.port.until_closed(1)
        assert dial.client.lasting == 0


async def test_a_post_whose_reply_is_a_stream_of_the_session() -> None:
    async def stream(peer: Peer, request: bytes) -> None:
        await peer.send(EVENTS_HEAD, event(b"{}"), LAST_CHUNK)

    target = Post("s", NOW.message, is_lasting=True)
    async with serving(wanting({b"Bearer new"}, stream)) as server, dialer() as dial:
        dial.tokens = FakeTokens(b"Bearer old", b"Bearer new")
        reports = await dial.exchange(server.endpoint, target)
        assert reports[:2] == [Connected(status=200), b"{}"] and dial.client.lasting == 0
    assert [request.partition(b"\r\n\r\n")[2] for request in server.requests] == [NOW.message] * 2


async def test_a_delete_is_sent_again() -> None:
    async with serving(wanting({b"Bearer new"}, answer)) as server, dialer() as dial:
        dial.tokens = FakeTokens(b"Bearer old", b"Bearer new")
        assert (await dial.exchange(server.endpoint, Delete("s", "id")))[-1] == DONE
    assert [request.split()[0] for request in server.requests] == [b"DELETE"] * 2


async def test_a_redirect_keeps_the_token_and_the_count_of_refusals() -> None:
    async def script(peer: Peer) -> None:
        while True:
            request = await peer.request()
            if request.split()[1] == b"/new":
                await peer.send(reply() if authorizations(request) == [b"Bearer b"] else refusal())
            else:
                await peer.send(b"HTTP/1.1 307 Temporary Redirect\r\nLocation: /new\r\nContent-Length: 0\r\n\r\n")

    async with serving(script) as server, dialer() as dial:
        dial.tokens = FakeTokens(b"Bearer a", b"Bearer b")
        assert await dial.exchange(server.endpoint) == OK
    assert tokens_of(server.requests) == [[b"Bearer a"], [b"Bearer a"], [b"Bearer b"]]


@pytest.mark.parametrize("body", [b"", b"x" * 100_000])
async def test_a_refusal_whatever_its_body(body: bytes) -> None:
    async def script(peer: Peer) -> None:
        while True:
            request = await peer.request()
            accepted = authorizations(request) == [b"Bearer new"]
            await peer.send(reply() if accepted else refusal(body=body))

    async with serving(script) as server, dialer() as dial:
        dial.tokens = FakeTokens(b"Bearer old", b"Bearer new")
        assert await dial.exchange(server.endpoint) == OK
        assert await dial.exchange(server.endpoint) == OK
    assert tokens_of(server.requests) == [[b"Bearer old"], [b"Bearer new"], [b"Bearer new"]]


async def test_a_refusal_that_breaks_off() -> None:
    async def script(peer: Peer) -> None:
        while True:
            request = await peer.request()
            if authorizations(request) == [b"Bearer new"]:
                await peer.send(reply())
            else:
                await peer.send(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 100\r\n\r\nhalf")
                return

    async with serving(script) as server, dialer() as dial:
        dial.tokens = FakeTokens(b"Bearer old", b"Bearer new")
        for _ in range(2):
            assert await dial.exchange(server.endpoint) == OK
    assert tokens_of(server.requests) == [[b"Bearer old"], [b"Bearer new"], [b"Bearer new"]]


async def test_a_refusal_with_a_content_coding() -> None:
    coded = refusal(b"401 Unauthorized", b"Content-Encoding: gzip", body=gzip.compress(b"why"))

    async def script(peer: Peer) -> None:
        while True:
            request = await peer.request()
            await peer.send(reply() if authorizations(request) == [b"Bearer new"] else coded)

    async with serving(script) as server, dialer() as dial:
        dial.tokens = FakeTokens(b"Bearer old", b"Bearer new")
        assert await dial.exchange(server.endpoint) == OK
        dial.tokens = FakeTokens(b"Bearer old", b"Bearer other")
        cause = (await dial.exchange(server.endpoint))[-1]
        assert isinstance(cause, Cause) and cause.body == b"why"


# --- Scopes -----------------------------------------------------------------------------------------------------------


async def test_403_with_a_challenge_is_asked_about_at_most_twice() -> None:
    tokens = FakeTokens(*(b"Bearer %d" % number for number in range(9)))

    async def script(peer: Peer) -> None:
        while True:
            await peer.request()
            await peer.send(refusal(b"403 Forbidden", STEP_UP))

    async with serving(script) as server, dialer() as dial:
        dial.tokens = tokens
        cause = (await dial.exchange(server.endpoint))[-1]
    assert isinstance(cause, Cause) and (cause.end, cause.status, cause.login) == (End.REFUSED, 403, WANTED.login)
    assert tokens_of(server.requests) == [[b"Bearer 0"], [b"Bearer 1"], [b"Bearer 2"]]
    assert [status for _, _, status in tokens.refusals] == [403, 403]
    assert all("insufficient_scope" in challenge for _, challenge, _ in tokens.refusals)


async def test_401_and_403_are_counted_apart() -> None:
    statuses = {b"a": b"401 Unauthorized", b"b": b"403 Forbidden", b"c": b"403 Forbidden"}

    async def script(peer: Peer) -> None:
        while True:
            (value,) = authorizations(await peer.request())
            status = statuses.get(value[-1:])
            await peer.send(reply() if status is None else refusal(status, STEP_UP))

    async with serving(script) as server, dialer() as dial:
        dial.tokens = FakeTokens(b"Bearer a", b"Bearer b", b"Bearer c", b"Bearer d")
        assert await dial.exchange(server.endpoint) == OK
    assert len(server.requests) == 4


async def test_403_without_a_challenge_is_the_servers_last_word() -> None:
    tokens = FakeTokens(b"Bearer a", b"Bearer b")
    tokens.wanted = None

    async def script(peer: Peer) -> None:
        while True:
            await peer.request()
            await peer.send(refusal(b"403 Forbidden"))

    async with serving(script) as server, dialer() as dial:
        dial.tokens = tokens
        cause = (await dial.exchange(server.endpoint))[-1]
        dial.tokens = None
        assert cause == (await dial.exchange(server.endpoint))[-1]  # as without tokens
    assert tokens.refusals == [] and len(server.requests) == 2


# --- No token ---------------------------------------------------------------------------------------------------------


async def test_a_request_without_a_token_is_not_sent() -> None:
    async with serving(wanting({b"Bearer new"}, answer)) as server, dialer() as dial:
        dial.tokens = FakeTokens()
        for target in (NOW, Listen("s"), Delete("s", "id"), Post("s", NOW.message, is_lasting=True)):
            (cause,) = await dial.exchange(server.endpoint, target)
            assert cause == Cause(End.REFUSED, WANTED.message, 401, challenge="Bearer", login=WANTED.login)
        assert server.connections == 0 and dial.client.lasting == 0


async def test_a_refused_login_has_the_words_of_the_server_too() -> None:
    tokens = FakeTokens(b"Bearer old")
    async with serving(wanting(set(), answer)) as server, dialer() as dial:
        dial.tokens = tokens
        (cause,) = await dial.exchange(server.endpoint)
        assert cause == Cause(End.REFUSED, WANTED.message, 401, b"no", challenge=EXPIRED, login=WANTED.login)
        tokens.values, tokens.wanted = [b"Bearer old"], None
        (cause,) = await dial.exchange(server.endpoint)
        dial.tokens = None
        assert [cause] == await dial.exchange(server.endpoint)


@pytest.mark.parametrize("value", [b"Bearer a\r\nx: y", b"Bearer \x00", b" ", b"Bearer a\n"])
@pytest.mark.parametrize("is_ready", [True, False])
async def test_a_token_that_no_header_can_carry(value: bytes, is_ready: bool) -> None:
    async with serving(wanting({b"Bearer new"}, answer)) as server, dialer() as dial:
        dial.tokens = FakeTokens(value, is_ready=is_ready)
        (cause,) = await dial.exchange(server.endpoint)
        assert isinstance(cause, Cause) and cause.end is End.UNREACHABLE and cause.unsent
        assert "characters that no header can carry" in cause.detail and server.connections == 0


async def test_an_order_that_cannot_be_sent_is_refused_at_once() -> None:
    async with dialer() as dial:
        dial.tokens = FakeTokens(is_ready=False)
        with pytest.raises(LocalProtocolError):
            dial(Endpoint("http://127.0.0.1:1/"), Post("s", b"{}", session="a b"))


async def test_a_failure_of_the_tokens_ends_the_request_alone(caplog: pytest.LogCaptureFixture) -> None:
    tokens = FakeTokens(b"Bearer new", is_ready=False)
    async with serving(wanting({b"Bearer new"}, answer)) as server, dialer(failures=1) as dial:
        dial.tokens = tokens
        tokens.failure = ZeroDivisionError()
        assert await dial.exchange(server.endpoint) == [Cause(End.BROKEN, "internal error")]
        tokens.failure = None
        assert await dial.exchange(server.endpoint) == OK


# --- Waits ------------------------------------------------------------------------------------------------------------


async def test_requests_wait_for_one_token_together() -> None:
    tokens = FakeTokens(b"Bearer new")
    tokens.gate = anyio.Event()
    async with serving(wanting({b"Bearer new"}, answer)) as server, dialer() as dial:
        dial.tokens = tokens
        for _ in range(5):
            dial(server.endpoint)
        await until(lambda: tokens.waiting == 5)
        assert server.connections == 0
        tokens.gate.set()
        for channel in range(1, 6):
            assert await dial.port.until_closed(channel) == OK


@pytest.mark.parametrize("is_refused", [True, False])
async def test_a_request_that_is_closed_while_it_waits(is_refused: bool) -> None:
    tokens = FakeTokens(*([b"Bearer old"] if is_refused else []), b"Bearer new")
    tokens.gate = None if is_refused else anyio.Event()

    async def script(peer: Peer) -> None:
        while True:
            request = await peer.request()
            if authorizations(request) != [b"Bearer old"]:
                await peer.send(reply())
            else:
                tokens.gate = anyio.Event()
                await peer.send(refusal())

    async with serving(script) as server, dialer() as dial:
        dial.tokens = tokens
        for target in (NOW, Listen("s")):
            if is_refused:
                tokens.values, tokens.gate = [b"Bearer old", b"Bearer new"], None
            outlet = dial(server.endpoint, target)
            await until(lambda: tokens.waiting == 1)
            for _ in range(2):
                outlet.close(Close(ChannelId(dial.count)))
            assert await dial.port.until_closed(dial.count) == [DONE]
            assert tokens.waiting == 0
        assert tokens.was_cancelled == 2 and dial.client.lasting == 0
        assert len(server.requests) == (2 if is_refused else 0)
        assert tokens.gate is not None
        tokens.gate.set()
        assert await dial.exchange(server.endpoint) == OK


async def test_a_request_that_is_closed_before_it_waits() -> None:
    tokens = FakeTokens(b"Bearer new", is_ready=False)
    async with serving(wanting({b"Bearer new"}, answer)) as server, dialer() as dial:
        dial.tokens = tokens
        dial(server.endpoint).close(Close(ChannelId(1)))
        assert await dial.port.until_closed(1) == [DONE]
        assert server.connections == 0


async def test_a_client_that_stops_ends_what_waits() -> None:
    tokens, gate = FakeTokens(b"Bearer old", b"Bearer new"), anyio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        tokens.gate = gate
        await peer.send(refusal())

    async with serving(script) as server:
        async with dialer() as dial:
            dial.tokens = tokens
            dial(server.endpoint)
            await until(lambda: tokens.waiting == 1)
            dial(server.endpoint)
            await until(lambda: tokens.waiting == 2)
        reports: list[Report] = [dial.port.reports[ChannelId(number)][-1] for number in (1, 2)]
    assert all(isinstance(cause, Cause) and cause.detail == "shutting down" for cause in reports)
    assert isinstance(reports[1], Cause) and reports[1].unsent


async def test_a_request_that_is_paused_while_it_waits() -> None:
    tokens = FakeTokens(b"Bearer old", b"Bearer new")
    gate = anyio.Event()

    async def script(peer: Peer) -> None:
        while True:
            request = await peer.request()
            if authorizations(request) == [b"Bearer new"]:
                await peer.send(EVENTS_HEAD, event(b"{}"), LAST_CHUNK)
            else:
                tokens.gate = gate
                await peer.send(refusal())

    async with serving(script) as server, dialer() as dial:
        dial.tokens = tokens
        outlet = dial(server.endpoint)
        await until(lambda: tokens.waiting == 1)
        outlet.pause()
        gate.set()
        await until(lambda: len(server.requests) == 2)
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        assert b"{}" not in dial.port.reports.get(ChannelId(1), [])
        outlet.resume()
        assert (await dial.port.until_closed(1))[:2] == [Connected(status=200), b"{}"]


async def test_a_stream_that_finds_no_place_after_its_refusal_waits_for_one() -> None:
    async def stream(peer: Peer, request: bytes) -> None:
        await peer.send(EVENTS_HEAD, event(b"{}"))
        await peer.wait_gone()

    tokens = FakeTokens(b"Bearer old", b"Bearer new")
    async with serving(wanting({b"Bearer new"}, stream)) as server, dialer(Limits(upstream_streams_max=1)) as dial:
        dial.tokens = tokens
        for _ in range(2):
            dial(server.endpoint, Listen("s"))
        await dial.port.until(lambda: sum(b"{}" in reports for reports in dial.port.reports.values()) == 1)
        assert dial.client.lasting == 1


# --- HTTP/2 -----------------------------------------------------------------------------------------------------------


async def test_a_server_that_speaks_http2_alone() -> None:
    seen = []

    async def script(peer: Http2Peer) -> None:
        while True:
            request = await peer.request()
            value = dict(request.headers)[b"authorization"]
            seen.append((value, request.body))
            if value == b"Bearer new":
                await peer.reply(request)
            else:
                peer.server.begin(request.stream, status=b"401")
                await peer.send_all(request.stream, b"no", is_last=True)

    async with serving_http2(script) as server, dialer() as dial:
        dial.tokens = FakeTokens(b"Bearer old", b"Bearer new")
        assert await dial.exchange(server.endpoint) == OK
        assert await dial.exchange(server.endpoint) == OK
        assert server.connections == 2  # the first one found out which version is spoken
    assert seen == [(b"Bearer old", NOW.message), (b"Bearer new", NOW.message), (b"Bearer new", NOW.message)]
