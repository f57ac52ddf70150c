"""Tests of reused ids, malformed requests, and the death of servers, of the network and of the proxy.

Official clients do none of this, so the client here uses `http.client`, threads, and messages as they are. The server
is server-everything.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import pytest
import rig
from isthmus.app.runtime.signals import SAME_SIGNAL_S
from rig import EVERYTHING, PATIENCE_S, Proxy, everything_over_http, isthmus, until, wrap

pytestmark = pytest.mark.real

LONG: Final = "trigger-long-running-operation"
TEXT_1, TEXT_2 = "demo://resource/dynamic/text/1", "demo://resource/dynamic/text/2"
REVISION: Final = "2025-11-25"
ACCEPT: Final = "application/json, text/event-stream"

OUTCOME_UNKNOWN: Final = -31001
UPSTREAM_UNAVAILABLE: Final = -31004
OVERLOADED: Final = -31007

Message = dict[str, Any]

# --- A bare client ----------------------------------------------------------------------------------------------------


class Reply:
    """An HTTP response that is read as it comes."""

    def __init__(self, connection: http.client.HTTPConnection) -> None:
        self._connection = connection
        self._socket = connection.sock
        self._response = connection.getresponse()
        self.status = self._response.status
        self.headers = {name.lower(): value for name, value in self._response.getheaders()}

    def messages(self) -> Iterator[Message]:
        """Yields each JSON-RPC message, as soon as it is here, until the response ends."""
        with contextlib.closing(self._connection):
            if not self.headers.get("content-type", "").startswith("text/event-stream"):
                body = self._response.read()
                if body:
                    yield json.loads(body)
                return
            data: list[str] = []
            for raw in self._response:
                line = raw.decode().rstrip("\r\n")
                if line.startswith("data:"):
                    data.append(line.removeprefix("data:").removeprefix(" "))
                elif not line:
                    text, data = "\n".join(data), []
                    if text:
                        yield json.loads(text)

    def all(self) -> list[Message]:
        return list(self.messages())

    def json(self) -> Message:
        """Returns the only message."""
        (message,) = self.all()
        return message

    def hang_up(self) -> None:
        """Ends the connection. Its reader comes to an end and closes it."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)


def fetch(url: str, method: str, body: bytes | None = None, headers: dict[str, str | None] | None = None) -> Reply:
    """Sends an HTTP request with the usual headers of an MCP client, changed by `headers`. None removes one."""
    parts = urlsplit(url)
    usual: dict[str, str | None] = {"Accept": ACCEPT}
    if body is not None:
        usual["Content-Type"] = "application/json"
    sent = {name: value for name, value in {**usual, **(headers or {})}.items() if value is not None}
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=PATIENCE_S)
    connection.request(method, parts.path, body, sent)
    return Reply(connection)


def encode(message: object) -> bytes:
    return json.dumps(message).encode()


def request(id: object, method: str, params: Message | None = None) -> Message:
    message: Message = {"jsonrpc": "2.0", "id": id, "method": method}
    return message if params is None else {**message, "params": params}


def call(id: object, tool: str, token: object = None, **arguments: Any) -> Message:
    params: Message = {"name": tool, "arguments": arguments}
    return request(id, "tools/call", params if token is None else {**params, "_meta": {"progressToken": token}})


def notification(method: str, params: Message | None = None) -> Message:
    message: Message = {"jsonrpc": "2.0", "method": method}
    return message if params is None else {**message, "params": params}


def initialize(id: object = 0, capabilities: Message | None = None) -> Message:
    params = {
        "protocolVersion": REVISION,
        "capabilities": capabilities or {},
        "clientInfo": {"name": "bare", "version": "0"},
    }
    return request(id, "initialize", params)


class Listener:
    """The GET stream of a session, read in a thread of its own."""

    def __init__(self, reply: Reply) -> None:
        self.messages: list[Message] = []
        self.has_ended = False
        self._news = threading.Condition()
        self._reply = reply
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
            for message in self._reply.messages():
                with self._news:
                    self.messages.append(message)
                    self._news.notify_all()
        with self._news:
            self.has_ended = True
            self._news.notify_all()

    def find(self, method: str, contains: str = "") -> list[Message]:
        with self._news:
            return [m for m in self.messages if m.get("method") == method and contains in json.dumps(m)]

    def wait(self, method: str, contains: str = "", count: int = 1) -> list[Message]:
        """Waits until `count` such messages have come."""

        def has_come() -> bool:
            found = [m for m in self.messages if m.get("method") == method and contains in json.dumps(m)]
            return self.has_ended or len(found) >= count

        with self._news:
            assert self._news.wait_for(has_come, PATIENCE_S), f"waited for {method} with {contains!r}: {self.messages}"
        found = self.find(method, contains)
        assert len(found) >= count, f"the stream ended without {method} with {contains!r}: {self.messages}"
        return found

    def wait_end(self) -> None:
        self._thread.join(PATIENCE_S)
        assert self.has_ended

    def close(self) -> None:
        self._reply.hang_up()
        self._thread.join(PATIENCE_S)


