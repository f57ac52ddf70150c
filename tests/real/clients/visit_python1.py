"""A visit to the workshop by the official Python SDK, mcp 1.x: the handshake. See peers/README.md."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import anyio
import pydantic
from mcp import ClientSession, McpError, StdioServerParameters, types
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

PATIENCE_S = 20.0
NOTE = "note://one"


class Visitor:
    """The server's notifications and questions."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.logs: list[Any] = []
        self.progress: list[list[float | None]] = []
        self.changes: set[str] = set()
        self.changed = anyio.Event()

    async def elicit(self, context: Any, params: Any) -> types.ElicitResult:
        self.asked.append(params.message)
        return types.ElicitResult(action="accept", content={"colour": "blue"})

    async def sample(self, context: Any, params: Any) -> types.CreateMessageResult:
        self.asked.append(params.messages[0].content.text)
        content = types.TextContent(type="text", text="canned")
        return types.CreateMessageResult(role="assistant", model="canned", content=content)

    async def roots(self, context: Any) -> types.ListRootsResult:
        self.asked.append("roots")
        return types.ListRootsResult(roots=[types.Root(uri=pydantic.FileUrl("file:///tmp/somewhere"))])

    async def take(self, message: Any) -> None:
        if not isinstance(message, types.ServerNotification):
            return
        notification = message.root
        if isinstance(notification, types.LoggingMessageNotification):
            self.logs.append(notification.params.data)
        elif isinstance(notification, types.ToolListChangedNotification):
            self.changes.add("tools")
        elif isinstance(notification, types.ResourceUpdatedNotification):
            self.changes.add(str(notification.params.uri))
        self.changed.set()
        self.changed = anyio.Event()

    async def report(self, progress: float, total: float | None, message: str | None) -> None:
        self.progress.append([progress, total])


async def outcome(work: Awaitable[Any]) -> Any:
    try:
        return await work
    except McpError as error:
        return {"code": error.error.code}


class Names:
    """The names of a workshop: its own, or, with an alias, those at a profile."""

    def __init__(self, alias: str) -> None:
        self.alias = alias

    def tool(self, name: str) -> str:
        return f"{self.alias}__{name}" if self.alias else name

    def uri(self, uri: str) -> pydantic.AnyUrl:
        return pydantic.AnyUrl(f"{self.alias}+{uri}" if self.alias else uri)


async def call(session: ClientSession, name: str, **arguments: Any) -> Any:
    async def work() -> str:
        result = await session.call_tool(name, arguments)
        text = "".join(part.text for part in result.content if isinstance(part, types.TextContent))
        return f"error: {text}" if result.isError else text

    return await outcome(work())


async def visit(session: ClientSession, visitor: Visitor, names: Names) -> dict[str, Any]:
    hello, note = await session.initialize(), names.uri(NOTE)
    seen: dict[str, Any] = {"revision": hello.protocolVersion, "server": hello.serverInfo.name}
    seen["tools"] = [tool.name for tool in (await session.list_tools()).tools]
    seen["echo"] = await call(session, names.tool("echo"), text="snow \u2603")
    for name in ("form", "sample", "where"):
        seen[name] = await call(session, names.tool(name))
    counted = await session.call_tool(names.tool("count"), {"to": 2}, progress_callback=visitor.report)
    seen["count"] = counted.content[0].text if isinstance(counted.content[0], types.TextContent) else None
    await session.set_logging_level("info")
    seen["log"] = await call(session, names.tool("log"))

    async def read(uri: pydantic.AnyUrl) -> Any:
        found = (await session.read_resource(uri)).contents[0]
        return found.text if isinstance(found, types.TextResourceContents) else None

    seen["read"] = await outcome(read(note))
    seen["missing"] = await outcome(read(names.uri("note://none")))
    prompt = await session.get_prompt(names.tool("greet"), {"name": "Ada"})
    text = prompt.messages[0].content
    seen["prompt"] = text.text if isinstance(text, types.TextContent) else None
    reference = types.PromptReference(type="ref/prompt", name=names.tool("greet"))
    seen["complete"] = (await session.complete(reference, {"name": "name", "value": "A"})).completion.values
    await session.subscribe_resource(note)
    seen["change"] = await call(session, names.tool("change"))
    expected = {str(note)} if names.alias else {str(note), "tools"}  # a profile tells of what differs only
    with anyio.move_on_after(PATIENCE_S):
        while not expected <= visitor.changes or not visitor.logs:
            await visitor.changed.wait()
    await session.unsubscribe_resource(note)
    return seen | {
        "asked": visitor.asked,
        "progress": visitor.progress,
        "logs": visitor.logs,
        "changes": sorted(visitor.changes),
    }


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
    with open(path) as file:
        plan = json.load(file)
    visitor = Visitor()
    async with (
        streams(plan["target"]) as (reading, writing),
        ClientSession(
            reading,
            writing,
            message_handler=visitor.take,
            elicitation_callback=visitor.elicit,
            sampling_callback=visitor.sample,
            list_roots_callback=visitor.roots,
        ) as session,
    ):
        seen = await visit(session, visitor, Names(plan.get("sessions", [{}])[0].get("alias", "")))
    print(json.dumps(seen), flush=True)


anyio.run(main, sys.argv[1])
