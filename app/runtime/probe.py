"""Asking a server, through the engine as any client would, who it is and what tools it has."""

from __future__ import annotations

import math
from collections.abc import Sequence

import anyio
import msgspec

from ...core.base.effects import PipeOpening
from ...core.base.errors import RemoteProtocolError
from ...core.base.name_filter import Selection
from ...core.base.revisions import LATEST_MODERN
from ...core.bridge.request_meta import Envelope, add
from ...core.jsonrpc import envelope
from ...core.status import Status
from ...transports.memory import MemoryClient
from .hub import Hub
from .own_sessions import Conversation, Refusal

PAGES_MAX = 100
"""Pages of `tools/list` that are read; a server with more is shown as having at least so many tools."""


class ServerReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a server said of itself. `problem` is empty when it answered.

    `is_transparent`: it was not asked, for nobody looks into what passes; a connection to it was tried instead.
    `schemas` are the input schemas of the tools that were asked for, in whatever shape the server gave them. `status`
    is the HTTP status of the answer that was the problem, if it was one. `eras` are those it was found to speak, each
    with the revision it named, and `declared` its capabilities and the members of these that are not false, dotted; of
    a server that was asked in one era only, what is known from that. `era` is the one in which it is spoken to for
    clients with sessions.
    """

    id: str
    name: str = ""
    version: str = ""
    eras: dict[str, str] = {}
    era: str = ""
    capabilities: tuple[str, ...] = ()
    declared: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    schemas: dict[str, object] = {}
    problem: str = ""
    is_transparent: bool = False
    status: int = 0


async def probe(
    hub: Hub,
    server: str,
    version: str,
    *,
    with_schemas: Sequence[str] = (),
    in_both_eras: bool = False,
    timeout_s: float = math.inf,
) -> ServerReport:
    """Open a session of our own, read the tool list, and leave. A server that cannot be asked becomes a `problem`.

    Args:
        with_schemas: the tools whose input schemas are kept, by names and patterns.
        in_both_eras: ask as a client without sessions, too, and so find out whether the server knows that.
    """
    conversation = Conversation(hub, server, version, sees_hidden=True)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(conversation.run)
        try:
            with anyio.fail_after(timeout_s):
                report = await _ask(conversation, server, with_schemas)
                report = msgspec.structs.replace(report, era=_status(hub, server).era or "")
                found = await _discover(hub, server, version) if in_both_eras else {}
            report = _with_eras(hub, report, found)
        except Refusal as refusal:
            report = ServerReport(id=server, problem=str(refusal), status=refusal.status)
        except TimeoutError:
            report = ServerReport(id=server, problem=f"no answer within {timeout_s:g} s")
        finally:
            conversation.leave()
    return report


async def _ask(conversation: Conversation, server: str, with_schemas: Sequence[str]) -> ServerReport:
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
                if with_schemas and Selection(include=tuple(with_schemas)).admits(tool["name"]):
                    schemas[tool["name"]] = tool.get("inputSchema")
        cursor = page.get("nextCursor")
        if cursor is None or cursor in seen:  # some servers say "" for the end, and take that for the beginning
            break
        seen.append(cursor)
    return ServerReport(
        id=server,
        name=str(info.get("name", "")) if isinstance(info, dict) else "",
        version=str(info.get("version", "")) if isinstance(info, dict) else "",
        capabilities=names,
        declared=_declared(capabilities),
        tools=tuple(tools),
        schemas=schemas,
    )


async def _discover(hub: Hub, server: str, version: str) -> dict[str, object]:
    """The members of its `DiscoverResult`, or of ours in its place; none if there is no such answer."""
    who = Envelope(LATEST_MODERN, b"{}", msgspec.json.encode({"name": "isthmus", "version": version}))
    client = MemoryClient(hub)
    try:
        client.open(PipeOpening(server=server, is_own=True))
        client.say(envelope.encode_request(b"1", "server/discover", add(None, who)))
        while True:
            frame = envelope.decode(await client.receive())
            if frame.id_raw == b"1" and not frame.is_request:
                return {} if frame.result is None else _members(frame.result)
    except (anyio.EndOfStream, anyio.BrokenResourceError, RemoteProtocolError):
        return {}
    finally:
        client.leave()


def _with_eras(hub: Hub, report: ServerReport, discovered: dict[str, object]) -> ServerReport:
    """What a client of the other era is shown is not the server's own."""
    spoken = _status(hub, report.id).eras
    own = () if "handshake" not in spoken and discovered else report.declared
    own += _declared(discovered.get("capabilities")) if "stateless" in spoken else ()
    eras = {era: revision or "" for era, revision in spoken.items()}
    return msgspec.structs.replace(report, eras=eras, declared=tuple(sorted(set(own), key=_by_parts)))


def _status(hub: Hub, server: str) -> Status:
    return next(status for status in hub.engine.report() if status.id == server)


def _by_parts(name: str) -> list[str]:
    return name.split(".")


def _declared(capabilities: object) -> tuple[str, ...]:
    found: list[str] = []
    for name, inner in capabilities.items() if isinstance(capabilities, dict) else ():
        found.append(name)
        found += [f"{name}.{part}" for part, value in inner.items() if value] if isinstance(inner, dict) else []
    return tuple(found)


def _members(result: bytes) -> dict[str, object]:
    decoded = msgspec.json.decode(result)
    return decoded if isinstance(decoded, dict) else {}