class Session:
    """One session on Streamable HTTP."""

    def __init__(self, url: str, capabilities: Message | None = None, *, is_confirmed: bool = True) -> None:
        self.url = url
        reply = fetch(url, "POST", encode(initialize(capabilities=capabilities)))
        answer = reply.json()
        assert reply.status == 200, answer
        self.result: Message = answer["result"]
        self.id = reply.headers["mcp-session-id"]
        if is_confirmed:
            self.confirm()

    def confirm(self) -> None:
        assert self.post(notification("notifications/initialized")).status == 202

    @property
    def headers(self) -> dict[str, str | None]:
        return {"Mcp-Session-Id": self.id, "MCP-Protocol-Version": REVISION}

    def post(self, message: object) -> Reply:
        return fetch(self.url, "POST", encode(message), self.headers)

    def answer(self, message: Message) -> Message:
        """Returns the answer to a request: the last message of its reply."""
        *_, last = self.post(message).messages()
        assert last["id"] == message["id"]
        assert isinstance(last, dict)
        return last

    def listen(self) -> Listener:
        reply = fetch(self.url, "GET", None, self.headers)
        assert reply.status == 200
        return Listener(reply)

    def delete(self) -> int:
        return fetch(self.url, "DELETE", None, self.headers).status


def echo_of(answer: Message) -> str:
    text = answer["result"]["content"][0]["text"]
    assert isinstance(text, str)
    return text


def check_works(session: Session, text: str = "still here") -> None:
    """Checks that reading and calling both work. Reads are repeated if need be, calls run once."""
    assert len(session.answer(request("t", "tools/list"))["result"]["tools"]) == 13
    assert echo_of(session.answer(call("e", "echo", message=text))) == f"Echo: {text}"


# --- Proxies ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("life")


@pytest.fixture(scope="module")
def over_stdio(folder: Path) -> Iterator[Proxy]:
    """Isthmus before a child process, for tests that leave both as they are."""
    with wrap(EVERYTHING, folder=folder, asks=True) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def over_http(folder: Path) -> Iterator[Proxy]:
    """Isthmus before an HTTP server."""
    with everything_over_http(folder=folder) as (_, url), wrap(url, folder=folder, asks=True) as proxy:
        yield proxy


@pytest.fixture(params=["over_stdio", "over_http"])
def proxy(request: pytest.FixtureRequest) -> Proxy:
    fixture = request.getfixturevalue(request.param)
    assert isinstance(fixture, Proxy)
    return fixture


# --- Ids and sessions -------------------------------------------------------------------------------------------------


def test_the_same_id_fifty_times_at_once(proxy: Proxy) -> None:
    """Fifty requests with the id 1 are in flight in one session, and each gets its own answer."""
    session = Session(proxy.url)
    slow = [call(1, LONG, duration=1.0 + n / 1000, steps=1) for n in range(25)]
    quick = [call(1, "echo", message=f"text {n}") for n in range(25)]
    mixed = [message for pair in zip(slow, quick, strict=True) for message in pair]
    with ThreadPoolExecutor(len(mixed)) as pool:
        answers = list(pool.map(session.answer, mixed))
    for message, answer in zip(mixed, answers, strict=True):
        arguments = message["params"]["arguments"]
        expected = (
            f"Echo: {arguments['message']}"
            if "message" in arguments
            else f"Long running operation completed. Duration: {arguments['duration']:g} seconds, Steps: 1."
        )
        assert echo_of(answer) == expected
    assert session.delete() == 204


