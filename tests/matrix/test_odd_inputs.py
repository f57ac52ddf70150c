"""Tests of malformed and unusual messages, on each transport where they can occur.

In each case the sender gets its answer, no other peer is affected, and the session continues.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cells import CELLS, PIPES, TRANSPORTS, Cells, cells
from raw_clients import Client, HttpClient, PipeClient, SocketClient, SseClient
from rig import until, wrap
from slices import Parts, member, parts
from talk import Step, Talk, answer_to, call_step, notification, request

NUMBERS = itertools.count(1000)


TURNS = itertools.count()


def cells_of(*, down: tuple[str, ...] = TRANSPORTS, up: tuple[str, ...] = TRANSPORTS) -> pytest.MarkDecorator:
    """Parametrizes a test with each of these transports once, and the opposite one varies from test to test. With
    THOROUGH set, each is combined with each."""
    cells = [cell for cell in CELLS if cell[0] in down and cell[1] in up]
    if not os.environ.get("THOROUGH"):
        turn, count = next(TURNS), max(len(down), len(up))
        cells = [(down[n % len(down)], up[(n + turn) % len(up)]) for n in range(count)]
    return pytest.mark.parametrize("down, up", cells)


class Talks:
    """A session for each pair of transports, used by one test after another until one fails."""

    def __init__(self, cells: Cells) -> None:
        self.cells = cells
        self._talks: dict[tuple[str, str], Talk] = {}

    @contextlib.contextmanager
    def talk(self, down: str, up: str) -> Iterator[Talk]:
        key = down, up
        talk = self._talks.pop(key, None) or begun(self.cells.client(down, up))
        try:
            yield talk
        except BaseException:
            with contextlib.suppress(Exception, AssertionError):
                talk.client.close()
            raise
        self._talks[key] = talk

    @contextlib.contextmanager
    def fresh(self, down: str, up: str, *opening: str) -> Iterator[Client]:
        """Yields a client that has not sent `initialize` yet, for this test only."""
        with contextlib.closing(self.cells.client(down, up, *opening)) as client:
            yield client

    def close(self) -> None:
        for talk in self._talks.values():
            talk.client.close()

    def logged(self, marker: str) -> list[Parts]:
        """Returns all messages with the marker that any server has received."""
        entries = [line for file in self.cells.logs.glob("*.jsonl") for line in file.read_text().splitlines()]
        messages = (json.loads(entry)["message"] for entry in entries)
        return [parts(message.encode("latin-1")) for message in messages if marker in message]


@pytest.fixture(scope="module")
def talks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Talks]:
    with cells(tmp_path_factory.mktemp("odd")) as started:
        talks = Talks(started)
        yield talks
        talks.close()


def begun(client: Client, revision: bytes = b"2025-11-25") -> Talk:
    talk = Talk(client)
    talk.begin(b"odd", revision)
    return talk


def new_id() -> bytes:
    return b"%d" % next(NUMBERS)


def call(talk: Talk, tool: str, *contents: bytes) -> list[Parts]:
    """Calls a tool. Returns the messages that came, with the answer."""
    return talk.carry_out("odd", call_step(new_id(), tool, *contents))


def text_of(found: Parts) -> str:
    assert found.result is not None, found
    text = json.loads(found.result)["content"][0]["text"]
    assert isinstance(text, str)
    return text


def answer_in(received: list[Parts]) -> Parts:
    (answer,) = (found for found in received if found.is_answer)
    return answer


def goes_on(talk: Talk) -> bool:
    """True if the session still works."""
    marker = f"mark-{next(NUMBERS)}"
    answer = answer_in(talk.carry_out("odd", call_step(new_id(), "echo", rest=b',"arguments":"%b"' % marker.encode())))
    return marker in (answer.result or b"").decode()


def refusal(talk: Talk, message: bytes) -> Parts:
    """Returns the error that refuses a message without a usable id: in an HTTP response where there is one."""
    client = talk.client
    if not isinstance(client, HttpClient | SseClient):
        return answer_in(talk.carry_out("odd", Step([message], [b"null"])))
    count = len(client.refused)
    client.send(message)
    assert client.wait_until(lambda: len(client.refused) > count)
    assert client.refused[-1].status == 400
    return parts(client.refused[-1].body)


def code_of(found: Parts) -> int:
    assert found.error is not None, found
    code = json.loads(found.error)["code"]
    assert isinstance(code, int)
    return code


# --- Framing of servers -----------------------------------------------------------------------------------------------


@cells_of(up=("stdio", "http", "sse"))
def test_a_server_may_end_its_lines_with_crlf(talks: Talks, down: str, up: str) -> None:
    with talks.talk(down, up) as talk:
        assert text_of(answer_in(call(talk, "crlf"))) == "crlf"
        assert not any(found.message.endswith(b"\r") for found in talk.messages)


@cells_of(up=("http", "sse"))
def test_a_server_may_end_the_lines_of_its_events_with_cr(talks: Talks, down: str, up: str) -> None:
    """An event counts as soon as its blank line is there, before any following byte."""
    with talks.talk(down, up) as talk:
        received = call(talk, "cr", b"tools/list_changed", b'"cr"')
        assert text_of(answer_in(received)) == "cr"
        assert goes_on(talk)


@cells_of(up=("http", "sse", "ws"))
def test_a_server_may_cut_its_messages_anywhere(talks: Talks, down: str, up: str) -> None:
    """Events have many data lines with comments, unknown fields and all three line ends in between; WebSocket messages
    have many frames. They come a few bytes at a time."""
    with talks.talk(down, up) as talk:
        received = call(talk, "cut", b"prompts/list_changed", b'"cut"')
        assert text_of(answer_in(received)) == "cut"
        assert goes_on(talk)


@cells_of(up=("http", "ws"))
def test_a_server_may_print_its_messages_prettily(talks: Talks, down: str, up: str) -> None:
    """Line ends within a message end neither the line nor the event."""
    with talks.talk(down, up) as talk:
        answer = answer_in(call(talk, "pretty"))
        assert answer.result is not None
        assert json.loads(answer.result) == {"content": [], "n": 1.0}
        assert b"1.0" in answer.result
        assert goes_on(talk)


@cells_of()
def test_noise_between_a_servers_messages_is_dropped(talks: Talks, down: str, up: str) -> None:
    """Noise is text, half of a JSON value, blank lines, or bytes that are no text."""
    with talks.talk(down, up) as talk:
        assert text_of(answer_in(call(talk, "noise"))) == "after noise"
        assert goes_on(talk)


@cells_of()
def test_a_server_may_begin_each_message_with_a_byte_order_mark(talks: Talks, down: str, up: str) -> None:
    with talks.talk(down, up) as talk:
        received = call(talk, "marked", b'"data":"marked"')
        assert text_of(answer_in(received)) == "marked"
        assert goes_on(talk)


OPENINGS = {
    "bom": repr(b"\xef\xbb\xbf"),
    "banner": repr(b"Speaker 1.0\nlistening on stdio\n\n{}\n[]\n\x1b[32mready\x1b[0m\n"),
    "bom and banner": repr(b"\xef\xbb\xbfSpeaker 1.0\r\n"),
}


@cells_of(up=("stdio",))
@pytest.mark.parametrize("opening", OPENINGS)
def test_a_server_may_begin_with_other_than_a_message(talks: Talks, down: str, up: str, opening: str) -> None:
    """The opening is a byte order mark, or text meant for people."""
    with talks.fresh(down, up, OPENINGS[opening]) as client:
        assert goes_on(begun(client))


@pytest.mark.parametrize("up", TRANSPORTS)
def test_a_server_may_end_its_pages_with_an_empty_cursor(talks: Talks, up: str, tmp_path: Path) -> None:
    """An empty cursor would name the first page again. The tools are listed once, in one page."""
    with wrap(*talks.cells.target(up), folder=tmp_path, options=("--include-tool", "*"), asks=True) as proxy:
        assert re.search(r"  ready  \w+ \S+ +2  http://", proxy.banner)


# --- Messages of servers ----------------------------------------------------------------------------------------------


@cells_of()
def test_an_answer_with_invalid_utf8_is_an_error_of_its_own_request(talks: Talks, down: str, up: str) -> None:
    """Invalid UTF-8 stands in a notification and in the result. On a WebSocket it ends the connection (RFC 6455,
    8.1)."""
    with talks.talk(down, up) as talk:
        answer = answer_in(call(talk, "utf8"))
        assert answer.error is not None
        if up != "ws":
            assert code_of(answer) == -32603
            assert b"could not be read" in answer.error
        assert goes_on(talk)


@cells_of()
def test_answers_to_unknown_requests_are_dropped(talks: Talks, down: str, up: str) -> None:
    with talks.talk(down, up) as talk:
        received = call(talk, "strangers")
        assert [text_of(found) for found in received] == ["for its owner"]
        assert goes_on(talk)


@cells_of()
@pytest.mark.parametrize("how", ["as float", "as text"])
def test_a_server_may_spell_the_id_of_its_answer_otherwise(talks: Talks, down: str, up: str, how: str) -> None:
    with talks.talk(down, up) as talk:
        assert text_of(answer_in(call(talk, how))) == how


@cells_of()
def test_the_first_of_two_answers_counts(talks: Talks, down: str, up: str) -> None:
    with talks.talk(down, up) as talk:
        number = new_id()
        talk.carry_out("odd", call_step(number, "twice"))
        assert goes_on(talk)
        answers = [parts(found.message) for found in talk.messages if parts(found.message).id == number]
        assert [text_of(found) for found in answers] == ["the first"]


@cells_of()
def test_a_servers_question_needs_a_usable_id(talks: Talks, down: str, up: str) -> None:
    """Only one of five questions reaches the client, the one with the id 7.0, and its answer reaches the server under
    that id."""
    with talks.talk(down, up) as talk:
        before = len(talks.logged('"id":7.0,'))
        received = call(talk, "ids")
        assert [found.method for found in received] == ["roots/list", None]
        assert text_of(received[-1]) == "after odd ids"
        assert len(talks.logged('"id":7.0,')) == before + 1
        assert goes_on(talk)


@cells_of()
def test_a_servers_id_that_is_still_open_is_refused(talks: Talks, down: str, up: str) -> None:
    """The first question stays open and is answered. The second one never reaches the client."""
    asked: list[Parts] = []
    with talks.talk(down, up) as talk:
        before = len(talks.logged('"id":"same"'))
        number = new_id()
        received = talk.carry_out("odd", call_step(number, "same question"), lambda message, found: asked.append(found))
        assert [found.method for found in received] == ["roots/list", None]
        assert asked[0].id is not None
        talk.client.send(b'{"jsonrpc":"2.0","id":%b,"result":{"roots":[]}}' % asked[0].id)
        until(lambda: len(talks.logged('"id":"same"')) == before + 2, "both answers to be there")
        *_, refused, answered = talks.logged('"id":"same"')
        assert code_of(refused) == -32600
        assert answered.result == b'{"roots":[]}'
        assert goes_on(talk)


@cells_of()
def test_an_answer_of_70_mib_is_an_error_of_its_own_request(talks: Talks, down: str, up: str) -> None:
    """The answer exceeds the limit of 64 MiB. It is dropped, its request fails, and the following messages pass."""
    with talks.talk(down, up) as talk:
        assert is_too_big(answer_in(call(talk, "too big")))
        assert goes_on(talk)


@cells_of(up=("http",))
def test_an_answer_of_70_mib_at_once_is_an_error_of_its_own_request(talks: Talks, down: str, up: str) -> None:
    """The answer is one JSON document, which is not read to its end."""
    with talks.talk(down, up) as talk:
        assert is_too_big(answer_in(call(talk, "too big at once")))
        assert goes_on(talk)


@cells_of(down=("stdio", "http"), up=("stdio", "http", "sse"))
def test_a_notification_of_70_mib_is_dropped(talks: Talks, down: str, up: str) -> None:
    """A WebSocket is closed for it."""
    with talks.talk(down, up) as talk:
        (answer,) = call(talk, "too much said")
        assert text_of(answer) == "after too much"
        assert goes_on(talk)


def is_too_big(found: Parts) -> bool:
    assert found.error is not None
    return code_of(found) == -31007 and b"over the limit" in found.error


@cells_of()
def test_batches_of_revision_2025_03_26(talks: Talks, down: str, up: str) -> None:
    """A server's batch arrives as its messages. A client's batch is answered as a batch."""
    with talks.fresh(down, up) as client:
        if isinstance(client, HttpClient):
            client.revision = "2025-03-26"
        talk = begun(client, b"2025-03-26")
        received = call(talk, "batch", b"in a batch")
        assert text_of(answer_in(received)) == "batched"
        assert {found.method for found in received} <= {"notifications/message", "roots/list", None}
        ids = [new_id(), new_id()]
        client.send(b" [%b,\t%b,%b]" % (request(ids[0], "ping"), notification("x"), call_step(ids[1], "echo").sends[0]))
        assert client.wait_until(lambda: any(received.message.startswith(b"[") for received in client.received))
        (batch,) = (json.loads(received.message) for received in client.received if received.message.startswith(b"["))
        assert sorted(answer["id"] for answer in batch) == [int(id) for id in ids]


# --- Framing of clients -----------------------------------------------------------------------------------------------


@cells_of(down=("stdio",))
def test_a_client_may_end_its_lines_with_crlf(talks: Talks, down: str, up: str) -> None:
    with talks.talk(down, up) as talk:
        number = new_id()
        (answer,) = talk.carry_out("odd", Step([call_step(number, "echo").sends[0] + b"\r", b"\r"], [number]))
        assert answer.result == b'{"content":[],"structuredContent":{"params":{"name":"echo"}}}'


@cells_of(down=("stdio",))
def test_a_client_may_begin_with_a_byte_order_mark(talks: Talks, down: str, up: str) -> None:
    with talks.fresh(down, up) as client:
        assert isinstance(client, PipeClient)
        stdin = client.process.popen.stdin
        assert stdin is not None
        stdin.write(b"\xef\xbb\xbf")
        assert goes_on(begun(client))


@cells_of()
def test_a_client_may_begin_each_message_with_a_byte_order_mark(talks: Talks, down: str, up: str) -> None:
    """A byte order mark may be ignored (RFC 8259, 8.1). Programs that write text files on Windows put one before each
    message."""
    with talks.talk(down, up) as talk:
        number = new_id()
        (answer,) = talk.carry_out("odd", Step([b"\xef\xbb\xbf" + call_step(number, "echo").sends[0]], [number]))
        assert answer.result == b'{"content":[],"structuredContent":{"params":{"name":"echo"}}}'
        assert goes_on(talk)


@cells_of(down=("http", "sse", "ws"))
def test_a_client_may_print_its_messages_prettily(talks: Talks, down: str, up: str) -> None:
    with talks.talk(down, up) as talk:
        number = new_id()
        message = (
            b'\n{\r\n\t"jsonrpc":"2.0",\n"id":%b,\n"method":"tools/call",\n"params":{\n"name":"echo",\n"n":1.0}}\n'
        )
        (answer,) = talk.carry_out("odd", Step([message % number], [number]))
        seen = member(answer.result, "structuredContent", "params")
        assert seen is not None
        assert json.loads(seen) == {"name": "echo", "n": 1.0}
        assert goes_on(talk)


@cells_of()
@pytest.mark.parametrize("noise", [b"hello", b"{", b'{"jsonrpc":"2.0","id":1', b"[1,", b"nul"])
def test_noise_of_a_client_is_refused(talks: Talks, down: str, up: str, noise: bytes) -> None:
    with talks.talk(down, up) as talk:
        found = refusal(talk, noise)
        assert (found.id, code_of(found)) == (b"null", -32700)
        assert goes_on(talk)


@cells_of(down=("stdio", "http", "sse"))
def test_invalid_utf8_of_a_client_is_refused(talks: Talks, down: str, up: str) -> None:
    """The refusal has the message's own id if that can be read."""
    with talks.talk(down, up) as talk:
        found = refusal(talk, b'"\xff"')
        assert (found.id, code_of(found)) == (b"null", -32700)
        number, client = new_id(), talk.client
        if isinstance(client, HttpClient):
            count = len(client.refused)
            client.send(request(number, "tools/call", b'{"x":"\xc3"}'))
            assert client.wait_until(lambda: len(client.refused) > count)
            answer = parts(client.refused[-1].body)
        else:
            (answer,) = talk.carry_out("odd", Step([request(number, "tools/call", b'{"x":"\xc3"}')], [number]))
        assert (answer.id, code_of(answer)) == (number, -32700)
        assert goes_on(talk)


