"""The task workshop on the official Python SDK, mcp 1.x: tasks of 2025-11-25. See README.md beside this file.

tasks_python1.py MARKS stdio | http
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import mcp.types as types
import uvicorn
from anyio.abc import TaskGroup
from mcp.server.experimental.task_context import ServerTaskContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.experimental.tasks.in_memory_task_store import InMemoryTaskStore
from serving import PrintingServer
from starlette.applications import Starlette
from starlette.routing import Mount

warnings.simplefilter("ignore")  # the SDK warns that it will lose its tasks

POLL_MS = 100
FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
NOTHING = {"type": "object", "properties": {}}
LABEL = {"type": "object", "properties": {"label": {"type": "string"}}, "required": ["label"]}
SUPPORT = {
    "plain": None,
    "quick": types.TASK_OPTIONAL,
    "must": types.TASK_REQUIRED,
    "asks": types.TASK_REQUIRED,
    "slow": types.TASK_REQUIRED,
    "fails": types.TASK_REQUIRED,
    "breaks": types.TASK_REQUIRED,
}
marks, transport_name = sys.argv[1:]


class Store(InMemoryTaskStore):
    """A store with a shorter polling interval than the SDK's own, which marks cancellations: the task's work gets no
    notice of them."""

    def __init__(self) -> None:
        super().__init__()
        self.labels: dict[str, str] = {}

    async def create_task(self, metadata: types.TaskMetadata, task_id: str | None = None) -> types.Task:
        task = await super().create_task(metadata, task_id)
        self._tasks[task.taskId].task.pollInterval = POLL_MS
        return task.model_copy(update={"pollInterval": POLL_MS})

    async def update_task(self, task_id: str, status: Any = None, status_message: str | None = None) -> types.Task:
        task = await super().update_task(task_id, status, status_message)
        if task.status == types.TASK_STATUS_CANCELLED and task_id in self.labels:
            mark(f"cancelled {self.labels[task_id]}")
        return task


server: Server[Any, Any] = Server("task workshop", version="1")
store = Store()
support = server.experimental.enable_tasks(store)


def mark(line: str) -> None:
    with open(marks, "a") as file:
        file.write(f"{line}\n")


def text_result(text: str, is_error: bool = False) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], isError=is_error)


@server.list_tools()
async def list_tools() -> list[types.Tool]:
    return [
        types.Tool(
            name=name,
            inputSchema=LABEL if name == "slow" else NOTHING,
            execution=types.ToolExecution(taskSupport=mode) if mode else None,
        )
        for name, mode in SUPPORT.items()
    ]


@server.call_tool()
async def call_tool(name: str, arguments: dict[str, Any]) -> types.CallToolResult | types.CreateTaskResult:
    experimental = server.request_context.experimental
    if (fault := experimental.validate_task_mode(SUPPORT[name], raise_error=False)) is not None:
        return text_result(fault.message, is_error=True)
    if not experimental.is_task:
        return text_result(name)

    async def work(task: ServerTaskContext) -> types.CallToolResult:
        match name:
            case "asks":
                answer = await task.elicit("Who?", FORM)
                return text_result(f"hello {(answer.content or {}).get('name')}")
            case "slow":
                store.labels[task.task_id] = arguments["label"]
                mark(f"started {arguments['label']}")
                await anyio.sleep_forever()
            case "fails":
                return text_result("it failed", is_error=True)
            case "breaks":
                raise RuntimeError("it broke")
            case _:
                await anyio.sleep(0.05)
        return text_result(name)

    return await experimental.run_task(work)


async def over_stdio() -> None:
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


@asynccontextmanager
async def one_group_for_all(tasks: TaskGroup) -> AsyncIterator[None]:
    """Holds one task group for all sessions. The SDK would use that of the newest session, and none once one ends."""
    support._task_group = tasks
    yield


async def over_http() -> None:
    manager = StreamableHTTPSessionManager(server)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks, manager.run():
            support.run = lambda: one_group_for_all(tasks)  # type: ignore[method-assign]
            yield
            tasks.cancel_scope.cancel()

    application = Starlette(routes=[Mount("/", app=manager.handle_request)], lifespan=lifespan)
    await PrintingServer(uvicorn.Config(application, host="127.0.0.1", port=0, log_level="warning")).serve()


anyio.run(over_stdio if transport_name == "stdio" else over_http)
