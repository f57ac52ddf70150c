"""The requests of `asgi.py` to a server at a URL, by httpx: each has a channel of its own."""

import asyncio
import os
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

import httpx
from mcp_engine import ClientExchange, Dial

URL = os.environ.get("MCP_URL", "")
OWN = [(b"authorization", os.environ["MCP_AUTHORIZATION"].encode())] if "MCP_AUTHORIZATION" in os.environ else []
HTTP = httpx.AsyncClient(
    timeout=None, limits=httpx.Limits(max_connections=None)
)  # the engine gives up what takes too long


def ask(gateway: Any, dial: Dial, channel: Any) -> Coroutine[Any, Any, None]:
    channel.peer = ClientExchange(
        gateway.engine, dial, URL, headers=OWN, unix_at_zero=gateway.unix_at_zero, limits=gateway.limits
    )
    return serve(gateway, channel, channel.peer)


async def serve(gateway: Any, channel: Any, exchange: ClientExchange) -> None:
    """One request from its dial to its end, which is told."""
    asking = asyncio.ensure_future(send(gateway, exchange, channel))
    closing = asyncio.ensure_future(channel.until(lambda: exchange.is_over))
    await asyncio.wait((asking, closing), return_when=asyncio.FIRST_COMPLETED)
    for task in (asking, closing):
        task.cancel()
    with suppress(asyncio.CancelledError):
        await asking
    gateway.tell(exchange.receive_end)
    del gateway.channels[exchange.channel]


async def send(gateway: Any, exchange: ClientExchange, channel: Any) -> None:
    try:
        while exchange.is_to_be_sent:  # once more after each redirect
            headers = [*exchange.headers, (b"content-length", b"%d" % len(exchange.body))]
            request = HTTP.build_request(exchange.method, exchange.url, headers=headers, content=exchange.body)
            response = await HTTP.send(request, stream=True)
            try:
                names = [(name.lower(), value) for name, value in response.headers.raw]
                gateway.tell(exchange.receive_head, response.status_code, names)
                async for data in response.aiter_raw():
                    gateway.tell(exchange.receive_body, data)
                    await channel.until(lambda: not exchange.is_paused)
                    if exchange.is_over or exchange.is_to_be_sent:
                        break
            finally:
                await response.aclose()
    except httpx.HTTPError as error:
        is_unsent = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
        gateway.tell(exchange.receive_failure, str(error) or type(error).__name__, is_unsent=is_unsent)
