"""The checks of a driver: conversations that go wrong, or never end, where a driver breaks its contract."""

from __future__ import annotations

import http.client
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from .clients import STATELESS, CheckFailed, HttpClient, PipeClient, call, request, text_of
from .scene import Scene
from .target import Start

TIMEOUT_S: Final = 30.0
"""The limit of each wait, which only a broken driver meets."""
MIB: Final = 1024 * 1024
HASTE: Final[dict[str, Any]] = {"drain_s": 0.5, "stop_grace_s": 0.3}
"""Limits for checks whose gateway stops with an open call, or with a server that does not end by itself."""
STATELESS_META: Final = {
    "protocolVersion": STATELESS,
    "clientInfo": {"name": "check", "version": "1"},
    "clientCapabilities": {},
}


class Check(NamedTuple):
    """A check. Call it with the function that starts a gateway.

    Raises, when called:
        CheckFailed: the driver is wrong; the text says what was seen and what is right.
        CheckSkipped: the check does not apply to this gateway.
    """

    name: str
    says: str
    play: Callable[[Scene], None]

    def __call__(self, start: Start, *, timeout_s: float = TIMEOUT_S) -> None:
        with tempfile.TemporaryDirectory(prefix="check") as folder:
            try:
                self.play(Scene(start, Path(folder), timeout_s))
            except TimeoutError as error:
                raise CheckFailed(f"got nothing for {timeout_s:g} s, expected a response that is whole") from error
            except (OSError, http.client.HTTPException, ValueError) as error:
                seen = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
                raise CheckFailed(f"got {seen}, expected a response that is whole") from error


_checks: list[Check] = []


def check(play: Callable[[Scene], None]) -> Callable[[Scene], None]:
    _checks.append(Check(play.__name__, " ".join((play.__doc__ or "").split()), play))
    return play


def expect(condition: object, seen: str, expected: str) -> None:
    if not condition:
        raise CheckFailed(f"got {seen}, expected {expected}")


def expect_error(answer: dict[str, Any], expected: str) -> None:
    expect("error" in answer, json.dumps(answer)[:200], expected)


def expect_echo(client: HttpClient | PipeClient, id: object, text: str, *, step: int = 0) -> None:
    answer = text_of(client.begin(call(id, "echo", text=text), step=step).answer())
    expect(answer == text, f"{len(answer)} characters, {answer[:40]!r}", f"{len(text)} characters, {text[:40]!r}")


# --- Processes ------------------------------------------------------------------------------------------------------


@check
def deaf_child(scene: Scene) -> None:
    """A server that reads nothing more is gone soon after its session: `Close` overtakes what waits to be written."""
    with scene.gateway("deaf", write_timeout_s=2.0, **HASTE) as gateway:
        gateway.needs_processes()
        client = gateway.client()
        pid = client.shake_hands()
        client.begin(call(1, "echo", text="x" * MIB))
        gateway.until(lambda: "deaf" in gateway.log(), "the server is deaf")
        if isinstance(client, HttpClient):
            client.leave()
            gateway.until(lambda: pid not in gateway.living(), "the server of an ended session is gone")
            client = gateway.client()
            client.shake_hands()
            client.begin(call(2, "echo", text="x" * MIB))


@check
def child_that_exits(scene: Scene) -> None:
    """A call whose server exits is answered with an error, and the next call has a new server."""
    with scene.gateway() as gateway:
        gateway.needs_processes()
        client = gateway.client()
        pid = client.shake_hands()
        expect_error(client.begin(call(1, "exit")).answer(), "an error: the server has ended")
        other = text_of(client.begin(call(2, "pid")).answer())
        expect(other != str(pid), "the same process", "a new one")


@check
def torn_line(scene: Scene) -> None:
    """A server that exits within a line is answered for, too."""
    with scene.gateway() as gateway:
        gateway.needs_processes()
        client = gateway.client()
        client.shake_hands()
        expect_error(client.begin(call(1, "torn")).answer(), "an error: the server has ended")
        expect_echo(client, 2, "after it")


@check
def line_over_the_limit(scene: Scene) -> None:
    """A response over `reply_size_max_bytes` becomes an error, and the next one is delivered."""
    with scene.gateway(reply_size_max_bytes=256 * 1024) as gateway:
        client = gateway.client()
        client.shake_hands()
        expect_error(client.begin(call(1, "long", size=MIB)).answer(), "an error: the response is too long")
        expect_echo(client, 2, "after it")


# --- Messages -------------------------------------------------------------------------------------------------------


@check
def byte_by_byte(scene: Scene) -> None:
    """Requests and responses arrive a byte at a time, and nothing shows of it."""
    with scene.gateway("bytes") as gateway:
        client = gateway.client()
        client.shake_hands()
        for id in range(3):
            expect_echo(client, id, f"snow \u2603 {id}", step=1)


@check
def answers_out_of_order(scene: Scene) -> None:
    """Each of fifty calls at once gets its own response, in whatever order the server answers."""
    with scene.gateway() as gateway:
        client = gateway.client()
        client.shake_hands()
        calls = [client.begin(call(id, "late", text=f"text {id}", count=50)) for id in range(50)]
        for id, each in enumerate(calls):
            answer = each.answer()
            expect(answer["id"] == id, f"id {answer['id']!r}", f"{id}")
            expect(text_of(answer) == f"text {id}", text_of(answer), f"text {id}")


