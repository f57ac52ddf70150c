"""The workshop on the official Python SDK, mcp 2.x, which always serves both eras. See README.md beside this file.

workshop_python2.py stdio | http
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

import anyio
import mcp_types as types
from mcp import MCPError
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.subscriptions import ResourceUpdated, ToolsListChanged
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from serving_python2 import serve

NOTE = "note://one"
FORM: dict[str, Any] = {"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"]}
NOTHING = {"type": "object", "properties": {}}
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
NUMBER = {"type": "object", "properties": {"to": {"type": "integer"}}, "required": ["to"]}
TOOLS = {
    "echo": TEXT,
    "form": NOTHING,
    "sample": NOTHING,
    "where": NOTHING,
    "count": NUMBER,
    "log": NOTHING,
    "change": NOTHING,
}
QUESTIONS: dict[str, Any] = {
    "form": types.ElicitRequest(params=types.ElicitRequestFormParams(message="Which colour?", requested_schema=FORM)),
    "sample": types.CreateMessageRequest(
        params=types.CreateMessageRequestParams(
            messages=[types.SamplingMessage(role="user", content=types.TextContent(text="well?"))], max_tokens=9
        )
    ),
    "where": types.ListRootsRequest(),
}
changes = InMemorySubscriptionBus()


async def list_tools(context: Any, params: Any) -> types.ListToolsResult:
    return types.ListToolsResult(tools=[types.Tool(name=name, input_schema=form) for name, form in TOOLS.items()])


async def call_tool(
    context: Any, params: types.CallToolRequestParams
) -> types.CallToolResult | types.InputRequiredResult:
    if params.name in QUESTIONS:
        answer = await ask(context, params)
        if answer is None:
            return types.InputRequiredResult(input_requests={"answer": QUESTIONS[params.name]}, request_state="asked")
        text = text_of_answer(answer)
    else:
        text = await work(context, params.name, params.arguments or {})
    return types.CallToolResult(content=[types.TextContent(text=text)])


async def ask(context: Any, params: types.CallToolRequestParams) -> Any:
    """Returns the client's answer, or None if the result of this call has to ask for it."""
    if context.protocol_version in MODERN_PROTOCOL_VERSIONS:
        assert params.input_responses is None or params.request_state == "asked"
        return (params.input_responses or {}).get("answer")
    session, related = context.session, context.request_id
    match params.name:
        case "form":
            return await session.elicit_form("Which colour?", FORM, related_request_id=related)
        case "sample":
            messages = QUESTIONS["sample"].params.messages
            return await session.create_message(messages, max_tokens=9, related_request_id=related)
        case _:
            return await session.list_roots()


def text_of_answer(answer: Any) -> str:
    if isinstance(answer, types.ElicitResult):
        return f"{answer.action} {(answer.content or {}).get('colour')}"
    if isinstance(answer, types.ListRootsResult):
        return " ".join(str(root.uri) for root in answer.roots)
    return f"the model said {answer.content.text}"


async def work(context: Any, name: str, arguments: dict[str, Any]) -> str:
    session = context.session
    match name:
        case "echo":
            return str(arguments["text"])
        case "count":
            for number in range(1, arguments["to"] + 1):
                await session.report_progress(number, arguments["to"])
            return f"counted to {arguments['to']}"
        case "log":
            await session.send_log_message("warning", "noted", related_request_id=context.request_id)
            return "logged"
        case "change":
            if context.protocol_version not in MODERN_PROTOCOL_VERSIONS:
                await session.send_tool_list_changed()
                await session.send_resource_updated(NOTE)
            await changes.publish(ToolsListChanged())
            await changes.publish(ResourceUpdated(uri=NOTE))
            return "changed"
    raise MCPError(types.INVALID_PARAMS, f"no such tool: {name}")


async def list_resources(context: Any, params: Any) -> types.ListResourcesResult:
    return types.ListResourcesResult(resources=[types.Resource(uri=NOTE, name="one", mime_type="text/plain")])


async def read_resource(context: Any, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
    if str(params.uri) != NOTE:
        raise MCPError(types.INVALID_PARAMS, "no such note", {"uri": str(params.uri)})
    text = types.TextResourceContents(uri=NOTE, mime_type="text/plain", text="the first note")
    return types.ReadResourceResult(contents=[text])


async def accept(context: Any, params: Any) -> types.EmptyResult:
    return types.EmptyResult()


async def list_prompts(context: Any, params: Any) -> types.ListPromptsResult:
    prompt = types.Prompt(name="greet", arguments=[types.PromptArgument(name="name", required=True)])
    return types.ListPromptsResult(prompts=[prompt])


async def get_prompt(context: Any, params: types.GetPromptRequestParams) -> types.GetPromptResult:
    text = types.TextContent(text=f"Hello, {(params.arguments or {}).get('name')}!")
    return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=text)])


async def complete(context: Any, params: types.CompleteRequestParams) -> types.CompleteResult:
    values = [name for name in ("Ada", "Alan", "Grace") if name.startswith(params.argument.value)]
    return types.CompleteResult(completion=types.Completion(values=values))


class Workshop(Server[Any]):
    """A server that declares changing tools, in the handshake too."""

    def create_initialization_options(self, *_: Any, **__: Any) -> Any:
        return super().create_initialization_options(NotificationOptions(tools_changed=True))


warnings.simplefilter("ignore")  # features that the newest revision dropped are served to older ones on purpose
server = Workshop(
    "workshop",
    version="1",
    on_list_tools=list_tools,
    on_call_tool=call_tool,
    on_list_resources=list_resources,
    on_read_resource=read_resource,
    on_subscribe_resource=accept,
    on_unsubscribe_resource=accept,
    on_subscriptions_listen=ListenHandler(changes),
    on_list_prompts=list_prompts,
    on_get_prompt=get_prompt,
    on_completion=complete,
    on_set_logging_level=accept,
)


anyio.run(serve, server, sys.argv[1])
