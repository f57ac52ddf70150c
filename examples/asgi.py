"""An ASGI application round a copy of the engine: Streamable HTTP and HTTP+SSE for clients, with one server behind it.
`asgi_process.py` runs a process of the server for each session; `asgi_url.py` asks a server at a URL.

    make vendor DEST=examples/mcp_engine
    MCP_COMMAND='COMMAND ARG…' uvicorn --app-dir examples --timeout-graceful-shutdown 5 asgi:app
    MCP_URL=https://host/mcp   uvicorn --app-dir examples --timeout-graceful-shutdown 5 asgi:app

The event loop is the lock: between an input and queueing what came of it nothing is awaited. See docs/vendoring.md.
"""

import asyncio
import os
import time
from collections.abc import Callable
from typing import Any

from mcp_engine import (
    Allowed,
    Decide,
    Denied,
    Dial,
    Effect,
    Engine,
    Head,
    Kind,
    Limits,
    Plan,
    ReplyBody,
    ReplyEnd,
    ReplyHead,
    ServerExchange,
    ServerPlan,
    Surface,
)


class Channel:
    """A server, or one request of a client or to a server. `peer` takes the orders for it, which wake its tasks."""

    def __init__(self, peer: Any = None) -> None:
        self.peer = peer
        self.ordered = asyncio.Event()
        self.task: asyncio.Future[None] | None = None

    async def until(self, is_true: Callable[[], object]) -> None:
        while not is_true():
            self.ordered.clear()
            await self.ordered.wait()


class Gateway:
    """The application: clients in front, and one server behind them.

    Args:
        run: gives a dialled channel its peer, and returns what serves it to its end.
        rule: decides about each request of a client; without it all are allowed.
    """

    def __init__(
        self,
        kind: Kind,
        run: Callable[["Gateway", Dial, Channel], Any],
        rule: Callable[[Decide], Allowed | Denied] | None = None,
    ) -> None:
        hosts = frozenset({"localhost", "127.0.0.1", "[::1]"})
        self.surface = Surface(("server",), hosts, origins=frozenset(), areas=frozenset({"mcp", "sse", "messages"}))
        self.unix_at_zero = time.time() - time.monotonic()
        self.limits = Limits()
        plan = Plan(servers=(ServerPlan(id="server", kind=kind, decides=rule is not None),))
        self.engine = Engine(plan, entropy=os.urandom, unix_at_zero=self.unix_at_zero, limits=self.limits)
        self.run, self.rule = run, rule
        self.channels: dict[int, Channel] = {}
        self.alarm: asyncio.TimerHandle | None = None

    def tell(self, receive: Callable[..., list[Effect]], *arguments: Any, **named: Any) -> None:
        """Call an input of the engine, and queue what comes of it before anything else is told."""
        for order in receive(*arguments, now=time.monotonic(), **named):
            if isinstance(order, Dial):
                self.channels[order.channel] = channel = Channel()
                channel.task = asyncio.ensure_future(self.run(self, order, channel))
            elif isinstance(order, Decide) and self.rule:  # answered once all of these orders are queued
                answer = self.engine.receive_answer, order.ticket, self.rule(order)
                asyncio.get_running_loop().call_soon(self.tell, *answer)
            elif (number := getattr(order, "channel", None)) in self.channels:
                self.channels[number].peer.receive_order(order)
                self.channels[number].ordered.set()
        if self.alarm is not None:
            self.alarm.cancel()
        if (due := self.engine.next_timeout()) is not None:
            wait_s = max(0.0, due.at - time.monotonic())
            self.alarm = asyncio.get_running_loop().call_later(wait_s, self.tell, self.engine.handle_timeout)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await self.serve(scope, receive, send)
        elif scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await self.stop()
            await send({"type": "lifespan.shutdown.complete"})

    async def stop(self) -> None:
        """Ends all sessions and their servers. A mounted application gets no lifespan: call this where yours ends."""
        self.tell(self.engine.receive_stop)
        await asyncio.gather(*(channel.task for channel in self.channels.values() if channel.task))

    async def serve(self, scope: Any, receive: Any, send: Any) -> None:
        target = (scope["raw_path"] + b"?" + scope["query_string"]).decode("latin-1").removesuffix("?")
        head = Head(scope["method"], target, tuple(map(tuple, scope["headers"])), root=scope.get("root_path", ""))
        exchange = ServerExchange(self.engine, self.surface, head, scheme=scope["scheme"], limits=self.limits)
        while exchange.wants_body:
            got = await asyncio.wait_for(receive(), self.limits.body_timeout_s)
            if got["type"] == "http.disconnect":
                return
            exchange.receive_body(got.get("body", b""), is_last=not got.get("more_body"))
        self.channels[exchange.channel] = channel = Channel(exchange)
        self.tell(exchange.begin)
        writing = asyncio.ensure_future(self.write(exchange, channel, send))
        leaving = asyncio.ensure_future(receive())  # nothing can come but that the client is gone
        try:
            done, _ = await asyncio.wait((writing, leaving), return_when=asyncio.FIRST_COMPLETED)
            if writing in done:
                writing.result()
        finally:
            writing.cancel()
            leaving.cancel()
            self.tell(exchange.end)
            del self.channels[exchange.channel]

    async def write(self, exchange: ServerExchange, channel: Channel, send: Any) -> None:
        while True:
            channel.ordered.clear()
            async with asyncio.timeout(self.limits.write_timeout_s):
                for out in exchange.take():
                    if isinstance(out, ReplyHead):
                        await send({"type": "http.response.start", "status": out.status, "headers": out.headers})
                    elif isinstance(out, ReplyBody):
                        await send({"type": "http.response.body", "body": out.data, "more_body": True})
                    elif isinstance(out, ReplyEnd):
                        await send({"type": "http.response.body"})
                    else:
                        raise ConnectionError("the server's response was cut off")  # closes the connection
            self.tell(exchange.written)
            if exchange.is_over:
                return
            try:
                await asyncio.wait_for(channel.ordered.wait(), self.limits.keep_alive_s)
            except TimeoutError:
                exchange.keep_alive()


if "MCP_URL" in os.environ:
    from asgi_url import ask

    app = Gateway(Kind.HTTP, ask)
else:
    from asgi_process import run

    app = Gateway(Kind.PIPE, run)
