"""An ASGI application round a copy of the engine: Streamable HTTP for clients, a server process for each session, which
is the business of `asgi_servers.py` beside it.

    cp -r core examples/mcp_engine
    MCP_COMMAND='COMMAND ARG…' uvicorn --app-dir examples --timeout-graceful-shutdown 5 asgi:app

The event loop is the lock: between an input and queueing what came of it nothing is awaited. See docs/vendoring.md.
"""

import asyncio
import os
import shlex
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

from asgi_servers import Channel, run
from mcp_engine import (
    Cause,
    ChannelId,
    Close,
    Dial,
    Effect,
    End,
    Engine,
    GetOpening,
    Kind,
    Limits,
    Pass,
    Pause,
    Plan,
    Resume,
    Send,
    ServerPlan,
)
from mcp_engine.wire.http.error_responses import not_found, refusal
from mcp_engine.wire.http.reply import HttpReplyState, Out, ReplyBody, ReplyDocument, ReplyEnd, ReplyHead
from mcp_engine.wire.http.routes import Head, McpRoute, Refused, Surface
from mcp_engine.wire.http.server import judge, reply_to, shared_headers

LIMITS = Limits()


class Proxy:
    def __init__(self, command: list[str]) -> None:
        self.command = command
        self.surface = Surface(("server",), hosts=frozenset({"localhost", "127.0.0.1", "[::1]"}), origins=frozenset())
        server = ServerPlan(id="server", kind=Kind.PIPE)
        self.engine = Engine(Plan(servers=(server,)), entropy=os.urandom, unix_at_zero=time.time() - time.monotonic())
        self.channels: dict[ChannelId, Channel] = {}
        self.alarm: asyncio.TimerHandle | None = None

    def tell(self, receive: Callable[..., list[Effect]], *arguments: Any) -> None:
        """Call an input of the engine, and queue what comes of it before anything else is told."""
        for order in receive(*arguments, time.monotonic()):
            if isinstance(order, Send | Pass | Close):
                self.channels[order.channel].outbox.put_nowait(order)
                if isinstance(order, Close):
                    self.channels[order.channel].is_over.set()
            elif isinstance(order, Pause):
                self.channels[order.channel].may_read.clear()
            elif isinstance(order, Resume):
                self.channels[order.channel].may_read.set()
            elif isinstance(order, Dial):
                self.channels[order.channel] = channel = Channel(order.channel)
                channel.server = asyncio.ensure_future(self.run_server(channel))
        if self.alarm is not None:
            self.alarm.cancel()
        if (due := self.engine.next_timeout()) is not None:
            wait_s = max(0.0, due.at - time.monotonic())
            self.alarm = asyncio.get_running_loop().call_later(wait_s, self.tell, self.engine.handle_timeout)

    def lose(self, channel: Channel, cause: Cause) -> None:
        self.tell(self.engine.receive_close, channel.number, cause)
        del self.channels[channel.number]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await self.serve(scope, receive, send)
        elif scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            self.tell(self.engine.receive_stop)
            await asyncio.gather(*(channel.server for channel in self.channels.values() if channel.server))
            await send({"type": "lifespan.shutdown.complete"})

    async def serve(self, scope: Any, receive: Any, send: Any) -> None:
        target = (scope["raw_path"] + b"?" + scope["query_string"]).decode("latin-1").removesuffix("?")
        head = Head(scope["method"], target, tuple((name, value) for name, value in scope["headers"]))
        route, body, is_more = judge(head, self.surface, scheme=scope["scheme"]), bytearray(), True
        while isinstance(route, McpRoute) and is_more:
            got = await receive()
            if got["type"] == "http.disconnect":
                return
            body += got.get("body", b"")
            is_more = got.get("more_body", False)
            if len(body) > LIMITS.request_size_max_bytes:
                route = refusal(413, f"got over {LIMITS.request_size_max_bytes} bytes, expected less", is_mcp=True)

        async def put(outs: Sequence[Out]) -> None:
            async with asyncio.timeout(LIMITS.write_timeout_s):
                for out in outs:
                    if isinstance(out, ReplyHead | ReplyDocument):
                        length = [(b"content-length", b"%d" % len(out.data))] if isinstance(out, ReplyDocument) else []
                        headers = [*out.headers, *length, *shared_headers(head, self.surface)]
                        await send({"type": "http.response.start", "status": out.status, "headers": headers})
                    if isinstance(out, ReplyBody | ReplyDocument):
                        is_more = isinstance(out, ReplyBody)
                        await send({"type": "http.response.body", "body": out.data, "more_body": is_more})
                    elif isinstance(out, ReplyEnd):
                        await send({"type": "http.response.body"})

        if not isinstance(route, McpRoute):
            refused = route if isinstance(route, Refused) else not_found(scope["path"], self.surface)
            await put((ReplyHead(refused.status, refused.headers), ReplyBody(refused.body), ReplyEnd()))
            return
        number = self.engine.new_channel()
        self.channels[number] = channel = Channel(number)
        self.tell(self.engine.receive_open, channel.number, route.opening)
        if route.is_posted:
            self.tell(self.engine.receive_message, channel.number, bytes(body))
        answering = asyncio.ensure_future(self.answer(channel, route, put))
        leaving = asyncio.ensure_future(receive())  # no more can come than that the client has gone
        end = End.GONE
        try:
            done, _ = await asyncio.wait((answering, leaving), return_when=asyncio.FIRST_COMPLETED)
            if answering in done:
                end = answering.result()
        finally:
            self.lose(channel, Cause(end))
            answering.cancel()
            leaving.cancel()

    async def answer(self, channel: Channel, route: McpRoute, put: Callable[[Sequence[Out]], Awaitable[None]]) -> End:
        """Write the reply as it comes, and comments where an event stream is silent."""
        reply = reply_to(route.opening)
        with suppress(OSError):
            if isinstance(route.opening, GetOpening) and channel.outbox.empty():
                await put(reply.open())
            while reply.state is not HttpReplyState.ENDED:
                try:
                    order = await asyncio.wait_for(channel.outbox.get(), LIMITS.keep_alive_s)
                except TimeoutError:
                    await put(reply.keep_alive())
                    continue
                if isinstance(order, Close):
                    await put(reply.receive_close(order))
                else:
                    await put(reply.receive_send(order) if isinstance(order, Send) else reply.receive_pass(order))
                    size_bytes = len(order.message) if isinstance(order, Send) else sum(map(len, order.pieces))
                    self.tell(self.engine.receive_sent, channel.number, size_bytes)
            return End.DONE
        return End.GONE  # it took nothing for too long, or cannot

    async def run_server(self, channel: Channel) -> None:
        self.lose(channel, await run(self.command, channel, self.engine, self.tell))


app = Proxy(shlex.split(os.environ["MCP_COMMAND"]))
