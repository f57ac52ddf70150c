"""Probes a server through the engine, as any client would: its name, its eras, its capabilities and its tools.

The session ends with the probe. Its handshake is not handed to the first client, since `initialize` names its client.
What the engine learns of it is for all clients that come while a process of theirs starts (`answers_early`).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence

import anyio
import msgspec

from ...core.base.errors import RemoteProtocolError
from ...core.base.events import PipeOpening
from ...core.base.name_filter import NameFilter
from ...core.base.revisions import LATEST_MODERN
from ...core.bridge.request_meta import RequestMeta, add
from ...core.jsonrpc import envelope
from ...core.status import AddressStatus, Status
from ...core.upstream.filtering import LISTS
from ...transports.memory import MemoryClient
from .hub import Hub
from .own_sessions import CLOSED, OwnSession, Refusal

LEARNING_MAX_S = 5.0
"""Seconds for the lists that the engine is to learn, and for those of a summary. At it: clients wait for those that are
missing, and the summary is made without."""
PAGES_MAX = 100
"""Pages of `tools/list` that are read; tools on later pages are not counted."""


class ServerReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of probing a server.

    Attributes:
        eras: the eras that it was found to speak, each with the revision that it named.
        era: the era used with it for clients with sessions.
        capabilities: the names of the capabilities in its response to `initialize`.
        has_tasks: it declared tasks of its own.
        declared: its capabilities and their members that are not false, dotted. If it was probed in one era only,
            those of that era.
        tools: the names of its tools; None if it was not asked.
        schemas: the input schemas of the tools that were wanted, as the server sent them.
        problem: why it could not be probed; empty if it answered.
        is_unasked: nothing was sent to it.
        is_transparent: it is not inspected, so a connection was tried instead of a session.
        status: the HTTP status of the response that was the problem; 0 if there was none.
        addresses: its URLs, if it has several and all of them were tried.
    """

    id: str
    name: str = ""
    version: str = ""
    eras: dict[str, str] = {}
    era: str = ""
    capabilities: tuple[str, ...] = ()
    declared: tuple[str, ...] = ()
    has_tasks: bool = False
    tools: tuple[str, ...] | None = None
    schemas: dict[str, object] = {}
    problem: str = ""
    is_unasked: bool = False
    is_transparent: bool = False
    status: int = 0
    addresses: tuple[AddressStatus, ...] = ()


async def probe(
    hub: Hub,
    server: str,
    version: str,
    *,
    needs_tools: bool = True,
    with_schemas: Sequence[str] = (),
    is_brief: bool = False,
    in_both_eras: bool = False,
    learns_lists: bool = False,
    timeout_s: float = math.inf,
) -> ServerReport:
    """Opens a session of our own, reads the tool list, and closes it. A failure becomes a `problem` in the report.

    Args:
        needs_tools: a server that does not list its tools has failed. Else the report is made without them.
        learns_lists: read all lists, for the engine to learn them.
        is_brief: the session is brief, as `PipeOpening` has it.
        with_schemas: names or patterns of the tools whose input schemas are kept.
        in_both_eras: send `server/discover` as well, which detects whether the server speaks the stateless era.
    """
    session = OwnSession(hub, server, version, sees_hidden=True, is_brief=is_brief)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session.run)
        try:
            with anyio.fail_after(timeout_s):
                report = _introduced(server, await session.greeting())
                report = await _with_tools_if(session, report, with_schemas, needs_tools)
                report = await _with_status(hub, report)
                found = await _discover(hub, server, version) if in_both_eras else {}
            report = _with_eras(hub, report, found)
            if learns_lists:
                await _learn_lists(session, report)
        except Refusal as refusal:
            report = ServerReport(id=server, problem=str(refusal), status=refusal.status)
        except TimeoutError:
            report = ServerReport(id=server, problem=f"no answer within {timeout_s:g} s")
        finally:
            session.leave()
    return report


async def probe_addresses(hub: Hub, server: str, version: str, *, timeout_s: float) -> tuple[AddressStatus, ...]:
    """Returns the status of each URL of a server, after a session was begun at each; empty if it has only one.

    As many sessions are open at once as there are URLs, so the engine spreads them over all that are not ill.
    """
    sessions = [
        OwnSession(hub, server, version, sees_hidden=True, is_brief=True) for _ in _status(hub, server).addresses
    ]
    async with anyio.create_task_group() as tasks:
        for session in sessions:
            tasks.start_soon(session.run)
        with anyio.move_on_after(timeout_s):
            for session in sessions:
                with contextlib.suppress(Refusal):
                    await session.greeting()
            await hub.wait_until(lambda: _status(hub, server).state != "starting")
        found = _status(hub, server).addresses
        for session in sessions:
            session.leave()
    return found


