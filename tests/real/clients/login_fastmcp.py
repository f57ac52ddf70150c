"""A person's client on FastMCP 4.x that logs in at a server. See README.md beside this file.

login_fastmcp.py URL PAUSE_S [task]: with `task` it keeps a task of 2026-07-28 over the pause, at the server
peers/tasks_fastmcp.py. It opens the program in BROWSER.
"""

from __future__ import annotations

import asyncio
import json
import sys
import warnings
from typing import Any

import httpx2
from fastmcp import Client
from fastmcp.client.auth import OAuth
from fastmcp_tasks import call_tool_task

PATIENCE_S = 80.0


async def visit(client: Client[Any], pause_s: float) -> dict[str, Any]:
    helper = (await client.list_tools())[0].name
    offer = (await client.call_tool(helper, {})).structured_content
    assert offer is not None
    async with httpx2.AsyncClient(trust_env=False) as browser:
        sent = await browser.post(offer["upload_url"], files={"file": ("one.txt", b"handed in")})
    (handle,) = sent.raise_for_status().json()["upload_handles"]
    first = await client.call_tool("take_one", {"file": handle})
    made = (await client.call_tool("by_argument", {"output": "made.txt", "text": "made"})).meta
    uri = made["artifact"]["artifact_uri"]
    read = [await client.read_resource(uri)]
    await asyncio.sleep(pause_s)
    second = await client.call_tool("take_one", {"file": handle})
    read.append(await client.read_resource(uri))
    return {
        "taken": [json.loads(result.content[0].text) for result in (first, second)],
        "read": [contents[0].text for contents in read],
    }


async def keep_task(client: Client[Any], pause_s: float) -> dict[str, Any]:
    task = await call_tool_task(client, "slow", {"label": "kept"})
    before = await task.status()
    await asyncio.sleep(pause_s)
    after = await task.status()
    await task.cancel()
    final = await task.wait(timeout=PATIENCE_S)
    return {"statuses": [before.status, after.status, final.status]}


async def main(url: str, pause_s: float, what: str = "") -> None:
    warnings.simplefilter("ignore")  # FastMCP warns that the tokens are kept in memory
    async with asyncio.timeout(PATIENCE_S), Client(url, auth=OAuth(scopes=["mcp:read"])) as client:
        found = await (keep_task if what == "task" else visit)(client, pause_s)
        found["revision"] = client.protocol_version
        print(json.dumps(found), flush=True)


asyncio.run(main(sys.argv[1], float(sys.argv[2]), *sys.argv[3:]))
