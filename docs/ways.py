"""Measures which files and functions of `core/` a call enters on its way up to the server and on its way down.

Each story is a conversation with an `Engine` on a clock that stands still. The same call is made three times. The first
two calls fill what is decided once, such as the list of a server's tools; the third is traced. `docs/generate.py`
writes the result into `docs/architecture.md`.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

import isthmus.core
from isthmus.core import (
    Cause,
    ChannelId,
    Connected,
    Dial,
    Effect,
    End,
    Engine,
    Era,
    Kind,
    Offer,
    Plan,
    PostOpening,
    Save,
    Saved,
    Send,
    ServerPlan,
    TaskRules,
)
from isthmus.core.wire.http.mcp_headers import headers_for

CORE: Final = Path(isthmus.core.__file__).resolve().parent
LEGACY: Final = "2025-11-25"
MODERN: Final = "2026-07-28"
META: Final = "io.modelcontextprotocol/"
CALL: Final = {"name": "add", "arguments": {"a": 1}}
NAME: Final = {"name": "any", "version": "1"}
RESULT: Final = {"content": [{"type": "text", "text": "2"}]}
ANSWERS: Final[Mapping[str, Any]] = {
    "initialize": {"protocolVersion": LEGACY, "capabilities": {"tools": {}}, "serverInfo": NAME},
    "tools/list": {"tools": [{"name": "add", "inputSchema": {"type": "object"}}]},
    "tools/call": RESULT,
}
"""The result with which the server answers each method."""


class Way(NamedTuple):
    """The functions entered in each file, both in the order of their first call."""

    files: dict[str, list[str]]

    @property
    def function_count(self) -> int:
        return sum(map(len, self.files.values()))


class Story(NamedTuple):
    title: str
    up: Way
    down: Way


class Tracer:
    """Records which functions of `core/` are entered. Comprehensions and lambdas are no functions of their own here:
    interpreters differ in them."""

    def __init__(self) -> None:
        self._entered: dict[tuple[str, str], None] = {}

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        code = frame.f_code
        if event != "call" or code.co_name.startswith("<"):
            return
        path = Path(code.co_filename).resolve()
        if path.is_relative_to(CORE):
            name = code.co_qualname.rpartition("<locals>.")[2]
            self._entered[path.relative_to(CORE).as_posix(), name] = None

    @property
    def way(self) -> Way:
        files: dict[str, list[str]] = {}
        for file, function in self._entered:
            files.setdefault(file, []).append(function)
        return Way(files)

    @contextmanager
    def tracing(self) -> Iterator[None]:
        before = sys.getprofile()
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(before)


class Conversation:
    """An engine with one client, whose messages are POSTs, and one server, a process that speaks 2025-11-25."""

    def __init__(self, client: Era, offer: Offer) -> None:
        plan = ServerPlan(id="server", kind=Kind.PIPE, era=Era.HANDSHAKE, tasks=TaskRules(offer=offer))
        self.engine = Engine(
            Plan(servers=(plan,)), entropy=random.Random(1).randbytes, unix_at_zero=1e9, has_storage=True
        )
        self.now = 0.0
        self.tracer: Tracer | None = None
        self.is_modern = client is Era.STATELESS
        self.session: str | None = None
        self.server: ChannelId | None = None
        self.answers: list[Any] = []
        self.held: list[bytes] = []
        self.ended: list[ChannelId] = []
        self.number = 0
        if not self.is_modern:
            hello = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": NAME}
            self.post("initialize", hello)
            self.answer()
            self.post("notifications/initialized", None)

    def post(self, method: str, params: Any) -> None:
        """Sends a message of the client. What the server is asked waits for `answer`."""
        tracer, self.tracer = self.tracer, None
        while self.ended:
            self.happens(self.engine.receive_close, self.ended.pop(), Cause(End.DONE))
        self.tracer = tracer
        self.number += 1
        frame: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            frame |= {"id": self.number, "params": params | (self._meta() if self.is_modern else {})}
        mirrored = headers_for(method, encoded(frame.get("params"))) if self.is_modern else ()
        is_first = method == "initialize"
        revision = MODERN if self.is_modern else None if is_first else LEGACY
        channel = self.engine.new_channel()
        opening = PostOpening("server", session=self.session, revision=revision, mirrored=mirrored)
        self.happens(self.engine.receive_open, channel, opening)
        self.happens(self.engine.receive_message, channel, encoded(frame))

    def answer(self) -> None:
        """Lets the server answer all that it was asked."""
        assert self.server is not None
        while self.held:
            frame = json.loads(self.held.pop(0))
            if "id" in frame:
                answer = {"jsonrpc": "2.0", "id": frame["id"], "result": ANSWERS[frame["method"]]}
                self.happens(self.engine.receive_message, self.server, encoded(answer))

    def wait(self) -> None:
        """Lets the time go on to the next deadline."""
        due = self.engine.next_timeout()
        assert due is not None
        self.now = due.at
        self.happens(self.engine.handle_timeout)

    def happens(self, report: Callable[..., list[Effect]], *told: Any) -> None:
        """Gives the engine an input, and carries out what it orders."""
        with nullcontext() if self.tracer is None else self.tracer.tracing():
            orders = report(*told, self.now)
        for order in orders:
            if isinstance(order, Dial):
                self.server = order.channel
                self.happens(self.engine.receive_open, order.channel, Connected())
            elif isinstance(order, Save):
                self.happens(self.engine.receive_answer, order.ticket, Saved())
            elif isinstance(order, Send) and order.channel == self.server:
                self.held.append(order.message)
            elif isinstance(order, Send):
                self.session = order.session or self.session
                self.answers.append(json.loads(order.message))
                self.ended.append(order.channel)

    def _meta(self) -> dict[str, Any]:
        told = {"protocolVersion": MODERN, "clientCapabilities": {}, "clientInfo": NAME}
        return {"_meta": {META + key: value for key, value in told.items()}}


def encoded(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _call(talk: Conversation) -> Story:
    talk.tracer = up = Tracer()
    talk.post("tools/call", CALL)
    talk.tracer = down = Tracer()
    talk.answer()
    assert talk.answers[-1]["result"]["content"] == RESULT["content"]
    return Story("", up.way, down.way)


def _task(talk: Conversation) -> Story:
    talk.tracer = up = Tracer()
    talk.post("tools/call", CALL | {"task": {"ttl": 60_000}})
    talk.wait()
    task = talk.answers[-1]["result"]["task"]["taskId"]
    talk.tracer = down = Tracer()
    talk.answer()
    talk.tracer = None
    talk.post("tasks/result", {"taskId": task})
    assert talk.answers[-1]["result"]["content"] == RESULT["content"]
    return Story("", up.way, down.way)


def stories() -> list[Story]:
    """Returns each kind of call, measured."""
    told = (
        ("a plain call", Era.HANDSHAKE, Offer.NEVER, _call),
        ("a call across the eras: the client has no sessions", Era.STATELESS, Offer.NEVER, _call),
        ("a call that becomes a task here", Era.HANDSHAKE, Offer.ALWAYS, _task),
    )
    made = []
    for title, client, offer, tell in told:
        talk = Conversation(client, offer)
        made.append([tell(talk) for _ in range(3)][-1]._replace(title=title))
    return made
