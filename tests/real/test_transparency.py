"""Test of a legacy SSE server behind a transparent proxy: its endpoint leads back through the proxy, and an official
client follows it.

`test_everything` covers Streamable HTTP through it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import pytest
from mcp import ClientSession, types
from mcp.client.sse import sse_client
from rig import CLIENTS, EVERYTHING, Process, require, wrap

pytestmark = pytest.mark.real


@contextlib.contextmanager
def everything_over_sse(folder: Path) -> Iterator[str]:
    """Yields the URL of the stream of server-everything with the transport of 2024-11-05."""
    require(EVERYTHING)
    command = ["node", "--require", CLIENTS / "loopback.cjs", EVERYTHING.resolve(), "sse"]
    process = Process(command, folder=folder, env={"PORT": "0"})
    try:
        match = process.wait_line(r"listening on 127\.0\.0\.1:([0-9]+)")
        yield f"http://127.0.0.1:{match[1]}/sse"
        process.stop(code=None)
    finally:
        process.clean_up()


async def elicit(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
    return types.ElicitResult(action="decline")


async def converse(url: str) -> tuple[list[str], str, list[float], str]:
    """Uses the server. Returns its tools, an echo, the progress of a call, and the text of a call that asks its
    user."""
    progress: list[float] = []

    async def report(done: float, total: float | None, message: str | None) -> None:
        progress.append(done)

    with anyio.fail_after(60):
        async with sse_client(url) as streams, ClientSession(*streams, elicitation_callback=elicit) as session:
            await session.initialize()
            tools = [tool.name for tool in (await session.list_tools()).tools]
            echo = await session.call_tool("echo", {"message": "there and back"})
            long = {"duration": 0.4, "steps": 4}
            await session.call_tool("trigger-long-running-operation", long, progress_callback=report)
            asked = await session.call_tool("trigger-elicitation-request", {})
    return tools, text_of(echo), progress, text_of(asked)


def text_of(result: types.CallToolResult) -> str:
    return "".join(block.text for block in result.content if isinstance(block, types.TextContent))


@pytest.mark.parametrize("base, path", [("/sse", "/mcp"), ("", "/mcp/{id}/sse")])
def test_a_legacy_stream_and_its_messages_pass(tmp_path: Path, base: str, path: str) -> None:
    """The configured URL may be that of the stream or that of the whole server."""
    with everything_over_sse(tmp_path) as url:
        direct = anyio.run(converse, url)
        parts = urlsplit(url)
        with wrap(
            f"{parts.scheme}://{parts.netloc}{base}", folder=tmp_path, options=["--no-inspect"], asks=True
        ) as proxy:
            assert "server  transparent, at http://127.0.0.1" in proxy.banner
            through = proxy.base_url + path.format(id=parts.netloc.replace(":", "-"))
            assert anyio.run(converse, through) == direct
    tools, echo, progress, asked = direct
    assert "echo" in tools and "there and back" in echo
    assert progress == [1, 2, 3, 4] and "declin" in asked
