"""Tests that a conversation over each pair of transports is the same as without a proxy, byte for byte.

A raw client holds it with a raw server, directly over each transport and through the proxy over each pair. The client
and the server must receive the same messages, apart from ids and progress tokens, in the order of each stream.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import pytest
from behaviour import ODD_VALUES
from cells import CELLS, DIRECT, PIPES, TRANSPORTS, Cells, cells
from comparing import Line, assert_same, received_by_client, received_by_server
from slices import member, parts
from talk import CANCELLED_ID, CHAPTERS, ChapterMessage, Step, Talk, spelled_out

each_cell = pytest.mark.parametrize("down, up", CELLS)
each_chapter = pytest.mark.parametrize("chapter", CHAPTERS)


class Recording(NamedTuple):
    messages: list[ChapterMessage]
    client: list[Line]
    server: list[Line]

    def of(self, chapter: str) -> list[Line]:
        return [line for line in self.client if line.chapter == chapter]


class Recordings:
    """All recordings, each made when it is first needed."""

    def __init__(self, cells: Cells) -> None:
        self._cells = cells
        self._made: dict[tuple[str, str], Recording | BaseException] = {}

    def get(self, down: str, up: str) -> Recording:
        if (down, up) not in self._made:
            try:
                self._made[down, up] = self._record(down, up)
            except BaseException as error:
                self._made[down, up] = error
        made = self._made[down, up]
        if isinstance(made, BaseException):
            raise made
        return made

    def direct(self, transport: str) -> Recording:
        return self.get(DIRECT, transport)

    def _record(self, down: str, up: str) -> Recording:
        name = f"matrix-{down}-{up}.".encode()
        client = self._cells.client(down, up)
        try:
            talk = Talk(client)
            talk.begin(name)
            for chapter, steps in CHAPTERS.items():
                for step in steps:
                    sends = [spelled_out(message, ODD_VALUES) for message in step.sends]
                    talk.carry_out(chapter, Step(sends, step.ids, step.contents))
        finally:
            client.close()
        return Recording(talk.messages, received_by_client(talk.messages), received_by_server(self._cells.logs, name))


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recordings]:
    with cells(tmp_path_factory.mktemp("matrix")) as started:
        yield Recordings(started)


# --- Proxied = direct -------------------------------------------------------------------------------------------------


def is_of_session(line: Line, recordings: Recordings) -> bool:
    """True if the server sends the message on the stream of the session, where it has one."""
    return str(line) in session_lines(recordings)


@cache
def session_lines(recordings: Recordings) -> set[str]:
    return {str(line) for line in recordings.direct("http").client if line.stream == "get"}


def split(lines: list[Line], recordings: Recordings) -> tuple[list[Line], list[Line]]:
    """Returns the lines on the streams of requests, and those on the stream of the session."""
    of_session = [line for line in lines if is_of_session(line, recordings)]
    return [line for line in lines if not is_of_session(line, recordings)], of_session


@each_cell
@each_chapter
def test_the_client_receives_the_same_as_directly(recordings: Recordings, down: str, up: str, chapter: str) -> None:
    """Order is compared in the server's one stream, or in each of several."""
    direct = recordings.direct("stdio").of(chapter)
    proxied = recordings.get(down, up).of(chapter)
    if down in PIPES and up in PIPES:
        assert_same(direct, proxied, "all in order")
    for some, same in zip(split(direct, recordings), split(proxied, recordings), strict=True):
        assert_same(some, same, "in the order of each stream")


@each_cell
def test_each_message_comes_on_its_stream(recordings: Recordings, down: str, up: str) -> None:
    """Answers, questions, progress and log messages come on the stream of their request. Messages of the session come
    on its own stream, unless they may go with the only open request."""
    direct, proxied = recordings.direct(down).client, recordings.get(down, up).client
    assert {line.stream for line in proxied} == {line.stream for line in direct}
    for some, same in zip(split(direct, recordings), split(proxied, recordings), strict=True):
        expected = [f"{line.stream}: {line}" for line in some]
        seen = [
            f"{'get' if may_travel(line) and line.stream.startswith('post') else line.stream}: {line}" for line in same
        ]
        assert seen == expected


def may_travel(line: Line) -> bool:
    return line.is_notification and "com.example/echoed" in line.kind


@each_cell
def test_the_server_receives_the_same_as_directly(recordings: Recordings, down: str, up: str) -> None:
    direct, proxied = recordings.direct(up).server, recordings.get(down, up).server
    if up in PIPES:
        assert_same(direct, proxied, "all in order")
    for are_notifications in (True, False):
        some, same = (
            [line for line in lines if line.is_notification is are_notifications] for lines in (direct, proxied)
        )
        assert_same(some, same, "notifications" if are_notifications else "requests and answers")


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_direct_is_the_same_over_each_transport(recordings: Recordings, transport: str) -> None:
    """A difference in the other tests is therefore the proxy's doing."""
    one, other = recordings.direct("stdio"), recordings.direct(transport)
    for some, same in zip(split(one.client, recordings), split(other.client, recordings), strict=True):
        assert_same(some, same, "client")
    assert_same(one.server, other.server, "server")


# --- Content of the recordings ----------------------------------------------------------------------------------------


@each_cell
def test_progress_is_complete_and_comes_before_its_result(recordings: Recordings, down: str, up: str) -> None:
    """The last progress is no exception, though the server sends it together with the result."""
    messages = [one for one in recordings.get(down, up).messages if one.chapter == "progress"]
    for at, token in enumerate((b'"a \\u0074oken"', b"0", b"-12345678901234567890123456789")):
        four = [parts(one.message) for one in messages[4 * at : 4 * at + 4]]
        assert [member(one.params, "progressToken") for one in four] == [token] * 3 + [None]
        assert four[3].result is not None


@each_cell
def test_a_cancelled_call_is_not_answered(recordings: Recordings, down: str, up: str) -> None:
    """The late answer is dropped. A stream that can be resumed ends with an error of the proxy."""
    answers = [parts(one.message) for one in recordings.get(down, up).messages if parts(one.message).id == CANCELLED_ID]
    assert all(one.error is not None and member(one.error, "code") == b"-32800" for one in answers), answers
    assert len(answers) <= (down == "http")
    assert any(b"too late" in one.message for one in recordings.direct(up).messages)


@each_cell
def test_a_cancellation_names_the_request_as_the_server_knows_it(recordings: Recordings, down: str, up: str) -> None:
    seen = [line for line in recordings.get(down, up).server if line.kind == "notification notifications/cancelled:"]
    assert len(seen) == 1
    assert "tools/call (request" in seen[0].payload


@each_cell
def test_large_messages_arrive_whole(recordings: Recordings, down: str, up: str) -> None:
    sizes = [len(one.message) for one in recordings.get(down, up).messages if one.chapter == "large"]
    assert sizes[0] > 5 * 2**20
    assert sizes[2] > 20 * 2**20
