"""Tests of the engine without an event loop: blocking threads drive a copy of it, under another name, with msgspec
alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from ground import BLUNT, HELLO, SEEN, TIMEOUT_S, WORKSHOP, at_rest, call, request, visit


class Client:
    """A process with the proxy in it, and a client at its stdin and stdout."""

    def __init__(self, folder: Path, command: Sequence[str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-S", "threaded.py", *command], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def say(self, message: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(message + b"\n")
        self.process.stdin.flush()

    def receive(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def shake_hands(self) -> str:
        """Does the handshake. Returns the server's version, which is its process id."""
        self.say(request("hello", "initialize", **HELLO))
        version = self.receive()["result"]["serverInfo"]["version"]
        self.say(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
        assert isinstance(version, str)
        return version

    def leave(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(TIMEOUT_S) == 0


@contextmanager
def client(folder: Path, *command: str) -> Iterator[Client]:
    one = Client(folder, command)
    watchdog = threading.Timer(TIMEOUT_S, one.process.kill)  # ends a read that would wait for ever
    watchdog.start()
    try:
        yield one
    finally:
        watchdog.cancel()
        one.process.kill()
        one.process.wait()


@pytest.mark.real
def test_an_official_client_meets_an_official_server(folder: Path) -> None:
    """The client gets the same through the proxy as without, as `test_sdk_pairs` expects it."""
    command = [sys.executable, "-S", str(folder / "threaded.py"), *WORKSHOP]
    assert visit({"command": command, "env": {}}, folder) == SEEN


def test_the_server_goes_with_its_client(folder: Path) -> None:
    with client(folder, *BLUNT) as one:
        pid = int(one.shake_hands())
        one.leave()
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_client_that_sends_everything_at_once_is_answered(folder: Path) -> None:
    """A client that has closed its side still gets its answers."""
    messages = [request("hello", "initialize", **HELLO), b'{"jsonrpc":"2.0","method":"notifications/initialized"}']
    messages += [call(n, "echo", text=f"text {n}") for n in range(20)]
    with client(folder, *BLUNT) as one:
        printed, _ = one.process.communicate(b"\n".join(messages) + b"\n", TIMEOUT_S)
    answers = {answer["id"]: answer["result"] for answer in map(json.loads, printed.splitlines())}
    assert len(answers) == 21
    assert all(answers[n]["content"][0]["text"] == f"text {n}" for n in range(20))


def test_a_server_that_cannot_start_is_answered_with_an_error(folder: Path) -> None:
    with client(folder, "/nonexistent/server") as one:
        one.say(request(1, "initialize", **HELLO))
        assert "No such file" in one.receive()["error"]["message"]
        one.leave()


def test_the_death_of_a_server_is_answered_and_it_is_started_again(folder: Path) -> None:
    with client(folder, *BLUNT) as one:
        one.shake_hands()
        one.say(call("last", "die"))
        answer = one.receive()
        assert answer["id"] == "last"
        assert "exit code 7" in answer["error"]["message"]
        one.say(call("first", "echo", text="here again"))
        assert one.receive()["result"]["content"][0]["text"] == "here again"
        one.leave()


def test_a_request_that_is_too_long_is_refused(folder: Path) -> None:
    """The refusal has the request's own id, and the next request is served."""
    with client(folder, *BLUNT) as one:
        one.shake_hands()
        one.say(call("long", "echo", text="x" * (16 * 1024 * 1024)))
        refusal = one.receive()
        assert refusal["id"] == "long"
        assert "limit" in refusal["error"]["message"]
        one.say(call("short", "echo", text="still here"))
        assert one.receive()["result"]["content"][0]["text"] == "still here"
        one.leave()


def test_a_server_waits_for_a_client_that_does_not_read(folder: Path) -> None:
    """The server's output stops until the client reads, and then all of it arrives, in order."""
    count, size_bytes, tally = 128, 64 * 1024, folder / "tally"
    with client(folder, *BLUNT) as one:
        one.shake_hands()
        one.say(call("pour", "pour", count=count, size_bytes=size_bytes, tally=str(tally)))
        assert at_rest(tally) < count // 2
        reports = [one.receive() for _ in range(count)]
        assert [message["params"]["progress"] for message in reports] == list(range(1, count + 1))
        assert one.receive()["result"]["content"][0]["text"] == f"poured {count}"
        one.leave()
