"""The profiles of a configuration: those that are written, and the one of all servers, which nobody has to write."""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import Final

from ...core.profiles.aliases import default_alias
from .profile_settings import Profile, ProfileServer
from .settings import Server, Settings

DEFAULT: Final = "all"
"""The id of the profile at `/mcp` without a name."""
REASONS: Final = {
    "inspect: false": "which hands requests on as they are",
    "pass_headers": "which would be sent to all servers of the profile",
    "required_headers": "which requests for a profile need not have",
}
"""Settings of servers that cannot be in a profile, each with what it does."""
_HEAD_CHARS: Final = 9
_DIGEST_CHARS: Final = 6


def profiles_of(settings: Settings) -> tuple[Profile, ...]:
    """Returns the written profiles. Before them stands the profile `all` of all servers that can be shown, if there are
    two of them or more, and no server or profile has this id."""
    written = settings.profiles
    shown = [server.id for server in settings.servers if not why_unfit(server)]
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


def why_unfit(server: Server) -> str:
    """Returns the setting for which a server cannot be one of a profile, a key of `REASONS`; "" if it can."""
    if not server.inspect:
        return "inspect: false"
    if server.upstream.passes:
        return "pass_headers"
    return "required_headers" if server.required_headers else ""


def left_out(settings: Settings) -> list[str]:
    """Returns a line for each server that the profile `all` lacks though nobody chose its servers."""
    if not default_of(settings) or any(profile.id == DEFAULT for profile in settings.profiles):
        return []
    return [f"without {server.id}, which has {why}" for server in settings.servers if (why := why_unfit(server))]


def _own_alias(id: str) -> str:
    """Returns an alias for a server whose default alias is that of another one, too."""
    digest = hashlib.sha256(id.encode()).hexdigest()[:_DIGEST_CHARS]
    return f"{default_alias(id)[:_HEAD_CHARS].rstrip('-')}-{digest}"
