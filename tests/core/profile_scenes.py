"""Scenes of clients and the servers of a profile."""

from __future__ import annotations

from typing import Any, Final

from dialogue import Dialogue
from dialogue_peers import Client, Server
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
    *servers: str, down: str = "http", era: Era = Era.HANDSHAKE, has_search: bool = False, **plan: Any
) -> tuple[Dialogue, Client, list[Server]]:
    """Returns a client that has met a profile, and the servers of that, of which none is started yet.

    Args:
        servers: their ids; alpha and beta by default.
        plan: settings of all servers.
    """
    ids = servers or ("alpha", "beta")
    plan = {"kind": Kind.PIPE, "era": Era.HANDSHAKE} | plan
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
