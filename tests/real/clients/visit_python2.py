"""A visit to the workshop by the official Python SDK, mcp 2.x, in either era. See peers/README.md."""

from __future__ import annotations

import contextlib
import json
import sys
import warnings
from collections.abc import Awaitable
from typing import Any

import anyio
import mcp_types as types
from mcp import Client, MCPError, StdioServerParameters
from mcp.shared.subscriptions import ResourceUpdated, ToolsListChanged

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
        return types.CreateMessageResult(role="assistant", model="canned", content=types.TextContent(text="canned"))

    async def roots(self, context: Any) -> types.ListRootsResult:
        self.asked.append("roots")
        return types.ListRootsResult(roots=[types.Root(uri="file:///tmp/somewhere")])

    async def log(self, params: Any) -> None:
        self.logs.append(params.data)
        self._signal()

    async def take(self, message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self.changes.add("tools")
        elif isinstance(message, types.ResourceUpdatedNotification):
            self.changes.add(str(message.params.uri))
        self._signal()

    async def follow(self, subscription: Any) -> None:
        async for event in subscription:
            if isinstance(event, ToolsListChanged):
                self.changes.add("tools")
            elif isinstance(event, ResourceUpdated):
                self.changes.add(event.uri)
            self._signal()

    async def report(self, progress: float, total: float | None, message: str | None) -> None:
        self.progress.append([progress, total])

    def _signal(self) -> None:
        self.changed.set()
        self.changed = anyio.Event()


async def outcome(work: Awaitable[Any]) -> Any:
    try:
        return await work
    except MCPError as error:
        return {"code": error.error.code}


class Names:
    """The names of a workshop: its own, or, with an alias, those at a profile."""

    def __init__(self, alias: str) -> None:
        self.alias = alias

    def tool(self, name: str) -> str:
        return f"{self.alias}__{name}" if self.alias else name

    def uri(self, uri: str) -> str:
        return f"{self.alias}+{uri}" if self.alias else uri


async def call(client: Client, name: str, **arguments: Any) -> Any:
    async def work() -> str:
        result = await client.call_tool(name, arguments)
        text = "".join(part.text for part in result.content if isinstance(part, types.TextContent))
        return f"error: {text}" if result.is_error else text

    return await outcome(work())


async def visit(client: Client, visitor: Visitor, names: Names, *, is_modern: bool) -> dict[str, Any]:
    server, note = client.server_info, names.uri(NOTE)
    seen: dict[str, Any] = {"revision": client.protocol_version, "server": server.name if server else None}
    seen["tools"] = [tool.name for tool in (await client.list_tools()).tools]
    seen["echo"] = await call(client, names.tool("echo"), text="snow \u2603")
    for name in ("form", "sample", "where"):
        seen[name] = await call(client, names.tool(name))
    counted = await client.call_tool(names.tool("count"), {"to": 2}, progress_callback=visitor.report)
    seen["count"] = counted.content[0].text if isinstance(counted.content[0], types.TextContent) else None
    if not is_modern:
        await client.set_logging_level("info")
    seen["log"] = await call(client, names.tool("log"))

    async def read(uri: str) -> Any:
        found = (await client.read_resource(uri)).contents[0]
        return found.text if isinstance(found, types.TextResourceContents) else None

    seen["read"] = await outcome(read(note))
    seen["missing"] = await outcome(read(names.uri("note://none")))
    text = (await client.get_prompt(names.tool("greet"), {"name": "Ada"})).messages[0].content
    seen["prompt"] = text.text if isinstance(text, types.TextContent) else None
    reference = types.PromptReference(name=names.tool("greet"))
    seen["complete"] = (await client.complete(reference, {"name": "name", "value": "A"})).completion.values
    async with contextlib.AsyncExitStack() as stack:
        if is_modern:
            listening = client.listen(tools_list_changed=True, resource_subscriptions=[note])
            subscription = await stack.enter_async_context(listening)
            tasks = await stack.enter_async_context(anyio.create_task_group())
            tasks.start_soon(visitor.follow, subscription)
        else:
            await client.subscribe_resource(note)
        seen["change"] = await call(client, names.tool("change"))
        expected = {str(note)} if names.alias else {str(note), "tools"}  # a profile tells of what differs only
        with anyio.move_on_after(PATIENCE_S):
            while not expected <= visitor.changes or not visitor.logs:
                await visitor.changed.wait()
        if is_modern:
            tasks.cancel_scope.cancel()
        else:
            await client.unsubscribe_resource(note)
    return seen | {
        "asked": visitor.asked,
        "progress": visitor.progress,
        "logs": visitor.logs,
        "changes": sorted(visitor.changes),
    }


async def main(path: str) -> None:
    with open(path) as file:
        plan = json.load(file)
    target = plan["target"]
    server: Any = target.get("url")
    if server is None:
        command, *arguments = target["command"]
        server = StdioServerParameters(command=command, args=arguments, env=target["env"])
    visitor = Visitor()
    async with Client(
        server,
        mode=plan["sessions"][0]["mode"],
        message_handler=visitor.take,
        logging_callback=visitor.log,
        log_level="info",
        elicitation_callback=visitor.elicit,
        sampling_callback=visitor.sample,
        list_roots_callback=visitor.roots,
    ) as client:
        names = Names(plan["sessions"][0].get("alias", ""))
        seen = await visit(client, visitor, names, is_modern=client.session.discover_result is not None)
    print(json.dumps(seen), flush=True)


warnings.simplefilter("ignore")  # features that newer revisions dropped are called here on purpose
anyio.run(main, sys.argv[1])
