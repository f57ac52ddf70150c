"""Operator pages of all workers: the one that is asked asks the others as well, each on its socket, and combines what
they answer.

A question is answered in two steps. First a worker takes it, at once, so one that is paused is soon found to be
missing. Its answer may take as long as a server takes to start.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import anyio
import msgspec
from anyio.abc import SocketStream, TaskStatus

from ...core.base.storage import Serve
from ...core.wire.headers import JSON
from ...core.wire.http.admin_routes import METRICS_TYPE, Page
from ...core.wire.http.error_responses import page_answer
from ...core.wire.http.routes import PageRoute, Refused
from ...transports.http_server.shared import Pages
from .metrics import merged_metrics
from .servers import STOPPED, Json, combined_act, merged_servers

ENDING: Final = ".pages"
"""The end of the name of each worker's socket, in the folder of all of them; its tag is before it."""
TAKE_TIMEOUT_S: Final = 2.0
"""Seconds that a worker may take to take a question, or to show a page; it takes some milliseconds. At it: it counts as
missing."""
ACT_TIMEOUT_S: Final = 600.0
"""Seconds that a worker may take to start or stop a server: longer than a server may take. At it: it counts as missing.
"""
ANSWER_MAX_BYTES: Final = 16 * 1024 * 1024
"""Bytes of the answer of one worker: metrics of thousands of servers and tools. At it: it counts as missing."""
QUESTION_MAX_BYTES: Final = 64 * 1024
"""Bytes of a question, which holds an id of a request line. At it: it is not answered."""

READ: Final = frozenset({Page.METRICS, Page.SERVERS, Page.SERVER})
ACTS: Final = frozenset({Page.START, Page.STOP, Page.RESTART})
TOGETHER: Final = READ | ACTS
"""The pages that workers answer together."""

_TAKEN: Final = b"+"


class Question(msgspec.Struct, frozen=True):
    """A request for a page, as `PageRoute` has it."""

    page: Page
    id: str


class Answer(msgspec.Struct, frozen=True):
    """The HTTP status and the body of a page."""

    status: int
    body: bytes


AnswerAlone = Callable[[Question], Awaitable[Answer]]
"""Answers for this worker alone."""


