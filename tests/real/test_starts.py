"""Tests of clients that come while the process of their server starts: the official SDK on both sides.

The server waits for a file before it starts, so the tests know what was answered without it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio
import pytest
import rig
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import McpError
from mcp.types import TextContent

pytestmark = pytest.mark.real

LATE: Final = rig.PEERS / "late_python1.py"


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[ClientSession]:
    """A session that is not initialized yet."""
    with anyio.fail_after(rig.PATIENCE_S):
        async with streamable_http_client(url) as (reading, writing, _), ClientSession(reading, writing) as session:
            yield session


def test_a_client_connects_and_lists_before_its_server_has_started(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    gate.touch()  # for the summary
    waiting = f"until [ -e {gate} ]; do sleep 0.05; done; exec {rig.require(rig.PYTHON_1)} {LATE} 0 0"

    async def tour(url: str) -> None:
        async with opened(url) as session:
            hello = await session.initialize()
            assert hello.serverInfo.name == "late"
            await session.send_ping()
            assert [tool.name for tool in (await session.list_tools()).tools] == [
                "sh_get_upload_url",
                "sh_put_file",
                "echo",
            ]
            offer = await session.call_tool("sh_get_upload_url", {})
            assert not offer.isError
            call = asyncio.ensure_future(session.call_tool("echo", {"text": "here"}))
            await session.send_ping()
            assert not call.done()
            gate.touch()
            (content,) = (await call).content
            assert isinstance(content, TextContent)
            assert content.text == "here"

    with rig.wrap("sh", "-c", waiting, folder=tmp_path, options=["--files"], asks=True) as proxy:
        gate.unlink()
        asyncio.run(tour(proxy.url))


def test_a_call_gets_the_reason_why_its_server_did_not_start(tmp_path: Path) -> None:
    """The next client gets it as the answer to `initialize`."""
    gate = tmp_path / "gate"
    gate.touch()
    script = f"[ -e {gate} ] || exit 3; exec {rig.require(rig.PYTHON_1)} {LATE} 0 0"
    reason = "could not be started: exited with code 3"

    async def tour(url: str) -> None:
        async with opened(url) as session:
            await session.initialize()
            with pytest.raises(McpError, match=reason):
                await session.call_tool("echo", {"text": "here"})
        async with opened(url) as session:
            with pytest.raises(McpError, match=reason):
                await session.initialize()

    with rig.wrap("sh", "-c", script, folder=tmp_path, asks=True) as proxy:
        gate.unlink()
        asyncio.run(tour(proxy.url))
