"""The profiles of a configuration: those that are written, and the one of all servers, which nobody has to write."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from typing import Final

from ...core.profiles.aliases import default_alias
from ...core.wire.http.header_forwarding import AUTHORIZATION
from .profile_settings import Profile, ProfileServer
from .settings import Server, Settings

DEFAULT: Final = "all"
"""The id of the profile at `/mcp` without a name."""
REASONS: Final = {
    "inspect: false": "which hands requests on as they are",
    "pass_headers": "of which another server has one, too: each would get what is for the other",
    "required_headers": "beyond its pass_headers, which requests for a profile need not have",
}
"""Settings for which a server cannot be in a profile, each with what it does."""
CREDENTIALS: Final = frozenset({AUTHORIZATION, "cookie"})
"""Headers that no two servers of a profile may be sent, though somebody chose them."""
_HEAD_CHARS: Final = 9
_DIGEST_CHARS: Final = 6


def profiles_of(settings: Settings) -> tuple[Profile, ...]:
    """Returns the written profiles. Before them stands the profile `all` of all servers that can be shown, if there are
    two of them or more, and no server or profile has this id."""
    written = settings.profiles
    shown = [server.id for server in settings.servers if not why_unfit(server, settings.servers)]
    taken = (*(server.id for server in settings.servers), *(profile.id for profile in written))
    if len(shown) < 2 or DEFAULT in taken:
        return written
    alike = Counter(map(default_alias, shown))
    servers = tuple(
        ProfileServer(id=id, alias=_own_alias(id) if alike[default_alias(id)] > 1 else None) for id in shown
    )
    return (Profile(id=DEFAULT, servers=servers), *written)


def default_of(settings: Settings) -> str:
    """Returns the id of the profile at `/mcp`; "" if there is none."""
    return DEFAULT if any(profile.id == DEFAULT for profile in profiles_of(settings)) else ""


def servers_of(profile: Profile) -> tuple[ProfileServer, ...]:
    """Returns the servers of a profile."""
    return tuple(ProfileServer(id=shown) if isinstance(shown, str) else shown for shown in profile.servers)


def why_unfit(server: Server, servers: Iterable[Server], *, are_chosen: bool = False) -> str:
    """Returns the setting for which a server cannot be in a profile, a key of `REASONS`; "" if it can.

    Args:
        servers: all of the profile.
        are_chosen: somebody chose them: then two may be sent the same header, unless it is a credential.
    """
    if not server.inspect:
        return "inspect: false"
    own = _passed(server)
    if any(name.lower() not in own for name in server.required_headers):
        return "required_headers"
    others = frozenset[str]().union(*(_passed(other) for other in servers if other.id != server.id))
    return "pass_headers" if own & others & (CREDENTIALS if are_chosen else own) else ""


def headers_of(profile: Profile, settings: Settings) -> tuple[tuple[str, str], ...]:
    """Returns the headers of clients that any server of a profile is sent, each under its own name."""
    ids = {shown.id for shown in servers_of(profile)}
    names = dict.fromkeys(name for server in settings.servers if server.id in ids for name in sorted(_passed(server)))
    return tuple((name, name) for name in names)


def _passed(server: Server) -> frozenset[str]:
    return frozenset(name.lower() for name, _ in server.upstream.passes)


def left_out(settings: Settings) -> list[str]:
    """Returns a line for each server that the profile `all` lacks though nobody chose its servers."""
    if not default_of(settings) or any(profile.id == DEFAULT for profile in settings.profiles):
        return []
    return [
        f"without {server.id}, which has {why}"
        for server in settings.servers
        if (why := why_unfit(server, settings.servers))
    ]


def _own_alias(id: str) -> str:
    """Returns an alias for a server whose default alias is that of another one, too."""
    digest = hashlib.sha256(id.encode()).hexdigest()[:_DIGEST_CHARS]
    return f"{default_alias(id)[:_HEAD_CHARS].rstrip('-')}-{digest}"