class WorkerPages:
    """The pages of all workers.

    Args:
        folder: that of the sockets of all workers.
        tag: of this one.
    """

    def __init__(self, folder: str, tag: str, answer_alone: AnswerAlone) -> None:
        self._folder = folder
        self._tag = tag
        self._answer_alone = answer_alone

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Answers the questions of other workers, until cancelled."""
        path = os.path.join(self._folder, f"{self._tag}{ENDING}")
        async with await anyio.create_unix_listener(path, mode=0o600) as listener:
            task_status.started()
            await listener.serve(self._answer_other)

    async def answer(self, question: Question) -> Answer:
        """Returns the page of all workers."""
        parts = await self._answers(question, {self._tag, *self._others()})
        return combined(question, dict(sorted(parts.items(), key=lambda part: (len(part[0]), part[0]))), self._tag)

    async def stopped(self) -> set[str]:
        """Returns the ids of the servers that are stopped at another worker. For a worker that takes the place of one:
        an order to stop reached it."""
        parts = await self._answers(Question(Page.SERVERS, ""), self._others())
        servers = [server for part in parts.values() if part for server in msgspec.json.decode(part.body)["servers"]]
        return {server["name"] for server in servers if server["state"] == STOPPED}

    def _others(self) -> set[str]:
        try:
            names = os.listdir(self._folder)
        except OSError:  # the supervisor is gone, with its folder
            return set()
        return {name.removesuffix(ENDING) for name in names if name.endswith(ENDING)} - {self._tag}

    async def _answers(self, question: Question, tags: set[str]) -> dict[str, Answer | None]:
        parts: dict[str, Answer | None] = {}

        async def ask(tag: str) -> None:
            is_own = tag == self._tag
            parts[tag] = await (self._answer_alone(question) if is_own else self._asked(tag, question))

        async with anyio.create_task_group() as tasks:
            for tag in tags:
                tasks.start_soon(ask, tag)
        return parts

    async def _answer_other(self, stream: SocketStream) -> None:
        async with stream:
            try:
                with anyio.fail_after(TAKE_TIMEOUT_S):
                    question = msgspec.msgpack.decode(await _read(stream, QUESTION_MAX_BYTES), type=Question)
                    await stream.send(_TAKEN)
                answer = await self._answer_alone(question)
                with anyio.fail_after(TAKE_TIMEOUT_S):
                    await stream.send(msgspec.msgpack.encode(answer))
            except (_TooLong, msgspec.MsgspecError, anyio.BrokenResourceError, TimeoutError):
                return  # the worker that asks counts this one as missing

    async def _asked(self, tag: str, question: Question) -> Answer | None:
        """Returns the answer of another worker; None if it does not answer."""
        try:
            with anyio.fail_after(TAKE_TIMEOUT_S):
                stream = await anyio.connect_unix(os.path.join(self._folder, f"{tag}{ENDING}"))
            async with stream:
                with anyio.fail_after(TAKE_TIMEOUT_S):
                    await stream.send(msgspec.msgpack.encode(question))
                    await stream.send_eof()
                    await stream.receive(len(_TAKEN))
                with anyio.fail_after(ACT_TIMEOUT_S if question.page in ACTS else TAKE_TIMEOUT_S):
                    return msgspec.msgpack.decode(await _read(stream, ANSWER_MAX_BYTES), type=Answer)
        except (OSError, anyio.EndOfStream, anyio.BrokenResourceError, _TooLong, msgspec.MsgspecError):
            return None  # a `TimeoutError` is an `OSError`


def combined(question: Question, parts: Mapping[str, Answer | None], own: str) -> Answer:
    """Returns the page of all workers.

    Args:
        parts: the answer of each worker, by its tag, `own` among them; None: it does not answer.
    """
    if question.page is Page.METRICS:
        return Answer(200, merged_metrics({tag: None if part is None else part.body for tag, part in parts.items()}))
    found: dict[str, tuple[int, Json] | None] = {}
    for tag, part in parts.items():
        found[tag] = None if part is None else (part.status, msgspec.json.decode(part.body))
    if question.page in ACTS:
        status, shown = combined_act(question.page, question.id, found)
        return Answer(status, msgspec.json.encode(shown))
    is_list = question.page is Page.SERVERS
    listed = {tag: None if part is None else _servers_in(part, is_list=is_list) for tag, part in found.items()}
    servers = merged_servers(listed)
    if is_list:
        return Answer(200, msgspec.json.encode({"servers": servers}))
    if servers:
        return Answer(200, msgspec.json.encode(servers[0]))
    refused = parts[own]
    assert refused is not None
    return refused


def _servers_in(part: tuple[int, Json], *, is_list: bool) -> list[Json]:
    status, shown = part
    if is_list:
        servers: list[Json] = shown["servers"]
        return servers
    return [shown] if status == 200 else []


class _TooLong(Exception):
    pass


async def _read(stream: SocketStream, max_bytes: int) -> bytes:
    """Reads until the other side has sent all."""
    found = bytearray()
    async for piece in stream:
        found += piece
        if len(found) > max_bytes:
            raise _TooLong
    return bytes(found)


def answers_alone(pages: Pages) -> AnswerAlone:
    """Returns what answers for this process alone when another worker asks."""

    async def answer(question: Question) -> Answer:
        found = await pages(PageRoute(question.page, question.id), b"")
        assert isinstance(found, Refused)
        return Answer(found.status, found.body)

    return answer


def pages_of_all(pages: Pages, shared: WorkerPages) -> Pages:
    """Returns the pages, of which some are those of all workers."""

    async def answer(route: PageRoute, body: bytes) -> Refused | Serve:
        if route.page not in TOGETHER:
            return await pages(route, body)
        found = await shared.answer(Question(route.page, route.id))
        kind = METRICS_TYPE if route.page is Page.METRICS else JSON
        return page_answer(found.status, found.body, content_type=kind)

    return answer
