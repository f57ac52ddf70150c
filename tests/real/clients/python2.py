"""The official Python client, mcp 2.x, which carries out a plan. See README.md beside this file.

The client does the handshake, as do the others with which it is compared, unless its session names another `mode`: a
proxy understands the newest revision even if a server does not. visit_python2 uses more of the revision without a
handshake.
"""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any

import anyio
import mcp_types as types
import pydantic
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.sse import sse_client

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
    """The user of the client, who answers the server's questions."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox

    async def sample(self, context: Any, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
        self._inbox.put("asked", "sampling/createMessage", dump(params))
        content = types.TextContent(type="text", text="canned")
        return types.CreateMessageResult(role="assistant", model="canned", content=content, stop_reason="endTurn")

    async def elicit(self, context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        asked = dump(params)
        self._inbox.put("asked", "elicitation/create", asked)
        if asked.get("mode") == "url":
            return types.ElicitResult(action="accept")
        content = {name: answer_for(schema) for name, schema in asked["requestedSchema"]["properties"].items()}
        return types.ElicitResult(action="accept", content=content)

    async def roots(self, context: Any) -> types.ListRootsResult:
        self._inbox.put("asked", "roots/list", {})
        return types.ListRootsResult(roots=[types.Root(uri="file:///tmp/somewhere", name="somewhere")])


class Run:
    def __init__(self, client: Client, inbox: Inbox) -> None:
        self._client = client
        self._inbox = inbox

    async def step(self, step: dict[str, Any]) -> Any:
        client, op = self._client, step["op"]
        match op:
            case "tools" | "resources" | "templates" | "prompts":
                return await self._list(op)
            case "call":
                report = self._report if step.get("progress", False) else None
                return dump(await client.call_tool(step["name"], step.get("arguments"), progress_callback=report))
            case "cancel":
                return await self._cancel(step)
            case "read":
                return dump(await client.read_resource(step["uri"]))
            case "subscribe":
                return dump(await client.subscribe_resource(step["uri"]))
            case "unsubscribe":
                return dump(await client.unsubscribe_resource(step["uri"]))
            case "prompt":
                return dump(await client.get_prompt(step["name"], step.get("arguments")))
            case "complete":
                kind = types.PromptReference if step["ref"]["type"] == "ref/prompt" else types.ResourceTemplateReference
                return dump(await client.complete(kind(**step["ref"]), step["argument"], step.get("context")))
            case "ping":
                return dump(await client.send_ping())
            case "level":
                return dump(await client.set_logging_level(step["level"]))
            case "roots_changed":
                await client.send_roots_list_changed()
                return {}
            case "request":
                request: Any = types.Request(method=step["method"], params=step.get("params"))
                return dump(await client.session.send_request(request, types.EmptyResult))
            case "await":
                await self._inbox.wait(step["method"], step.get("contains", ""), step.get("count", 1))
                return {}
        raise ValueError(f"unknown op {op}")

    async def _list(self, op: str) -> list[Any]:
        names = {"tools": "tools", "resources": "resources", "templates": "resourceTemplates", "prompts": "prompts"}
        methods = {"templates": "list_resource_templates"}
        method = getattr(self._client, methods.get(op, f"list_{op}"))
        found: list[Any] = []
        cursor: str | None = None
        while True:
            page = dump(await method(cursor=cursor, cache_mode="bypass"))
            found += page[names[op]]
            cursor = page.get("nextCursor")
            if cursor is None:
                return found

    async def _report(self, progress: float, total: float | None, message: str | None) -> None:
        say("progress", progress=progress, total=total, message=message)

    async def _cancel(self, step: dict[str, Any]) -> Any:
        """Cancels a call. This SDK notifies the server when the waiting task is cancelled."""
        begun = anyio.Event()
        outcome: list[Any] = []

        async def report(progress: float, total: float | None, message: str | None) -> None:
            begun.set()

        async def call() -> None:
            outcome.append(
                dump(await self._client.call_tool(step["name"], step["arguments"], progress_callback=report))
            )

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            with anyio.fail_after(PATIENCE_S):
                await begun.wait()
            tasks.cancel_scope.cancel()
        return {"outcome": outcome}


async def run_session(target: dict[str, Any], plan: dict[str, Any]) -> None:
    inbox = Inbox()
    user = User(inbox)

    async def take(message: Any) -> None:
        if isinstance(message, Exception):
            say("remark", text=repr(message))
        elif not isinstance(message, types.ProgressNotification):
            inbox.put("notified", message.method, dump(message).get("params", {}))

    abilities: dict[str, Any] = {}
    if plan["capabilities"] == "all":
        abilities = {
            "sampling_callback": user.sample,
            "elicitation_callback": user.elicit,
            "list_roots_callback": user.roots,
        }
    server: Any
    if target.get("url", "").startswith("sse+"):
        server = sse_client(target["url"].removeprefix("sse+"))
    elif "url" in target:
        server = target["url"]
    else:
        command, *arguments = target["command"]
        server = StdioServerParameters(command=command, args=arguments, env=target["env"])
    async with Client(server, message_handler=take, mode=plan.get("mode", "legacy"), **abilities) as client:
        result = client.session.initialize_result
        say("begin", initialize=None if result is None else dump(result))
        run = Run(client, inbox)
        for number, step in enumerate(plan["steps"]):
            facts: dict[str, Any]
            try:
                with anyio.fail_after(PATIENCE_S):
                    facts = {"result": await run.step(step)}
            except MCPError as error:
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


warnings.simplefilter("ignore")  # features that newer revisions dropped are called here on purpose
anyio.run(main, sys.argv[1])
