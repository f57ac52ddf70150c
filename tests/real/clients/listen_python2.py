"""A client on mcp 2.x that listens to `peers/listened_python2.py`. It prints what became of its subscriptions.

listen_python2.py PLAN. A session of the plan may have `dies`: the server's process is ended, and starts again.
"""

from __future__ import annotations

import itertools
import json
import sys
from typing import Any

import anyio
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.subscriptions import SubscriptionLost

PATIENCE_S = 30.0


async def call(client: Client, tool: str) -> str:
    try:
        await client.call_tool(tool, {})
    except MCPError:
        return "failed"
    return "done"


async def events_after(client: Client, tool: str, subscription: Any) -> list[str]:
    """Calls a tool. Returns the events up to the next end of the subscription, or the first one."""
    called, found = await call(client, tool), []
    with anyio.fail_after(PATIENCE_S):
        try:
            async for event in subscription:
                found.append(type(event).__name__)
                if tool == "change":
                    break
            else:
                found.append("ended")
        except SubscriptionLost:
            found.append("lost")
    return [called, *found]


async def are_kept(client: Client, times: int) -> list[bool]:
    """Lists the tools so often, past the client's own cache. Returns for each list after the first whether the one
    before was given again."""
    lists = [(await client.list_tools(cache_mode="bypass")).tools[0].description for _ in range(times)]
    return [before == after for before, after in itertools.pairwise(lists)]


async def listen(client: Client, *, dies: bool) -> dict[str, Any]:
    seen: dict[str, Any] = {"kept": await are_kept(client, 2)}
    wanted = {"tools_list_changed": True, "resource_subscriptions": ["a:1"]}
    async with client.listen(**wanted) as subscription:
        seen["honored"] = subscription.honored.model_dump(by_alias=True, exclude_none=True)
        before = (await client.list_tools(cache_mode="bypass")).tools[0].description
        seen["change"] = await events_after(client, "change", subscription)
        after = (await client.list_tools(cache_mode="bypass")).tools[0].description
        seen["kept"] += [before == after, *await are_kept(client, 2)]
        try:
            async with client.listen(tools_list_changed=True):
                seen["second"] = "honored"
        except MCPError as error:
            seen["second"] = [error.error.code, error.error.message]
        seen["end"] = await events_after(client, "end", subscription)
    async with client.listen(**wanted) as subscription:
        seen["again"] = await events_after(client, "change", subscription)
        if dies:
            seen["die"] = await events_after(client, "die", subscription)
    if dies:
        async with client.listen(**wanted) as subscription:
            seen["anew"] = await events_after(client, "change", subscription)
    return seen


async def main(path: str) -> None:
    with open(path) as file:
        plan = json.load(file)
    target = plan["target"]
    server: Any = target.get("url")
    if server is None:
        command, *arguments = target["command"]
        server = StdioServerParameters(command=command, args=arguments, env=target["env"])
    async with Client(server, mode="auto") as client:
        print(json.dumps(await listen(client, dies=plan["sessions"][0]["dies"])), flush=True)


anyio.run(main, sys.argv[1])