@cells_of(down=("ws",))
def test_invalid_utf8_ends_a_clients_websocket(talks: Talks, down: str, up: str) -> None:
    with talks.fresh(down, up) as client:
        talk = begun(client)
        assert goes_on(talk)
        assert isinstance(client, SocketClient)
        client.send_frame(b'"\xff"')
        assert client.wait_until(lambda: client.closed)
        assert client.closed is not None and client.closed.code == 1007


TOO_MUCH = 16 * 2**20
"""A size that, with the envelope, exceeds the limit by less than one read. A client that still has much more to send
may see the connection closed before the refusal."""


@pytest.mark.parametrize("down", TRANSPORTS)
def test_a_request_over_the_limit_is_refused_under_its_id(talks: Talks, down: str) -> None:
    """The proxy continues, with the same session, or, on a WebSocket that is closed for it, with another one."""
    with talks.fresh(down, "stdio") as client:
        talk, number = begun(client), new_id()
        message = request(number, "tools/call", b'{"name":"echo","x":"%b"}' % (b"x" * TOO_MUCH))
        answer: Parts
        if isinstance(client, HttpClient | SseClient):
            with contextlib.suppress(ConnectionError):
                client.send(message)
            assert client.wait_until(lambda: client.refused)
            assert client.refused[-1].status == 413
            answer = parts(client.refused[-1].body)
        else:
            (answer,) = talk.carry_out("odd", Step([message], [number]))
            assert answer.id == number
        assert code_of(answer) == (-31007 if down in ("stdio", "ws") else -32600)
        assert b"over the limit" in (answer.error or b"")
        if not isinstance(client, SocketClient):
            assert goes_on(talk)
    with talks.talk(down, "stdio") as talk:
        assert goes_on(talk)


