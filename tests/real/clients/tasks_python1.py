"""A visit to the task workshop by the official Python SDK, mcp 1.x: tasks of 2025-11-25. See peers/README.md."""

from __future__ import annotations

import contextlib
import json
import sys
import warnings
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

import anyio
from mcp import ClientSession, McpError, StdioServerParameters, types
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

warnings.simplefilter("ignore")  # the SDK warns that it will lose its tasks

PATIENCE_S = 20.0
RELATED = "io.modelcontextprotocol/related-task"


def text_of(result: types.CallToolResult) -> str:
    text = "".join(part.text for part in result.content if isinstance(part, types.TextContent))
    return f"error: {text}" if result.isError else text


async def outcome(work: Awaitable[Any]) -> Any:
    try:
        return await work
    except McpError as error:
        return {"code": error.error.code}


class Visit:
    def __init__(self, session: ClientSession, asked: list[str], marks: Path, label: str) -> None:
        self._session = session
        self._tasks = session.experimental
        self._asked = asked
        self._marks = marks
        self._label = label

    async def run(self) -> dict[str, Any]:
        tasks = self._tasks
        tools = (await self._session.list_tools()).tools
        seen: dict[str, Any] = {
            "offers": {tool.name: tool.execution.taskSupport if tool.execution else None for tool in tools}
        }
        seen["plain"] = text_of(await self._session.call_tool("plain", {}))
        quick, seen["quick"] = await self._through("quick")
        must, seen["must"] = await self._through("must")
        asks = await self._call("asks")
        seen["asks"] = text_of(await self._payload(asks.taskId))
        for name in ("fails", "breaks"):
            _, (_, status, text) = await self._through(name)
            seen[name] = [status, text]
        once, twice = await self._payload(must.taskId), await self._payload(must.taskId)
        seen["again"] = once == twice and text_of(once) == seen["must"][2]
        seen["related"] = (once.meta or {}).get(RELATED, {}).get("taskId") == must.taskId
        slow = await self.begin(f"cancel {self._label}")
        seen["working"] = (await tasks.get_task(slow.taskId)).status
        seen["cancel"] = (await tasks.cancel_task(slow.taskId)).status
        seen["cancelled"] = [(await tasks.get_task(slow.taskId)).status, await self._result(slow.taskId)]
        seen["late"] = await outcome(tasks.cancel_task(slow.taskId))
        seen["unknown"] = await outcome(tasks.get_task("nothing"))
        listed = [task.taskId for task in (await tasks.list_tasks()).tasks]
        is_whole = {quick.taskId, must.taskId, slow.taskId} <= set(listed)
        return seen | {"listed": len(listed) if is_whole else listed, "asked": self._asked}

    async def begin(self, label: str) -> types.Task:
        task = await self._call("slow", label=label)
        with anyio.fail_after(PATIENCE_S):
            while f"started {label}" not in self._marks.read_text().splitlines():  # noqa: ASYNC110 (it is a file)
                await anyio.sleep(0.02)
        return task

    async def _call(self, name: str, **arguments: Any) -> types.Task:
        return (await self._tasks.call_tool_as_task(name, arguments)).task

    async def _payload(self, task_id: str) -> types.CallToolResult:
        return await self._tasks.get_task_result(task_id, types.CallToolResult)

    async def _result(self, task_id: str) -> Any:
        async def work() -> str:
            payload = await self._tasks.get_task_result(task_id, types.GetTaskPayloadResult)
            fields = payload.model_dump(by_alias=True)
            return text_of(types.CallToolResult.model_validate(fields)) if "content" in fields else "nothing"

        return await outcome(work())

    async def _through(self, name: str) -> tuple[types.Task, list[Any]]:
        """Returns a task, and its first status, its last status and its outcome."""
        task = await self._call(name)
        async for status in self._tasks.poll_task(task.taskId):
            last = status.status
        return task, [task.status, last, await self._result(task.taskId)]


@contextlib.asynccontextmanager
async def streams(target: dict[str, Any]) -> AsyncIterator[tuple[Any, Any]]:
    if "url" in target:
        async with streamable_http_client(target["url"]) as (reading, writing, _):
            yield reading, writing
    else:
        command, *arguments = target["command"]
        async with stdio_client(StdioServerParameters(command=command, args=arguments, env=target["env"])) as both:
            yield both


async def main(path: str) -> None:
    plan = json.loads(Path(path).read_text())
    session_plan = plan["sessions"][0]
    asked: list[str] = []

    async def elicit(context: Any, params: Any) -> types.ElicitResult:
        asked.append(params.message)
        return types.ElicitResult(action="accept", content={"name": "Ada"})

    async with (
        streams(plan["target"]) as (reading, writing),
        ClientSession(reading, writing, elicitation_callback=elicit) as session,
    ):
        await session.initialize()
        visit = Visit(session, asked, Path(session_plan["marks"]), session_plan["label"])
        print(json.dumps(await visit.run()), flush=True)
        await visit.begin(f"leave {session_plan['label']}")


anyio.run(main, sys.argv[1])
