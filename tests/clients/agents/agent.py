"""The protocol between the journey and a client in Python: one line of JSON each way, on stdin and stdout.

The script of a client calls `run` with a function that connects. `README.md` has the requests and the answers.
"""

from __future__ import annotations

import asyncio
import base64
import importlib.metadata
import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol


class Agent(Protocol):
    """A server as the agent loop of a framework uses it: each method returns what the model is shown."""

    async def tools(self) -> list[dict[str, Any]]:
        """Returns `name`, `description` and `parameters` (a JSON Schema) of each tool."""

    async def call(self, name: str, arguments: dict[str, Any]) -> str:
        """Calls a tool. Raises what would end the agent's run."""

    async def read(self, uri: str) -> bytes:
        """Reads a resource. Raises `NotImplementedError` where the framework has no way to."""


Connect = Callable[[dict[str, Any]], AbstractAsyncContextManager[Agent]]
"""Takes the target: `{"url": …}`, or `{"command": …, "args": […], "env": {…}}`."""


def run(connect: Connect, packages: Sequence[str]) -> None:
    """Serves requests until stdin ends.

    Args:
        packages: their installed versions are part of the first answer.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a framework prints does not belong to the protocol
    versions = {name: importlib.metadata.version(name) for name in packages}

    def answer(**members: Any) -> None:
        answers.write(json.dumps(members) + "\n")
        answers.flush()

    async def serve() -> None:
        target = json.loads(await asyncio.to_thread(sys.stdin.readline))
        async with connect(target) as agent:
            answer(value=versions)
            while line := await asyncio.to_thread(sys.stdin.readline):
                try:
                    answer(value=await _do(agent, json.loads(line)))
                except NotImplementedError:
                    answer(is_missing=True)
                except Exception as error:
                    answer(error=_describe(error))

    try:
        asyncio.run(serve())
    except BaseException as error:
        answer(error=_describe(error), versions=versions)
        raise


async def _do(agent: Agent, request: dict[str, Any]) -> Any:
    match request["op"]:
        case "tools":
            return await agent.tools()
        case "call":
            return await agent.call(request["name"], request["arguments"])
        case "read":
            return (await agent.read(request["uri"])).hex()
    raise ValueError(request["op"])


def _describe(error: BaseException) -> str:
    """Returns type and message of an error, and of the errors in a group."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(_describe(each) for each in error.exceptions)
    return f"{type(error).__name__}: {error}"


def content(resource: Any) -> bytes:
    """Returns the bytes of a text or blob that a resource was read as."""
    text = getattr(resource, "text", None)
    return text.encode() if isinstance(text, str) else base64.b64decode(resource.blob)


def blocks(content: Any) -> str:
    """Returns the JSON of the content blocks of a result."""
    return json.dumps([block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in content])