def test_ids_come_back_as_they_were(proxy: Proxy) -> None:
    """Texts, numbers, and numbers as texts are not mixed up."""
    session = Session(proxy.url)
    ids: list[object] = [0, 1, "1", -5, 2**53, "snow ☃", ""]
    for id in ids:
        (answer,) = session.post(call(id, "echo", message=f"{id}")).all()
        assert json.dumps(answer["id"]) == json.dumps(id)
        assert echo_of(answer) == f"Echo: {id}"
    assert session.delete() == 204


def test_sessions_do_not_receive_each_others_messages(proxy: Proxy) -> None:
    """Two clients use the same ids and the same progress tokens. Each gets its own messages, and cannot cancel the
    other's calls."""
    one, two = Session(proxy.url), Session(proxy.url)
    assert one.id != two.id
    first, second = one.listen(), two.listen()
    with contextlib.closing(first), contextlib.closing(second):
        calls = [
            one.post(call(1, LONG, "token", duration=1.0, steps=2)),
            two.post(call(1, LONG, "token", duration=1, steps=4)),
        ]
        streams = [reply.messages() for reply in calls]
        begun = [next(stream) for stream in streams]
        assert [message["params"]["total"] for message in begun] == [2, 4]
        assert two.post(notification("notifications/cancelled", {"requestId": 1})).status == 202

        for session, uri in ((one, TEXT_1), (two, TEXT_2)):
            assert session.answer(request(2, "resources/subscribe", {"uri": uri}))["result"] == {}
            session.answer(call(3, "toggle-subscriber-updates"))
        assert [m["params"]["uri"] for m in first.wait("notifications/resources/updated")] == [TEXT_1]
        assert [m["params"]["uri"] for m in second.wait("notifications/resources/updated")] == [TEXT_2]
        for session in (one, two):
            session.answer(call(4, "toggle-subscriber-updates"))
        assert not first.find("", TEXT_2) and not second.find("", TEXT_1)

        *progress, answer = streams[0]
        assert [message["params"]["progress"] for message in progress] == [2]
        assert "Steps: 2" in echo_of(answer)
        (ended,) = [message for message in streams[1] if message.get("id") == 1]
        assert ended["error"]["code"] == -32800, "its own cancellation counts"
    assert one.delete() == 204
    assert fetch(proxy.url, "POST", encode(request(1, "ping")), one.headers).status == 404
    check_works(two)
    assert two.delete() == 204


def test_a_deleted_session_is_gone(over_stdio: Proxy) -> None:
    """DELETE ends the session, its streams and its process. Afterwards it is unknown."""
    session = Session(over_stdio.url)
    listener = session.listen()
    check_works(session)
    child = only_child(over_stdio)
    assert session.delete() == 204
    listener.wait_end()
    until(lambda: not rig.is_alive(child), "the session's process to end")
    for method, body in (("POST", encode(request(1, "tools/list"))), ("GET", None), ("DELETE", None)):
        reply = fetch(over_stdio.url, method, body, session.headers)
        assert reply.status == 404
        assert "initialize" in reply.json()["error"]["message"]


def test_a_cancelled_call_is_cancelled_at_the_server(folder: Path) -> None:
    """The server gets the cancellation under its own id of the call, and the client gets no answer of the server."""
    log = folder / "heard.jsonl"
    script = f"exec tee '{log}' | exec '{EVERYTHING}'"
    with wrap("sh", "-c", script, folder=folder) as proxy:
        session = Session(proxy.url)
        reply = session.post(call("mine", LONG, "t", duration=2, steps=4))
        stream = reply.messages()
        assert next(stream)["method"] == "notifications/progress"
        assert (
            session.post(notification("notifications/cancelled", {"requestId": "mine", "reason": "no"})).status == 202
        )
        (ended,) = stream
        assert ended["error"]["code"] == -32800, "no answer; but a stream with event ids must not just end"
        check_works(session)
        messages = [json.loads(line) for line in log.read_text().splitlines()]
        (number,) = [m["id"] for m in messages if m.get("params", {}).get("name") == LONG]
        cancelled = [m["params"] for m in messages if m["method"] == "notifications/cancelled"]
        assert cancelled == [{"requestId": number, "reason": "no"}]


# --- Servers that die -------------------------------------------------------------------------------------------------

KILLS: Final = 10 if os.environ.get("THOROUGH") else 3


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    until(lambda: not rig.is_alive(pid), "a killed server to be dead")


def assert_lost(answer: Message) -> None:
    """Asserts that the error says that the outcome of the request is unknown."""
    assert answer["error"]["code"] == OUTCOME_UNKNOWN
    assert answer["error"]["data"] == {"outcome": "unknown"}
    assert "killed by signal 9" in answer["error"]["message"]
    assert "may have run" in answer["error"]["message"]


