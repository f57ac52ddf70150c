"""A session with a server for one command: what the server says goes to stderr, what it asks to the terminal."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any, Final

import anyio
import msgspec

from ...core.jsonrpc.envelope import Frame
from ..base.output import plain
from ..base.version import VERSION
from ..runtime.hub import Hub
from ..runtime.listing import list_entries
from ..runtime.own_sessions import OwnSession, Refusal
from .questions import DECLINE, answer_elicitation, ask_on_terminal, has_terminal
from .schemas import Json, text_of
from .status_line import StatusLine

ABLE: Final[Json] = {"sampling": {}, "elicitation": {"form": {}, "url": {}}}
"""The capabilities that are declared. Sampling is refused, and said: some servers show less to a client without it."""
QUESTIONS_MAX: Final = 16
"""Questions of a server that wait for the person. At it: the next is refused."""
WAITING_LINE_S: Final = 2
_REFUSED: Final = -1
"""The code for a request that the person refuses (2025-11-25 client/sampling, "Error Handling")."""


class TrySession:
    """A session with one server.

    Args:
        server: its name on stderr.
    """

    def __init__(self, hub: Hub, endpoint: str, server: str, status: StatusLine) -> None:
        self.status = status
        self.server = server
        self._own = OwnSession(hub, endpoint, VERSION, capabilities=ABLE, takes=self._take)
        self._asked, self._questions = anyio.create_memory_object_stream[Frame](QUESTIONS_MAX)
        self._last_progress = 0

    async def run(self) -> None:
        """Drives the session until it is closed."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._answer_questions)
            await self._own.run()
            tasks.cancel_scope.cancel()

    def leave(self) -> None:
        self._own.leave()

    async def greeting(self) -> Json:
        """Waits for the response to `initialize`, and says that it does.

        Raises:
            Refusal: the server answered with an error, or not at all.
        """
        failure: Refusal | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._say_waiting)
            try:
                await self._own.greeting()
            except Refusal as refusal:
                failure = refusal
            tasks.cancel_scope.cancel()
        self.status.clear()
        if failure is not None:
            raise failure
        return _decoded(await self._own.greeting())

    async def listed(self, method: str) -> list[Json]:
        """Returns the entries of a list that have a name or a URI; none if the server has no such list."""
        entries = [_decoded(entry) for entry in await list_entries(self._own, method)]
        return [one for one in entries if any(isinstance(one.get(key), str) for key in ("name", "uri", "uriTemplate"))]

    async def request(self, method: str, params: Json) -> Json:
        """Sends a request, and returns its result. Cancelling this cancels the request at the server too."""
        return _decoded(await self.request_raw(method, params))

    async def request_raw(self, method: str, params: Json) -> bytes:
        self._last_progress += 1
        meta = {"progressToken": self._last_progress}
        try:
            return await self._own.request(method, msgspec.json.encode({**params, "_meta": meta}))
        finally:
            self.status.clear()

    async def hear_logs(self, greeting: Json) -> None:
        """Asks the server for its log messages, if it has some. A server that refuses is left alone."""
        capabilities = greeting.get("capabilities")
        if isinstance(capabilities, dict) and "logging" in capabilities:
            with contextlib.suppress(Refusal):
                await self._own.request("logging/setLevel", b'{"level":"info"}')

    async def _say_waiting(self) -> None:
        seconds = 0
        while True:
            await anyio.sleep(WAITING_LINE_S)
            seconds += WAITING_LINE_S
            self.status.show(f"starting {self.server} … {seconds} s")

    # --- What the server says -----------------------------------------------------------------------------------

    def _take(self, frame: Frame) -> bool:
        params = _decoded(frame.params or b"{}")
        match frame.method:
            case "notifications/progress":
                self.status.show(progress_text(params))
            case "notifications/message":
                logger = f" {plain(params['logger'])}" if isinstance(params.get("logger"), str) else ""
                text = plain(text_of(params.get("data")))
                self.status.say(f"{self.server}{logger}: {plain(str(params.get('level', '')))}: {text}")
            case "elicitation/create" | "sampling/createMessage":
                try:
                    self._asked.send_nowait(frame)
                except anyio.WouldBlock:
                    return False
            case _:
                return False
        return True

    async def _answer_questions(self) -> None:
        async for frame in self._questions:
            assert frame.id_raw is not None
            if frame.method != "elicitation/create":
                self.status.say(f"{self.server} asks for a model (sampling/createMessage): refused, there is none here")
                self._own.refuse(frame.id_raw, _REFUSED, "this client has no model: the request is refused")
                continue
            params = _decoded(frame.params or b"{}")
            if not has_terminal():
                message = plain(str(params.get("message", "")))
                self.status.say(f"{self.server} asks: {message}: declined, as there is no terminal to ask on")
                self._own.answer(frame.id_raw, DECLINE)
                continue
            self.status.clear()
            result = await answer_elicitation(self.server, params, ask_on_terminal, self.status.say)
            self._own.answer(frame.id_raw, result)


@contextlib.asynccontextmanager
async def open_session(hub: Hub, endpoint: str, server: str) -> AsyncIterator[TrySession]:
    """Opens a session, and closes it when the context is left. Errors of the body have to be caught within."""
    session = TrySession(hub, endpoint, server, StatusLine())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session.run)
        try:
            yield session
        finally:
            session.leave()


def progress_text(params: Json) -> str:
    """Returns how far a call is, in a few words: `3 of 10: copying`."""
    done, total, message = params.get("progress"), params.get("total"), params.get("message")
    of = f" of {text_of(total)}" if isinstance(total, int | float) else ""
    return f"{text_of(done)}{of}{f': {message}' if isinstance(message, str) and message else ''}"


def _decoded(raw: bytes) -> dict[str, Any]:
    found = msgspec.json.decode(raw)
    return found if isinstance(found, dict) else {}
