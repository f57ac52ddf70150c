"""The official Python client, mcp 1.x, which carries out a plan. See README.md beside this file."""

from __future__ import annotations

import contextlib
import json
import sys
import warnings
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pydantic
from mcp import ClientSession, McpError, StdioServerParameters, types
from mcp.client.experimental.task_handlers import ExperimentalTaskHandlers
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.client.websocket import websocket_client

PATIENCE_S = 30.0


def say(kind: str, **facts: Any) -> None:
    print(json.dumps({"kind": kind, **facts}), flush=True)


def dump(model: pydantic.BaseModel) -> Any:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


def answer_for(schema: dict[str, Any]) -> Any:
    """Returns what a patient user would enter: the default, or a value that fits."""
    if "default" in schema:
        return schema["default"]
    for name in ("enum", "oneOf"):
        if name in schema:
            first = schema[name][0]
            return first["const"] if isinstance(first, dict) else first
    if schema.get("type") == "boolean":
        return True
    if schema.get("type") in ("integer", "number"):
        return schema.get("minimum", 1)
    formats = {"email": "a@example.com", "uri": "https://example.com/", "date": "2026-01-02"}
    return formats.get(schema.get("format", ""), "canned")


class Inbox:
    """The server's requests and notifications."""

    def __init__(self) -> None:
        self._messages: list[tuple[str, str]] = []
        self._news = anyio.Event()

    def put(self, kind: str, method: str, params: Any) -> None:
        say(kind, method=method, params=params)
        self._messages.append((method, json.dumps(params, ensure_ascii=False)))
        self._news.set()
        self._news = anyio.Event()

    async def wait(self, method: str, contains: str, count: int) -> None:
        with anyio.fail_after(PATIENCE_S):
            while sum(name == method and contains in text for name, text in self._messages) < count:
                await self._news.wait()