def only_child(proxy: Proxy) -> int:
    """Returns the process of the only running server, after waiting for one that is being stopped.

    A process that has just been forked looks like a server for a moment, so the same one is looked for twice.
    """
    found: list[int] = []

    def is_alone() -> bool:
        before = found.copy()
        found[:] = proxy.server_pids
        return len(found) == 1 and found == before

    until(is_alone, "one server to run")
    return found[0]


@pytest.fixture
def mortal(folder: Path) -> Iterator[Proxy]:
    """Isthmus before a child process that may be killed."""
    with wrap(EVERYTHING, folder=folder) as proxy:
        yield proxy


def test_a_server_killed_while_idle_is_started_again(mortal: Proxy) -> None:
    session = Session(mortal.url)
    check_works(session)
    seen = set()
    for n in range(KILLS):
        child = only_child(mortal)
        seen.add(child)
        kill(child)
        check_works(session, f"after {n}")
    assert len(seen) == KILLS


def test_a_server_killed_in_the_middle_of_calls(mortal: Proxy) -> None:
    """Every open request is answered, once, and the next one works. Requests that only read are repeated without the
    client's notice."""
    session = Session(mortal.url)
    for n in range(KILLS):
        streams = [session.post(call(id, LONG, f"t{id}", duration=30, steps=300)).messages() for id in (1, 1, 2)]
        for stream in streams:
            assert next(stream)["method"] == "notifications/progress"
        kill(only_child(mortal))
        for stream, id in zip(streams, (1, 1, 2), strict=True):
            *progress, answer = stream
            assert all(message["method"] == "notifications/progress" for message in progress)
            assert answer["id"] == id
            assert_lost(answer)
        check_works(session, f"after {n}")


def test_a_server_killed_right_after_the_handshake(mortal: Proxy) -> None:
    """The result is the same whether or not the client has confirmed the handshake."""
    for n in range(KILLS):
        session = Session(mortal.url, is_confirmed=n % 2 == 0)
        kill(only_child(mortal))
        if n % 2:
            session.confirm()
        check_works(session, f"after {n}")
        assert session.delete() == 204


def test_a_server_killed_during_the_handshake(mortal: Proxy) -> None:
    """The client gets an error instead of a session, and the next handshake works. Where the process before was still
    ending, as the gateway saw it, the server is started anew instead: then there is a session."""
    with ThreadPoolExecutor(1) as pool:
        for _ in range(3):
            pending = pool.submit(fetch, mortal.url, "POST", encode(initialize()))
            kill(only_child(mortal))
            reply = pending.result()
            answer = reply.json()
            if "result" in answer:
                assert (
                    fetch(mortal.url, "DELETE", None, {"mcp-session-id": reply.headers["mcp-session-id"]}).status == 204
                )
            else:
                assert "mcp-session-id" not in reply.headers
                assert answer["error"]["code"] == UPSTREAM_UNAVAILABLE
                assert "killed by signal 9" in answer["error"]["message"]
            until(lambda: not mortal.server_pids, "a dead server to be gone")
    check_works(Session(mortal.url))


def test_other_sessions_live_on_when_a_server_dies(mortal: Proxy) -> None:
    """Each session has a process of its own."""
    one = Session(mortal.url)
    victim = only_child(mortal)
    two = Session(mortal.url)
    stream = two.post(call(1, LONG, "t", duration=1, steps=2)).messages()
    next(stream)
    kill(victim)
    *_, answer = stream
    assert "completed" in echo_of(answer)
    check_works(one)
    check_works(two)


def test_subscriptions_and_log_level_are_set_again(mortal: Proxy) -> None:
    """Subscriptions and the log level are set again in the next process, without a request of the client."""
    session = Session(mortal.url)
    with contextlib.closing(session.listen()) as listener:
        session.answer(request(1, "logging/setLevel", {"level": "error"}))
        session.answer(request(2, "resources/subscribe", {"uri": TEXT_1}))
        child = only_child(mortal)
        kill(child)
        assert only_child(mortal) != child
        session.answer(call(3, "toggle-subscriber-updates"))
        listener.wait("notifications/resources/updated", TEXT_1)
        session.answer(call(4, "toggle-subscriber-updates"))
        assert not listener.find("notifications/message", "Received Subscribe"), "that is at level info"