# --- Messages of clients ----------------------------------------------------------------------------------------------


@cells_of()
@pytest.mark.parametrize("id", [b"null", b"1.5", b"true", b"{}", b"[1]", b"1e2", b"-1.25"])
def test_a_request_needs_a_usable_id(talks: Talks, down: str, up: str, id: bytes) -> None:
    """The id is not guessed, and the server does not receive the request."""
    marker = f"mark-{next(NUMBERS)}."
    with talks.talk(down, up) as talk:
        found = refusal(talk, request(id, "tools/call", b'{"name":"echo","x":"%b"}' % marker.encode()))
        assert (found.id, code_of(found)) == (b"null", -32600)
        assert goes_on(talk)
        assert not talks.logged(marker)


@cells_of(down=PIPES)
@pytest.mark.parametrize("second", [b"77", b"77.0"])
def test_an_id_that_is_still_open_is_refused_on_a_pipe(talks: Talks, down: str, up: str, second: bytes) -> None:
    """The first request is not disturbed."""
    with talks.talk(down, up) as talk:
        other = new_id()
        requests = [call_step(b"77", "wait").sends[0], call_step(second, "wait").sends[0]]
        (refused,) = talk.carry_out("odd", Step(requests, [second]))
        assert code_of(refused) == -32600
        received = talk.carry_out("odd", Step(call_step(other, "wait").sends, [b"77", other]))
        assert {found.id for found in received if found.result is not None} == {other, b"77"}
        assert goes_on(talk)


