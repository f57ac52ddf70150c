"""A visit to the task workshop by FastMCP 4.x, whose tasks are the extension of 2026-07-28. See peers/README.md."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

from fastmcp import Client
from fastmcp.client.transports import StdioTransport, StreamableHttpTransport
from fastmcp_tasks import call_tool_task
from mcp import MCPError

PATIENCE_S = 20.0
RELATED = "io.modelcontextprotocol/related-task"


def text_of(result: Any) -> str:
    text = "".join(part.text for part in result.content)
    return f"error: {text}" if result.is_error else text


async def outcome(work: Awaitable[Any]) -> Any:
    try:
        return await work
    except MCPError as error:
        return {"code": error.error.code}


class Visit:
    def __init__(self, client: Client[Any], asked: list[str], marks: Path, label: str) -> None:
        self._client = client
        self._asked = asked
        self._marks = marks
        self._label = label

    async def run(self) -> dict[str, Any]:
        tools = await self._client.list_tools()
        offers = {tool.name: getattr(tool.execution, "task_support", None) for tool in tools}
        seen: dict[str, Any] = {"offers": offers}
        seen["plain"] = await self._call("plain")
        for name in ("quick", "must"):
            seen[name] = await self._through(name)
        seen["asks"] = await self._call("asks")  # the SDK answers its questions by itself
        for name in ("fails", "breaks"):
            seen[name] = (await self._through(name))[1:]
        must = await call_tool_task(self._client, "must")
        await must.wait()
        once, twice = (await must.status()).result, (await must.status()).result
        seen["again"] = once == twice and once is not None and once["content"][0]["text"] == "must"
        seen["related"] = RELATED in ((once or {}).get("_meta") or {})
        slow = await self.begin(f"cancel {self._label}")
        seen["working"] = (await slow.status()).status
        await slow.cancel()
        final = await slow.wait(timeout=PATIENCE_S)
        seen["cancel"] = seen["cancelled"] = final.status
        await slow.cancel()  # a second cancellation is acknowledged too
        slow._create_result.task_id = "nothing"  # there is no other way to ask for an unknown task
        seen["unknown"] = await outcome(slow.status())
        return seen | {"asked": self._asked}

    async def begin(self, label: str) -> Any:
        task = await call_tool_task(self._client, "slow", {"label": label})
        async with asyncio.timeout(PATIENCE_S):
            while f"started {label}" not in self._marks.read_text().splitlines():  # noqa: ASYNC110 (it is a file)
                await asyncio.sleep(0.02)
        return task

    async def _call(self, name: str) -> str:
        return text_of(await self._client.call_tool(name, {}, raise_on_error=False))

    async def _through(self, name: str) -> list[Any]:
        """Returns the first and the last status of a task, and its outcome."""
        task = await call_tool_task(self._client, name, raise_on_error=False)
        final = await task.wait(timeout=PATIENCE_S)
        ending: Any = {"code": final.error["code"]} if final.error else text_of(await task.result())
        return [task.create_result.status, final.status, ending]


async def main(path: str) -> None:
    plan = json.loads(Path(path).read_text())
    session_plan, target = plan["sessions"][0], plan["target"]
    asked: list[str] = []

    async def elicit(message: str, *_: Any) -> dict[str, str]:
        asked.append(message)
        return {"name": "Ada"}

    transport: Any
    if "url" in target:
        transport = StreamableHttpTransport(target["url"])
    else:
        command, *arguments = target["command"]
        transport = StdioTransport(command, arguments, env=target["env"])
    async with Client(transport, elicitation_handler=elicit) as client:
        visit = Visit(client, asked, Path(session_plan["marks"]), session_plan["label"])
        print(json.dumps(await visit.run()), flush=True)


asyncio.run(main(sys.argv[1]))