class Restartable:
    """An HTTP server that can be killed, and started again on its port."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.process, self.url = rig.start_everything_over_http(folder=folder)

    def start_again(self) -> None:
        self.process, url = rig.start_everything_over_http(folder=self._folder, port=urlsplit(self.url).port or 0)
        assert url == self.url


@pytest.fixture
def restartable(folder: Path) -> Iterator[Restartable]:
    made = Restartable(folder)
    try:
        yield made
        made.process.stop(code=None)
    finally:
        made.process.clean_up()


def test_an_http_server_started_again(folder: Path, restartable: Restartable) -> None:
    """The server has lost all sessions. Open requests are answered, and the next call finds everything as it was."""
    with wrap(restartable.url, folder=folder) as proxy:
        session = Session(proxy.url)
        check_works(session)
        session.answer(request(1, "resources/subscribe", {"uri": TEXT_1}))
        stream = session.post(call(2, LONG, "t", duration=30, steps=300)).messages()
        next(stream)

        restartable.process.kill()
        *_, answer = stream
        assert answer["error"]["code"] == OUTCOME_UNKNOWN
        down = session.answer(call(3, "echo", message="nobody"))
        assert down["error"]["code"] == UPSTREAM_UNAVAILABLE
        assert "is the server running?" in down["error"]["message"]

        restartable.start_again()
        check_works(session)
        with contextlib.closing(session.listen()) as listener:
            session.answer(call(4, "toggle-subscriber-updates"))
            listener.wait("notifications/resources/updated", TEXT_1)
        assert session.delete() == 204


def test_an_http_server_started_again_while_nobody_calls(folder: Path, restartable: Restartable) -> None:
    """A client that only waits for updates is subscribed again, without asking."""
    with wrap(restartable.url, folder=folder) as proxy:
        session = Session(proxy.url)
        with contextlib.closing(session.listen()) as listener:
            # The server reports each subscription, here or on the reply to the call it comes with.
            *remarks, answer = session.post(request(1, "resources/subscribe", {"uri": TEXT_1})).messages()
            assert answer["result"] == {}
            if not remarks:
                listener.wait("notifications/message", "Received Subscribe")
            count = len(listener.find("notifications/message", "Received Subscribe"))
            restartable.process.kill()
            restartable.start_again()
            listener.wait("notifications/message", "Received Subscribe", count=count + 1)
        assert session.delete() == 204


# --- Isthmus itself ends ----------------------------------------------------------------------------------------------


def test_killing_isthmus_leaves_no_process(folder: Path) -> None:
    """Servers and their descendants end with it, even those in a session of their own."""
    script = f"sleep 1000 & setsid sleep 1000 & exec '{EVERYTHING}'"
    with wrap("sh", "-c", script, folder=folder) as proxy:
        sessions = [Session(proxy.url) for _ in range(2)]
        stream = sessions[0].post(call(1, LONG, "t", duration=30, steps=300)).messages()
        next(stream)
        living = rig.tagged(proxy.tag)
        assert len([pid for pid in living if "sleep 1000" in rig.command_of(pid)]) >= 4
        proxy.kill()
        proxy.assert_gone()


def test_sigterm_lets_calls_finish(proxy_of: Callable[[], contextlib.AbstractContextManager[Proxy]]) -> None:
    """A call in flight is answered with all its progress, new ones are refused, and the exit code is 0."""
    with proxy_of() as proxy:
        session = Session(proxy.url)
        listener = session.listen()
        stream = session.post(call(1, LONG, "t", duration=2, steps=4)).messages()
        assert next(stream)["params"]["progress"] == 1
        proxy.terminate()
        second = next(stream)
        refused = _fetch_while_draining(session)
        assert refused is None or refused["error"]["code"] == OVERLOADED
        *rest, answer = stream
        assert [message["params"]["progress"] for message in (second, *rest)] == [2, 3, 4]
        assert "completed" in echo_of(answer)
        listener.wait_end()
        assert proxy.wait_exit() == 0
        proxy.assert_gone()


def _fetch_while_draining(session: Session) -> Message | None:
    """Returns the answer to a new request, or None if the proxy is gone."""
    try:
        return session.post(call(9, "echo", message="late")).json()
    except OSError:
        return None


@pytest.fixture(params=["stdio", "http"])
def proxy_of(request: pytest.FixtureRequest, folder: Path) -> Callable[[], contextlib.AbstractContextManager[Proxy]]:
    """A function that makes a proxy before either kind of server, which the test ends."""

    @contextlib.contextmanager
    def make() -> Iterator[Proxy]:
        if request.param == "stdio":
            with wrap(EVERYTHING, folder=folder) as proxy:
                yield proxy
        else:
            with everything_over_http(folder=folder) as (_, url), wrap(url, folder=folder) as proxy:
                yield proxy

    return make


def test_a_second_sigterm_does_not_wait(folder: Path) -> None:
    with wrap(EVERYTHING, folder=folder) as proxy:
        session = Session(proxy.url)
        stream = session.post(call(1, LONG, "t", duration=30, steps=300)).messages()
        next(stream)
        proxy.terminate()
        next(stream)
        until(lambda: _fetch_while_draining(session) is None, "no connection to be accepted any more")
        time.sleep(SAME_SIGNAL_S)  # a sooner one would count as the same signal
        proxy.terminate()
        assert proxy.wait_exit() == -signal.SIGTERM
        proxy.assert_gone()


def test_the_end_of_stdin_lets_calls_finish(folder: Path) -> None:
    """A stdio client that has closed stdin still gets its answers."""
    process = isthmus(
        ["wrap", "--listen", "stdio", "--", EVERYTHING],
        folder=folder,
        has_stdin=True,
    )
    try:
        messages = [initialize(), notification("notifications/initialized"), call(1, LONG, "t", duration=1, steps=2)]
        for message in messages:
            process.write_line(encode(message))
        process.close_stdin()
        assert process.wait_exit() == 0
        process.assert_gone()
        answers = [json.loads(line) for line in process.lines]
        assert [m["params"]["progress"] for m in answers if m.get("method") == "notifications/progress"] == [1, 2]
        assert [m["id"] for m in answers if "result" in m] == [0, 1]
    finally:
        process.clean_up()


# --- Bad input --------------------------------------------------------------------------------------------------------


class Bad(NamedTuple):
    """A request that is refused: the function that sends it, and the expected response."""

    name: str
    send: Callable[[Session, Proxy], Reply]
    status: int
    code: int | None
    expected: str


def _post(body: bytes, **headers: str | None) -> Callable[[Session, Proxy], Reply]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda session, proxy: fetch(session.url, "POST", body, {**session.headers, **named})


def _post_to(path: str) -> Callable[[Session, Proxy], Reply]:
    return lambda session, proxy: fetch(f"{proxy.base_url}{path}", "POST", PING)


PING: Final = encode(request(1, "ping"))
MIB: Final = 1024 * 1024


def _announce_too_much(session: Session, proxy: Proxy) -> Reply:
    """Sends the head only. The body never comes."""
    connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=PATIENCE_S)
    connection.putrequest("POST", "/mcp")
    headers = {"Content-Type": "application/json", "Accept": ACCEPT, "Content-Length": str(17 * MIB)}
    for name, value in {**session.headers, **headers}.items():
        connection.putheader(name, value or "")
    connection.endheaders()
    return Reply(connection)


def _stream_too_much(session: Session, proxy: Proxy) -> Reply:
    """Sends a body without its length."""
    connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=PATIENCE_S)
    connection.putrequest("POST", "/mcp")
    headers = {"Content-Type": "application/json", "Accept": ACCEPT, "Transfer-Encoding": "chunked"}
    for name, value in {**session.headers, **headers}.items():
        connection.putheader(name, value or "")
    connection.endheaders()
    piece = b" " * MIB
    with contextlib.suppress(OSError):  # the proxy may have answered and closed before everything was sent
        for _ in range(17):
            connection.send(b"%x\r\n%s\r\n" % (len(piece), piece))
    return Reply(connection)


BAD: Final = (
    Bad("no JSON", _post(b'{"jsonrpc": "2.0", '), 400, -32700, ""),
    Bad("no UTF-8", _post(b'{"jsonrpc": "2.0", "id": 1, "method": "\xff"}'), 400, -32700, ""),
    Bad("too deep", _post(b"[" * 100_000), 400, -32700, ""),
    Bad("no request", _post(b'{"jsonrpc": "2.0", "id": 1}'), 400, -32600, ""),
    Bad("a broken id", _post(b'{"jsonrpc": "2.0", "id": 1.5, "method": "ping"}'), 400, -32600, "1.5"),
    Bad("no id", _post(b'{"jsonrpc": "2.0", "id": null, "method": "ping"}'), 400, -32600, "null"),
    Bad("an old version", _post(b'{"jsonrpc": "1.0", "id": 1, "method": "ping"}'), 400, -32600, "2.0"),
    Bad("a batch", _post(b"[" + PING + b"]"), 400, -32600, "batch"),
    Bad("a strange content type", _post(PING, Content_Type="text/plain"), 415, -32600, "expected application/json"),
    Bad("a strange accept", _post(PING, Accept="text/html"), 406, -32600, "text/event-stream"),
    Bad("too much, announced", _announce_too_much, 413, -32600, ""),
    Bad("too much, not announced", _stream_too_much, 413, -32600, ""),
    Bad("an unknown session", _post(PING, Mcp_Session_Id="nobody"), 404, -32600, "send initialize"),
    Bad("no session", _post(PING, Mcp_Session_Id=None), 400, -32600, "Mcp-Session-Id"),
    Bad("a strange revision", _post(PING, MCP_Protocol_Version="1999-01-01"), 400, -32600, "1999-01-01"),
    Bad("a foreign origin", _post(PING, Origin="https://evil.example"), 403, -32600, "evil.example"),
    Bad("a foreign host", _post(PING, Host="evil.example"), 403, -32600, "evil.example"),
    Bad("a strange method", lambda s, p: fetch(s.url, "PUT", PING, s.headers), 405, -32600, "GET, POST, DELETE"),
    Bad("an unknown server", lambda s, p: fetch(p.url_of("other"), "POST", PING, s.headers), 404, -32600, "/mcp"),
    Bad("an unknown page", lambda s, p: fetch(f"{p.base_url}/nothing", "GET"), 404, None, "/mcp"),
    Bad("an unknown page to post to", lambda s, p: fetch(f"{p.base_url}/letters", "POST", PING), 404, None, "/mcp"),
    Bad("messages without a stream", _post_to("/messages"), 400, -32600, "sessionId"),
    Bad("initialize again", _post(encode(initialize())), 400, -32600, "already"),
)


class Bystander:
    """A session that works while others misbehave."""

    def __init__(self, proxy: Proxy) -> None:
        self._session = Session(proxy.url)
        self._listener = self._session.listen()
        self._stream = self._session.post(call(1, LONG, "t", duration=2, steps=8)).messages()
        next(self._stream)

    def check_undisturbed(self) -> None:
        *progress, answer = self._stream
        assert [message["params"]["progress"] for message in progress] == list(range(2, 9))
        assert "completed" in echo_of(answer)
        self._session.answer(request(2, "resources/subscribe", {"uri": TEXT_1}))
        self._session.answer(call(3, "toggle-subscriber-updates"))
        self._listener.wait("notifications/resources/updated", TEXT_1)
        assert not self._listener.has_ended
        self._listener.close()
        assert self._session.delete() == 204


def test_bad_requests_get_a_fitting_error(over_stdio: Proxy) -> None:
    """Each request gets the status and the code of the specification. No other client is affected."""
    bystander = Bystander(over_stdio)
    session = Session(over_stdio.url)
    with contextlib.closing(session.listen()):
        for bad in BAD:
            reply = bad.send(session, over_stdio)
            body = reply.json()
            seen = body["error"]["message"] if bad.code is not None else body["detail"]
            assert (reply.status, body.get("error", {}).get("code")) == (bad.status, bad.code), (bad.name, body)
            assert bad.expected in seen, (bad.name, seen)
            assert echo_of(session.answer(call(1, "echo", message=bad.name))) == f"Echo: {bad.name}"
    assert session.delete() == 204
    bystander.check_undisturbed()


def test_unknown_pages_name_those_that_exist(over_stdio: Proxy) -> None:
    body = fetch(f"{over_stdio.base_url}/nothing", "GET").json()
    assert body["detail"] == "got path '/nothing', expected /mcp"
    for endpoint in ("/mcp", "/mcp/mcp-server-everything", "/mcp-server-everything/mcp"):
        assert Session(over_stdio.base_url + endpoint).delete() == 204
    assert fetch(f"{over_stdio.base_url}/healthz", "GET").json()["status"] == "ok"


def test_unknown_tools_and_methods_are_the_servers_business(proxy: Proxy) -> None:
    session = Session(proxy.url)
    unknown = session.answer(call(1, "nothing"))["result"]
    assert unknown["isError"]
    assert "Tool nothing not found" in unknown["content"][0]["text"]
    assert session.answer(request(2, "nothing/at-all"))["error"] == {"code": -32601, "message": "Method not found"}
    assert session.delete() == 204


def test_a_command_that_does_not_exist(folder: Path) -> None:
    """The proxy reports it at the start, keeps listening, and answers clients with an error."""
    with wrap("nosuch", folder=folder, asks=True) as proxy:
        problem = "command 'nosuch' not found on PATH; install it or give the full path"
        assert re.search(rf"FAILED .*{re.escape(problem)}", proxy.banner)
        for _ in range(2):
            reply = fetch(proxy.url, "POST", encode(initialize(id="i")))
            answer = reply.json()
            assert reply.status == 200
            assert answer["id"] == "i"
            assert answer["error"]["code"] == UPSTREAM_UNAVAILABLE
            assert problem in answer["error"]["message"]


def test_the_last_output_of_a_dying_server_is_reported(folder: Path) -> None:
    """The server's last output, and a hint, come through to the banner and to clients."""
    with wrap("node", "-e", "require('nosuchmodule')", folder=folder, asks=True) as proxy:
        for text in (proxy.banner, fetch(proxy.url, "POST", encode(initialize())).json()["error"]["message"]):
            assert "exited with code 1" in text
            assert "code: 'MODULE_NOT_FOUND'" in text
            assert "hint: a Node.js module is missing" in text