class User:
    """The user of the client, who answers the server's questions, at once or as tasks."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self._outcomes: dict[str, pydantic.BaseModel] = {}

    async def sample(self, context: Any, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
        self._inbox.put("asked", "sampling/createMessage", dump(params))
        content = types.TextContent(type="text", text="canned")
        return types.CreateMessageResult(role="assistant", model="canned", content=content, stopReason="endTurn")

    async def elicit(self, context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        self._inbox.put("asked", "elicitation/create", dump(params))
        if isinstance(params, types.ElicitRequestURLParams):
            return types.ElicitResult(action="accept")
        properties = params.requestedSchema["properties"]
        content = {name: answer_for(schema) for name, schema in properties.items()}
        return types.ElicitResult(action="accept", content=content)

    async def roots(self, context: Any) -> types.ListRootsResult:
        self._inbox.put("asked", "roots/list", {})
        return types.ListRootsResult(
            roots=[types.Root(uri=pydantic.FileUrl("file:///tmp/somewhere"), name="somewhere")]
        )

    async def sample_as_task(
        self, context: Any, params: types.CreateMessageRequestParams, task: types.TaskMetadata
    ) -> types.CreateTaskResult:
        self._outcomes["sample"] = await self.sample(context, params)
        return types.CreateTaskResult(task=types.Task(**self._status("sample")))

    async def elicit_as_task(
        self, context: Any, params: types.ElicitRequestParams, task: types.TaskMetadata
    ) -> types.CreateTaskResult:
        self._outcomes["elicit"] = await self.elicit(context, params)
        return types.CreateTaskResult(task=types.Task(**self._status("elicit")))

    async def get_task(self, context: Any, params: types.GetTaskRequestParams) -> types.GetTaskResult:
        self._inbox.put("asked", "tasks/get", {"taskId": params.taskId})
        return types.GetTaskResult(**{**self._status(params.taskId), "status": "completed"})

    async def get_task_result(
        self, context: Any, params: types.GetTaskPayloadRequestParams
    ) -> types.GetTaskPayloadResult:
        self._inbox.put("asked", "tasks/result", {"taskId": params.taskId})
        return types.GetTaskPayloadResult(**dump(self._outcomes[params.taskId]))

    def _status(self, task: str) -> dict[str, Any]:
        then = "2026-01-02T03:04:05Z"
        return {"taskId": task, "status": "working", "createdAt": then, "lastUpdatedAt": then, "ttl": 60000}


class Run:
    def __init__(self, session: ClientSession, inbox: Inbox) -> None:
        self._session = session
        self._inbox = inbox

    async def step(self, step: dict[str, Any]) -> Any:
        session, op = self._session, step["op"]
        match op:
            case "tools" | "resources" | "templates" | "prompts":
                return await self._list(op)
            case "call":
                return dump(await self._call(step, is_reporting=step.get("progress", False)))
            case "cancel":
                return await self._cancel(step)
            case "task":
                return await self._task(step)
            case "read":
                return dump(await session.read_resource(pydantic.AnyUrl(step["uri"])))
            case "subscribe":
                return dump(await session.subscribe_resource(pydantic.AnyUrl(step["uri"])))
            case "unsubscribe":
                return dump(await session.unsubscribe_resource(pydantic.AnyUrl(step["uri"])))
            case "prompt":
                return dump(await session.get_prompt(step["name"], step.get("arguments")))
            case "complete":
                kind = types.PromptReference if step["ref"]["type"] == "ref/prompt" else types.ResourceTemplateReference
                reference = kind(**step["ref"])
                return dump(await session.complete(reference, step["argument"], step.get("context")))
            case "ping":
                return dump(await session.send_ping())
            case "level":
                return dump(await session.set_logging_level(step["level"]))
            case "roots_changed":
                await session.send_roots_list_changed()
                return {}
            case "request":
                return await self._request(step["method"], step.get("params"))
            case "await":
                await self._inbox.wait(step["method"], step.get("contains", ""), step.get("count", 1))
                return {}
        raise ValueError(f"unknown op {op}")

    async def _list(self, op: str) -> list[Any]:
        names = {"tools": "tools", "resources": "resources", "templates": "resourceTemplates", "prompts": "prompts"}
        methods = {"templates": "list_resource_templates"}
        method = getattr(self._session, methods.get(op, f"list_{op}"))
        found: list[Any] = []
        cursor: str | None = None
        while True:
            page = dump(await method(params=types.PaginatedRequestParams(cursor=cursor)))
            found += page[names[op]]
            cursor = page.get("nextCursor")
            if cursor is None:
                return found

    async def _call(self, step: dict[str, Any], *, is_reporting: bool) -> types.CallToolResult:
        async def report(progress: float, total: float | None, message: str | None) -> None:
            say("progress", progress=progress, total=total, message=message)

        return await self._session.call_tool(
            step["name"], step.get("arguments"), progress_callback=report if is_reporting else None
        )

    async def _cancel(self, step: dict[str, Any]) -> Any:
        """Cancels a call as this SDK leaves it to its user: sends the notification and stops waiting."""
        begun = anyio.Event()
        number = self._session._request_id

        async def report(progress: float, total: float | None, message: str | None) -> None:
            begun.set()

        async def call() -> None:
            outcome.append(
                dump(await self._session.call_tool(step["name"], step["arguments"], progress_callback=report))
            )

        outcome: list[Any] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            with anyio.fail_after(PATIENCE_S):
                await begun.wait()
            params = types.CancelledNotificationParams(requestId=number, reason="enough")
            await self._session.send_notification(types.ClientNotification(types.CancelledNotification(params=params)))
            tasks.cancel_scope.cancel()
        return {"outcome": outcome}

    async def _task(self, step: dict[str, Any]) -> Any:
        tasks = self._session.experimental
        created = await tasks.call_tool_as_task(step["name"], step["arguments"], ttl=60000)
        needed_input = False
        async for status in tasks.poll_task(created.task.taskId):
            if status.status == "input_required":
                needed_input = True
                break
        result = await tasks.get_task_result(created.task.taskId, types.CallToolResult)
        final = await tasks.get_task(created.task.taskId)
        listed = [task.taskId for task in (await tasks.list_tasks()).tasks]
        return {
            "created": created.task.status,
            "neededInput": needed_input,
            "result": dump(result),
            "final": final.status,
            "isListed": created.task.taskId in listed,
        }

    async def _request(self, method: str, params: dict[str, Any] | None) -> Any:
        request: Any = types.ClientRequest.model_construct(root=types.Request(method=method, params=params))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # pydantic warns that this is none of the SDK's own requests
            return dump(await self._session.send_request(request, types.EmptyResult))


@contextlib.asynccontextmanager
async def streams(target: dict[str, Any]) -> AsyncIterator[tuple[Any, Any]]:
    if target.get("url", "").startswith(("ws:", "wss:")):
        async with websocket_client(target["url"]) as both:
            yield both
    elif target.get("url", "").startswith("sse+"):
        async with sse_client(target["url"].removeprefix("sse+")) as both:
            yield both
    elif "url" in target:
        async with streamable_http_client(target["url"]) as (reading, writing, _):
            yield reading, writing
    else:
        command, *arguments = target["command"]
        async with stdio_client(StdioServerParameters(command=command, args=arguments, env=target["env"])) as both:
            yield both


async def run_session(target: dict[str, Any], plan: dict[str, Any]) -> None:
    inbox = Inbox()
    user = User(inbox)

    async def take(message: Any) -> None:
        if isinstance(message, types.ServerNotification):
            if not isinstance(message.root, types.ProgressNotification):
                inbox.put("notified", message.root.method, dump(message.root).get("params", {}))
        elif isinstance(message, Exception):
            say("remark", text=repr(message))

    abilities: dict[str, Any] = {}
    if plan["capabilities"] == "all":
        abilities = {
            "sampling_callback": user.sample,
            "elicitation_callback": user.elicit,
            "list_roots_callback": user.roots,
        }
    if plan.get("tasks"):
        abilities["experimental_task_handlers"] = ExperimentalTaskHandlers(
            get_task=user.get_task,
            get_task_result=user.get_task_result,
            augmented_sampling=user.sample_as_task,
            augmented_elicitation=user.elicit_as_task,
        )
    async with (
        streams(target) as (reading, writing),
        ClientSession(reading, writing, message_handler=take, **abilities) as session,
    ):
        say("begin", initialize=dump(await session.initialize()))
        run = Run(session, inbox)
        for number, step in enumerate(plan["steps"]):
            facts: dict[str, Any]
            try:
                with anyio.fail_after(PATIENCE_S):
                    facts = {"result": await run.step(step)}
            except McpError as error:
                facts = {"error": dump(error.error)}
            except (TimeoutError, RuntimeError, pydantic.ValidationError) as error:
                facts = {"trouble": repr(error)}
            say("step", number=number, op=step["op"], **facts)
    say("end")


async def main(path: str) -> None:
    with open(path) as file:
        plan = json.load(file)
    for session in plan["sessions"]:
        await run_session(plan["target"], session)


anyio.run(main, sys.argv[1])
