"""What peers send though they should not, or oddly though they may, on each transport where it can occur.

Whatever it is, whose message it was is answered, nobody else notices, and the session goes on.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cells import CELLS, PIPES, TRANSPORTS, Cells, cells
from raw_clients import Client, HttpClient, PipeClient, SocketClient, SseClient
from rig import until
from slices import Parts, member, parts
from talk import Step, Talk, answer_to, calls, notification, request

NUMBERS = itertools.count(1000)


TURNS = itertools.count()


def cells_of(*, down: tuple[str, ...] = TRANSPORTS, up: tuple[str, ...] = TRANSPORTS) -> pytest.MarkDecorator:
    """Each of these once, another one opposite from test to test; if THOROUGH is set, each with each."""
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
        """One that is not begun, and for this test only."""
        with contextlib.closing(self.cells.client(down, up, *opening)) as client:
            yield client

    def close(self) -> None:
        for talk in self._talks.values():
            talk.client.close()

    def logged(self, marker: str) -> list[Parts]:
        """All messages with the marker that any server has got."""
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


def call(talk: Talk, tool: str, *notices: bytes) -> list[Parts]:
    """What comes of it, the answer included."""
    return talk.carry_out("odd", calls(new_id(), tool, *notices))


def text_of(said: Parts) -> str:
    assert said.result is not None, said
    text = json.loads(said.result)["content"][0]["text"]
    assert isinstance(text, str)
    return text


def answer_in(heard: list[Parts]) -> Parts:
    (answer,) = (said for said in heard if said.is_answer)
    return answer


def goes_on(talk: Talk) -> bool:
    """The session is as good as before."""
    marker = f"mark-{next(NUMBERS)}"
    answer = answer_in(talk.carry_out("odd", calls(new_id(), "echo", rest=b',"arguments":"%b"' % marker.encode())))
    return marker in (answer.result or b"").decode()


def refusal(talk: Talk, message: bytes) -> Parts:
    """The error that refuses a message without a usable id: an HTTP response where there is one."""
    client = talk.client
    if not isinstance(client, HttpClient | SseClient):
        return answer_in(talk.carry_out("odd", Step([message], [b"null"])))
    count = len(client.refused)
    client.send(message)
    assert client.wait_until(lambda: len(client.refused) > count)
    assert client.refused[-1].status == 400
    return parts(client.refused[-1].body)


def code_of(said: Parts) -> int:
    assert said.error is not None, said
    code = json.loads(said.error)["code"]
    assert isinstance(code, int)
    return code


# --- How servers frame ------------------------------------------------------------------------------------------------


@cells_of(up=("stdio", "http", "sse"))
def test_a_server_may_end_its_lines_with_crlf(talks: Talks, down: str, up: str) -> None:
    with talks.talk(down, up) as talk:
        assert text_of(answer_in(call(talk, "crlf"))) == "crlf"
        assert not any(said.message.endswith(b"\r") for said in talk.said)


@cells_of(up=("http", "sse"))
def test_a_server_may_end_the_lines_of_its_events_with_cr(talks: Talks, down: str, up: str) -> None:
    """And an event counts when its blank line is there, not with what follows."""
    with talks.talk(down, up) as talk:
        heard = call(talk, "cr", b"tools/list_changed", b'"cr"')
        assert text_of(answer_in(heard)) == "cr"
        assert goes_on(talk)


@cells_of(up=("http", "sse", "ws"))
def test_a_server_may_cut_its_messages_anywhere(talks: Talks, down: str, up: str) -> None:
    """Events of many data lines with comments, unknown fields and all three line ends in between; WebSocket messages of
    many frames; a few bytes at a time."""
    with talks.talk(down, up) as talk:
        heard = call(talk, "cut", b"prompts/list_changed", b'"cut"')
        assert text_of(answer_in(heard)) == "cut"
        assert goes_on(talk)


@cells_of(up=("http", "ws"))
def test_a_server_may_print_its_messages_prettily(talks: Talks, down: str, up: str) -> None:
    """Line ends in a message are those of no line and of no event."""
    with talks.talk(down, up) as talk:
        answer = answer_in(call(talk, "pretty"))
        assert answer.result is not None
        assert json.loads(answer.result) == {"content": [], "n": 1.0}
        assert b"1.0" in answer.result
        assert goes_on(talk)


@cells_of()
def test_noise_between_a_servers_messages_is_dropped(talks: Talks, down: str, up: str) -> None:
    """Text, half of JSON, blank lines, bytes that are no text."""
    with talks.talk(down, up) as talk:
        assert text_of(answer_in(call(talk, "noise"))) == "after noise"
        assert goes_on(talk)


@cells_of()
def test_a_server_may_begin_each_message_with_a_byte_order_mark(talks: Talks, down: str, up: str) -> None:
    with talks.talk(down, up) as talk:
        heard = call(talk, "marked", b'"data":"marked"')
        assert text_of(answer_in(heard)) == "marked"
        assert goes_on(talk)


OPENINGS = {
    "bom": repr(b"\xef\xbb\xbf"),
    "banner": repr(b"Speaker 1.0\nlistening on stdio\n\n{}\n[]\n\x1b[32mready\x1b[0m\n"),
    "bom and banner": repr(b"\xef\xbb\xbfSpeaker 1.0\r\n"),
}


@cells_of(up=("stdio",))
@pytest.mark.parametrize("opening", OPENINGS)
def test_a_server_may_begin_with_other_than_a_message(talks: Talks, down: str, up: str, opening: str) -> None:
    """A byte order mark, or words to whoever looks at its output."""
    with talks.fresh(down, up, OPENINGS[opening]) as client:
        assert goes_on(begun(client))


@pytest.mark.parametrize("up", TRANSPORTS)
def test_a_server_may_end_its_pages_with_an_empty_cursor(talks: Talks, up: str) -> None:
    """Which names the first page again: its tools are shown once, at once."""
    assert "tools   2: a, echo\n" in talks.cells.proxy(up).banner


# --- What servers say -------------------------------------------------------------------------------------------------


@cells_of()
def test_an_answer_that_is_no_text_is_an_error_of_its_own_request(talks: Talks, down: str, up: str) -> None:
    """Invalid UTF-8 in a notification and in the result. On a WebSocket it ends the connection (RFC 6455, 8.1)."""
    with talks.talk(down, up) as talk:
        answer = answer_in(call(talk, "utf8"))
        assert answer.error is not None
        if up != "ws":
            assert code_of(answer) == -32603
            assert b"could not be read" in answer.error
        assert goes_on(talk)


@cells_of()
def test_answers_to_nobodys_request_are_dropped(talks: Talks, down: str, up: str) -> None:
    with talks.talk(down, up) as talk:
        heard = call(talk, "strangers")
        assert [text_of(said) for said in heard] == ["for its owner"]
        assert goes_on(talk)


@cells_of()
@pytest.mark.parametrize("how", ["as float", "as text"])
def test_a_server_may_spell_the_id_of_its_answer_otherwise(talks: Talks, down: str, up: str, how: str) -> None:
    with talks.talk(down, up) as talk:
        assert text_of(answer_in(call(talk, how))) == how


@cells_of()
def test_of_two_answers_the_first_counts(talks: Talks, down: str, up: str) -> None:
    with talks.talk(down, up) as talk:
        number = new_id()
        talk.carry_out("odd", calls(number, "twice"))
        assert goes_on(talk)
        answers = [parts(said.message) for said in talk.said if parts(said.message).id == number]
        assert [text_of(said) for said in answers] == ["the first"]


@cells_of()
def test_a_servers_question_needs_a_usable_id(talks: Talks, down: str, up: str) -> None:
    """Of five only that with the id 7.0 reaches the client; and its answer the server, under that id."""
    with talks.talk(down, up) as talk:
        before = len(talks.logged('"id":7.0,'))
        heard = call(talk, "ids")
        assert [said.method for said in heard] == ["roots/list", None]
        assert text_of(heard[-1]) == "after odd ids"
        assert len(talks.logged('"id":7.0,')) == before + 1
        assert goes_on(talk)


@cells_of()
def test_a_servers_id_that_is_still_open_is_refused(talks: Talks, down: str, up: str) -> None:
    """The first question stays, and is answered; the second never reaches the client."""
    asked: list[Parts] = []
    with talks.talk(down, up) as talk:
        before = len(talks.logged('"id":"same"'))
        number = new_id()
        heard = talk.carry_out("odd", calls(number, "same question"), lambda message, said: asked.append(said))
        assert [said.method for said in heard] == ["roots/list", None]
        assert asked[0].id is not None
        talk.client.send(b'{"jsonrpc":"2.0","id":%b,"result":{"roots":[]}}' % asked[0].id)
        until(lambda: len(talks.logged('"id":"same"')) == before + 2, "both answers to be there")
        *_, refused, answered = talks.logged('"id":"same"')
        assert code_of(refused) == -32600
        assert answered.result == b'{"roots":[]}'
        assert goes_on(talk)


@cells_of()
def test_an_answer_of_70_mib_is_an_error_of_its_own_request(talks: Talks, down: str, up: str) -> None:
    """Over the limit of 64 MiB: dropped, whoever waits for it is told, and what follows is fine."""
    with talks.talk(down, up) as talk:
        assert is_too_big(answer_in(call(talk, "too big")))
        assert goes_on(talk)


@cells_of(up=("http",))
def test_an_answer_of_70_mib_at_once_is_an_error_of_its_own_request(talks: Talks, down: str, up: str) -> None:
    """One JSON document, which is not read to its end."""
    with talks.talk(down, up) as talk:
        assert is_too_big(answer_in(call(talk, "too big at once")))
        assert goes_on(talk)


@cells_of(down=("stdio", "http"), up=("stdio", "http", "sse"))
def test_a_notification_of_70_mib_is_dropped(talks: Talks, down: str, up: str) -> None:
    """A WebSocket is given up for it."""
    with talks.talk(down, up) as talk:
        (answer,) = call(talk, "too much said")
        assert text_of(answer) == "after too much"
        assert goes_on(talk)


def is_too_big(said: Parts) -> bool:
    assert said.error is not None
    return code_of(said) == -31007 and b"over the limit" in said.error


@cells_of()
def test_batches_of_revision_2025_03_26(talks: Talks, down: str, up: str) -> None:
    """A server's batch arrives as its messages; a client's is answered as one."""
    with talks.fresh(down, up) as client:
        if isinstance(client, HttpClient):
            client.revision = "2025-03-26"
        talk = begun(client, b"2025-03-26")
        heard = call(talk, "batch", b"in a batch")
        assert text_of(answer_in(heard)) == "batched"
        assert {said.method for said in heard} <= {"notifications/message", "roots/list", None}
        ids = [new_id(), new_id()]
        client.send(b" [%b,\t%b,%b]" % (request(ids[0], "ping"), notification("x"), calls(ids[1], "echo").says[0]))
        assert client.wait_until(lambda: any(heard.message.startswith(b"[") for heard in client.heard))
        (batch,) = (json.loads(heard.message) for heard in client.heard if heard.message.startswith(b"["))
        assert sorted(answer["id"] for answer in batch) == [int(id) for id in ids]


# --- How clients frame ------------------------------------------------------------------------------------------------


@cells_of(down=("stdio",))
def test_a_client_may_end_its_lines_with_crlf(talks: Talks, down: str, up: str) -> None:
    with talks.talk(down, up) as talk:
        number = new_id()
        (answer,) = talk.carry_out("odd", Step([calls(number, "echo").says[0] + b"\r", b"\r"], [number]))
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
    """RFC 8259, 8.1: it may be ignored. What writes texts to files on Windows writes one before each."""
    with talks.talk(down, up) as talk:
        number = new_id()
        (answer,) = talk.carry_out("odd", Step([b"\xef\xbb\xbf" + calls(number, "echo").says[0]], [number]))
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
        said = refusal(talk, noise)
        assert (said.id, code_of(said)) == (b"null", -32700)
        assert goes_on(talk)


@cells_of(down=("stdio", "http", "sse"))
def test_what_is_no_text_of_a_client_is_refused(talks: Talks, down: str, up: str) -> None:
    """Under its own id, where that can be read."""
    with talks.talk(down, up) as talk:
        said = refusal(talk, b'"\xff"')
        assert (said.id, code_of(said)) == (b"null", -32700)
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
def test_what_is_no_text_ends_a_clients_websocket(talks: Talks, down: str, up: str) -> None:
    with talks.fresh(down, up) as client:
        talk = begun(client)
        assert goes_on(talk)
        assert isinstance(client, SocketClient)
        client.send_frame(b'"\xff"')
        assert client.wait_until(lambda: client.closed)
        assert client.closed is not None and client.closed.code == 1007


TOO_MUCH = 16 * 2**20
"""With what is around it, over the limit by less than a read: who is refused while still sending much more may meet a
closed connection before the refusal."""


@pytest.mark.parametrize("down", TRANSPORTS)
def test_a_request_over_the_limit_is_refused_under_its_id(talks: Talks, down: str) -> None:
    """And the proxy goes on: with the same session, or, on a WebSocket that is closed for it, with another."""
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


# --- What clients say -------------------------------------------------------------------------------------------------


@cells_of()
@pytest.mark.parametrize("id", [b"null", b"1.5", b"true", b"{}", b"[1]", b"1e2", b"-1.25"])
def test_a_request_needs_a_usable_id(talks: Talks, down: str, up: str, id: bytes) -> None:
    """Neither is it guessed nor does the server hear of it."""
    marker = f"mark-{next(NUMBERS)}."
    with talks.talk(down, up) as talk:
        said = refusal(talk, request(id, "tools/call", b'{"name":"echo","x":"%b"}' % marker.encode()))
        assert (said.id, code_of(said)) == (b"null", -32600)
        assert goes_on(talk)
        assert not talks.logged(marker)


@cells_of(down=PIPES)
@pytest.mark.parametrize("second", [b"77", b"77.0"])
def test_an_id_that_is_still_open_is_refused_on_a_pipe(talks: Talks, down: str, up: str, second: bytes) -> None:
    """The first request is not disturbed."""
    with talks.talk(down, up) as talk:
        other = new_id()
        says = [calls(b"77", "wait").says[0], calls(second, "wait").says[0]]
        (refused,) = talk.carry_out("odd", Step(says, [second]))
        assert code_of(refused) == -32600
        heard = talk.carry_out("odd", Step(calls(other, "wait").says, [b"77", other]))
        assert {said.id for said in heard if said.result is not None} == {other, b"77"}
        assert goes_on(talk)


@cells_of(down=("http",))
def test_answers_never_cross(talks: Talks, down: str, up: str) -> None:
    """Fifty requests at once under one id, each on a POST of its own, answered last to first."""
    with talks.talk(down, up) as talk:
        says = [calls(b"1", "gather", rest=b',"arguments":%d' % number).says[0] for number in range(50)]
        talk.carry_out("odd", Step(says, [b"1"] * 50))
        assert isinstance(talk.client, HttpClient)
        own = {sent: heard for sent, heard in talk.client.posted if sent in says}
        assert len(own) == 50
        for sent, heard in own.items():
            (answer,) = (parts(message) for message in heard)
            assert member(answer.result, "structuredContent", "params") == parts(sent).params
        assert goes_on(talk)


@cells_of()
def test_a_number_and_the_text_of_it_are_two_ids(talks: Talks, down: str, up: str) -> None:
    with talks.talk(down, up) as talk:
        heard = talk.carry_out("odd", Step([calls(id, "wait").says[0] for id in (b"88", b'"88"')], [b"88", b'"88"']))
        assert {said.id for said in heard} == {b"88", b'"88"'}
        assert all(said.result is not None for said in heard)


@cells_of()
def test_answers_that_nobody_waits_for_are_ignored(talks: Talks, down: str, up: str) -> None:
    """Unknown ids, no id, a fraction: none of them reaches the server."""
    marker = f"mark-{next(NUMBERS)}."
    with talks.talk(down, up) as talk:
        for id in (b"987654", b'"never asked"', b"-1"):
            talk.client.send(b'{"jsonrpc":"2.0","id":%b,"result":{"x":"%b"}}' % (id, marker.encode()))
            talk.client.send(b'{"jsonrpc":"2.0","id":%b,"error":{"code":1,"message":"%b"}}' % (id, marker.encode()))
        assert goes_on(talk)
        assert not talks.logged(marker)


@cells_of()
def test_a_question_is_answered_once(talks: Talks, down: str, up: str) -> None:
    """Of a client's two answers the server gets the first."""
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
        talk.carry_out("odd", calls(new_id(), "roots"), answer_twice(talk.client))
        assert goes_on(talk)
        (seen,) = talks.logged(marker)
        assert seen.result == b'{"roots":[],"x":"%bfirst"}' % marker.encode()


def test_what_the_clients_of_these_tests_answer() -> None:
    """A request that nobody foresaw is an error of the test, not an answer."""
    asked: Any = parts(request(b"1", "what/ever"))
    with pytest.raises(AssertionError):
        answer_to(request(b"1", "what/ever"), asked)