def _introduced(server: str, greeting: bytes) -> ServerReport:
    """Returns what the response to `initialize` says."""
    hello = _members(greeting)
    info = hello.get("serverInfo")
    capabilities = hello.get("capabilities")
    return ServerReport(
        id=server,
        name=str(info.get("name", "")) if isinstance(info, dict) else "",
        version=str(info.get("version", "")) if isinstance(info, dict) else "",
        capabilities=tuple(capabilities) if isinstance(capabilities, dict) else (),
        declared=_declared(capabilities),
        has_tasks=isinstance(capabilities, dict) and "tasks" in capabilities,
    )


async def _with_tools_if(
    session: OwnSession, report: ServerReport, with_schemas: Sequence[str], needs_tools: bool
) -> ServerReport:
    if needs_tools:
        return await _with_tools(session, report, with_schemas)
    with anyio.move_on_after(LEARNING_MAX_S), contextlib.suppress(Refusal):
        return await _with_tools(session, report, with_schemas)
    return report


async def _with_tools(session: OwnSession, report: ServerReport, with_schemas: Sequence[str]) -> ServerReport:
    tools: list[str] = []
    schemas: dict[str, object] = {}
    cursor: object = None
    seen: list[object] = []
    for _ in range(PAGES_MAX if "tools" in report.capabilities else 0):
        params = {} if cursor is None else {"cursor": cursor}
        page = _members(await session.request("tools/list", msgspec.json.encode(params)))
        entries = page.get("tools")
        for tool in entries if isinstance(entries, list) else []:
            if isinstance(tool, dict) and isinstance(tool.get("name"), str) and tool["name"] not in tools:
                tools.append(tool["name"])
                if with_schemas and NameFilter(include=tuple(with_schemas)).admits(tool["name"]):
                    schemas[tool["name"]] = tool.get("inputSchema")
        cursor = page.get("nextCursor")
        # Some servers end the list with the cursor "", and answer that cursor with the first page again.
        if cursor is None or cursor in seen:
            break
        seen.append(cursor)
    return msgspec.structs.replace(report, tools=tuple(tools), schemas=schemas)


async def _learn_lists(session: OwnSession, report: ServerReport) -> None:
    """Reads the lists of a server that were not read for the report."""
    with anyio.move_on_after(LEARNING_MAX_S):
        for method, listing in LISTS.items():
            is_read = report.tools is not None and method == "tools/list"
            if listing.kind in report.capabilities and not is_read:
                with contextlib.suppress(Refusal):
                    await session.request(method, b"{}")


async def _with_status(hub: Hub, report: ServerReport) -> ServerReport:
    """Waits until the handshake is over, so that closing the session cuts no message of it off. Adds what the engine
    knows of the server.

    Raises:
        Refusal: the server was lost before that.
    """
    await hub.wait_until(lambda: _status(hub, report.id).state != "starting")
    status = _status(hub, report.id)
    if status.state != "running":
        raise Refusal(status.last_error or CLOSED)
    return msgspec.structs.replace(report, era=status.era or "")


async def _discover(hub: Hub, server: str, version: str) -> dict[str, object]:
    """Returns the members of the response to `server/discover`, the server's or the engine's; empty if it failed."""
    meta = RequestMeta(LATEST_MODERN, b"{}", msgspec.json.encode({"name": "isthmus", "version": version}))
    client = MemoryClient(hub)
    try:
        client.open(PipeOpening(server=server, is_own=True))
        client.say(envelope.encode_request(b"1", "server/discover", add(None, meta)))
        while True:
            frame = envelope.decode(await client.receive())
            if frame.id_raw == b"1" and not frame.is_request:
                return {} if frame.result is None else _members(frame.result)
    except (anyio.EndOfStream, anyio.BrokenResourceError, RemoteProtocolError):
        return {}
    finally:
        client.leave()


def _with_eras(hub: Hub, report: ServerReport, discovered: dict[str, object]) -> ServerReport:
    """Adds eras and declared capabilities. Those that the engine translated from another era do not count."""
    eras_spoken = _status(hub, report.id).eras
    is_translated = report.era == "stateless" or "handshake" not in eras_spoken
    own = () if is_translated and discovered else report.declared
    own += _declared(discovered.get("capabilities")) if "stateless" in eras_spoken else ()
    eras = {era: revision or "" for era, revision in eras_spoken.items()}
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