def test_an_http_server_that_is_not_there(folder: Path) -> None:
    """The server is used once it is there."""
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
        with wrap(f"http://127.0.0.1:{port}/mcp", folder=folder, asks=True) as proxy:
            assert f"connection refused by 127.0.0.1:{port}; is the server running?" in proxy.banner
            answer = fetch(proxy.url, "POST", encode(initialize())).json()
            assert answer["error"]["code"] == UPSTREAM_UNAVAILABLE
            assert "is the server running?" in answer["error"]["message"]
            reserved.close()
            with everything_over_http(folder=folder, port=port):
                session = Session(proxy.url)
                check_works(session)
                assert session.delete() == 204


def exit_of(arguments: Sequence[str | Path], folder: Path) -> tuple[int, str]:
    """Returns exit code and stderr of a command that fails at once."""
    process = isthmus(arguments, folder=folder, cwd=folder)
    try:
        code = process.wait_exit()
        process.assert_gone()
        assert not process.lines
        return code, process.stderr
    finally:
        process.clean_up()


def test_a_port_in_use(folder: Path, over_stdio: Proxy) -> None:
    """The exit code is 1, and the message names a remedy. The owner of the port is not disturbed."""
    bystander = Bystander(over_stdio)
    code, stderr = exit_of(["wrap", "--listen", f"127.0.0.1:{over_stdio.port}", "--", EVERYTHING], folder)
    assert code == 1
    assert f"port {over_stdio.port} on 127.0.0.1 is taken" in stderr
    assert "choose another one with --port N" in stderr
    assert "Traceback" not in stderr
    bystander.check_undisturbed()


