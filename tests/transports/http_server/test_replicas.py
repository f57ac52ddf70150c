"""Tests of requests that another replica answers, over streams in memory, and of the listener that it gets them on."""

from __future__ import annotations

import json
import time
from typing import Any

import anyio
import msgspec
import pytest
import replica_fakes
from http_fakes import SURFACE, Answer, get, post, world
from http_fakes import anyio_backend as anyio_backend
from isthmus.core.access.gate import Gate, GateSettings
from isthmus.core.access.static_tokens import StaticToken, digest_of, new_token
from isthmus.core.base.effects import Close, Forward, Send
from isthmus.core.base.events import DeleteOpening, DraftOpening, End, GetOpening, MessageOpening, Opening, PostOpening
from isthmus.core.base.grants import Grants
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.base.storage import Append
from isthmus.core.replicas.leases import Peer
from isthmus.core.wire.http.hop import HOP_MAX_BYTES, SIGN_EVERY_S, TIME_MAX_S, HopCaller
from isthmus.transports.base.port import Outlet
from isthmus.transports.base.traffic import Forwarded
from isthmus.transports.reverse_proxy import replicas as replica_module
from replica_fakes import CLOSED, INTERNAL, RUNS, B, pair, passes_on, receiver, signer

pytestmark = pytest.mark.anyio

ONE, TWO = ChannelId(1), ChannelId(2)
DRAFT = "/upload/files/tus/b." + "0" * 32
TUS = ("Tus-Resumable: 1.0.0", "Upload-Offset: 0")
RESULT = b'{"jsonrpc":"2.0","id":1,"result":{}}'


def echo(channel: ChannelId, message: bytes, outlet: Outlet) -> None:
    outlet.send(Send(channel, message, is_last=True))


def patch_(body: bytes, *extra: str, chunked: bool = False) -> bytes:
    request = post(body, *TUS, *extra, path=DRAFT, chunked=chunked).replace(b"POST", b"PATCH", 1)
    return request.replace(b"application/json", b"application/offset+octet-stream", 1)


def appends(channel: ChannelId, opening: Opening, outlet: Outlet) -> None:
    outlet.append(Append(channel, "b", 0, 1 << 30))  # type: ignore[attr-defined]


def took(channel: ChannelId, message: bytes, outlet: Outlet) -> None:
    outlet.send(Send(channel, b"", is_last=True, status=204, headers=(("Upload-Offset", message.decode()[:-1]),)))


def lost(answer: Answer) -> bool:
    """True if it says that the request may have been carried out, and asks nobody to send it again."""
    return answer.status == 502 and b"not known whether" in answer.body and b"retry-after" not in answer.headers


def unavailable(answer: Answer) -> bool:
    error = json.loads(answer.body)["error"]
    return (answer.status, answer.headers[b"retry-after"], "try again later" in error["message"]) == (503, b"1", True)


# --- What crosses ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [None, 7])
@pytest.mark.parametrize("chunked", [False, True])
async def test_a_message_is_answered_by_the_other_replica(
    monkeypatch: pytest.MonkeyPatch, cut: int | None, chunked: bool
) -> None:
    async with pair(monkeypatch) as w:
        w.b.port.on_message = echo
        for n in (1, 2, 3):
            await w.client.send(post(RESULT, "Mcp-Session-Id: b.x", "Isthmus-Hop: mine", chunked=chunked), cut=cut)
            answer = await w.client.read()
            assert (answer.status, answer.body) == (200, RESULT)
            assert not {name for name in answer.headers if b"hop" in name or name == b"connection"}
            assert await w.a.port.wait_closed(1) is End.DONE
            assert await w.b.port.wait_closed(n) is End.DONE
        assert w.b.port.openings[ONE] == w.a.port.openings[ONE]
        assert isinstance(w.b.port.openings[ONE], PostOpening)
        assert [body for _, body in w.b.port.messages] == [RESULT] * 3
        assert len(w.a.port.openings) == 1, "its own engine is asked once about a head"
        assert (w.made, w.membership.looked_up) == (1, ["b"])
        assert w.a.server._listening.counts.forwards == {Forwarded.ANSWERED: 3}
        assert w.a.server._listening.counts.responses == {("mcp", 200): 3}
        assert w.b.server._listening.counts.responses == {("replica", 200): 3}


