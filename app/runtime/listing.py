"""Lists all that a server has, as the engine judges it: in the era in which the server is spoken to."""

from __future__ import annotations

from typing import Final

import anyio
import msgspec

from ...core.base.errors import METHOD_NOT_FOUND, RemoteProtocolError
from ...core.base.events import PipeOpening
from ...core.base.governance import Pinned
from ...core.base.revisions import LATEST_MODERN
from ...core.bridge.request_meta import RequestMeta, add
from ...core.governance.canonical import pinned
from ...core.governance.lock import in_order
from ...core.jsonrpc import envelope
from ...core.jsonrpc.splice import elements, members, set_member, take
from ...core.upstream.definition_filter import KINDS
from ...core.upstream.filtering import LISTS
from ...transports.memory import MemoryClient
from .hub import Hub
from .own_sessions import CLOSED, OwnSession, Refusal
from .probe import PAGES_MAX

_NEEDS: Final = {"tools": "tools", "prompts": "prompts", "resources": "resources", "templates": "resources"}
"""The capability of a server that has definitions of each kind."""

ABLE: Final = {"roots": {"listChanged": True}, "sampling": {}, "elicitation": {"form": {}, "url": {}}}
"""The capabilities that are declared, since some servers list more for a client that has more."""


class Listed(msgspec.Struct, frozen=True):
    """The definitions of a server.

    Attributes:
        definitions: in the order of the lock.
        problems: a line for each definition that cannot be used.
    """

    definitions: tuple[Pinned, ...]
    problems: tuple[str, ...] = ()


async def list_definitions(hub: Hub, server: str, version: str) -> Listed:
    """Lists a server's definitions in a session of our own.

    Raises:
        Refusal: the server answered with an error, or not at all.
        RemoteProtocolError: a list cannot be read.
    """
    session = OwnSession(hub, server, version, sees_hidden=True, capabilities=ABLE)
    failure: Refusal | RemoteProtocolError
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session.run)
        try:
            return await _list_in(hub, server, version, session)
        except (Refusal, RemoteProtocolError) as error:
            failure = error
        finally:
            session.leave()
    raise failure


async def _list_in(hub: Hub, server: str, version: str, session: OwnSession) -> Listed:
    greeting = await session.greeting()
    await hub.wait_until(lambda: _state(hub, server)[0] != "starting")
    if _state(hub, server)[1] != "stateless":
        return await _list_all(session, greeting)
    client = _StatelessClient(hub, server, version)
    try:
        return await _list_all(client, greeting)
    finally:
        client.leave()


def _state(hub: Hub, server: str) -> tuple[str, str | None]:
    return next((status.state, status.era) for status in hub.engine.report() if status.id == server)


class _StatelessClient:
    """A client without a session, for a server without sessions: its lists are translated for any other client."""

    def __init__(self, hub: Hub, server: str, version: str) -> None:
        info = msgspec.json.encode({"name": "isthmus", "version": version})
        self._meta = RequestMeta(LATEST_MODERN, msgspec.json.encode(ABLE), info)
        self._client = MemoryClient(hub)
        self._client.open(PipeOpening(server=server, sees_hidden=True, is_own=True))
        self._last_id = 0

    async def request(self, method: str, params: bytes) -> bytes:
        """Sends a request, and returns its result as JSON. Raises as `OwnSession.request` does."""
        self._last_id += 1
        id_raw = b"%d" % self._last_id
        try:
            self._client.say(envelope.encode_request(id_raw, method, add(params, self._meta)))
            while True:
                frame = envelope.decode(await self._client.receive())
                if frame.id_raw == id_raw and not frame.is_request:
                    break
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            raise Refusal(CLOSED) from None
        if frame.error is not None:
            error = msgspec.json.decode(frame.error)
            raise Refusal(error["message"], error["code"], error.get("data"))
        return frame.result or b"{}"

    def leave(self) -> None:
        """Closes the channel."""
        self._client.leave()


async def _list_all(client: OwnSession | _StatelessClient, greeting: bytes) -> Listed:
    declared = envelope.member_of(greeting, "capabilities") or b"{}"
    names = members(declared) if declared.startswith(b"{") else {}
    found: dict[tuple[str, str], Pinned] = {}
    problems: list[str] = []
    for method, kind in KINDS.items():
        if _NEEDS[kind] not in names:
            continue
        for entry in await list_entries(client, method):
            try:
                one = pinned(kind, entry)
            except RemoteProtocolError as error:
                problems.append(f"{kind}: {error.message}")
                continue
            if found.setdefault((kind, one.name), one) != one:
                problems.append(f"{kind}: {one.name!r} is listed twice, with different definitions")
    return Listed(in_order(found.values()), tuple(problems))


async def list_entries(client: OwnSession | _StatelessClient, method: str) -> list[bytes]:
    """Returns the JSON of all entries of a list; none if the server has no such list.

    Raises:
        Refusal: the server answered with an error, or not at all.
        RemoteProtocolError: the list cannot be read.
    """
    entries: list[bytes] = []
    params, seen = b"{}", {b"null"}
    for _ in range(PAGES_MAX):
        try:
            page = await client.request(method, params)
        except Refusal as refusal:
            if refusal.code == METHOD_NOT_FOUND:
                return entries
            raise
        array = take(page, members(page).get(LISTS[method].array)) or b"[]"
        entries += [array[start:stop] for start, stop in elements(array)]
        cursor = envelope.member_of(page, "nextCursor") or b"null"
        if cursor in seen:
            return entries
        seen.add(cursor)
        params = set_member(b"{}", "cursor", cursor)
    raise Refusal(f"{method} has more than {PAGES_MAX} pages")