@cells_of(down=("http",))
def test_answers_never_cross(talks: Talks, down: str, up: str) -> None:
    """Fifty requests at once have one id, each on a POST of its own, and are answered last to first."""
    with talks.talk(down, up) as talk:
        requests = [call_step(b"1", "gather", rest=b',"arguments":%d' % number).sends[0] for number in range(50)]
        talk.carry_out("odd", Step(requests, [b"1"] * 50))
        assert isinstance(talk.client, HttpClient)
        own = {sent: received for sent, received in talk.client.posted if sent in requests}
        assert len(own) == 50
        for sent, received in own.items():
            (answer,) = (parts(message) for message in received)
            assert member(answer.result, "structuredContent", "params") == parts(sent).params
        assert goes_on(talk)


@cells_of()
def test_a_number_and_the_text_of_it_are_two_ids(talks: Talks, down: str, up: str) -> None:
    with talks.talk(down, up) as talk:
        received = talk.carry_out(
            "odd", Step([call_step(id, "wait").sends[0] for id in (b"88", b'"88"')], [b"88", b'"88"'])
        )
        assert {found.id for found in received} == {b"88", b'"88"'}
        assert all(found.result is not None for found in received)


@cells_of()
def test_unexpected_answers_are_ignored(talks: Talks, down: str, up: str) -> None:
    """An unknown id, no id, a fraction: none of these answers reaches the server."""
    marker = f"mark-{next(NUMBERS)}."
    with talks.talk(down, up) as talk:
        for id in (b"987654", b'"never asked"', b"-1"):
            talk.client.send(b'{"jsonrpc":"2.0","id":%b,"result":{"x":"%b"}}' % (id, marker.encode()))
            talk.client.send(b'{"jsonrpc":"2.0","id":%b,"error":{"code":1,"message":"%b"}}' % (id, marker.encode()))
        assert goes_on(talk)
        assert not talks.logged(marker)


@cells_of()
def test_a_question_is_answered_once(talks: Talks, down: str, up: str) -> None:
    """The server gets the first of a client's two answers."""
    marker = f"mark-{next(NUMBERS)}."

    def answer_twice(client: Client) -> Callable[[bytes, Parts], bytes | None]:
        def answer(message: bytes, asked: Parts) -> bytes | None:
            assert asked.id is not None
            for count in (b"first", b"second"):
                result = b'{"roots":[],"x":"%b%b"}' % (marker.encode(), count)
                client.send(b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (asked.id, result))
            return None

        return answer

    with talks.talk(down, up) as talk:
        talk.carry_out("odd", call_step(new_id(), "roots"), answer_twice(talk.client))
        assert goes_on(talk)
        (seen,) = talks.logged(marker)
        assert seen.result == b'{"roots":[],"x":"%bfirst"}' % marker.encode()


def test_the_answers_of_the_clients_of_these_tests() -> None:
    """An unforeseen request is an error of the test, not an answer."""
    asked: Any = parts(request(b"1", "what/ever"))
    with pytest.raises(AssertionError):
        answer_to(request(b"1", "what/ever"), asked)
