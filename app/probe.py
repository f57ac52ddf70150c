"""Asking a server, through the engine as any client would, who it is and what tools it has."""

from __future__ import annotations

import math
from collections.abc import Collection

import anyio
import msgspec

from .conversations import Conversation, Refusal
from .hub import Hub

PAGES_MAX = 100
"""Pages of `tools/list` that are read; a server with more is shown as having at least so many tools."""


class ServerReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a server said of itself. `problem` is empty when it answered.

    `is_transparent`: it was not asked, for nobody looks into what passes; a connection to it was tried instead.
    `schemas` are the input schemas of the tools that were asked for, in whatever shape the server gave them. `status`
    is the HTTP status of the answer that was the problem, if it was one.
    """

    id: str
    name: str = ""
    version: str = ""
    revision: str = ""
    capabilities: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    schemas: dict[str, object] = {}
    problem: str = ""
    is_transparent: bool = False
    status: int = 0


async def probe(
    hub: Hub, server: str, version: str, *, with_schemas: Collection[str] = (), timeout_s: float = math.inf
) -> ServerReport:
    """Open a session of our own, read the tool list, and leave. A server that cannot be asked becomes a `problem`.

    Args:
        with_schemas: the tools whose input schemas are kept.
    """
    conversation = Conversation(hub, server, version, sees_hidden=True)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(conversation.run)
        try:
            with anyio.fail_after(timeout_s):
                report = await _ask(conversation, server, with_schemas)
        except Refusal as refusal:
            report = ServerReport(id=server, problem=str(refusal), status=refusal.status)
        except TimeoutError:
            report = ServerReport(id=server, problem=f"no answer within {timeout_s:g} s")
        finally:
            conversation.leave()
    return report


async def _ask(conversation: Conversation, server: str, with_schemas: Collection[str]) -> ServerReport:
    hello = _members(await conversation.greeting())
    info = hello.get("serverInfo")
    capabilities = hello.get("capabilities")
    names = tuple(capabilities) if isinstance(capabilities, dict) else ()
    tools: list[str] = []
    schemas: dict[str, object] = {}
    cursor: object = None
    seen: list[object] = []
    for _ in range(PAGES_MAX if "tools" in names else 0):
        params = {} if cursor is None else {"cursor": cursor}
        page = _members(await conversation.request("tools/list", msgspec.json.encode(params)))
        entries = page.get("tools")
        for tool in entries if isinstance(entries, list) else []:
            if isinstance(tool, dict) and isinstance(tool.get("name"), str) and tool["name"] not in tools:
                tools.append(tool["name"])
                if tool["name"] in with_schemas:
                    schemas[tool["name"]] = tool.get("inputSchema")
        cursor = page.get("nextCursor")
        if cursor is None or cursor in seen:  # some servers say "" for the end, and take that for the beginning
            break
        seen.append(cursor)
    return ServerReport(
        id=server,
        name=str(info.get("name", "")) if isinstance(info, dict) else "",
        version=str(info.get("version", "")) if isinstance(info, dict) else "",
        revision=str(hello.get("protocolVersion", "")),
        capabilities=names,
        tools=tuple(tools),
        schemas=schemas,
    )


def _members(result: bytes) -> dict[str, object]:
    decoded = msgspec.json.decode(result)
    return decoded if isinstance(decoded, dict) else {}
