"""A client on the official Python SDK, mcp 2.x, which records spans itself, and sends their contexts in `_meta`.

traced_python2.py URL TEXT auto | legacy
"""

from __future__ import annotations

import sys

import anyio
from mcp import Client
from traced import record

record("client")


async def main(url: str, text: str, mode: str) -> None:
    async with Client(url, mode=mode) as client:
        result = await client.call_tool("echo", {"text": text})
        print(result.content[0].text)


anyio.run(main, *sys.argv[1:])
