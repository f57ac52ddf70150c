"""Checks of the profiles."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from ...core.base.errors import LocalProtocolError
from ...core.profiles.aliases import Aliases
from ..base.problem import Problem
from .profiles import REASONS, servers_of, why_unfit
from .settings import Settings
from .value_types import ID_PATTERN


def check_profiles(settings: Settings, is_sound: Callable[[str], bool]) -> Iterator[Problem]:
    """Checks that profiles have ids of their own, and show servers that there are and that can be shown."""
    servers = {server.id: server for server in settings.servers or () if server}
    ids = dict.fromkeys(servers, "a server")
    for i, profile in enumerate(settings.profiles or ()):
        key = f"profiles[{i}]"
        if not profile or not is_sound(key):
            continue
        if re.fullmatch(ID_PATTERN, profile.id) is None:
            yield Problem(f"{key}.id", "letters, digits, hyphens and underscores", f"got {profile.id[:40]!r}")
        elif profile.id in ids:
            yield Problem(f"{key}.id", f"an id of its own: {ids[profile.id]} has this one", f"got {profile.id!r}")
        ids.setdefault(profile.id, f"profiles[{i}]")
        seen: set[str] = set()
        members = [servers[shown.id] for shown in servers_of(profile) if shown.id in servers]
        for j, shown in enumerate(servers_of(profile)):
            server, at = servers.get(shown.id), f"{key}.servers[{j}]"
            if server is None:
                yield Problem(at, f"one of {', '.join(servers)}", f"got {shown.id[:40]!r}")
            elif unfit := why_unfit(server, members, are_chosen=True):
                yield Problem(at, f"a server without {unfit}, {REASONS[unfit]}", f"got {shown.id[:40]!r}")
            if shown.id in seen:
                yield Problem(at, "each server once", f"got {shown.id[:40]!r} again")
            seen.add(shown.id)
        try:
            Aliases({shown.id: shown.alias for shown in servers_of(profile)})
        except LocalProtocolError as error:
            for line in str(error).splitlines():
                yield Problem(f"{key}.servers", line.partition(", expected ")[2], line.partition(", expected ")[0])