@pytest.mark.parametrize(
    ("command", "text", "expected"),
    [
        ("serve", "core: {prot: 0}\nservers:\n  - {id: one, upstream: {command: [cat]}}\n", "port"),
        ("check", "core: {port: 0}\nservers:\n  - {id: one, upstream: {command: [cat]}\n", ":3: not YAML"),
    ],
    ids=["unknown key", "no YAML"],
)
def test_a_configuration_that_is_wrong(folder: Path, command: str, text: str, expected: str) -> None:
    """The exit code is 2, and the message names the file and the key. tests/app covers the other errors of
    configurations."""
    config = folder / "wrong.yaml"
    config.write_text(text)
    code, stderr = exit_of([command, config], folder)
    assert code == 2
    assert "wrong.yaml" in stderr
    assert expected in stderr
    assert "Traceback" not in stderr


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["wrap"], "expected a URL, or -- COMMAND"),
        (["serve"], "no configuration given"),
        (["serve", "nosuch.yaml"], "nosuch.yaml"),
    ],
    ids=["nothing to wrap", "no configuration", "no file"],
)
def test_a_command_line_that_is_wrong(tmp_path: Path, arguments: list[str], expected: str) -> None:
    code, stderr = exit_of(arguments, tmp_path)
    assert code == 2
    assert expected in stderr
    assert "Traceback" not in stderr