@check
def notifications_in_order(scene: Scene) -> None:
    """Two thousand notifications of one call arrive in order, all of them, before its response."""
    with scene.gateway() as gateway:
        client = gateway.client()
        client.shake_hands()
        *reports, answer = client.begin(call(1, "pour", count=2000, size=10)).messages()
        expect_progress(reports, 2000)
        expect(text_of(answer) == "poured 2000", text_of(answer), "poured 2000")


def expect_progress(reports: list[dict[str, Any]], count: int) -> None:
    numbers = [report.get("params", {}).get("progress") for report in reports]
    if numbers != list(range(1, count + 1)):
        wrong = next((at for at, number in enumerate(numbers) if number != at + 1), len(numbers))
        raise CheckFailed(
            f"got {len(numbers)} notifications, wrong from the {wrong + 1}. on, expected {count} in order"
        )


@check
def much_in_each_direction(scene: Scene) -> None:
    """Eight MiB go through in each direction. They come to a halt if `receive_sent` is not called."""
    with scene.gateway(outbox_max_bytes=2 * MIB) as gateway:
        client = gateway.client()
        client.shake_hands()
        for id in range(8):
            expect_echo(client, id, "x" * MIB)
        *reports, _ = client.begin(call(9, "pour", count=128, size=64 * 1024)).messages()
        expect_progress(reports, 128)
        expect_echo(client, 10, "y" * 8 * MIB)


@check
def slow_reader(scene: Scene) -> None:
    """A server waits for a client that does not read, and then all of it arrives, in order."""
    count = 640
    with scene.gateway() as gateway:
        client = gateway.client()
        client.shake_hands()
        poured = client.begin(call(1, "pour", count=count, size=64 * 1024))
        seen = gateway.poured()
        expect(seen < count // 2, f"{seen} of {count} messages for a client that reads none", "a server that waits")
        *reports, _ = poured.messages()
        expect_progress(reports, count)


# --- Clients --------------------------------------------------------------------------------------------------------


@check
def two_sessions(scene: Scene) -> None:
    """Two clients with equal ids at once get their own responses, each from a server of its own."""
    with scene.gateway() as gateway:
        clients = [gateway.http(), gateway.http()]
        for client in clients:
            client.shake_hands()
        pids = [text_of(client.begin(call(2, "pid")).answer()) for client in clients]
        expect(pids[0] != pids[1], "one server", "a server for each session")
        calls = [client.begin(call(1, "late", text=pid, count=1)) for client, pid in zip(clients, pids, strict=True)]
        for each, pid in zip(calls, pids, strict=True):
            expect(text_of(each.answer()) == pid, "the response of another session", "its own")


@check
def client_that_leaves(scene: Scene) -> None:
    """A client that leaves within its call, or within its body, harms no other call of its session, and no other
    client."""
    with scene.gateway(**HASTE) as gateway:
        client, other = gateway.http(), gateway.http()
        client.shake_hands()
        other.shake_hands()
        leaving = client.begin(call(1, "hang"))
        gateway.until(lambda: "call hang" in gateway.log(), "the call reaches the server")
        leaving.leave()
        torn = client.begin(b"{", headers={"content-length": "100"})
        torn.leave()
        expect_echo(client, 2, "the same client")
        expect_echo(other, 1, "another client")


@check
def stateless_call_cancelled(scene: Scene) -> None:
    """The end of a POST of 2026-07-28 cancels its call at the server: `receive_close` says that the client is gone."""
    with scene.gateway() as gateway:
        client = gateway.http()
        meta = {f"io.modelcontextprotocol/{name}": value for name, value in STATELESS_META.items()}
        message = request(1, "tools/call", {"name": "hang", "arguments": {}, "_meta": meta})
        headers = {"mcp-protocol-version": STATELESS, "mcp-method": "tools/call", "mcp-name": "hang"}
        leaving = client.begin(message, headers=headers)
        gateway.until(lambda: "call hang" in gateway.log(), "the call reaches the server")
        leaving.leave()
        gateway.until(lambda: "cancelled" in gateway.log(), "the call is cancelled at the server")


@check
def event_stream_kept_alive(scene: Scene) -> None:
    """An event stream opens at once, and gets a comment after `keep_alive_s` without an event."""
    with scene.gateway(keep_alive_s=0.3) as gateway:
        client = gateway.http()
        client.shake_hands()
        stream = client.listen()
        expect(stream.response.status == 200, f"status {stream.response.status}", "200")
        expect(any(line.startswith(b":") for line in stream.lines()), "the end of the stream", "a comment")
        stream.leave()


# --- Time -----------------------------------------------------------------------------------------------------------


@check
def silent_server(scene: Scene) -> None:
    """A server that does not answer is given up after `reply_timeout_s`, in `handle_timeout`."""
    with scene.gateway(reply_timeout_s=0.5) as gateway:
        client = gateway.client()
        client.shake_hands()
        expect_error(client.begin(call(1, "hang")).answer(), "an error: the server does not answer")
        expect_echo(client, 2, "after it")


@check
def stop_with_an_open_call(scene: Scene) -> None:
    """A stop ends the open calls, with a response where the web server lets it through, and leaves no process."""
    with scene.gateway(**HASTE) as gateway:
        client = gateway.client()
        client.shake_hands()
        waiting = client.begin(call(1, "hang"))
        gateway.until(lambda: "call hang" in gateway.log(), "the call reaches the server")
        gateway.stop()
        if gateway.is_http and gateway.target.answers_at_stop:
            expect_error(waiting.answer(), "an error: the gateway stops")


CHECKS: Final = tuple(_checks)
"""All checks, in order."""
