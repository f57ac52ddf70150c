"""Scenes of clients and the servers of a profile."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from dialogue import Dialogue
from dialogue_peers import HANDSHAKE, STATELESS, Client, Request, Server
from isthmus.core import Cause, End, Era, Kind, Profile, ProfileServer, ServerPlan

CAN: Final[dict[str, Any]] = {
    "tools": {"listChanged": True},
    "prompts": {},
    "resources": {"subscribe": True},
    "logging": {},
    "completions": {},
}
OPEN: Final = {"type": "object"}
NO_CONTENT: Final = {"content": [], "resultType": "complete"}


def meeting(
    *servers: str,
    down: str = "http",
    era: Era = Era.HANDSHAKE,
    server_era: Era = Era.HANDSHAKE,
    has_search: bool = False,
    **plan: Any,
) -> tuple[Dialogue, Client, list[Server]]:
    """Returns a client that has met a profile, and the servers of that, of which none is started yet.

    Args:
        servers: their ids; alpha and beta by default.
        plan: settings of all servers.
    """
    ids = servers or ("alpha", "beta")
    plan = {"kind": Kind.PIPE, "era": server_era} | plan
    profile = Profile("all", tuple(map(ProfileServer, ids)), has_search=has_search)
    play = Dialogue(*(ServerPlan(id=id, **plan) for id in ids), profiles=(profile,))
    return play, greeted(play, "alice", down=down, era=era), play.servers


def greeted(
    play: Dialogue, name: str, *, server: str = "all", down: str = "http", era: Era = Era.HANDSHAKE, **rest: Any
) -> Client:
    """Returns a client that has met the profile `server`."""
    client = play.client(name, down, server=server, era=era, **rest)
    if era is Era.HANDSHAKE:
        client.is_answered(client.greets(), ...)
        client.notifies("initialized")
    return client


def fail_to_start(server: Server) -> None:
    server.is_started()
    server.breaks_off(server.channel, Cause(End.UNREACHABLE, detail="no such program", unsent=True))


def serve(
    play: Dialogue, tools: Mapping[str, Any], *, able: Any = CAN, dead: Collection[str] = ()
) -> dict[str, list[Request]]:
    """Lets servers that are processes start, and answer all that they are asked but calls.

    Args:
        tools: what each lists.
        dead: those that fail to start.

    Returns:
        Their requests by server, calls among them. What came to clients is still to be expected.
    """
    asked: dict[str, list[Request]] = {server.name: [] for server in play.servers}
    waiting, play.unexpected = play.unexpected, []
    to_clients = []
    while waiting:
        came = waiting.pop(0)
        if not isinstance(came.peer, Server):
            to_clients.append(came)
            continue
        if came.verb == "is started" and came.peer.name in dead:
            came.peer.breaks_off(came.channel, Cause(End.UNREACHABLE, detail="no such program", unsent=True))
        elif came.verb == "is started":
            came.peer.connects(came.channel)
        elif came.request is not None:
            asked[came.peer.name].append(came.request)
            _answer(came.peer, came.request, tools, able)
        waiting += play.unexpected
        play.unexpected = []
    play.unexpected = to_clients
    return asked


def _answer(server: Server, request: Request, tools: Mapping[str, Any], able: Any) -> None:
    about = {"capabilities": able, "serverInfo": {"name": server.name, "version": "1"}}
    cached = {"ttlMs": 300_000, "cacheScope": "private", "resultType": "complete"}
    if request.method == "initialize":
        server.answers(request, {"protocolVersion": HANDSHAKE, **about})
    elif request.method == "server/discover":
        server.answers(request, {"supportedVersions": [STATELESS], **cached, **about})
    elif request.method == "subscriptions/listen":
        server.grants(request)
    elif request.method == "tools/list":
        server.answers(request, {"tools": tools[server.name], **cached})
    elif request.method != "tools/call":
        server.answers(request, {})


def result_for(client: Client, request: Request) -> dict[str, Any]:
    """Returns the result that a client got for a request, after which nothing more came."""
    (came,) = client.play.unexpected
    client.is_answered(request, ...)
    found: dict[str, Any] = came.what["result"]
    return found


def names_of(result: dict[str, Any]) -> list[str]:
    """Returns the names of the tools that a search has found."""
    found = result["structuredContent"]
    return [entry["name"] for entry in found["tools"] + found["more"]]