async def test_what_the_first_replica_has_verified_goes_along(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller's own credentials are not looked at again, and neither are Host and Origin."""
    token = new_token(lambda size: b"\7" * size)
    gate = Gate(GateSettings((StaticToken("ci", digest_of(token), frozenset({"read"}), frozenset({"team"})),)))
    async with pair(monkeypatch, gate=gate) as w:
        w.b.port.on_message = echo
        w.a.server._listening.scheme = "https"
        await w.client.send(post(RESULT, f"Authorization: Bearer {token}", "Origin: http://127.0.0.1:6274"))
        answer = await w.client.read()
        assert answer.status == 200
        assert answer.headers[b"access-control-allow-origin"] == b"http://127.0.0.1:6274"
        opening = w.b.port.openings[ONE]
        assert isinstance(opening, PostOpening)
        assert (opening.principal, opening.base_url) == ("token:ci", "https://localhost:8932")
        assert opening.grants == Grants(frozenset({"read"}), frozenset({"team"}))
        assert opening == w.a.port.openings[ONE]


async def test_every_kind_of_request_crosses(monkeypatch: pytest.MonkeyPatch) -> None:
    async with pair(monkeypatch) as w:

        def on_open(channel: ChannelId, opening: Opening, outlet: Outlet) -> None:
            if isinstance(opening, DeleteOpening):
                outlet.send(Send(channel, b"", is_last=True, status=204))
            elif isinstance(opening, DraftOpening):
                status = 200 if opening.verb.value == "resume" else 204
                outlet.send(Send(channel, b"", is_last=True, status=status, headers=(("Upload-Offset", "3"),)))

        w.b.port.on_open, w.b.port.on_message = on_open, lambda *a: a[2].send(Send(a[0], b"", is_last=True, status=202))
        await w.client.send(get(method="DELETE"))
        assert (await w.client.read("DELETE")).status == 204
        await w.client.send(post(RESULT, path="/messages?sessionId=b.x"))
        assert (await w.client.read()).status == 202
        await w.client.send(get(DRAFT, "Tus-Resumable: 1.0.0", method="HEAD"))
        answer = await w.client.read("HEAD")
        assert (answer.status, answer.headers[b"upload-offset"], answer.headers[b"tus-resumable"]) == (
            200,
            b"3",
            b"1.0.0",
        )
        await w.client.send(get(DRAFT, "Tus-Resumable: 1.0.0", method="DELETE"))
        assert (await w.client.read("DELETE")).status == 204
        kinds = [type(opening) for opening in w.b.port.openings.values()]
        assert kinds == [DeleteOpening, MessageOpening, DraftOpening, DraftOpening]
        assert list(w.b.port.openings.values()) == list(w.a.port.openings.values())


async def test_a_stream_crosses_at_its_own_pace_and_ends_with_its_client(monkeypatch: pytest.MonkeyPatch) -> None:
    async with pair(monkeypatch) as w:
        await w.client.send(get("/mcp", "Last-Event-ID: 5"))
        answer = await w.client.read_head("GET")
        assert (answer.status, answer.headers[b"content-type"]) == (200, b"text/event-stream")
        opening = w.b.port.openings[ONE]
        assert isinstance(opening, GetOpening) and opening.last_event_id == "5"
        for n in range(3):
            w.b.port.outlets[ONE].send(Send(ONE, b"%d" % n))
            assert await w.client.read_piece() == b"event: message\ndata: %d\n\n" % n
        w.client.stream.hang_up()
        assert await w.b.port.wait_closed(1) is End.GONE
        assert await w.a.port.wait_closed(1) is End.GONE


async def test_a_stream_ends_with_its_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    async with pair(monkeypatch) as w:
        await w.client.send(get())
        await w.client.read_head("GET")
        w.b.port.outlets[ONE].close(Close(ONE))
        assert await w.client.read_piece() is None
        assert await w.a.port.wait_closed(1) is End.DONE


async def test_a_client_that_reads_nothing_holds_the_owner_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async with pair(monkeypatch, Limits(read_size_bytes=1000), capacity=1000) as w:
        w.b.port.on_message = lambda channel, message, outlet: echo(channel, bytes(100_000), outlet)
        await w.client.send(post())
        await w.a.port.wait_open()
        await anyio.wait_all_tasks_blocked()
        assert not w.b.port.closes
        assert len((await w.client.read()).body) == 100_000
        assert await w.b.port.wait_closed(1) is End.DONE


@pytest.mark.parametrize("chunked", [False, True])
async def test_the_body_of_an_upload_is_streamed(monkeypatch: pytest.MonkeyPatch, chunked: bool) -> None:
    """The body goes on before it has arrived in full."""
    async with pair(monkeypatch) as w:
        w.b.port.on_open, w.b.port.on_message = appends, took
        for n in (1, 2):
            request = patch_(b"some bytes", "Expect: 100-continue", chunked=chunked)
            at = request.index(b"\r\n\r\n") + 4
            await w.client.send(request[:at])
            await w.client.send(request[at:-5])
            await w.b.port.until(lambda n=n: ChannelId(n) in w.b.port.openings)  # type: ignore[misc]
            await w.client.send(request[-5:])
            answer = await w.client.read("PATCH")
            assert (answer.status, answer.headers[b"upload-offset"], answer.informational) == (204, b"10", [100])
            assert await w.a.port.wait_closed(n) is End.DONE
        assert b"".join(w.b.files.taken) == b"some bytes" * 2
        assert not w.a.files.taken
        opening = w.b.port.openings[ONE]
        assert isinstance(opening, DraftOpening)
        assert (opening.principal, opening.size_bytes) == (None, None if chunked else 10)


async def test_a_stream_that_is_passed_on_ends_when_no_token_of_its_caller_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    token = new_token(lambda size: b"\7" * size)
    gate = Gate(GateSettings((StaticToken("ci", digest_of(token)),)))
    async with pair(monkeypatch, gate=gate) as w:
        await w.client.send(get("/mcp", f"Authorization: Bearer {token}"))
        await w.client.read_head("GET")
        gate.revoke("token:ci", time.time() + 1)
        assert w.a.server.check_callers() == 1
        assert await w.b.port.wait_closed(1) is End.GONE
        await w.client.read_eof()


async def test_an_order_to_pass_on_may_come_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine may have to look at the message, or something up, before it knows whose it is."""
    async with pair(monkeypatch) as w:
        w.b.port.on_message = echo
        w.a.port.on_open = lambda channel, opening, outlet: None
        await w.client.send(post(RESULT))
        await w.a.port.until(lambda: bool(w.a.port.messages))
        await anyio.wait_all_tasks_blocked()
        w.a.port.outlets[ONE].forward(Forward(ONE, "b"))  # type: ignore[attr-defined]
        assert (await w.client.read()).body == RESULT


async def test_an_order_to_pass_on_comes_too_late_once_the_reply_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """A comment was written meanwhile, so the client is to see that the reply is incomplete."""
    async with pair(monkeypatch) as w:
        w.a.port.on_open = lambda channel, opening, outlet: None
        await w.client.send(post(RESULT, "Mcp-Session-Id: b.x"))
        await w.a.port.until(lambda: bool(w.a.port.messages))
        for _ in range(2):
            for connection in list(w.a.server._connections):
                connection.keep_alive()
        await w.client.read_head()
        w.a.port.outlets[ONE].forward(Forward(ONE, "b"))  # type: ignore[attr-defined]
        await w.client.read_eof()
        assert await w.a.port.wait_closed(1) is End.BROKEN
        assert not w.made


async def test_a_client_cannot_take_a_header_away_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """The body of a request without its length would be read as a further request."""
    async with pair(monkeypatch) as w:
        w.b.port.on_message = echo
        await w.client.send(post(b'{"a":"GET / HTTP/1.1"}', "Connection: content-length, host, isthmus-hop"))
        answer = await w.client.read()
        assert (answer.status, answer.body) == (200, b'{"a":"GET / HTTP/1.1"}')
        assert len(w.b.port.openings) == 1


# --- Replicas that are gone -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("why", ["gone", "refused", "no socket"])
async def test_a_request_for_a_replica_that_is_gone_is_answered_here(monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    async with pair(monkeypatch) as w:
        if why == "gone":
            del w.membership.peers["b"]
        else:
            w.error = ConnectionRefusedError() if why == "refused" else FileNotFoundError()

        def on_message(channel: ChannelId, message: bytes, outlet: Outlet) -> None:
            opening = w.a.port.openings[channel]
            if getattr(opening, "is_returned", False):
                (took if isinstance(opening, DraftOpening) else echo)(channel, message, outlet)

        def on_open(channel: ChannelId, opening: Opening, outlet: Outlet) -> None:
            passes_on(channel, opening, outlet)
            if getattr(opening, "is_returned", False) and isinstance(opening, DeleteOpening | GetOpening):
                outlet.send(Send(channel, RESULT, is_last=True, status=404))

        w.a.port.on_open, w.a.port.on_message = on_open, on_message
        await w.client.send(post(RESULT))
        assert (await w.client.read()).body == RESULT
        for method in ("GET", "DELETE"):
            await w.client.send(get(method=method))
            assert (await w.client.read(method)).status == 404
        w.a.port.on_open = lambda *a: (appends if a[1].is_returned else passes_on)(*a)  # type: ignore[attr-defined]
        await w.client.send(patch_(b"some bytes"))
        answer = await w.client.read("PATCH")
        assert (answer.status, answer.headers[b"upload-offset"]) == (204, b"10")
        assert b"".join(w.a.files.taken) == b"some bytes"
        openings = list(w.a.port.openings.values())
        for first, second in zip(openings[::2], openings[1::2], strict=True):
            assert second == msgspec.structs.replace(first, is_returned=True)
        assert w.membership.refused == ([] if why == "gone" else ["b"] * 4)
        assert w.a.server._listening.counts.forwards == {Forwarded.GONE: 4}


async def test_a_replica_that_goes_between_two_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    async with pair(monkeypatch) as w:
        w.b.port.on_message = echo
        request = post(RESULT, "Mcp-Session-Id: b.x")
        for _ in range(2):
            await w.client.send(request)
            assert (await w.client.read()).body == RESULT
        await w.replicas.close_idle()
        w.error = ConnectionRefusedError()
        w.a.port.on_message = lambda channel, message, outlet: outlet.send(Send(channel, b"{}", True, 404))
        for _ in range(2):
            await w.client.send(request)
            assert (await w.client.read()).status == 404
        openings = list(w.a.port.openings.values())
        assert [getattr(opening, "is_returned", None) for opening in openings] == [False, True, True]


@pytest.mark.parametrize("body", [post(RESULT), patch_(b"some bytes"), get(), get(method="DELETE")])
@pytest.mark.parametrize("why", ["unreachable", "broken", "no address", "slow"])
async def test_a_replica_that_does_not_answer_is_tried_again_later(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, why: str, body: bytes
) -> None:
    limits = Limits(forward_reply_timeout_s=0.05) if why == "slow" else None
    async with pair(monkeypatch, limits) as w:
        if why == "unreachable":
            w.error = OSError("no route")
        elif why == "no address":
            w.membership.peers["b"] = Peer("b", RUNS["b"], "")

        if why in ("broken", "slow") and body.startswith(b"GET"):
            return  # it is answered with the head of a stream at once
        w.b.port.on_open = lambda *a: appends(*a) if isinstance(a[1], DraftOpening) else None
        await w.client.send(body)
        if why == "broken":
            await w.b.port.until(lambda: ONE in w.b.port.openings)
            for connection in list(w.b.server._connections):
                connection.stop()
        answer = await w.client.read(body.split()[0].decode())
        if why in ("broken", "slow") and body.startswith(b"POST"):
            assert lost(answer)
        elif body.startswith(b"PATCH"):
            assert (answer.status, answer.headers[b"retry-after"]) == (503, b"1")
        else:
            assert unavailable(answer)
        is_lost = why in ("broken", "slow") and body.startswith(b"POST")
        outcome = Forwarded.LOST if is_lost else Forwarded.UNAVAILABLE
        assert w.a.server._listening.counts.forwards == {outcome: 1}
        if why == "no address":
            assert "it has neither cluster.listen nor cluster.socket" in caplog.text


async def test_a_response_that_breaks_off_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    async with pair(monkeypatch) as w:
        await w.client.send(post(RESULT))
        await w.b.port.until(lambda: ONE in w.b.port.openings)
        w.b.port.outlets[ONE].send(Send(ONE, b"{}"))
        await w.client.read_head()
        assert await w.client.read_piece() == b"event: message\ndata: {}\n\n"
        w.b.port.outlets[ONE].close(Close(ONE, drops=True))
        await w.client.read_eof()
        assert await w.a.port.wait_closed(1) is End.BROKEN
        assert w.a.server._listening.counts.forwards == {Forwarded.BROKEN: 1}


async def test_requests_to_a_replica_that_is_gone_for_good_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A paused process takes connections and never answers."""
    async with pair(monkeypatch) as w:
        await w.client.send(post(RESULT))
        await w.b.port.until(lambda: bool(w.b.port.messages))
        w.replicas.note_gone(B.address)
        assert lost(await w.client.read())
        await w.client.send(post(RESULT))
        await w.b.port.until(lambda: len(w.b.port.messages) == 2)


async def test_a_client_that_leaves_during_a_look_up_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    async with pair(monkeypatch) as w:
        w.membership.may_answer = anyio.Event()
        await w.client.send(post(RESULT))
        await w.a.port.wait_open()
        w.client.stream.hang_up()
        assert await w.a.port.wait_closed(1) is End.GONE
        w.membership.may_answer.set()
        await anyio.wait_all_tasks_blocked()
        assert not w.made


@pytest.mark.parametrize("how", ["at its address", "elsewhere"])
async def test_a_replica_that_was_restarted_is_looked_up_again(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """The request that was signed for the old process, or that did not find it, goes to the new one."""
    async with pair(monkeypatch) as w:
        w.b.port.on_message = echo
        address = B.address if how == "at its address" else f"http://{CLOSED}"
        w.membership.peers["b"], w.membership.successors["b"] = Peer("b", RUNS["c"], address), B
        for _ in range(2):
            await w.client.send(post(RESULT))
            assert (await w.client.read()).body == RESULT
        assert w.membership.refused == ["b"]
        assert not any(getattr(opening, "is_returned", False) for opening in w.a.port.openings.values())


@pytest.mark.parametrize("body", [post(RESULT), patch_(b"some bytes")])
async def test_a_replica_that_refuses_the_signature_is_told_of(monkeypatch: pytest.MonkeyPatch, body: bytes) -> None:
    """Another secret or clock is no matter of its address: looking it up again does not help."""
    async with pair(monkeypatch) as w:
        w.membership.peers["b"] = Peer("b", RUNS["c"], B.address)
        await w.client.send(body)
        answer = await w.client.read(body.split()[0].decode())
        assert (answer.status, answer.headers[b"retry-after"]) == (503, b"1")
        assert b"is at replica b, which refuses requests of this one: try again later" in answer.body
        assert w.membership.refused == (["b"] if body.startswith(b"POST") else []), "what was read is not sent again"


async def test_a_header_is_signed_anew_before_it_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    async with pair(monkeypatch) as w:
        w.b.port.on_message = echo
        clock = [1000.0]
        monkeypatch.setattr(replica_module.time, "monotonic", lambda: clock[0])
        signed: list[Any] = []
        sign = w.replicas._signer.sign
        monkeypatch.setattr(w.replicas._signer, "sign", lambda *a: signed.append(a) or sign(*a))
        for later_s in (0, 1, SIGN_EVERY_S - 2, 2):
            clock[0] += later_s
            await w.client.send(post(RESULT))
            assert (await w.client.read()).status == 200
        assert len(signed) == 2


async def test_so_many_replicas_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_module, "REPLICAS_MAX", 1)
    async with pair(monkeypatch) as w:
        await w.client.send(post(RESULT))
        await w.b.port.until(lambda: bool(w.b.port.messages))
        w.membership.peers["c"] = Peer("c", RUNS["c"], "http://c.invalid")
        w.a.port.on_open = lambda channel, opening, outlet: outlet.forward(Forward(channel, "c"))  # type: ignore[attr-defined]
        other = w.a.connect()
        await other.send(post(RESULT))
        assert unavailable(await other.read())
        echo(ONE, RESULT, w.b.port.outlets[ONE])
        await w.client.read()
        await w.replicas.close_idle()
        await other.send(post(RESULT))
        assert unavailable(await other.read()), "the receiver is another run"
        assert list(w.replicas._servers) == ["http://c.invalid"]


async def test_a_caller_with_too_many_groups_is_not_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    token = new_token(lambda size: b"\7" * size)
    groups = frozenset(f"group-{n:0100}" for n in range(HOP_MAX_BYTES // 100))
    gate = Gate(GateSettings((StaticToken("ci", digest_of(token), groups=groups),)))
    async with pair(monkeypatch, gate=gate) as w:
        await w.client.send(post(RESULT, f"Authorization: Bearer {token}"))
        assert unavailable(await w.client.read())


# --- The internal listener ------------------------------------------------------------------------------------------


def hopped(header: bytes, request: bytes | None = None) -> bytes:
    request = request or post(RESULT)
    return request.replace(b"\r\n\r\n", b"\r\nIsthmus-Hop: " + header + b"\r\n\r\n", 1)


CALLER = HopCaller("token:ci")


def sign(**changes: Any) -> bytes:
    given = {"tag": "a", "secret": replica_fakes.SECRET, "run": RUNS["b"], "method": "POST", "target": "/mcp"}
    given |= {"now": time.time(), "caller": CALLER} | changes
    one = signer(given["tag"], given["secret"])
    return one.sign(given["run"], given["method"], given["target"], given["caller"], given["now"])


def forged() -> dict[str, bytes]:
    """Returns requests whose headers do not count, signed now."""
    return {
        "none": post(RESULT),
        "empty": hopped(b""),
        "two": hopped(sign(), hopped(sign())),
        "changed": hopped(sign()[:-1] + b"0", None) if not sign().endswith(b"0") else hopped(sign()[:-1] + b"1"),
        "another secret": hopped(sign(secret=b"another secret 16")),
        "old": hopped(sign(now=time.time() - TIME_MAX_S - 5)),
        "of the future": hopped(sign(now=time.time() + TIME_MAX_S + 60)),
        "for another run": hopped(sign(run=RUNS["a"])),
        "for another method": hopped(sign(method="DELETE")),
        "for another target": hopped(sign(target="/mcp/files")),
        "of nobody": hopped(sign(caller=HopCaller(None))),
        "for a page": hopped(sign(method="GET", target="/servers"), get("/servers")),
        "for a page of a tool": hopped(sign(target="/call/files/x"), post(RESULT, path="/call/files/x")),
        "for an upload": hopped(sign(target="/upload/files"), post(RESULT, path="/upload/files")),
        "for a stream of another transport": hopped(sign(method="GET", target="/sse"), get("/sse")),
    }


@pytest.mark.parametrize("name", forged())
async def test_the_internal_listener_lets_nothing_else_in(name: str) -> None:
    async with world(surface=INTERNAL, hops=receiver()) as w:
        request = forged()[name]
        await w.client.send(request)
        answer = await w.client.read(request.split()[0].decode())
        assert answer.status in (403, 404)
        assert not w.port.openings
        if b"Isthmus-Hop" not in request or name in ("old", "changed", "for another run"):
            assert (answer.status, answer.headers[b"isthmus-hop"]) == (403, b"refused")


async def test_a_header_is_of_no_use_at_another_replica() -> None:
    header = sign()
    for tag, status in (("b", 200), ("c", 403)):
        async with world(surface=INTERNAL, hops=receiver(tag)) as w:
            w.port.on_message = echo
            await w.client.send(hopped(header))
            assert (await w.client.read()).status == status


async def test_the_same_header_is_refused_once_it_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection knows the head already."""
    async with world(surface=INTERNAL, hops=receiver()) as w:
        w.port.on_message = echo
        header = sign(now=time.time() - TIME_MAX_S + 5)
        statuses, now = [], time.time()
        for later_s in (0, 0, 60):
            monkeypatch.setattr(time, "time", lambda at=now + later_s: at)
            await w.client.send(hopped(header))
            statuses.append((await w.client.read()).status)
        assert statuses == [200, 200, 403]


async def test_health_is_told_to_anybody() -> None:
    async with world(surface=INTERNAL, hops=receiver()) as w:
        for path, status in (("/healthz", 200), ("/readyz", 200), ("/files", 403), ("/info", 403)):
            await w.client.send(get(path))
            assert (await w.client.read("GET")).status == status


async def test_a_request_is_passed_on_once() -> None:
    async with world(surface=INTERNAL, hops=receiver()) as w:
        w.port.on_open = lambda channel, opening, outlet: outlet.forward(Forward(channel, "c"))  # type: ignore[attr-defined]
        await w.client.send(hopped(sign()))
        answer = await w.client.read()
        assert (answer.status, "error" in json.loads(answer.body)) == (508, True)
        assert await w.port.wait_closed(1) is End.DONE


async def test_the_header_means_nothing_on_the_public_listener() -> None:
    async with world(surface=SURFACE) as w:
        w.port.on_message = echo
        await w.client.send(hopped(sign()))
        assert (await w.client.read()).status == 200
        opening = w.port.openings[ONE]
        assert isinstance(opening, PostOpening) and opening.principal == ""


async def test_the_head_limit_leaves_room_for_the_header(monkeypatch: pytest.MonkeyPatch) -> None:
    """A head that the public listener takes is taken by the internal one, too."""
    async with pair(monkeypatch) as w:
        w.b.port.on_message = echo
        size = Limits().head_size_max_bytes - len(post(RESULT)) - 100
        await w.client.send(post(RESULT, f"X-Long: {'x' * size}"))
        assert (await w.client.read()).status == 200
